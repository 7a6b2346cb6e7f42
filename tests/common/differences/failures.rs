//! Kinds of failure over each transport (`tests/any/grid`): the soft device's answers, and the rows in which other devices differ.

mod rows;

use std::cell::Cell;

use self::rows::{Change, ON_MLX5, ON_RXE, Row};
use super::kernel;
use crate::common::Target;

/// What is seen of a request, in this order.
const FIELDS: usize = 6;
const NAMES: [&str; FIELDS] = ["the sender", "the peer", "states", "events", "memory", "the next send"];
/// A field in which there is nothing.
const NOTHING: &str = "-";
const SENDER: usize = 0;
const PEER: usize = 1;
const STATES: usize = 2;
const EVENTS: usize = 3;
const MEMORY: usize = 4;
const NEXT: usize = 5;

/// What is seen of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome([String; FIELDS]);

impl Outcome {
    pub fn new(first: [String; 5], [next]: [String; 1]) -> Self {
        let [sender, peer, states, events, memory] = first;
        Self([sender, peer, states, events, memory, next])
    }

    /// There was no request.
    pub fn refused(why: String) -> Self {
        let [peer, states, events, memory, next] = [(); 5].map(|()| "-".into());
        Self([why, peer, states, events, memory, next])
    }

    /// Everything but the next request.
    pub fn first(&self) -> [String; 5] {
        [SENDER, PEER, STATES, EVENTS, MEMORY].map(|field| self.0[field].clone())
    }

    pub fn next(&self) -> String {
        self.0[NEXT].clone()
    }
}

/// Whether `text` is `pattern`, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
        }),
    }
}

/// The cells of a device.
pub struct Outcomes<'a> {
    target: &'a Target,
    stored: Vec<(&'static str, Outcome)>,
    /// Each change of each row, and how many cells have it.
    changes: Vec<(&'static Row, &'static Change, Cell<usize>)>,
    wrong: Vec<String>,
    seen: Vec<String>,
    different: usize,
}

impl<'a> Outcomes<'a> {
    pub fn of(target: &'a Target) -> Self {
        let kernel = kernel();
        let rows = match target.device.driver() {
            "rxe" => ON_RXE,
            "mlx5" => ON_MLX5,
            _ => &[],
        };
        let rows = rows.iter().filter(|row| (row.from..row.below).contains(&kernel));
        let changes = rows.flat_map(|row| row.changes.iter().map(move |change| (row, change, Cell::new(0))));
        let stored = include_str!("../../golden/failures.txt").lines().filter(|line| !line.starts_with('#'));
        let stored = stored.map(|line| {
            let at = line.match_indices(" | ").nth(1).expect("a cell").0;
            let (name, fields) = line.split_at(at);
            let fields: Vec<_> = fields[3..].split(" | ").map(String::from).collect();
            (name, Outcome(fields.try_into().expect("the fields of a cell")))
        });
        Self {
            target,
            stored: stored.collect(),
            changes: changes.collect(),
            wrong: Vec::new(),
            seen: Vec::new(),
            different: 0,
        }
    }

    /// What this device has in a cell.
    pub fn expected(&self, transport: &str, name: &str) -> Outcome {
        let key = format!("{transport} | {name}");
        let stored = self.stored.iter().find(|(stored, _)| *stored == key);
        let mut cell =
            stored.map_or_else(|| Outcome::refused("nothing is stored".into()), |(_, cell)| cell.clone());
        let text = format!("{transport} {name}");
        for (row, change, uses) in &self.changes {
            let field = &mut cell.0[change.field];
            if !row.cells.iter().any(|pattern| matches(pattern, &text)) {
                continue;
            }
            let is_all = field == change.soft;
            // A dash means that there is nothing.
            if is_all || change.soft != NOTHING && field.contains(change.soft) {
                *field = if is_all { change.here.into() } else { field.replace(change.soft, change.here) };
                uses.set(uses.get() + 1);
            }
        }
        cell
    }

    /// The device has this in a cell.
    pub fn is(&mut self, transport: &str, name: &str, expected: &Outcome, seen: &Outcome) {
        let key = format!("{transport} | {name}");
        for (what, (seen, expected)) in NAMES.iter().zip(seen.0.iter().zip(&expected.0)) {
            if seen != expected {
                self.wrong.push(format!("{key}: {what}: {seen}, not {expected}"));
            }
        }
        let stored = self.stored.iter().find(|(stored, _)| *stored == key);
        self.different += usize::from(stored.is_none_or(|(_, stored)| stored != seen));
        self.seen.push(format!("{key} | {}", seen.0.join(" | ")));
    }

    /// There are no more cells. Every stored cell was seen, and every row occurred.
    pub fn end(mut self) {
        for (key, _) in &self.stored {
            if !self.seen.iter().any(|seen| seen.starts_with(&format!("{key} | "))) {
                self.wrong.push(format!("{key}: is stored, and not a cell"));
            }
        }
        let name = self.target.device.name();
        let (all, different) = (self.seen.len(), self.different);
        println!("{name}: {all} cells, {} as on the soft device, {different} with a row", all - different);
        for (row, change, uses) in &self.changes {
            let what = format!("{}: {}", row.what, NAMES[change.field]);
            println!("differs: {what} | {} | {}", change.soft, change.here);
            if uses.get() == 0 {
                self.wrong.push(format!("{what}: no cell has this row ({})", row.why));
            }
        }
        if !self.wrong.is_empty() {
            println!("all cells:\n{}", self.seen.join("\n"));
        }
        assert!(self.wrong.is_empty(), "wrong on {name}:\n{}", self.wrong.join("\n"));
    }
}
