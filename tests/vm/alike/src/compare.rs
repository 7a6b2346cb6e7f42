//! Where the two recordings differ: results, commands, and their fields.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::allowed::{self, Kernel};
use crate::fields;
use crate::recording::{self, Sent, Step};

/// One difference, with the first word of the step that it was met in.
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

/// The fields in which two commands of a name differ: what, theirs, ours.
fn fields(theirs: &Sent, ours: &Sent) -> Vec<[String; 3]> {
    let mut found = Vec::new();
    if theirs.status != ours.status {
        found.push([format!("{} status", theirs.name), theirs.status.clone(), ours.status.clone()]);
    }
    for half in [fields::INPUT, fields::OUTPUT] {
        if theirs.lens[half] != ours.lens[half] {
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
                found.push([fields::name(&theirs.name, half, at), theirs_word, ours_word]);
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
    // Commands of the same names are compared in their order; what only one side sent is named.
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

/// All differences of two recordings of the same steps.
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

fn kernel() -> Result<Kernel, String> {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(|error| error.to_string())?;
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    parts.next().zip(parts.next()).ok_or_else(|| format!("{text}: no version"))
}

/// Compares `theirs.txt` and `ours.txt` of a directory, and prints the table. Fails if a difference is not on the list, or
/// one that is was not met.
pub(crate) fn print(directory: &Path) -> Result<(), String> {
    let read = |name: &str| {
        let text = fs::read_to_string(directory.join(name)).map_err(|error| format!("{name}: {error}"))?;
        recording::read(&text)
    };
    let (theirs, ours) = (read("theirs.txt")?, read("ours.txt")?);
    let found = differences(&theirs, &ours)?;
    let (rows, unmet) = allowed::judge(&found, kernel()?);
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
