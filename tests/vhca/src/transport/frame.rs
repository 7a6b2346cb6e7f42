//! Packets in Ethernet frames: RoCE v2, over UDP and IPv4 or IPv6. `infiniband` has those on an InfiniBand wire.
//!
//! Source: annex A17 of the InfiniBand Architecture Specification 1.4, volume 1 (RoCEv2).

pub(super) mod infiniband;

use super::completion::is_ipv4;
use crate::packet::header_checksum;
use crate::transport::route::Route;
use uverbs::raw::roce::Packet;
use uverbs::raw::roce::{BASE, Malformed, icrc};

/// UDP's destination port.
pub(crate) const PORT: u16 = 4791;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const UDP: u8 = 17;

// Sizes of headers, and of the invariant checksum.
const ETHERNET: usize = 14;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const SUM: usize = 4;

/// Why a frame contains no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("neither RoCE v2 nor a packet of InfiniBand's transport")]
    Other,
    #[error("lengths do not fit together")]
    Length,
    #[error("the header of IPv4 has a wrong checksum")]
    Checksum,
    #[error("wrong ICRC")]
    Sum,
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

/// Number of bytes that [`build`] returns.
pub(crate) fn len(route: &Route, packet: &Packet) -> usize {
    let network = if is_v4(route) { IPV4_HEADER } else { IPV6_HEADER };
    ETHERNET + network + UDP_HEADER + packet.size() + SUM
}

/// Whether it uses IPv4.
fn is_v4(route: &Route) -> bool {
    is_ipv4(&route.sgid) && is_ipv4(&route.dgid)
}

/// The frame of a packet, without the frame check sequence.
pub(crate) fn build(route: &Route, packet: &Packet) -> Vec<u8> {
    let transport = packet.to_bytes();
    let datagram = (UDP_HEADER + transport.len() + SUM) as u16;
    let mut frame = [route.dmac, route.smac].as_flattened().to_vec();
    frame.extend(if is_v4(route) { IPV4 } else { IPV6 }.to_be_bytes());
    if is_v4(route) {
        let mut header = [0; IPV4_HEADER];
        (header[0], header[1]) = (0x45, route.traffic_class);
        header[2..4].copy_from_slice(&(IPV4_HEADER as u16 + datagram).to_be_bytes());
        header[6] = 0x40; // not to be fragmented
        (header[8], header[9]) = (route.hop_limit, UDP);
        header[12..16].copy_from_slice(&route.sgid[12..]);
        header[16..20].copy_from_slice(&route.dgid[12..]);
        let checksum = header_checksum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(header);
    } else {
        frame.extend(ipv6_header(route, UDP, datagram));
    }
    frame.extend([route.udp_source.to_be_bytes(), PORT.to_be_bytes()].as_flattened());
    frame.extend([datagram.to_be_bytes(), [0; 2]].as_flattened());
    frame.extend(transport);
    let sum = sum(&frame[ETHERNET..]);
    frame.extend(sum);
    frame
}

/// The header of IPv6, which InfiniBand also has, before `len` bytes.
fn ipv6_header(route: &Route, next: u8, len: u16) -> Vec<u8> {
    let first = 6 << 28 | u32::from(route.traffic_class) << 20 | route.flow_label & 0xf_ffff;
    let mut header = first.to_be_bytes().to_vec();
    header.extend(len.to_be_bytes());
    header.extend([next, route.hop_limit]);
    header.extend([route.sgid, route.dgid].as_flattened());
    header
}

/// Parses the packet in a frame. Bytes after the packet are Ethernet padding.
///
/// # Errors
/// The first error that is found.
pub(crate) fn parse(frame: &[u8]) -> Result<(Route, Packet), Refused> {
    let (macs, rest) = frame.split_first_chunk::<{ ETHERNET - 2 }>().ok_or(Refused::Other)?;
    let (ethertype, ip) = rest.split_first_chunk().ok_or(Refused::Other)?;
    let mut route = Route { has_grh: true, ..Route::default() };
    route.dmac.copy_from_slice(&macs[..6]);
    route.smac.copy_from_slice(&macs[6..]);
    let header = match u16::from_be_bytes(*ethertype) {
        IPV4 => ipv4(ip, &mut route)?,
        IPV6 => ipv6(ip, UDP, &mut route)?,
        _ => return Err(Refused::Other),
    };
    let len = total_len(ip);
    let ip = ip.get(..len).ok_or(Refused::Length)?;
    let udp = ip.get(header..).ok_or(Refused::Length)?;
    let (head, transport) = udp.split_first_chunk::<UDP_HEADER>().ok_or(Refused::Length)?;
    if half(head, 2) != PORT {
        return Err(Refused::Other);
    }
    if usize::from(half(head, 4)) != udp.len() {
        return Err(Refused::Length);
    }
    route.udp_source = half(head, 0);
    let (transport, found) = transport.split_last_chunk::<SUM>().ok_or(Refused::Length)?;
    if transport.len() < BASE {
        return Err(Malformed::Short.into());
    }
    if sum(&ip[..ip.len() - SUM]) != *found {
        return Err(Refused::Sum);
    }
    Ok((route, Packet::from_bytes(transport)?))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Length of an IP packet in bytes, from its header, which must be complete.
fn total_len(ip: &[u8]) -> usize {
    match ip[0] >> 4 {
        4 => half(ip, 2).into(),
        _ => IPV6_HEADER + usize::from(half(ip, 4)),
    }
}

/// Takes the addresses from a header, and returns its length.
fn ipv4(ip: &[u8], route: &mut Route) -> Result<usize, Refused> {
    let header: &[u8; IPV4_HEADER] = ip.first_chunk().ok_or(Refused::Length)?;
    // Options and fragments are refused.
    if header[0] != 0x45 || half(header, 6) & 0x3fff != 0 || header[9] != UDP {
        return Err(Refused::Other);
    }
    if header_checksum(header) != 0 {
        return Err(Refused::Checksum);
    }
    (route.traffic_class, route.hop_limit) = (header[1], header[8]);
    for (gid, at) in [(&mut route.sgid, 12), (&mut route.dgid, 16)] {
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&header[at..at + 4]);
    }
    Ok(IPV4_HEADER)
}

/// The same for IPv6; `next` is the expected next header.
fn ipv6(ip: &[u8], next: u8, route: &mut Route) -> Result<usize, Refused> {
    let header: &[u8; IPV6_HEADER] = ip.first_chunk().ok_or(Refused::Length)?;
    if header[0] >> 4 != 6 || header[6] != next {
        return Err(Refused::Other);
    }
    let first = u32::from(half(header, 0)) << 16 | u32::from(half(header, 2));
    (route.traffic_class, route.flow_label) = ((first >> 20) as u8, first & 0xf_ffff);
    route.hop_limit = header[7];
    route.sgid.copy_from_slice(&header[8..24]);
    route.dgid.copy_from_slice(&header[24..]);
    Ok(IPV6_HEADER)
}

/// The invariant checksum (ICRC) of a packet from its IP header on.
fn sum(ip: &[u8]) -> [u8; SUM] {
    let header = if ip[0] >> 4 == 4 { IPV4_HEADER } else { IPV6_HEADER };
    let (head, transport) = ip.split_at(header + UDP_HEADER);
    icrc::of_packet(head, transport)
}

#[cfg(test)]
mod tests;
