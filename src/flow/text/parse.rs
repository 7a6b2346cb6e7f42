//! Parses the text of a rule.

use uverbs_abi::flow;

use super::AnyRule;
use super::error::{Fault, RuleError, quoted};
use super::lexer::{FLAGS, OTHERS, TYPES, Word, begins_a_part, unknown, unknown_word, words};
use super::table::{Field, Form, HEADERS, Header, MAX_FILTER};
use super::value;
use crate::flow::rule::{CatchAll, FlowRule, Normal, RuleType, Sniffer};
use crate::flow::spec::FlowTag;

/// Words that tcpdump uses before addresses, and that have no meaning here.
const FILLERS: [&str; 2] = ["host", "net"];

pub(super) fn rule(text: &str, port: u8) -> Result<AnyRule, RuleError> {
    Parser::new(text).rule(port).map_err(|fault| fault.of(text))
}

/// A header with the values of its fields, or an action: one spec.
struct Item {
    column: usize,
    kind: ItemKind,
}

enum ItemKind {
    Match { header: &'static Header, inner: bool, value: [u8; MAX_FILTER], mask: [u8; MAX_FILTER] },
    Tag(FlowTag),
    Drop,
}

struct Parser<'a> {
    words: Vec<Word<'a>>,
    next: usize,
    /// The first word, if it is one of [`TYPES`].
    type_: Option<&'a str>,
    items: Vec<Item>,
    /// Phrases that were already found, and whether for inner headers: each may occur once.
    seen: Vec<(&'static str, bool)>,
    priority: u16,
    flags: u32,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let words = words(text);
        Self { words, next: 0, type_: None, items: Vec::new(), seen: Vec::new(), priority: 0, flags: 0 }
    }

    fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.next).copied()
    }

    /// The next word; at the end of the text an empty one, after the last.
    fn take(&mut self) -> Word<'a> {
        let word = self.peek().unwrap_or_else(|| {
            let end = self.words.last().map_or(1, |word| word.column + word.text.chars().count());
            Word { text: "", column: end }
        });
        self.next += 1;
        word
    }

    fn rule(mut self, port: u8) -> Result<AnyRule, Fault> {
        if let Some(word) = self.peek().filter(|word| TYPES.contains(&word.text)) {
            self.type_ = Some(word.text);
            self.next += 1;
        }
        while let Some(word) = self.peek() {
            if word.text == "and" {
                self.next += 1;
                let before = self.next > 1 && self.words.get(self.next - 2).is_some_and(|w| w.text != "and");
                if !before || self.peek().is_none() {
                    return Err(Fault::new(word.column, "`and` stands between two parts of a rule"));
                }
                continue;
            }
            self.part()?;
        }
        match self.type_ {
            Some("all-default") => Ok(AnyRule::CatchAll(self.plain(FlowRule::<CatchAll>::all_default(port)))),
            Some("mc-default") => Ok(AnyRule::CatchAll(self.plain(FlowRule::<CatchAll>::mc_default(port)))),
            Some("sniffer") => Ok(AnyRule::Sniffer(self.plain(FlowRule::<Sniffer>::sniffer(port)))),
            _ => self.normal(port).map(AnyRule::Normal),
        }
    }

    /// A rule without specs.
    fn plain<K: RuleType>(&self, rule: FlowRule<K>) -> FlowRule<K> {
        if self.flags & flow::FLAG_ALLOW_LOOP_BACK != 0 { rule.allow_loop_back() } else { rule }
    }

    fn normal(&self, port: u8) -> Result<FlowRule<Normal>, Fault> {
        let mut rule = self.plain(FlowRule::normal(port)).priority(self.priority);
        if self.flags & flow::FLAG_DONT_TRAP != 0 {
            rule = rule.dont_trap();
        }
        if self.flags & flow::FLAG_EGRESS != 0 {
            rule = rule.egress();
        }
        for item in &self.items {
            rule = match &item.kind {
                ItemKind::Match { header, inner, value, mask } => (header.add)(rule, *inner, value, mask),
                ItemKind::Tag(tag) => rule.tag(*tag),
                ItemKind::Drop => rule.drop(),
            };
            // The builder keeps the first contradiction, which this item caused.
            if let Err(error) = rule.contradiction() {
                return Err(Fault::new(item.column, error.hint().unwrap_or("the rule contradicts itself")));
            }
        }
        // Each item is one spec.
        if let Some((at, hint)) = rule.missing() {
            let column = self.items.get(usize::from(at)).map_or(1, |item| item.column);
            return Err(Fault::new(column, hint));
        }
        Ok(rule)
    }

    /// One header, action or attribute.
    fn part(&mut self) -> Result<(), Fault> {
        let start = self.next;
        let word = self.take();
        let fixed = self.type_.filter(|type_| *type_ != "any");
        let known = OTHERS.iter().find(|known| **known == word.text);
        if let (Some(type_), true) = (fixed, word.text != "allow-loop-back") {
            let message = format!("{} cannot stand in a rule of type {type_}", quoted(word.text));
            return Err(Fault::new(word.column, message).expecting(["allow-loop-back"]));
        }
        match known {
            Some(known) => {
                self.once(known, false, word.column)?;
                self.other(known, word.column)
            }
            None => {
                self.next = start;
                self.header()
            }
        }
    }

    fn once(&mut self, phrase: &'static str, inner: bool, column: usize) -> Result<(), Fault> {
        if self.seen.contains(&(phrase, inner)) {
            let inner = if inner { "inner " } else { "" };
            return Err(Fault::new(column, format!("`{inner}{phrase}` is given twice")));
        }
        self.seen.push((phrase, inner));
        Ok(())
    }

    fn other(&mut self, word: &'static str, column: usize) -> Result<(), Fault> {
        match word {
            "drop" => self.items.push(Item { column, kind: ItemKind::Drop }),
            "tag" => {
                let word = self.take();
                let most = FlowTag::MAX.get();
                let number = value::number(word.text, word.column, most, "a tag of up to 24 bits")?;
                // The maximum is that of the type.
                self.items.extend(FlowTag::new(number).map(|tag| Item { column, kind: ItemKind::Tag(tag) }));
            }
            "priority" => {
                let word = self.take();
                let number = value::number(word.text, word.column, u16::MAX.into(), "a priority from 0 on")?;
                self.priority = number as u16;
            }
            _ => self.flags |= FLAGS.iter().find(|(_, known)| *known == word).map_or(0, |(flag, _)| *flag),
        }
        Ok(())
    }

    /// `[inner] header` or `[inner] phrase value`.
    fn header(&mut self) -> Result<(), Fault> {
        let first = self.take();
        let inner = first.text == "inner";
        if !inner {
            self.next -= 1;
        }
        let start = self.peek();
        let (header, field) = self.phrase(inner)?;
        let start = start.unwrap_or(first);
        if inner && header.type_ == flow::SPEC_VXLAN_TUNNEL {
            return Err(Fault::new(start.column, "VXLAN can only be matched outside a tunnel"));
        }
        if matches!(self.type_, Some("any")) {
            return Err(Fault::new(first.column, "`any` takes every packet; leave it out to match headers"));
        }
        self.once(field.map_or(header.name, |field| field.phrase), inner, start.column)?;
        let same = |item: &Item| match &item.kind {
            ItemKind::Match { header: other, inner: place, .. } => {
                other.type_ == header.type_ && *place == inner
            }
            _ => false,
        };
        let at = self.items.iter().position(same).unwrap_or_else(|| {
            let (value, mask) = ([0; MAX_FILTER], [0; MAX_FILTER]);
            self.items
                .push(Item { column: first.column, kind: ItemKind::Match { header, inner, value, mask } });
            self.items.len() - 1
        });
        let Some(field) = field else { return Ok(()) };
        // Two phrases for the same bits: the later one would overwrite the earlier.
        let clash = |other: &&Field| other.at == field.at && other.phrase != field.phrase;
        if let Some(other) = header.fields.iter().find(|f| clash(f) && self.seen.contains(&(f.phrase, inner)))
        {
            let message = format!("`{}` says the same as `{}`; give one of them", field.phrase, other.phrase);
            return Err(Fault::new(start.column, message));
        }
        if !matches!(field.form, Form::Number(_)) && self.peek().is_some_and(|w| FILLERS.contains(&w.text)) {
            self.next += 1;
        }
        let word = self.take();
        let (new_value, new_mask) = value::read(&field.form, word.text, word.column)?;
        if let Some(Item { kind: ItemKind::Match { value, mask, .. }, .. }) = self.items.get_mut(at) {
            let range = field.at..field.at + field.form.bytes();
            value[range.clone()].copy_from_slice(&new_value[..range.len()]);
            mask[range.clone()].copy_from_slice(&new_mask[..range.len()]);
        }
        Ok(())
    }

    /// The words of a header or a field, as many as belong together.
    fn phrase(&mut self, inner: bool) -> Result<(&'static Header, Option<&'static Field>), Fault> {
        let fields = HEADERS.iter().flat_map(|h| h.fields.iter().map(move |f| (h, Some(f), f.phrase)));
        let mut candidates: Vec<_> = HEADERS.iter().map(|h| (h, None, h.name)).chain(fields).collect();
        let mut depth = 0;
        loop {
            let next = |phrase: &'static str| phrase.split(' ').nth(depth);
            let word = self.take();
            let goes_on = |phrase: &'static str| next(phrase) == Some(word.text);
            if candidates.iter().any(|(.., phrase)| goes_on(phrase)) {
                candidates.retain(|(.., phrase)| goes_on(phrase));
                depth += 1;
                continue;
            }
            let complete = candidates.iter().find(|(.., phrase)| next(phrase).is_none());
            if let Some((header, field, _)) = complete
                && (field.is_some() || begins_a_part(word.text))
            {
                self.next -= 1;
                return Ok((header, *field));
            }
            let fault = match depth {
                0 => unknown(word),
                _ => unknown_word(word),
            };
            let others = OTHERS.iter().chain(&["inner"]).filter(|_| depth == 0 && !inner).copied();
            let more = complete.map(|_| "the next header or action");
            let expected = candidates.iter().filter_map(|(.., phrase)| next(phrase));
            return Err(fault.expecting(expected.chain(others).chain(more)));
        }
    }
}
