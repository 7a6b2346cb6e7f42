//! `uverbs ping --cm`, as a user runs it: on the soft network, where both sides are in the process, and with what it refuses. The lanes run it
//! on the kernel's connection manager.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::children::interrupt_at_work;

/// A run with these arguments, besides `--cm`.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(["ping", "--cm"]).args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The report of a run that succeeds.
fn report(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_str(text(&output.stdout)).expect("one JSON document")
}

#[test]
fn messages_go_both_ways() {
    for more in [&[][..], &["--counter"], &["--size", "1"], &["--size", "100000"]] {
        let report = report(&[&["soft0", "--iters", "300"], more].concat());
        assert_eq!((&report["role"], &report["exchange"]), (&"loopback".into(), &"cm".into()), "{more:?}");
        assert_eq!((report["sent"].as_u64(), report["received"].as_u64()), (Some(300), Some(300)));
        assert_eq!(report["round_trips"], 300);
        assert_eq!((&report["peer"], &report["gid"]), (&"192.0.2.1:7174".into(), &Value::Null));
        assert!(report["local"].as_str().is_some_and(|local| local.starts_with("192.0.2.1:")), "{report}");
    }
    let listing = run(&["--device", "soft0", "--iters", "3"]);
    let listing = text(&listing.stdout);
    for words in
        ["both sides in this process", "connected by the connection manager", "3 sent and 3 received of 3"]
    {
        assert!(listing.contains(words), "{words:?} is not in\n{listing}");
    }
}

#[test]
fn the_client_operates_on_the_memory_of_the_server() {
    for (op, size) in [("write", 4096), ("read", 4096), ("atomic", 8)] {
        let report = report(&["soft0", "--op", op, "--iters", "100"]);
        assert_eq!(
            (&report["op"], &report["sent"], &report["size"]),
            (&op.into(), &100.into(), &size.into())
        );
    }
}

#[test]
fn the_exchange_of_rping_goes_round() {
    for size in ["1", "64", "65536"] {
        let report = report(&["soft0", "--rping", "--iters", "200", "--size", size]);
        assert_eq!((&report["exchange"], &report["role"]), (&"rping".into(), &"loopback".into()));
        assert_eq!((&report["sent"], &report["received"]), (&200.into(), &200.into()));
        assert_eq!(report["round_trips"], 200);
    }
    let listing = run(&["soft0", "--rping", "--iters", "3", "--port-number", "9"]);
    let listing = text(&listing.stdout);
    assert!(listing.contains("with rping's messages") && listing.contains("64 bytes each"), "{listing}");
}

#[test]
fn a_ping_that_is_interrupted_tells_what_it_has() {
    for more in [&["--iters", "1000000000"][..], &["--iters", "1000000000", "--rping"]] {
        let arguments = [&["soft0", "--json"], more].concat();
        let child = command(&arguments).stdout(Stdio::piped()).spawn().expect("the program starts");
        interrupt_at_work(&child);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{more:?}");
        let report: Value = serde_json::from_str(text(&output.stdout)).expect("one JSON document");
        let sent = report["sent"].as_u64().expect("a number");
        assert!((1..1_000_000_000).contains(&sent), "{report}");
    }
}

#[test]
fn wrong_arguments_are_told() {
    for (arguments, code, words) in [
        (&["soft0", "--transport", "ud"][..], 2, "--transport: with --cm"),
        (&["soft0", "--qps", "2"], 2, "--qps"),
        (&["soft0", "--gid-index", "1"], 2, "--gid-index"),
        (&["soft0", "--rping", "--op", "read"], 2, "--op"),
        (&["soft0", "--rping", "--counter"], 2, "--counter"),
        (&["soft0", "--op", "read", "--counter"], 2, "--op read: completion counters"),
        (&["rxe0", "10.0.0.1"], 2, "the only word is HOST[:PORT]"),
        (&["--device", "rxe0"], 2, "the address names the device"),
        (&["--device", "soft0", "10.0.0.1"], 2, "there is no HOST"),
        (&["--loopback"], 2, "it needs an address"),
        (&["10.0.0.1:0"], 2, "a port from 1 to 65535"),
        (&["10.0.0.1:7", "-p", "8"], 2, "--port-number names the port too"),
        (&["host.invalid"], 1, "host.invalid"),
    ] {
        let output = run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(words), "{arguments:?}: {stderr}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_uverbs")).args(["ping", "soft0", "--rping"]).output();
    let output = output.expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "--rping needs --cm: {}", text(&output.stderr));
}

/// Where the machine has a connection manager, no device has this address; elsewhere there is no manager.
#[test]
fn an_address_that_no_device_has_names_none() {
    let output = Command::new(env!("CARGO_BIN_EXE_uverbs")).args(["info", "198.51.100.1"]).output();
    let output = output.expect("the program starts");
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.starts_with("uverbs: cm."), "{told}");
}
