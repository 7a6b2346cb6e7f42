//! Additional access to send queues: requests are written in parts, and programs may use the rings themselves.

use uverbs_abi::types::SendFlags;

use super::SendQueue;
use super::batch::{Batch, FillSends};
use crate::driver::bound::OwnRing;
use crate::driver::queues::Lower;
use crate::driver::request::{Opcode, Refused};
use crate::kernel::process::Here;

impl SendQueue {
    /// Writes all of a request but its data, and its address if it has none yet, in a queue that takes parts in any order.
    ///
    /// # Errors
    /// [`Refused::Lacks`] in other queues; as [`Batch::begin`] and [`SendQueue::step`].
    pub fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        self.apart_at_once(Begin { wr_id, flags, opcode })
    }

    /// A step of one request, which is begun or gets a part; none in a queue that takes no parts, where counters are bound, and in a child of
    /// `fork`. What it refuses may be done by the longer ways, and nothing of it is done here. Whoever has asked which process this `is` says so for the first step; no more is asked for those that follow, as long as nobody else
    /// could have the queue.
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

    /// Shows the device every request of which the parts were written, for whom [`SendQueue::parts`] is.
    #[inline(always)]
    pub fn publish_parts(&mut self) {
        if let Some(sends) = self.sends.numbered_alone() {
            sends.publish_here();
        }
    }

    /// Says of the request that was begun last how the device shall go about it, as its driver numbers that.
    ///
    /// # Errors
    /// [`Refused::NotBegun`]; [`Refused::Lacks`] for other devices; as [`SendQueue::step`].
    pub fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        if self.origin.is_here() { self.sends.set_hints(hints) } else { Err(Refused::Elsewhere) }
    }

    /// Where the ring lies, of a device whose rings programs may use themselves: then they post nothing here.
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
