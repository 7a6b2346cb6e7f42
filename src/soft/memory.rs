//! Registered memory, which the soft device reads and writes as a real device does by DMA.
//!
//! A region holds its memory itself, as the kernel pins pages: even if the user drops every handle of the memory, it remains until the
//! region is deregistered or its file is closed. The device accesses no addresses.

use nix::errno::Errno;

use crate::kernel::mapping::Mapping;

/// The memory of a region: part of a block.
#[derive(Debug)]
pub(super) struct Memory {
    map: Mapping,
    offset: usize,
}

impl Memory {
    /// Registers a range of addresses inside one of these blocks; EFAULT outside.
    pub(super) fn register(blocks: &[Mapping], start: u64, len: u64) -> Result<Self, Errno> {
        let (start, len) = whole(start, len).ok_or(Errno::EINVAL)?;
        for map in blocks {
            // The block is mapped, so its address fits into this type.
            let offset = start.checked_sub(map.address() as usize);
            if let Some(offset) =
                offset.filter(|offset| offset.checked_add(len).is_some_and(|end| end <= map.len()))
            {
                return Ok(Self { map: map.clone(), offset });
            }
        }
        Err(Errno::EFAULT)
    }

    /// Copies out of the memory. False, with nothing done, if the range exceeds the block.
    #[must_use]
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        self.map.read(self.offset.saturating_add(offset), bytes)
    }

    /// Copies into the memory. False, with nothing done, if the range exceeds the block.
    #[must_use]
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        self.map.write(self.offset.saturating_add(offset), bytes)
    }
}

/// A range that is neither empty nor wraps, in the machine's own integers.
fn whole(start: u64, len: u64) -> Option<(usize, usize)> {
    let (start, len) = (usize::try_from(start).ok()?, usize::try_from(len).ok()?);
    start.checked_add(len)?.checked_next_multiple_of(4096)?;
    (len > 0).then_some((start, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_a_block_cannot_be_registered() {
        let map = Mapping::block(4096).unwrap();
        let blocks = [map.clone()];
        let refused = |start, len| Memory::register(&blocks, start, len).unwrap_err();
        assert_eq!(refused(4096, 0), Errno::EINVAL);
        assert_eq!(refused(u64::MAX - 4, 8), Errno::EINVAL);
        assert_eq!(refused(4096, 1), Errno::EFAULT);
        assert_eq!(refused(map.address() + 4095, 2), Errno::EFAULT);
        let memory = Memory::register(&blocks, map.address() + 4090, 6).unwrap();
        assert!(memory.write(2, &[1, 2, 3, 4]));
        let mut back = [0; 2];
        assert!(memory.read(3, &mut back));
        assert_eq!(back, [2, 3]);
        assert!(!memory.write(3, &[0; 4]));
        assert!(!memory.read(usize::MAX, &mut back));
    }
}
