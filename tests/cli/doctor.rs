//! `uverbs doctor`, on whatever machine this is.

use std::process::{Command, Output};

use serde_json::Value;

fn run(rest: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(["doctor", "--watch", "1ms"]).args(rest).output().expect("the program starts")
}

#[test]
fn the_exit_status_is_that_of_the_worst_finding() {
    let output = run(&["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("a list");
    let has = |severity: &str| findings.iter().any(|finding| finding["severity"] == severity);
    let wanted = if has("problem") {
        7
    } else if has("warning") {
        6
    } else {
        0
    };
    assert_eq!(output.status.code(), Some(wanted), "{report}");
    // A machine without a device has at least the finding that says so.
    let devices = report["devices"].as_array().expect("a list");
    assert!(!devices.is_empty() || has("problem"), "{report}");
    assert!(output.stderr.is_empty());
}

#[test]
fn the_page_has_each_finding() {
    let report: Value = serde_json::from_slice(&run(&["--json"]).stdout).expect("JSON");
    let page = String::from_utf8(run(&[]).stdout).expect("UTF-8");
    for finding in report["findings"].as_array().expect("a list") {
        let text = |field: &str| finding[field].as_str().expect("a text");
        assert!(page.contains(&format!("{} {}", text("severity"), text("check"))), "{page}");
        assert!(page.contains(&format!("  why:  {}\n", text("why"))), "{page}");
    }
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let output = run(&["nope"]);
    assert_eq!(output.status.code(), Some(3));
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(error.starts_with("uverbs: no device nope; without a name, doctor says why"), "{error}");
}
