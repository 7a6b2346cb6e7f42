//! Reports what did not run, in the output of every run.
#![allow(unreachable_pub, reason = "shared by test binaries of several crates")]

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

const FILES: &str = "uverbs-skips-";

/// Prints on standard error why something did not run, with the number of such lines in this run of cargo.
///
/// The harness captures the output of the macros and shows it only for failed tests, but it does not capture what is written to standard
/// error directly.
pub fn skipped(why: impl Display) {
    // If this cannot be written, nothing can.
    let _ = writeln!(std::io::stderr(), "skipped {}: {why}", number());
}

/// The number of this line. All tests of one run have the same parent process: each adds a byte to a file with its number.
fn number() -> u64 {
    if cfg!(miri) {
        return 1;
    }
    let parent = std::os::unix::process::parent_id();
    // Process numbers are used again; the start time is not.
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    let started = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).unwrap_or("0");
    let path = std::env::temp_dir().join(format!("{FILES}{parent}-{started}"));
    let file = OpenOptions::new().create(true).append(true).open(path);
    let counted = file.and_then(|mut file| {
        file.write_all(b".")?;
        file.metadata()
    });
    let number = counted.map_or(0, |file| file.len());
    if number == 1 {
        forget_others();
    }
    number
}

/// Removes the files of earlier runs.
fn forget_others() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FILES)?.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
