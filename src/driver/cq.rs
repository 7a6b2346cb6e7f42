//! The completion queues of all drivers.

use std::sync::Arc;

#[cfg(feature = "raw")]
use uverbs_abi::write::Wc;

use super::list::{rings, stored};
#[cfg(feature = "raw")]
use super::ring::Opening;
#[cfg(feature = "raw")]
use super::seam::OwnRing;
use super::seam::{CompletionRing, CqSide, Kernel, Payload};
use super::with_drivers;
use crate::kernel::error::Result;
use crate::kernel::mapping::Mapping;

/// The part of a completion queue that polls, of any driver.
#[derive(Debug)]
pub struct Completions(pub(crate) Rings);

with_drivers!([rings] Completions,);

/// A queue of one driver, among those of all drivers.
pub(crate) trait Stored: CompletionRing + Sized {
    /// The queue, if it is of this driver.
    fn of(queue: &mut Completions) -> Option<&mut Self>;
}

with_drivers!([stored] Completions,);

/// Uses the ring of a queue. The code is compiled for each driver.
macro_rules! with_ring {
    ($queue:expr, $ring:ident => $work:expr) => {
        $crate::driver::with_drivers!([$crate::driver::list::match_rings] cq [] $queue, $ring => $work)
    };
}
pub(crate) use with_ring;

impl Completions {
    /// Number of completions that it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        with_ring!(&self.0, ring => ring.capacity())
    }

    /// Whether the device has written no completion.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        with_ring!(&self.0, ring => ring.is_empty())
    }

    /// Removes the completions of a queue pair that was reset, if they do not show that they are from before the reset.
    #[cfg(feature = "raw")]
    pub(crate) fn forget(&mut self, qp_num: u32) {
        with_ring!(&mut self.0, ring => ring.forget(qp_num));
    }

    /// Hands the ring over, if a program may use it directly.
    #[cfg(feature = "raw")]
    pub(crate) fn hand_over(&mut self) -> Option<OwnRing> {
        with_ring!(&mut self.0, ring => ring.hand_over())
    }

    /// The completions in the ring, if they have the kernel's format there.
    #[cfg(feature = "raw")]
    pub(crate) fn window(&self) -> Option<Opening<Wc>> {
        with_ring!(&self.0, ring => ring.window())
    }

    /// The part of the queue that others than the poller use.
    pub(crate) fn side(&self) -> Arc<dyn CqSide> {
        with_ring!(&self.0, ring => ring.side())
    }

    /// Continues in a ring with room for `entries`; see [`CompletionRing::resize`].
    pub(crate) fn resize(
        &mut self,
        op: &'static str,
        entries: u32,
        kernel: &dyn Kernel,
        command: impl FnOnce(Payload<'_>, Option<&Mapping>) -> Result<()>,
    ) -> Result<Option<Mapping>> {
        with_ring!(&mut self.0, ring => ring.resize(op, entries, kernel, command))
    }
}
