//! The commands in blocks of pages that are marked `console`, and the output that the blocks show.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

/// One command of a page, without its prompt and its comment, and the following lines, which are its output.
pub struct Command {
    pub page: String,
    pub text: String,
    pub output: Vec<String>,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages in these directories, by their paths from the root, in order.
pub fn pages(places: &[&str]) -> Vec<String> {
    let (mut open, mut found): (Vec<PathBuf>, _) =
        (places.iter().map(|place| root().join(place)).collect(), Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path());
            open.extend(entries.filter(|path| !path.ends_with("target")));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path.strip_prefix(root()).expect("below the root").display().to_string());
        }
    }
    found.sort();
    found
}

/// The commands of a page.
pub fn commands(page: &str) -> Vec<Command> {
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let mut found: Vec<Command> = Vec::new();
    let (mut is_console, mut goes_on, mut prints) = (false, false, false);
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(language) = line.trim_start().strip_prefix("```") {
            (is_console, goes_on, prints) = (language == "console", false, false);
        } else if !is_console {
        } else if let Some(command) = line.trim_start().strip_prefix("$ ") {
            found.push(Command { page: page.to_owned(), text: command.to_owned(), output: Vec::new() });
            (goes_on, prints) = (is_open(command), true);
        } else if let (true, Some(last)) = (goes_on, found.last_mut()) {
            last.text = format!("{} {}", last.text.trim_end_matches('\\').trim_end(), line.trim_start());
            goes_on = is_open(&last.text);
        } else if let (true, Some(last)) = (prints, found.last_mut()) {
            last.output.push(line.to_owned());
        }
    }
    for command in &mut found {
        let end = command.text.find(" # ").unwrap_or(command.text.len());
        command.text.truncate(command.text[..end].trim_end().len());
    }
    found
}

/// Whether a command continues in the next line: after a backslash, or inside quotation marks.
fn is_open(command: &str) -> bool {
    command.ends_with('\\') || command.matches('\'').count() % 2 == 1
}

/// The arguments of `uverbs`, if the command runs on the soft device and ends by itself, so that a test can run it unchanged.
pub fn on_the_soft_device(command: &str) -> Option<&str> {
    let arguments = command
        .strip_prefix("cargo run --release --features cli -- ")
        .or_else(|| command.strip_prefix("uverbs "))?;
    let ends = arguments.contains("--count") || arguments.contains("--loopback");
    (arguments.contains("soft0") && ends && !arguments.contains(['|', '&', '>'])).then_some(arguments)
}
