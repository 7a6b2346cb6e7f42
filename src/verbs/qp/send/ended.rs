//! What is known to have ended.

use super::SendQueue;
use crate::driver::queues::Late;

impl SendQueue {
    /// Whether all that was posted has completed, where that is known without a request of one's own.
    pub(in crate::verbs::qp) fn is_idle(&self) -> Option<bool> {
        self.sends.is_idle()
    }

    /// In the error state: takes out what the device does not look at any more and has not flushed.
    pub(in crate::verbs::qp) fn take_late(&mut self, each: impl FnMut(Late)) {
        self.sends.take_late(each);
    }
}
