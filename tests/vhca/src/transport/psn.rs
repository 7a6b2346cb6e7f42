//! Packet sequence numbers: 24 bits that go round.

const BITS: u32 = 24;

/// The number so many packets later.
pub(super) fn add(psn: u32, count: u32) -> u32 {
    psn.wrapping_add(count) & ((1 << BITS) - 1)
}

/// How far the second number is behind the first: negative when it comes before.
pub(super) fn distance(from: u32, to: u32) -> i32 {
    (to.wrapping_sub(from) << (32 - BITS)) as i32 >> (32 - BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round() {
        assert_eq!(add(0xff_ffff, 2), 1);
        assert_eq!(distance(0xff_fffe, 1), 3);
        assert_eq!(distance(1, 0xff_fffe), -3);
        assert_eq!(distance(5, 5), 0);
    }
}
