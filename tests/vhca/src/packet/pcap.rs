//! Capture files of the classic format, in either byte order.

use pcap_parser::{Linktype, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};

/// The packets of a capture file. A truncated packet at its end is left out.
///
/// # Errors
/// A text, for a file of another format or of another link type than Ethernet.
pub(crate) fn packets(file: &[u8]) -> Result<Vec<&[u8]>, String> {
    let header = parse_pcap_header(file).ok().filter(|(_, header)| !header.is_modified_format());
    let (mut rest, header) = header.ok_or("not a capture file of the classic format")?;
    if header.network != Linktype::ETHERNET {
        return Err("not a capture of Ethernet".to_owned());
    }
    let frame = if header.is_bigendian() { parse_pcap_frame_be } else { parse_pcap_frame };
    let mut packets = Vec::new();
    while let Ok((next, block)) = frame(rest) {
        packets.push(block.data);
        rest = next;
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_are_read_and_a_cut_end_left_out() {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            for bytes in [u32::to_le_bytes, u32::to_be_bytes] {
                let words = [magic, 0, 0, 0, 0, 1, 0, 0, 4, 4, 0x11111111, 0, 0, 8, 8, 0x22222222];
                let file: Vec<u8> = words.into_iter().flat_map(bytes).collect();
                assert_eq!(packets(&file), Ok(vec![&[0x11; 4][..]]));
            }
        }
        assert!(packets(b"\n\r\r\n").is_err() && packets(&[]).is_err());
    }
}
