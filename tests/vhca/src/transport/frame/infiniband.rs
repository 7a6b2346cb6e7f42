//! Packets on an InfiniBand wire: the header of the link, the header of the network layer if there is one, and the packet with the
//! invariant checksum. The variant checksum of the link is left out, as the one of Ethernet is.
//!
//! Source: InfiniBand Architecture Specification 1.4, volume 1, sections 7.7, 7.8 and 8.3.

use super::{IPV6_HEADER, Refused, SUM, half, ipv6, ipv6_header};
use crate::transport::route::Route;
use uverbs::raw::roce::Packet;
use uverbs::raw::roce::icrc::Crc;
use uverbs::raw::roce::{BASE, Malformed};

/// Size of the link header in bytes.
const LINK: usize = 8;

/// The header after it: that of the packet, or that of the network layer. Other values belong to other transports.
const LOCAL: u8 = 2;
const GLOBAL: u8 = 3;

/// The value of that header for the next one.
const TRANSPORT: u8 = 0x1b;

/// Number of bytes that [`build`] returns.
pub(crate) fn len(route: &Route, packet: &Packet) -> usize {
    LINK + if route.has_grh { IPV6_HEADER } else { 0 } + packet.size() + SUM
}

/// A packet with all headers before it, and its checksum.
pub(crate) fn build(route: &Route, packet: &Packet) -> Vec<u8> {
    let transport = packet.to_bytes();
    let (next, network) = if route.has_grh { (GLOBAL, IPV6_HEADER) } else { (LOCAL, 0) };
    let words = (LINK + network + transport.len() + SUM) / 4;
    let mut frame = vec![0, route.service_level << 4 | next];
    frame.extend([route.dlid, words as u16, route.slid].map(u16::to_be_bytes).as_flattened());
    if route.has_grh {
        frame.extend(ipv6_header(route, TRANSPORT, (transport.len() + SUM) as u16));
    }
    frame.extend(transport);
    let sum = sum(&frame);
    frame.extend(sum);
    frame
}

/// Parses what [`build`] writes.
///
/// # Errors
/// The first error that is found.
pub(crate) fn parse(frame: &[u8]) -> Result<(Route, Packet), Refused> {
    let (link, rest) = frame.split_first_chunk::<LINK>().ok_or(Refused::Other)?;
    let has_grh = match link[1] & 3 {
        GLOBAL => true,
        LOCAL => false,
        _ => return Err(Refused::Other),
    };
    let mut route = Route {
        slid: half(link, 6),
        dlid: half(link, 2),
        service_level: link[1] >> 4,
        has_grh,
        ..Route::default()
    };
    if link[0] & 0xf != 0 {
        return Err(Refused::Other);
    }
    if usize::from(half(link, 4) & 0x7ff) * 4 != frame.len() {
        return Err(Refused::Length);
    }
    let mut transport = rest;
    if has_grh {
        let header = ipv6(rest, TRANSPORT, &mut route)?;
        transport = &rest[header..];
        if usize::from(half(rest, 4)) != transport.len() {
            return Err(Refused::Length);
        }
    }
    let (transport, found) = transport.split_last_chunk::<SUM>().ok_or(Refused::Length)?;
    if transport.len() < BASE {
        return Err(Malformed::Short.into());
    }
    if sum(&frame[..frame.len() - SUM]) != *found {
        return Err(Refused::Sum);
    }
    Ok((route, Packet::from_bytes(transport)?))
}

/// The invariant checksum (ICRC): fields that may change count as ones.
fn sum(frame: &[u8]) -> [u8; SUM] {
    let is_global = frame[1] & 3 == GLOBAL;
    let transport = LINK + if is_global { IPV6_HEADER } else { 0 };
    let (head, rest) = frame.split_at(transport + BASE);
    let mut head = head.to_vec();
    // The virtual lane.
    head[0] |= 0xf0;
    if is_global {
        // Traffic class and flow label without the version; the hop limit.
        head[LINK] |= 0xf;
        head[LINK + 1..LINK + 4].fill(u8::MAX);
        head[LINK + 7] = u8::MAX;
    }
    // The reserved byte of the base header.
    head[transport + 4] = u8::MAX;
    Crc::new().with(&head).with(rest).sum()
}

#[cfg(test)]
mod tests;
