//! A rule as text.

use std::fmt;

use uverbs_abi::flow::{self, FlowSpecActionTag, FlowSpecHdr};
use zerocopy::FromBytes;

use super::AnyRule;
use super::lexer::FLAGS;
use super::table::{HEADERS, Header};
use super::value;
use crate::flow::rule::{FlowRule, RuleType};

/// The text that [`AnyRule::parse`] reads back to the same bytes. Port and counters are not part of it.
impl<K: RuleType> fmt::Display for FlowRule<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attr = self.attr();
        let mut words = Vec::new();
        match attr.type_ {
            flow::ATTR_ALL_DEFAULT => words.push("all-default".to_owned()),
            flow::ATTR_MC_DEFAULT => words.push("mc-default".to_owned()),
            flow::ATTR_SNIFFER => words.push("sniffer".to_owned()),
            _ => specs(self.specs(), &mut words),
        }
        if attr.priority > 0 {
            words.push(format!("priority {}", attr.priority));
        }
        for (flag, word) in FLAGS {
            if attr.flags & flag != 0 {
                words.push((*word).to_owned());
            }
        }
        f.write_str(&words.join(" "))
    }
}

impl fmt::Display for AnyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal(rule) => rule.fmt(f),
            Self::CatchAll(rule) => rule.fmt(f),
            Self::Sniffer(rule) => rule.fmt(f),
        }
    }
}

/// The specs of a normal rule; `any` if it names no header.
fn specs(mut bytes: &[u8], words: &mut Vec<String>) {
    let mut matched = false;
    while let Ok((hdr, _)) = FlowSpecHdr::read_from_prefix(bytes) {
        let size = usize::from(hdr.size).max(size_of::<FlowSpecHdr>());
        let Some((spec, rest)) = bytes.split_at_checked(size) else { break };
        bytes = rest;
        let inner = hdr.type_ & flow::SPEC_INNER != 0;
        if let Some(header) = HEADERS.iter().find(|header| header.type_ == hdr.type_ & !flow::SPEC_INNER) {
            for phrase in phrases(header, &spec[size_of::<FlowSpecHdr>()..]) {
                let inner = if inner { "inner " } else { "" };
                // Only between two headers: an action is not preceded by `and`.
                let and =
                    if matched && words.last().is_some_and(|word| is_match(word)) { "and " } else { "" };
                words.push(format!("{and}{inner}{phrase}"));
                matched = true;
            }
        } else if let Ok(tag) = FlowSpecActionTag::read_from_bytes(spec)
            && hdr.type_ == flow::SPEC_ACTION_TAG
        {
            words.push(format!("tag {}", tag.tag_id));
        } else if hdr.type_ == flow::SPEC_ACTION_DROP {
            words.push("drop".to_owned());
        }
    }
    if !matched {
        words.insert(0, "any".to_owned());
    }
}

fn is_match(phrase: &str) -> bool {
    phrase != "drop" && !phrase.starts_with("tag ")
}

/// One phrase for each field that is matched, or the header's name if none is.
fn phrases(header: &Header, halves: &[u8]) -> Vec<String> {
    let Some((value, mask)) = halves.split_at_checked(header.size) else { return Vec::new() };
    let mut phrases = Vec::new();
    let mut done = Vec::new();
    for field in header.fields {
        let range = field.at..field.at + field.form.bytes();
        let (Some(value), Some(mask)) = (value.get(range.clone()), mask.get(range)) else { continue };
        if done.contains(&field.at) || value.iter().chain(mask).all(|byte| *byte == 0) {
            continue;
        }
        if let Some(text) = value::write(&field.form, value, mask) {
            phrases.push(format!("{} {text}", field.phrase));
            done.push(field.at);
        }
    }
    if phrases.is_empty() {
        phrases.push(header.name.to_owned());
    }
    phrases
}
