//! Frames of TCP and UDP.

use std::net::IpAddr;

use super::{MAC, frame};

/// A TCP or UDP frame to `MAC`, with correct lengths and checksums of zero.
pub fn packet(addresses: [IpAddr; 2], ports: [u16; 2], is_tcp: bool, payload: &[u8]) -> Vec<u8> {
    let head = if is_tcp { 20 } else { 8 };
    let mut transport = ports.map(u16::to_be_bytes).concat();
    transport.resize(head, 0);
    if is_tcp {
        transport[12] = 5 << 4;
    } else {
        transport[4..6].copy_from_slice(&((head + payload.len()) as u16).to_be_bytes());
    }
    transport.extend(payload);
    let len = transport.len() as u16;
    let protocol = if is_tcp { 6 } else { 17 };
    let mut frame = frame(MAC, 14);
    frame.truncate(12);
    match addresses {
        [IpAddr::V4(from), IpAddr::V4(to)] => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        [IpAddr::V6(from), IpAddr::V6(to)] => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        _ => panic!("addresses of two kinds"),
    }
    frame.extend(transport);
    frame
}
