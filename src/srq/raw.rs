//! Shared receive queues for bindings.

use std::sync::Arc;

use uverbs_abi::rxe::Sge;
use uverbs_abi::write::DestroySrqResp;
use zerocopy::FromBytes;

use super::SharedReceiveQueue;
use crate::error::{Error, ErrorKind, Result};
use crate::object;

impl SharedReceiveQueue {
    /// The kernel's handle of the queue.
    pub fn handle(&self) -> u32 {
        self.shared.id()
    }

    /// Fills the next slot with room in pieces of registered memory. The device sees it after
    /// [`SharedReceiveQueue::publish`].
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::post_receive`].
    #[inline(always)]
    pub fn put(&mut self, wr_id: u64, pieces: impl ExactSizeIterator<Item = Sge>) -> Result<()> {
        let op = "srq.post_receive";
        self.shared.context().check_origin(op)?;
        if self.lost {
            return Err(Error::malformed(op, "the ring was lost in a resize"));
        }
        self.receives.put(op, wr_id, pieces)
    }

    /// Shows the device every slot filled so far; nothing in a child of `fork`, whose index is not the parent's.
    #[inline]
    pub fn publish(&mut self) {
        if self.shared.context().is_here() {
            self.receives.publish();
        }
    }

    /// Destroys the queue, and says how many of its asynchronous events were read.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::destroy`].
    pub fn destroy_reporting(mut self) -> Result<u32, (Self, Error)> {
        let Some(shared) = Arc::get_mut(&mut self.shared) else {
            let error =
                object::shared("srq.destroy", "a queue pair still receives from the shared receive queue");
            return Err((self, error));
        };
        match shared.object.release_reporting() {
            Ok(bytes) => {
                Ok(DestroySrqResp::read_from_prefix(&bytes).map_or(0, |(read, _)| read.events_reported))
            }
            Err(error) if error.kind() == ErrorKind::Disassociated => Ok(0),
            Err(error) => Err((self, error)),
        }
    }
}
