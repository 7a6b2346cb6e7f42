//! The commands for the soft device in the README and the guide run as they are written there, and print the output that the page shows.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

#[path = "../common/pages.rs"]
mod shown;

#[test]
fn commands_of_the_guide_run_on_the_soft_device() {
    let pages = shown::pages(&["README.md", "docs/guide"]);
    let commands = pages.iter().flat_map(|page| shown::commands(page));
    let mut count = BTreeMap::new();
    for command in commands {
        let Some(arguments) = shown::on_the_soft_device(&command.text) else { continue };
        if count.insert(command.text.clone(), ()).is_some() && command.output.is_empty() {
            continue; // another page has it too
        }
        let output = Command::new("sh")
            .args(["-c", &format!("\"$0\" {arguments}"), env!("CARGO_BIN_EXE_uverbs")])
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let (said, complained) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let printed: Vec<_> = said.lines().chain(complained.lines()).map(str::trim_end).collect();
        let about = format!("{}: {}", command.page, command.text);
        if command.output.is_empty() {
            assert!(output.status.success() && !said.is_empty(), "{about}: {}\n{complained}", output.status);
        } else {
            // If there is a rate, numbers depend on the time.
            let is_timed = command.output.iter().any(|line| line.contains("/s"));
            let form = |line: &str| if is_timed { without_numbers(line) } else { line.to_owned() };
            let (printed, shown): (Vec<_>, Vec<_>) = (
                printed.into_iter().map(form).collect(),
                command.output.iter().map(|line| form(line)).collect(),
            );
            assert_eq!(printed, shown, "{about}");
        }
        println!("{about}");
    }
    assert!(count.len() > 1, "the commands are found: {count:?}");
}

/// A line with `#` for each number.
fn without_numbers(line: &str) -> String {
    let mut form = String::new();
    for letter in line.chars().map(|letter| if letter.is_ascii_digit() { '#' } else { letter }) {
        if letter != '#' || !form.ends_with(['#', '.']) {
            form.push(letter);
        }
    }
    form.replace("#.", "#")
}
