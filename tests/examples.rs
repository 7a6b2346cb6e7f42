//! Each program of `docs/examples` runs on the soft device, and prints the expected output.

use std::path::PathBuf;
use std::process::Command;

#[path = "common/skips.rs"]
mod skips;

use skips::skipped;

/// Names of programs, and a part of a line that each prints.
const EXAMPLES: [(&str, &str); 10] = [
    ("completion_counters", "counted by "),
    ("connections", "10.0.0.1 says: from the server"),
    ("counter_watch", "300 packets, 18000 bytes at the end"),
    ("datagrams", "\"an answer\" with the number 7"),
    ("key_value", "orange: ffa500"),
    ("look_ups", "tells 239.1.2.3: to everybody"),
    ("rc_pingpong", "1000 round trips"),
    ("read_latency", "snapshot.read_cached, at most 10 ms old: "),
    ("shared_receives", "60 messages of 3 clients"),
    ("statistics", "rcvd_bytes: 300000 bytes"),
];

fn directory() -> PathBuf {
    let here = std::env::current_exe().expect("a test is a program");
    here.parent().and_then(|deps| deps.parent()).expect("it is in target/debug/deps").join("examples")
}

#[test]
fn each_example_runs() {
    for (name, line) in EXAMPLES {
        let program = directory().join(name);
        if !program.exists() {
            skipped(format_args!("{name}, since a test alone is built without the examples"));
            continue;
        }
        let output = Command::new(&program).output().expect("it starts");
        let (said, complained) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}: {}\n{complained}", output.status);
        assert!(said.contains(line), "{name} does not print `{line}`:\n{said}");
    }
}

/// None is missing in the list.
#[test]
fn each_example_is_listed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/examples");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("it is there")
        .map(|entry| PathBuf::from(entry.expect("an entry").file_name()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, EXAMPLES.map(|(name, _)| name));
}
