//! The words of a text, their positions, and the errors for unknown words.

use uverbs_abi::flow;

use super::error::{Fault, quoted};
use super::table::HEADERS;

/// Words that begin a rule.
pub(super) const TYPES: [&str; 4] = ["any", "all-default", "mc-default", "sniffer"];
/// Words for flags, in the order they are printed.
pub(super) const FLAGS: &[(u32, &str)] = &[
    (flow::FLAG_DONT_TRAP, "dont-trap"),
    (flow::FLAG_EGRESS, "egress"),
    (flow::FLAG_ALLOW_LOOP_BACK, "allow-loop-back"),
];
/// Words for actions and attributes.
pub(super) const OTHERS: [&str; 6] = ["drop", "tag", "priority", "dont-trap", "egress", "allow-loop-back"];

/// A sequence of characters without a space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    /// In characters, from 1.
    pub(super) column: usize,
}

pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut start = None;
    for (number, (at, c)) in text.char_indices().enumerate() {
        match start {
            None if !c.is_whitespace() => start = Some((at, number + 1)),
            Some((from, column)) if c.is_whitespace() => {
                words.push(Word { text: &text[from..at], column });
                start = None;
            }
            _ => {}
        }
    }
    words.extend(start.map(|(from, column)| Word { text: &text[from..], column }));
    words
}

/// Whether this word can follow the name of a header; the empty word is the end of the text.
pub(super) fn begins_a_part(word: &str) -> bool {
    let first = |phrase: &str| phrase.split(' ').next() == Some(word);
    ["", "and", "inner"].contains(&word)
        || OTHERS.contains(&word)
        || HEADERS.iter().any(|header| header.name == word || header.fields.iter().any(|f| first(f.phrase)))
}

pub(super) fn unknown_word(word: Word<'_>) -> Fault {
    match word.text {
        "" => Fault::new(word.column, "the text ends too early"),
        text => Fault::new(word.column, format!("unknown word {}", quoted(text))),
    }
}

/// The error for a word that begins no part of a rule.
pub(super) fn unknown(word: Word<'_>) -> Fault {
    let lower = word.text.to_ascii_lowercase();
    let text = quoted(word.text);
    let message = match word.text {
        type_ if TYPES.contains(&type_) => format!("{text} is the type of the rule and comes first"),
        "or" | "||" => "a rule has no `or`; put two rules in force".to_owned(),
        "not" | "!" => "a rule has no `not`".to_owned(),
        "src" | "dst" | "host" | "net" | "port" | "proto" => {
            format!("{text} needs its header in front of it")
        }
        _ if lower != word.text && begins_a_part(&lower) => format!("{text} is written in lower case"),
        _ => return unknown_word(word),
    };
    Fault::new(word.column, message)
}
