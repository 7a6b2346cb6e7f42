//! Checksums: those of a received packet as its completion reports them, and those that a sender leaves to the device.

use super::headers::{Address, Headers, Network};

/// The sum of RFC 1071 over bytes, not yet inverted.
fn sum(bytes: &[u8], start: u32) -> u32 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let sum = pairs.iter().fold(start, |sum, pair| sum.wrapping_add(u16::from_be_bytes(*pair).into()));
    sum.wrapping_add(odd.first().map_or(0, |byte| u32::from(*byte) << 8))
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The end of the IP packet: what follows is padding of Ethernet.
fn end(bytes: &[u8], network: &Network) -> usize {
    let at = |offset: usize| bytes.get(network.offset + offset).copied().map_or(0, usize::from);
    let len = match network.source {
        Address::V4(_) => at(2) << 8 | at(3),
        Address::V6(_) => 40 + (at(4) << 8 | at(5)),
    };
    (network.offset + len).min(bytes.len())
}

/// The sum over a TCP or UDP packet with its pseudo header, and the place of its checksum.
fn transport_sum(bytes: &[u8], headers: &Headers) -> Option<(u32, usize)> {
    let network = headers.outer.network.as_ref()?;
    let transport = headers.outer.transport.filter(|_| !network.is_fragment)?;
    let payload = bytes.get(network.payload..end(bytes, network))?;
    let pseudo = sum(network.source.bytes(), sum(network.destination.bytes(), 0));
    let pseudo = pseudo + u32::from(network.protocol) + payload.len() as u32;
    Some((sum(payload, pseudo), network.payload + if transport.is_tcp { 16 } else { 6 }))
}

/// Kinds of headers and valid checksums, as in bytes 28 and 29 of a completion.
pub(crate) fn header_flags(bytes: &[u8], headers: &Headers) -> [u8; 2] {
    let mut flags = [0x01, 0]; // Ethernet is all right
    let Some(network) = &headers.outer.network else { return flags };
    let is_v4 = matches!(network.source, Address::V4(_));
    flags[1] |= if is_v4 { 2 << 2 } else { 1 << 2 };
    let header = bytes.get(network.offset..network.payload).unwrap_or_default();
    if !is_v4 || fold(sum(header, 0)) == 0xffff {
        flags[0] |= 0x02;
    }
    if let Some(transport) = headers.outer.transport {
        flags[1] |= if transport.is_tcp { 1 << 4 } else { 2 << 4 };
        let absent =
            !transport.is_tcp && bytes.get(network.payload + 6..network.payload + 8) == Some(&[0, 0]);
        if transport_sum(bytes, headers).is_some_and(|(sum, _)| fold(sum) == 0xffff || absent) {
            flags[0] |= 0x04;
        }
    }
    flags
}

/// The sum over the IP packet, as in bytes 20 and 21 of a completion; zero if there is none.
pub(crate) fn received_sum(bytes: &[u8], headers: &Headers) -> [u8; 2] {
    let packet =
        headers.outer.network.as_ref().and_then(|network| bytes.get(network.offset..end(bytes, network)));
    fold(sum(packet.unwrap_or_default(), 0)).to_be_bytes()
}

/// Fills in the checksums that a sender leaves to the device.
pub(crate) fn complete(bytes: &mut [u8], headers: &Headers, l3: bool, l4: bool) {
    if let Some(network) =
        headers.outer.network.filter(|network| l3 && matches!(network.source, Address::V4(_)))
    {
        let at = network.offset + 10;
        bytes[at..at + 2].fill(0);
        let checksum = header_checksum(bytes.get(network.offset..network.payload).unwrap_or_default());
        bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    if l4
        && let Some((_, at)) = transport_sum(bytes, headers)
        && at + 2 <= bytes.len()
    {
        bytes[at..at + 2].fill(0);
        let checksum = transport_sum(bytes, headers).map_or(0, |(sum, _)| !fold(sum));
        // In UDP a zero means no checksum, and a checksum of zero is written as all ones.
        let is_udp = headers.outer.transport.is_some_and(|transport| !transport.is_tcp);
        let checksum = if checksum == 0 && is_udp { 0xffff } else { checksum };
        bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The checksum of an IPv4 header in which it is zero; zero for a header with a valid checksum.
pub(crate) fn header_checksum(header: &[u8]) -> u16 {
    !fold(sum(header, 0))
}

/// The frame check sequence of Ethernet.
pub(crate) fn fcs(bytes: &[u8]) -> [u8; 4] {
    crc32fast::hash(bytes).to_le_bytes()
}
