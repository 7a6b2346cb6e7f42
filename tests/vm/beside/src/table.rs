//! The table of both: `ours.txt` and `theirs.txt` with a line `name instructions` for each operation and run, and
//! `ours.strace` and `theirs.strace` with the marks of each operation.

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

/// Reads what `path.c` has left in `directory`, and prints the table. What posts and polls must not allocate.
pub(crate) fn print_path(directory: &Path) -> Result<(), String> {
    let read =
        |name: &str| fs::read_to_string(directory.join(name)).map_err(|error| format!("{name}: {error}"));
    let side = |side: &str| counts(&read(&format!("path-{side}.out"))?);
    let opened = |side: &str| -> Result<_, String> {
        let trace = read(&format!("opened-{side}.strace"))?;
        // Other lines are those of signals and of the exit.
        Ok(trace.lines().filter(|line| line.contains('(')).count())
    };
    let (ours, theirs) = (side("ours")?, side("theirs")?);
    println!("{HEAD}");
    for ((name, ours), (theirs_name, theirs)) in ours.into_iter().zip(theirs) {
        let row = Row { name, calls: [ours[1], theirs[1]], instructions: [ours[0], theirs[0]] };
        println!("{}", row.line());
        if row.name != theirs_name || ours[2] != 0 || ours[1] > theirs[1] {
            return Err(format!("{}: {} allocations, {} system calls", row.name, ours[2], ours[1]));
        }
    }
    println!("\nuntil the device is open: {} system calls, theirs {}", opened("ours")?, opened("theirs")?);
    Ok(())
}

/// Lines `name: instructions calls allocations`.
fn counts(text: &str) -> Result<Vec<(String, [u64; 3])>, String> {
    let parse = |line: &str| {
        let (name, numbers) = line.split_once(": ")?;
        let numbers = numbers.split(' ').map(str::parse).collect::<Result<Vec<_>, _>>().ok()?;
        let counts = <[u64; 3]>::try_from(numbers).ok()?;
        (counts[0] > 0).then(|| (name.to_owned(), counts))
    };
    text.lines().map(|line| parse(line).ok_or_else(|| format!("no measurement: {line}"))).collect()
}

/// The least count of each operation, in the order of their first lines.
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
        let page =
            fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/performance.md")).unwrap();
        let tables: Vec<_> = page.split(HEAD).skip(1).collect();
        // Of the library, and of posting and polling through C.
        assert_eq!(tables.len(), 2);
        for (table, least) in tables.into_iter().zip([20, 15]) {
            let (table, after) = table.trim_start().split_once("\n\n").expect("an end of the table");
            let rows: Vec<_> = table.lines().map(|line| (line, parse(line).expect(line))).collect();
            assert!(rows.len() > least, "{} rows", rows.len());
            for (line, row) in rows {
                assert_eq!(row.line(), line);
                let reason = format!("- {}: ", row.name);
                let explained = after.lines().any(|line| line.starts_with(&reason));
                let costs_more = (row.ratio() * 100.0).round() > 100.0 || row.calls[0] > row.calls[1];
                assert_eq!(explained, costs_more, "a reason for `{}`, and only if it costs more", row.name);
            }
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
    fn lines_of_the_c_program_have_three_counts() {
        assert_eq!(
            counts("post receive 16: 1357 0 2\n").unwrap(),
            [("post receive 16".to_owned(), [1357, 0, 2])]
        );
        assert!(
            counts("post 1").is_err() && counts("post: 1 x 0").is_err() && counts("post: 0 1 0").is_err()
        );
    }

    #[test]
    fn the_least_of_several_runs_counts() {
        let rows = instructions("open 30\nclose 5\nopen 20\nclose 6\n").unwrap();
        assert_eq!(rows, [("open".to_owned(), 20), ("close".to_owned(), 5)]);
        assert!(instructions("open").is_err() && instructions("open 0").is_err());
    }
}
