//! A fuzzer's bytes, read as choices. After the end there are only zeros.
#![allow(dead_code, reason = "each target uses its own part of this")]

pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// One of a slice.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.u8()) % from.len()]
    }

    /// A number that is usually small, as handles, keys and indices are.
    pub(crate) fn number(&mut self) -> u64 {
        match self.u8() {
            small @ 0..=0xdf => (small % 16).into(),
            0xe0..=0xef => self.u32().into(),
            0xf0..=0xfb => self.u64(),
            0xfc => u64::MAX,
            0xfd => 1 << 63,
            0xfe => 1 << 32,
            0xff => u32::MAX.into(),
        }
    }

    /// Bytes whose length is in the byte before them.
    pub(crate) fn block(&mut self) -> &'a [u8] {
        let len = self.u8();
        self.take(len.into())
    }

    /// The same for frames: up to 2 KiB.
    pub(crate) fn frame(&mut self) -> &'a [u8] {
        let len = self.u16() % 2048;
        self.take(len.into())
    }
}
