//! The words of the language: headers, their fields, and the place of each in a filter.

use std::mem::offset_of;

use uverbs_abi::flow::{
    self, FlowEspFilter, FlowEthFilter, FlowGreFilter, FlowIpv4Filter, FlowIpv6Filter, FlowMplsFilter,
    FlowTcpUdpFilter, FlowTunnelFilter,
};
use zerocopy::FromBytes;

use crate::flow::rule::{FlowRule, Normal};
use crate::flow::spec::{Esp, Eth, Gre, InnerSpec, Ipv4, Ipv6, Mpls, Tcp, Udp, Vxlan};

/// Bytes of the largest filter.
pub(super) const MAX_FILTER: usize = size_of::<FlowIpv6Filter>();

/// A header that rules can match.
#[derive(Debug)]
pub(super) struct Header {
    /// Its word, which also means "this header is present".
    pub(super) name: &'static str,
    /// `SPEC_ETH` and so on.
    pub(super) type_: u32,
    /// Bytes of its filter.
    pub(super) size: usize,
    /// Adds the spec of a value and a mask to a rule, outside a tunnel or inside.
    pub(super) add: Add,
    /// In the order they are printed.
    pub(super) fields: &'static [Field],
}

type Add = fn(FlowRule<Normal>, bool, &[u8], &[u8]) -> FlowRule<Normal>;

fn put<S: InnerSpec>(rule: FlowRule<Normal>, inner: bool, spec: S) -> FlowRule<Normal> {
    if inner { rule.inner(spec) } else { rule.outer(spec) }
}

fn filter<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).map_or_else(|_| T::new_zeroed(), |(filter, _)| filter)
}

/// A field of a header. If several fields at one place can express a value and mask, the first one is printed.
#[derive(Debug)]
pub(super) struct Field {
    /// All words before the value.
    pub(super) phrase: &'static str,
    /// Offset in the filter.
    pub(super) at: usize,
    /// How its value is written.
    pub(super) form: Form,
}

/// How a value is written.
#[derive(Debug)]
pub(super) enum Form {
    Mac,
    V4,
    V6,
    Number(Number),
}

/// How a number is written. `most` and `limit` are sequences of ones: the mask of a value without one, and all bits that a mask may have.
#[derive(Debug)]
pub(super) struct Number {
    /// Bytes of the field, in network order.
    pub(super) bytes: usize,
    /// Bits below the number that belong to other fields.
    pub(super) shift: u32,
    pub(super) most: u32,
    pub(super) limit: u32,
    /// Whether a mask may be given.
    pub(super) masked: bool,
    /// Whether it is printed in hexadecimal.
    pub(super) hex: bool,
    pub(super) names: &'static [(&'static str, u32)],
}

impl Form {
    /// Bytes of the field.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Mac => 6,
            Self::V4 => 4,
            Self::V6 => 16,
            Self::Number(number) => number.bytes,
        }
    }
}

impl Number {
    const fn decimal(bytes: usize) -> Self {
        let most = u32::MAX >> (32 - 8 * bytes);
        Self { bytes, shift: 0, most, limit: most, masked: true, hex: false, names: &[] }
    }

    const fn hex(bytes: usize) -> Self {
        Self { hex: true, ..Self::decimal(bytes) }
    }

    /// The low `bits` bits of the field.
    const fn bits(self, bits: u32) -> Self {
        let most = u32::MAX >> (32 - bits);
        Self { most, limit: most, ..self }
    }

    const fn named(self, names: &'static [(&'static str, u32)]) -> Self {
        Self { names, ..self }
    }
}

const fn field(phrase: &'static str, at: usize, form: Form) -> Field {
    Field { phrase, at, form }
}

const fn number(phrase: &'static str, at: usize, number: Number) -> Field {
    field(phrase, at, Form::Number(number))
}

const ETHER_TYPES: &[(&str, u32)] = &[("ip", 0x0800), ("arp", 0x0806), ("ip6", 0x86dd), ("mpls", 0x8847)];
const PROTOCOLS: &[(&str, u32)] =
    &[("icmp", 1), ("igmp", 2), ("tcp", 6), ("udp", 17), ("gre", 47), ("esp", 50), ("icmp6", 58)];

/// Every header, in the order of the layers.
pub(super) const HEADERS: &[Header] = &[
    Header {
        name: "ether",
        type_: flow::SPEC_ETH,
        size: size_of::<FlowEthFilter>(),
        add: |rule, inner, value, mask| put(rule, inner, Eth::from_filters(filter(value), filter(mask))),
        fields: &[
            field("ether dst", offset_of!(FlowEthFilter, dst_mac), Form::Mac),
            field("ether src", offset_of!(FlowEthFilter, src_mac), Form::Mac),
            number("ether proto", offset_of!(FlowEthFilter, ether_type), Number::hex(2).named(ETHER_TYPES)),
            // The identifier alone: the 12 low bits of the tag.
            number(
                "vlan",
                offset_of!(FlowEthFilter, vlan_tag),
                Number { masked: false, ..Number::decimal(2).bits(12) },
            ),
            number("vlan tci", offset_of!(FlowEthFilter, vlan_tag), Number::hex(2)),
        ],
    },
    Header {
        name: "mpls",
        type_: flow::SPEC_MPLS,
        size: size_of::<FlowMplsFilter>(),
        add: |rule, inner, value, mask| put(rule, inner, Mpls::from_filters(filter(value), filter(mask))),
        fields: &[
            // The label alone: the 20 high bits of the word.
            number(
                "mpls label",
                offset_of!(FlowMplsFilter, label),
                Number { shift: 12, masked: false, ..Number::decimal(4).bits(20) },
            ),
            number("mpls word", offset_of!(FlowMplsFilter, label), Number::hex(4)),
        ],
    },
    Header {
        name: "ip",
        type_: flow::SPEC_IPV4,
        size: size_of::<FlowIpv4Filter>(),
        add: |rule, inner, value, mask| put(rule, inner, Ipv4::from_filters(filter(value), filter(mask))),
        fields: &[
            field("ip src", offset_of!(FlowIpv4Filter, src_ip), Form::V4),
            field("ip dst", offset_of!(FlowIpv4Filter, dst_ip), Form::V4),
            number("ip proto", offset_of!(FlowIpv4Filter, proto), Number::decimal(1).named(PROTOCOLS)),
            number("ip tos", offset_of!(FlowIpv4Filter, tos), Number::hex(1)),
            number("ip ttl", offset_of!(FlowIpv4Filter, ttl), Number::decimal(1)),
            // Three bits on the wire, but the filter has a byte.
            number(
                "ip flags",
                offset_of!(FlowIpv4Filter, flags),
                Number { limit: 0xff, ..Number::hex(1).bits(3) },
            ),
        ],
    },
    Header {
        name: "ip6",
        type_: flow::SPEC_IPV6,
        size: size_of::<FlowIpv6Filter>(),
        add: |rule, inner, value, mask| put(rule, inner, Ipv6::from_filters(filter(value), filter(mask))),
        fields: &[
            field("ip6 src", offset_of!(FlowIpv6Filter, src_ip), Form::V6),
            field("ip6 dst", offset_of!(FlowIpv6Filter, dst_ip), Form::V6),
            number(
                "ip6 next-header",
                offset_of!(FlowIpv6Filter, next_hdr),
                Number::decimal(1).named(PROTOCOLS),
            ),
            number("ip6 tclass", offset_of!(FlowIpv6Filter, traffic_class), Number::hex(1)),
            number("ip6 hop-limit", offset_of!(FlowIpv6Filter, hop_limit), Number::decimal(1)),
            number("ip6 flow-label", offset_of!(FlowIpv6Filter, flow_label), Number::hex(4).bits(20)),
        ],
    },
    Header {
        name: "tcp",
        type_: flow::SPEC_TCP,
        size: size_of::<FlowTcpUdpFilter>(),
        add: |rule, inner, value, mask| put(rule, inner, Tcp::from_filters(filter(value), filter(mask))),
        fields: &[
            number("tcp src port", offset_of!(FlowTcpUdpFilter, src_port), Number::decimal(2)),
            number("tcp dst port", offset_of!(FlowTcpUdpFilter, dst_port), Number::decimal(2)),
        ],
    },
    Header {
        name: "udp",
        type_: flow::SPEC_UDP,
        size: size_of::<FlowTcpUdpFilter>(),
        add: |rule, inner, value, mask| put(rule, inner, Udp::from_filters(filter(value), filter(mask))),
        fields: &[
            number("udp src port", offset_of!(FlowTcpUdpFilter, src_port), Number::decimal(2)),
            number("udp dst port", offset_of!(FlowTcpUdpFilter, dst_port), Number::decimal(2)),
        ],
    },
    Header {
        name: "esp",
        type_: flow::SPEC_ESP,
        size: size_of::<FlowEspFilter>(),
        add: |rule, inner, value, mask| put(rule, inner, Esp::from_filters(filter(value), filter(mask))),
        fields: &[
            number("esp spi", offset_of!(FlowEspFilter, spi), Number::hex(4)),
            number("esp seq", offset_of!(FlowEspFilter, seq), Number::decimal(4)),
        ],
    },
    Header {
        name: "gre",
        type_: flow::SPEC_GRE,
        size: size_of::<FlowGreFilter>(),
        add: |rule, inner, value, mask| put(rule, inner, Gre::from_filters(filter(value), filter(mask))),
        fields: &[
            number("gre flags", offset_of!(FlowGreFilter, c_ks_res0_ver), Number::hex(2)),
            number("gre proto", offset_of!(FlowGreFilter, protocol), Number::hex(2).named(ETHER_TYPES)),
            number("gre key", offset_of!(FlowGreFilter, key), Number::decimal(4)),
        ],
    },
    Header {
        name: "vxlan",
        type_: flow::SPEC_VXLAN_TUNNEL,
        size: size_of::<FlowTunnelFilter>(),
        add: |rule, _, value, mask| rule.vxlan(Vxlan::from_filters(filter(value), filter(mask))),
        fields: &[number("vxlan vni", offset_of!(FlowTunnelFilter, tunnel_id), Number::decimal(4).bits(24))],
    },
];
