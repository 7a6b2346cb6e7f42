//! mlx5's answers to specs, and matches against a slow reference.

use super::super::testing::*;
use super::*;
use crate::soft::packet::{in_layer, in_tunnel};
use uverbs_abi::flow::*;
use zerocopy::FromZeros;

mod reference;

/// Through the core and the driver, up to the errno that a user would see.
fn compile(specs: &[Vec<u8>], rules: &Rules) -> Result<Match, Errno> {
    let matching = Match::compile(&parsed(specs)?, rules)?;
    matching.check_values().map(|()| matching)
}

fn ipv4(edit: impl Fn(&mut FlowIpv4Filter)) -> Vec<u8> {
    let mut side = FlowIpv4Filter::new_zeroed();
    edit(&mut side);
    filter(SPEC_IPV4, side, side)
}

#[test]
fn specs_get_the_errno_of_mlx5() {
    let inner = |type_| type_ | SPEC_INNER;
    let eth_ip = |ether_type_: u16, mask, ip| vec![ether_type(SPEC_ETH, ether_type_, mask), ip];
    let any = || ipv4(|_| {});
    let hop = FlowIpv6Filter { hop_limit: 1, ..FlowIpv6Filter::new_zeroed() };
    let counted = || with_number(SPEC_ACTION_COUNT, 1);
    let (no, never) = (Err(Errno::EINVAL), Err(Errno::EOPNOTSUPP));
    type Case = (&'static str, Vec<Vec<u8>>, Result<(), Errno>);
    let cases: Vec<Case> = vec![
        ("nothing", vec![], Ok(())),
        ("ethertype of IPv4", eth_ip(0x0800, 0xffff, any()), Ok(())),
        ("ethertype of ARP with IPv4", eth_ip(0x0806, 0xffff, any()), no),
        ("ethertype of IPv4 with IPv6", eth_ip(0x0800, 0xffff, ipv6_any()), no),
        ("half a mask", eth_ip(0, 0x00ff, any()), no),
        ("ethertype of MPLS", eth_ip(0x8847, 0xffff, any()), Ok(())),
        (
            "an inner ethertype beside an outer IP",
            vec![ether_type(inner(SPEC_ETH), 0x0806, 0xffff), any()],
            Ok(()),
        ),
        (
            "an inner ethertype beside an inner IP",
            vec![ether_type(inner(SPEC_ETH), 0x0806, 0xffff), ipv4_dst(inner(SPEC_IPV4), 0, 0)],
            no,
        ),
        ("time to live", vec![ipv4(|ip| ip.ttl = 1)], never),
        ("fragment flags", vec![ipv4(|ip| ip.flags = 2)], never),
        ("hop limit", vec![filter(SPEC_IPV6, hop, hop)], never),
        ("ESP", vec![filter(SPEC_ESP, [0u32; 2], [0; 2])], never),
        ("GRE flags", vec![gre(0, 0, (0x2000, 0, 0))], never),
        ("TCP and UDP", vec![dst_port(SPEC_TCP, 1, 1), dst_port(SPEC_UDP, 1, 1)], no),
        ("UDP and GRE", vec![dst_port(SPEC_UDP, 1, 1), gre(0, 0, (0, 0, 0))], no),
        ("outer UDP and inner TCP", vec![dst_port(SPEC_UDP, 1, 1), dst_port(inner(SPEC_TCP), 1, 1)], Ok(())),
        ("protocol UDP and TCP", vec![ipv4_proto(17, 0xff), dst_port(SPEC_TCP, 1, 1)], no),
        ("protocol TCP and TCP", vec![ipv4_proto(6, 0xff), dst_port(SPEC_TCP, 1, 1)], Ok(())),
        ("part of TCP and TCP", vec![ipv4_proto(6, 6), dst_port(SPEC_TCP, 1, 1)], no),
        ("TCP, then protocol UDP", vec![dst_port(SPEC_TCP, 1, 1), ipv4_proto(17, 0xff)], no),
        ("tag of 24 bits", vec![with_number(SPEC_ACTION_TAG, 0xff_ffff)], Ok(())),
        ("tag of 25 bits", vec![with_number(SPEC_ACTION_TAG, 1 << 24)], no),
        ("COUNT", vec![counted()], Ok(())),
        ("COUNT twice", vec![counted(), counted()], no),
        ("a flow action", vec![with_number(SPEC_ACTION_HANDLE, 1)], never),
        ("a value outside its mask", vec![ipv4_dst(SPEC_IPV4, 0x0a00_0001, 0xff00_0000)], no),
        ("a VLAN value without a mask is not looked at", vec![vlan(5, 0)], Ok(())),
        ("nor is a protocol", vec![ipv4_proto(5, 0)], Ok(())),
        ("the first error counts", vec![ipv4(|ip| ip.ttl = 1), counted(), counted()], never),
        ("ethertypes come first of all", eth_ip(0x0806, 0xffff, ipv4(|ip| ip.ttl = 1)), no),
    ];
    for (what, specs, expected) in cases {
        assert_eq!(compile(&specs, &Rules::default()).map(|_| ()), expected, "{what}");
    }
}

#[test]
fn a_profile_may_give_and_take() {
    let esp = filter(SPEC_ESP, [1u32.to_be(), 0], [!0, 0]);
    let esp = compile(&[esp], &Rules::all()).expect("wide");
    let frame = |spi| {
        let packet = super::super::testing::ipv4(1, 50, &[0, 0, 0, spi, 0, 0, 0, 9]);
        Headers::of(&ethernet(UNICAST, 0x0800, &packet))
    };
    assert!(esp.matches(&frame(1)) && !esp.matches(&frame(2)));
    let ttl = compile(&[ipv4(|ip| (ip.ttl, ip.flags) = (63, 2))], &Rules::all()).expect("wide");
    assert!(ttl.matches(&frame(1)));
    let narrow = Rules { mpls: false, ip_version: false, ..Rules::default() };
    assert_eq!(compile(&[word(SPEC_MPLS, 1, 1)], &narrow).unwrap_err(), Errno::EOPNOTSUPP);
    assert!(compile(&[word(SPEC_MPLS, 0, 0)], &narrow).is_ok());
    let by_type = compile(&[ipv4(|_| {})], &narrow).expect("by ethertype");
    assert_eq!(by_type.mask.outer.ether_type.get(), 0xffff);
    let mpls_ip = [ether_type(SPEC_ETH, 0x8847, 0xffff), ipv4(|_| {})];
    assert_eq!(compile(&mpls_ip, &narrow).unwrap_err(), Errno::EINVAL);
}

#[test]
fn a_later_spec_replaces_an_earlier_of_its_kind() {
    let two = [eth(UNICAST, [0xff; 6]), vlan(5, 0xfff), eth(GROUP, [0xff; 6])];
    let matching = compile(&two, &Rules::default()).expect("valid");
    assert_eq!(matching.value.outer.dst_mac, GROUP);
    // The last one has no VLAN mask, so it leaves the tag as it was.
    assert_eq!((matching.mask.outer.vlan_tci.get(), matching.mask.outer.c_vlan), (0xfff, 1));
}

#[test]
fn a_mask_asks_for_its_header() {
    let zero_port = compile(&[dst_port(SPEC_UDP, 0, 0xffff)], &Rules::default()).expect("valid");
    let fragment = ipv4_fragment(1, 17, 1, &[0; 16]);
    assert!(!zero_port.matches(&Headers::of(&ethernet(UNICAST, 0x0800, &fragment))));
    assert!(zero_port.matches(&Headers::of(&udp_frame(UNICAST, 0))));
    let any_port = compile(&[dst_port(SPEC_UDP, 0, 0)], &Rules::default()).expect("valid");
    assert!(any_port.matches(&Headers::of(&ethernet(UNICAST, 0x0800, &fragment))));
    let untagged = Headers::of(&udp_frame(UNICAST, 0));
    assert!(!compile(&[vlan(0, 1)], &Rules::default()).expect("valid").matches(&untagged));
    let vni = compile(&[word(SPEC_VXLAN_TUNNEL, 0, 1)], &Rules::default()).expect("valid");
    assert_eq!(vni.mask.present, in_tunnel::VXLAN);
    let label = [dst_port(SPEC_UDP, 6635, 0xffff), word(SPEC_MPLS, 0, 1)];
    let label = compile(&label, &Rules::default()).expect("valid");
    assert_eq!(label.mask.present, in_tunnel::MPLS_OVER_UDP);
    assert_eq!(label.mask.outer.present, in_layer::PORTS);
    let label = compile(&[gre(0, 0, (0, 0, 0)), word(SPEC_MPLS, 0, 1)], &Rules::default());
    assert_eq!(label.expect("valid").mask.present, in_tunnel::MPLS_OVER_GRE);
}
