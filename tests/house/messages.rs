//! The messages for users: each text of the library and the program.
//!
//! `cargo test --test house messages -- --nocapture` prints them, each with its file.

use super::{assert_none, code, sources};

/// Texts of at least two words in code that does not belong to tests, without those of attributes, assertions and panics.
fn messages() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, text) in sources(&["src"]) {
        // The help texts for Prometheus are sentences, as in other exporters.
        if name.contains("/tests") || name.ends_with("testing.rs") || name.contains("/export/") {
            continue;
        }
        let lines = code(&text)
            .map(|(_, line)| line)
            .take_while(|line| !line.starts_with("mod tests {"))
            .filter(|line| {
                !["#[", "assert", "debug_assert", "expect(", "panic!"].iter().any(|word| line.contains(word))
            });
        // A text may continue in the next line, after a backslash.
        let all: String = lines.map(|line| line.to_owned() + "\n").collect::<String>().replace("\\\n", "");
        found.extend(literals(&all).filter(|text| is_sentence(text)).map(|text| (text, name.clone())));
    }
    found.sort();
    found.dedup();
    found
}

/// The texts between quotation marks.
fn literals(code: &str) -> impl Iterator<Item = String> {
    let quoted = code.replace("\\\"", "\u{201d}").replace("'\"'", "' '");
    let texts: Vec<_> =
        quoted.split('"').skip(1).step_by(2).map(|text| text.replace('\u{201d}', "\"")).collect();
    texts.into_iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn is_sentence(text: &str) -> bool {
    let is_word =
        |word: &str| word.len() > 1 && word.chars().all(|c| c.is_alphabetic() || ",;:'`-".contains(c));
    text.split(' ').filter(|word| is_word(word)).count() >= 3
}

/// The style of all messages: an error is printed after `OPERATION: KIND (ERRNO): `, so it begins with a small letter and has no full
/// stop.
#[test]
fn messages_are_of_one_style() {
    let all = messages();
    assert!(all.len() > 150, "they are found: {}", all.len());
    let mut bad = Vec::new();
    for (text, name) in &all {
        println!("{name}: {text}");
        let is_an_end = text.ends_with('.') && !text.ends_with("...");
        let shouts = text.contains('!') || text.contains("please") || text.contains("Please");
        if is_an_end || shouts {
            bad.push(format!("{name}: {text}"));
        }
    }
    assert_none("messages with a full stop, or that shout", &bad);
}

#[test]
fn texts_are_found() {
    let code = "let a = \"one two three\"; b('\"', \"say \\\"so\\\" again\");";
    assert_eq!(literals(code).collect::<Vec<_>>(), ["one two three", "say \"so\" again"]);
    assert!(is_sentence("no room for all"));
    assert!(!is_sentence("qp.create"));
}
