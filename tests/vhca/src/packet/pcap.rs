//! Capture files of the classic format, of either byte order.

/// The packets of a capture file. What is cut off at its end is left out.
///
/// # Errors
/// A text, for a file of another format or of another link than Ethernet.
pub(crate) fn packets(file: &[u8]) -> Result<Vec<&[u8]>, String> {
    let word = |at: usize| file.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied();
    let number: fn([u8; 4]) -> u32 = match word(0) {
        Some([0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1]) => u32::from_le_bytes,
        Some([0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d]) => u32::from_be_bytes,
        _ => return Err("not a capture file of the classic format".to_owned()),
    };
    if word(20).map(number) != Some(1) {
        return Err("not a capture of Ethernet".to_owned());
    }
    let mut packets = Vec::new();
    let mut at = 24;
    while let Some(len) = word(at + 8).map(number) {
        let Some(packet) = file.get(at + 16..).and_then(|rest| rest.get(..len as usize)) else { break };
        packets.push(packet);
        at += 16 + len as usize;
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_are_read_and_a_cut_end_left_out() {
        for bytes in [u32::to_le_bytes, u32::to_be_bytes] {
            let words = [0xa1b2_c3d4, 0, 0, 0, 0, 1, 0, 0, 4, 4, 0x11111111, 0, 0, 8, 8, 0x22222222];
            let file: Vec<u8> = words.into_iter().flat_map(bytes).collect();
            assert_eq!(packets(&file), Ok(vec![&[0x11; 4][..]]));
        }
        assert!(packets(b"\n\r\r\n").is_err() && packets(&[]).is_err());
    }
}
