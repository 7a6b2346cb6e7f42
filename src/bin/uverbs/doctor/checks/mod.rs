//! The checks. Each looks at what was seen, and reads nothing but files that everybody may read.

mod cards;
mod counters;
mod gids;
mod kernel;
mod libraries;
mod manager;
mod nodes;
mod permissions;
mod port;
mod resources;
mod routes;

#[cfg(test)]
mod tests;

use super::finding::{self, Finding};
use super::seen::Seen;

/// All of them, in the order in which a user meets their causes.
const CHECKS: [fn(&Seen) -> Vec<Finding>; 11] = [
    cards::check,
    nodes::check,
    kernel::check,
    permissions::check,
    port::check,
    gids::check,
    manager::check,
    routes::check,
    counters::check,
    resources::check,
    libraries::check,
];

/// What all checks find, the worst first.
pub(super) fn all(seen: &Seen) -> Vec<Finding> {
    let mut found: Vec<_> = CHECKS.iter().flat_map(|check| check(seen)).collect();
    finding::sort(&mut found);
    found
}
