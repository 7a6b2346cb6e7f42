//! `uverbs verify` on the soft device, and the row of a table for its report.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::children::{at_work, interrupt_at_work, signal};
use super::lacking::LACKING;

fn command(rest: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.arg("verify").args(rest).stdin(Stdio::null());
    command
}

fn run(rest: &[&str]) -> Output {
    command(rest).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A file of a test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("uverbs-verify-{name}-{}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path")
    }

    fn read(&self) -> String {
        fs::read_to_string(&self.0).expect("it was written")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().expect("a list")
}

fn count(report: &Value, result: &str) -> usize {
    rows(report).iter().filter(|row| row["result"] == result).count()
}

#[test]
fn everything_holds_on_the_soft_device() {
    let output = run(&["soft0", "--flows", "--json"]);
    let report = json(&output);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{report}");
    for (field, result) in [
        ("holds", "holds"),
        ("differs", "differs"),
        ("not_supported", "not_supported"),
        ("skipped", "skipped"),
    ] {
        assert_eq!(report["counts"][field], count(&report, result), "{report}");
    }
    assert_eq!((count(&report, "differs"), count(&report, "skipped")), (0, 0), "{report}");
    let lacking = rows(&report).iter().filter(|row| row["result"] == "not_supported");
    for row in lacking.clone() {
        assert!(row["by"].is_string() && row["why"].is_string(), "{row}");
    }
    assert!(lacking.clone().all(|row| row["by"] != "kernel" && row["by"] != "driver"), "{report}");
    let lacking: BTreeSet<_> =
        lacking.map(|row| row["behaviour"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(lacking, LACKING.map(|name| name.replace('_', " ")).into());
    let times = report["times"].as_array().expect("a list");
    let is_measured =
        |what: &str| times.iter().any(|time| time["what"] == what && time["median_ns"].is_u64());
    for what in ["read two counters", "read two counters, prepared", "poll one completion"] {
        assert!(is_measured(what), "{what}: {report}");
    }
    // Bulk reads need DEVX.
    assert!(times.iter().any(|time| time["median_ns"].is_null() && time["why"].is_string()), "{report}");
}

#[test]
fn without_leave_no_flow_is_created() {
    let output = run(&["soft0", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report = json(&output);
    for row in rows(&report).iter().filter(|row| row["area"] == "flow counters") {
        assert_eq!((&row["result"], row["elapsed_ms"].as_u64()), (&"skipped".into(), Some(0)), "{row}");
    }
    assert!(count(&report, "skipped") > 5 && count(&report, "holds") > 30, "{report}");
}

/// The words of a machine that a report must not have: as this test finds them, not as the program does.
fn private() -> BTreeSet<String> {
    let mut words = BTreeSet::from(["soft0".to_owned()]);
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    words.insert(read(Path::new("/proc/sys/kernel/hostname")));
    for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        words.insert(entry.file_name().into_string().expect("a name"));
        words.insert(read(&entry.path().join("address")));
    }
    let info = Command::new(env!("CARGO_BIN_EXE_uverbs")).args(["info", "soft0", "--json"]).output();
    let info: Value = serde_json::from_slice(&info.expect("it starts").stdout).expect("JSON");
    for field in ["node_guid", "sys_image_guid"] {
        words.insert(info[field].as_str().expect("a GUID").to_owned());
    }
    for gid in info["ports"][0]["gids"].as_array().expect("a list") {
        words.insert(gid["gid"].as_str().expect("a GID").to_owned());
    }
    words.retain(|word| !["", "lo", "00:00:00:00:00:00"].contains(&word.as_str()));
    words
}

#[test]
fn a_report_does_not_tell_whose_it_is() {
    let file = Scratch::new("private");
    assert!(run(&["soft0", "--flows", "--report", file.path()]).status.success());
    let report = file.read().to_lowercase();
    let words = private();
    assert!(words.len() > 4, "there is something to look for: {words:?}");
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    for word in words.iter().map(|word| word.to_lowercase()) {
        let is_whole = |at: usize| {
            let (before, behind) = (&report[..at], &report[at + word.len()..]);
            !before.ends_with(is_part) && !behind.starts_with(is_part)
        };
        assert!(!report.match_indices(&word).any(|(at, _)| is_whole(at)), "the report has {word}");
    }
}

#[test]
fn the_page_has_each_row_and_ends_with_the_counts() {
    let page = text(&run(&["soft0"]).stdout);
    for line in [
        "\n  holds          a message arrives with its number\n",
        "\n  not supported  messages come in whole with their numbers\n                   by this program: qp.create: unsupported",
        "\n  skipped        read before a flow is invalid\n",
    ] {
        assert!(page.contains(line), "{line:?} in {page}");
    }
    let last = page.lines().last().expect("a line");
    assert!(last.contains(" hold, 0 differ, "), "{last}");
    assert!(!page.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn after_ctrl_c_the_report_has_what_was_tried() {
    let file = Scratch::new("interrupted");
    // On a wire it takes some seconds.
    let child = command(&["soft@127.44.0.9", "--report", file.path()]).stdout(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    interrupt_at_work(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).ends_with("the run was ended; the rest was not tried\n"));
    let report: Value = serde_json::from_str(&file.read()).expect("JSON");
    assert_eq!(report["interrupted"], true);
    let whole = rows(&json(&run(&["soft0", "--json"]))).len();
    assert!((1..whole).contains(&rows(&report).len()), "{report}");
    assert!(report["times"].as_array().expect("a list").is_empty());
}

#[test]
fn a_report_becomes_a_row() {
    let file = Scratch::new("row");
    assert!(run(&["soft0", "--report", file.path()]).status.success());
    let output = run(&["--row", file.path()]);
    let row = text(&output.stdout);
    assert!(output.status.success() && row.starts_with("| soft (soft) | Ethernet | "), "{row}");
    assert_eq!((row.lines().count(), row.matches(" | ").count()), (1, 11), "{row}");

    let whole = file.read();
    for (text, code, complaint) in [
        ("", 2, "no report of uverbs verify"),
        ("[]", 2, "no report of uverbs verify"),
        (&whole[..whole.len() / 2], 2, "no report of uverbs verify"),
        (&whole.replace("\"format\": 1", "\"format\": 9"), 5, "format 9; this program knows 1"),
        ("{\"format\": 2}", 5, "format 2; this program knows 1"),
    ] {
        fs::write(&file.0, text).expect("it can be written");
        let output = run(&["--row", file.path()]);
        let error = self::text(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(code), 1), "{error}");
        assert!(error.contains(complaint), "{error}");
    }
    // Others have written it: nothing in it ends its cell.
    fs::write(&file.0, whole.replace("\"kernel\": \"", "\"kernel\": \"a | b`<i>\\n"))
        .expect("it can be written");
    let row = text(&run(&["--row", file.path()]).stdout);
    assert_eq!((row.lines().count(), row.matches('|').count()), (1, 13), "{row}");
    assert!(!row.contains(['`', '<']), "{row}");
}

#[test]
fn a_report_is_overwritten_when_there_is_another_and_not_before() {
    let file = Scratch::new("again");
    let old = format!("an earlier report, {}", "x".repeat(1 << 20));
    fs::write(&file.0, &old).expect("it can be written");
    let child = command(&["soft@127.44.0.10", "--report", file.path()]).stdout(Stdio::null()).spawn();
    let mut child = child.expect("the program starts");
    at_work(&child);
    signal(&child, Signal::SIGKILL);
    assert!(!child.wait().expect("it ends").success() && file.read() == old);
    assert!(run(&["soft0", "--report", file.path()]).status.success());
    let report: Value = serde_json::from_str(&file.read()).expect("JSON, and nothing behind it");
    assert_eq!(report["format"], 1);
    // What is no regular file is written too.
    let output = run(&["soft0", "--report", "/dev/null"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (rest, code, complaint) in [
        (&[][..], 2, "which device?"),
        (&["nope"], 3, "no device nope"),
        (&["soft0", "--port", "9"], 3, "no port 9 on soft0"),
        (&["soft0", "--row", "x"], 2, "cannot be used with"),
        (&["--row", "/nowhere/report"], 3, "/nowhere/report"),
        (&["soft0", "--report", "/nowhere/report"], 3, "/nowhere/report"),
    ] {
        let output = run(rest);
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(code), 1), "{rest:?}: {error}");
        assert!(error.contains(complaint) && output.stdout.is_empty(), "{rest:?}: {error}");
    }
}

#[test]
fn completions_and_the_manual_know_it() {
    let uverbs = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_uverbs")).args(arguments).output();
        text(&output.expect("the program starts").stdout)
    };
    assert!(uverbs(&["completions", "bash"]).contains("uverbs__subcmd__verify"));
    let page = uverbs(&["man", "verify"]);
    assert!(page.contains("\\-\\-report") && page.contains("a behaviour differs"), "{page}");
}
