//! The shortest way to a queue whose slots have a flag each.

use super::batch::{Batch, FillSends};
use super::{SEND, SendQueue, Unseen};
use crate::driver::queues::Published;

impl SendQueue {
    /// Posts a batch, all of it, and shows it to the device. None, and nothing is done, when `how` stops, in a queue whose slots have no
    /// flags, where counters are bound, and in a child of `fork`: there is [`SendQueue::batch`].
    ///
    /// # Errors
    /// As [`SendQueue::try_publish`].
    #[inline(always)]
    pub fn post_flagged<F: FillSends>(&mut self, how: F) -> Option<Result<(), Unseen>> {
        let Self { origin, sends, pieces, inline, bound: None, doorbell, context, .. } = self else {
            return None;
        };
        let (here, sends) = (origin.ask()?, sends.flagged_alone()?);
        let mut batch = Batch { lower: sends.writing(), pieces: *pieces, inline: *inline, counting: None };
        let filled = how.fill(&mut batch);
        drop(batch);
        if filled.is_err() {
            sends.rewind();
            return None;
        }
        Some(match sends.publish() {
            Published::Nothing | Published::Told => Ok(()),
            Published::Shown => context.ring(SEND, doorbell, here),
        })
    }
}
