//! The file of flow rules: TOML with a table `[[rule]]` for each rule.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::{fmt, fs};

use serde::Deserialize;
use toml::Spanned;

use super::{NOT_NORMAL, Wanted, counting_rule};
use crate::Outcome;
use crate::failure::Failure;

/// A position in a text: line and column from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    line: usize,
    column: usize,
}

/// A text and the beginnings of its lines, so that a file of ten thousand rules is not searched for each of them.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let behind = text.match_indices('\n').map(|(newline, _)| newline + 1);
        Self { text, starts: std::iter::once(0).chain(behind).collect() }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..offset).or(self.text.get(start..)).unwrap_or_default();
        Place { line, column: before.chars().count() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// An error in a file, and its position.
#[derive(Debug, PartialEq, Eq)]
struct Mistake {
    place: Place,
    what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: Spanned<String>,
    device: Spanned<String>,
    port: Option<Spanned<u8>>,
    rule: Spanned<String>,
}

/// The rules of a file.
///
/// # Errors
/// Errors of reading the file, and its first mistake.
pub(crate) fn load(path: &Path) -> Outcome<Vec<Wanted>> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| Failure::File(name.to_string(), error))?;
    parse(&text).map_err(|mistake| Failure::Usage(format!("{name}: {mistake}")))
}

/// The rules of a file's text.
///
/// # Errors
/// The first mistake: of TOML, of the rule language, a missing or unknown key, or a name that occurs twice.
fn parse(text: &str) -> Result<Vec<Wanted>, Mistake> {
    let lines = Lines::new(text);
    let mistake = |offset, what: String| Mistake { place: lines.place(offset), what };
    let file: File = toml::from_str(text).map_err(|error| {
        // An error with several lines is an excerpt.
        let what = error.message().lines().collect::<Vec<_>>().join("; ");
        mistake(error.span().map_or(0, |span| span.start), what)
    })?;
    let (mut wanted, mut names) = (Vec::new(), BTreeMap::new());
    for row in file.rule {
        let at = row.name.span().start;
        let name = row.name.into_inner();
        if name.is_empty() {
            return Err(mistake(at, "a rule has a name, under which its values are told".to_owned()));
        }
        if let Some(other) = names.insert(name.clone(), at) {
            let (name, other) = (name.escape_debug(), lines.place(other));
            return Err(mistake(at, format!("there is a rule {name} already ({other})")));
        }
        if row.device.get_ref().is_empty() {
            return Err(mistake(
                row.device.span().start,
                "a rule is about a device: mlx5_0, soft0".to_owned(),
            ));
        }
        let port = match row.port {
            Some(port) if *port.get_ref() == 0 => {
                return Err(mistake(port.span().start, "ports begin with 1".to_owned()));
            }
            Some(port) => port.into_inner(),
            None => 1,
        };
        let span = row.rule.span();
        let start = place_of_content(text, span.clone(), row.rule.get_ref());
        let said = row.rule.into_inner();
        let rule = counting_rule(&said, port).map_err(|error| match (error, start) {
            (None, _) => mistake(span.start, NOT_NORMAL.to_owned()),
            // If the file contains the rule unchanged.
            (Some(error), Some(start)) => {
                let offset = said.char_indices().nth(error.column() - 1).map_or(said.len(), |(at, _)| at);
                mistake(start + offset, without_column(&error.to_string()))
            }
            (Some(error), None) => mistake(span.start, format!("in the rule, {error}")),
        })?;
        let place = Some(lines.place(start.unwrap_or(span.start)));
        wanted.push(Wanted { name, device: row.device.into_inner(), port, text: said, rule, place });
    }
    Ok(wanted)
}

/// The beginning of a string's content, if the text contains it unchanged: in quotes of one kind, without escapes.
fn place_of_content(text: &str, span: Range<usize>, content: &str) -> Option<usize> {
    let written = text.get(span.clone())?;
    let inner = written.get(1..written.len().checked_sub(1)?)?;
    (inner == content).then_some(span.start + 1)
}

/// The text of an error of the rule language, whose column is reported as one of the file.
fn without_column(text: &str) -> String {
    let rest = text.strip_prefix("column ").and_then(|text| text.split_once(": "));
    rest.map_or(text, |(_, rest)| rest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[rule]]
name = "rocev2"
device = "mlx5_0"
rule = "udp dst port 4791 dont-trap"

[[rule]]
name = 'arp "all"'
device = "soft0"
port = 2
rule = 'ether proto arp'
"#;

    #[test]
    fn rules_are_read_in_order() {
        let rules = parse(GOOD).expect("no mistake");
        let shown: Vec<_> =
            rules.iter().map(|rule| (&*rule.name, &*rule.device, rule.port, &*rule.text)).collect();
        assert_eq!(
            shown,
            [
                ("rocev2", "mlx5_0", 1, "udp dst port 4791 dont-trap"),
                ("arp \"all\"", "soft0", 2, "ether proto arp")
            ]
        );
        assert_eq!(rules[1].place.map(|place| place.to_string()).as_deref(), Some("line 11, column 9"));
        assert_eq!(parse("").expect("no mistake").len(), 0);
        assert!(rules[0].is_same(&rules[0].clone()) && !rules[0].is_same(&rules[1]));
    }

    #[test]
    fn a_mistake_has_a_place() {
        let head = "[[rule]]\nname = \"a\"\ndevice = \"soft0\"\n";
        for (text, place, what) in [
            ("[[rule]\n".to_owned(), "line 1, column 8", ""),
            ("rule = 1\n".to_owned(), "line 1, column 8", "invalid type"),
            ("[[rules]]\n".to_owned(), "line 1, column 3", "unknown field `rules`"),
            (head.to_owned(), "line 1, column 1", "missing field `rule`"),
            (format!("{head}rule = 7\n"), "line 4, column 8", "invalid type"),
            (format!("{head}port = 300\nrule = \"ip\"\n"), "line 4, column 8", "u8"),
            (format!("{head}port = 0\nrule = \"ip\"\n"), "line 4, column 8", "ports begin with 1"),
            (format!("{head}colour = 1\nrule = \"ip\"\n"), "line 4, column 1", "unknown field `colour`"),
            (
                format!("{head}rule = \"udp dst prot 1\"\n"),
                "line 4, column 17",
                "unknown word `prot`; expected `port`",
            ),
            (
                format!("{head}rule = \"udp dst p\\u0072ot 1\"\n"),
                "line 4, column 8",
                "in the rule, column 9: unknown word `prot`",
            ),
            (
                format!("{head}rule = \"\"\"udp dst prot 1\"\"\"\n"),
                "line 4, column 8",
                "in the rule, column 9: ",
            ),
            (
                format!("{head}rule = \"sniffer\"\n"),
                "line 4, column 8",
                "only a rule that matches headers can count",
            ),
            (
                format!("{head}rule = \"ip\"\n{head}rule = \"ip6\"\n"),
                "line 6, column 8",
                "there is a rule a already (line 2, column 8)",
            ),
            (
                "[[rule]]\nname = \"\"\ndevice = \"x\"\nrule = \"ip\"\n".to_owned(),
                "line 2, column 8",
                "has a name",
            ),
            (
                "[[rule]]\nname = \"ä\"\ndevice = \"\"\nrule = \"ip\"\n".to_owned(),
                "line 3, column 10",
                "about a device",
            ),
        ] {
            let mistake = parse(&text).expect_err(&text);
            assert_eq!(mistake.place.to_string(), place, "{text}: {mistake}");
            assert!(mistake.what.contains(what) && !mistake.what.contains('\n'), "{text}: {mistake}");
        }
    }
}
