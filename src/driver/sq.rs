//! The send queues of all drivers.

use uverbs_abi::write::ModifyQp;

use super::list::{rings, stored};
#[cfg(feature = "raw")]
use super::request::Refused;
#[cfg(feature = "raw")]
use super::seam::OwnRing;
use super::seam::{Late, Published, SendRing};
use super::with_drivers;

/// The send queue of a queue pair, of any driver.
#[derive(Debug)]
pub struct Sends(pub(crate) Rings);

with_drivers!([rings] Sends,);

/// Uses a queue, or only its type. The code is compiled for each driver.
macro_rules! with_sends {
    ($queue:expr, type $ring:ident => $work:expr) => {
        $crate::driver::with_drivers!([$crate::driver::list::match_types] sq Sends [] $queue, $ring => $work)
    };
    ($queue:expr, $ring:ident => $work:expr) => {
        $crate::driver::with_drivers!([$crate::driver::list::match_rings] sq [] $queue, $ring => $work)
    };
}
pub(crate) use with_sends;

/// A queue of one driver, among those of all drivers.
pub(crate) trait Stored: SendRing + Sized {
    /// The queue, if it is of this driver.
    fn of(queue: &mut Sends) -> Option<&mut Self>;
}

with_drivers!([stored] Sends,);

impl Sends {
    /// Number of places for what requests need.
    pub(crate) fn slots(&self) -> usize {
        with_sends!(&self.0, ring => ring.slots())
    }

    /// The slot that is filled next.
    pub(crate) fn next_slot(&self) -> u32 {
        with_sends!(&self.0, ring => ring.next_slot())
    }

    /// Whether requests complete in their order.
    pub(crate) fn completes_in_order(&self) -> bool {
        with_sends!(&self.0, type R => R::COMPLETES_IN_ORDER)
    }

    /// Whether the device requires the first bytes of a frame in the request itself.
    pub(crate) fn wants_head(&self) -> bool {
        with_sends!(&self.0, ring => ring.wants_head())
    }

    /// Shows the device every slot that was filled.
    pub(crate) fn publish(&mut self) -> Published {
        with_sends!(&mut self.0, ring => ring.publish())
    }

    /// Discards the slots that were filled and not published.
    pub(crate) fn rewind(&mut self) {
        with_sends!(&mut self.0, ring => ring.rewind());
    }

    /// Takes back what was published last: the kernel has refused to read it.
    pub(crate) fn retract(&mut self) {
        with_sends!(&mut self.0, ring => ring.retract());
    }

    /// Whether all that was posted has completed, if each request has a completion that shows this.
    pub(crate) fn is_idle(&self) -> Option<bool> {
        with_sends!(&self.0, ring => ring.is_idle())
    }

    /// In the error state: removes the requests that the device does not read any more and has not flushed, oldest first.
    pub(crate) fn take_late(&mut self, each: impl FnMut(Late)) {
        with_sends!(&mut self.0, ring => ring.take_late(each));
    }

    /// The kernel has changed attributes of the queue pair.
    pub(crate) fn changed(&mut self, request: &ModifyQp) {
        with_sends!(&mut self.0, ring => ring.changed(request));
    }

    /// The queue pair has entered a state.
    pub(crate) fn enter(&mut self, state: u8) {
        with_sends!(&mut self.0, ring => ring.enter(state));
    }

    /// Sets the hints of the last request, in the numbers of its driver.
    #[cfg(feature = "raw")]
    pub(crate) fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        with_sends!(&mut self.0, ring => ring.set_hints(hints))
    }

    /// Hands the ring over, if a program may use it directly.
    #[cfg(feature = "raw")]
    pub(crate) fn hand_over(&mut self) -> Option<OwnRing> {
        with_sends!(&mut self.0, ring => ring.hand_over())
    }
}
