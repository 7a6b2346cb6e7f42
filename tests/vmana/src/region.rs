//! Memory of the guest as the driver names it: lists of pages, and the regions that are made of them.

use vpci::{Fault, Memory};

/// Rights of a region (`enum gdma_mr_access_flags`).
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 3;
}

/// A list of pages, of which a range of bytes is used (`gdma_create_dma_region_req`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    /// The binary logarithm of the size of a page.
    pub(crate) shift: u32,
    /// Number of bytes before the range in the first page.
    pub(crate) offset: u64,
    /// Length of the range in bytes.
    pub(crate) length: u64,
    /// Number of pages that there will be, and the addresses of those that are there.
    pub(crate) count: u64,
    pub(crate) list: Vec<u64>,
}

impl Pages {
    /// One page of 4096 bytes.
    pub(crate) fn one(address: u64) -> Self {
        Self { shift: 12, offset: 0, length: 4096, count: 1, list: vec![address] }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.list.len() as u64 == self.count
    }

    /// Whether the pages hold the range.
    pub(crate) fn is_possible(&self) -> bool {
        let page = 1_u64.checked_shl(self.shift).unwrap_or(0);
        self.length > 0
            && self.shift <= 31
            && self.offset < page
            && self.offset.checked_add(self.length).is_some_and(|end| end.div_ceil(page) == self.count)
    }

    /// The addresses and lengths in the guest's memory of a part of the range.
    fn pieces(&self, at: u64, len: usize) -> impl Iterator<Item = Result<(u64, usize), Fault>> {
        let page = 1_u64 << self.shift;
        let end = at.saturating_add(len as u64);
        let is_inside = end <= self.length;
        let mut at = self.offset.wrapping_add(at);
        let mut left = len;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let inside = at % page;
            let part = left.min(usize::try_from(page - inside).unwrap_or(usize::MAX));
            let start = usize::try_from(at / page).ok().and_then(|index| self.list.get(index));
            at = at.wrapping_add(part as u64);
            left -= part;
            Some(start.filter(|_| is_inside).map(|start| (start + inside, part)).ok_or(Fault { address: at }))
        })
    }

    /// Reads a part of the range.
    pub(crate) fn read(&self, memory: &Memory, at: u64, mut bytes: &mut [u8]) -> Result<(), Fault> {
        for piece in self.pieces(at, bytes.len()) {
            let (address, len) = piece?;
            let (part, rest) = std::mem::take(&mut bytes).split_at_mut(len);
            memory.read(address, part)?;
            bytes = rest;
        }
        Ok(())
    }

    /// Writes a part of the range.
    pub(crate) fn write(&self, memory: &Memory, at: u64, mut bytes: &[u8]) -> Result<(), Fault> {
        for piece in self.pieces(at, bytes.len()) {
            let (address, len) = piece?;
            let (part, rest) = bytes.split_at(len);
            memory.write(address, part)?;
            bytes = rest;
        }
        Ok(())
    }

    /// Writes an entry of which the last four bytes mark it as valid.
    pub(crate) fn publish(&self, memory: &Memory, at: u64, entry: &[u8]) -> Result<(), Fault> {
        match self.pieces(at, entry.len()).next() {
            Some(Ok((address, len))) if len == entry.len() => memory.publish(address, entry),
            _ => Err(Fault { address: at }),
        }
    }

    /// Reads from a ring of `size` bytes at its beginning; `at` counts on after its end.
    pub(crate) fn read_ring(
        &self,
        memory: &Memory,
        size: u64,
        at: u32,
        bytes: &mut [u8],
    ) -> Result<(), Fault> {
        let at = u64::from(at) % size.max(1);
        let first = usize::try_from(size - at).unwrap_or(usize::MAX).min(bytes.len());
        let (head, tail) = bytes.split_at_mut(first);
        self.read(memory, at, head)?;
        self.read(memory, 0, tail)
    }
}

/// What a key gives access to.
#[derive(Debug)]
pub(crate) struct Region {
    /// The protection domain.
    pub(crate) pd: u64,
    /// The first address.
    pub(crate) base: u64,
    /// The memory; without it all memory by its bus addresses, for the kernel.
    pub(crate) pages: Option<Pages>,
    pub(crate) access: u32,
}

impl Region {
    /// The offset of a range, if it is inside.
    fn offset(&self, address: u64, len: usize) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        let end = offset.checked_add(len as u64)?;
        self.pages.as_ref().is_none_or(|pages| end <= pages.length).then_some(offset)
    }

    pub(crate) fn has(&self, address: u64, len: usize) -> bool {
        self.offset(address, len).is_some()
    }

    pub(crate) fn read(&self, memory: &Memory, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let offset = self.offset(address, bytes.len()).ok_or(Fault { address })?;
        match &self.pages {
            Some(pages) => pages.read(memory, offset, bytes),
            None => memory.read(address, bytes),
        }
    }

    pub(crate) fn write(&self, memory: &Memory, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let offset = self.offset(address, bytes.len()).ok_or(Fault { address })?;
        match &self.pages {
            Some(pages) => pages.write(memory, offset, bytes),
            None => memory.write(address, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(offset: u64, length: u64) -> Pages {
        Pages { shift: 12, offset, length, count: 2, list: vec![0x9000, 0x1000] }
    }

    #[test]
    fn a_range_goes_from_page_to_page_and_no_further() {
        let memory = Memory::zeroed(&[(0x1000, 4096), (0x9000, 4096)]);
        let list = pages(4000, 200);
        assert!(list.is_possible() && list.is_complete());
        let bytes: Vec<u8> = (0..200).collect();
        list.write(&memory, 0, &bytes).unwrap();
        let (mut back, mut there) = ([0; 200], [0; 104]);
        list.read(&memory, 0, &mut back).unwrap();
        memory.read(0x1000, &mut there).unwrap();
        assert_eq!((&back[..], &there[..]), (&bytes[..], &bytes[96..]));
        assert!(list.write(&memory, 1, &bytes).is_err() && list.read(&memory, u64::MAX, &mut back).is_err());
        for (offset, length) in [(0, 0), (0, 4096), (4096, 1), (1, 8192), (0, u64::MAX)] {
            assert!(!pages(offset, length).is_possible(), "{offset} {length}");
        }
    }

    #[test]
    fn a_key_gives_access_to_its_addresses() {
        let memory = Memory::zeroed(&[(0x1000, 4096), (0x9000, 4096)]);
        let region = Region { pd: 1, base: 0xffff_0000, pages: Some(pages(0, 8192)), access: 0 };
        assert!(
            region.has(0xffff_0000, 8192) && !region.has(0xffff_0001, 8192) && !region.has(0xfffe_ffff, 1)
        );
        region.write(&memory, 0xffff_1000, &[7]).unwrap();
        let mut byte = [0];
        memory.read(0x1000, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        let all = Region { pages: None, base: 0, ..region };
        all.read(&memory, 0x1000, &mut byte).unwrap();
        assert!(all.read(&memory, 0x5000, &mut byte).is_err());
    }
}
