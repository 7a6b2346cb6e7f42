//! The table of both sides. `ours.txt` and `theirs.txt` have a line `name instructions` for each operation and run; `ours.strace` and
//! `theirs.strace` have the marks of each operation.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const HEAD: &str = "\
| operation | system calls: ours | theirs | instructions: ours | theirs | ours / theirs |
| --- | --- | --- | --- | --- | --- |";

/// One operation on both sides.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    calls: [u64; 2],
    instructions: [u64; 2],
}

impl Row {
    fn ratio(&self) -> f64 {
        let [ours, theirs] = self.instructions.map(|count| count as f64);
        ours / theirs
    }

    fn line(&self) -> String {
        let ([a, b], [c, d]) = (self.calls, self.instructions);
        format!("| {} | {a} | {b} | {c} | {d} | {:.2} |", self.name, self.ratio())
    }
}

/// Reads what the guest has left in `directory` and prints the table.
pub(crate) fn print(directory: &Path) -> Result<(), String> {
    let read =
        |name: &str| fs::read_to_string(directory.join(name)).map_err(|error| format!("{name}: {error}"));
    let (ours, theirs) = (instructions(&read("ours.txt")?)?, instructions(&read("theirs.txt")?)?);
    let (our_calls, their_calls) = (calls(&read("ours.strace")?)?, calls(&read("theirs.strace")?)?);
    let names = |side: &[(String, u64)]| side.iter().map(|row| row.0.clone()).collect::<Vec<_>>();
    if names(&ours) != names(&theirs) {
        return Err("the two programs did not measure the same operations".to_owned());
    }
    println!("{HEAD}");
    for ((name, ours), (_, theirs)) in ours.into_iter().zip(theirs) {
        let of =
            |calls: &BTreeMap<String, u64>| calls.get(&name).copied().ok_or(format!("{name} was not traced"));
        let calls = [of(&our_calls)?, of(&their_calls)?];
        println!("{}", Row { name: name.replace('_', " "), calls, instructions: [ours, theirs] }.line());
    }
    Ok(())
}

/// The smallest count of each operation, in the order of their first lines.
fn instructions(text: &str) -> Result<Vec<(String, u64)>, String> {
    let mut rows: Vec<(String, u64)> = Vec::new();
    for line in text.lines() {
        let parsed = line.split_once(' ').and_then(|(name, count)| Some((name, count.parse().ok()?)));
        let (name, count) =
            parsed.filter(|row| row.1 > 0).ok_or_else(|| format!("no measurement: {line}"))?;
        match rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => row.1 = row.1.min(count),
            None => rows.push((name.to_owned(), count)),
        }
    }
    Ok(rows)
}

/// The system calls between the marks of each operation.
fn calls(trace: &str) -> Result<BTreeMap<String, u64>, String> {
    let mut found = BTreeMap::new();
    let mut inside: Option<(&str, u64)> = None;
    for line in trace.lines() {
        let mark = |side| line.split_once(side).and_then(|(_, rest)| rest.split('"').next());
        if let Some(name) = mark("\"/beside/begin/") {
            inside = Some((name, 0));
        } else if let Some(name) = mark("\"/beside/end/") {
            let (begun, count) = inside.take().ok_or_else(|| format!("an end without a begin: {line}"))?;
            if begun != name {
                return Err(format!("{begun} ended as {name}"));
            }
            found.insert(name.to_owned(), count);
        } else if let Some((_, count)) = &mut inside {
            *count += 1;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Row> {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [name, numbers @ .., _ratio] = cells.as_slice() else { return None };
        let numbers: Vec<u64> = numbers.iter().map(|cell| cell.parse().ok()).collect::<Option<_>>()?;
        let [a, b, c, d] = numbers[..] else { return None };
        Some(Row { name: (*name).to_owned(), calls: [a, b], instructions: [c, d] })
    }

    #[test]
    fn the_documented_table_is_of_the_form_that_is_printed_and_explains_what_costs_more() {
        let page = fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../docs/internals/performance.md"
        ))
        .unwrap();
        let table = page.split_once(HEAD).expect("the table").1;
        assert!(!table.contains(HEAD), "one table");
        let (table, after) = table.trim_start().split_once("\n\n").expect("an end of the table");
        let after = after.split("\n#").next().expect("a section");
        let rows: Vec<_> = table.lines().map(|line| (line, parse(line).expect(line))).collect();
        assert!(rows.len() > 20, "{} rows", rows.len());
        for (line, row) in rows {
            assert_eq!(row.line(), line);
            let reason = format!("- {}: ", row.name);
            let explained = after.lines().any(|line| line.starts_with(&reason));
            let costs_more = (row.ratio() * 100.0).round() > 100.0 || row.calls[0] > row.calls[1];
            assert_eq!(explained, costs_more, "a reason for `{}`, and only if it costs more", row.name);
        }
    }

    #[test]
    fn calls_between_marks_are_counted() {
        let trace = "1 ioctl(3)\n1 access(\"/beside/begin/a\", F_OK) = -1\n1 ioctl(3)\n1 close(4)\n\
                     1 access(\"/beside/end/a\", F_OK) = -1\n1 statx(AT, \"/beside/begin/b\")\n1 statx(AT, \"/beside/end/b\")\n";
        assert_eq!(calls(trace).unwrap(), BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 0)]));
        assert!(calls("access(\"/beside/begin/a\")\naccess(\"/beside/end/b\")").is_err());
        assert!(calls("access(\"/beside/end/b\")").is_err());
    }

    #[test]
    fn the_least_of_several_runs_counts() {
        let rows = instructions("open 30\nclose 5\nopen 20\nclose 6\n").unwrap();
        assert_eq!(rows, [("open".to_owned(), 20), ("close".to_owned(), 5)]);
        assert!(instructions("open").is_err() && instructions("open 0").is_err());
    }
}
