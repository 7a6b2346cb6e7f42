//! Checks that the heads of lanes' scripts name existing paths, groups and kernels. `tests/vm/lib/heads.awk` says what a head may say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// The shell scripts below a directory.
fn scripts(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let below = paths.flat_map(|path| if path.is_dir() { scripts(&path) } else { vec![path] });
    below.filter(|path| path.extension().is_some_and(|end| end == "sh")).collect()
}

/// The heads of all lanes by their names.
pub(crate) fn heads() -> BTreeMap<String, String> {
    let mut heads = BTreeMap::new();
    for path in scripts(&root().join("tests/vm")) {
        let lane = path.file_stem().expect("a name").display().to_string();
        let text = fs::read_to_string(&path).expect("a script");
        let head = text.split("\n\n").next().unwrap_or_default();
        if head.contains(&format!("\n# Lane {lane}: ")) {
            heads.insert(lane, head.to_owned());
        }
    }
    heads
}

/// The words of all lines of a key in a head.
pub(crate) fn said<'a>(head: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!("# {key}: ");
    head.lines().filter_map(move |line| line.strip_prefix(&begin)).flat_map(str::split_whitespace)
}

#[test]
fn what_heads_of_lanes_name_is_there() {
    let text = |file: &str| fs::read_to_string(root().join(file)).expect("a file");
    let (ci, vm) = (text(".ci/run"), text("tests/vm/run"));
    let named = ci.lines().find_map(|line| line.strip_prefix("GROUPS_OF_PATHS=")).expect("the groups");
    let named: BTreeSet<_> = named.trim_matches('"').split_whitespace().collect();
    let groups =
        ci.lines().filter_map(|line| line.split_once("=\"")).filter(|(name, _)| named.contains(name));
    let groups: BTreeMap<_, _> = groups.map(|(name, paths)| (name, paths.trim_end_matches('"'))).collect();
    assert_eq!(groups.keys().copied().collect::<BTreeSet<_>>(), named);

    let heads = heads();
    assert!(heads.len() > 40, "the lanes are found: {}", heads.len());
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    let of_heads =
        heads.iter().flat_map(|(lane, head)| said(head, "due").map(move |word| (lane.as_str(), word)));
    let of_groups =
        groups.iter().flat_map(|(name, paths)| paths.split_whitespace().map(move |word| (*name, word)));
    for (place, word) in of_heads.chain(of_groups) {
        let is_there = match word.strip_prefix('$') {
            Some(group) => {
                used.insert(group);
                named.contains(group)
            }
            None => word == "later" || root().join(word.trim_start_matches('!')).exists(),
        };
        if !is_there {
            wrong.push(format!("{place}: {word}"));
        }
    }
    wrong.extend(named.difference(&used).map(|group| format!("no lane names {group}")));
    for (lane, head) in &heads {
        for kernel in said(head, "kernels") {
            if !vm.contains(&format!("\n    \"{kernel}\": [")) {
                wrong.push(format!("{lane}: there is no kernel {kernel}"));
            }
        }
    }
    super::assert_none("paths, groups and kernels of lanes", &wrong);
}
