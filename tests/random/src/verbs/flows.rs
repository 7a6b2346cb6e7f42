//! Flows, their rules, and frames for them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU64;
use std::time::Duration;

use uverbs::soft::{Traffic, Vary};
use uverbs::{
    AnyRule, Esp, Eth, FlowLabel, FlowRule, FlowTag, Gre, Ipv4, Ipv6, Mpls, MplsLabel, Normal, Tcp, Udp,
    VlanId, Vni, Vxlan,
};

use super::{done, ends, verb};
use crate::each_pair;
use crate::language::Arg::{Bits, Has, May, New, One, Word};
use crate::language::Kind::{Context, Counters, Flow, Pair, Rss};
use crate::language::{NONE, Verb};
use crate::world::{Miss, Played, World};

/// Short names of rules.
const RULE_WORDS: &[&str] = &[
    "dst-1",
    "any",
    "ip",
    "udp",
    "tcp",
    "src-ee",
    "proto-88b5",
    "vlan-5",
    "ip-src",
    "ip-net",
    "ip-proto",
    "ip6",
    "udp-4791",
    "tcp-80",
    "dst-1-udp",
    "vxlan",
    "gre",
    "mpls",
    "esp",
    "drop",
    "dst-2-drop",
    "tag-7",
    "egress",
    "dont-trap",
    "all-default",
    "mc-default",
    "sniffer",
    "broadcast",
    "nonsense",
];

/// Their texts.
const RULES: &[&str] = &[
    "ether dst 02:00:00:00:00:01",
    "any",
    "ip",
    "udp",
    "tcp",
    "ether src 02:00:00:00:00:ee",
    "ether proto 0x88b5",
    "vlan 5",
    "ip src 10.0.0.1",
    "ip dst 10.0.0.0/24",
    "ip proto 17",
    "ip6",
    "udp dst port 4791",
    "tcp src port 80",
    "ether dst 02:00:00:00:00:01 ip udp dst port 4791",
    "udp dst port 4789 vxlan",
    "gre",
    "mpls",
    "esp",
    "drop",
    "ether dst 02:00:00:00:00:02 drop",
    "tag 7",
    "egress",
    "dont-trap",
    "all-default",
    "mc-default",
    "sniffer",
    "ether dst ff:ff:ff:ff:ff:ff",
    "nonsense",
];

/// Names of texts most of which are not rules.
const WRONG_WORDS: &[&str] = &["empty", "word", "value", "range", "order", "end", "long", "rule"];
const WRONG: &[&str] = &[
    "",
    "quickly",
    "ether dst 02:00:00:00:00:0g",
    "vlan 4096",
    "udp ip src 10.0.0.1",
    "ip src",
    "udp udp udp udp",
    "ip src 10.0.0.1 udp dst port 4791",
];

const _: () = assert!(WRONG.len() == WRONG_WORDS.len());

const _: () = assert!(RULES.len() == RULE_WORDS.len());

/// A UDP frame over IPv4 to one of the addresses in the rules.
pub(super) fn frame(to: u64, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len.max(54)];
    frame[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, to as u8]);
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 0xee]);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..42].copy_from_slice(&[0x12, 0x34, 0x12, 0xb7, 0, 20, 0, 0]);
    frame
}

/// A rule with headers that the bits choose, made by the builder: each field with or without a mask.
fn built(a: &[u64]) -> Option<FlowRule<Normal>> {
    let (headers, masked) = (a[0], a[1] != 0);
    let mut rule = FlowRule::normal(a[2] as u8).priority(a[3] as u16);
    let ten = Ipv4Addr::new(10, 0, 0, 1);
    let six: Ipv6Addr = Ipv6Addr::LOCALHOST;
    let has = |bit: u32| headers & (1 << bit) != 0;
    if has(0) {
        let (mac, all) = ([2, 0, 0, 0, 0, 1], [0xff; 6]);
        let eth = Eth::any();
        rule = rule.eth(if masked {
            eth.dst_masked(mac, all)
                .src_masked(mac, [0; 6])
                .ether_type_masked(0x800, 0xffff)
                .vlan_tci_masked(5, 0xfff)
        } else {
            eth.dst(mac).src(mac).ether_type(0x800).vlan(VlanId::new(5)?).vlan_tci(5)
        });
    }
    if has(1) {
        let ip = Ipv4::any();
        rule = rule.ipv4(if masked {
            ip.src_masked(ten, ten)
                .dst_masked(ten, ten)
                .protocol_masked(17, 255)
                .tos_masked(1, 3)
                .ttl_masked(64, 255)
                .flags_masked(2, 2)
        } else {
            ip.src(ten).dst(ten).protocol(17).tos(1).ttl(64).flags(2)
        });
    }
    if has(2) {
        let ip = Ipv6::any();
        let label = FlowLabel::new(5)?;
        rule = rule.ipv6(if masked {
            ip.src_masked(six, six)
                .dst_masked(six, six)
                .next_header_masked(17, 255)
                .traffic_class_masked(1, 3)
                .hop_limit_masked(64, 255)
                .flow_label_masked(label, label)
        } else {
            ip.src(six).dst(six).next_header(17).traffic_class(1).hop_limit(64).flow_label(label)
        });
    }
    if has(3) {
        let tcp = Tcp::any();
        rule = rule.tcp(if masked {
            tcp.src_port_masked(80, 0xff).dst_port_masked(80, 0xff)
        } else {
            tcp.src_port(80).dst_port(80)
        });
    }
    if has(4) {
        let udp = Udp::any();
        rule = rule.udp(if masked {
            udp.src_port_masked(80, 0xff).dst_port_masked(4789, 0xffff)
        } else {
            udp.src_port(80).dst_port(4789)
        });
    }
    if has(5) {
        let vni = Vni::new(77)?;
        rule = rule.vxlan(if masked { Vxlan::any().vni_masked(vni, vni) } else { Vxlan::any().vni(vni) });
    }
    if has(6) {
        let gre = Gre::any();
        rule = rule.gre(if masked {
            gre.flags_masked(1, 1).protocol_masked(0x800, 0xffff).key_masked(9, 9)
        } else {
            gre.flags(1).protocol(0x800).key(9)
        });
    }
    if has(7) {
        rule = rule.mpls(if masked {
            Mpls::any().word_masked(1 << 12, 0xffff_f000)
        } else {
            Mpls::any().label(MplsLabel::new(1)?).word(4096)
        });
    }
    if has(8) {
        let esp = Esp::any();
        rule = rule.esp(if masked {
            esp.spi_masked(1, 1).sequence_masked(1, 1)
        } else {
            esp.spi(1).sequence(1)
        });
    }
    if has(9) {
        rule = rule.inner(Eth::any());
    }
    if has(10) {
        rule = rule.outer(Udp::any());
    }
    if has(11) {
        rule = rule.tag(FlowTag::new(7)?);
    }
    if has(12) {
        rule = rule.drop();
    }
    if has(13) {
        rule = rule.egress();
    }
    if has(14) {
        rule = rule.dont_trap();
    }
    if has(15) {
        rule = rule.allow_loop_back();
    }
    Some(rule)
}

fn make<K: uverbs::RuleType>(w: &mut World, at: u64, pair: u64, rule: &FlowRule<K>) -> Played {
    rule.check()?;
    let flow = each_pair!(w.pairs.get(pair)?, qp => qp.create_flow(rule)?);
    let has_counters = flow.counters().is_some();
    w.flows.put(at, flow);
    Ok(has_counters.to_string())
}

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb("has-flows", 1, &[Has(Context)], |w, a| Ok(w.contexts.get(a[0])?.has_flows()?.to_string())),
        verb("flow", 5, &[New(Flow), Has(Pair), Word(RULE_WORDS), May(Counters), One(&[1, 0, 2])], |w, a| {
            w.flows.free(a[0])?;
            let rule = match AnyRule::parse(RULES[a[2] as usize], a[4] as u8) {
                Ok(rule) => rule,
                Err(error) => return Ok(format!("no rule: {}", error.column())),
            };
            match rule {
                AnyRule::Normal(rule) if a[3] != NONE => {
                    let rule = rule.count(w.counters.get(a[3])?);
                    make(w, a[0], a[1], &rule)
                }
                AnyRule::Normal(rule) => make(w, a[0], a[1], &rule),
                AnyRule::CatchAll(rule) => make(w, a[0], a[1], &rule),
                AnyRule::Sniffer(rule) => make(w, a[0], a[1], &rule),
            }
        }),
        verb(
            "flow-of",
            3,
            &[
                New(Flow),
                Has(Pair),
                Bits(16),
                One(&[0, 1]),
                One(&[1, 0, 2]),
                One(&[0, 1, 7, 65535]),
                May(Counters),
            ],
            |w, a| {
                w.flows.free(a[0])?;
                let mut rule = built(&a[2..6]).ok_or(Miss::Absent)?;
                if a[6] != NONE {
                    rule = rule.count(w.counters.get(a[6])?);
                }
                let has_counters = rule.counters().is_some();
                let text = rule.to_string();
                let is_said = has_counters
                    || AnyRule::parse(&text, a[4] as u8).is_ok_and(|said| said.specs() == rule.specs());
                let made = make(w, a[0], a[1], &rule)?;
                Ok(format!("{made} {is_said} {}", rule.attr().num_of_specs))
            },
        ),
        verb("flow-rss", 1, &[New(Flow), Has(Rss), Word(&["any", "dst-1", "udp"]), May(Counters)], |w, a| {
            w.flows.free(a[0])?;
            let text = ["any", "ether dst 02:00:00:00:00:01", "udp"][a[2] as usize];
            let Ok(AnyRule::Normal(mut rule)) = AnyRule::parse(text, 1) else { return Err(Miss::Absent) };
            if a[3] != NONE {
                rule = rule.count(w.counters.get(a[3])?);
            }
            let flow = w.rss.get(a[1])?.create_flow(&rule)?;
            w.flows.put(a[0], flow);
            done(())
        }),
        verb(
            "flow-default",
            1,
            &[New(Flow), Has(Pair), Word(&["all", "multicast", "sniffer"]), One(&[1, 0, 2])],
            |w, a| {
                w.flows.free(a[0])?;
                let port = a[3] as u8;
                match a[2] {
                    0 => make(w, a[0], a[1], &FlowRule::all_default(port)),
                    1 => make(w, a[0], a[1], &FlowRule::mc_default(port)),
                    _ => make(w, a[0], a[1], &FlowRule::sniffer(port)),
                }
            },
        ),
        // A text that is not a rule, and one that is.
        verb("rule", 1, &[Word(WRONG_WORDS)], |_, a| {
            Ok(match AnyRule::parse(WRONG[a[0] as usize], 1) {
                Ok(rule) => format!("{} {}", rule.attr().num_of_specs, rule.specs().len()),
                Err(error) => {
                    format!(
                        "column {}: {}, {} words",
                        error.column(),
                        error.message(),
                        error.expected().len()
                    )
                }
            })
        }),
        // Frames of a generator with this number of flows.
        verb(
            "inject-traffic",
            1,
            &[
                One(&[1, 2, 255]),
                One(&[60, 59, 128, 9216, 9217]),
                One(&[1, 3, 0]),
                Word(&["ports", "addresses"]),
                One(&[3, 1, 0]),
            ],
            |w, a| {
                w.own_memory()?;
                let mac = |last: u64| [2, 0, 0, 0, 0, last as u8];
                let made = Traffic::new().size(a[1] as usize).and_then(|made| made.flows(a[2] as u32));
                let Ok(traffic) = made else { return Ok("no traffic".to_owned()) };
                let mut traffic = traffic
                    .vary(if a[3] == 0 { Vary::SourcePort } else { Vary::DestinationAddress })
                    .rate(NonZeroU64::new(a[4]))
                    .dst_mac(mac(a[0]))
                    .src_mac(mac(0xee))
                    .dst_ip(Ipv4Addr::new(10, 0, 0, 2))
                    .src_ip(Ipv4Addr::new(10, 0, 0, 1))
                    .dst_port(4791)
                    .src_port(4660);
                // Without a rate any number is due.
                let due = traffic.due(Duration::from_secs(1)).min(4);
                for _ in 0..due {
                    w.machine.inject(traffic.next_frame())?;
                }
                Ok(format!("{due} {}", traffic.sent()))
            },
        ),
        verb("inject", 6, &[One(&[1, 2, 3, 255]), One(&[60, 54, 1000, 1514])], |w, a| {
            w.own_memory()?;
            w.machine.inject(&frame(a[0], a[1] as usize))?;
            done(())
        }),
    ],
    &ends!(Flow, flows, "destroy-flow", "drop-flow"),
];
