//! What a rule matches: one type for each header, with value and mask.
//!
//! Numbers are given in host order and kept in network order by the ABI's types. A field that is not named
//! matches anything. `_masked` forms match only the bits that are set in the mask.

use std::net::{Ipv4Addr, Ipv6Addr};

use uverbs_abi::flow::{
    self, FlowEspFilter, FlowEthFilter, FlowGreFilter, FlowIpv4Filter, FlowIpv6Filter, FlowMplsFilter,
    FlowSpecEsp, FlowSpecEth, FlowSpecGre, FlowSpecHdr, FlowSpecIpv4, FlowSpecIpv6, FlowSpecMpls,
    FlowSpecTcpUdp, FlowSpecTunnel, FlowTcpUdpFilter, FlowTunnelFilter,
};
use zerocopy::{FromZeros, IntoBytes};

/// A header that a rule can match; sealed.
pub trait Spec: sealed::Sealed {}

/// A header that a rule can also match inside a tunnel; sealed.
pub trait InnerSpec: Spec {}

pub(super) mod sealed {
    /// Writes a spec in the kernel's layout, its type with `flag` added, with `put`.
    pub trait Sealed {
        /// The layer for which the builder checks contradictions.
        const LAYER: Layer;
        /// The kernel's number for the header.
        const TYPE: u32;

        fn encode(&self, flag: u32, put: &mut dyn FnMut(&[u8]));

        /// The Ethertype that the header requires, if it names one in full.
        fn ether_type(&self) -> Option<u16> {
            None
        }
    }

    /// Headers of one layer exclude each other.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Layer {
        Link,
        Ipv4,
        Ipv6,
        Transport,
        Tunnel,
        Label,
    }
}

use sealed::{Layer, Sealed};

fn header<T>(type_: u32, flag: u32) -> FlowSpecHdr {
    FlowSpecHdr { type_: type_ | flag, size: size_of::<T>() as u16, reserved: 0 }
}

macro_rules! specs {
    ($(
        $(#[$doc:meta])*
        $name:ident: $filter:ident in $spec:ident = $type_:ident, $layer:ident $(, $inner:ident)?;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name {
                val: $filter,
                mask: $filter,
            }

            impl $name {
                /// Matches any header of this type.
                pub fn any() -> Self {
                    Self { val: $filter::new_zeroed(), mask: $filter::new_zeroed() }
                }

                /// The header with this value and mask.
                pub(super) fn from_filters(val: $filter, mask: $filter) -> Self {
                    Self { val, mask }
                }

                /// Value and mask in the kernel's layout.
                pub fn filters(&self) -> (&$filter, &$filter) {
                    (&self.val, &self.mask)
                }
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::any()
                }
            }

            impl Spec for $name {}

            $(impl $inner for $name {})?

            impl Sealed for $name {
                const LAYER: Layer = Layer::$layer;
                const TYPE: u32 = flow::$type_;

                fn encode(&self, flag: u32, put: &mut dyn FnMut(&[u8])) {
                    let hdr = header::<$spec>(flow::$type_, flag);
                    let mut spec = $spec { hdr, val: self.val, mask: self.mask };
                    keep(spec.val.as_mut_bytes(), spec.mask.as_bytes());
                    put(spec.as_bytes());
                }

                fn ether_type(&self) -> Option<u16> {
                    ether_type(self.val.as_bytes(), self.mask.as_bytes(), Self::LAYER)
                }
            }
        )*
    };
}

/// Clears the bits outside the mask: mlx5 refuses a value with such bits (check_valid_spec, fs_core.c, Linux 6.1), although they have no
/// effect.
fn keep(val: &mut [u8], mask: &[u8]) {
    val.iter_mut().zip(mask).for_each(|(val, mask)| *val &= mask);
}

/// The Ethertype of a link filter, if its mask is full.
fn ether_type(val: &[u8], mask: &[u8], layer: Layer) -> Option<u16> {
    let at = std::mem::offset_of!(FlowEthFilter, ether_type);
    let named = layer == Layer::Link && mask.get(at..at + 2)? == [0xff; 2];
    let bytes = val.get(at..at + 2)?.try_into().ok()?;
    named.then(|| u16::from_be_bytes(bytes))
}

specs! {
    /// An Ethernet header.
    #[doc(alias = "ibv_flow_spec_eth")]
    #[doc(alias = "IBV_FLOW_SPEC_ETH")]
    Eth: FlowEthFilter in FlowSpecEth = SPEC_ETH, Link, InnerSpec;
    /// An IPv4 header.
    #[doc(alias = "ibv_flow_spec_ipv4")]
    #[doc(alias = "ibv_flow_spec_ipv4_ext")]
    #[doc(alias = "IBV_FLOW_SPEC_IPV4")]
    #[doc(alias = "IBV_FLOW_SPEC_IPV4_EXT")]
    Ipv4: FlowIpv4Filter in FlowSpecIpv4 = SPEC_IPV4, Ipv4, InnerSpec;
    /// An IPv6 header.
    #[doc(alias = "ibv_flow_spec_ipv6")]
    #[doc(alias = "IBV_FLOW_SPEC_IPV6")]
    Ipv6: FlowIpv6Filter in FlowSpecIpv6 = SPEC_IPV6, Ipv6, InnerSpec;
    /// A TCP header.
    #[doc(alias = "ibv_flow_spec_tcp_udp")]
    #[doc(alias = "IBV_FLOW_SPEC_TCP")]
    Tcp: FlowTcpUdpFilter in FlowSpecTcpUdp = SPEC_TCP, Transport, InnerSpec;
    /// A UDP header.
    #[doc(alias = "ibv_flow_spec_tcp_udp")]
    #[doc(alias = "IBV_FLOW_SPEC_UDP")]
    Udp: FlowTcpUdpFilter in FlowSpecTcpUdp = SPEC_UDP, Transport, InnerSpec;
    /// An IPsec ESP header. mlx5 cannot match it.
    #[doc(alias = "ibv_flow_spec_esp")]
    #[doc(alias = "IBV_FLOW_SPEC_ESP")]
    Esp: FlowEspFilter in FlowSpecEsp = SPEC_ESP, Transport, InnerSpec;
    /// A GRE header.
    #[doc(alias = "ibv_flow_spec_gre")]
    #[doc(alias = "IBV_FLOW_SPEC_GRE")]
    Gre: FlowGreFilter in FlowSpecGre = SPEC_GRE, Transport, InnerSpec;
    /// A VXLAN header; only an outer one.
    #[doc(alias = "ibv_flow_spec_tunnel")]
    #[doc(alias = "IBV_FLOW_SPEC_VXLAN_TUNNEL")]
    Vxlan: FlowTunnelFilter in FlowSpecTunnel = SPEC_VXLAN_TUNNEL, Tunnel;
    /// The first MPLS label of a stack.
    #[doc(alias = "ibv_flow_spec_mpls")]
    #[doc(alias = "IBV_FLOW_SPEC_MPLS")]
    Mpls: FlowMplsFilter in FlowSpecMpls = SPEC_MPLS, Label, InnerSpec;
}

/// Methods that set one field: all of its bits, or those of a mask.
macro_rules! fields {
    ($($(#[$doc:meta])* $field:ident: $full:ident, $masked:ident($type:ty => $convert:expr) = $all:expr;)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $full(self, value: $type) -> Self {
                self.$masked(value, $all)
            }

            $(#[$doc])*
            ///
            /// Only the bits that are set in `mask` count.
            #[must_use]
            pub fn $masked(mut self, value: $type, mask: $type) -> Self {
                let convert = $convert;
                self.val.$field = convert(value);
                self.mask.$field = convert(mask);
                self
            }
        )*
    };
}

/// Stores a value unchanged. Other fields store it in network byte order.
fn same<T>(value: T) -> T {
    value
}

impl Eth {
    fields! {
        /// Destination address.
        dst_mac: dst, dst_masked([u8; 6] => same) = [0xff; 6];
        /// Source address.
        src_mac: src, src_masked([u8; 6] => same) = [0xff; 6];
        /// Ethertype behind the VLAN tags; must agree with an IP header in the same rule.
        ether_type: ether_type, ether_type_masked(u16 => Into::into) = 0xffff;
        /// Tag control information of the outermost VLAN tag. If the mask has any bit, the packet must have a tag.
        vlan_tag: vlan_tci, vlan_tci_masked(u16 => Into::into) = 0xffff;
    }

    /// VLAN identifier, 12 bits; any priority and drop eligibility match.
    #[must_use]
    pub fn vlan(self, id: VlanId) -> Self {
        self.vlan_tci_masked(id.get() as u16, 0x0fff)
    }
}

impl Ipv4 {
    fields! {
        /// Source address.
        src_ip: src, src_masked(Ipv4Addr => |address: Ipv4Addr| u32::from(address).into()) = Ipv4Addr::BROADCAST;
        /// Destination address.
        dst_ip: dst, dst_masked(Ipv4Addr => |address: Ipv4Addr| u32::from(address).into()) = Ipv4Addr::BROADCAST;
        /// Protocol number; a transport header in the same rule sets it by itself.
        proto: protocol, protocol_masked(u8 => same) = 0xff;
        /// Type of service: DSCP and ECN.
        tos: tos, tos_masked(u8 => same) = 0xff;
        /// Time to live. mlx5 cannot match it.
        ttl: ttl, ttl_masked(u8 => same) = 0xff;
        /// Flags of fragmentation, in the low three bits. mlx5 cannot match them.
        flags: flags, flags_masked(u8 => same) = 0x07;
    }
}

impl Ipv6 {
    fields! {
        /// Source address.
        src_ip: src, src_masked(Ipv6Addr => |address: Ipv6Addr| address.octets()) = Ipv6Addr::from_bits(!0);
        /// Destination address.
        dst_ip: dst, dst_masked(Ipv6Addr => |address: Ipv6Addr| address.octets()) = Ipv6Addr::from_bits(!0);
        /// Next header behind extension headers; a transport header in the same rule sets it by itself.
        next_hdr: next_header, next_header_masked(u8 => same) = 0xff;
        /// Traffic class.
        traffic_class: traffic_class, traffic_class_masked(u8 => same) = 0xff;
        /// Hop limit. mlx5 cannot match it.
        hop_limit: hop_limit, hop_limit_masked(u8 => same) = 0xff;
        /// Flow label.
        flow_label: flow_label, flow_label_masked(FlowLabel => |label: FlowLabel| label.get().into()) = FlowLabel::MAX;
    }
}

impl Tcp {
    fields! {
        /// Destination port.
        dst_port: dst_port, dst_port_masked(u16 => Into::into) = 0xffff;
        /// Source port.
        src_port: src_port, src_port_masked(u16 => Into::into) = 0xffff;
    }
}

impl Udp {
    fields! {
        /// Destination port.
        dst_port: dst_port, dst_port_masked(u16 => Into::into) = 0xffff;
        /// Source port.
        src_port: src_port, src_port_masked(u16 => Into::into) = 0xffff;
    }
}

impl Esp {
    fields! {
        /// Security parameter index.
        spi: spi, spi_masked(u32 => Into::into) = !0;
        /// Sequence number.
        seq: sequence, sequence_masked(u32 => Into::into) = !0;
    }
}

impl Gre {
    fields! {
        /// The first 16 bits: which fields follow, and the version. mlx5 cannot match them.
        c_ks_res0_ver: flags, flags_masked(u16 => Into::into) = 0xffff;
        /// Ethertype of what is inside.
        protocol: protocol, protocol_masked(u16 => Into::into) = 0xffff;
        /// Key.
        key: key, key_masked(u32 => Into::into) = !0;
    }
}

impl Vxlan {
    fields! {
        /// Network identifier.
        tunnel_id: vni, vni_masked(Vni => |vni: Vni| vni.get().into()) = Vni::MAX;
    }
}

impl Mpls {
    fields! {
        /// The whole word: label (20 bits), traffic class (3), bottom of stack (1), time to live (8).
        label: word, word_masked(u32 => Into::into) = !0;
    }

    /// The label only.
    #[must_use]
    pub fn label(self, label: MplsLabel) -> Self {
        self.word_masked(label.get() << 12, MplsLabel::MAX.get() << 12)
    }
}

/// Numbers with fewer bits than their type.
macro_rules! bounded {
    ($($(#[$doc:meta])* $name:ident, $bits:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(u32);

            impl $name {
                /// The maximum.
                pub const MAX: Self = Self((1 << $bits) - 1);

                #[doc = concat!("The number, if it has no more than ", $bits, " bits.")]
                pub const fn new(value: u32) -> Option<Self> {
                    if value <= Self::MAX.0 { Some(Self(value)) } else { None }
                }

                /// The number.
                pub const fn get(self) -> u32 {
                    self.0
                }
            }
        )*
    };
}

bounded! {
    /// A VLAN identifier: 12 bits.
    VlanId, 12;
    /// The flow label of IPv6: 20 bits.
    FlowLabel, 20;
    /// The network identifier of VXLAN: 24 bits.
    Vni, 24;
    /// An MPLS label: 20 bits.
    MplsLabel, 20;
    /// A tag that completions carry: 24 bits on mlx5.
    FlowTag, 24;
}
