//! Checks that the tree on the architecture page shows the actual directories.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::root;

/// The directories of the page, each with its names. A name in the text beside another name counts as shown.
type Rooms = BTreeMap<String, BTreeSet<String>>;

fn is_name(word: &str) -> bool {
    word.ends_with(".rs") || word.ends_with('/')
}

/// The tree of the page: lines of names, two or more spaces, and a text that may continue in the next line. Two more spaces of
/// indentation are one level down.
fn rooms(tree: &str) -> Rooms {
    let (mut rooms, mut path) = (Rooms::new(), Vec::<String>::new());
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let goes_on = depth > path.len();
        let (names, said) =
            if goes_on { ("", line) } else { line.trim_start().split_once("  ").unwrap_or((line, "")) };
        let names: Vec<_> = names.split_whitespace().filter(|name| is_name(name)).collect();
        if let Some(last) = names.last() {
            path.truncate(depth);
            let above = path.concat();
            rooms.entry(above).or_default().extend(names.iter().map(|name| (*name).to_owned()));
            path.push((*last).to_owned());
        }
        // A file contains nothing: the names in its text are files beside it.
        let here: String = path.iter().filter(|name| name.ends_with('/')).map(String::as_str).collect();
        let said = said.split([' ', ',', ';', ':', '(', ')']).filter(|word| is_name(word));
        rooms.entry(here).or_default().extend(said.map(str::to_owned));
    }
    rooms
}

#[test]
fn the_architecture_page_shows_each_room() {
    let page = fs::read_to_string(root().join("docs/internals/architecture.md")).expect("the page");
    let rooms = rooms(page.split("```").nth(1).expect("the rooms"));
    for (room, names) in &rooms {
        for name in names {
            let places = [room.clone() + name, format!("{room}src/{name}")];
            assert!(places.iter().any(|place| root().join(place).exists()), "there is no {name} in {room}");
        }
    }
    // Of `src/`, and of its directories whose contents are shown, nothing is left out.
    let from_inside = rooms.iter().filter(|(room, names)| room.starts_with("src/") && names.len() > 3);
    let mut count = 0;
    for (room, names) in from_inside {
        for entry in fs::read_dir(root().join(room)).expect("a room") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name");
            let name = if entry.path().is_dir() { name + "/" } else { name };
            if !["mod.rs", "tests.rs", "tests/"].contains(&name.as_str()) {
                count += 1;
                let is_shown = names.iter().any(|shown| shown.starts_with(&name));
                assert!(is_shown, "{room}{name} is not on the page");
            }
        }
    }
    assert!(count > 40, "the rooms are read: {count}");
}

#[test]
fn a_tree_is_read() {
    let rooms = rooms("top/   text a.rs\n  x.rs y/   b.rs: text\n       and c.rs\n    z.rs\n  w.rs\n");
    let names = |room: &str| rooms[room].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(names(""), ["top/"]);
    assert_eq!(names("top/"), ["a.rs", "w.rs", "x.rs", "y/"]);
    assert_eq!(names("top/y/"), ["b.rs", "c.rs", "z.rs"]);
}
