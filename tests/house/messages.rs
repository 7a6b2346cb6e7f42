//! The messages for users: each text of the library and the program.
//!
//! `cargo test --test house messages -- --nocapture` prints them, each with its file.

use super::{assert_none, code, sources};

/// Texts of at least two words in code that does not belong to tests, without those of attributes, assertions and panics; each with its
/// file, and with the code before it since the last text.
pub(super) fn messages() -> Vec<(String, String, String)> {
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
        let sentences = literals(&all).filter(|(_, text)| is_sentence(text));
        found.extend(sentences.map(|(before, text)| (text, name.clone(), before)));
    }
    found.sort();
    found.dedup();
    found
}

/// The texts between quotation marks, each with the code before it.
fn literals(code: &str) -> impl Iterator<Item = (String, String)> {
    let quoted = code.replace("\\\"", "\u{201d}").replace("'\"'", "' '");
    let parts: Vec<_> = quoted.split('"').map(str::to_owned).collect();
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let pairs =
        parts.chunks_exact(2).map(|pair| (pair[0].clone(), one_line(&pair[1].replace('\u{201d}', "\""))));
    pairs.collect::<Vec<_>>().into_iter()
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
    for (text, name, _) in &all {
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
    assert_eq!(
        literals(code).map(|(_, text)| text).collect::<Vec<_>>(),
        ["one two three", "say \"so\" again"]
    );
    assert!(is_sentence("no room for all"));
    assert!(!is_sentence("qp.create"));
}
