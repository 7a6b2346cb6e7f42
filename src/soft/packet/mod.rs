//! The fields of a frame that steering may compare, in one flat block.
//!
//! [`Headers`] corresponds to `fte_match_param` of mlx5 (include/linux/mlx5/mlx5_ifc.h, Linux 6.1): every field that a rule can match has
//! its own place, separately for outer and inner headers. A rule consists of two such blocks, mask and value, and a frame matches if
//! `fields & mask == value` over the whole block: see [`super::matcher`]. [`Headers::read`], in [`parse`], fills the block.
//!
//! A field that a frame does not have is zero. Where zero could be mistaken for a value, there are `present` bits: a mask on such a field
//! also requires the bit, so that "port 0" never matches a frame without ports.

mod depth;
mod parse;

pub(crate) use depth::Depth;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, transmute, transmute_ref};

/// Bits of [`Layer::present`].
pub(crate) mod in_layer {
    /// Ethernet addresses and ethertype.
    pub(crate) const ETHERNET: u8 = 1;
    /// TCP or UDP ports. A fragment after the first has the protocol, but not these.
    pub(crate) const PORTS: u8 = 2;
    /// A label stack between Ethernet and IP.
    pub(crate) const MPLS: u8 = 4;
    /// IPsec payload header.
    pub(crate) const ESP: u8 = 8;
}

/// Bits of [`Headers::present`].
pub(crate) mod in_tunnel {
    /// VXLAN with a valid network identifier.
    pub(crate) const VXLAN: u8 = 1;
    /// GRE.
    pub(crate) const GRE: u8 = 2;
    /// GRE with its key.
    pub(crate) const GRE_KEY: u8 = 4;
    /// A label stack straight after GRE.
    pub(crate) const MPLS_OVER_GRE: u8 = 8;
    /// A label stack straight after UDP.
    pub(crate) const MPLS_OVER_UDP: u8 = 16;
}

/// Headers from Ethernet to the transport, of the frame or of the frame inside its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Layer {
    pub(crate) dst_mac: [u8; 6],
    pub(crate) src_mac: [u8; 6],
    /// Ethertype after the VLAN tags.
    pub(crate) ether_type: U16,
    /// Tag control information of the first tag.
    pub(crate) vlan_tci: U16,
    /// 4 or 6: from the header itself, whatever announced it.
    pub(crate) ip_version: u8,
    /// IPv4 protocol, or IPv6 next header after the extension headers.
    pub(crate) proto: u8,
    /// Type of service or traffic class.
    pub(crate) tos: u8,
    /// Time to live or hop limit.
    pub(crate) ttl: u8,
    /// Fragment flags as verbs number them: 2 don't fragment, 4 more fragments (`enum ib_ipv4_flags`).
    pub(crate) ip_flags: u8,
    /// 1 if the first tag is a C-VLAN (0x8100): `cvlan_tag`.
    pub(crate) c_vlan: u8,
    /// Of [`in_layer`].
    pub(crate) present: u8,
    pub(crate) reserved: u8,
    pub(crate) tcp_dst: U16,
    pub(crate) tcp_src: U16,
    pub(crate) udp_dst: U16,
    pub(crate) udp_src: U16,
    /// IPv6 address, or IPv4 address in the last 4 bytes: `src_ipv4_src_ipv6`.
    pub(crate) src_ip: [u8; 16],
    pub(crate) dst_ip: [u8; 16],
    pub(crate) flow_label: U32,
    /// First entry of the label stack before IP.
    pub(crate) mpls: U32,
    pub(crate) esp_spi: U32,
    pub(crate) esp_seq: U32,
}

/// All fields of a frame that can be matched. Aligned as [`Words`], so that it can be read as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub(crate) struct Headers {
    pub(crate) outer: Layer,
    pub(crate) inner: Layer,
    pub(crate) vxlan_vni: U32,
    pub(crate) gre_protocol: U16,
    /// First 16 bits of GRE: which fields are present, and the version.
    pub(crate) gre_flags: U16,
    pub(crate) gre_key: U32,
    pub(crate) mpls_over_gre: U32,
    pub(crate) mpls_over_udp: U32,
    /// Port of the device, which the steering table fills in.
    pub(crate) port: u8,
    /// Of [`in_tunnel`].
    pub(crate) present: u8,
    pub(crate) reserved: [u8; 2],
}

/// [`Headers`] as words, for comparing and hashing.
pub(crate) type Words = [u64; size_of::<Headers>() / 8];

impl Headers {
    /// No field at all.
    pub(crate) fn none() -> Self {
        Self::new_zeroed()
    }

    /// The fields of an Ethernet frame. If the frame is truncated, those that could be read.
    #[cfg(test)]
    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut headers = Self::none();
        headers.fill(frame, Depth::Tunnel);
        headers
    }

    /// Reads the fields of an Ethernet frame up to this depth. The block must be empty.
    #[inline]
    pub(crate) fn fill(&mut self, frame: &[u8], depth: Depth) {
        // `None` only means that the frame ended, or that the next header is unknown or not needed.
        let _ = self.read(frame, depth);
    }

    /// The block as words.
    pub(crate) fn words(self) -> Words {
        transmute!(self)
    }

    /// The block as words, by reference.
    pub(crate) fn as_words(&self) -> &Words {
        transmute_ref!(self)
    }

    /// Whether the frame is addressed to a group: the bit that mlx5's leftover rules check (`create_leftovers_rule`,
    /// drivers/infiniband/hw/mlx5/fs.c, Linux 6.1).
    pub(crate) fn multicast(&self) -> bool {
        self.outer.dst_mac[0] & 1 != 0
    }
}

#[cfg(test)]
mod tests;
