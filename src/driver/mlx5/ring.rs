//! The ring of a completion queue, and how completions move to another one.
//!
//! When a queue is resized the device writes an entry of its own behind the last completion in the old ring, and goes
//! on in the new one at the place behind that entry's. So what waits in the old ring has one place more in the new.
//!
//! Source: `mlx5_ib_resize_cq` and `copy_resize_cqes`, cq.c, Linux 6.1.

use std::sync::atomic::Ordering;

use nix::errno::Errno;
use uverbs_abi::mlx5::wqe::{CQE_INVALID, CQE_OWNER_MASK, CQE_RESIZE_CQ, Cqe64};
use zerocopy::FromBytes;

use crate::error::{Error, Result};
use crate::mapping::Mapping;

/// What an entry is read into.
pub(super) const ENTRY: usize = size_of::<Cqe64>();

/// A ring of completions.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub(super) memory: Mapping,
    /// Number of entries, a power of two, and their size.
    pub(super) entries: u32,
    pub(super) size: u32,
}

impl Ring {
    /// A ring for so many completions, with as many bytes behind it. No memory is touched yet: see [`Ring::clear`].
    pub(super) fn new(op: &'static str, wanted: u32, size: u32, behind: usize) -> Result<Self> {
        let invalid = || Error::kernel(op, Errno::EINVAL);
        let entries = Self::entries_for(wanted).ok_or_else(invalid)?;
        let bytes = (entries as usize).checked_mul(size as usize).ok_or_else(invalid)?;
        let whole = bytes.checked_add(behind).ok_or_else(invalid)?;
        let memory = Mapping::block(whole).map_err(|errno| Error::kernel(op, errno))?;
        Ok(Self { memory, entries, size })
    }

    /// Makes all entries such as the device has not written. It must come before the device may write one.
    pub(super) fn clear(&self) {
        for slot in 0..self.entries as usize {
            let last = (slot + 1) * self.size as usize - 4;
            self.memory.store(last, u32::from_ne_bytes([0, 0, 0, CQE_INVALID << 4]), Ordering::Relaxed);
        }
    }

    /// How many entries the kernel gives a queue for so many completions: it rounds up in the same way, and has no queue of
    /// zero (`mlx5_ib_create_cq`, cq.c).
    pub(super) fn entries_for(wanted: u32) -> Option<u32> {
        wanted.checked_add(1).and_then(u32::checked_next_power_of_two).filter(|_| wanted > 0)
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries as usize * self.size as usize
    }

    /// Where the entry for `position` is: of one of 128 bytes it is the second half.
    fn place(&self, position: u64) -> usize {
        let slot = position as usize & (self.entries as usize - 1);
        (slot + 1) * self.size as usize - ENTRY
    }

    /// The bit that an entry at `position` has when the device has written it.
    fn owner(&self, position: u64) -> u8 {
        u8::from(position & u64::from(self.entries) != 0)
    }

    /// The entry at `position`, if the device has written it.
    pub(super) fn entry(&self, position: u64) -> Option<[u8; ENTRY]> {
        let at = self.place(position);
        // The owner is in the last byte of the entry.
        let last = self.memory.load(at + ENTRY - 4, Ordering::Acquire).to_ne_bytes()[3];
        if last >> 4 == CQE_INVALID || last & CQE_OWNER_MASK != self.owner(position) {
            return None;
        }
        let mut entry = [0; ENTRY];
        self.memory.read(at, &mut entry).then_some(entry)
    }

    /// Takes over what waits in `old` from `first` on, and gives the position of the first of them here. `nobodys` are
    /// completions that are of no use any more.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) when the device has not written its entry: what waits is taken over all
    /// the same.
    pub(super) fn take_over(
        &self,
        op: &'static str,
        old: &Self,
        first: u64,
        nobodys: impl Fn(&Cqe64, u64) -> bool,
    ) -> Result<u64> {
        for position in first..first + u64::from(old.entries) {
            let Some(mut entry) = old.entry(position) else { break };
            let cqe = Cqe64::mut_from_bytes(&mut entry).map_err(|_| Error::malformed(op, "an entry"))?;
            if cqe.op_own >> 4 == CQE_RESIZE_CQ {
                return Ok(first + 1);
            }
            if nobodys(cqe, position) {
                cqe.srqn_uidx = NOBODY.into();
            }
            cqe.op_own = cqe.op_own & !CQE_OWNER_MASK | self.owner(position + 1);
            if !self.memory.write(self.place(position + 1), &entry) {
                break;
            }
        }
        Err(Error::malformed(op, "the device has not ended the old ring"))
    }
}

/// An index that no queue pair has.
const NOBODY: u32 = 0xff_ffff;
