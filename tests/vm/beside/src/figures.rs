//! What posting, polling and reads cost on all sides, and whether that is within `limits.txt`. Each side has left a file with a line
//! `name: instructions calls allocations` for each operation.

use std::fs;
use std::path::Path;

const HEAD: &str = "\
| operation | drop-in | Debian 12 | sid | drop-in / lesser | at most | Rust | Rust / lesser | at most |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// The sides in C: the drop-in, and libibverbs of two releases.
const IN_C: [&str; 3] = ["drop-in", "debian-12", "sid"];
const IN_RUST: &str = "rust";

const LIMITS: &str = include_str!("../limits.txt");

/// The most that an operation may cost, as a multiple of the cheaper libibverbs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// The target; none where the other side has no such operation, or nothing is promised.
    pub(crate) goal: Option<f64>,
    /// The limit that applies until the goal is reached.
    pub(crate) until_then: Option<f64>,
}

impl Limit {
    /// Parses `1.00`, `1.00 (1.52)`, `- (1.52)` or `-`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (goal, rest) = text.split_once(" (").map_or((text, None), |(goal, rest)| (goal, Some(rest)));
        let goal = if goal == "-" { None } else { Some(goal.parse().ok()?) };
        let until_then =
            rest.map(|rest| rest.strip_suffix(')')?.parse().ok()).map(|limit| limit.ok_or(())).transpose();
        let until_then = until_then.ok()?;
        let is_used = |limit| goal.is_none_or(|goal| limit > goal);
        until_then.is_none_or(is_used).then_some(Self { goal, until_then })
    }

    pub(crate) fn allows(self, ratio: f64) -> bool {
        self.until_then.or(self.goal).is_none_or(|limit| ratio <= limit)
    }

    pub(crate) fn text(self) -> String {
        let goal = self.goal.map_or("-".to_owned(), |goal| format!("{goal:.2}"));
        self.until_then.map_or(goal.clone(), |limit| format!("{goal} ({limit:.2})"))
    }
}

/// An operation with its limits for C and for Rust.
type Limits<'a> = (&'a str, [Limit; 2]);

/// The section of `limits.txt` for this kind of message.
fn limits(kind: &str) -> Result<Vec<Limits<'static>>, String> {
    let parse = |line: &'static str| {
        let [name, in_c, in_rust] = line.split(" | ").collect::<Vec<_>>()[..] else { return None };
        Some((name, [Limit::parse(in_c)?, Limit::parse(in_rust)?]))
    };
    section(kind, parse)
}

/// The rows of a section of `limits.txt`.
pub(crate) fn section<T>(kind: &str, parse: impl Fn(&'static str) -> Option<T>) -> Result<Vec<T>, String> {
    let lines = LIMITS.lines().filter(|line| !line.starts_with('#'));
    let section = lines.skip_while(|line| *line != format!("[{kind}]")).skip(1);
    let rows = section.take_while(|line| !line.is_empty());
    let rows = rows
        .map(|line| parse(line).ok_or_else(|| format!("no limits: {line}")))
        .collect::<Result<Vec<_>, _>>()?;
    if rows.is_empty() { Err(format!("limits.txt has nothing on `{kind}`")) } else { Ok(rows) }
}

/// Instructions, system calls, allocator calls.
type Counts = [u64; 3];

fn counts(text: &str) -> Result<Vec<(String, Counts)>, String> {
    let parse = |line: &str| {
        let (name, numbers) = line.split_once(": ")?;
        let numbers = numbers.split(' ').map(str::parse).collect::<Result<Vec<_>, _>>().ok()?;
        let counts = Counts::try_from(numbers).ok()?;
        (counts[0] > 0).then(|| (name.to_owned(), counts))
    };
    text.lines().map(|line| parse(line).ok_or_else(|| format!("no measurement: {line}"))).collect()
}

/// One operation on all sides.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    in_c: [u64; 3],
    /// None if Rust has no such operation.
    in_rust: Option<u64>,
}

impl Row {
    fn of_lesser(&self, count: u64) -> f64 {
        let [_, theirs @ ..] = self.in_c;
        count as f64 / theirs.into_iter().min().unwrap_or_default() as f64
    }

    /// The ratios for C and for Rust.
    fn ratios(&self) -> [Option<f64>; 2] {
        [Some(self.in_c[0]), self.in_rust].map(|count| count.map(|count| self.of_lesser(count)))
    }

    fn line(&self, limits: [Limit; 2]) -> String {
        let Self { name, in_c: [ours, debian, sid], in_rust } = self;
        let [in_c, rust] =
            self.ratios().map(|ratio| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
        let [c_limit, rust_limit] = limits.map(Limit::text);
        let count = in_rust.map_or("-".to_owned(), |count| count.to_string());
        format!(
            "| {name} | {ours} | {debian} | {sid} | {in_c} | {c_limit} | {count} | {rust} | {rust_limit} |"
        )
    }
}

/// The file that a side's step leaves.
fn file(kind: &str, side: &str) -> String {
    format!("{}-{side}.out", if kind == "reads" { kind } else { "path" })
}

/// Reads what the guest has left in `directory`, and prints the table. No operation may cost more than `limits.txt` says, allocate, or
/// make more system calls than with libibverbs.
pub(crate) fn print(kind: &str, directory: &Path) -> Result<(), String> {
    let side = |name: &str| {
        let name = file(kind, name);
        let text = fs::read_to_string(directory.join(&name)).map_err(|error| format!("{name}: {error}"))?;
        counts(&text)
    };
    let mut in_c = Vec::new();
    for name in IN_C {
        in_c.push(side(name)?);
    }
    let (mut in_rust, limits) = (side(IN_RUST)?, limits(kind)?);
    let mut faults = Vec::new();
    println!("{HEAD}");
    for (name, limits) in limits {
        let mut take = |rows: &mut Vec<(String, Counts)>| {
            rows.iter().position(|row| row.0 == name).map(|at| rows.remove(at).1)
        };
        let found: Vec<Counts> = in_c.iter_mut().filter_map(&mut take).collect();
        let rust = take(&mut in_rust);
        let [ours, theirs @ ..] =
            <[Counts; 3]>::try_from(found).map_err(|_| format!("{name} was not measured"))?;
        let row = Row {
            name: name.to_owned(),
            in_c: [ours, theirs[0], theirs[1]].map(|side| side[0]),
            in_rust: rust.map(|side| side[0]),
        };
        println!("{}", row.line(limits));
        let most_calls = theirs.map(|side| side[1]).into_iter().max().unwrap_or_default();
        for ((side, ratio), (limit, counts)) in ["through C", "in Rust"]
            .into_iter()
            .zip(row.ratios())
            .zip(limits.into_iter().zip([Some(ours), rust]))
        {
            let Some(([_, calls, allocations], ratio)) = counts.zip(ratio) else {
                if limit != (Limit { goal: None, until_then: None }) {
                    faults.push(format!("{name} was not measured {side}"));
                }
                continue;
            };
            if !limit.allows(ratio) {
                faults.push(format!("{name} {side}: {ratio:.3} times libibverbs, at most {}", limit.text()));
            }
            if allocations > 0 || calls > most_calls {
                faults.push(format!("{name} {side}: {allocations} allocations, {calls} system calls"));
            }
        }
    }
    for (name, _) in in_c.into_iter().chain([in_rust]).flatten() {
        faults.push(format!("limits.txt says nothing of {name}"));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [&str; 4] = ["messages", "frames", "connected", "reads"];

    fn parse(line: &str) -> Option<Row> {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [name, ours, debian, sid, _, _, rust, _, _] = cells[..] else { return None };
        let in_c = [ours.parse().ok()?, debian.parse().ok()?, sid.parse().ok()?];
        let in_rust = if rust == "-" { None } else { Some(rust.parse().ok()?) };
        Some(Row { name: name.to_owned(), in_c, in_rust })
    }

    #[test]
    fn the_documented_tables_are_what_is_printed_are_within_the_limits_and_explain_what_costs_more() {
        let page = fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../docs/internals/performance.md"
        ))
        .unwrap();
        let tables: Vec<_> = page.split(HEAD).skip(1).collect();
        assert_eq!(tables.len(), KINDS.len());
        for (table, kind) in tables.into_iter().zip(KINDS) {
            let (table, after) = table.trim_start().split_once("\n\n").expect("an end of the table");
            let after = after.split("\n#").next().expect("a section");
            let limits = limits(kind).unwrap();
            assert_eq!(table.lines().count(), limits.len(), "rows on {kind}");
            for (line, (name, limits)) in table.lines().zip(limits) {
                let row = parse(line).expect(line);
                assert_eq!((row.name.as_str(), row.line(limits).as_str()), (name, line));
                for (limit, ratio) in limits.into_iter().zip(row.ratios()) {
                    assert!(ratio.is_none_or(|ratio| limit.allows(ratio)), "{line}");
                }
                let costs_more =
                    row.ratios().into_iter().flatten().any(|ratio| (ratio * 100.0).round() > 100.0);
                let reason = format!("- {name}: ");
                let explained = after.lines().any(|line| line.starts_with(&reason));
                assert_eq!(
                    explained, costs_more,
                    "a reason for `{name}` of {kind}, and only if it costs more"
                );
            }
        }
    }

    #[test]
    fn lines_of_a_side_have_three_counts() {
        assert_eq!(
            counts("post receive 16: 1357 0 2\n").unwrap(),
            [("post receive 16".to_owned(), [1357, 0, 2])]
        );
        assert!(
            counts("post 1").is_err() && counts("post: 1 x 0").is_err() && counts("post: 0 1 0").is_err()
        );
    }

    #[test]
    fn a_limit_holds_until_its_goal_is_reached() {
        let limit = Limit::parse("0.75 (1.52)").unwrap();
        assert!(limit.allows(1.52) && !limit.allows(1.521) && limit.text() == "0.75 (1.52)");
        assert!(!Limit::parse("0.75").unwrap().allows(0.76));
        assert!(Limit::parse("-").unwrap().allows(9.0) && !Limit::parse("- (1.52)").unwrap().allows(9.0));
        for wrong in ["", "x", "1.00 (0.90)", "1.00 (1.52", "1.00 ()", "1.00 (x)"] {
            assert_eq!(Limit::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_above_its_limit_allocates_or_is_not_measured_fails() {
        let directory = std::env::temp_dir().join(format!("beside-figures-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, counts: &str, rows: &[Limits<'_>]| {
            let text: String = rows.iter().map(|row| format!("{}: {counts}\n", row.0)).collect();
            fs::write(directory.join(file("messages", name)), text).unwrap();
        };
        let rows = limits("messages").unwrap();
        let in_rust: Vec<_> = rows.iter().filter(|row| row.1[1].goal.is_some()).copied().collect();
        let check = |ours: &str, rust: &str, measured: &[Limits<'_>]| {
            write(IN_C[0], ours, measured);
            write(IN_C[1], "1000 0 0", &rows);
            write(IN_C[2], "900 0 1", &rows);
            write(IN_RUST, rust, &in_rust);
            print("messages", &directory)
        };
        assert_eq!(check("400 0 0", "400 0 0", &rows), Ok(()));
        // The lower of the two counts.
        let above = |error: Result<(), String>| error.unwrap_err().matches("times libibverbs").count();
        assert_eq!(above(check("9000 0 0", "400 0 0", &rows)), rows.len());
        assert_eq!(above(check("400 0 0", "9000 0 0", &rows)), in_rust.len());
        assert!(check("400 0 1", "400 0 0", &rows).unwrap_err().contains("1 allocations"));
        assert!(check("400 0 0", "400 1 0", &rows).unwrap_err().contains("1 system calls"));
        assert!(check("400 0 0", "400 0 0", &rows[1..]).unwrap_err().contains("not measured"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
