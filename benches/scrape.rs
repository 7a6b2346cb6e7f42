//! Instructions of `uverbs export` for one scrape, with few flow counters and with many, counted by callgrind: `cargo bench --features
//! cli --bench scrape`. The count does not depend on the load of the machine.
//!
//! The program runs with rules of the soft device under `valgrind --tool=callgrind`, and is scraped a few times in one run and more often
//! in another. The difference, divided by the number of scrapes, is the cost of one: reading the counters, the soft device's own work for
//! that, writing the text and sending it. The bench fails if a counter costs more if there are many.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// Number of scrapes of the two runs.
const FEW: u64 = 2;
const MANY: u64 = 7;

/// Rules, each with two counters: packets and bytes.
const RULES: [u64; 3] = [100, 1_000, 10_000];

/// The factor by which a counter may cost more among ten thousand rules than among a thousand.
const TOLERANCE: f64 = 1.1;

fn rules(count: u64) -> String {
    let mut text = String::new();
    for number in 0..count {
        let (high, low) = (number >> 8, number & 0xff);
        let rule = format!("ether dst 02:fd:00:00:{high:02x}:{low:02x}");
        writeln!(text, "[[rule]]\nname = \"rule {number}\"\ndevice = \"soft0\"\nrule = \"{rule}\"\n")
            .expect("a string takes it");
    }
    text
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Instructions of the whole program for this number of scrapes.
fn count(file: &Path, rules: u64, scrapes: u64) -> u64 {
    let out = file.with_extension("callgrind");
    let mut child = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(env!("CARGO_BIN_EXE_uverbs"))
        .args(["export", "--device", "soft0", "--listen", "0", "--max-age", "1ns", "--rules"])
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("valgrind runs");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    let address =
        line.trim().strip_prefix("listening on http://").and_then(|line| line.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{line:?}"));
    for _ in 0..scrapes {
        let up = scrape(address).matches("\nuverbs_flow_packets_total{").count() as u64;
        assert_eq!(up, rules, "each rule is in a scrape");
    }
    let ended = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
    assert!(ended.success() && child.wait().expect("it ends").success());
    let profile = std::fs::read_to_string(&out).expect("the profile was written");
    std::fs::remove_file(out).expect("it is ours");
    // For one part per thread, or for all.
    let totals =
        profile.lines().filter_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    totals.filter_map(|total| total.trim().parse().ok()).max().expect("a total")
}

fn main() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return println!("skipped: valgrind is not installed");
    }
    let file = std::env::temp_dir().join(format!("uverbs-scrape-{}.toml", std::process::id()));
    let mut found = Vec::new();
    for number in RULES {
        std::fs::write(&file, rules(number)).expect("it is ours");
        let [few, many] = [FEW, MANY].map(|scrapes| count(&file, number, scrapes));
        let scrape = (many - few) as f64 / (MANY - FEW) as f64;
        let counter = scrape / (2 * number) as f64;
        println!("{number} rules: {scrape:.0} instructions for a scrape, {counter:.0} for each counter");
        found.push(counter);
    }
    std::fs::remove_file(&file).expect("it is ours");
    if let [_, thousand, ten_thousand] = found[..] {
        assert!(ten_thousand <= thousand * TOLERANCE, "a counter costs more among ten thousand rules");
    }
}
