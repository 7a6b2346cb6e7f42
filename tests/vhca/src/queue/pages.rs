//! A buffer of the guest, given as a list of its pages.

use crate::command::Status;
use vpci::{Fault, Memory};

/// A buffer that begins at any place in the first of its pages.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<u64>,
    shift: u32,
    start: u64,
    len: u64,
}

impl Pages {
    /// A buffer of `len` bytes. `list` contains the big-endian addresses of its pages of `2^(12 + log_page)` bytes, and `offset` its
    /// beginning in 64ths of a page.
    ///
    /// # Errors
    /// `BadInputLength` if the list is too short, `BadParameter` for pages that are too large.
    pub(crate) fn new(list: &[u8], log_page: u32, offset: u32, len: u64) -> Result<Self, Status> {
        let shift = log_page + 12;
        if shift > 31 {
            return Err(Status::BadParameter);
        }
        let start = u64::from(offset) << (shift - 6);
        let wanted = (start + len).div_ceil(1 << shift) as usize;
        if list.len() / 8 < wanted {
            return Err(Status::BadInputLength);
        }
        let (list, _) = list.as_chunks::<8>();
        let pages = list[..wanted].iter().map(|page| u64::from_be_bytes(*page) & !0xfff).collect();
        Ok(Self { pages, shift, start, len })
    }

    /// Whole pages but for the beginning of the first, of `offset` bytes.
    ///
    /// # Errors
    /// `BadParameter` for pages that are too large, none, or an offset that is not in the first.
    pub(crate) fn from_offset(list: &[u8], log_page: u32, offset: u64) -> Result<Self, Status> {
        let (list, _) = list.as_chunks::<8>();
        let shift = log_page + 12;
        if shift > 31 || list.is_empty() || offset >> shift != 0 {
            return Err(Status::BadParameter);
        }
        let pages: Vec<_> = list.iter().map(|page| u64::from_be_bytes(*page) & !0xfff).collect();
        let len = ((pages.len() as u64) << shift) - offset;
        Ok(Self { pages, shift, start: offset, len })
    }

    /// The pages of 4 KiB from a byte of the buffer to its end, and where in the first of them the byte is. `None` for a byte outside.
    pub(crate) fn from(&self, offset: u64) -> Option<(Vec<u64>, u64)> {
        if offset >= self.len {
            return None;
        }
        let (from, end) = (self.start + offset, self.start + self.len);
        let pages = (from >> 12..end.div_ceil(1 << 12)).map(|page| {
            let at = page << 12;
            Some(self.pages.get((at >> self.shift) as usize)? + (at & ((1 << self.shift) - 1)))
        });
        Some((pages.collect::<Option<_>>()?, from & 0xfff))
    }

    /// A part of the buffer.
    pub(crate) fn within(&self, offset: u64, len: u64) -> Self {
        Self { pages: self.pages.clone(), shift: self.shift, start: self.start + offset, len }
    }

    /// The bus address of a byte of the buffer, and how many bytes follow in the same page.
    pub(crate) fn address(&self, offset: u64) -> Result<(u64, u64), Fault> {
        let at = self.start + offset;
        let page = usize::try_from(at >> self.shift).ok().and_then(|index| self.pages.get(index));
        let page = page.filter(|_| offset < self.len).ok_or(Fault { address: offset })?;
        let inside = at & ((1 << self.shift) - 1);
        Ok((page + inside, (1 << self.shift) - inside))
    }

    /// Reads from the buffer, continuing at its start after its end.
    ///
    /// # Errors
    /// [`Fault`] if the guest has no memory there.
    pub(crate) fn read(&self, memory: &Memory, offset: u64, mut bytes: &mut [u8]) -> Result<(), Fault> {
        let mut offset = if self.len == 0 { 0 } else { offset % self.len };
        while !bytes.is_empty() {
            let (address, left) = self.address(offset)?;
            let len = left.min(self.len - offset).min(bytes.len() as u64);
            let (part, rest) = bytes.split_at_mut(len as usize);
            memory.read(address, part)?;
            offset = (offset + len) % self.len;
            bytes = rest;
        }
        Ok(())
    }

    /// Writes an entry that is inside one page, with its last word last.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn publish(&self, memory: &Memory, offset: u64, entry: &[u8]) -> Result<(), Fault> {
        memory.publish(self.address(offset)?.0, entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vpci::Memory;

    fn list(pages: &[u64]) -> Vec<u8> {
        pages.iter().flat_map(|page| page.to_be_bytes()).collect()
    }

    #[test]
    fn a_buffer_may_begin_inside_a_page_and_wraps_at_its_end() {
        let memory = Memory::zeroed(&[(0x1000, 4096), (0x8000, 4096)]);
        // 63 of 64 parts of the first page belong to other data.
        let pages = Pages::new(&list(&[0x8000, 0x1000]), 0, 63, 128).unwrap();
        memory.write(0x8fc0, &[1; 64]).unwrap();
        memory.write(0x1000, &[2; 64]).unwrap();
        let mut back = [0; 96];
        pages.read(&memory, 64, &mut back).unwrap();
        assert_eq!(back[..64], [2; 64]);
        assert_eq!(back[64..], [1; 32]);
        assert!(pages.address(128).is_err());
    }

    #[test]
    fn a_list_that_is_too_short_is_refused() {
        assert_eq!(Pages::new(&list(&[0x1000]), 0, 1, 4096).unwrap_err(), Status::BadInputLength);
        assert_eq!(Pages::new(&[], 31, 0, 4096).unwrap_err(), Status::BadParameter);
    }
}
