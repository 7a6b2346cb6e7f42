//! A test that did not run on a device is reported in the output of plain `cargo test`, with a number.

use std::process::Command;

use crate::common::*;

/// Whether the output of this process is examined.
const INNER: &str = "UVERBS_TEST_INNER";

#[test]
fn something_that_the_soft_device_cannot_do() {
    if std::env::var_os(INNER).is_none() {
        return;
    }
    on_every_device(|target| skip(target, "it is a test"));
    skipped("the whole test");
}

#[test]
fn what_does_not_run_is_said_and_counted_though_the_test_passes() {
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "skips::something_that_the_soft_device_cannot_do"])
        .env(INNER, "")
        .env_remove("UVERBS_TEST_DEVICE")
        .output()
        .expect("it starts");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{stderr}");
    assert!(lines[0].starts_with("skipped 1: on soft0: it is a test (tests/soft/skips.rs:"), "{stderr}");
    assert!(lines[1].starts_with("skipped 2: every device but the soft one"), "{stderr}");
    assert_eq!(lines[2], "skipped 3: the whole test");
}
