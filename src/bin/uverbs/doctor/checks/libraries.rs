//! The libraries of verbs that running programs have.
//!
//! Source: /proc/PID/maps (proc(5)), which a process may read of its own user's programs, and root of all.

use std::collections::BTreeMap;

use crate::doctor::finding::Finding;
use crate::doctor::seen::Seen;

/// Most programs that are named for a library.
const NAMED: usize = 8;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let machine = &seen.machine;
    let mut used: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for process in machine.names("proc").iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    {
        let Some(maps) = machine.text(&format!("proc/{process}/maps")) else { continue };
        let path = |line: &str| line.find('/').map(|at| line[at..].trim_end_matches(" (deleted)").to_owned());
        let is_verbs =
            |path: &String| path.rsplit('/').next().is_some_and(|name| name.starts_with("libibverbs.so"));
        let mut paths: Vec<_> = maps.lines().filter_map(path).filter(is_verbs).collect();
        paths.dedup();
        let name = machine.text(&format!("proc/{process}/comm")).unwrap_or_default();
        for path in paths {
            let programs = used.entry(path).or_default();
            let program = format!("{}[{process}]", name.escape_debug());
            if !programs.contains(&program) {
                programs.push(program);
            }
        }
    }
    let differ = used.len() > 1;
    let finding = |(path, programs): (String, Vec<String>)| {
        let more = programs.len().saturating_sub(NAMED);
        let mut names = programs.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
        if more > 0 {
            names.push_str(&format!(" and {more} more"));
        }
        let why = match differ {
            true => "programs on this machine use different libraries of verbs, which may behave differently",
            false => "this is the library of verbs that these programs use",
        };
        Finding::note("library", format!("{names}: {}", path.escape_debug()), why)
    };
    used.into_iter().map(finding).collect()
}
