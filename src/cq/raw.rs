//! Completion queues for bindings: completions as the kernel lays them out, and what a destroy reports.

use std::sync::Arc;

use uverbs_abi::write::{CqModeration, DestroyCqResp, Wc};
use zerocopy::FromBytes;

use super::{CompletionChannel, CompletionQueue};
use crate::completion::Extended;
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
    /// kernel's ([`WcFlags`](crate::WcFlags)). Completion counters of their queue pairs count them now.
    #[inline]
    pub fn poll_wc<T>(&mut self, places: &mut [T], fill: impl Fn(&mut T, Wc)) -> usize {
        self.poll_extended(places, |place, extended| fill(place, extended.wc))
    }

    /// The same with all that there is to them.
    #[inline]
    pub fn poll_extended<T>(&mut self, places: &mut [T], fill: impl Fn(&mut T, Extended)) -> usize {
        let Self { ring, shared, tally } = self;
        ring.poll_wc(
            places,
            || shared.context().is_here(),
            |place, extended| {
                tally.count_wc(&shared.registry, &extended.wc);
                fill(place, extended);
            },
        )
    }

    /// Takes out the completions of the queue pair with this number, which was reset, as drivers of cards do (mlx5_modify_qp,
    /// providers/mlx5/verbs.c, rdma-core 44): they tell of requests that the program counts as forgotten. rxe leaves them
    /// (rxe_qp_reset, rxe_qp.c, Linux 6.1).
    pub fn forget(&mut self, qp_num: u32) {
        if self.shared.context().is_here() {
            self.ring.forget(qp_num);
        }
    }

    /// Changes the moderation as the bits of `attr_mask` say, which the kernel judges.
    ///
    /// # Errors
    /// As [`CompletionQueue::moderate`].
    pub fn modify(&self, attr_mask: u32, attr: CqModeration) -> Result<()> {
        self.change(attr_mask, attr)
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
                let error = object::shared(
                    "cq.destroy",
                    "a queue pair or a work queue still uses the completion queue",
                );
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

impl CompletionChannel {
    /// Refuses what a channel is not for that is another process's.
    ///
    /// # Errors
    /// [`Disassociated`](ErrorKind::Disassociated) in a child of `fork`.
    pub fn check(&self) -> Result<()> {
        self.0.context.check_origin("comp_channel.check")
    }
}
