//! Where two recordings differ: results, commands, and the commands' fields.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::allowed;
use crate::fields;
use crate::recording::{self, Sent, Step};

/// One difference, with the first word of the step in which it appeared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Difference {
    pub(crate) step: String,
    pub(crate) what: String,
    pub(crate) theirs: String,
    pub(crate) ours: String,
}

fn join<T: AsRef<str>>(words: &[T]) -> String {
    let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

/// The fields in which two commands of the same name differ: what, theirs, ours.
fn fields(theirs: &Sent, ours: &Sent) -> Vec<[String; 3]> {
    let mut found = Vec::new();
    if theirs.status != ours.status {
        found.push([format!("{} status", theirs.name), theirs.status.clone(), ours.status.clone()]);
    }
    for half in [fields::INPUT, fields::OUTPUT] {
        if theirs.lens[half] != ours.lens[half] && !fields::has_pages(&theirs.name, half) {
            let what = format!("{} {} bytes", theirs.name, ["in", "out"][half]);
            found.push([what, theirs.lens[half].to_string(), ours.lens[half].to_string()]);
        }
        let [a, b] = [theirs, ours].map(|sent| {
            let mut bytes = sent.bytes[half].clone();
            fields::mask(&sent.name, half, &mut bytes);
            bytes
        });
        let word = |bytes: &[u8], at: usize| {
            let word: Vec<_> = (at..at + 4).map(|at| bytes.get(at).copied().unwrap_or(0)).collect();
            word.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        for at in (0..a.len().max(b.len())).step_by(4) {
            let (theirs_word, ours_word) = (word(&a, at), word(&b, at));
            if theirs_word != ours_word {
                let what = format!("{} {}[{at:#x}]", theirs.name, ["in", "out"][half]);
                found.push([what, theirs_word, ours_word]);
            }
        }
    }
    found
}

/// The differences of one step.
fn step(theirs: &Step, ours: &Step) -> Vec<Difference> {
    let mut found = Vec::new();
    if theirs.results != ours.results {
        found.push(["result".to_owned(), join(&theirs.results), join(&ours.results)]);
    }
    // Commands of the same name are compared in their order. Those that only one side sent are listed by name.
    let mut rest: Vec<&Sent> = ours.sent.iter().collect();
    let mut missing = Vec::new();
    let mut order = Vec::new();
    for sent in &theirs.sent {
        match rest.iter().position(|other| other.name == sent.name) {
            Some(at) => {
                order.push(at);
                found.extend(fields(sent, rest.remove(at)));
            }
            None => missing.push(sent.name.clone()),
        }
    }
    let added: Vec<_> = rest.iter().map(|sent| sent.name.clone()).collect();
    if !(missing.is_empty() && added.is_empty()) {
        found.push(["commands".to_owned(), join(&missing), join(&added)]);
    } else if order.iter().any(|at| *at != 0) {
        let names = |step: &Step| join(&step.sent.iter().map(|sent| sent.name.clone()).collect::<Vec<_>>());
        found.push(["order of commands".to_owned(), names(theirs), names(ours)]);
    }
    let text = || theirs.text.clone();
    found.into_iter().map(|[what, theirs, ours]| Difference { step: text(), what, theirs, ours }).collect()
}

/// All differences between two recordings of the same steps.
pub(crate) fn differences(theirs: &[Step], ours: &[Step]) -> Result<Vec<Difference>, String> {
    let mut found = Vec::new();
    for (theirs, ours) in theirs.iter().zip(ours) {
        if theirs.text != ours.text {
            return Err(format!("not the same steps: `{}` and `{}`", theirs.text, ours.text));
        }
        found.extend(step(theirs, ours));
    }
    if theirs.len() != ours.len() {
        return Err(format!("{} steps and {} steps", theirs.len(), ours.len()));
    }
    Ok(found)
}

/// Compares `theirs.txt` and `ours.txt`, or `drop-in.txt`, of a directory, and prints the table. Fails if a difference is not on the
/// list, or if one on the list was not found.
pub(crate) fn print(directory: &Path, through: allowed::Through) -> Result<(), String> {
    let read = |name: &str| {
        let text = fs::read_to_string(directory.join(name)).map_err(|error| format!("{name}: {error}"))?;
        recording::read(&text)
    };
    let (theirs, ours) = (read("theirs.txt")?, read(through.recording())?);
    let found = differences(&theirs, &ours)?;
    let (rows, unmet) = allowed::judge(&found, through);
    println!("| step | what | libibverbs | this crate | why |\n| --- | --- | --- | --- | --- |");
    let mut merged: BTreeMap<_, usize> = BTreeMap::new();
    for (difference, why) in &rows {
        *merged.entry((difference, why)).or_default() += 1;
    }
    for ((difference, why), times) in merged {
        let Difference { step, what, theirs, ours } = difference;
        let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
        println!("| {step}{times} | {what} | {theirs} | {ours} | {} |", why.unwrap_or("UNEXPLAINED"));
    }
    let commands: usize = ours.iter().map(|step| step.sent.len()).sum();
    let unexplained = rows.iter().filter(|row| row.1.is_none()).count();
    println!("compared: {} steps, {commands} commands; {} differences", ours.len(), found.len());
    if unexplained > 0 {
        return Err(format!("{unexplained} differences are not explained"));
    }
    match unmet.as_slice() {
        [] => Ok(()),
        rows => Err(format!("on the list of differences, but not met: {}", rows.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "step open\nresult ok\n| 7 800 ALLOC_PD status=0x0 in=16:0800 out=16:0000\n\
                        step cq 0 1\nresult ok\n| 8 400 CREATE_CQ status=0x0 in=4:04000000 out=4:00000000\n\
                        | 9 802 ALLOC_UAR status=0x0 in=4:08020000 out=4:00000000\n";

    fn found(ours: &str) -> Vec<[String; 3]> {
        let read = |text| recording::read(text).unwrap();
        let found = differences(&read(BASE), &read(ours)).unwrap();
        found.into_iter().map(|row| [row.what, row.theirs, row.ours]).collect()
    }

    #[test]
    fn the_numbers_of_commands_do_not_matter() {
        assert_eq!(found(&BASE.replace("| 7 ", "| 123 ")), [[""; 3]; 0]);
    }

    #[test]
    fn results_statuses_and_fields_are_compared() {
        assert_eq!(found(&BASE.replacen("ok", "EINVAL", 1)), [["result", "ok", "EINVAL"]]);
        assert_eq!(found(&BASE.replacen("status=0x0", "status=0x3", 1)), [["ALLOC_PD status", "0x0", "0x3"]],);
        assert_eq!(
            found(&BASE.replace("in=16:0800", "in=16:0801")),
            [["ALLOC_PD in[0x0]", "08000000", "08010000"]],
        );
        assert_eq!(found(&BASE.replace("out=16", "out=32")), [["ALLOC_PD out bytes", "16", "32"]]);
    }

    #[test]
    fn missing_and_further_commands_and_another_order_are_found() {
        let lines: Vec<_> = BASE.lines().collect();
        let text = |order: &[usize]| order.iter().map(|at| format!("{}\n", lines[*at])).collect::<String>();
        assert_eq!(found(&text(&[0, 1, 3, 4, 5, 6])), [["commands", "ALLOC_PD", "-"]]);
        assert_eq!(found(&text(&[0, 1, 2, 2, 3, 4, 5, 6])), [["commands", "-", "ALLOC_PD"]]);
        let orders = ["order of commands", "CREATE_CQ, ALLOC_UAR", "ALLOC_UAR, CREATE_CQ"];
        assert_eq!(found(&text(&[0, 1, 2, 3, 4, 6, 5])), [orders]);
    }

    #[test]
    fn other_steps_are_no_comparison() {
        let read = |text| recording::read(text).unwrap();
        let other = BASE.replace("step open", "step pd");
        assert!(differences(&read(BASE), &read(&other)).is_err());
        assert!(differences(&read(BASE), &read("step open\nresult ok\n")).is_err());
        assert!(recording::read("result ok\n").is_err() && recording::read("step open\n| 7 800\n").is_err());
    }

    #[test]
    fn addresses_are_not_compared_and_their_neighbours_are() {
        let line = |at: usize| {
            let mut bytes = [0_u8; 0x110];
            bytes[at] = 1;
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("step cq 0 1\nresult ok\n| 8 400 CREATE_CQ status=0x0 in=272:{hex} out=1:00\n")
        };
        let read = |at| recording::read(&line(at)).unwrap();
        assert_eq!(differences(&read(0x48), &read(0x4f)).unwrap(), []);
        assert_eq!(differences(&read(0x48), &read(0x50)).unwrap().len(), 1);
    }
}
