//! Send queues that are apart from others: requests are written part for part, and programs may use the rings themselves.

use super::SendQueue;
use super::batch::{Batch, Counting};
use crate::driver::bound::OwnRing;
use crate::driver::queues::Lower;
use crate::driver::request::Refused;

impl SendQueue {
    /// Parts of one request, in a queue that has them written one by one.
    ///
    /// # Errors
    /// [`Refused::Lacks`] in other queues; as [`SendQueue::step`].
    pub fn in_parts(&mut self) -> Result<Batch<'_, impl Lower>, Refused> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere);
        }
        let Self { sends, pieces, inline, begun, bound, .. } = self;
        let counting = bound.as_mut().map(|bound| Counting { begun, bound });
        let lower = sends.parts_way().ok_or(Refused::Lacks)?;
        Ok(Batch { lower, pieces: *pieces, inline: *inline, counting })
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
