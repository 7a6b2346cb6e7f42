//! The invariant checksum (ICRC): a CRC over everything in a packet that does not change on the way.
//!
//! It covers the identification of an IPv4 packet, which neither the sender nor the receiver of a UDP socket sees. A sender whose socket
//! is not connected and never fragments knows that it is zero. A receiver can solve for it, because a CRC is linear: see [`solve`].

/// Bytes of the checksum.
pub const SIZE: usize = 4;

// Sizes of headers.
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;

/// The polynomial of Ethernet's CRC-32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Number of bytes that are processed at a time.
const SLICE: usize = 16;

/// `TABLES[n][b]` is the effect of byte `b` with `n` bytes after it.
static TABLES: [[u32; 256]; SLICE] = tables();

const fn tables() -> [[u32; 256]; SLICE] {
    let mut tables = [[0; 256]; SLICE];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut slice = 1;
    while slice < SLICE {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[slice - 1][byte];
            tables[slice][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

/// Ethernet's CRC-32, of bytes that come in parts.
#[derive(Clone, Copy, Debug)]
pub struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc {
    /// The CRC of no bytes.
    pub const fn new() -> Self {
        Self(u32::MAX)
    }

    /// The CRC with these bytes after the others.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<SLICE>();
        let crc = blocks.iter().fold(self.0, |crc, block| {
            let mut block = *block;
            for (byte, old) in block.iter_mut().zip(crc.to_le_bytes()) {
                *byte ^= old;
            }
            // The last byte of the block has none after it.
            TABLES.iter().rev().zip(block).fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)])
        });
        Self(rest.iter().fold(crc, |crc, byte| step(crc, *byte)))
    }

    /// The checksum, in the order of the wire.
    pub fn sum(self) -> [u8; SIZE] {
        (!self.0).to_le_bytes()
    }
}

/// The CRC after one more byte.
fn step(crc: u32, byte: u8) -> u32 {
    crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)]
}

/// The byte of the base header that is reserved, and may change.
const RESERVED: usize = 4;

/// The checksum of a packet: `head` has its IP header, without options, and its UDP header, `packet` what follows.
pub fn of_packet(head: &[u8], packet: &[u8]) -> [u8; SIZE] {
    let (header, changes) = match head.len() {
        // Type of service, time to live, checksum; or traffic class and flow label, hop limit.
        len if len == IPV4 + UDP => (IPV4, &[1, 8, 10, 11][..]),
        _ => (IPV6, &[0, 1, 2, 3, 7][..]),
    };
    let mut masked = [u8::MAX; 8 + IPV6 + UDP];
    // Eight bytes of ones stand for InfiniBand's link header.
    for (to, from) in masked.iter_mut().skip(8).zip(head) {
        *to = *from;
    }
    for at in changes {
        // The version of IPv6 stays.
        masked[8 + at] = if header == IPV6 && *at == 0 { 0x6f } else { u8::MAX };
    }
    // UDP's checksum.
    let udp = 8 + header;
    masked[udp + 6..udp + 8].fill(u8::MAX);
    let crc = Crc::new().with(&masked[..udp + UDP]);
    match packet.split_at_checked(RESERVED) {
        Some((before, [_, after @ ..])) => crc.with(before).with(&[u8::MAX]).with(after).sum(),
        _ => crc.with(packet).sum(),
    }
}

/// The identification with which the checksum of an IPv4 packet would be right: `sum` is right for 0, and the packet has `found`. `len` is
/// the number of bytes after the UDP header, without the checksum. `None` if there is none, so that the packet was changed on the way.
///
/// A changed packet is not noticed with a probability of 2 to the power of -16.
pub fn solve(sum: [u8; SIZE], found: [u8; SIZE], len: usize) -> Option<u16> {
    // The difference that the two bytes of the identification make, with all bytes after them taken back.
    let mut crc = u32::from_le_bytes(sum) ^ u32::from_le_bytes(found);
    for _ in 0..IPV4 - 6 + UDP + len {
        let (before, byte) = back(crc);
        crc = before | u32::from(byte);
    }
    // After the first byte, the CRC is the entry of the table for it.
    let (after_first, mixed) = back(crc);
    let first = TOPS[(after_first >> 24) as usize];
    let entry = TABLES[0][usize::from(first)];
    (entry & !0xff == after_first).then(|| u16::from_be_bytes([first, mixed ^ entry as u8]))
}

/// What small identifications change in the checksum of an IPv4 packet: a kernel that cuts a large datagram into several numbers them.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    len: usize,
    /// The change for each bit of the number.
    bits: [u32; 8],
}

impl Numbers {
    /// For packets with `len` bytes after the UDP header, without the checksum.
    pub fn of(len: usize) -> Self {
        // The second byte of the identification, and zeros behind it.
        let behind = vec![0; IPV4 - 6 + UDP + len];
        let bits = std::array::from_fn(|bit| Crc(TABLES[0][1 << bit]).with(&behind).0);
        Self { len, bits }
    }

    /// The length for which it is.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a packet has headers.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The checksum with this identification, of a packet that has `sum` with 0; or the other way round.
    pub fn change(&self, sum: [u8; SIZE], number: u8) -> [u8; SIZE] {
        let set = self.bits.iter().enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
        set.fold(u32::from_le_bytes(sum), |sum, (_, change)| sum ^ change).to_le_bytes()
    }
}

/// The upper three bytes of the CRC before the last byte, and its lowest byte combined with that byte.
fn back(crc: u32) -> (u32, u8) {
    let top = crc >> 24;
    let index = TOPS[top as usize];
    ((crc ^ TABLES[0][usize::from(index)]) << 8, index)
}

/// The index of the table's entry with this highest byte.
static TOPS: [u8; 256] = tops();

const fn tops() -> [u8; 256] {
    let tables = tables();
    let mut tops = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        tops[(tables[0][byte] >> 24) as usize] = byte as u8;
        byte += 1;
    }
    tops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_ethernet() {
        // The check value of the catalogue of CRC algorithms.
        assert_eq!(Crc::new().with(b"123456789").sum(), 0xcbf4_3926_u32.to_le_bytes());
        let bytes: Vec<u8> = (0..100_u8).map(|byte| byte.wrapping_mul(37)).collect();
        let whole = Crc::new().with(&bytes).sum();
        for at in 0..bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(Crc::new().with(first).with(second).sum(), whole);
        }
    }

    /// An acknowledgement of a virtual ConnectX, which another implementation has verified.
    const HEAD: [u8; 28] = [
        0x45, 0, 0, 0x30, 0, 0, 0x40, 0, 0x40, 0x11, 0x26, 0xbb, 10, 0, 0, 1, 10, 0, 0, 2, 0xcc, 0x19, 0x12,
        0xb7, 0, 0x1c, 0, 0,
    ];
    const TRANSPORT: [u8; 16] = [0x11, 0x40, 0xff, 0xff, 0, 0, 2, 3, 0, 0x98, 0x46, 0xfc, 0x1f, 0, 0, 1];

    #[test]
    fn a_packet_that_was_seen() {
        assert_eq!(of_packet(&HEAD, &TRANSPORT), [0x09, 0x2c, 0x37, 0xd5]);
    }

    #[test]
    fn the_identification_is_found_and_nothing_else() {
        let zero = of_packet(&HEAD, &TRANSPORT);
        for number in [0_u16, 1, 0x360f, 53_260, 0x8000, u16::MAX] {
            let mut head = HEAD;
            head[4..6].copy_from_slice(&number.to_be_bytes());
            assert_eq!(solve(zero, of_packet(&head, &TRANSPORT), TRANSPORT.len()), Some(number));
        }
        let numbers = Numbers::of(TRANSPORT.len());
        for number in [0, 1, 2, 5, 63, 255] {
            let mut head = HEAD;
            head[5] = number;
            assert_eq!(numbers.change(zero, number), of_packet(&head, &TRANSPORT));
        }
        // One changed bit anywhere in the transport is noticed.
        for bit in (0..8 * TRANSPORT.len()).filter(|bit| bit / 8 != RESERVED) {
            let mut transport = TRANSPORT;
            transport[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(solve(zero, of_packet(&HEAD, &transport), TRANSPORT.len()), None, "bit {bit}");
        }
    }
}
