//! `uverbs export`, as Prometheus and node_exporter use it: on the soft device, with rules and generated traffic.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::children;
use super::skips::skipped;

const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0\r\n";

const RULES: &str = r#"
[[rule]]
name = "udp"
device = "soft0"
rule = "udp dont-trap"

[[rule]]
name = "odd \"name\"\n"
device = "soft0"
rule = 'tcp'
"#;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A directory of a test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uverbs-export-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("it is ours");
        path.to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An exporter with its own port; ended by SIGTERM.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn new(arguments: &[&str]) -> Self {
        let all = [&["export", "--device", "soft0", "--listen", "0"], arguments].concat();
        let mut child = command(&all).spawn().expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address =
            line.strip_prefix("listening on http://").and_then(|line| line.strip_suffix("/metrics\n"));
        let address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        stream
    }

    /// The answer to a request: its head and its body.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        (head.to_owned(), body.to_owned())
    }

    fn scrape(&self, fields: &str) -> (String, String) {
        self.ask(&format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.address))
    }

    fn text(&self) -> String {
        self.scrape("").1
    }

    fn signal(&self, signal: Signal) {
        children::signal(&self.child, signal);
    }

    /// Waits until a scrape contains such a line.
    fn until(&self, what: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if what(&text) {
                return text;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "in vain: {text}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it, which must succeed, and returns its standard error.
    fn end(mut self) -> String {
        self.signal(Signal::SIGTERM);
        let mut said = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("UTF-8");
        assert!(self.child.wait().expect("it ends").success(), "{said}");
        said
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

/// The value of a series, by its name and labels as text.
fn value(text: &str, series: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(rest.parse().expect("a number"))
}

#[test]
fn a_scrape_has_counters_objects_and_rules() {
    let directory = Directory::new("scrape");
    let rules = directory.file("rules.toml", RULES);
    let exporter = Exporter::new(&["--rules", &rules, "--generate", "rate=1000", "--max-age", "1ms"]);
    let (head, text) = exporter.scrape("");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", text.len())), "{head}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    for (series, wanted) in [
        ("uverbs_up{device=\"soft0\"}", 1.0),
        ("uverbs_discovery_successful", 1.0),
        ("uverbs_rules_last_reload_successful", 1.0),
        ("uverbs_resources{device=\"soft0\",kind=\"qp\"}", 1.0),
        ("uverbs_flow_up{device=\"soft0\",port=\"1\",flow=\"udp\"}", 1.0),
        ("uverbs_flow_packets_total{device=\"soft0\",port=\"1\",flow=\"odd \\\"name\\\"\\n\"}", 0.0),
        ("uverbs_flow_info{device=\"soft0\",port=\"1\",flow=\"udp\",rule=\"udp dont-trap\"}", 1.0),
    ] {
        assert_eq!(value(&text, series), Some(wanted), "{series}: {text}");
    }
    let packets = "uverbs_flow_packets_total{device=\"soft0\",port=\"1\",flow=\"udp\"}";
    let text = exporter.until(|text| value(text, packets) > Some(10.0));
    let bytes = value(&text, "uverbs_flow_bytes_total{device=\"soft0\",port=\"1\",flow=\"udp\"}");
    assert_eq!(bytes, value(&text, packets).map(|packets| packets * 60.0));
    assert!(value(&text, "uverbs_hw_rcvd_pkts_total{device=\"soft0\",port=\"1\"}") > Some(10.0));

    let (head, text) = exporter.scrape(OPEN_METRICS);
    assert!(
        head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{head}"
    );
    assert!(text.ends_with("\n# EOF\n") && text.contains("\n# UNIT uverbs_flow_bytes bytes\n"), "{text}");
    assert!(text.contains("# TYPE uverbs_hw_rcvd_pkts counter\n"), "{text}");
    assert_eq!(exporter.end(), "");
}

#[test]
fn scrapes_at_once_share_a_reading() {
    let exporter = Exporter::new(&["--max-age", "1m"]);
    let reads = || value(&exporter.text(), "uverbs_exporter_reads_total");
    thread::scope(|scope| {
        let scrapes: Vec<_> = (0..16).map(|_| scope.spawn(reads)).collect();
        for scrape in scrapes {
            assert_eq!(scrape.join().expect("no panic"), Some(1.0));
        }
    });
}

#[test]
fn three_paths_and_two_methods_are_there() {
    let exporter = Exporter::new(&[]);
    let status = |request: &str| exporter.ask(request).0.lines().next().expect("a line").to_owned();
    let root = exporter.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(root.0.contains("text/html") && root.1.contains("href=\"/metrics\""), "{root:?}");
    let healthy = exporter.ask("GET /-/healthy HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(healthy.0.starts_with("HTTP/1.1 200 ") && healthy.1 == "healthy\n", "{healthy:?}");
    let (head, body) = exporter.ask("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && !head.contains("Content-Length: 0\r") && body.is_empty(),
        "{head}"
    );
    for (request, wanted) in [
        ("GET /favicon.ico HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        ("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        ("nonsense\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n", "HTTP/1.1 413 Content Too Large"),
    ] {
        assert_eq!(status(request), wanted);
    }
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(100_000));
    assert_eq!(status(&long), "HTTP/1.1 431 Request Header Fields Too Large");
    assert_eq!(exporter.end(), "");
}

#[test]
fn slow_scrapers_stop_nobody() {
    let exporter = Exporter::new(&["--max-connections", "32"]);
    let slow: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = exporter.connect();
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n");
            stream
        })
        .collect();
    for _ in 0..10 {
        assert!(exporter.text().contains("uverbs_up{device=\"soft0\"} 1\n"));
    }
    drop(slow);
    assert_eq!(exporter.end(), "");
}

#[test]
fn rules_are_read_again_and_a_mistake_changes_nothing() {
    let directory = Directory::new("reload");
    let path = directory.file("rules.toml", RULES);
    let mut exporter = Exporter::new(&["--rules", &path, "--generate", "rate=1000", "--max-age", "1ms"]);
    let mut said = BufReader::new(exporter.child.stderr.take().expect("a pipe")).lines();
    let udp = "uverbs_flow_packets_total{device=\"soft0\",port=\"1\",flow=\"udp\"}";
    let before = value(&exporter.until(|text| value(text, udp) > Some(10.0)), udp);
    let mut reload = |text: &str| {
        fs::write(&path, text).expect("it is ours");
        exporter.signal(Signal::SIGHUP);
        said.next().expect("it says something").expect("UTF-8")
    };

    let line = reload(&RULES.replace("'tcp'", "'tcp and'"));
    let wanted = format!("uverbs: {path}: line 10, column 13: ");
    assert!(line.starts_with(&wanted) && line.ends_with("; the rules of before stay in force"), "{line}");
    let text = exporter.text();
    assert_eq!(value(&text, "uverbs_rules_last_reload_successful"), Some(0.0));
    let goes_on = |text: &str| value(text, udp) > before;
    exporter.until(goes_on);

    // The device refuses what the language allows: the soft device has mlx5's rules.
    let line = reload(&RULES.replace("'tcp'", "'ip ttl 1'"));
    assert!(
        line.starts_with(&format!(
            "uverbs: {path}: line 10, column 9: rule odd \\\"name\\\"\\n: flow.create"
        )),
        "{line}"
    );
    exporter.until(goes_on);

    let more = "[[rule]]\nname = \"all\"\ndevice = \"soft0\"\nrule = \"udp dont-trap priority 3\"\n";
    let line = reload(
        &RULES
            .replace("\"odd \\\"name\\\"\\n\"", "\"other\"")
            .replace("[[rule]]\nname = \"other\"", &format!("{more}[[rule]]\nname = \"other\"")),
    );
    assert_eq!(line, format!("uverbs: {path}: 3 rules are in force"));
    let all = "uverbs_flow_packets_total{device=\"soft0\",port=\"1\",flow=\"all\"}";
    let text = exporter.until(|text| value(text, all) > Some(10.0));
    assert!(value(&text, udp) > value(&text, all), "what stays does not begin again: {text}");
    assert!(!text.contains("odd") && text.contains("flow=\"other\""), "{text}");
    assert_eq!(value(&text, "uverbs_rules_last_reload_successful"), Some(1.0));

    let line = reload("");
    assert_eq!(line, format!("uverbs: {path}: 0 rules are in force"));
    assert!(!exporter.text().contains("uverbs_flow_up{"));
    exporter.signal(Signal::SIGTERM);
    assert!(exporter.child.wait().expect("it ends").success());
}

#[test]
fn rules_that_were_read_again_are_not_hidden_by_an_older_reading() {
    let directory = Directory::new("forget");
    let path = directory.file("rules.toml", RULES);
    let mut exporter = Exporter::new(&["--rules", &path, "--max-age", "1h"]);
    let mut said = BufReader::new(exporter.child.stderr.take().expect("a pipe")).lines();
    for (rules, udp) in [(RULES, true), ("", false), (RULES, true)] {
        fs::write(&path, rules).expect("it is ours");
        exporter.signal(Signal::SIGHUP);
        said.next().expect("it says something").expect("UTF-8");
        for _ in 0..2 {
            assert_eq!(exporter.text().contains("flow=\"udp\""), udp);
        }
    }
}

/// The resident memory of the process in KiB.
fn resident(exporter: &Exporter) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", exporter.child.id())).expect("it runs");
    let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    size.expect("a size").parse().expect("a number")
}

#[test]
fn ten_thousand_rules_are_scraped_again_and_again_in_the_same_memory() {
    let mut rules = String::new();
    for number in 0..10_000 {
        let (high, low) = (number >> 8, number & 0xff);
        let rule = format!("ether dst 02:fd:00:00:{high:02x}:{low:02x}");
        rules += &format!("[[rule]]\nname = \"{number}\"\ndevice = \"soft0\"\nrule = \"{rule}\"\n");
    }
    let directory = Directory::new("many");
    let exporter = Exporter::new(&["--rules", &directory.file("rules.toml", &rules), "--max-age", "1ns"]);
    let scrape = || {
        let text = exporter.text();
        let up = |line: &&str| line.starts_with("uverbs_flow_up{") && line.ends_with(" 1");
        assert_eq!(text.lines().filter(up).count(), 10_000);
    };
    // The allocator's own memory is in use after a few.
    (0..8).for_each(|_| scrape());
    let before = resident(&exporter);
    (0..8).for_each(|_| scrape());
    let after = resident(&exporter);
    assert!(after <= before + before / 10, "{before} KiB, and {after} KiB after eight more scrapes");
    assert_eq!(exporter.end(), "");
}

#[test]
fn a_file_is_written_once_for_node_exporter() {
    let directory = Directory::new("once");
    let path = directory.0.join("uverbs.prom");
    let once = |path: &str| {
        command(&["export", "--device", "soft0", "--once", path]).output().expect("the program starts")
    };
    for _ in 0..2 {
        let output = once(path.to_str().expect("UTF-8"));
        assert!(
            output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(),
            "{output:?}"
        );
        let text = fs::read_to_string(&path).expect("it is written");
        assert!(text.contains("uverbs_up{device=\"soft0\"} 1\n") && !text.contains("# EOF"), "{text}");
        let names: Vec<_> = fs::read_dir(&directory.0).expect("a directory").collect();
        assert_eq!(names.len(), 1, "nothing else is left: {names:?}");
    }
    let output = once("-");
    assert!(String::from_utf8(output.stdout).expect("UTF-8").contains("uverbs_up{device=\"soft0\"} 1\n"));
    let output = once("/nope/uverbs.prom");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "uverbs: /nope/uverbs.prom: No such file or directory (os error 2)\n"
    );
}

#[test]
fn refusals_are_one_line_and_a_code() {
    let directory = Directory::new("refusals");
    let with = |rule: &str| RULES.replace("'tcp'", rule);
    let wrong = directory.file("wrong.toml", &with("'tpc'"));
    let no_port = directory.file("port.toml", &with("'tcp'\nport = 2"));
    let refused = directory.file("refused.toml", &with("'ip ttl 1'"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("an address").to_string();
    for (arguments, code, wanted) in [
        (&["--device", "nope"][..], 3, "no device nope; there is "),
        (&["--device", "soft0", "--rules", "/nope.toml"], 3, "/nope.toml: No such file"),
        (&["--device", "soft0", "--rules", &wrong], 2, "wrong.toml: line 10, column 9: unknown word `tpc`"),
        (&["--device", "soft0", "--rules", &no_port], 3, "no port 2 on soft0"),
        (&["--device", "soft0", "--rules", &refused], 5, "flow.create"),
        (&["--listen", ":9979"], 2, "such as 127.0.0.1:9979"),
        (&["--device", "soft0", "--listen", &taken], 1, &format!("{taken}: Address already in use")),
        (&["--listen", "1", "--once", "x"], 2, "--once <FILE>"),
        (&["--generate", "rate=1"], 2, "add --device soft0"),
        (&["--max-connections", "0"], 2, "0"),
        (&["--max-age", "0s"], 2, "longer than zero"),
    ] {
        let output = command(&[&["export"], arguments].concat()).output().expect("the program starts");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{arguments:?}: {said}");
        assert!(said.starts_with("uverbs: ") && said.contains(wanted), "{arguments:?}: {said}");
    }
    drop(listener);
}

#[test]
fn an_exporter_without_devices_says_so_and_goes_on() {
    let directory = Directory::new("none");
    let output = command(&["export", "--once", "-"])
        .env("SYSFS_PATH", &directory.0)
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && text.contains("uverbs_build_info"), "{text}");
    if text.contains("uverbs_up{") {
        return skipped("an exporter without devices: RDMA netlink answers on this machine");
    }
    assert!(text.contains("uverbs_discovery_successful 1\n"), "{text}");
}

#[test]
fn devices_come_and_go_between_scrapes() {
    let directory = Directory::new("come");
    let file = |path: &str, text: &str| {
        let path = directory.0.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("it is ours");
        fs::write(path, text).expect("it is ours");
    };
    file("class/infiniband_verbs/abi_version", "6\n");
    let mut child = command(&["export", "--listen", "0", "--max-age", "1ms"]);
    let mut child = child.env("SYSFS_PATH", &directory.0).spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    let address =
        line.trim().trim_start_matches("listening on http://").trim_end_matches("/metrics").to_owned();
    let exporter = Exporter { child, address };
    if exporter.text().contains("uverbs_up{") {
        return skipped("devices that come and go: RDMA netlink answers on this machine");
    }
    file("class/infiniband_verbs/uverbs0/ibdev", "some \"0\"\n");
    file("class/infiniband_verbs/uverbs0/abi_version", "1\n");
    let device = "class/infiniband/some \"0\"";
    for (name, text) in [
        ("node_type", "1: CA\n"),
        ("hca_type", "MT4119\n"),
        ("fw_ver", "16.35.2000\n"),
        ("board_id", "MT_0000000011\n"),
        ("ports/1/state", "4: ACTIVE\n"),
        ("ports/1/phys_state", "5: LinkUp\n"),
        ("ports/1/rate", "100 Gb/sec (4X EDR)\n"),
        ("ports/1/counters/port_rcv_data", "1000\n"),
        ("ports/1/counters/link_downed", "255\n"),
        ("ports/1/hw_counters/a.b", "3\n"),
        ("ports/1/hw_counters/ip4InOctets", "4\n"),
        ("ports/1/hw_counters/ip4InOctets_bytes", "5\n"),
        ("ports/1/hw_counters/ip6InOctets", "6\n"),
    ] {
        file(&format!("{device}/{name}"), text);
    }
    let labels = r#"device="some \"0\"",port="1""#;
    let text = exporter.until(|text| text.contains("uverbs_up{"));
    for (series, wanted) in [
        (format!("node_infiniband_port_data_received_bytes_total{{{labels}}}"), 4000.0),
        (format!("node_infiniband_link_downed_total{{{labels}}}"), 255.0),
        (format!("node_infiniband_state_id{{{labels}}}"), 4.0),
        (format!("node_infiniband_physical_state_id{{{labels}}}"), 5.0),
        (format!("node_infiniband_rate_bytes_per_second{{{labels}}}"), 1.25e10),
        (format!("uverbs_hw_a_b_total{{{labels},counter=\"a.b\"}}"), 3.0),
        (format!("uverbs_hw_ip4InOctets_bytes_total{{{labels},counter=\"ip4InOctets\"}}"), 4.0),
        (format!("uverbs_hw_ip4InOctets_bytes_total{{{labels}}}"), 5.0),
        (format!("uverbs_hw_ip6InOctets_bytes_total{{{labels}}}"), 6.0),
        (format!("uverbs_saturated{{{labels},counter=\"link_downed\",source=\"counters\"}}"), 1.0),
        (r#"node_infiniband_info{device="some \"0\"",board_id="MT_0000000011",firmware_version="16.35.2000",hca_type="MT4119"}"#.to_owned(), 1.0),
        (r#"uverbs_kernel_name_info{metric="node_infiniband_port_data_received_bytes_total",counter="port_rcv_data",source="counters"}"#.to_owned(), 1.0),
    ] {
        assert_eq!(value(&text, &series), Some(wanted), "{series}: {text}");
    }
    fs::remove_dir_all(directory.0.join("class/infiniband_verbs/uverbs0")).expect("it is ours");
    exporter.until(|text| !text.contains("uverbs_up{"));
    exporter.end();
}

/// Python with a module, if both are available.
fn python(module: &str) -> Option<Command> {
    let has =
        Command::new("python3").args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    has.is_ok_and(|status| status.success()).then(|| Command::new("python3"))
}

#[test]
fn both_forms_are_what_the_reference_parsers_read() {
    let Some(mut python) = python("prometheus_client") else {
        return skipped("uverbs export beside prometheus-client's parsers: python3 does not have them");
    };
    let directory = Directory::new("parsers");
    let rules = directory.file("rules.toml", RULES);
    let exporter = Exporter::new(&["--rules", &rules, "--generate", "rate=1000"]);
    let classic = directory.file("classic", &exporter.text());
    let open_metrics = directory.file("openmetrics", &exporter.scrape(OPEN_METRICS).1);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/parse-metrics.py");
    let output = python.arg(script).args([&classic, &open_metrics]).output().expect("it starts");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("the same series"), "{said}");
}
