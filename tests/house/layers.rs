//! Checks which module uses which.

use super::{assert_none, code, sources};

/// The modules that each top-level module may use. A new one is a decision: see the architecture page.
const ROOMS: &[(&str, &[&str])] = &[
    ("kernel", &[]),
    ("driver", &["kernel"]),
    // A device like the kernel's: it answers commands and does not know the objects that send them.
    ("soft", &["kernel", "driver::ring"]),
    ("device", &["kernel", "driver", "soft"]),
    ("completion_counter", &["kernel", "driver", "device"]),
    ("verbs", &["kernel", "driver", "device", "completion_counter"]),
    ("counters", &["kernel", "driver", "device"]),
    ("flow", &["kernel", "driver", "device", "verbs", "counters"]),
    ("mlx5", &["kernel", "driver", "device", "verbs", "counters", "flow"]),
    ("efa", &["kernel", "driver", "device", "verbs"]),
    ("tokio", &["kernel", "device", "verbs", "counters"]),
    // The parts that bindings use, under other names.
    ("raw", &["kernel", "driver", "device", "completion_counter", "verbs"]),
];

/// Layers inside a top-level module: each may use those before it, and all of them may use modules that are not listed.
const FLOORS: &[(&str, &[&str])] = &[
    ("kernel", &["error", "process", "event", "mapping", "command", "transport"]),
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
