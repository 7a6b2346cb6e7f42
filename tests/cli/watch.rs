//! `uverbs watch` with several rules, on the soft device: from options and from a file, as lines, as a page and as JSON.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::children::{interrupt, readings_until};
use super::skips::skipped;

const PCAP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/mixed.pcap");

const RULES: &str = r#"
[[rule]]
name = "dns"
device = "soft0"
rule = "udp dst port 53"

[[rule]]
name = "odd \"name\"\n"
device = "soft0"
rule = 'tcp'

[[rule]]
name = "elsewhere"
device = "nope"
rule = "ip"
"#;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.arg("watch").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program starts")
}

/// Standard output of a run that must succeed, with nothing on standard error.
fn said(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(arguments: &[&str]) -> Vec<Value> {
    said(arguments).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A file of a test, removed at its end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uverbs-watch-{name}-{}.toml", std::process::id()));
        fs::write(&path, text).expect("it is ours");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const SOFT: [&str; 2] = ["--device", "soft0"];
const TWO: [&str; 4] = ["--rule", "dns=udp dst port 53", "--rule", "tcp"];

#[test]
fn each_rule_has_a_line_for_each_reading() {
    let lines = said(&[&SOFT[..], &TWO, &["--count", "3", "--interval", "20ms"]].concat());
    let names: Vec<_> = lines
        .lines()
        .map(|line| {
            assert!(line.contains(" packets  ") && line.contains(" bytes  "), "{line}");
            line.split("  ").map(str::trim).filter(|word| !word.is_empty()).nth(1).expect("a name")
        })
        .collect();
    assert_eq!(names, ["dns", "tcp", "dns", "tcp", "dns", "tcp"], "{lines}");
    assert!(!lines.contains('\x1b'), "no page in a pipe");
    // A single rule with a name has the same form.
    let line = said(&[&SOFT[..], &["--rule", "all = any", "--count", "1", "--interval", "1ms"]].concat());
    assert!(line.contains(" s  all  ") && line.lines().count() == 1, "{line}");
}

#[test]
fn traffic_is_aimed_at_the_first_rule_and_counted_by_it() {
    let more = ["--json", "--interval", "50ms", "--generate", "rate=20k,size=100"];
    let child = command(&[&SOFT[..], &TWO, &more].concat()).spawn().expect("the program starts");
    let readings = readings_until(child, |reading| reading["rules"][0]["packets"].as_u64() > Some(0));
    let mut before = 0;
    for reading in &readings {
        let [dns, tcp] = reading["rules"].as_array().expect("rules").as_slice() else { panic!("{reading}") };
        assert_eq!((&dns["name"], &dns["device"], &dns["port"]), (&"dns".into(), &"soft0".into(), &1.into()));
        assert_eq!((&tcp["name"], tcp["packets"].as_u64()), (&"tcp".into(), Some(0)), "{reading}");
        let packets = dns["packets"].as_u64().expect("a number");
        assert_eq!(dns["bytes"].as_u64(), Some(100 * packets), "{reading}");
        // On a busy machine the traffic may pause for an interval.
        let rate = dns["packets_per_second"].as_f64().expect("a rate");
        assert_eq!(rate > 0.0, packets > before, "{reading}");
        before = packets;
    }
    let last = readings.last().expect("a reading");
    assert_eq!(last["offered"].as_u64(), Some(before), "the last reading comes after the traffic");
    assert!(before > 0, "{last}");
}

#[test]
fn rules_of_a_file_are_those_of_one_device_if_it_is_named() {
    let file = File::new("one", RULES);
    let rest = ["--count", "1", "--interval", "1ms", "--json"];
    let readings = json(&[&["--rules", file.path()], &SOFT[..], &rest].concat());
    let names: Vec<_> =
        readings[0]["rules"].as_array().expect("rules").iter().map(|rule| &rule["name"]).collect();
    assert_eq!(names, ["dns", "odd \"name\"\n"]);
    let line = said(&[&["--rules", file.path()], &SOFT[..], &rest[..4]].concat());
    assert!(line.lines().count() == 2 && line.contains("  odd \\\"name\\\"\\n  "), "{line}");
    // Without the name of a device, the rules of all devices are used.
    let output = run(&["--rules", file.path()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&output.stderr).starts_with("uverbs: no device nope; there is "),
        "{output:?}"
    );
}

#[test]
fn many_rules_count_what_each_counts_alone() {
    let last = |arguments: &[&str]| json(arguments).pop().expect("a reading");
    // A packet belongs to one rule.
    let rules = ["udp", "tcp", "ip6 next-header icmp6", "ether proto arp", "ip proto icmp"];
    let together: Vec<_> = rules.iter().flat_map(|rule| ["--rule", rule]).collect();
    let readings = last(&[&SOFT[..], &["--json", "--pcap", PCAP], &together].concat());
    for (rule, found) in rules.iter().zip(readings["rules"].as_array().expect("rules")) {
        let alone = last(&[&SOFT[..], &["--json", "--pcap", PCAP, "--rule", rule]].concat());
        assert_eq!(found["name"], *rule);
        assert_eq!((&found["packets"], &found["bytes"]), (&alone["packets"], &alone["bytes"]), "{rule}");
    }
}

#[test]
fn a_terminal_has_a_page_that_takes_the_place_of_the_one_before() {
    let watch = "watch --device soft0 --rule 'dns=udp dst port 53' --rule tcp --count 3 --interval 20ms";
    let line = format!("{} {watch}", env!("CARGO_BIN_EXE_uverbs"));
    let typed = Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output();
    let Ok(output) = typed else { return skipped("a page on a terminal: there is no script(1)") };
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("\x1b[H\x1b[J").count(), 2, "{text:?}");
    let (head, rows) = ("PACKETS/S", ["dns ", "tcp "]);
    assert_eq!(text.matches(head).count(), 3, "{text:?}");
    for row in rows {
        assert_eq!(text.lines().filter(|line| line.starts_with(row)).count(), 3, "{text:?}");
    }
}

#[test]
fn what_is_made_is_released_on_a_signal_and_when_nobody_reads() {
    let traced = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
        command.args(["--trace", "watch"]).args(SOFT).args(TWO).args(["--interval", "20ms"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    };
    for is_signalled in [true, false] {
        let mut child = traced();
        let stdout = child.stdout.take().expect("a pipe");
        if is_signalled {
            let mut lines = BufReader::new(stdout).lines();
            lines.next().expect("a reading").expect("a line");
            interrupt(&child);
            assert_eq!(lines.count() % 2, 1, "whole readings");
        } else {
            drop(stdout);
        }
        let mut trace = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut trace).expect("UTF-8");
        assert!(child.wait().expect("it ends").success(), "{trace}");
        let count =
            |what: &str| trace.lines().filter(|line| line.contains(what) && line.ends_with("-> ok")).count();
        for kind in ["flow", "counters", "qp", "cq"] {
            let made = count(&format!("{kind}.create"));
            assert!(made > 0 && made == count(&format!("{kind}.destroy")), "{kind}: {trace}");
        }
    }
}

#[test]
fn mistakes_are_one_line_and_a_code() {
    let file = File::new("mistake", &RULES.replace("'tcp'", "'tpc'"));
    let empty = File::new("empty", "");
    let path = file.path();
    let two = |rule: &'static str| [&SOFT[..], &["--rule", "a=udp", "--rule", rule]].concat();
    for (arguments, code, wanted) in [
        (two("b=udp dst prot 53"), 2, "--rule b: column 9: unknown word `prot`; expected `port`"),
        (two("udp and"), 2, "--rule udp and: column "),
        (two("b=sniffer"), 2, "--rule b: only a rule that matches headers can count"),
        (two("a=tcp"), 2, "there is a rule a already"),
        (two("=tcp"), 2, "has an empty name"),
        (two("b=ip ttl 5"), 5, "rule b: flow.create: unsupported"),
        (vec!["--device", "nope", "--rule", "a=udp"], 3, "no device nope"),
        (vec!["--device", "soft0", "--port", "2", "--rule", "a=udp"], 3, "no port 2 on soft0"),
        (vec!["--rule", "a=udp"], 2, "--device DEV"),
        (vec!["--rules", path], 2, "line 10, column 9: unknown word `tpc`"),
        (vec!["--rules", empty.path()], 2, "it has no rules"),
        (vec!["--rules", "/nope.toml"], 3, "/nope.toml: No such file"),
        (vec!["--rules", path, "--rule", "a=udp"], 2, "cannot be used with"),
        (vec!["--rules", path, "--port", "1"], 2, "cannot be used with"),
        (vec!["--rules", path, "--dst-mac", "02:00:00:00:00:01"], 2, "cannot be used with"),
    ] {
        let output = run(&arguments);
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(
            (output.status.code(), stderr.lines().count()),
            (Some(code), 1),
            "{arguments:?}: {stderr}"
        );
        assert!(stderr.starts_with("uverbs: ") && stderr.contains(wanted), "{arguments:?}: {stderr}");
    }
    let none = File::new("none", &RULES.replace("soft0", "other"));
    let output = run(&["--rules", none.path(), "--device", "soft0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no rule is about soft0"), "{output:?}");
}
