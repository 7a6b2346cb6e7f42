//! Work queues for bindings.

use std::sync::Arc;

use zerocopy::FromBytes;

use super::{IndirectionTable, WorkQueue};
use crate::error::{Error, ErrorKind};
use crate::object;
use crate::work::ReceiveQueue;

impl WorkQueue {
    /// The kernel's handle of the queue.
    pub fn handle(&self) -> u32 {
        self.shared.object.id()
    }

    /// The queue by address and key.
    #[inline]
    pub fn queue_mut(&mut self) -> &mut ReceiveQueue {
        &mut self.receives.queue
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
