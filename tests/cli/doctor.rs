//! `uverbs doctor`, on whatever machine this is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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

/// Both sides with a soft device on an address of this host, and what each has found.
fn both(port: &str, addresses: [&str; 2]) -> [(Option<i32>, Value); 2] {
    let start = |address: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
        command.args([
            "doctor",
            &format!("soft@{address}"),
            "--peer",
            "127.0.0.1",
            "--peer-port",
            port,
            "--json",
        ]);
        command.args(["--peer-timeout", "30s"]).stdout(Stdio::piped()).spawn().expect("the program starts")
    };
    addresses.map(start).map(|child| {
        let output = child.wait_with_output().expect("it ends");
        (output.status.code(), serde_json::from_slice(&output.stdout).expect("JSON"))
    })
}

fn found(report: &Value, check: &str) -> Vec<String> {
    let findings = report["findings"].as_array().expect("a list");
    let of_check = findings.iter().filter(|finding| finding["check"] == check);
    of_check.map(|finding| finding["seen"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn two_sides_that_reach_each_other_say_from_which_address_to_which() {
    let [one, two] = both("18617", ["127.46.0.2", "127.46.0.3"]);
    for ((status, report), [own, other]) in
        [(&one, ["127.46.0.2", "127.46.0.3"]), (&two, ["127.46.0.3", "127.46.0.2"])]
    {
        assert_eq!(*status, Some(0), "{report}");
        let [seen] = &found(report, "peer-messages")[..] else { panic!("{report}") };
        assert!(seen.contains(&format!("{own} (RoCE v2) to index")) && seen.contains(other), "{seen}");
        assert!(seen.contains("messages arrive") && seen.ends_with("µs there and back"), "{seen}");
        let [met] = &found(report, "peer-met")[..] else { panic!("{report}") };
        assert!(met.starts_with("127.0.0.1 has ") && met.contains("127.0.0.1:"), "{met}");
        assert_eq!(report["findings"].as_array().expect("a list").len(), 2, "{report}");
    }
}

#[test]
fn a_peer_that_does_not_come_is_named_and_another_program_is_no_peer() {
    let arguments =
        ["doctor", "soft@127.46.0.4", "--peer", "127.0.0.1", "--peer-port", "18619", "--peer-timeout", "2s"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    let child = command.args(arguments).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    // Someone else asks, and goes on asking nothing.
    let begun = Instant::now();
    let stranger = loop {
        match TcpStream::connect(("127.0.0.1", 18619)) {
            Ok(stream) => break stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
    };
    (&stranger).write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it is sent");
    let output = child.wait_with_output().expect("it ends");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("127.0.0.1 has not answered in 2s: start `uverbs doctor --peer` there too"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
    // What was found of this machine is printed all the same.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "soft0: 0 problems, 0 warnings, 0 notes\n");
}

#[test]
fn a_peer_that_goes_away_does_not_take_along_what_was_found() {
    // One of the two has met, and ends.
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    let arguments = ["doctor", "soft@127.46.0.5", "--peer", "127.0.0.1", "--peer-port", "18620", "--json"];
    let child = command.args(arguments).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    let begun = Instant::now();
    let mut caller = loop {
        match TcpStream::connect(("127.0.0.1", 18620)) {
            Ok(stream) => break stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
    };
    caller.write_all(b"uverbs doctor\0").expect("it is sent");
    // The greeting, and what it has: the length in eight digits, and the text. The same comes back, with another link.
    let mut greeting = [0; 14 + 8];
    caller.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting[..14], b"uverbs doctor\0");
    let digits = std::str::from_utf8(&greeting[14..]).expect("digits");
    let mut facts = vec![0; usize::from_str_radix(digits, 16).expect("a length")];
    caller.read_exact(&mut facts).expect("what it has");
    let facts = String::from_utf8(facts).expect("UTF-8").replace("Ethernet", "InfiniBand");
    caller.write_all(format!("{:08x}{facts}", facts.len()).as_bytes()).expect("it is sent");
    drop(caller);
    let output = child.wait_with_output().expect("it ends");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for check in ["peer-met", "peer-link", "peer-untried"] {
        assert_eq!(found(&report, check).len(), 1, "{check}: {report}");
    }
}
