//! Little-endian numbers at fixed places in entries.

/// Reads numbers. Beyond the end they are zero, so that no length from a guest stops the model.
pub trait Bytes {
    /// The bytes at a place.
    fn array<const N: usize>(&self, at: usize) -> [u8; N];

    /// One byte.
    fn u8(&self, at: usize) -> u8 {
        self.array::<1>(at)[0]
    }

    /// Two bytes.
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    /// Four bytes.
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    /// Eight bytes.
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
}

impl Bytes for [u8] {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        let have = self.get(at..).unwrap_or_default();
        bytes.iter_mut().zip(have).for_each(|(to, from)| *to = *from);
        bytes
    }
}

/// Writes numbers. A number that does not fit is not written.
pub trait BytesMut {
    /// Writes bytes at a place.
    fn put(&mut self, at: usize, bytes: &[u8]);

    /// One byte.
    fn put_u8(&mut self, at: usize, value: u8) {
        self.put(at, &[value]);
    }

    /// Two bytes.
    fn put_u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    /// Four bytes.
    fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    /// Eight bytes.
    fn put_u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }
}

impl BytesMut for [u8] {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        let room = self.get_mut(at..).unwrap_or_default();
        room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_put_is_there_and_nothing_else_changes(at in 0_usize..40, value in any::<u64>()) {
            let mut bytes = [0_u8; 48];
            bytes.put_u64(at, value);
            prop_assert_eq!((bytes.u64(at), bytes.u32(at), bytes.u16(at)), (value, value as u32, value as u16));
            prop_assert!(bytes.iter().enumerate().all(|(i, byte)| (at..at + 8).contains(&i) || *byte == 0));
        }
    }

    #[test]
    fn behind_the_end_there_are_zeros() {
        let mut bytes = [1_u8; 4];
        assert_eq!((bytes.u32(2), bytes.u64(usize::MAX), bytes.u8(4)), (0x0101, 0, 0));
        bytes.put_u32(2, 0x0908_0706);
        bytes.put_u8(usize::MAX, 1);
        assert_eq!(bytes, [1, 1, 6, 7]);
    }
}
