//! The rule language: texts and the bytes for them, errors and their columns, and the conversion to text.

use std::net::{Ipv4Addr, Ipv6Addr};

use uverbs::{
    AnyRule, Esp, Eth, FlowLabel, FlowRule, FlowTag, Gre, Ipv4, Ipv6, Mpls, MplsLabel, Normal, Tcp, Udp,
    VlanId, Vni, Vxlan,
};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn normal() -> FlowRule<Normal> {
    FlowRule::normal(1)
}

fn parse(text: &str) -> AnyRule {
    AnyRule::parse(text, 1).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Everything that is sent to the kernel.
fn bytes(rule: &AnyRule) -> (u32, u16, u32, u8, u8, Vec<u8>) {
    let attr = rule.attr();
    (attr.type_, attr.priority, attr.flags, attr.port, attr.num_of_specs, rule.specs().to_vec())
}

#[test]
fn a_text_says_what_the_builder_says() {
    let ten = Ipv4Addr::new(10, 0, 0, 0);
    let v6: Ipv6Addr = "fe80::".parse().unwrap();
    let table = [
        ("", normal()),
        ("any", normal()),
        ("  any drop ", normal().drop()),
        ("ether dst 02:00:00:00:00:01", normal().eth(Eth::any().dst(MAC))),
        ("ether dst 2:0:0:0:0:1", normal().eth(Eth::any().dst(MAC))),
        (
            "ether src 02:00:00:00:00:01/ff:00:00:00:00:ff",
            normal().eth(Eth::any().src_masked(MAC, [0xff, 0, 0, 0, 0, 0xff])),
        ),
        (
            "ether src 02:00:00:00:00:00/24",
            normal().eth(Eth::any().src_masked([2, 0, 0, 0, 0, 0], [0xff, 0xff, 0xff, 0, 0, 0])),
        ),
        ("ether proto 0x0800", normal().eth(Eth::any().ether_type(0x0800))),
        ("ether proto ip", normal().eth(Eth::any().ether_type(0x0800))),
        ("ether proto ip6", normal().eth(Eth::any().ether_type(0x86dd))),
        ("ether proto arp", normal().eth(Eth::any().ether_type(0x0806))),
        ("vlan 5", normal().eth(Eth::any().vlan(VlanId::new(5).unwrap()))),
        ("vlan tci 0x2005/0xe0ff", normal().eth(Eth::any().vlan_tci_masked(0x2005, 0xe0ff))),
        ("ip", normal().ipv4(Ipv4::any())),
        ("ip src 10.0.0.0/8", normal().ipv4(Ipv4::any().src_masked(ten, Ipv4Addr::new(255, 0, 0, 0)))),
        ("ip src net 10.0.0.0/8", normal().ipv4(Ipv4::any().src_masked(ten, Ipv4Addr::new(255, 0, 0, 0)))),
        (
            "ip dst 10.0.0.1/255.0.255.0",
            normal().ipv4(Ipv4::any().dst_masked(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(255, 0, 255, 0))),
        ),
        ("ip proto 17", normal().ipv4(Ipv4::any().protocol(17))),
        ("ip proto icmp", normal().ipv4(Ipv4::any().protocol(1))),
        ("ip tos 0x10/0xfc", normal().ipv4(Ipv4::any().tos_masked(0x10, 0xfc))),
        ("ip ttl 64", normal().ipv4(Ipv4::any().ttl(64))),
        ("ip flags 2", normal().ipv4(Ipv4::any().flags(2))),
        ("ip src 10.0.0.0 and ip dst host 10.0.0.0", normal().ipv4(Ipv4::any().src(ten).dst(ten))),
        (
            "ip6 dst fe80::/64",
            normal().ipv6(Ipv6::any().dst_masked(v6, "ffff:ffff:ffff:ffff::".parse().unwrap())),
        ),
        ("ip6 src fe80::/ffff::", normal().ipv6(Ipv6::any().src_masked(v6, "ffff::".parse().unwrap()))),
        ("ip6 flow-label 0x12345", normal().ipv6(Ipv6::any().flow_label(FlowLabel::new(0x12345).unwrap()))),
        (
            "ip6 tclass 1 ip6 next-header udp ip6 hop-limit 255",
            normal().ipv6(Ipv6::any().traffic_class(1).next_header(17).hop_limit(255)),
        ),
        ("tcp dst port 80", normal().tcp(Tcp::any().dst_port(80))),
        ("udp src port 4000/0xff00", normal().udp(Udp::any().src_port_masked(4000, 0xff00))),
        ("udp", normal().udp(Udp::any())),
        ("udp drop", normal().udp(Udp::any()).drop()),
        (
            "udp dst port 4789 vxlan vni 100 and inner ip dst 10.0.0.0 inner tcp",
            normal()
                .udp(Udp::any().dst_port(4789))
                .vxlan(Vxlan::any().vni(Vni::new(100).unwrap()))
                .inner(Ipv4::any().dst(ten))
                .inner(Tcp::any()),
        ),
        ("inner vlan 5", normal().inner(Eth::any().vlan(VlanId::new(5).unwrap()))),
        ("gre key 5 gre proto 0x6558", normal().gre(Gre::any().key(5).protocol(0x6558))),
        ("mpls label 16", normal().mpls(Mpls::any().label(MplsLabel::new(16).unwrap()))),
        ("mpls word 0x10100/0xfff00", normal().mpls(Mpls::any().word_masked(0x10100, 0xfff00))),
        ("esp spi 0x100", normal().esp(Esp::any().spi(0x100))),
        ("tag 5 ip", normal().tag(FlowTag::new(5).unwrap()).ipv4(Ipv4::any())),
        ("udp priority 3 dont-trap", normal().udp(Udp::any()).priority(3).dont_trap()),
        ("egress allow-loop-back", normal().egress().allow_loop_back()),
    ];
    for (text, wanted) in &table {
        let rule = parse(text);
        assert_eq!(bytes(&rule), bytes(&AnyRule::Normal(wanted.clone())), "{text}");
        assert_eq!(bytes(&parse(&rule.to_string())), bytes(&rule), "{text} printed as {rule}");
    }
}

#[test]
fn types_without_headers() {
    let all = AnyRule::CatchAll(FlowRule::all_default(1));
    let multicast = AnyRule::CatchAll(FlowRule::mc_default(1).allow_loop_back());
    let sniffer = AnyRule::Sniffer(FlowRule::sniffer(1));
    for (text, wanted) in
        [("all-default", all), ("mc-default allow-loop-back", multicast), ("sniffer", sniffer)]
    {
        assert_eq!(bytes(&parse(text)), bytes(&wanted), "{text}");
        assert_eq!(wanted.to_string(), text);
    }
}

#[test]
fn the_port_is_the_callers() {
    assert_eq!(AnyRule::parse("udp", 2).unwrap().attr().port, 2);
}

#[test]
fn rules_are_printed_in_their_canonical_form() {
    for (text, wanted) in [
        ("", "any"),
        ("drop", "any drop"),
        ("udp dst port 0x10 and udp src port 1", "udp src port 1 and udp dst port 16"),
        ("ip  proto tcp\ttcp", "ip proto 6 and tcp"),
        ("ether proto ip", "ether proto 0x0800"),
        ("vlan tci 5/0xfff", "vlan 5"),
        ("mpls word 0x10000/0xfffff000", "mpls label 16"),
        ("mpls word 0x10100", "mpls word 0x00010100"),
        ("ip src 10.0.0.0/255.0.0.0", "ip src 10.0.0.0/8"),
        ("ip src 10.0.0.1/255.0.0.0", "ip src 10.0.0.0/8"),
        ("ip src 0.0.0.0/0", "ip"),
        ("ip flags 2/0xff", "ip flags 0x02/0xff"),
        ("priority 2 udp tag 7 drop egress", "udp tag 7 drop priority 2 egress"),
        ("udp drop inner udp", "udp drop inner udp"),
    ] {
        assert_eq!(parse(text).to_string(), wanted, "{text}");
    }
}

#[test]
fn faults_are_found_where_they_are() {
    for (text, column, message) in [
        ("foo", 1, "unknown word `foo`"),
        ("ether dst", 10, "something is missing"),
        ("ether dst  zz", 12, "`zz` is not a MAC address such as 02:00:00:00:00:01"),
        ("ether dst 02:00:00:00:00", 11, "`02:00:00:00:00` is not a MAC address such as 02:00:00:00:00:01"),
        ("ether dst 02:00:00:00:00:01:02", 11, "`02:00:00:00:00:01:02` is not"),
        ("ether dst 02:00:00:00:00:+1", 11, "`02:00:00:00:00:+1` is not"),
        ("ether dst 02:00:00:00:00:01/49", 29, "`49` is more than 48"),
        ("ip src 10.0.0.1/", 17, "something is missing"),
        ("ip src 10.0.0.1/33", 17, "`33` is more than 32"),
        ("ip src 10.0.0.1/99999999999999999999", 17, "`99999999999999999999` is more than 32"),
        ("ip src 10.0.0.1/8", 17, "the address has bits behind the first 8"),
        ("ip src fe80::1", 8, "`fe80::1` is not an IPv4 address"),
        ("ip6 src 10.0.0.1", 9, "`10.0.0.1` is not an IPv6 address"),
        ("ip src", 7, "something is missing"),
        ("ip sрc 10.0.0.1", 4, "unknown word `sрc`"), // the second letter is Cyrillic
        ("udp dst prot 53", 9, "unknown word `prot`"),
        ("udp port 53", 5, "unknown word `port`"),
        ("udp dst port 65536", 14, "`65536` is more than 65535"),
        ("udp dst port -1", 14, "`-1` is not a number"),
        ("udp dst port 0x", 14, "`0x` is not a number"),
        ("udp dst port http", 14, "`http` is not a number"),
        ("udp dst port 53/0x10000", 17, "`0x10000` is more than 65535"),
        ("vlan 4096", 6, "`4096` is more than 4095"),
        ("vlan 5/0xff", 7, "this field takes no mask"),
        ("vlan 5 vlan tci 5", 8, "`vlan tci` says the same as `vlan`"),
        ("ip6 flow-label 0x100000", 16, "`0x100000` is more than 1048575"),
        ("vxlan vni 1/0x1000000", 13, "`0x1000000` is more than 16777215"),
        ("ip flags 8", 10, "`8` is more than 7"),
        ("tag 16777216", 5, "`16777216` is more than 16777215"),
        ("tag", 4, "a number is missing"),
        ("priority 65536", 10, "`65536` is more than 65535"),
        ("priority 1 priority 2", 12, "`priority` is given twice"),
        ("ip src 1.2.3.4 and ip src 1.2.3.5", 20, "`ip src` is given twice"),
        ("inner ip src 1.2.3.4 inner ip src 1.2.3.5", 28, "`inner ip src` is given twice"),
        ("drop drop", 6, "`drop` is given twice"),
        ("ip src 1.2.3.4 ip6", 16, "the outer headers of the rule cannot be both IPv4 and IPv6"),
        ("tcp udp", 5, "the outer headers of the rule cannot be both"),
        ("ether proto arp ip src 1.2.3.4", 17, "the outer Ethertype 0x0806 contradicts the IP header"),
        ("inner vxlan vni 5", 7, "VXLAN can only be matched outside a tunnel"),
        ("inner", 6, "the text ends too early"),
        ("inner drop", 7, "unknown word `drop`"),
        ("and udp", 1, "`and` stands between"),
        ("udp and", 5, "`and` stands between"),
        ("udp and and ip", 9, "`and` stands between"),
        ("udp or tcp", 5, "unknown word `or`"),
        ("udp dst port 53 or tcp", 17, "a rule has no `or`; put two rules in force"),
        ("not udp", 1, "a rule has no `not`"),
        ("dst port 53", 1, "`dst` needs its header in front of it"),
        ("UDP", 1, "`UDP` is written in lower case"),
        ("udp sniffer", 5, "unknown word `sniffer`"),
        ("drop sniffer", 6, "`sniffer` is the type of the rule and comes first"),
        ("sniffer udp", 9, "`udp` cannot stand in a rule of type sniffer"),
        ("all-default priority 3", 13, "`priority` cannot stand in a rule of type all-default"),
        ("any udp", 5, "`any` takes every packet"),
        ("µ udp", 1, "unknown word `µ`"),
        ("udp µ µ", 5, "unknown word `µ`"),
        ("ip src \u{7}", 8, "`\\u{7}` is not an IPv4 address"),
    ] {
        match AnyRule::parse(text, 1) {
            Ok(rule) => panic!("{text} was taken for {rule}"),
            Err(error) => {
                assert_eq!(error.column(), column, "{error:#}");
                assert!(error.message().starts_with(message), "{message}: {error:#}");
                assert!(!error.to_string().contains('\n'));
            }
        }
    }
}

#[test]
fn a_fault_tells_what_could_stand_there() {
    let expected = |text| AnyRule::parse(text, 1).unwrap_err().expected().to_vec();
    assert_eq!(expected("udp dst"), ["port"]);
    assert_eq!(expected("udp foo"), ["src", "dst", "the next header or action"]);
    assert!(expected("foo").contains(&"ether"));
    assert!(expected("foo").contains(&"drop"));
    assert!(!expected("inner foo").contains(&"drop"));
    assert!(expected("ip proto foo").contains(&"icmp"));
}

#[test]
fn a_long_text_is_shown_in_part() {
    let text = format!("{}foo{}", " ".repeat(100_000), " bar".repeat(100));
    let error = AnyRule::parse(&text, 1).unwrap_err();
    assert_eq!(error.column(), 100_001);
    let shown = format!("{error:#}");
    let mut lines = shown.lines().skip(1);
    let (line, caret) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(line.chars().count() < 120, "{line}");
    assert_eq!(line.chars().nth(caret.chars().count() - 1), Some('f'));
}

/// A block of `docs/guide/rules.md` is one rule, or several with one per line; `#` begins a comment.
#[test]
fn the_rules_of_the_documentation_parse() {
    let text = include_str!("../../docs/guide/rules.md");
    let mut rules = 0;
    let mut inside = false;
    for line in text.lines() {
        match line.trim() {
            "```rule" => inside = true,
            "```" => inside = false,
            line if inside => {
                let rule = line.split('#').next().unwrap_or_default().trim();
                if !rule.is_empty() {
                    parse(rule);
                    rules += 1;
                }
            }
            _ => {}
        }
    }
    assert!(rules >= 20, "only {rules} rules found");
}
