//! What whole programs cost with the drop-in and with libibverbs, and whether that is within `limits.txt`. Each side has left a file with
//! a line `name: count` for each figure; other text may follow the count.

use std::fs;
use std::path::Path;

use crate::figures::{Limit, section};

const HEAD: &str = "\
| figure | drop-in | Debian 12 | drop-in / Debian 12 | at most |
| --- | --- | --- | --- | --- |";

const SIDES: [&str; 2] = ["drop-in", "debian-12"];

/// A figure that may be missing, since it depends on how two programs take turns.
const PERHAPS: Limit = Limit { goal: None, until_then: None };

fn limits(kind: &str) -> Result<Vec<(&'static str, Limit)>, String> {
    let parse = |line: &'static str| {
        let (name, limit) = line.split_once(" | ")?;
        Some((name, Limit::parse(limit)?))
    };
    section(kind, parse)
}

fn counts(text: &str) -> Result<Vec<(String, u64)>, String> {
    let parse = |line: &str| {
        let (name, rest) = line.rsplit_once(": ")?;
        let count = rest.split(' ').next()?.parse().ok()?;
        (count > 0).then(|| (name.to_owned(), count))
    };
    text.lines().map(|line| parse(line).ok_or_else(|| format!("no measurement: {line}"))).collect()
}

fn ratio([ours, theirs]: [u64; 2]) -> f64 {
    ours as f64 / theirs as f64
}

fn line(name: &str, counts: [u64; 2], limit: Limit) -> String {
    let [ours, theirs] = counts;
    format!("| {name} | {ours} | {theirs} | {:.2} | {} |", ratio(counts), limit.text())
}

/// Reads what the guest has left in `directory`, and prints the table. Nothing may cost more than `limits.txt` says.
pub(crate) fn print(kind: &str, directory: &Path) -> Result<(), String> {
    let mut sides = Vec::new();
    for side in SIDES {
        let name = format!("programs-{side}.out");
        let text = fs::read_to_string(directory.join(&name)).map_err(|error| format!("{name}: {error}"))?;
        sides.push(counts(&text)?);
    }
    let mut faults = Vec::new();
    println!("{HEAD}");
    for (name, limit) in limits(kind)? {
        let found: Vec<u64> = sides
            .iter_mut()
            .filter_map(|rows| rows.iter().position(|row| row.0 == name).map(|at| rows.remove(at).1))
            .collect();
        let Ok(counts) = <[u64; 2]>::try_from(found) else {
            if limit != PERHAPS {
                faults.push(format!("{name} was not measured"));
            }
            continue;
        };
        println!("{}", line(name, counts, limit));
        if !limit.allows(ratio(counts)) {
            faults.push(format!("{name}: {:.3} times libibverbs, at most {}", ratio(counts), limit.text()));
        }
    }
    for (name, _) in sides.into_iter().flatten() {
        faults.push(format!("limits.txt says nothing of {name}"));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [&str; 2] = ["programs", "programs-connected"];

    fn parse(line: &str) -> Option<(&str, [u64; 2])> {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [name, ours, theirs, _, _] = cells[..] else { return None };
        Some((name, [ours.parse().ok()?, theirs.parse().ok()?]))
    }

    #[test]
    fn the_documented_tables_are_what_is_printed_are_within_the_limits_and_explain_what_costs_more() {
        let page =
            fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/internals/programs.md"))
                .unwrap();
        let tables: Vec<_> = page.split(HEAD).skip(1).collect();
        assert_eq!(tables.len(), KINDS.len());
        for (table, kind) in tables.into_iter().zip(KINDS) {
            let (table, after) = table.trim_start().split_once("\n\n").expect("an end of the table");
            let after = after.split("\n#").next().expect("a section");
            let mut lines = table.lines().peekable();
            for (name, limit) in limits(kind).unwrap() {
                let Some((shown, counts)) = lines.peek().and_then(|line| parse(line)) else {
                    assert_eq!(limit, PERHAPS, "{name} of {kind}");
                    continue;
                };
                if shown != name {
                    assert_eq!(limit, PERHAPS, "{name} of {kind}");
                    continue;
                }
                assert_eq!(lines.next(), Some(line(name, counts, limit).as_str()));
                assert!(limit.allows(ratio(counts)), "{name}");
                let reason = format!("- {name}: ");
                let explained = after.lines().any(|line| line.starts_with(&reason));
                let costs_more = (ratio(counts) * 100.0).round() > 100.0;
                assert_eq!(explained, costs_more, "a reason for `{name}`, and only if it costs more");
            }
            assert_eq!(lines.next(), None, "{kind}");
        }
    }

    #[test]
    fn what_is_above_its_limit_is_not_measured_or_has_no_limit_fails() {
        let directory = std::env::temp_dir().join(format!("beside-programs-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let rows = limits("programs").unwrap();
        let promised: Vec<_> = rows.iter().filter(|row| row.1 != PERHAPS).map(|row| row.0).collect();
        let check = |count: u64, names: &[&str]| {
            let text = |count: u64, names: &[&str]| {
                names.iter().map(|name| format!("{name}: {count} (500 calls)\n")).collect::<String>()
            };
            fs::write(directory.join("programs-drop-in.out"), text(count, names)).unwrap();
            fs::write(directory.join("programs-debian-12.out"), text(1000, &promised)).unwrap();
            print("programs", &directory)
        };
        assert_eq!(check(10, &promised), Ok(()));
        assert_eq!(check(90_000, &promised).unwrap_err().lines().count(), promised.len());
        assert!(check(10, &promised[1..]).unwrap_err().contains("was not measured"));
        assert!(check(10, &[&promised[..], &["dance"]].concat()).unwrap_err().ends_with("nothing of dance"));
        assert!(check(0, &promised).unwrap_err().starts_with("no measurement"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
