//! The tables of docs/guide/completion-counters.md: every test that they name is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of the tests in a file.
fn tests_in(file: &str) -> BTreeSet<String> {
    let text = read(&format!("tests/{file}.rs"));
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let after_attribute = |at: usize| {
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        attributes.into_iter().any(|line| *line == "#[test]")
    };
    let names = lines.iter().enumerate().filter(|(at, _)| after_attribute(*at));
    names.filter_map(|(_, line)| Some(line.strip_prefix("fn ")?.split_once('(')?.0.to_owned())).collect()
}

/// What stands between backticks, in rows of tables, as `file::test`.
fn named(page: &str) -> Vec<(String, String)> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let code = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let pairs = code.filter_map(|code| code.split_once("::"));
    // Types of the crate have a capital letter.
    let pairs = pairs.filter(|(file, _)| file.starts_with(|first: char| first.is_ascii_lowercase()));
    pairs.map(|(file, test)| (file.to_owned(), test.to_owned())).collect()
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let named = named(&read("docs/guide/completion-counters.md"));
    assert!(named.len() > 60, "the tables are read");
    let missing: Vec<_> = named.iter().filter(|(file, test)| !tests_in(file).contains(test)).collect();
    assert!(missing.is_empty(), "named, but not there: {missing:#?}");
}

#[test]
fn every_test_of_counters_is_on_the_page() {
    let named: BTreeSet<_> = named(&read("docs/guide/completion-counters.md")).into_iter().collect();
    for file in ["completion_counter", "wait_objects", "counted_traffic", "counted_queues"] {
        let tests = tests_in(file);
        assert!(tests.len() > 10, "{file} is read");
        let rest: Vec<_> =
            tests.into_iter().filter(|test| !named.contains(&(file.to_owned(), test.clone()))).collect();
        assert!(rest.is_empty(), "not on the page, of {file}: {rest:#?}");
    }
}
