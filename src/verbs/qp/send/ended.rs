//! Which posted requests have ended.

use super::SendQueue;
use crate::driver::seam::Late;

impl SendQueue {
    /// Whether all that was posted has completed, if each request has a completion that shows this.
    pub(in crate::verbs::qp) fn is_idle(&self) -> Option<bool> {
        self.sends.is_idle()
    }

    /// In the error state: removes the requests that the device does not read any more and has not flushed.
    pub(in crate::verbs::qp) fn take_late(&mut self, each: impl FnMut(Late)) {
        self.sends.take_late(each);
    }
}
