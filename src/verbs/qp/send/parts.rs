//! Additional access to send queues: requests are written in parts, and programs may use the rings themselves.

use uverbs_abi::types::SendFlags;

use super::SendQueue;
use super::batch::{Batch, FillSends};
use crate::driver::request::{Opcode, Refused};
use crate::driver::seam::{Lower, OwnRing};
use crate::kernel::process::Here;

impl SendQueue {
    /// Begins a request in a queue whose requests are written in parts, in any order. Its data, and its address if `opcode`
    /// contains none, are set afterwards.
    ///
    /// # Errors
    /// [`Refused::Lacks`] for other queues; those of [`Batch::begin`] and [`SendQueue::step`].
    pub fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        self.apart_at_once(Begin { wr_id, flags, opcode })
    }

    /// A step of one request by the shortest path: it is begun, or a part of it is set. If a step is refused, it has done nothing,
    /// and a longer path may do it. Returns `None` for a queue whose requests are not written in parts. With `is`, the result of a
    /// check of the process, it also returns `None` if counters are bound, or if `is` is not the process that owns the queue. The
    /// first step of a batch needs `is`. The steps that follow do not need it, if no other code could use the queue in between.
    #[inline(always)]
    pub fn parts(&mut self, is: Option<Here>) -> Option<Batch<'_, impl Lower>> {
        let Self { origin, sends, pieces, inline, bound, .. } = self;
        let lower = sends.numbered_alone()?.staging::<true>();
        if let Some(here) = is
            && !(origin.is(here) && bound.is_none())
        {
            return None;
        }
        Some(Batch { lower, pieces: *pieces, inline: *inline, counting: None })
    }

    /// Shows the device every request that was written with [`SendQueue::parts`]. It does not check the process.
    #[inline(always)]
    pub fn publish_parts(&mut self) {
        if let Some(sends) = self.sends.numbered_alone() {
            sends.publish_here();
        }
    }

    /// Sets the processing hints of the request that was begun last, in the numbers of its driver.
    ///
    /// # Errors
    /// [`Refused::NotBegun`]; [`Refused::Lacks`] for devices without hints; [`Refused::Elsewhere`] in a child of `fork`.
    pub fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        if self.origin.is_here() { self.sends.set_hints(hints) } else { Err(Refused::Elsewhere) }
    }

    /// The ring, if the device allows programs to use its rings directly. A program that does so must not post here.
    pub fn own_ring(&self) -> Option<OwnRing> {
        self.sends.own_ring()
    }
}

/// The first part of a request.
struct Begin<'a> {
    wr_id: u64,
    flags: SendFlags,
    opcode: &'a Opcode<'a>,
}

impl FillSends for Begin<'_> {
    const KNOWS_FLAGS: bool = false;
    type Error = Refused;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Refused> {
        batch.begin(self.wr_id, self.flags, self.opcode)
    }
}
