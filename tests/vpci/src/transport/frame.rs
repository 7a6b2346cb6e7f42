//! Packets in Ethernet frames: RoCE v2, over UDP and IPv4 or IPv6.
//!
//! Source: annex A17 of the InfiniBand Architecture Specification 1.4, volume 1 (RoCEv2).

use uverbs::raw::roce::{BASE, Malformed, PORT, Packet, icrc};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const UDP: u8 = 17;

// Sizes of headers, and of the invariant checksum.
const ETHERNET: usize = 14;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const SUM: usize = 4;

/// The source and destination of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The hardware address of the sender.
    pub smac: [u8; 6],
    /// The hardware address of the receiver.
    pub dmac: [u8; 6],
    /// The address of the sender: IPv6, or IPv4 as `::ffff:a.b.c.d`.
    pub sgid: [u8; 16],
    /// The address of the receiver.
    pub dgid: [u8; 16],
    /// The traffic class of IPv6, or the type of service of IPv4.
    pub traffic_class: u8,
    /// The flow label of IPv6, 20 bits.
    pub flow_label: u32,
    /// The number of routers that may pass it on.
    pub hop_limit: u8,
    /// UDP's source port; the destination is 4791.
    pub udp_source: u16,
}

/// Why a frame contains no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is of another protocol.
    #[error("not RoCE v2")]
    Other,
    /// A length is not that of what follows.
    #[error("lengths do not fit together")]
    Length,
    /// The checksum of the IPv4 header.
    #[error("the header of IPv4 has a wrong checksum")]
    Checksum,
    /// The invariant checksum.
    #[error("wrong ICRC")]
    Sum,
    /// The packet.
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

fn is_v4(gid: &[u8; 16]) -> bool {
    gid.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
}

/// The checksum of an IPv4 header in which it is zero; zero for a header with a valid checksum.
fn header_checksum(header: &[u8]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let mut sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The frame of a packet, without the frame check sequence. It uses IPv4 if both addresses are of IPv4.
pub fn build(route: &Route, packet: &Packet) -> Vec<u8> {
    let transport = packet.to_bytes();
    let datagram = (UDP_HEADER + transport.len() + SUM) as u16;
    let v4 = is_v4(&route.sgid) && is_v4(&route.dgid);
    let mut frame = [route.dmac, route.smac].as_flattened().to_vec();
    frame.extend(if v4 { IPV4 } else { IPV6 }.to_be_bytes());
    if v4 {
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
        let first = 6 << 28 | u32::from(route.traffic_class) << 20 | route.flow_label & 0xf_ffff;
        frame.extend(first.to_be_bytes());
        frame.extend(datagram.to_be_bytes());
        frame.extend([UDP, route.hop_limit]);
        frame.extend([route.sgid, route.dgid].as_flattened());
    }
    frame.extend([route.udp_source.to_be_bytes(), PORT.to_be_bytes()].as_flattened());
    frame.extend([datagram.to_be_bytes(), [0; 2]].as_flattened());
    frame.extend(transport);
    let header = if v4 { IPV4_HEADER } else { IPV6_HEADER };
    let (head, transport) = frame[ETHERNET..].split_at(header + UDP_HEADER);
    let sum = icrc::of_packet(head, transport);
    frame.extend(sum);
    frame
}

/// Parses the packet in a frame. Bytes after the packet are Ethernet padding.
///
/// # Errors
/// The first error that is found.
pub fn parse(frame: &[u8]) -> Result<(Route, Packet), Refused> {
    let (macs, rest) = frame.split_first_chunk::<{ ETHERNET - 2 }>().ok_or(Refused::Other)?;
    let (ethertype, ip) = rest.split_first_chunk().ok_or(Refused::Other)?;
    let mut route = Route::default();
    route.dmac.copy_from_slice(&macs[..6]);
    route.smac.copy_from_slice(&macs[6..]);
    let (header, len) = match u16::from_be_bytes(*ethertype) {
        IPV4 => ipv4(ip, &mut route)?,
        IPV6 => ipv6(ip, &mut route)?,
        _ => return Err(Refused::Other),
    };
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
    if icrc::of_packet(&ip[..header + UDP_HEADER], transport) != *found {
        return Err(Refused::Sum);
    }
    Ok((route, Packet::from_bytes(transport)?))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Takes the addresses from a header, and returns its length and that of the packet.
fn ipv4(ip: &[u8], route: &mut Route) -> Result<(usize, usize), Refused> {
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
    Ok((IPV4_HEADER, half(header, 2).into()))
}

fn ipv6(ip: &[u8], route: &mut Route) -> Result<(usize, usize), Refused> {
    let header: &[u8; IPV6_HEADER] = ip.first_chunk().ok_or(Refused::Length)?;
    if header[0] >> 4 != 6 || header[6] != UDP {
        return Err(Refused::Other);
    }
    let first = u32::from(half(header, 0)) << 16 | u32::from(half(header, 2));
    (route.traffic_class, route.flow_label) = ((first >> 20) as u8, first & 0xf_ffff);
    route.hop_limit = header[7];
    route.sgid.copy_from_slice(&header[8..24]);
    route.dgid.copy_from_slice(&header[24..]);
    Ok((IPV6_HEADER, IPV6_HEADER + usize::from(half(header, 4))))
}
