//! Work queues for bindings.

use std::sync::Arc;

use uverbs_abi::rxe::Sge;
use zerocopy::FromBytes;

use super::{IndirectionTable, WorkQueue};
use crate::error::{Error, ErrorKind, Result};
use crate::object;

impl WorkQueue {
    /// The kernel's handle of the queue.
    pub fn handle(&self) -> u32 {
        self.shared.object.id()
    }

    /// Fills the next slot with room in pieces of registered memory. The device sees it after
    /// [`WorkQueue::publish`].
    ///
    /// # Errors
    /// As [`WorkQueue::post_receive`].
    pub fn put(&mut self, wr_id: u64, pieces: impl ExactSizeIterator<Item = Sge>) -> Result<()> {
        let op = "wq.post_receive";
        self.shared.object.context().check_origin(op)?;
        self.receives.put(op, wr_id, pieces)
    }

    /// Shows the device every slot filled so far; nothing in a child of `fork`, whose index is not the parent's.
    pub fn publish(&mut self) {
        if self.shared.object.context().is_here() {
            self.receives.publish();
        }
    }

    /// Destroys the queue, and says how many of its asynchronous events were read.
    ///
    /// # Errors
    /// As [`WorkQueue::destroy`].
    pub fn destroy_reporting(mut self) -> Result<u32, (Self, Error)> {
        let Some(shared) = Arc::get_mut(&mut self.shared) else {
            return Err((
                self,
                object::shared("wq.destroy", "an indirection table still has the work queue"),
            ));
        };
        match shared.object.release_reporting() {
            Ok(bytes) => Ok(u32::read_from_prefix(&bytes).map_or(0, |(read, _)| read)),
            Err(error) if error.kind() == ErrorKind::Disassociated => Ok(0),
            Err(error) => Err((self, error)),
        }
    }
}

impl IndirectionTable {
    /// The kernel's handle of the table.
    pub fn handle(&self) -> u32 {
        self.shared().id()
    }

    /// The device's number of the table.
    pub fn number(&self) -> u32 {
        self.shared().number
    }
}
