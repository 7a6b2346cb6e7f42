//! The pages are true to the tree: the files that they name are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a directory, by its path from the root.
fn files(directory: &str) -> BTreeSet<String> {
    let (mut open, mut found) = (vec![root().join(directory)], BTreeSet::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(root()).expect("below the root").display().to_string());
            }
        }
    }
    found
}

/// The pages, with what they say outside of examples.
fn pages() -> Vec<(String, String)> {
    let mut names: Vec<_> = files("docs").into_iter().filter(|name| name.ends_with(".md")).collect();
    names.push("README.md".to_owned());
    assert!(names.len() > 12, "the pages are found");
    let text = |name: &String| fs::read_to_string(root().join(name)).expect("a page");
    let outside = |name: String| {
        let said = text(&name).split("```").step_by(2).collect();
        (name, said)
    };
    names.into_iter().map(outside).collect()
}

/// What stands between backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn every_file_that_a_page_names_is_there() {
    const TOPS: [&str; 6] = ["src/", "tests/", "docs/", "benches/", "uverbs-abi/", "uverbs-c/"];
    let tree: BTreeSet<_> = TOPS.iter().flat_map(|top| files(top)).collect();
    let is_there = |path: &str| {
        let path = path.trim_end_matches('/');
        let begins =
            |file: &String| file == path || file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        tree.iter().any(begins)
    };
    let (mut count, mut missing) = (0, Vec::new());
    for (page, text) in pages() {
        for span in spans(&text) {
            let is_path = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            let is_whole = TOPS.iter().any(|top| span.starts_with(top));
            // "connected.rs" is a test; "driver/rxe.rs" is below `src`; a name in capitals stands for several.
            let is_rust = span.ends_with(".rs") && !is_whole;
            if !is_path || !(is_whole || is_rust) || span.contains("VERSION") {
                continue;
            }
            count += 1;
            let places = [
                span.to_owned(),
                format!("src/{span}"),
                format!("tests/{span}"),
                format!("uverbs-c/src/{span}"),
            ];
            let here = if is_whole { is_there(span) } else { places.iter().any(|place| is_there(place)) };
            // The pages on one part of the tree name its files by their last names.
            let ends = || !span.contains('/') && tree.iter().any(|file| file.ends_with(&format!("/{span}")));
            if !here && (is_whole || !ends()) {
                missing.push(format!("{page}: {span}"));
            }
        }
    }
    assert!(count > 100, "the pages are read");
    assert!(missing.is_empty(), "named, but not there: {missing:#?}");
}
