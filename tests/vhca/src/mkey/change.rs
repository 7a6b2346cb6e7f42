//! Changes of keys by work requests: registration, windows, invalidation.

use super::{Access, Denied, Mkeys, PAGES, Reach, Translation, fits};
use crate::bits::{Bits, BitsMut, Field};
use crate::ifc::context::mkc;
use crate::queue::Segment;
use vpci::Memory;

/// Size of the two segments after the control segment in bytes; the list follows them.
const CONTROL: usize = 48;
const CONTEXT: usize = 64;

/// Flags of a request.
const INLINE: u8 = 0x80;
const MUST_NOT_BE_FREE: u8 = 0x40;
const MUST_BE_FREE: u8 = 0x20;
const WITH_OFFSET: u8 = 0x10;
const MUST_FIT_QUEUE_PAIR: u8 = 0x08;

/// The fields of the context that each bit of a request's mask takes over.
const FIELDS: &[(u32, &[Field])] = &[
    (0, &[mkc::len, mkc::length64]),
    (PAGE_SIZE, &[mkc::log_page_size]),
    (6, &[mkc::start_addr]),
    (DOMAIN, &[mkc::pd]),
    (8, &[mkc::en_rinval]),
    (13, &[mkc::mkey_7_0]),
    (14, &[mkc::qpn]),
    (17, &[mkc::lr]),
    (18, &[mkc::lw]),
    (19, &[mkc::rr]),
    (20, &[mkc::rw]),
    (21, &[mkc::a]),
    (SMALL_FENCE, &[]),
    (29, &[mkc::free]),
];
const PAGE_SIZE: u32 = 1;
const DOMAIN: u32 = 7;
/// Concerns the order of responses to reads, which is always the same here.
const SMALL_FENCE: u32 = 23;

/// A list is written in steps of this number of entries of 16 bytes, and the room of a key is a multiple of it.
const STEP: usize = 4;

/// A request to change a key, after its control segment.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    flags: u8,
    /// Length of the list in bytes, and its place in the key's list.
    len: usize,
    offset: usize,
    mask: u64,
    context: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Request<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (control, rest) = bytes.split_at_checked(CONTROL)?;
        let (context, rest) = rest.split_at_checked(CONTEXT)?;
        let number = |at: usize, width: usize| control.wide(Field::new(at * 8, width)) as usize;
        let flags = control[0];
        // Without the flag the place of the offset has another meaning.
        let offset = if flags & WITH_OFFSET == 0 { 0 } else { (number(16, 32) << 16 | number(6, 16)) * 16 };
        let mask = number(8, 64) as u64;
        Some(Self { flags, len: number(4, 16) * 16, offset, mask, context, rest })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn changes(&self, bit: u32) -> bool {
        self.mask >> bit & 1 == 1
    }
}

impl Mkeys {
    /// Executes a work request that changes a key. `request` is the part after its control segment, and `key` the immediate value in it.
    /// Only the index of `key` counts.
    ///
    /// # Errors
    /// [`Denied`] if the requester lacks the right; nothing has changed then.
    pub(crate) fn modify(
        &mut self,
        memory: &Memory,
        reach: Reach,
        key: u32,
        request: &[u8],
    ) -> Result<(), Denied> {
        let request = Request::parse(request).ok_or(Denied::Request)?;
        let known = FIELDS.iter().fold(0, |mask, (bit, _)| mask | 1 << bit);
        if request.mask & !known != 0 {
            return Err(Denied::Request);
        }
        let found = self.keys.get(&(key >> 8)).ok_or(Denied::NoKey)?;
        let context = &found.context[..];
        let is_free = context.is(mkc::free);
        if is_free && request.has(MUST_NOT_BE_FREE) || !is_free && request.has(MUST_BE_FREE) {
            return Err(Denied::Free);
        }
        if !context.is(mkc::umr_en) {
            return Err(Denied::Access);
        }
        if request.has(MUST_FIT_QUEUE_PAIR) && !fits(context, reach) {
            return Err(Denied::QueuePair);
        }
        if let Some(pd) = reach.pd {
            let leaves = request.changes(DOMAIN) && request.context.num(mkc::pd) != pd;
            if context.num(mkc::pd) != pd || leaves {
                return Err(Denied::Domain);
            }
        }
        let translation = found.translation;
        let bad_size = !PAGES.contains(&request.context.num(mkc::log_page_size));
        if translation == Translation::Pages && request.changes(PAGE_SIZE) && bad_size {
            return Err(Denied::Request);
        }
        let room = (context.num(mkc::translations_octword_size) as usize).next_multiple_of(STEP) * 16;
        let end = request.offset + request.len;
        if request.len > 0 && (translation == Translation::None || end > room) {
            return Err(Denied::Range);
        }
        let list = self.list(memory, reach, &request)?;

        let Some(found) = self.keys.get_mut(&(key >> 8)) else { return Err(Denied::NoKey) };
        if !list.is_empty() {
            found.list.resize(found.list.len().max(end), 0);
            found.list[request.offset..end].copy_from_slice(&list);
        }
        for field in FIELDS.iter().filter(|(bit, _)| request.changes(*bit)).flat_map(|(_, fields)| *fields) {
            found.context.set(*field, request.context.wide(*field));
        }
        Ok(())
    }

    /// The list of a request: in the request, or in memory that it names.
    fn list(&self, memory: &Memory, reach: Reach, request: &Request<'_>) -> Result<Vec<u8>, Denied> {
        if request.len == 0 {
            return Ok(Vec::new());
        }
        if request.has(INLINE) {
            return request.rest.get(..request.len).map(<[u8]>::to_vec).ok_or(Denied::Request);
        }
        let segment = Segment::parse(request.rest.first_chunk().ok_or(Denied::Request)?);
        if (segment.len as usize) < request.len {
            return Err(Denied::Request);
        }
        let mut list = vec![0; request.len];
        self.read(memory, reach, segment, &mut list, Access::LocalRead)?;
        Ok(list)
    }

    /// Invalidates a key at the request of a message from another queue pair.
    ///
    /// # Errors
    /// [`Denied`] if the key does not exist for the requester, or cannot be invalidated in this way.
    pub(crate) fn invalidate(&mut self, reach: Reach, key: u32) -> Result<(), Denied> {
        if !self.named(reach, key)?.context.is(mkc::en_rinval) {
            return Err(Denied::Access);
        }
        if let Some(found) = self.keys.get_mut(&(key >> 8)) {
            found.context.set(mkc::free, 1_u32);
        }
        Ok(())
    }
}
