//! The guest's memory, which the device accesses by bus addresses.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use memmap2::MmapMut;
use uverbs::transport::Mapping;

/// An access to an address that is not memory of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory of the guest at {address:#x}")]
pub struct Fault {
    /// The address.
    pub address: u64,
}

/// The memory that the guest has mapped for the device.
#[derive(Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
}

#[derive(Debug)]
struct Region {
    address: u64,
    len: u64,
    map: Mapping,
}

impl Memory {
    /// Zeroed memory of this size at each address, for tests without a guest.
    ///
    /// # Panics
    /// If there is not enough memory, or if the addresses overlap.
    pub fn zeroed(regions: &[(u64, usize)]) -> Self {
        let mut memory = Self::default();
        for &(address, len) in regions {
            let map = MmapMut::map_anon(len).expect("memory");
            memory.add(address, map.into()).expect("a free address");
        }
        memory
    }

    /// Maps `len` bytes of a file at `offset` to a bus address.
    ///
    /// # Errors
    /// If the file cannot be mapped, or if the addresses are in use.
    pub fn map(&mut self, address: u64, len: u64, file: &File, offset: u64) -> io::Result<()> {
        let size = usize::try_from(len).map_err(io::Error::other)?;
        let map = Mapping::of_file(file, offset, size)?;
        self.add(address, map)
    }

    /// Adds a mapping at a bus address.
    ///
    /// # Errors
    /// If the addresses are in use.
    pub fn add(&mut self, address: u64, map: Mapping) -> io::Result<()> {
        let len = map.len() as u64;
        let end = address.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
        if self.regions.iter().any(|region| address < region.address + region.len && region.address < end) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.regions.push(Region { address, len, map });
        Ok(())
    }

    /// Removes all mappings in a range.
    pub fn unmap(&mut self, address: u64, len: u64) {
        let end = address.saturating_add(len);
        self.regions.retain(|region| region.address < address || region.address + region.len > end);
    }

    /// Removes all mappings.
    pub fn unmap_all(&mut self) {
        self.regions.clear();
    }

    /// The region of an address, the offset in it, and the number of bytes that follow.
    fn find(&self, address: u64) -> Result<(&Mapping, usize, usize), Fault> {
        let inside =
            |region: &&Region| address.checked_sub(region.address).is_some_and(|offset| offset < region.len);
        let region = self.regions.iter().find(inside).ok_or(Fault { address })?;
        let offset = (address - region.address) as usize;
        Ok((&region.map, offset, region.len as usize - offset))
    }

    /// Reads guest memory.
    ///
    /// # Errors
    /// [`Fault`] at the first invalid address.
    pub fn read(&self, mut address: u64, mut bytes: &mut [u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let (map, offset, left) = self.find(address)?;
            let (part, rest) = bytes.split_at_mut(left.min(bytes.len()));
            if !map.read(offset, part) {
                return Err(Fault { address });
            }
            address = address.wrapping_add(part.len() as u64);
            bytes = rest;
        }
        Ok(())
    }

    /// Writes guest memory.
    ///
    /// # Errors
    /// As [`read`](Self::read); bytes before the fault may have been written.
    pub fn write(&self, mut address: u64, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let (map, offset, left) = self.find(address)?;
            let (part, rest) = bytes.split_at(left.min(bytes.len()));
            if !map.write(offset, part) {
                return Err(Fault { address });
            }
            address = address.wrapping_add(part.len() as u64);
            bytes = rest;
        }
        Ok(())
    }

    /// Writes an entry whose last four bytes, at an aligned address, mark it as valid: these are written last.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn publish(&self, address: u64, entry: &[u8]) -> Result<(), Fault> {
        match entry.len().checked_sub(4) {
            Some(at) => self.publish_word(address, entry, at),
            None => self.write(address, entry),
        }
    }

    /// Writes an entry in which the four bytes from `at` on, at an aligned address, mark it as valid: these are written last.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn publish_word(&self, address: u64, entry: &[u8], at: usize) -> Result<(), Fault> {
        let parts =
            entry.split_at_checked(at).and_then(|(body, rest)| Some((body, rest.split_first_chunk::<4>()?)));
        let Some((body, (word, behind))) = parts else { return self.write(address, entry) };
        let last = address.wrapping_add(at as u64);
        self.write(last.wrapping_add(4), behind)?;
        self.write(address, body)?;
        let (map, offset, left) = self.find(last)?;
        if left < 4 || !offset.is_multiple_of(4) {
            return Err(Fault { address: last });
        }
        map.store(offset, u32::from_ne_bytes(*word), Ordering::Release);
        Ok(())
    }

    /// Loads a big-endian word at an aligned address. What is read later is loaded after it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn word(&self, address: u64) -> Result<u32, Fault> {
        let (map, offset, left) = self.find(address)?;
        if left < 4 || !offset.is_multiple_of(4) {
            return Err(Fault { address });
        }
        Ok(u32::from_be(map.load(offset, Ordering::Acquire)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_cross_regions_that_touch_and_stop_where_nothing_is() {
        let memory = Memory::zeroed(&[(0x1000, 4096), (0x2000, 4096), (0x9000, 4096)]);
        let mut back = [0; 8];
        memory.write(0x1ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        memory.read(0x1ffc, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(memory.word(0x1ffc), Ok(0x0102_0304));
        assert_eq!(memory.read(0x2ffc, &mut back), Err(Fault { address: 0x3000 }));
        assert_eq!(memory.write(0, &back), Err(Fault { address: 0 }));
        assert_eq!(memory.word(0x1ffe), Err(Fault { address: 0x1ffe }));
        assert_eq!(memory.read(u64::MAX, &mut back), Err(Fault { address: u64::MAX }));
    }

    #[test]
    fn an_entry_is_written_whole_wherever_its_word_is() {
        let memory = Memory::zeroed(&[(0x1000, 4096)]);
        let entry = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        for at in [0, 4, 8, 9, 100] {
            let mut back = [0; 12];
            memory.write(0x1000, &back).unwrap();
            let result = memory.publish_word(0x1000, &entry, at);
            memory.read(0x1000, &mut back).unwrap();
            assert_eq!((result, back), (Ok(()), entry), "{at}");
        }
        assert_eq!(memory.publish_word(0x1002, &entry, 4), Err(Fault { address: 0x1006 }));
        assert_eq!(memory.publish(0x1ff8, &entry), Err(Fault { address: 0x2000 }));
    }

    #[test]
    fn ranges_may_not_overlap_and_can_be_unmapped() {
        let mut memory = Memory::zeroed(&[(0x1000, 4096), (0x2000, 4096)]);
        let map = MmapMut::map_anon(8192).unwrap();
        assert!(memory.add(0x800, map.into()).is_err());
        memory.unmap(0x1000, 4096);
        assert!(memory.word(0x1000).is_err() && memory.word(0x2000).is_ok());
        memory.unmap_all();
        assert!(memory.word(0x2000).is_err());
    }
}
