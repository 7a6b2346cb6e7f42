//! Completion queues of rxe.

use std::mem::MaybeUninit;

use uverbs_abi::rxe::ResizeCqResp;
use uverbs_abi::write::Wc;
use zerocopy::IntoBytes;

use super::nonsense;
use super::plans::map_ring;
use crate::driver::completion::{Place, Raised};
#[cfg(feature = "raw")]
use crate::driver::ring::Opening;
use crate::driver::ring::{Consumer, Filled};
use crate::driver::seam::{CompletionRing, Kernel, Payload};
use crate::kernel::error::Result;
use crate::kernel::mapping::Mapping;

/// The ring of a completion queue.
#[derive(Debug)]
pub(crate) struct Completions(Consumer<Wc>);

impl Completions {
    pub(crate) fn open(op: &'static str, map: Mapping) -> Result<Self> {
        Consumer::open(map).map(Self).ok_or_else(|| nonsense(op))
    }
}

impl CompletionRing for Completions {
    fn capacity(&self) -> u32 {
        self.0.geometry().capacity()
    }

    /// Continues in the ring that the driver creates for `command`.
    fn resize(
        &mut self,
        op: &'static str,
        _: u32,
        kernel: &dyn Kernel,
        command: impl FnOnce(Payload<'_>, Option<&Mapping>) -> Result<()>,
    ) -> Result<Option<Mapping>> {
        let mut answer = ResizeCqResp::default();
        command((&[], answer.as_mut_bytes()), None)?;
        *self = Self::open(op, map_ring(op, answer.mi, kernel)?)?;
        Ok(None)
    }

    #[cfg(feature = "raw")]
    fn window(&self) -> Option<Opening<Wc>> {
        Some(self.0.window())
    }

    #[cfg(feature = "raw")]
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.0.available() == 0
    }

    #[inline(always)]
    fn poll_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        self.0.take_if(places, may_take, |place, slot| place.put_among(&slot))
    }

    /// Not for a completion that needs a function call.
    #[inline(always)]
    fn poll_one_fast<P: Place>(&mut self, place: &mut P, may_take: impl Fn() -> bool) -> Option<usize> {
        self.0.take_one(may_take, |slot| place.put_plain(&slot))
    }

    #[cfg(feature = "raw")]
    const FEW: usize = usize::MAX;

    #[cfg(feature = "raw")]
    #[inline(always)]
    fn poll_few_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        self.0.take_few_if(places, may_take, |place, slot| place.put_plain(&slot))
    }

    #[cfg(feature = "raw")]
    fn forget(&mut self, qp_num: u32) {
        self.0.retain(|wc| wc.qp_num != qp_num);
    }
}

impl Raised for Filled<'_, Wc> {
    #[inline(always)]
    fn wc(&self) -> Wc {
        self.get()
    }

    #[inline(always)]
    fn copy_wc(&self, place: &mut MaybeUninit<Wc>) {
        self.copy_to(place);
    }
}
