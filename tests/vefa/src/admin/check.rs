//! The checksum of entries.

/// CRC-16 with the polynomial 0x8005, reflected, starting from all ones and inverted at the end, as in the driver (`efa_com.c`, 7.3, with
/// the kernel's `crc16`).
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    !bytes.iter().fold(0xffff, |sum: u16, byte| {
        (0..8).fold(sum ^ u16::from(*byte), |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0xa001 } else { 0 })
    })
}

#[test]
fn the_checksum_is_that_of_the_catalogue() {
    // CRC-16/USB of the digits, as in the catalogue of parametrised CRC algorithms.
    assert_eq!(checksum(b"123456789"), 0xb4c8);
}
