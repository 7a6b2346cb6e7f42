//! `uverbs ping` of two processes, each with a soft device on an address of its own: no RDMA device, no module and no privileges.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn command(device: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(["ping", "--device", device]).args(arguments);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Runs a server on 127.42.`test`.1 and a client on 127.42.`test`.2. Returns the output of both.
fn ping(test: u8, options: &[&str]) -> (String, Output) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let port = free.to_string();
    let options = [&["-p", &port, "--timeout", "60s"], options].concat();
    let mut server = command(&format!("soft@127.42.{test}.1"), &options);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(server.stdout.take().expect("its output"));
    let mut told = String::new();
    lines.read_line(&mut told).expect("a line");
    assert!(told.contains("waiting for a client"), "{told}");
    let client =
        command(&format!("soft@127.42.{test}.2"), &[&options[..], &["--json", "127.0.0.1"]].concat());
    let client = { client }.output().expect("it starts");
    lines.read_to_string(&mut told).expect("the rest");
    let ended = server.wait_with_output().expect("it ends");
    assert!(
        ended.status.success(),
        "{options:?}\nserver: {told}{}\nclient: {}",
        text(&ended.stderr),
        text(&client.stderr)
    );
    (told, client)
}

#[test]
fn two_processes_reach_each_other() {
    let cases = [
        ("rc", "send", "4096"),
        ("uc", "send", "2000"),
        ("ud", "send", "1024"),
        ("rc", "write", "50000"),
        ("rc", "read", "50000"),
        ("rc", "atomic", "8"),
    ];
    for (test, (transport, op, size)) in (1..).zip(cases) {
        let options = ["--transport", transport, "--op", op, "--size", size, "--iters", "300"];
        let (server, client) = ping(test, &options);
        assert!(client.status.success(), "{transport} {op}: {}", text(&client.stderr));
        let report: Value = serde_json::from_str(text(&client.stdout)).expect("one JSON document");
        assert_eq!((&report["role"], &report["sent"]), (&"client".into(), &300.into()), "{report}");
        assert!(server.contains("127.0.0.1"), "{server}");
    }
}

#[test]
fn an_address_that_cannot_be_had_is_told() {
    for (device, words) in [
        ("soft@192.0.2.77", "it is not an address of this host"),
        ("soft@nowhere", "not an IP address"),
        ("soft@0.0.0.0", "it is not an address of this host"),
    ] {
        let output = command(device, &[]).output().expect("it starts");
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && stderr.contains(words), "{device}: {stderr}");
    }
}
