//! Large sends: one request that is segmented into several frames.

use super::headers::{Address, Headers};

/// How a large send is segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Large {
    /// Number of bytes at its beginning with which each frame begins.
    pub(crate) header: usize,
    /// Bytes of payload in each frame except the last.
    pub(crate) mss: usize,
}

/// TCP flags for the last frame only: FIN and PSH.
const LAST_ONLY: u8 = 0x09;
/// And for the first: CWR.
const FIRST_ONLY: u8 = 0x80;

/// The frames of a large send, with their own lengths, identifications, sequence numbers and flags. Data without such headers is only
/// split.
pub(crate) fn cut(bytes: &[u8], large: Large, vxlan_ports: &[u16]) -> Vec<Vec<u8>> {
    let (header, payload) = bytes.split_at(large.header.min(bytes.len()));
    let headers = Headers::parse(header, vxlan_ports);
    let count = payload.len().div_ceil(large.mss);
    let frame = |(index, piece): (usize, &[u8])| {
        let mut frame = [header, piece].concat();
        let Some(network) = &headers.outer.network else { return frame };
        let len = frame.len() - network.offset;
        match network.source {
            Address::V4(_) => {
                put(&mut frame, network.offset + 2, len as u16);
                add(&mut frame, network.offset + 4, index as u16);
            }
            Address::V6(_) => put(&mut frame, network.offset + 4, (len - 40) as u16),
        }
        if headers.outer.transport.is_some_and(|transport| transport.is_tcp) {
            let at = network.payload;
            let sequence = frame[at + 4..].first_chunk().copied().map_or(0, u32::from_be_bytes);
            let sequence = sequence.wrapping_add((index * large.mss) as u32);
            frame[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
            frame[at + 13] &= !if index + 1 < count { LAST_ONLY } else { 0 };
            frame[at + 13] &= !if index > 0 { FIRST_ONLY } else { 0 };
        }
        frame
    };
    payload.chunks(large.mss).enumerate().map(frame).collect()
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn add(bytes: &mut [u8], at: usize, value: u16) {
    put(bytes, at, u16::from_be_bytes([bytes[at], bytes[at + 1]]).wrapping_add(value));
}

#[cfg(test)]
mod tests {
    use super::super::VXLAN_PORT;
    use super::super::tests::{MACS, UDP4, packet};
    use super::*;

    /// Split into pieces of four bytes after its 54 or 74 bytes of header.
    fn frames(header: &str, payload: &[u8]) -> Vec<Vec<u8>> {
        let header = packet(&(MACS.to_owned() + header));
        let large = Large { header: header.len(), mss: 4 };
        cut(&[&header[..], payload].concat(), large, &[VXLAN_PORT])
    }

    fn payloads(frames: &[Vec<u8>], header: usize) -> Vec<&[u8]> {
        frames.iter().map(|frame| &frame[header..]).collect()
    }

    const TCP: &str = "1388 1389 fffffffd 00000000 5099 ffff 0000 0000";

    #[test]
    fn each_frame_has_its_own_length_identification_and_sequence_number() {
        let header = format!("0800 45000000 ffff4000 40060000 0a000001 0a000002 {TCP}");
        let frames = frames(&header, b"0123456789");
        let seen: Vec<_> = frames.iter().map(|frame| (&frame[16..20], &frame[38..42], frame[47])).collect();
        // CWR in the first only, PSH and FIN in the last only, ACK in all.
        assert_eq!(
            seen,
            [
                (&[0, 44, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xfd][..], 0x90),
                (&[0, 44, 0, 0][..], &[0, 0, 0, 1][..], 0x10),
                (&[0, 42, 0, 1][..], &[0, 0, 0, 5][..], 0x19),
            ]
        );
        assert_eq!(payloads(&frames, 54), [&b"0123"[..], b"4567", b"89"]);
    }

    #[test]
    fn the_length_of_ipv6_leaves_its_own_header_out() {
        let addresses = "20010db8000000000000000000000001 20010db8000000000000000000000002";
        let frames = frames(&format!("86dd 60000000 0000 06 40 {addresses} {TCP}"), b"01234");
        assert_eq!(frames.iter().map(|frame| frame[19]).collect::<Vec<_>>(), [24, 21]);
        assert_eq!(payloads(&frames, 74), [&b"0123"[..], b"4"]);
    }

    #[test]
    fn what_is_no_tcp_is_only_cut() {
        let frames = frames("88b5", b"012345678");
        assert_eq!(payloads(&frames, 14), [&b"0123"[..], b"4567", b"8"]);
        let datagram = packet(&(MACS.to_owned() + UDP4));
        let large = Large { header: 42, mss: 2 };
        let ports: Vec<_> = cut(&datagram, large, &[]).iter().map(|frame| frame[34..38].to_vec()).collect();
        assert_eq!(ports, [&datagram[34..38]; 2]);
    }
}
