//! Properties of the rule language: every rule can be parsed from its own text, and every text has a result.

use proptest::prelude::*;
use uverbs::{
    AnyRule, Esp, Eth, FlowLabel, FlowRule, FlowTag, Gre, Ipv4, Ipv6, Mpls, Normal, Tcp, Udp, Vni, Vxlan,
};

/// Everything that is sent to the kernel.
fn bytes(rule: &AnyRule) -> (u32, u16, u32, u8, u8, Vec<u8>) {
    let attr = rule.attr();
    (attr.type_, attr.priority, attr.flags, attr.port, attr.num_of_specs, rule.specs().to_vec())
}

prop_compose! {
    fn eth()(dst: [u8; 6], dst_mask: [u8; 6], src: [u8; 6], kind in option(0_u16..), tci: u16, tci_mask in mask16())
        -> Eth {
        let eth = Eth::any().dst_masked(dst, dst_mask).src(src).vlan_tci_masked(tci, tci_mask);
        kind.map_or(eth, |kind| eth.ether_type(kind))
    }
}

prop_compose! {
    fn ipv4()(src: u32, src_mask in mask32(), dst: u32, dst_mask in mask32(), proto: (u8, u8), tos: (u8, u8), ttl: (u8, u8),
              flags: (u8, u8)) -> Ipv4 {
        Ipv4::any()
            .src_masked(src.into(), src_mask.into())
            .dst_masked((dst & dst_mask).into(), dst_mask.into())
            .protocol_masked(proto.0, proto.1)
            .tos_masked(tos.0, tos.1)
            .ttl_masked(ttl.0, ttl.1)
            .flags_masked(flags.0, flags.1)
    }
}

prop_compose! {
    fn ipv6()(src: u128, src_mask: u128, dst: u128, length in 0_u32..=128, next: (u8, u8), class: u8, hops: u8,
              label in 0_u32..1 << 20, label_mask in 0_u32..1 << 20) -> Ipv6 {
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        let bound = |number| FlowLabel::new(number).unwrap();
        Ipv6::any()
            .src_masked(src.into(), src_mask.into())
            .dst_masked((dst & mask).into(), mask.into())
            .next_header_masked(next.0, next.1)
            .traffic_class(class)
            .hop_limit(hops)
            .flow_label_masked(bound(label), bound(label_mask))
    }
}

fn option(values: impl Strategy<Value = u16>) -> impl Strategy<Value = Option<u16>> {
    prop_oneof![values.prop_map(Some), Just(None)]
}

fn mask16() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), Just(0x0fff), Just(0xffff), any::<u16>()]
}

fn mask32() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), (0_u32..32).prop_map(|low| u32::MAX << low), any::<u32>()]
}

/// Adds one header or action.
#[derive(Clone, Debug)]
enum Part {
    Eth(Eth),
    Ipv4(Ipv4),
    Ipv6(Ipv6),
    Ports(bool, u16, u16, u16),
    Esp(u32, u32, u32),
    Gre(u16, u16, u32, u32),
    Vni(u32, u32),
    Mpls(u32, u32),
    Tag(u32),
    Drop,
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        eth().prop_map(Part::Eth),
        ipv4().prop_map(Part::Ipv4),
        ipv6().prop_map(Part::Ipv6),
        (any::<bool>(), any::<u16>(), any::<u16>(), mask16())
            .prop_map(|(tcp, src, dst, mask)| Part::Ports(tcp, src, dst, mask)),
        (any::<u32>(), any::<u32>(), mask32()).prop_map(|(spi, seq, mask)| Part::Esp(spi, seq, mask)),
        (any::<u16>(), any::<u16>(), any::<u32>(), mask32())
            .prop_map(|(flags, proto, key, mask)| Part::Gre(flags, proto, key, mask)),
        (0_u32..1 << 24, 0_u32..1 << 24).prop_map(|(vni, mask)| Part::Vni(vni, mask)),
        (any::<u32>(), prop_oneof![Just(0xffff_f000), mask32()])
            .prop_map(|(word, mask)| Part::Mpls(word, mask)),
        (0_u32..1 << 24).prop_map(Part::Tag),
        Just(Part::Drop),
    ]
}

fn add(rule: FlowRule<Normal>, part: Part, inner: bool) -> FlowRule<Normal> {
    macro_rules! header {
        ($spec:expr) => {
            if inner { rule.inner($spec) } else { rule.outer($spec) }
        };
    }
    match part {
        Part::Eth(eth) => header!(eth),
        Part::Ipv4(ipv4) => header!(ipv4),
        Part::Ipv6(ipv6) => header!(ipv6),
        Part::Ports(true, src, dst, mask) => header!(Tcp::any().src_port(src).dst_port_masked(dst, mask)),
        Part::Ports(false, src, dst, mask) => header!(Udp::any().src_port_masked(src, mask).dst_port(dst)),
        Part::Esp(spi, seq, mask) => header!(Esp::any().spi(spi).sequence_masked(seq, mask)),
        Part::Gre(flags, proto, key, mask) => {
            header!(Gre::any().flags(flags).protocol(proto).key_masked(key, mask))
        }
        Part::Vni(vni, mask) => {
            rule.vxlan(Vxlan::any().vni_masked(Vni::new(vni).unwrap(), Vni::new(mask).unwrap()))
        }
        Part::Mpls(word, mask) => header!(Mpls::any().word_masked(word, mask)),
        Part::Tag(tag) => rule.tag(FlowTag::new(tag).unwrap()),
        Part::Drop => rule.drop(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any consistent rule can be parsed from its own text, byte for byte.
    #[test]
    fn a_printed_rule_parses_back(
        parts in prop::collection::vec((part(), any::<bool>()), 0..6),
        priority: u16,
        flags in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let mut rule = FlowRule::normal(1).priority(priority);
        if flags.0 { rule = rule.dont_trap() }
        if flags.1 { rule = rule.egress() }
        if flags.2 { rule = rule.allow_loop_back() }
        for (part, inner) in parts {
            let longer = add(rule.clone(), part, inner);
            if longer.check().is_ok() { rule = longer }
        }
        let rule = AnyRule::Normal(rule);
        let text = rule.to_string();
        let back = AnyRule::parse(&text, 1);
        prop_assert!(back.is_ok(), "{}: {:#}", text, back.unwrap_err());
        let back = back.unwrap();
        prop_assert_eq!(bytes(&back), bytes(&rule), "{}", text);
        prop_assert_eq!(back.to_string(), text);
    }

    /// No text makes the parser panic, and what it accepts it can print.
    #[test]
    fn any_text_is_answered(words in prop::collection::vec(word(), 0..12)) {
        let text = words.join(" ");
        match AnyRule::parse(&text, 1) {
            Ok(rule) => prop_assert_eq!(bytes(&AnyRule::parse(&rule.to_string(), 1).unwrap()), bytes(&rule)),
            Err(error) => {
                prop_assert!(error.column() <= text.chars().count() + 1);
                prop_assert_eq!(format!("{error:#}").lines().count(), 3);
            }
        }
    }

    #[test]
    fn any_characters_are_answered(text in "\\PC*") {
        let _ = AnyRule::parse(&text, 1);
    }
}

/// Words of the language, and sometimes others.
fn word() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "ether",
        "vlan",
        "tci",
        "ip",
        "ip6",
        "tcp",
        "udp",
        "src",
        "dst",
        "port",
        "proto",
        "inner",
        "and",
        "drop",
        "tag",
        "priority",
        "any",
        "sniffer",
        "vxlan",
        "vni",
        "mpls",
        "label",
        "word",
        "gre",
        "key",
        "0x10",
        "5/3",
        "10.0.0.0/8",
        "fe80::1",
        "02:00:00:00:00:01",
        "host",
    ]);
    prop_oneof![8 => known.prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}
