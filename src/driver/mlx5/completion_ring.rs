//! The ring of a completion queue, and how completions are moved to another ring.
//!
//! When a queue is resized, the device writes a special entry behind the last completion in the old ring, and continues in the new ring
//! at the position after that entry's. A completion in the old ring therefore moves to the next higher position in the new one.
//!
//! Source: `mlx5_ib_resize_cq` and `copy_resize_cqes`, cq.c, Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::mlx5::wqe::{CQE_INVALID, CQE_OWNER_MASK, CQE_RESIZE_CQ, Cqe64};

use super::run::Ended;
use crate::driver::ring::units::{Item, Reading, Units};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;
use crate::kernel::mapping::source::BlockSource;

/// Size of an entry in bytes. The same number of bytes may precede each entry.
const ENTRY: usize = size_of::<Cqe64>();

/// A ring of completions.
#[derive(Debug)]
pub(super) struct Ring {
    units: Units,
    /// Number of entries, a power of two.
    entries: u32,
    /// Each entry has twice the size, and its second half is used.
    is_wide: bool,
}

impl Ring {
    /// A ring for `wanted` completions of this size, followed by `behind` bytes. No memory is touched yet: see [`Ring::clear`].
    pub(super) fn new(
        op: &'static str,
        source: &BlockSource,
        wanted: u32,
        size: u32,
        behind: usize,
    ) -> Result<Self> {
        let invalid = || Error::kernel(op, Errno::EINVAL);
        let entries = Self::entries_for(wanted).ok_or_else(|| {
            Error::outside(op, "entries of a completion queue", wanted, format_args!("1 to {}", i32::MAX))
        })?;
        let bytes = (entries as usize).checked_mul(size as usize).ok_or_else(invalid)?;
        let whole = bytes.checked_add(behind).ok_or_else(invalid)?;
        let memory = source.block(whole).map_err(|errno| Error::kernel(op, errno))?;
        let units = Units::new(&memory, 0, bytes).ok_or_else(invalid)?;
        Ok(Self { units, entries, is_wide: size as usize > ENTRY })
    }

    /// Marks all entries as not written by the device. This must be done before the device may write one.
    pub(super) fn clear(&mut self) {
        for position in 0..self.entries.into() {
            let word = Self::last_word(self.place(position));
            self.units.put(word, [0, 0, 0, CQE_INVALID << 4]);
        }
    }

    /// Number of entries that the kernel gives a queue for `wanted` completions: it rounds up in the same way, and has no queue of size
    /// zero (`mlx5_ib_create_cq`, cq.c).
    pub(super) fn entries_for(wanted: u32) -> Option<u32> {
        wanted.checked_add(1).and_then(u32::checked_next_power_of_two).filter(|_| wanted > 0)
    }

    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Size of an entry in bytes, including the bytes before it.
    pub(super) fn size(&self) -> u32 {
        (ENTRY as u32) << u32::from(self.is_wide)
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries as usize * self.size() as usize
    }

    /// The memory, including the bytes behind the ring.
    pub(super) fn memory(&self) -> &Mapping {
        self.units.map()
    }

    /// Borrows the ring to read it.
    #[inline]
    pub(super) fn reading(&self) -> Entries<'_> {
        Entries { units: self.units.reading(), entries: self.entries, is_wide: self.is_wide }
    }

    #[inline(always)]
    fn place(&self, position: u64) -> usize {
        self.reading().place(position)
    }

    /// The index of the word whose last byte is the owner byte of the entry at this place.
    #[inline(always)]
    fn last_word(place: usize) -> usize {
        place.wrapping_mul(ENTRY / 4).wrapping_add(ENTRY / 4 - 1)
    }

    /// Whether the device has written the entry at `position`.
    #[inline(always)]
    pub(super) fn is_filled(&self, position: u64) -> bool {
        self.reading().filled(position).is_some()
    }

    /// The entry at `position`, which the device has written.
    #[inline(always)]
    pub(super) fn entry(&self, position: u64) -> Item<'_, Cqe64> {
        self.reading().entry(position)
    }

    /// Moves the completions of `old` from `first` on into this ring, and returns the position of the first of them here. `nobodys` are
    /// completions that are no longer needed.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) if the device has not written its special entry. The completions are moved all the
    /// same.
    pub(super) fn take_over(
        &mut self,
        op: &'static str,
        old: &Self,
        first: u64,
        nobodys: impl Fn(&Cqe64, u64) -> bool,
    ) -> Result<u64> {
        for position in first..first + u64::from(old.entries) {
            let Some(entry) = old.reading().filled(position) else { break };
            let mut cqe = entry.read();
            if cqe.op_own >> 4 == CQE_RESIZE_CQ {
                return Ok(first + 1);
            }
            if nobodys(&cqe, position) {
                cqe.srqn_uidx = NOBODY.into();
            }
            cqe.op_own = cqe.op_own & !CQE_OWNER_MASK | self.reading().owner(position + 1);
            let place = self.place(position + 1);
            self.units.put(place, cqe);
        }
        Err(Error::malformed(op, "the device has not ended the old ring"))
    }
}

/// The entries of a ring, borrowed to be read, with copies of all that is needed for each entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries<'a> {
    units: Reading<'a>,
    entries: u32,
    is_wide: bool,
}

impl<'a> Entries<'a> {
    /// The index of the entry for `position`, in units of the part of an entry that is used.
    #[inline(always)]
    pub(super) fn place(self, position: u64) -> usize {
        (position as usize) << u32::from(self.is_wide) | usize::from(self.is_wide)
    }

    /// The place after this one.
    #[inline(always)]
    pub(super) fn behind(self, place: usize) -> usize {
        place.wrapping_add(1 + usize::from(self.is_wide))
    }

    /// The owner bit of an entry at `position` that the device has written.
    #[inline(always)]
    fn owner(self, position: u64) -> u8 {
        u8::from(position & u64::from(self.entries) != 0)
    }

    /// The entry at `position`, which the device has written.
    #[inline(always)]
    pub(super) fn entry(self, position: u64) -> Item<'a, Cqe64> {
        self.units.get(self.place(position))
    }

    /// The entry at a place.
    #[inline]
    pub(super) fn entry_at(self, place: usize) -> Item<'a, Cqe64> {
        self.units.get(place)
    }

    /// The number of entries from `position` on that the device has written, at most `most`, up to the end of the ring; and why there are
    /// not more.
    #[inline(always)]
    pub(super) fn filled_from(self, position: u64, most: usize) -> (usize, Ended) {
        let left = (self.entries - (position as u32 & (self.entries - 1))) as usize;
        let (owner, mut place) = (self.owner(position), self.place(position));
        for count in 0..most.min(left) {
            if !self.is_written(place, owner) {
                return (count, Ended::Empty);
            }
            place = self.behind(place);
        }
        if most <= left { (most, Ended::Full) } else { (left, Ended::More) }
    }

    /// Whether the device has written the entry at a place in the round with this owner bit.
    #[inline(always)]
    fn is_written(self, place: usize, owner: u8) -> bool {
        // The owner bit becomes the highest, before those of the opcode, of which the largest is "invalid": one comparison for both.
        const _: () = assert!(CQE_OWNER_MASK == 1 && CQE_INVALID == 0xf);
        let last = self.units.load(Ring::last_word(place)).to_ne_bytes()[3];
        (last ^ owner).rotate_right(1) < CQE_INVALID << 3
    }

    /// The entry at `position`, if the device has written it.
    #[inline(always)]
    pub(super) fn filled(self, position: u64) -> Option<Item<'a, Cqe64>> {
        self.filled_at(self.place(position), position)
    }

    /// The entry at `position`, whose place is known, if the device has written it.
    #[inline(always)]
    pub(super) fn filled_at(self, place: usize, position: u64) -> Option<Item<'a, Cqe64>> {
        self.is_written(place, self.owner(position)).then(|| self.units.get(place))
    }
}

/// An index that no queue pair has.
const NOBODY: u32 = 0xff_ffff;

/// The first position behind all entries that the device has written. `next` is the next one to be taken. Another thread may take entries
/// meanwhile, and the device may then overwrite them with the next round: what was read at a position counts only if that entry has not
/// been taken.
pub(super) fn end_of(next: impl Fn() -> u64, is_filled: impl Fn(u64) -> bool) -> u64 {
    let mut position = next();
    loop {
        while is_filled(position) {
            position += 1;
        }
        let now = next();
        if position >= now {
            return position;
        }
        position = now;
    }
}
