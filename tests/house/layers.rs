//! Checks which module uses which.

use super::drivers::NAMES;
use super::{assert_none, code, sources};

/// The modules that each top-level module may use. A new one is a decision: see the architecture page.
const ROOMS: &[(&str, &[&str])] = &[
    ("kernel", &[]),
    ("driver", &["kernel"]),
    // A device like the kernel's: it answers commands and does not know the objects that send them.
    ("soft", &["kernel", "driver::ring", "roce"]),
    // Packets and state machines, without anything around them.
    ("roce", &[]),
    ("device", &["kernel", "driver", "soft"]),
    ("completion_counter", &["kernel", "driver", "device"]),
    ("verbs", &["kernel", "driver", "device", "completion_counter"]),
    ("counters", &["kernel", "driver", "device"]),
    ("flow", &["kernel", "driver", "device", "verbs", "counters"]),
    ("mlx5", &["kernel", "driver", "device", "verbs", "counters", "flow"]),
    ("efa", &["kernel", "driver", "device", "verbs"]),
    ("tokio", &["kernel", "driver", "device", "verbs", "counters"]),
    ("cm", &["kernel", "driver", "device", "verbs", "soft"]),
    // The parts that bindings use, under other names.
    ("raw", &["kernel", "driver", "device", "completion_counter", "verbs", "roce"]),
];

/// Layers inside a top-level module: each may use those before it, and all of them may use modules that are not listed.
const FLOORS: &[(&str, &[&str])] = &[
    ("kernel", &["error", "process", "event", "mapping", "command", "transport", "manager"]),
    ("device", &["context", "object"]),
    ("verbs", &["pd", "xrcd", "mr", "ah", "work", "cq", "srq", "wq", "progress", "qp", "mw"]),
];

/// The module path of a file: `src/soft/call.rs` is `[soft, call]`.
fn module(name: &str) -> Vec<&str> {
    let path = name.trim_start_matches("src/").trim_end_matches(".rs");
    path.split('/').filter(|part| *part != "mod").collect()
}

/// Paths from the crate's root in a line of code, as written after `crate::`.
fn uses(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("crate::").filter_map(move |(at, found)| {
        let before = line[..at].chars().next_back();
        let path = &line[at + found.len()..];
        let part = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '{';
        let end = path.find(|c| !part(c)).unwrap_or(path.len());
        // `$crate::` belongs to a macro; `pub(in crate::...)` is not a use.
        (!matches!(before, Some('$')) && !line[..at].ends_with("in "))
            .then(|| path[..end].trim_end_matches(':'))
    })
}

/// The layer of a module, if its top-level module has layers.
fn floor(path: &[&str]) -> Option<usize> {
    let (_, floors) = FLOORS.iter().find(|(room, _)| *room == path[0])?;
    floors.iter().position(|floor| Some(floor) == path.get(1))
}

/// Why a module may not use another, if it may not.
fn refused(from: &[&str], used: &str) -> Option<&'static str> {
    let path: Vec<_> = used.split("::").collect();
    if from[0] != path[0] {
        let Some((_, allowed)) = ROOMS.iter().find(|(room, _)| *room == from[0]) else {
            return Some("the room has no row in the table");
        };
        let is = |room: &&str| used == *room || used.starts_with(&format!("{room}::"));
        return (!allowed.iter().any(is)).then_some("the other room is above, or beside");
    }
    // A module in no layer is below all of them.
    (floor(&path) > floor(from)).then_some("it stands above in the same room")
}

#[test]
fn modules_use_what_is_below_them() {
    let mut wrong = Vec::new();
    for (name, text) in sources(&["src"]) {
        if name == "src/lib.rs" || name.starts_with("src/bin/") {
            continue;
        }
        let path = module(&name);
        for (i, line) in code(&text) {
            for used in uses(line) {
                if let Some(why) = refused(&path, used) {
                    wrong.push(format!("{name}:{i}: crate::{used}: {why}"));
                }
            }
            // `use super::...` that reaches the root, or another layer, would hide the use from the tables.
            let supers =
                line.trim_start_matches("pub ").trim_start_matches("use ").matches("super::").count();
            let depth = path.len() - usize::from(floor(&path).is_some());
            if (line.starts_with("use ") || line.starts_with("pub use ")) && supers >= depth {
                wrong.push(format!("{name}:{i}: write `crate::` for what is outside"));
            }
        }
    }
    assert_none("wrong arrows", &wrong);
}

#[test]
fn arrows_that_go_up_are_found() {
    assert_eq!(refused(&["verbs", "qp", "post"], "verbs::mr::Segment"), None);
    assert_eq!(refused(&["verbs", "qp", "post"], "kernel::error::Error"), None);
    assert_eq!(refused(&["soft", "send"], "driver::ring::Watcher"), None);
    assert_eq!(refused(&["device", "context", "open"], "device::Device"), None);
    for (from, used) in [
        (&["verbs", "mr"][..], "verbs::qp::QueuePair"),
        (&["kernel", "error"], "kernel::command::Command"),
        (&["device", "netlink"], "device::context::Context"),
        (&["soft", "send"], "driver::rxe"),
        (&["kernel", "command"], "device::object::Object"),
        (&["cellar"], "kernel::error"),
    ] {
        assert!(refused(from, used).is_some(), "{from:?} {used}");
    }
}

/// The parts of `driver` by floors: the ground, what each driver implements, and the drivers. All other files stand above them. A part may
/// use those on lower floors; the parts of the ground may use each other.
const DRIVER: [&[&str]; 3] = [&["request", "completion", "ring"], &["seam"], &NAMES];

/// The floor of a part of `driver`.
fn storey(part: &str) -> usize {
    DRIVER.iter().position(|floor| floor.contains(&part)).unwrap_or(DRIVER.len())
}

/// Why a part of `driver` may not use another, if it may not.
fn refused_part(from: &str, used: &str) -> Option<&'static str> {
    let (here, there) = (storey(from), storey(used));
    if from == used || there < here || here == DRIVER.len() || (here, there) == (0, 0) {
        return None;
    }
    Some(if here == there { "the other part is beside it" } else { "the other part stands above it" })
}

/// The parts of `driver` that a line uses, in a file whose module path is `path`.
fn parts_of_driver<'l>(path: &[&str], line: &'l str) -> Vec<&'l str> {
    let mut parts = Vec::new();
    let first = |rest: &'l str| -> Vec<&'l str> {
        let names = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or(list).split(',').collect(),
            None => vec![rest],
        };
        let ends = |c: char| !(c.is_alphanumeric() || c == '_');
        names.into_iter().map(|name| name.trim().split(ends).next().unwrap_or_default()).collect()
    };
    for (at, found) in line.match_indices("crate::driver::") {
        if !line[..at].ends_with("in ") {
            parts.extend(first(&line[at + found.len()..]));
        }
    }
    // `super::` once for each module up to `driver`.
    let up = "super::".repeat(path.len() - 1);
    for (at, found) in line.match_indices(&up) {
        if !line[..at].ends_with("super::") && !line[at + found.len()..].starts_with("super::") {
            parts.extend(first(&line[at + found.len()..]));
        }
    }
    parts.retain(|part| !part.is_empty() && *part != "self" && *part != "driver");
    parts
}

/// Lines of code, with their numbers. A `use` over several lines is one.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (i, line) in code(text) {
        match all.last_mut().filter(|_| is_open) {
            Some((_, statement)) => *statement += line.trim(),
            None => all.push((i, line.trim().to_owned())),
        }
        let begins = line.split_whitespace().take(2).any(|word| word == "use");
        is_open = (is_open || begins) && !line.contains(';');
    }
    all
}

#[test]
fn drivers_use_the_ground_and_the_seam_alone() {
    let mut wrong = Vec::new();
    for (name, text) in sources(&["src/driver"]) {
        let path = module(&name);
        let is_test = path.contains(&"tests") || name == "src/driver/mod.rs";
        let Some(from) = path.get(1).filter(|_| !is_test) else { continue };
        let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (i, line) in statements(text) {
            for used in parts_of_driver(&path, &line) {
                if let Some(why) = refused_part(from, used) {
                    wrong.push(format!("{name}:{i}: driver::{used}: {why}"));
                }
            }
        }
    }
    assert_none("wrong arrows inside `driver`", &wrong);
}

#[test]
fn arrows_between_drivers_are_found() {
    let path = ["driver", "efa", "sends"];
    let used = |line| parts_of_driver(&path, line);
    assert_eq!(used("use crate::driver::queues::Lower;"), ["queues"]);
    assert_eq!(used("use crate::driver::{Kernel, plans};"), ["Kernel", "plans"]);
    assert_eq!(used("use super::super::side::CqSide;"), ["side"]);
    assert_eq!(used("use super::track::Track;"), [""; 0]);
    assert_eq!(used("pub(in crate::driver) fn plan() {}"), [""; 0]);
    assert_eq!(parts_of_driver(&["driver", "efa"], "use super::side::CqSide;"), ["side"]);
    let [(1, list), (4, next)] = &statements("use crate::driver::{\n    Kernel, plans,\n};\nfn next() {")[..]
    else {
        panic!("a list over several lines is one statement");
    };
    assert_eq!((used(list), next.as_str()), (vec!["Kernel", "plans"], "fn next() {"));
    for (from, used) in
        [("efa", "queues"), ("efa", "Kernel"), ("efa", "mlx5"), ("seam", "efa"), ("ring", "seam")]
    {
        assert!(refused_part(from, used).is_some(), "{from} {used}");
    }
    for (from, used) in
        [("efa", "seam"), ("efa", "ring"), ("seam", "request"), ("queues", "efa"), ("plans", "queues")]
    {
        assert_eq!(refused_part(from, used), None, "{from} {used}");
    }
}
