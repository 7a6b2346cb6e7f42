//! `uverbs watch --pcap` against the counts that tcpdump and tshark gave for the same capture.

use std::process::Command;

use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

/// The words for a field in the table, and those in the rule language.
const WORDS: &[(&str, &str)] = &[
    ("eth.dst", "ether dst"),
    ("eth.src", "ether src"),
    ("eth.type", "ether proto"),
    ("eth.vlan", "vlan tci"),
    ("eth", "ether"),
    ("ipv4.src", "ip src"),
    ("ipv4.dst", "ip dst"),
    ("ipv4.proto", "ip proto"),
    ("ipv4.tos", "ip tos"),
    ("ipv4", "ip"),
    ("ipv6.src", "ip6 src"),
    ("ipv6.dst", "ip6 dst"),
    ("ipv6.label", "ip6 flow-label"),
    ("ipv6.class", "ip6 tclass"),
    ("ipv6.next", "ip6 next-header"),
    ("ipv6", "ip6"),
    ("tcp.src", "tcp src port"),
    ("tcp.dst", "tcp dst port"),
    ("tcp", "tcp"),
    ("udp.src", "udp src port"),
    ("udp.dst", "udp dst port"),
    ("udp", "udp"),
    ("vxlan.vni", "vxlan vni"),
    ("gre.protocol", "gre proto"),
    ("gre.key", "gre key"),
    ("gre", "gre"),
    ("mpls.label", "mpls word"),
    ("mpls", "mpls"),
];

fn word(field: &str) -> &'static str {
    WORDS.iter().find(|(name, _)| *name == field).unwrap_or_else(|| panic!("no word for {field}")).1
}

/// `eth(dst=A) inner-udp(dst=53)` becomes `ether dst A inner udp dst port 53`.
fn rule(table: &str) -> String {
    let mut parts = Vec::new();
    for spec in table.split(')').map(str::trim).filter(|spec| !spec.is_empty()) {
        let (header, fields) = spec.split_once('(').expect(spec);
        let (header, inner) = header.strip_prefix("inner-").map_or((header, ""), |header| (header, "inner "));
        if fields.is_empty() {
            parts.push(format!("{inner}{}", word(header)));
        }
        for field in fields.split_whitespace() {
            let (field, value) = field.split_once('=').expect(field);
            parts.push(format!("{inner}{} {value}", word(&format!("{header}.{field}"))));
        }
    }
    parts.join(" and ")
}

/// The last reading of a watch over a capture.
fn watch(file: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(["watch", "--device", "soft0", "--json", "--pcap"]).arg(format!("{FOLDER}/{file}"));
    let output = command.args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    serde_json::from_str(lines.lines().last().expect("a reading")).expect("JSON")
}

/// Rows of the table: rule, packets, bytes.
fn table() -> impl Iterator<Item = (String, u64, u64)> {
    let text = include_str!("../golden/mixed.counts.txt");
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut columns = line.split('\t');
        let mut next = || columns.next().expect(line);
        (rule(next()), next().parse().expect(line), next().parse().expect(line))
    })
}

#[test]
fn totals_are_those_of_tcpdump_and_tshark() {
    let mut rows = 0;
    for (rule, packets, bytes) in table() {
        for file in ["mixed.pcap", "mixed.pcapng"] {
            let reading = watch(file, &["--rule", &rule]);
            let found = (reading["packets"].as_u64(), reading["bytes"].as_u64());
            assert_eq!(found, (Some(packets), Some(bytes)), "{file}: {rule}");
        }
        rows += 1;
    }
    assert!(rows > 40, "only {rows} rows");
}

#[test]
fn without_a_rule_everything_counts() {
    let (_, packets, bytes) = table().next().expect("the row without a rule");
    let reading = watch("mixed.pcap", &[]);
    assert_eq!((reading["packets"].as_u64(), reading["bytes"].as_u64()), (Some(packets), Some(bytes)));
    assert_eq!(reading["offered"].as_u64(), Some(packets));
}

#[test]
fn the_last_reading_waits_for_the_end_of_the_file() {
    let (_, packets, _) = table().next().expect("the row without a rule");
    let reading = watch("mixed.pcap", &["--count", "1", "--interval", "1ns"]);
    assert_eq!(reading["packets"].as_u64(), Some(packets));
    let reading = watch("mixed.pcap", &["--count", "3", "--interval", "20ms"]);
    assert_eq!(reading["packets"].as_u64(), Some(packets));
    assert!(reading["elapsed_ns"].as_u64() >= Some(60_000_000));
}

#[test]
fn a_destination_address_is_a_rule() {
    let reading = watch("mixed.pcap", &["--dst-mac", "02:00:00:00:00:0b"]);
    assert_eq!((reading["packets"].as_u64(), reading["bytes"].as_u64()), (Some(166), Some(40428)));
}

/// The capture has eight IPv4 packets and three of IPv6 whose time to live, or hop limit, is 255.
#[test]
fn wide_rules_match_what_the_driver_of_a_card_refuses() {
    for (rule, packets) in [("ip ttl 255", 8), ("ip6 hop-limit 255", 3)] {
        let reading = watch("mixed.pcap", &["--wide-rules", "--rule", rule]);
        assert_eq!(reading["packets"].as_u64(), Some(packets), "{rule}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
        let output = command.args(["watch", "--device", "soft0", "--count", "1", "--rule", rule]).output();
        assert!(!output.expect("the program starts").status.success(), "{rule} without the option");
    }
}
