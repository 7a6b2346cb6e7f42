//! Requests given as pieces of memory by address and key.

use uverbs_abi::rxe::Sge;

use super::{ReceiveQueue, full, oversized};
use crate::error::Result;

impl ReceiveQueue {
    /// Fills the next slot.
    #[inline(always)]
    pub(crate) fn put(
        &mut self,
        op: &'static str,
        wr_id: u64,
        pieces: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<()> {
        if self.ring.free() == 0 {
            return Err(full(op));
        }
        let fits = pieces.len() <= self.segments as usize && self.ring.put(wr_id, pieces);
        if fits { Ok(()) } else { Err(oversized(op)) }
    }

    /// Shows the device every slot filled so far.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.ring.publish();
    }
}
