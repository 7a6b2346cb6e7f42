//! Checks that the owner of every kind of object can destroy it.

use std::fs;

use super::root;

/// The kinds whose `destroy` `tests/soft/objects.rs` names. A new kind must be added there and here.
const KINDS: &[&str] = &[
    "Pd",
    "Mr",
    "Mw",
    "Cq",
    "Qp",
    "Srq",
    "Xrcd",
    "Wq",
    "IndirectionTable",
    "Ah",
    "Flow",
    "Counters",
    // Objects of mlx5: a matcher is destroyed with its `PoolFlow`, a row of counters with its `CounterPool`.
    "OfDriver(&'static str, u16, u16)",
    "CompletionCounter",
];

#[test]
fn every_kind_of_object_is_among_those_with_a_destroy() {
    let source = fs::read_to_string(root().join("src/device/object.rs")).expect("source");
    let kinds = source.split("enum Kind {").nth(1).and_then(|rest| rest.split('}').next()).expect("kinds");
    let kinds: Vec<_> = kinds.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
    assert_eq!(kinds, KINDS);
}
