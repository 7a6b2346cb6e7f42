//! Shared receive queues for bindings.

use std::sync::Arc;

use uverbs_abi::write::DestroySrqResp;
use zerocopy::FromBytes;

use super::SharedReceiveQueue;
use crate::error::{Error, ErrorKind};
use crate::object;
use crate::work::ReceiveQueue;

impl SharedReceiveQueue {
    /// The kernel's handle of the queue.
    pub fn handle(&self) -> u32 {
        self.shared.id()
    }

    /// The queue by address and key; none if its ring was lost in a resize.
    #[inline]
    pub fn queue_mut(&mut self) -> Option<&mut ReceiveQueue> {
        (!self.lost).then_some(&mut self.receives.queue)
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
