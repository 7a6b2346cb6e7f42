//! Memory keys: which memory a work request may name, and how.

mod change;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::bits::{Bits, Field};
use crate::command::Status;
use crate::ifc::command::create_mkey_in;
use crate::ifc::context::mkc;
use crate::queue::Segment;
use vpci::Memory;

/// The access that a work request or a packet needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

impl Access {
    /// The access right of a key that it needs.
    fn right(self) -> Field {
        match self {
            Self::LocalRead => mkc::lr,
            Self::LocalWrite => mkc::lw,
            Self::RemoteRead => mkc::rr,
            Self::RemoteWrite => mkc::rw,
            Self::RemoteAtomic => mkc::a,
        }
    }

    /// The right that it needs for a key that another key names: the rights of the other key apply, and this one must only be readable or
    /// writable.
    fn behind(self) -> Self {
        match self {
            Self::LocalRead | Self::RemoteRead => Self::LocalRead,
            Self::LocalWrite | Self::RemoteWrite | Self::RemoteAtomic => Self::LocalWrite,
        }
    }
}

/// The user of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The protection domain; none for the queue pair with which the driver changes keys of all domains.
    pub(crate) pd: Option<u32>,
    /// The queue pair: a key may belong to one queue pair only.
    pub(crate) qpn: u32,
    /// Whether it may use the key for the driver's own memory.
    pub(crate) reserved: bool,
}

impl Reach {
    /// The queue pair number of a key that every queue pair may use, and of a queue without a queue pair.
    const ANY: u32 = 0xff_ffff;

    /// A queue of raw packets.
    pub(crate) fn raw(pd: u32, reserved: bool) -> Self {
        Self { pd: Some(pd), qpn: Self::ANY, reserved }
    }
}

/// The effect of an atomic operation on eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    Swap { compare: u64, swap: u64 },
    Add(u64),
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    NoKey,
    Domain,
    Access,
    Range,
    Memory,
    /// The key belongs to another queue pair.
    QueuePair,
    /// An atomic operation at an address that is not a multiple of eight.
    Alignment,
    /// The key is free, or is not, contrary to what the request required.
    Free,
    /// The device does not support it.
    Request,
}

/// How addresses of a key are translated to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Translation {
    /// They are bus addresses.
    None,
    /// By a list of pages.
    Pages,
    /// By a list of ranges of other keys, in their order.
    Keys,
}

impl Translation {
    fn of(context: &[u8]) -> Option<Self> {
        match context.num(mkc::access_mode_4_2) << 2 | context.num(mkc::access_mode_1_0) {
            0 => Some(Self::None),
            1 => Some(Self::Pages),
            2 => Some(Self::Keys),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Mkey {
    context: Vec<u8>,
    translation: Translation,
    /// Pages or ranges as the driver wrote them.
    list: Vec<u8>,
}

/// Maximum depth of keys that name keys.
const DEPTH: u32 = 4;

/// The sizes of pages, as a shift.
const PAGES: std::ops::RangeInclusive<u32> = 12..=31;

/// All memory keys, by their index: the upper 24 bits.
#[derive(Debug, Default)]
pub(crate) struct Mkeys {
    keys: BTreeMap<u32, Mkey>,
}

impl Mkeys {
    /// The key for the driver's own memory, by bus addresses. It has index 0, which no created key has.
    pub(crate) fn reserved(&self) -> u32 {
        0x01
    }

    /// Adds the key that CREATE_MKEY describes.
    ///
    /// # Errors
    /// `BadParameter` for what the device does not support, `BadInputLength` if a list is too short.
    pub(crate) fn insert(&mut self, index: u32, input: &[u8]) -> Result<(), Status> {
        let context = input.part(create_mkey_in::memory_key_mkey_entry).to_vec();
        let list = input.part(create_mkey_in::klm_pas_mtt);
        let octwords = input.num(create_mkey_in::translations_octword_actual_size) as usize;
        let list = list.get(..octwords * 16).ok_or(Status::BadInputLength)?.to_vec();
        let translation = Translation::of(&context).ok_or(Status::BadParameter)?;
        let shift = context.num(mkc::log_page_size);
        if translation == Translation::Pages && !list.is_empty() && !PAGES.contains(&shift) {
            return Err(Status::BadParameter);
        }
        self.keys.insert(index, Mkey { context, translation, list });
        Ok(())
    }

    pub(crate) fn remove(&mut self, index: u32) {
        self.keys.remove(&index);
    }

    pub(crate) fn context(&self, index: u32) -> Option<&[u8]> {
        self.keys.get(&index).map(|key| &key.context[..])
    }

    /// Reads the memory of a segment, as many bytes as `bytes` has.
    ///
    /// # Errors
    /// [`Denied`] if the user lacks the right.
    pub(crate) fn read(
        &self,
        memory: &Memory,
        reach: Reach,
        segment: Segment,
        bytes: &mut [u8],
        access: Access,
    ) -> Result<(), Denied> {
        let mut at = 0;
        for (address, len) in self.translate(reach, segment, bytes.len() as u64, access, DEPTH)? {
            let len = len as usize;
            memory.read(address, &mut bytes[at..at + len]).map_err(|_| Denied::Memory)?;
            at += len;
        }
        Ok(())
    }

    /// Writes the memory of a segment, as many bytes as `bytes` has.
    ///
    /// # Errors
    /// [`Denied`] if the user lacks the right.
    pub(crate) fn write(
        &self,
        memory: &Memory,
        reach: Reach,
        segment: Segment,
        bytes: &[u8],
        access: Access,
    ) -> Result<(), Denied> {
        let mut at = 0;
        for (address, len) in self.translate(reach, segment, bytes.len() as u64, access, DEPTH)? {
            let len = len as usize;
            memory.write(address, &bytes[at..at + len]).map_err(|_| Denied::Memory)?;
            at += len;
        }
        Ok(())
    }

    /// Executes an atomic operation on a number in the host's byte order, and returns the old value. It is atomic with respect to all
    /// other operations of the device, whose state is locked meanwhile, but not to the host's processors.
    ///
    /// # Errors
    /// [`Denied`] if the user lacks the right, or if the address is not a multiple of eight.
    pub(crate) fn atomic(
        &self,
        memory: &Memory,
        reach: Reach,
        address: u64,
        key: u32,
        operation: Atomic,
    ) -> Result<u64, Denied> {
        let segment = Segment { len: 8, key, address };
        let mut bytes = [0; 8];
        // The key is checked before the address.
        self.read(memory, reach, segment, &mut bytes, Access::RemoteAtomic)?;
        if !address.is_multiple_of(8) {
            return Err(Denied::Alignment);
        }
        let before = u64::from_le_bytes(bytes);
        let after = match operation {
            Atomic::Swap { compare, swap } if compare == before => swap,
            Atomic::Swap { .. } => return Ok(before),
            Atomic::Add(value) => before.wrapping_add(value),
        };
        self.write(memory, reach, segment, &after.to_le_bytes(), Access::RemoteAtomic)?;
        Ok(before)
    }

    /// Checks whether a user may access `len` bytes of a segment, and whether keys provide memory for all of them.
    ///
    /// # Errors
    /// [`Denied`] if not.
    pub(crate) fn check(
        &self,
        reach: Reach,
        segment: Segment,
        len: u64,
        access: Access,
    ) -> Result<(), Denied> {
        self.translate(reach, segment, len, access, DEPTH).map(|_| ())
    }

    /// The key that a user names, if it exists for this user.
    fn named(&self, reach: Reach, key: u32) -> Result<&Mkey, Denied> {
        let found = self.keys.get(&(key >> 8)).ok_or(Denied::NoKey)?;
        let context = &found.context[..];
        if context.is(mkc::free) || context.num(mkc::mkey_7_0) != key & 0xff {
            return Err(Denied::NoKey);
        }
        if reach.pd.is_some_and(|pd| context.num(mkc::pd) != pd) {
            return Err(Denied::Domain);
        }
        if !fits(context, reach) {
            return Err(Denied::QueuePair);
        }
        Ok(found)
    }

    /// The ranges of memory for `len` bytes of a segment.
    fn translate(
        &self,
        reach: Reach,
        segment: Segment,
        len: u64,
        access: Access,
        depth: u32,
    ) -> Result<Vec<(u64, u64)>, Denied> {
        if len == 0 {
            return Ok(Vec::new());
        }
        if depth == 0 {
            return Err(Denied::NoKey);
        }
        if segment.key == self.reserved() && reach.reserved {
            return Ok(vec![(segment.address, len)]);
        }
        let key = self.named(reach, segment.key)?;
        let context = &key.context[..];
        if !context.is(access.right()) {
            return Err(Denied::Access);
        }
        let all = context.is(mkc::length64);
        let start = if all { 0 } else { context.wide(mkc::start_addr) };
        let offset = segment.address.checked_sub(start).ok_or(Denied::Range)?;
        let end = offset.checked_add(len).ok_or(Denied::Range)?;
        if !all && end > context.wide(mkc::len) {
            return Err(Denied::Range);
        }
        match key.translation {
            Translation::None => Ok(vec![(segment.address, len)]),
            Translation::Pages => in_pages(key, start, offset, len),
            Translation::Keys => {
                let mut found = Vec::new();
                let (mut skip, mut left) = (offset, len);
                for part in key.list.as_chunks().0.iter().map(Segment::parse) {
                    let here = u64::from(part.len).saturating_sub(skip).min(left);
                    if here > 0 {
                        let address = part.address.checked_add(skip).ok_or(Denied::Range)?;
                        let part = Segment { address, ..part };
                        found.extend(self.translate(reach, part, here, access.behind(), depth - 1)?);
                    }
                    skip = skip.saturating_sub(part.len.into());
                    left -= here;
                }
                if left == 0 { Ok(found) } else { Err(Denied::Range) }
            }
        }
    }
}

/// Whether a key belongs to every queue pair, or to this one.
fn fits(context: &[u8], reach: Reach) -> bool {
    let qpn = context.num(mkc::qpn);
    qpn == Reach::ANY || qpn == reach.qpn
}

/// The first address of a key is at its offset in the first page.
fn in_pages(key: &Mkey, start: u64, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, Denied> {
    let shift = key.context.num(mkc::log_page_size);
    if !PAGES.contains(&shift) {
        return Err(Denied::Range);
    }
    let (pages, _) = key.list.as_chunks::<8>();
    let size = 1_u64 << shift;
    let mut at = (start & (size - 1)) + offset;
    let mut left = len;
    let mut found = Vec::new();
    while left > 0 {
        let page =
            usize::try_from(at >> shift).ok().and_then(|index| pages.get(index)).ok_or(Denied::Range)?;
        // The lowest bits say whether the page is present, if they are used; an entry of zero is never a page.
        let page =
            Some(u64::from_be_bytes(*page) & !0xfff).filter(|page| *page != 0).ok_or(Denied::Memory)?;
        let inside = at & (size - 1);
        let here = (size - inside).min(left);
        found.push((page + inside, here));
        at += here;
        left -= here;
    }
    Ok(found)
}
