//! Send queues that are apart from others: requests are written part for part, and programs may use the rings themselves.

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

    /// Posts a batch of requests that complete in any order up to the first that `how` does not put, and shows it to the device. None, and
    /// nothing is done, in another queue, where counters are bound, where requests wait that were not published, in a state in which
    /// nothing is sent, and in a child of `fork`: there is [`SendQueue::batch`].
    #[inline(always)]
    pub fn post_numbered<F: FillSends>(&mut self, how: F) -> Option<Result<(), F::Error>> {
        let Self { origin, sends, pieces, inline, bound: None, .. } = self else { return None };
        let sends = sends.numbered_alone()?;
        origin.ask()?;
        let mut batch = Batch { lower: sends.straight()?, pieces: *pieces, inline: *inline, counting: None };
        let filled = how.fill(&mut batch);
        // Nothing is anywhere else.
        sends.tell();
        Some(filled)
    }

    /// Whether requests are written part for part by [`SendQueue::parts`], for whoever has asked which process this is. It is so until
    /// counters are bound.
    #[inline(always)]
    pub fn has_parts(&self, here: Here) -> bool {
        self.origin.is(here) && self.bound.is_none()
    }

    /// A step of one request, which is begun or gets a part, for whoever has asked [`SendQueue::has_parts`] since nobody else could have
    /// the queue; none in a queue that takes no parts.
    #[inline(always)]
    pub fn parts(&mut self) -> Option<Batch<'_, impl Lower>> {
        let Self { sends, pieces, inline, .. } = self;
        let lower = sends.numbered_alone()?;
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
