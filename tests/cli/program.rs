//! The program `uverbs`, run as a user runs it, on the soft device.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::children::{self, readings_until};

const PCAP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/mixed.pcap");

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Standard output of a run that must succeed, with nothing on standard error.
fn output(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    text(&output.stdout)
}

/// Each line is one JSON document.
fn json(arguments: &[&str]) -> Vec<Value> {
    let lines = output(arguments);
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The one line on standard error of a run that must end with this code.
fn complaint(arguments: &[&str], code: i32) -> String {
    let output = run(arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    stderr.strip_prefix("uverbs: ").expect("it says who complains").trim_end().to_owned()
}

fn start(arguments: &[&str]) -> Child {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Number of objects in a trace that are created, and of those that are destroyed again.
fn lives(trace: &str) -> (usize, usize) {
    let count = |verbs: &[&str]| {
        let ends = |line: &&str| line.ends_with("-> ok") && verbs.iter().any(|verb| line.contains(verb));
        trace.lines().filter(ends).count()
    };
    let made = ["pd.alloc", "counters.create", "cq.create", "qp.create", "mr.register", "flow.create"];
    (count(&made), count(&[".destroy "]))
}

#[test]
fn the_embedded_device_is_listed() {
    let table = output(&["devices"]);
    assert!(table.starts_with("NAME"), "{table}");
    let row = table.lines().find(|line| line.starts_with("soft0")).expect("a row");
    assert!(row.contains("(embedded)"), "{row}");

    let list = json(&["devices", "--json"]);
    let soft = list[0].as_array().expect("an array").iter().find(|device| device["name"] == "soft0");
    let soft = soft.expect("soft0");
    assert_eq!(soft["driver"], "soft");
    assert_eq!(soft["embedded"], true);
    assert_eq!(soft["ports"], 1);
}

#[test]
fn info_has_the_fields_of_ibv_devinfo_and_its_own() {
    let listing = output(&["info", "soft0"]);
    for line in [
        "hca_id:\tsoft0",
        "\ttransport:\t\t\tInfiniBand (0)",
        "\tphys_port_cnt:\t\t\t1",
        "\t\tmax_rwq_indirection_table_size:\t\t\t0",
        "\t\tport:\t1",
        "\t\t\tstate:\t\t\tPORT_ACTIVE (4)",
        "\t\t\tlink_layer:\t\tEthernet",
        "\tuverbs:",
        "\t\tflow_counters:\t\tsupported: packets, bytes",
    ] {
        assert!(listing.lines().any(|found| found == line), "{line:?} is not in\n{listing}");
    }
    let report = &json(&["info", "soft0", "--json"])[0];
    assert_eq!(report["hca_id"], "soft0");
    assert_eq!(report["max_qp"], 1024);
    assert_eq!(report["ports"][0]["state"], "PORT_ACTIVE (4)");
    assert_eq!(report["ports"][0]["gids"][0]["type"], "RoCE v2");
    assert_eq!(report["uverbs"]["flows"]["supported"], true);
    assert_eq!(report["uverbs"]["flow_counters"]["supported"], true);
}

#[test]
fn watch_prints_as_many_lines_as_asked_for() {
    let lines = output(&["watch", "--device", "soft0", "--count", "3", "--interval", "50ms"]);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.lines().all(|line| line.contains(" packets  ") && line.contains(" bytes  ")), "{lines}");
    assert!(!lines.contains('\r'), "no progress line in a pipe");
}

#[test]
fn values_grow_and_agree_with_the_traffic() {
    let generate = "rate=20k,size=100,flows=4";
    let watch = ["watch", "--device", "soft0", "--interval", "100ms", "--json", "--generate", generate];
    let has_some = |reading: &Value| reading["packets"].as_u64() > Some(0);
    let readings = readings_until(start(&watch), has_some);
    assert!(readings.len() > 1, "the last one comes after the signal");
    let number = |reading: &Value, field: &str| reading[field].as_u64().expect("a number");
    let (mut packets, mut elapsed) = (0, 0);
    for reading in &readings {
        // On a busy machine the traffic may pause for an interval, and then the values do not grow.
        let grown = number(reading, "packets").checked_sub(packets).expect("values that do not go back");
        assert!(number(reading, "elapsed_ns") > elapsed, "{reading}");
        packets = number(reading, "packets");
        elapsed = number(reading, "elapsed_ns");
        assert_eq!(number(reading, "bytes"), 100 * packets, "{reading}");
        for rate in ["packets_per_second", "bytes_per_second"] {
            assert_eq!(reading[rate].as_f64().expect("a rate") > 0.0, grown > 0, "{reading}");
        }
    }
    assert!(packets > 0);
    let last = readings.last().expect("a reading");
    assert_eq!(number(last, "offered"), packets);
    assert!(number(last, "received") > 0);
}

#[test]
fn made_up_traffic_is_aimed_at_the_rule() {
    let last = |more: &[&str]| {
        let watch = ["watch", "--device", "soft0", "--interval", "50ms", "--json"];
        let is_offered = |reading: &Value| reading["offered"].as_u64() > Some(0);
        readings_until(start(&[&watch, more].concat()), is_offered).pop().expect("a reading")
    };
    for rule in ["ether dst 02:00:00:00:00:77", "ip dst 10.1.2.3 and udp dst port 4791", "udp src port 7"] {
        let reading = last(&["--rule", rule]);
        assert!(reading["packets"].as_u64() > Some(0), "{rule}: {reading}");
        assert_eq!(reading["packets"], reading["offered"], "{rule}");
    }
    let elsewhere = ["--dst-mac", "02:00:00:00:00:77", "--generate", "rate=20k,dst-mac=02:00:00:00:00:78"];
    assert_eq!(last(&elsewhere)["packets"], 0);
}

#[test]
fn what_is_made_is_released() {
    let output = run(&["--trace", "watch", "--device", "soft0", "--pcap", PCAP]);
    assert!(output.status.success());
    assert_eq!(lives(&text(&output.stderr)), (6, 6));
}

#[test]
fn signals_end_a_watch_cleanly() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut child = start(&["--trace", "watch", "--device", "soft0", "--interval", "20ms", "--json"]);
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        lines.next().expect("a reading").expect("a line");
        children::signal(&child, signal);
        // The last reading follows the signal, and all of them are complete.
        for line in lines {
            let line = line.expect("a line");
            serde_json::from_str::<Value>(&line).expect("JSON");
        }
        let mut trace = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut trace).expect("UTF-8");
        assert!(child.wait().expect("it ends").success(), "{trace}");
        assert_eq!(lives(&trace), (6, 6), "{trace}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    for arguments in [
        &["watch", "--device", "soft0", "--interval", "5ms", "--trace"][..],
        &["watch", "--device", "soft0", "--interval", "5ms", "--trace", "--json"],
    ] {
        let mut child = start(arguments);
        drop(child.stdout.take());
        let mut trace = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut trace).expect("UTF-8");
        assert!(child.wait().expect("it ends").success(), "{trace}");
        assert_eq!(lives(&trace), (6, 6), "{trace}");
        assert!(!trace.contains("uverbs: "), "{trace}");
    }
    let mut child = start(&["info", "soft0"]);
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_watch_keeps_its_time() {
    let start = Instant::now();
    output(&["watch", "--device", "soft0", "--interval", "100ms", "--count", "2"]);
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn errors_are_one_line_and_a_code() {
    let watch = |rest: &[&'static str]| [&["watch", "--device", "soft0", "--count", "1"], rest].concat();
    for (arguments, code, wanted) in [
        (vec!["info", "nope"], 3, "no device nope; there is "),
        (vec!["watch", "--device", "nope"], 3, "soft0 (embedded)"),
        (vec!["bench", "read", "--device", "nope"], 3, "no device nope"),
        (watch(&["--port", "2"]), 3, "no port 2 on soft0; the last one is 1"),
        (watch(&["--pcap", "/nope.pcap"]), 3, "/nope.pcap: No such file"),
        (watch(&["--pcap", "Cargo.toml"]), 1, "Cargo.toml: not a pcap or pcapng capture"),
        (watch(&["--rule", "udp dst prot 53"]), 2, "--rule: column 9: unknown word `prot`; expected `port`"),
        (watch(&["--rule", "sniffer"]), 2, "only a rule that matches headers can count"),
        (watch(&["--rule", "ip ttl 5"]), 5, "flow.create: unsupported"),
        (watch(&["--rule", "udp", "--dst-mac", "02:00:00:00:00:01"]), 2, "cannot be used with"),
        (watch(&["--dst-mac", "02:00"]), 2, "a MAC address is six pairs"),
        (watch(&["--interval", "0s"]), 2, "longer than zero"),
        (watch(&["--generate", "size=59"]), 2, "outside 60..=9216"),
        (watch(&["--generate", "speed=9"]), 2, "`speed` is not one of"),
        (watch(&["--generate", "rate=1", "--pcap", "x"]), 2, "cannot be used with"),
        (vec!["watch"], 2, "--device DEV"),
        (vec!["frobnicate"], 2, "unrecognized subcommand 'frobnicate'"),
    ] {
        let line = complaint(&arguments, code);
        assert!(line.contains(wanted), "{arguments:?}: {line}");
    }
}

#[test]
fn help_names_the_exit_codes() {
    let help = output(&["--help"]);
    for code in ["0  success", "1  failure", "3  no such device", "4  permission denied", "5  the device"] {
        assert!(help.contains(code), "{code}");
    }
    assert_eq!(output(&["--version"]), concat!("uverbs ", env!("CARGO_PKG_VERSION"), "\n"));
}
