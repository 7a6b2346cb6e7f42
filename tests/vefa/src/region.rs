//! Memory regions: translation of their addresses to the guest's memory.

use vpci::{Fault, Memory};

use crate::admin::{Command, Status};
use crate::bytes::Bytes as _;
use crate::device::Device;
use crate::limits::{Limits, caps};

/// Permissions of a region.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u8 = 1 << 0;
    pub(crate) const REMOTE_WRITE: u8 = 1 << 1;
    pub(crate) const REMOTE_READ: u8 = 1 << 2;
}

/// Number of pages whose addresses are in the command itself.
const INLINE_PAGES: u64 = 4;
/// A list that is not contiguous: the size of its parts, the number of parts that a chunk names, and the place in a chunk of the next
/// chunk's address (`EFA_CHUNK_PAYLOAD_SIZE`, `EFA_PTRS_PER_CHUNK` and `pbl_chunk_list_create` in the kernel's `efa_verbs.c`, 6.1).
const PIECE: u64 = 4096;
const PIECES_IN_CHUNK: usize = 510;
const NEXT_CHUNK: u64 = PIECES_IN_CHUNK as u64 * 8;

/// A bit that only remote keys have, so that the use of one in place of a local key is detected.
const REMOTE: u32 = 0x4000_0000;
const REMOTE_MIX: u32 = 0x2a5;

pub(crate) fn remote_key(local: u32) -> u32 {
    REMOTE | local ^ REMOTE_MIX
}

fn local_key(remote: u32) -> Option<u32> {
    (remote & 0xff00_0000 == REMOTE).then_some((remote & 0xff_ffff) ^ REMOTE_MIX)
}

/// A memory region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) pd: u16,
    iova: u64,
    length: u64,
    page_shift: u8,
    pages: Vec<u64>,
    permissions: u8,
}

impl Region {
    /// The region that REG_MR describes.
    fn new(command: &Command, limits: &Limits, memory: &Memory) -> Result<Self, Status> {
        let payload = &command.payload[..];
        let (length, flags, permissions, iova) =
            (payload.u64(36), payload.u8(44), payload.u8(45), payload.u64(52));
        let page_shift = flags & 0x1f;
        let page = 1_u64 << page_shift;
        if flags & 0x80 != 0 {
            // All memory by physical addresses, which only the kernel itself uses.
            return Err(Status::Unsupported);
        }
        if length == 0
            || page < PIECE
            || limits.page_size_cap & page == 0
            || iova.checked_add(length).is_none()
        {
            return Err(Status::Illegal);
        }
        let allowed = access::LOCAL_WRITE
            | if limits.has(caps::RDMA_WRITE) { access::REMOTE_WRITE } else { 0 }
            | if limits.has(caps::RDMA_READ) { access::REMOTE_READ } else { 0 };
        if permissions & !allowed != 0 {
            return Err(Status::Unsupported);
        }
        // The driver sets the number of pages to 0 (efa_com_register_mr, 6.1 to 7.3).
        let count = (iova % page + length).div_ceil(page);
        let said = u64::from(payload.u32(48));
        if count > limits.max_mr_pages.into() || said != 0 && said != count {
            return Err(Status::Illegal);
        }
        let mut pages = page_list(command, count, memory)?;
        pages.iter_mut().for_each(|address| *address &= !(page - 1));
        Ok(Self { pd: payload.u16(0), iova, length, page_shift, pages, permissions })
    }

    /// Whether a range is inside.
    fn has(&self, address: u64, len: u64) -> bool {
        address
            .checked_sub(self.iova)
            .and_then(|offset| offset.checked_add(len))
            .is_some_and(|end| end <= self.length)
    }

    /// The addresses and lengths in the guest's memory for a range.
    fn pieces(&self, address: u64, len: usize) -> impl Iterator<Item = (u64, usize)> {
        let page = 1_u64 << self.page_shift;
        let mut at = (self.iova % page).wrapping_add(address.wrapping_sub(self.iova));
        let mut left = len;
        std::iter::from_fn(move || {
            let inside = at % page;
            let part = left.min(usize::try_from(page - inside).unwrap_or(usize::MAX));
            let start = self.pages.get(usize::try_from(at / page).ok()?).filter(|_| part > 0)?;
            at += part as u64;
            left -= part;
            Some((start + inside, part))
        })
    }

    /// Reads from a range that is inside.
    pub(crate) fn read(&self, memory: &Memory, address: u64, mut bytes: &mut [u8]) -> Result<(), Fault> {
        for (at, len) in self.pieces(address, bytes.len()) {
            let (part, rest) = std::mem::take(&mut bytes).split_at_mut(len);
            memory.read(at, part)?;
            bytes = rest;
        }
        Ok(())
    }

    /// Writes to a range that is inside.
    pub(crate) fn write(&self, memory: &Memory, address: u64, mut bytes: &[u8]) -> Result<(), Fault> {
        for (at, len) in self.pieces(address, bytes.len()) {
            let (part, rest) = bytes.split_at(len);
            memory.write(at, part)?;
            bytes = rest;
        }
        Ok(())
    }
}

/// The addresses of pages: in the command, in a list, or in a list whose parts a chain of lists names.
fn page_list(command: &Command, count: u64, memory: &Memory) -> Result<Vec<u64>, Status> {
    let payload = &command.payload[..];
    if !command.has_control() {
        let numbers = (0..count).map(|i| payload.u64(4 + i as usize * 8));
        return if count <= INLINE_PAGES { Ok(numbers.collect()) } else { Err(Status::Illegal) };
    }
    let mut list = vec![0; count as usize * 8];
    let first = payload.u64(8);
    if !command.is_indirect() {
        if u64::from(payload.u32(4)) < list.len() as u64 {
            return Err(Status::Illegal);
        }
        memory.read(first, &mut list)?;
    } else {
        let mut chunk = first;
        // The lengths in chunks are ignored: 6.1 writes a wrong one for a chunk that is full and the last.
        for pieces in list.chunks_mut(PIECES_IN_CHUNK * PIECE as usize) {
            for (i, piece) in pieces.chunks_mut(PIECE as usize).enumerate() {
                let mut address = [0; 8];
                memory.read(chunk.wrapping_add(i as u64 * 8), &mut address)?;
                memory.read(u64::from_le_bytes(address), piece)?;
            }
            let mut next = [0; 12];
            // After the last chunk there need not be anything.
            if pieces.len() == PIECES_IN_CHUNK * PIECE as usize {
                memory.read(chunk.wrapping_add(NEXT_CHUNK), &mut next)?;
            }
            chunk = next.u64(4);
        }
    }
    Ok(list.as_chunks::<8>().0.iter().map(|address| u64::from_le_bytes(*address)).collect())
}

impl Device {
    /// Registers a region, and returns its local key.
    pub(crate) fn register_region(&mut self, command: &Command) -> Result<u32, Status> {
        let region = Region::new(command, &self.limits, &self.memory)?;
        if !self.pds.has(region.pd.into()) {
            return Err(Status::Illegal);
        }
        self.regions.insert(self.limits.max_mr, region).ok_or(Status::Exhausted)
    }

    /// The region of a local key, if a domain may use it for a range.
    pub(crate) fn local_region(
        &self,
        pd: u16,
        key: u32,
        address: u64,
        len: u64,
        permissions: u8,
    ) -> Option<&Region> {
        let region = self.regions.get(key).filter(|region| region.pd == pd)?;
        (region.has(address, len) && region.permissions & permissions == permissions).then_some(region)
    }

    /// The region of a remote key, if a peer may use it for a range.
    pub(crate) fn remote_region(
        &self,
        pd: u16,
        key: u32,
        address: u64,
        len: u64,
        permissions: u8,
    ) -> Option<&Region> {
        self.local_region(pd, local_key(key)?, address, len, permissions)
    }
}

#[cfg(test)]
mod tests;
