//! Doc comments begin with what their item does, returns or is: a reference to another item says nothing where that one is not in view.

use super::{assert_none, sources};

/// What the first line of a doc comment must not begin with.
const REFERENCES: &[&str] = &["The same", "Same as", "As [`"];

/// The first line of each doc comment that is not empty, with its number.
fn first_lines(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut begun) = (Vec::new(), None);
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(kind) = ["///", "//!"].into_iter().find(|kind| line.starts_with(kind)) else {
            begun = None;
            continue;
        };
        let text = line[kind.len()..].trim_start();
        if begun != Some(kind) && !text.is_empty() {
            found.push((i + 1, text));
            begun = Some(kind);
        }
    }
    found
}

#[test]
fn doc_comments_begin_with_what_the_item_is() {
    let (mut bad, mut count) = (Vec::new(), 0);
    for (name, text) in sources(&["src", "uverbs-abi", "uverbs-c"]) {
        let lines = first_lines(&text);
        count += lines.len();
        let refers = |line: &str| REFERENCES.iter().any(|words| line.starts_with(words));
        let lines = lines.into_iter().filter(|(_, line)| refers(line));
        bad.extend(lines.map(|(i, line)| format!("{name}:{i}: {line}")));
    }
    assert!(count > 5000, "only {count} doc comments");
    assert_none("doc comments that begin with a reference to another", &bad);
}
