//! Packet sequence numbers: 24 bits, with overflow.

const BITS: u32 = 24;

/// The number after `count` packets.
pub fn add(psn: u32, count: u32) -> u32 {
    psn.wrapping_add(count) & ((1 << BITS) - 1)
}

/// The distance from the first number to the second: negative if the second comes before.
pub fn distance(from: u32, to: u32) -> i32 {
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
