//! Memory regions: the driver chooses their keys.

use vpci::Memory;

use crate::bytes::Bytes as _;
use crate::command::Refusal;
use crate::device::Device;
use crate::memory::Pages;

/// The key by which the kernel names all memory by its bus address.
pub(crate) const ALL_MEMORY: u32 = 0xffff_ff00;

/// Rights of a region, `ERDMA_MR_ACC_*`.
pub(crate) mod right {
    pub(crate) const ATOMIC: u8 = 1 << 0;
    pub(crate) const LOCAL_READ: u8 = 1 << 1;
    pub(crate) const LOCAL_WRITE: u8 = 1 << 2;
    pub(crate) const REMOTE_READ: u8 = 1 << 3;
    pub(crate) const REMOTE_WRITE: u8 = 1 << 4;
}

/// What the driver may choose as the type of a region.
const NORMAL: u32 = 0;
const FAST: u32 = 1;
const PHYSICAL: u32 = 2;

/// Pages that are named in the command itself.
const INLINE_PAGES: u64 = 4;

/// A region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) pd: u32,
    key: u8,
    rights: u8,
    /// By bus addresses.
    is_physical: bool,
    pub(crate) is_valid: bool,
    start: u64,
    len: u64,
    pages: Pages,
}

impl Region {
    /// The region that REG_MR describes, and its index.
    fn new(command: &[u8], memory: &Memory) -> Result<(u32, Self), Refusal> {
        let (cfg0, cfg1, cfg2) = (command.u32(8), command.u32(12), command.u32(28));
        let (start, len) = (command.u64(16), u64::from(command.u32(24)));
        let kind = cfg1 >> 6 & 3;
        let mut region = Self {
            pd: cfg1 >> 12,
            key: (cfg0 >> 20) as u8,
            rights: (cfg1 >> 1 & 0x1f) as u8,
            is_physical: kind == PHYSICAL,
            is_valid: cfg0 >> 31 == 1 || kind == PHYSICAL,
            start,
            len,
            pages: Pages::default(),
        };
        match kind {
            PHYSICAL | FAST => return Ok((cfg0 & 0xf_ffff, region)),
            NORMAL => {}
            _ => return Err(Refusal::Invalid),
        }
        let (shift, level, count) = ((cfg2 >> 27) as u8, cfg2 >> 20 & 3, u64::from(cfg2 & 0xf_ffff));
        if shift < 12 || len == 0 || start.checked_add(len).is_none() || cfg0 >> 28 & 7 != 0 {
            return Err(Refusal::Invalid);
        }
        let list = match level {
            0 if count <= INLINE_PAGES => (0..count as usize).map(|at| command.u64(32 + at * 8)).collect(),
            1 => Pages::table(memory, command.u64(32), count).ok_or(Refusal::Invalid)?,
            _ => return Err(Refusal::Invalid),
        };
        region.pages = Pages::new(shift, start & ((1 << shift) - 1), list);
        if region.pages.holds(len) { Ok((cfg0 & 0xf_ffff, region)) } else { Err(Refusal::Invalid) }
    }

    /// Whether these bytes are in it, for a user with this key, domain and right.
    pub(crate) fn allows(&self, key: u32, pd: u32, right: u8, address: u64, len: u64) -> bool {
        let inside = self.is_physical
            || address
                .checked_sub(self.start)
                .and_then(|offset| offset.checked_add(len))
                .is_some_and(|end| end <= self.len);
        self.is_valid && self.key == key as u8 && self.pd == pd && self.rights & right == right && inside
    }

    pub(crate) fn read(&self, memory: &Memory, address: u64, bytes: &mut [u8]) -> Result<(), vpci::Fault> {
        if self.is_physical {
            return memory.read(address, bytes);
        }
        self.pages.read(memory, address.wrapping_sub(self.start), bytes)
    }

    pub(crate) fn write(&self, memory: &Memory, address: u64, bytes: &[u8]) -> Result<(), vpci::Fault> {
        if self.is_physical {
            return memory.write(address, bytes);
        }
        self.pages.write(memory, address.wrapping_sub(self.start), bytes)
    }
}

impl Device {
    pub(crate) fn register(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let (index, region) = Region::new(command, &self.memory)?;
        if self.regions.contains_key(&index) {
            return Err(Refusal::InUse);
        }
        self.regions.insert(index, region);
        Ok(())
    }

    pub(crate) fn deregister(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let index = command.u32(8) & 0xf_ffff;
        self.regions.remove(&index).map(drop).ok_or(Refusal::Unknown)
    }
}
