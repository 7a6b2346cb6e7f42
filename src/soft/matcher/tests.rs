//! mlx5's answers to specs, and matches against a slow reference.

use super::super::testing::*;
use super::*;
use crate::soft::packet::{in_layer, in_tunnel};
use proptest::prelude::*;
use uverbs_abi::flow::*;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromZeros, IntoBytes};

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
    let cases: Vec<(&str, Vec<Vec<u8>>, Result<(), Errno>)> = vec![
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
        (
            "outer UDP and inner TCP",
            vec![dst_port(SPEC_UDP, 1, 1), dst_port(inner(SPEC_TCP), 1, 1)],
            Ok(()),
        ),
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

/// What a frame is made of, and so what rules are drawn from.
#[derive(Clone, Debug)]
struct Facts {
    eth: FlowEthFilter,
    tagged: bool,
    v4: Option<FlowIpv4Filter>,
    v6: FlowIpv6Filter,
    ports: FlowTcpUdpFilter,
}

impl Facts {
    fn frame(&self) -> Vec<u8> {
        let (src, dst) = (self.ports.src_port.get(), self.ports.dst_port.get());
        let proto = if self.v4.is_some() { self.v4.map_or(0, |ip| ip.proto) } else { self.v6.next_hdr };
        let payload = if proto == 6 { tcp(src, dst) } else { udp(src, dst, b"12") };
        let length = payload.len() as u16;
        let packet = match &self.v4 {
            Some(ip) => {
                let [a, b] = (length + 20).to_be_bytes();
                let head = [0x45, ip.tos, a, b, 0, 0, 0, 0, ip.ttl, ip.proto, 0, 0];
                [&head[..], ip.src_ip.as_bytes(), ip.dst_ip.as_bytes(), &payload].concat()
            }
            None => {
                let ip = &self.v6;
                let first = 6 << 28 | u32::from(ip.traffic_class) << 20 | ip.flow_label.get();
                let [a, b] = length.to_be_bytes();
                let rest = [a, b, ip.next_hdr, ip.hop_limit];
                [&first.to_be_bytes()[..], &rest, &ip.src_ip, &ip.dst_ip, &payload].concat()
            }
        };
        let tci = self.eth.vlan_tag.to_bytes();
        let tag = [0x81, 0, tci[0], tci[1]];
        let tag = if self.tagged { &tag[..] } else { &[] };
        let ether_type = self.eth.ether_type.to_bytes();
        [&self.eth.dst_mac[..], &self.eth.src_mac, tag, &ether_type, &packet].concat()
    }

    /// The filter type and bytes of each layer that a rule may name.
    fn layers(&self) -> [(u32, Vec<u8>); 3] {
        let ip = match &self.v4 {
            Some(ip) => (SPEC_IPV4, ip.as_bytes().to_vec()),
            None => (SPEC_IPV6, self.v6.as_bytes().to_vec()),
        };
        let proto = self.v4.map_or(self.v6.next_hdr, |ip| ip.proto);
        let transport = if proto == 6 { SPEC_TCP } else { SPEC_UDP };
        [(SPEC_ETH, self.eth.as_bytes().to_vec()), ip, (transport, self.ports.as_bytes().to_vec())]
    }
}

prop_compose! {
    fn facts()(
        bytes: [u8; 16], other: [u8; 32], tagged: bool, v4: bool, tcp: bool, label in 0..1u32 << 20,
        tos: u8, ports: [u16; 2],
    ) -> Facts {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        let proto = if tcp { 6 } else { 17 };
        let word = |from: usize| U32::from_bytes(std::array::from_fn(|i| other[from + i]));
        let ether_type = if v4 { 0x0800 } else { 0x86dd };
        Facts {
            eth: FlowEthFilter {
                dst_mac: [a, b, c, d, e, f],
                src_mac: [g, h, i, j, k, l],
                ether_type: U16::new(ether_type),
                vlan_tag: U16::from_bytes([m, n]),
            },
            tagged,
            v4: v4.then(|| FlowIpv4Filter {
                src_ip: word(0), dst_ip: word(4), proto, tos, ttl: o, flags: 0,
            }),
            v6: FlowIpv6Filter {
                src_ip: std::array::from_fn(|i| other[i]),
                dst_ip: std::array::from_fn(|i| other[16 + i]),
                flow_label: U32::new(label),
                next_hdr: proto,
                traffic_class: tos,
                hop_limit: p,
                reserved: 0,
            },
            ports: FlowTcpUdpFilter {
                // Not a tunnel's port: what is in a tunnel is another test.
                dst_port: U16::new(ports[0] & !0x200 | 1), src_port: U16::new(ports[1]),
            },
        }
    }
}

/// Fields whose mask mlx5 refuses, or that forces more than its bits: left out of random masks.
fn clean(type_: u32, mask: &mut [u8]) {
    match type_ {
        SPEC_ETH => mask[12..14].fill(0),
        SPEC_IPV4 => (mask[8], mask[10], mask[11]) = (0, 0, 0),
        SPEC_IPV6 => {
            (mask[32], mask[36], mask[38], mask[39]) = (0, 0, 0, 0);
            mask[33] &= 0xf;
        }
        _ => {}
    }
}

proptest! {
    /// A rule drawn from one frame, perhaps with some bits flipped, against another frame of the same kind.
    #[test]
    fn matches_are_those_of_a_bit_by_bit_reference(
        rule in facts(), frame in facts(), same: bool, use_layer: [bool; 3],
        masks in prop::collection::vec(prop::array::uniform32(prop::sample::select(vec![0u8, 0, 0, 1, 0x80, 0xff])), 3),
        spoil: Option<(prop::sample::Index, u8)>,
    ) {
        let frame = if same { rule.clone() } else { frame };
        let (mut specs, mut expected) = (Vec::new(), true);
        for (index, ((type_, value), (there, field))) in rule.layers().iter().zip(frame.layers()).enumerate() {
            if !use_layer[index] {
                continue;
            }
            let mut mask: Vec<u8> = masks[index].iter().copied().cycle().take(value.len()).collect();
            clean(*type_, &mut mask);
            let mut value = value.clone();
            if let Some((at, bits)) = spoil {
                value[at.index(mask.len())] ^= bits;
            }
            for (value, mask) in value.iter_mut().zip(&mask) {
                *value &= mask;
            }
            // The reference: another protocol cannot match; a VLAN mask wants a tag; then bit by bit.
            expected &= *type_ == there;
            if *type_ == SPEC_ETH && mask[14..16] != [0, 0] {
                expected &= frame.tagged;
            }
            for bit in 0..mask.len() * 8 {
                let of = |bytes: &[u8]| bytes[bit / 8] >> (bit % 8) & 1;
                expected &= of(&mask) == 0 || of(&value) == of(&field);
            }
            let size = 8 + 2 * mask.len() as u16;
            let head = FlowSpecHdr { type_: *type_, size, reserved: 0 };
            specs.push([head.as_bytes(), &value, &mask].concat());
        }
        let matching = compile(&specs, &Rules::default()).expect("nothing unsupported");
        prop_assert_eq!(matching.matches(&Headers::of(&frame.frame())), expected);
    }

    /// An all-zero mask matches all of its layer, and nothing else.
    #[test]
    fn a_zero_mask_matches_its_layer(frame in facts()) {
        let fields = Headers::of(&frame.frame());
        let zero = |type_, length: usize| {
            let head = FlowSpecHdr { type_, size: 8 + 2 * length as u16, reserved: 0 };
            let spec = [head.as_bytes(), &vec![0; 2 * length]].concat();
            compile(&[spec], &Rules::default()).expect("valid").matches(&fields)
        };
        let tcp = frame.layers()[2].0 == SPEC_TCP;
        prop_assert!(zero(SPEC_ETH, 16));
        prop_assert_eq!(zero(SPEC_IPV4, 12), frame.v4.is_some());
        prop_assert_eq!(zero(SPEC_IPV6, 40), frame.v4.is_none());
        prop_assert_eq!((zero(SPEC_TCP, 4), zero(SPEC_UDP, 4)), (tcp, !tcp));
        prop_assert!(!zero(SPEC_GRE, 8));
        // Nothing on mlx5 makes these two ask for more than their bits.
        prop_assert!(zero(SPEC_VXLAN_TUNNEL, 4) && zero(SPEC_MPLS, 4));
    }
}
