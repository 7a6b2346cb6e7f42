//! What is shown by no short way, and what is known to have ended.

use super::{SendQueue, Unseen};
use crate::driver::queues::{Late, Published};
use crate::kernel::process::Here;

impl SendQueue {
    /// Counters may have been bound.
    pub(in crate::verbs::qp) fn note_counters(&mut self) {
        self.is_long |= u32::from(self.bound.is_some());
    }

    /// Tells counters, before the device can complete any of what was put; and shows it where each slot has a flag.
    // For both by one question, which others have to ask anyway.
    #[cold]
    #[inline(never)]
    pub(super) fn show_long(&mut self, op: &'static str, here: Here) -> Option<Result<(), Unseen>> {
        if let Some(bound) = &mut self.bound {
            self.begun.take().iter().for_each(|begun| bound.stage(begun));
            bound.publish();
        }
        Some(match self.sends.publish_flagged()? {
            Published::Nothing | Published::Told => Ok(()),
            Published::Shown => self.context.ring(op, &mut self.doorbell, here),
        })
    }

    /// Whether all that was posted has completed, where that is known without a request of one's own.
    pub(in crate::verbs::qp) fn is_idle(&self) -> Option<bool> {
        self.sends.is_idle()
    }

    /// In the error state: takes out what the device does not look at any more and has not flushed.
    pub(in crate::verbs::qp) fn take_late(&mut self, each: impl FnMut(Late)) {
        self.sends.take_late(each);
    }
}
