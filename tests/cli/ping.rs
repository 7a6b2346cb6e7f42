//! `uverbs ping`, as a user runs it: on the soft device, which is its own peer, and with peers that send invalid data.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::children::interrupt_at_work;

/// An endpoint that does not exist.
const NOBODY: &[u8; 52] = b"0000:000011:37a5f0:00000000000000000000ffffc0000201\0";

const NOBODY_EXTENDED: &[u8; 66] = b"0000:000011:000012:37a5f0:000013:00000000000000000000ffffc0000201\0";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(["ping", "--device", "soft0"]).args(arguments);
    command
}

/// The output of a run.
fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The one line on standard error of a run that must end with this code.
fn complaint(output: &Output, code: i32) -> String {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr.strip_prefix("uverbs: ").expect("it says who complains").trim_end().to_owned()
}

/// Runs a client with `script` as the server, and returns the client's error. The timeout must be long enough for the script, and short
/// if the script sends nothing.
fn client_of(timeout: &str, script: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    client_with(&["--timeout", timeout], script)
}

/// For a server that sends something, however busy the machine is.
const PATIENT: &str = "60s";
/// For a server that sends something and then nothing, and for one that sends nothing.
const SOON: &str = "3s";

fn client_with(more: &[&str], script: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let server = thread::spawn(move || script(&mut listener.accept().expect("a client").0));
    let started = Instant::now();
    let output = command(&["-p", &port, "127.0.0.1"]).args(more).output();
    let output = output.expect("the program starts");
    server.join().expect("the script is followed");
    assert!(started.elapsed() < Duration::from_secs(20), "it ends in time");
    complaint(&output, 1)
}

fn endpoint_of(client: &mut TcpStream) -> String {
    let mut message = [0; 52];
    client.read_exact(&mut message).expect("the client's endpoint");
    assert_eq!(message[51], 0, "it ends with a NUL");
    text(&message[..51]).to_owned()
}

#[test]
fn wrong_arguments_are_told() {
    for (arguments, code, words) in [
        (&["--size", "0"][..], 2, "--size"),
        (&["--iters", "0"], 2, "--iters"),
        (&["--port-number", "0"], 2, "--port-number"),
        (&["--port-number", "65536"], 2, "--port-number"),
        (&["--timeout", "0s"], 2, "--timeout"),
        (&["--transport", "dct"], 2, "--transport"),
        (&["--qps", "0"], 2, "--qps"),
        (&["--qps", "256"], 2, "--qps"),
        (&["--qps", "2", "--transport", "xrc"], 2, "--qps: with --transport xrc receives are shared already"),
        (&["--qps", "2", "--op", "write"], 2, "--op write: operations on memory take no receives"),
        (&["--transport", "xrc", "--op", "write", "--counter"], 2, "--op write: completion counters"),
        (&["--op", "swap"], 2, "--op"),
        (&["--transport", "ud", "--op", "write"], 2, "--op write: queue pairs of this kind"),
        (&["--transport", "uc", "--op", "read"], 2, "--op read: queue pairs of this kind"),
        (&["--op", "read", "--counter"], 2, "--op read: completion counters"),
        (&["--op", "atomic", "--size", "16"], 2, "--op atomic: an atomic operation is of 8 bytes"),
        (&["--gid-index", "256"], 2, "--gid-index"),
        (&["--loopback", "localhost"], 2, "--loopback"),
        (&["--transport", "ud", "--size", "4097"], 2, "a message is at most 4096 bytes on port 1 of soft0"),
        (&["--ib-port", "2"], 3, "no port 2 on soft0"),
        (&["--gid-index", "200"], 3, "no GID 200 on port 1 of soft0"),
    ] {
        let output = command(arguments).output().expect("the program starts");
        let told = complaint(&output, code);
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
}

#[test]
fn both_sides_in_one_process() {
    for (transport, size) in [("rc", 4096), ("uc", 4096), ("ud", 1024), ("xrc", 4096)] {
        let output = run(&["--transport", transport, "--iters", "700"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let listing = text(&output.stdout);
        for words in ["both sides in this process", "700 sent and 700 received of 700", "p99.9"] {
            assert!(listing.contains(words), "{words:?} is not in\n{listing}");
        }
        let output = run(&["--transport", transport, "--loopback", "--json", "--iters", "100"]);
        let report: Value = serde_json::from_str(text(&output.stdout)).expect("one JSON document");
        assert_eq!((&report["role"], &report["transport"]), (&"loopback".into(), &transport.into()));
        assert_eq!((report["sent"].as_u64(), report["received"].as_u64()), (Some(100), Some(100)));
        assert_eq!((report["size"].as_u64(), report["bytes"].as_u64()), (Some(size), Some(200 * size)));
        assert_eq!(report["round_trips"], 100);
        let times = &report["round_trip_us"];
        let time = |name: &str| times[name].as_f64().unwrap_or_else(|| panic!("no {name} in {times}"));
        let steps = ["min", "p50", "p90", "p99", "p99.9", "max"].map(time);
        assert!(steps.is_sorted() && steps[0] > 0.0, "{times}");
        assert!((steps[0]..=steps[5]).contains(&time("mean")), "{times}");
    }
}

#[test]
fn the_gid_is_told_with_the_reason() {
    let listing = run(&["--iters", "3"]);
    let listing = text(&listing.stdout);
    assert!(
        listing.contains("gid       1, 192.0.2.1 (RoCE v2): the first in the order of choice\n"),
        "{listing}"
    );
    let listing = run(&["--iters", "3", "--gid-index", "0"]);
    let listing = text(&listing.stdout);
    assert!(
        listing.contains("gid       0, fe80::") && listing.contains("(RoCE v2): by --gid-index"),
        "{listing}"
    );
    let output = run(&["--iters", "3", "--json"]);
    let report: Value = serde_json::from_str(text(&output.stdout)).expect("one JSON document");
    let gid = &report["gid"];
    assert_eq!((&gid["index"], &gid["gid"]), (&1.into(), &"::ffff:192.0.2.1".into()));
    assert_eq!((&gid["type"], &gid["interface"]), (&"RoCE v2".into(), &Value::Null));
    assert_eq!(gid["reason"], "the first in the order of choice");
}

/// Between an IPv4 and an IPv6 address there is no route.
#[test]
fn a_peer_with_a_gid_of_the_other_family_is_told() {
    for (more, gid, both) in [
        (&["--timeout", PATIENT][..], "fd000000000000000000000000000009", ["fd00::9", "192.0.2.1"]),
        (
            &["--timeout", PATIENT, "--gid-index", "0"],
            "00000000000000000000ffffc0000209",
            ["192.0.2.9", "fe80::"],
        ),
    ] {
        let told = client_with(more, move |client| {
            endpoint_of(client);
            client.write_all(format!("0000:000011:37a5f0:{gid}\0").as_bytes()).expect("it is sent");
            let _ = client.read_to_end(&mut Vec::new());
        });
        let [other, own] = both;
        assert!(
            told.contains(&format!("the other side's GID is {other}, and this side's is {own}")),
            "{told}"
        );
        assert!(told.ends_with("choose with --gid-index on one side"), "{told}");
    }
}

#[test]
fn one_side_operates_on_the_memory_of_the_other() {
    let reliable =
        ["rc", "xrc"].map(|kind| [(kind, "write", 4096), (kind, "read", 4096), (kind, "atomic", 8)]);
    for (transport, op, size) in reliable.into_iter().flatten().chain([("uc", "write", 4096)]) {
        let run = |more: &[&str]| run(&[&["--op", op, "--transport", transport], more].concat());
        let output = run(&["--iters", "300"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let listing = text(&output.stdout);
        for words in [&format!("300 of 300, {size} bytes each"), "from posting to completion", "p99.9"] {
            assert!(listing.contains(words), "{words:?} is not in\n{listing}");
        }
        let output = run(&["--json", "--iters", "100"]);
        let report: Value = serde_json::from_str(text(&output.stdout)).expect("one JSON document");
        assert_eq!(
            (&report["op"], &report["sent"], &report["received"]),
            (&op.into(), &100.into(), &0.into())
        );
        assert_eq!((report["bytes"].as_u64(), report["round_trips"].as_u64()), (Some(100 * size), Some(100)));
    }
}

#[test]
fn queue_pairs_that_share_their_receives_have_a_message_each() {
    for (qps, iters) in [(1, 100_u64), (16, 700), (255, 1000), (20, 5)] {
        for (transport, counter) in [("rc", false), ("uc", false), ("ud", false), ("rc", true), ("ud", true)]
        {
            let (qps_text, iters_text) = (qps.to_string(), iters.to_string());
            let mut options =
                vec!["--json", "--qps", &qps_text, "--iters", &iters_text, "--transport", transport];
            options.extend(counter.then_some("--counter"));
            let output = run(&options);
            assert!(output.status.success(), "{options:?}: {}", text(&output.stderr));
            let report: Value = serde_json::from_str(text(&output.stdout)).expect("one JSON document");
            assert_eq!((&report["qps"], &report["iters"]), (&qps.into(), &iters.into()));
            let messages = ["sent", "received", "round_trips"].map(|name| report[name].as_u64());
            assert_eq!(messages, [Some(iters); 3], "{options:?}");
            let lines = report["lines"].as_array().expect("lines");
            let numbers =
                |side: &str| lines.iter().filter_map(|line| line[side]["qp_num"].as_u64()).collect();
            let (local, remote): (BTreeSet<_>, BTreeSet<_>) = (numbers("local"), numbers("remote"));
            assert_eq!((lines.len(), local.len(), remote.len()), (qps, qps, qps));
            assert!(local.is_disjoint(&remote), "{options:?}");
        }
    }
    let listing = run(&["--qps", "3", "--iters", "9"]);
    let listing = text(&listing.stdout);
    for words in
        ["rc, queue pairs that share their receives: 3,", "and 2 more of each", "9 sent and 9 received"]
    {
        assert!(listing.contains(words), "{words:?} is not in\n{listing}");
    }
}

#[test]
fn an_end_of_an_extended_connection_is_told() {
    let output = run(&["--json", "--transport", "xrc", "--iters", "3"]);
    let report: Value = serde_json::from_str(text(&output.stdout)).expect("one JSON document");
    let line = &report["lines"][0];
    let numbers = ["qp_num", "sender_qp_num", "srq_num"].map(|name| line["local"][name].as_u64());
    let distinct: BTreeSet<_> = numbers.iter().flatten().collect();
    assert_eq!(distinct.len(), 3, "{report}");
    assert_eq!(report["qps"], Value::Null);
    let output = run(&["--json", "--iters", "3"]);
    let report: Value = serde_json::from_str(text(&output.stdout)).expect("one JSON document");
    assert_eq!(report["lines"][0]["local"]["srq_num"], Value::Null);
}

#[test]
fn counters_are_waited_for_as_queues_are_polled() {
    for (transport, size) in [("rc", 4096), ("uc", 4096), ("ud", 1024), ("xrc", 4096)] {
        let run = |more: &[&str]| run(&[&["--counter", "--transport", transport], more].concat());
        let output = run(&["--iters", "700"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let listing = text(&output.stdout);
        for words in ["waiting for counters", "700 sent and 700 received of 700", "p99.9"] {
            assert!(listing.contains(words), "{words:?} is not in\n{listing}");
        }
        let output = run(&["--json", "--iters", "100"]);
        let report: Value = serde_json::from_str(text(&output.stdout)).expect("one JSON document");
        assert_eq!((report["sent"].as_u64(), report["received"].as_u64()), (Some(100), Some(100)));
        assert_eq!((report["counter"].as_bool(), report["bytes"].as_u64()), (Some(true), Some(200 * size)));
        assert_eq!(report["round_trips"], 100);
    }
}

#[test]
fn what_is_made_is_released() {
    for (options, objects) in [
        (&[][..], 8),
        (&["--transport", "uc"], 8),
        (&["--transport", "ud"], 10),
        (&["--counter"], 8),
        // Two domains, two queues, and two more queue pairs.
        (&["--transport", "xrc"], 14),
        (&["--transport", "xrc", "--counter"], 14),
        (&["--qps", "4"], 16),
    ] {
        let output = run(&[&["--trace", "--iters", "3"], options].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let count = |word: &str| {
            text(&output.stderr).lines().filter(|line| line.contains(word) && line.ends_with("-> ok")).count()
        };
        let commands = [
            "pd.alloc ",
            "cq.create ",
            "qp.create ",
            "mr.register ",
            "ah.create ",
            "srq.create ",
            "xrcd.open ",
        ];
        let made: usize = commands.map(count).iter().sum();
        assert_eq!((made, count(".destroy ")), (made, made), "{}", text(&output.stderr));
        assert_eq!(made, objects, "{options:?}");
    }
}

#[test]
fn a_signal_ends_it_with_what_there_is() {
    let mut child = command(&["--json", "--iters", "1000000000"]);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    interrupt_at_work(&child);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(text(&output.stdout)).expect("one JSON document");
    assert!(report["sent"].as_u64() < report["iters"].as_u64(), "{report}");
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    // The port is free again when the client connects.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let output = run(&["-p", &free.port().to_string(), "127.0.0.1"]);
    let told = complaint(&output, 1);
    assert!(told.contains(&format!("connecting to 127.0.0.1, TCP port {}", free.port())), "{told}");
}

#[test]
fn a_peer_that_talks_nonsense_is_told() {
    let told = client_of(PATIENT, |client| {
        endpoint_of(client);
        client.write_all(&[b'x'; 52]).expect("it is sent");
    });
    assert!(told.contains("sent no endpoint but \"xxx"), "{told}");
    let told = client_of(PATIENT, |client| {
        endpoint_of(client);
        client.write_all(b"HTTP/1.1 400 Bad Request\r\n").expect("it is sent");
    });
    assert!(told.contains("went away after 26 of the 52 bytes of its endpoint"), "{told}");
}

#[test]
fn a_peer_that_says_nothing_is_told() {
    let told = client_of("300ms", |client| {
        endpoint_of(client);
        // Until the client gives up.
        assert_eq!(client.read(&mut [0]).expect("it goes away"), 0);
    });
    assert!(told.contains("did not send its endpoint in 300ms"), "{told}");
}

#[test]
fn a_peer_that_is_nowhere_does_not_answer() {
    let told = client_of(SOON, |client| {
        let endpoint = endpoint_of(client);
        let digits: Vec<_> = endpoint.split(':').map(str::len).collect();
        assert_eq!(digits, [4, 6, 6, 32], "{endpoint}");
        client.write_all(NOBODY).expect("it is sent");
        let mut done = Vec::new();
        client.read_to_end(&mut done).expect("it goes away");
        assert!(done.is_empty() || done == b"done\0", "{done:?}");
    });
    assert!(told.contains("message 1 of 1000") && told.contains("the other side does not answer"), "{told}");
}

#[test]
fn a_failure_that_is_counted_is_told() {
    for more in [
        &["--timeout", SOON, "--counter"][..],
        &["--timeout", SOON, "--counter", "--transport", "xrc", "--op", "send"],
    ] {
        let is_xrc = more.contains(&"xrc");
        let told = client_with(more, move |client| {
            let mut message = vec![0; if is_xrc { 66 } else { 52 }];
            client.read_exact(&mut message).expect("the client's endpoint");
            client.write_all(if is_xrc { NOBODY_EXTENDED } else { NOBODY }).expect("it is sent");
            let _ = client.read_to_end(&mut Vec::new());
        });
        // Over an extended connection the server sends the first message.
        let expected = if is_xrc { "nothing came in 3s" } else { "message 1 of 1000" };
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_server_with_other_queue_pairs_is_told() {
    let told = client_with(&["--timeout", PATIENT, "--qps", "3"], |client| {
        let mut endpoints = vec![0; 256 * 52];
        client.read_exact(&mut endpoints).expect("the client's endpoints");
        let used = endpoints.chunks(52).filter(|endpoint| &endpoint[5..11] != b"000000").count();
        assert_eq!(used, 3);
        endpoints.copy_within(255 * 52.., 2 * 52);
        client.write_all(&endpoints).expect("it is sent");
        let _ = client.read_to_end(&mut Vec::new());
    });
    assert!(told.contains("has 2 queue pairs; here --qps is 3"), "{told}");
}
