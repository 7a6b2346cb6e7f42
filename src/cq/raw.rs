//! Completion queues for bindings: completions as the kernel lays them out, and what a destroy reports.

use std::sync::Arc;

use uverbs_abi::write::{DestroyCqResp, Wc};
use zerocopy::FromBytes;

use super::CompletionQueue;
use crate::error::{Error, ErrorKind, Result};
use crate::object;

impl CompletionQueue {
    /// The kernel's handle of the queue.
    pub fn handle(&self) -> u32 {
        self.shared.id()
    }

    /// Whether the queue is known to be empty: a quick look before [`CompletionQueue::poll_wc`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Takes completions, as many as there are places; `fill` puts each into its place. Says how many. Flags are the
    /// kernel's ([`WcFlags`](crate::WcFlags)).
    #[inline]
    pub fn poll_wc<T>(&mut self, places: &mut [T], fill: impl Fn(&mut T, Wc)) -> usize {
        let context = self.shared.context();
        self.ring.poll_wc(places, || context.is_here(), fill)
    }

    /// Destroys the queue, and says how many of its events were read, so that whoever handed out pointers can wait for
    /// the last user of one.
    ///
    /// # Errors
    /// As [`CompletionQueue::destroy`].
    pub fn destroy_reporting(self) -> Result<DestroyCqResp, (Self, Error)> {
        let Self { ring, shared, tally } = self;
        let mut shared = match Arc::try_unwrap(shared) {
            Ok(shared) => shared,
            Err(shared) => {
                let error = object::shared("cq.destroy", "a queue pair still uses the completion queue");
                return Err((Self { ring, shared, tally }, error));
            }
        };
        match shared.object.release_reporting() {
            Ok(bytes) => Ok(DestroyCqResp::read_from_bytes(&bytes).unwrap_or_default()),
            // A device that has gone has taken the queue along.
            Err(error) if error.kind() == ErrorKind::Disassociated => Ok(DestroyCqResp::default()),
            Err(error) => Err((Self { ring, shared: Arc::new(shared), tally }, error)),
        }
    }
}
