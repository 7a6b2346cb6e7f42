//! The ring of a completion queue, and how completions move to another one.
//!
//! When a queue is resized the device writes an entry of its own behind the last completion in the old ring, and goes
//! on in the new one at the place behind that entry's. So what waits in the old ring has one place more in the new.
//!
//! Source: `mlx5_ib_resize_cq` and `copy_resize_cqes`, cq.c, Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::mlx5::wqe::{CQE_INVALID, CQE_OWNER_MASK, CQE_RESIZE_CQ, Cqe64};

use crate::driver::ring::units::{Item, Reading, Units};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// Bytes of an entry, of which there may be as many more before it.
const ENTRY: usize = size_of::<Cqe64>();

/// A ring of completions.
#[derive(Debug)]
pub(super) struct Ring {
    units: Units,
    /// Number of entries, a power of two.
    entries: u32,
    /// Each has twice the size, and the second half counts.
    is_wide: bool,
}

impl Ring {
    /// A ring for so many completions of this size, with as many bytes behind it. No memory is touched yet: see [`Ring::clear`].
    pub(super) fn new(op: &'static str, wanted: u32, size: u32, behind: usize) -> Result<Self> {
        let invalid = || Error::kernel(op, Errno::EINVAL);
        let entries = Self::entries_for(wanted).ok_or_else(invalid)?;
        let bytes = (entries as usize).checked_mul(size as usize).ok_or_else(invalid)?;
        let whole = bytes.checked_add(behind).ok_or_else(invalid)?;
        let memory = Mapping::block(whole).map_err(|errno| Error::kernel(op, errno))?;
        let units = Units::new(&memory, 0, bytes).ok_or_else(invalid)?;
        Ok(Self { units, entries, is_wide: size as usize > ENTRY })
    }

    /// Makes all entries such as the device has not written. It must come before the device may write one.
    pub(super) fn clear(&mut self) {
        for position in 0..self.entries.into() {
            let word = Self::last_word(self.place(position));
            self.units.put(word, [0, 0, 0, CQE_INVALID << 4]);
        }
    }

    /// How many entries the kernel gives a queue for so many completions: it rounds up in the same way, and has no queue of
    /// zero (`mlx5_ib_create_cq`, cq.c).
    pub(super) fn entries_for(wanted: u32) -> Option<u32> {
        wanted.checked_add(1).and_then(u32::checked_next_power_of_two).filter(|_| wanted > 0)
    }

    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of an entry, with those before it.
    pub(super) fn size(&self) -> u32 {
        (ENTRY as u32) << u32::from(self.is_wide)
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries as usize * self.size() as usize
    }

    /// The memory, with what is behind the ring.
    pub(super) fn memory(&self) -> &Mapping {
        self.units.map()
    }

    /// The ring while it is read.
    #[inline(always)]
    pub(super) fn reading(&self) -> Entries<'_> {
        Entries { units: self.units.reading(), entries: self.entries, is_wide: self.is_wide }
    }

    #[inline(always)]
    fn place(&self, position: u64) -> usize {
        self.reading().place(position)
    }

    /// The word that the owner of the entry at a place is in, in its last byte.
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

    /// Takes over what waits in `old` from `first` on, and gives the position of the first of them here. `nobodys` are
    /// completions that are of no use any more.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) when the device has not written its entry: what waits is taken over all
    /// the same.
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

/// The entries of a ring while they are read: all that is asked for each is at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries<'a> {
    units: Reading<'a>,
    entries: u32,
    is_wide: bool,
}

impl<'a> Entries<'a> {
    /// Which the entry for `position` is, of all that are as long as what counts of one.
    #[inline(always)]
    pub(super) fn place(self, position: u64) -> usize {
        (position as usize) << u32::from(self.is_wide) | usize::from(self.is_wide)
    }

    /// The place of the next one.
    #[inline(always)]
    pub(super) fn behind(self, place: usize) -> usize {
        place.wrapping_add(1 + usize::from(self.is_wide))
    }

    /// The bit that an entry at `position` has when the device has written it.
    #[inline(always)]
    fn owner(self, position: u64) -> u8 {
        u8::from(position & u64::from(self.entries) != 0)
    }

    /// As [`Ring::entry`].
    #[inline(always)]
    pub(super) fn entry(self, position: u64) -> Item<'a, Cqe64> {
        self.units.get(self.place(position))
    }

    /// The entry at `position`, if the device has written it.
    #[inline(always)]
    pub(super) fn filled(self, position: u64) -> Option<Item<'a, Cqe64>> {
        self.filled_at(self.place(position), position)
    }

    /// The same, of one whose place is known.
    #[inline(always)]
    pub(super) fn filled_at(self, place: usize, position: u64) -> Option<Item<'a, Cqe64>> {
        let last = self.units.load(Ring::last_word(place)).to_ne_bytes()[3];
        let is_filled = last >> 4 != CQE_INVALID && last & CQE_OWNER_MASK == self.owner(position);
        is_filled.then(|| self.units.get(place))
    }
}

/// An index that no queue pair has.
const NOBODY: u32 = 0xff_ffff;

/// The position behind all that is filled, from the next one on that is taken. Another thread may take some meanwhile, and then the
/// device writes the next round over what was given back: what was seen of a position counts only if that is not taken yet.
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
