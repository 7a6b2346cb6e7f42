//! Rules that are refused, and their messages; and headers without any matched field.

use std::net::{IpAddr, Ipv4Addr};

use crate::common::*;
use uverbs::soft::Profile;
use uverbs::{
    AccessFlags, AnyRule, ErrorKind, Eth, FlowRule, Gre, Mpls, MplsLabel, QpType, QueuePair, RuleType, Udp,
    Vni, Vxlan,
};

fn any() -> FlowRule {
    FlowRule::normal(1)
}

#[track_caller]
fn hint<T: QpType, K: RuleType>(qp: &QueuePair<T>, rule: &FlowRule<K>, kind: ErrorKind) -> String {
    let error = qp.create_flow(rule).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error.hint().unwrap_or_else(|| panic!("no hint: {error}")).to_owned()
}

#[test]
fn a_refused_rule_says_what_was_wrong_and_what_is_allowed() {
    on_every_counting_device(|target| {
        let raw = Raw::new(&target.open());
        for (priority, hinted) in [(16, "no priority 16"), (u16::MAX, "no priority 65535")] {
            let hint =
                hint(&raw.qp, &any().eth(Eth::any().dst(MAC)).priority(priority), ErrorKind::Exhausted);
            assert!(hint.contains(hinted) && hint.ends_with("0 to 15"), "{hint}");
        }
        for port in [0, 2, 255] {
            let hints = [
                hint(&raw.qp, &FlowRule::normal(port), ErrorKind::InvalidInput),
                hint(&raw.qp, &FlowRule::all_default(port), ErrorKind::InvalidInput),
            ];
            let expected = format!("there is no port {port}: the device has 1 to 1");
            assert_eq!(hints, [expected.as_str(); 2]);
        }
        if target.soft.is_none() {
            for rule in [any().allow_loop_back(), any().allow_loop_back().eth(Eth::any())] {
                let hint = hint(&raw.qp, &rule, ErrorKind::InvalidInput);
                assert!(hint.contains("loop back"), "{hint}");
            }
        }
        assert!(raw.qp.create_flow(&any().eth(Eth::any().dst(MAC)).priority(15)).is_ok());
    });
}

#[test]
fn the_lack_of_room_is_told_as_such() {
    let target = Target::soft(Profile::default().with_max_flows(1));
    let raw = Raw::new(&target.open());
    let _flow = raw.qp.create_flow(&any().eth(Eth::any().dst(MAC))).unwrap();
    let hint = hint(&raw.qp, &any(), ErrorKind::Exhausted);
    assert!(hint.contains("no room"), "{hint}");
}

#[test]
fn flows_lead_to_raw_packet_and_ud_queue_pairs() {
    fn refused<T: QpType>(target: &Target, qp: &QueuePair<T>) {
        for rule in [any(), any().eth(Eth::any().dst(MAC))] {
            if target.device.driver() == "rxe" {
                assert_eq!(hint(qp, &rule, ErrorKind::Unsupported), "rxe has no flows");
            } else {
                let hint = hint(qp, &rule, ErrorKind::InvalidInput);
                assert_eq!(hint, "flows lead to raw packet and UD queue pairs only");
            }
        }
        let _ = hint(
            qp,
            &FlowRule::all_default(9),
            if target.device.driver() == "rxe" { ErrorKind::Unsupported } else { ErrorKind::InvalidInput },
        );
    }
    on_every_connecting_device(|target| {
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
        refused(target, &pd.rc(&cq).create().unwrap());
        refused(target, &pd.uc(&cq).create().unwrap());
        let ud = pd.ud(&cq).create().unwrap();
        if target.soft.is_some() {
            assert!(ud.create_flow(&any()).is_ok());
        }
    });
}

#[test]
fn memory_that_nobody_has_is_no_length_of_zero() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        for len in [usize::MAX, usize::MAX / 2, isize::MAX as usize] {
            let error = pd.register(len, AccessFlags::empty()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
            assert!(error.hint().unwrap().contains(&format!("{len} bytes of memory")), "{error}");
        }
        let error = pd.register(0, AccessFlags::empty()).unwrap_err();
        assert!(error.hint().unwrap().contains("0 given, at least 1 allowed"), "{error}");
    });
}

#[test]
fn bits_of_a_value_outside_its_mask_are_cleared() {
    for (text, same) in [
        ("ip src 10.1.2.3/255.0.0.0", "ip src 10.0.0.0/8"),
        ("ip tos 0x13/0xfc", "ip tos 0x10/0xfc"),
        ("ether src 02:00:00:00:00:01/ff:ff:ff:00:00:00", "ether src 02:00:00:00:00:00/24"),
        ("udp dst port 4097/0xff00", "udp dst port 4096/0xff00"),
    ] {
        let [one, other] = [text, same].map(|text| AnyRule::parse(text, 1).unwrap());
        assert_eq!(one.specs(), other.specs(), "{text}");
    }
    assert!(AnyRule::parse("ip src 10.1.2.3/8", 1).is_err());
}

/// Rules that name a header, but match no field that a packet without the header would lack.
fn silent() -> [(&'static str, FlowRule); 9] {
    let zero = |vni| Vni::new(vni).unwrap();
    [
        ("vxlan", any().vxlan(Vxlan::any())),
        ("vxlan vni 0", any().vxlan(Vxlan::any().vni(zero(0)))),
        ("udp and vxlan", any().udp(Udp::any()).vxlan(Vxlan::any())),
        ("udp src port 4789 and vxlan", any().udp(Udp::any().src_port(4789)).vxlan(Vxlan::any())),
        ("mpls", any().mpls(Mpls::any())),
        ("mpls label 0", any().mpls(Mpls::any().label(MplsLabel::new(0).unwrap()))),
        ("gre and mpls", any().gre(Gre::any()).mpls(Mpls::any())),
        ("inner ether", any().inner(Eth::any())),
        ("inner mpls", any().inner(Mpls::any())),
    ]
}

#[test]
fn a_header_without_values_that_nothing_announces_is_refused() {
    for (text, rule) in silent() {
        let error = rule.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        assert!(error.hint().unwrap().contains("would match too: name"), "{error}");
        let error = AnyRule::parse(text, 1).unwrap_err();
        assert!(error.to_string().contains("would match too"), "{text}: {error}");
    }
    // In any order, and if the other header announces it.
    for text in [
        "udp dst port 4789 and vxlan",
        "vxlan and udp dst port 4789",
        "vxlan and udp dst port 8472",
        "vxlan vni 1",
        "mpls and ether proto mpls",
        "ether proto 0x8848 and mpls",
        "udp dst port 6635 and mpls",
        "gre proto mpls and mpls",
        "mpls label 16",
        "udp dst port 4789 and vxlan and inner ether",
        "vxlan vni 7 and inner ether",
        "gre proto 0x6558 and inner ether",
        "inner vlan 5",
        "inner ip",
        "inner tcp",
    ] {
        let rule = AnyRule::parse(text, 1).unwrap_or_else(|error| panic!("{text}: {error}"));
        let again = AnyRule::parse(&rule.to_string(), 1).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(again.specs(), rule.specs(), "{text}");
    }
    let column = AnyRule::parse("ip and vxlan", 1).unwrap_err();
    assert!(column.to_string().starts_with("column 8: "), "{column}");
}

#[test]
fn what_asks_for_a_header_takes_no_packet_without_it() {
    on_every_wire(|_, wire, mut raw| {
        let [from, to] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let mut plain = vec![frame(MAC, 60)];
        for (ports, is_tcp) in [([1, 2], true), ([1, 2], false), ([4789, 6635], true)] {
            plain.push(packet([from, to], ports, is_tcp, &[0; 32]));
        }
        // A header that no other one announces is not matched; no packet here has a tunnel.
        for text in [
            "udp dst port 4789 and vxlan",
            "vxlan vni 7",
            "udp dst port 6635 and mpls",
            "ether proto mpls and mpls",
            "gre proto mpls and mpls",
            "mpls label 16",
            "vxlan vni 7 and inner ether",
            "gre proto 0x6558 and inner ether",
            "inner ip",
            "inner ip6",
            "inner tcp",
            "inner udp",
            "gre",
        ] {
            let AnyRule::Normal(rule) = AnyRule::parse(text, 1).unwrap() else { panic!("{text}") };
            let counters = packets_and_bytes(&raw.context);
            let flow =
                raw.qp.create_flow(&rule.count(&counters)).unwrap_or_else(|error| panic!("{text}: {error}"));
            plain.iter().for_each(|frame| wire.inject(frame));
            assert_eq!(read2(&counters), [0, 0], "{text}");
            drop(flow);
        }
        // The packets do arrive, and VXLAN is found where it is present.
        raw.post_receives(8);
        let counters = packets_and_bytes(&raw.context);
        let rule = any().vxlan(Vxlan::any()).udp(Udp::any().dst_port(4789));
        let _flow = raw.qp.create_flow(&rule.count(&counters)).unwrap();
        let inside = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &plain[1]].concat();
        let tunnelled = packet([from, to], [1, 4789], false, &inside);
        wire.inject(&tunnelled);
        assert_eq!(read2(&counters), [1, tunnelled.len() as u64]);
    });
}
