//! Packets on a wire of InfiniBand: the header of the link, that of the network layer if there is one, and the packet with the sum over
//! what does not change on the way. The sum of the link is left out, as that of Ethernet is.
//!
//! Source: InfiniBand Architecture Specification 1.4, volume 1, sections 7.7, 7.8 and 8.3.

use super::{IPV6_HEADER, Refused, SUM, half, ipv6, ipv6_header};
use crate::transport::bytes::{self, Malformed};
use crate::transport::packet::{Packet, Route};

/// Bytes of the header of the link.
const LINK: usize = 8;

/// What comes behind it: the packet, or the header of the network layer. The other values are not of this transport.
const LOCAL: u8 = 2;
const GLOBAL: u8 = 3;

/// What that header says comes next.
const TRANSPORT: u8 = 0x1b;

/// How many bytes [`build`] makes.
pub(crate) fn len(route: &Route, packet: &Packet) -> usize {
    LINK + if route.has_grh { IPV6_HEADER } else { 0 } + packet.len() + SUM
}

/// A packet with all that is in front of it, and its sum.
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

/// Reads what [`build`] writes.
///
/// # Errors
/// The first thing that is wrong with it.
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
    if transport.len() < bytes::BASE {
        return Err(Malformed::Short.into());
    }
    if sum(&frame[..frame.len() - SUM]) != *found {
        return Err(Refused::Sum);
    }
    Ok((route, Packet::from_bytes(transport)?))
}

/// The sum over all that does not change on the way (ICRC): what may change counts as ones.
fn sum(frame: &[u8]) -> [u8; SUM] {
    let is_global = frame[1] & 3 == GLOBAL;
    let transport = LINK + if is_global { IPV6_HEADER } else { 0 };
    let (head, rest) = frame.split_at(transport + bytes::BASE);
    let mut head = head.to_vec();
    // The virtual lane.
    head[0] |= 0xf0;
    if is_global {
        // Traffic class and flow label, but not the version; the hop limit.
        head[LINK] |= 0xf;
        head[LINK + 1..LINK + 4].fill(u8::MAX);
        head[LINK + 7] = u8::MAX;
    }
    // The byte of the base header that is reserved.
    head[transport + 4] = u8::MAX;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(rest);
    crc.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests;
