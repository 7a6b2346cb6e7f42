//! Memory of the guest in pages, and rings in it.

use vpci::{Fault, Memory};

/// Pages that hold a queue or a region, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    /// Size of a page, as a power of two.
    shift: u8,
    /// Where the memory begins in the first page.
    offset: u64,
    list: Vec<u64>,
}

/// No table of pages is longer.
const MOST_PAGES: u64 = 1 << 20;

impl Pages {
    pub(crate) fn new(shift: u8, offset: u64, list: Vec<u64>) -> Self {
        Self { shift, offset, list }
    }

    /// The pages of a table in the guest's memory. `None` if there is no such table.
    pub(crate) fn table(memory: &Memory, address: u64, count: u64) -> Option<Vec<u64>> {
        if count > MOST_PAGES {
            return None;
        }
        let mut bytes = vec![0; count as usize * 8];
        memory.read(address, &mut bytes).ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Whether so many bytes are there.
    pub(crate) fn holds(&self, len: u64) -> bool {
        let room = (self.list.len() as u64).checked_shl(self.shift.into()).unwrap_or(0);
        self.offset.checked_add(len).is_some_and(|end| end <= room)
    }

    /// The address of a byte, and how many more are in the same page.
    fn at(&self, byte: u64) -> Result<(u64, u64), Fault> {
        let byte = byte.wrapping_add(self.offset);
        let within = byte & ((1 << self.shift) - 1);
        let page = usize::try_from(byte >> self.shift).ok().and_then(|page| self.list.get(page));
        let page = page.ok_or(Fault { address: byte })?;
        Ok((page.wrapping_add(within), (1 << self.shift) - within))
    }

    pub(crate) fn read(&self, memory: &Memory, mut byte: u64, mut bytes: &mut [u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let (address, left) = self.at(byte)?;
            let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (part, rest) = bytes.split_at_mut(count);
            memory.read(address, part)?;
            (byte, bytes) = (byte.wrapping_add(count as u64), rest);
        }
        Ok(())
    }

    pub(crate) fn write(&self, memory: &Memory, mut byte: u64, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let (address, left) = self.at(byte)?;
            let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (part, rest) = bytes.split_at(count);
            memory.write(address, part)?;
            (byte, bytes) = (byte.wrapping_add(count as u64), rest);
        }
        Ok(())
    }

    /// Writes an entry whose first word makes it valid: it is in one page.
    pub(crate) fn publish(&self, memory: &Memory, byte: u64, entry: &[u8]) -> Result<(), Fault> {
        let (address, left) = self.at(byte)?;
        if left < entry.len() as u64 {
            return Err(Fault { address });
        }
        memory.publish_word(address, entry, 0)
    }
}

/// Size of a slot of any queue.
pub(crate) const SLOT: u64 = 32;

/// A queue of slots: a power of two of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    pages: Pages,
    mask: u32,
}

impl Ring {
    /// A queue of 2^`log` slots. `None` if they are not in the pages.
    pub(crate) fn new(pages: Pages, log: u32) -> Option<Self> {
        let fits = log <= 24 && pages.holds(SLOT << log);
        fits.then(|| Self { pages, mask: (1 << log) - 1 })
    }

    pub(crate) fn depth(&self) -> u32 {
        self.mask + 1
    }

    /// Reads slots from this number on, to the end of `bytes`.
    pub(crate) fn read(&self, memory: &Memory, number: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        for (number, slot) in (number..).zip(bytes.chunks_mut(SLOT as usize)) {
            self.pages.read(memory, u64::from(number & self.mask) * SLOT, slot)?;
        }
        Ok(())
    }

    pub(crate) fn publish(&self, memory: &Memory, number: u32, entry: &[u8]) -> Result<(), Fault> {
        self.pages.publish(memory, u64::from(number & self.mask) * SLOT, entry)
    }

    /// Whether the owner bit is set in the round of this number: in the first, the third and so on.
    pub(crate) fn owner(&self, number: u32) -> bool {
        number & (self.mask + 1) == 0
    }
}
