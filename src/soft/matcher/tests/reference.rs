//! Compares matches with a slow reference, for random rules and frames.

use super::*;
use proptest::prelude::*;
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

/// The contents of a frame, from which rules are generated.
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
                // Not the port of a tunnel: another test handles tunnels.
                dst_port: U16::new(ports[0] & !0x200 | 1), src_port: U16::new(ports[1]),
            },
        }
    }
}

/// Fields whose mask mlx5 refuses, or whose mask matches more than its bits: removed from random masks.
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
    /// A rule generated from one frame, perhaps with some bits changed, against another frame of the same kind.
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
            // The reference: another protocol cannot match; a VLAN mask requires a tag; then bit by bit.
            expected &= *type_ == there;
            if *type_ == SPEC_ETH && mask[14..16] != [0, 0] {
                expected &= frame.tagged;
            }
            for bit in 0..if *type_ == there { mask.len() * 8 } else { 0 } {
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
        // On mlx5 nothing makes these two match more than their bits.
        prop_assert!(zero(SPEC_VXLAN_TUNNEL, 4) && zero(SPEC_MPLS, 4));
    }
}
