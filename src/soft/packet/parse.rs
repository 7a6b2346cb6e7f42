//! Parses [`Headers`] from a frame.
//!
//! No length in the frame is trusted: every step takes its bytes from the rest or stops, and the number of repeated headers is limited.
//! If the frame ends early, this is not an error, and the remaining fields are absent.

use super::{Depth, Headers, Layer, in_layer, in_tunnel};
use zerocopy::big_endian::{U16, U32};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const C_VLAN: u16 = 0x8100;
const S_VLAN: u16 = 0x88a8;
/// Ethernet in GRE (RFC 7637 and others).
const BRIDGED: u16 = 0x6558;

const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const ESP: u8 = 50;

const VXLAN_PORT: u16 = 4789;
const MPLS_PORT: u16 = 6635;

/// mlx5 has a first and a second tag (`outer_second_vid`, mlx5_ifc.h); a third one is an unknown ethertype.
const MAX_TAGS: usize = 2;
/// Far more than any reasonable sender uses.
const MAX_EXTENSIONS: usize = 8;
const MAX_LABELS: usize = 16;

/// Takes the next `N` bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*taken)
}

/// Skips `length` bytes.
fn skip(rest: &mut &[u8], length: usize) -> Option<()> {
    *rest = rest.get(length..)?;
    Some(())
}

/// Limits the rest to `length` bytes, so that padding of the frame is never read as a header.
fn limit(rest: &mut &[u8], length: usize) {
    *rest = rest.get(..length).unwrap_or(rest);
}

/// The ethertype of a packet by its IP version, for packets after a label stack, which does not contain it.
fn by_version(rest: &[u8]) -> Option<u16> {
    match rest.first()? >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

/// Parses a label stack; `first` gets its first entry.
fn labels(rest: &mut &[u8], first: &mut U32, present: &mut u8, bit: u8) -> Option<u16> {
    for depth in 0..MAX_LABELS {
        let entry = take::<4>(rest)?;
        if depth == 0 {
            *first = U32::from_bytes(entry);
            *present |= bit;
        }
        if entry[2] & 1 != 0 {
            return by_version(rest);
        }
    }
    None
}

impl Headers {
    /// Fills the block from a frame, up to a depth. `None` if the frame ends, or if the next header is unknown.
    #[inline]
    pub(super) fn read(&mut self, mut rest: &[u8], depth: Depth) -> Option<()> {
        let rest = &mut rest;
        if depth < Depth::Ethernet {
            return None;
        }
        let ether_type = self.outer.ethernet(rest)?;
        if depth < Depth::Network {
            return None;
        }
        let proto = self.outer.network(ether_type, rest)?;
        match depth {
            Depth::Nothing | Depth::Ethernet | Depth::Network => None,
            Depth::Transport => self.outer.transport(proto, rest),
            Depth::Tunnel => self.transport(proto, rest),
        }
    }

    /// The transport header of the frame, or the tunnel in its place or after it.
    fn transport(&mut self, proto: u8, rest: &mut &[u8]) -> Option<()> {
        match proto {
            UDP => {
                self.outer.transport(UDP, rest)?;
                match self.outer.udp_dst.get() {
                    VXLAN_PORT => self.vxlan(rest),
                    MPLS_PORT => {
                        let bit = in_tunnel::MPLS_OVER_UDP;
                        let kind = labels(rest, &mut self.mpls_over_udp, &mut self.present, bit)?;
                        self.inner.packet(kind, rest)
                    }
                    _ => None,
                }
            }
            GRE => self.gre(rest),
            proto => self.outer.transport(proto, rest),
        }
    }

    /// VXLAN (RFC 7348). Without its I flag the identifier has no meaning, and nothing is read.
    fn vxlan(&mut self, rest: &mut &[u8]) -> Option<()> {
        let [flags, _, _, _, a, b, c, _] = take::<8>(rest)?;
        if flags & 0x08 == 0 {
            return None;
        }
        self.vxlan_vni = U32::from_bytes([0, a, b, c]);
        self.present |= in_tunnel::VXLAN;
        let ether_type = self.inner.ethernet(rest)?;
        self.inner.packet(ether_type, rest)
    }

    /// GRE (RFC 2784, 2890). With version 1, or with the routing field of RFC 1701, parsing ends after the first word.
    fn gre(&mut self, rest: &mut &[u8]) -> Option<()> {
        const CHECKSUM: u16 = 0x8000;
        const ROUTING: u16 = 0x4000;
        const KEY: u16 = 0x2000;
        const SEQUENCE: u16 = 0x1000;
        const VERSION: u16 = 0x0007;

        let [a, b, c, d] = take::<4>(rest)?;
        let (flags, protocol) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        self.gre_flags = flags.into();
        self.gre_protocol = protocol.into();
        self.present |= in_tunnel::GRE;
        if flags & (ROUTING | VERSION) != 0 {
            return None;
        }
        if flags & CHECKSUM != 0 {
            skip(rest, 4)?;
        }
        if flags & KEY != 0 {
            self.gre_key = U32::from_bytes(take(rest)?);
            self.present |= in_tunnel::GRE_KEY;
        }
        if flags & SEQUENCE != 0 {
            skip(rest, 4)?;
        }
        let kind = match protocol {
            BRIDGED => self.inner.ethernet(rest)?,
            MPLS | MPLS_MULTICAST => {
                let bit = in_tunnel::MPLS_OVER_GRE;
                labels(rest, &mut self.mpls_over_gre, &mut self.present, bit)?
            }
            other => other,
        };
        self.inner.packet(kind, rest)
    }
}

impl Layer {
    /// Addresses, tags, ethertype. Returns the ethertype.
    fn ethernet(&mut self, rest: &mut &[u8]) -> Option<u16> {
        let dst_mac = take(rest)?;
        let src_mac = take(rest)?;
        let mut ether_type = u16::from_be_bytes(take(rest)?);
        (self.dst_mac, self.src_mac) = (dst_mac, src_mac);
        self.present |= in_layer::ETHERNET;
        for tag in 0..MAX_TAGS {
            self.ether_type = ether_type.into();
            if !matches!(ether_type, C_VLAN | S_VLAN) {
                break;
            }
            let tci = U16::from_bytes(take(rest)?);
            if tag == 0 {
                self.vlan_tci = tci;
                self.c_vlan = u8::from(ether_type == C_VLAN);
            }
            ether_type = u16::from_be_bytes(take(rest)?);
        }
        self.ether_type = ether_type.into();
        Some(ether_type)
    }

    /// Network and transport headers, if no tunnel is expected.
    fn packet(&mut self, ether_type: u16, rest: &mut &[u8]) -> Option<()> {
        let proto = self.network(ether_type, rest)?;
        self.transport(proto, rest)
    }

    /// Label stack and IP header. Returns the protocol of the next header, if there is one.
    fn network(&mut self, ether_type: u16, rest: &mut &[u8]) -> Option<u8> {
        let ether_type = match ether_type {
            MPLS | MPLS_MULTICAST => labels(rest, &mut self.mpls, &mut self.present, in_layer::MPLS)?,
            other => other,
        };
        match ether_type {
            IPV4 => self.ipv4(rest),
            IPV6 => self.ipv6(rest),
            _ => None,
        }
    }

    fn ipv4(&mut self, rest: &mut &[u8]) -> Option<u8> {
        let start = *rest;
        let head = take::<20>(rest)?;
        let header = usize::from(head[0] & 0xf) * 4;
        if head[0] >> 4 != 4 || header < 20 {
            return None;
        }
        self.ip_version = 4;
        self.tos = head[1];
        let fragment = u16::from_be_bytes([head[6], head[7]]);
        // On the wire 0x4000 is "don't fragment" and 0x2000 "more fragments"; verbs use the reverse order.
        self.ip_flags = u8::from(fragment & 0x4000 != 0) << 1 | u8::from(fragment & 0x2000 != 0) << 2;
        self.ttl = head[8];
        self.proto = head[9];
        self.src_ip[12..].copy_from_slice(&head[12..16]);
        self.dst_ip[12..].copy_from_slice(&head[16..20]);
        if fragment & 0x1fff != 0 {
            return None;
        }
        *rest = start;
        // A sender leaves zero here if it segments large packets later (segmentation offload).
        match usize::from(u16::from_be_bytes([head[2], head[3]])) {
            0 => {}
            total => limit(rest, total),
        }
        skip(rest, header)?;
        Some(self.proto)
    }

    fn ipv6(&mut self, rest: &mut &[u8]) -> Option<u8> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const AUTHENTICATION: u8 = 51;
        const DESTINATION: u8 = 60;

        let head = take::<40>(rest)?;
        if head[0] >> 4 != 6 {
            return None;
        }
        self.ip_version = 6;
        self.tos = head[0] << 4 | head[1] >> 4;
        self.flow_label = U32::from_bytes([0, head[1] & 0xf, head[2], head[3]]);
        self.proto = head[6];
        self.ttl = head[7];
        self.src_ip.copy_from_slice(&head[8..24]);
        self.dst_ip.copy_from_slice(&head[24..40]);
        // Zero means a jumbogram, or segmentation offload.
        match usize::from(u16::from_be_bytes([head[4], head[5]])) {
            0 => {}
            payload => limit(rest, payload),
        }
        for _ in 0..MAX_EXTENSIONS {
            let length = match self.proto {
                HOP_BY_HOP | ROUTING | DESTINATION => 8 + usize::from(*rest.get(1)?) * 8,
                AUTHENTICATION => 8 + usize::from(*rest.get(1)?) * 4,
                FRAGMENT => 8,
                proto => return Some(proto),
            };
            let this = self.proto;
            let extension = *rest;
            self.proto = *extension.first()?;
            skip(rest, length)?;
            // The low three bits are two reserved ones and "more fragments"; the rest is the offset.
            if this == FRAGMENT && u16::from_be_bytes([extension[2], extension[3]]) & !7 != 0 {
                return None;
            }
        }
        None
    }

    /// Ports, or the IPsec header.
    fn transport(&mut self, proto: u8, rest: &mut &[u8]) -> Option<()> {
        match proto {
            TCP | UDP => {
                let [a, b, c, d] = take::<4>(rest)?;
                let (src, dst) = (U16::from_bytes([a, b]), U16::from_bytes([c, d]));
                self.present |= in_layer::PORTS;
                if proto == UDP {
                    (self.udp_src, self.udp_dst) = (src, dst);
                    // Length and checksum; the header of a tunnel follows.
                    return skip(rest, 4);
                }
                (self.tcp_src, self.tcp_dst) = (src, dst);
            }
            ESP => {
                self.esp_spi = U32::from_bytes(take(rest)?);
                self.esp_seq = U32::from_bytes(take(rest)?);
                self.present |= in_layer::ESP;
            }
            _ => {}
        }
        Some(())
    }
}
