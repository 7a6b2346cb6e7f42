//! The commands that the README and the guide show for the soft device run as they are written there, and print what the page shows.

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
            assert_eq!(printed, command.output, "{about}");
        }
        println!("{about}");
    }
    assert!(count.len() > 1, "the commands are found: {count:?}");
}
