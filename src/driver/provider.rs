//! Drivers as types, for bindings: code that is compiled once for each driver.

use super::completion::Place;
use super::cq::{Completions, Rings};
use super::rq::{self, Receives};
use super::seam::{CompletionRing, Facts, FillReceives, Lower, Published, ReceiveRing, SendRing, Short};
use super::sq::{self, Sends};
use super::with_drivers;

/// A driver, for code that is compiled once for each. Values of these types are never made.
pub trait Provider: Facts + 'static {
    /// For at most so many places, [`Provider::poll_few_fast`] comes before [`Provider::poll_fast`].
    const FEW: usize;

    /// The requests for which [`SendQueue::short`](crate::raw::SendQueue::short) is.
    const SHORT: Short;

    /// Takes completions into `places` by the short path of the driver, as many as are available and fit, and returns their number.
    /// `None`, with nothing taken, if the first completion must not be taken on this path, and for a queue of another driver.
    #[doc(hidden)]
    fn poll_fast<T: Place>(
        queue: &mut Completions,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize>;

    /// Takes completions into `places` by the short path of the driver for the usual poll, which finds one completion or none, and returns
    /// their number. `None` as for [`Provider::poll_fast`]; it may also return `None`, with nothing taken, if there are several.
    #[doc(hidden)]
    fn poll_few_fast<T: Place>(
        queue: &mut Completions,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize>;

    /// Posts to the receive queue of a queue pair by the short path of the driver: what `how` fills, for which [`FillReceives::is_kept`]
    /// always returns true. `None`, with nothing done, if the queue accepts no requests, and for a queue of another driver.
    #[doc(hidden)]
    fn post_receives<F: FillReceives>(queue: &mut Receives, pieces: u32, how: F) -> Option<F::Answer>;

    /// Posts to a shared receive queue by the short path of the driver; see [`Provider::post_receives`].
    #[doc(hidden)]
    fn post_shared_receives<F: FillReceives>(queue: &mut Receives, pieces: u32, how: F) -> Option<F::Answer>;

    /// Borrows a send queue for one request of this kind, or for one of its parts: see `SendRing::one`. `None` for a queue of another
    /// driver or kind.
    #[doc(hidden)]
    fn one<const LOOKS: bool, const KIND: u8>(queue: &mut Sends) -> Option<impl Lower>;

    /// Borrows a send queue for several requests of this kind. `None` for a queue of another driver or kind.
    #[doc(hidden)]
    fn batch<const KIND: u8>(queue: &mut Sends) -> Option<impl Lower>;

    /// Borrows a send queue by a shorter path, if there is one now: for slots that are known to be free. `None` also for a queue of another
    /// driver or kind.
    #[doc(hidden)]
    fn short<const KIND: u8>(queue: &mut Sends) -> Option<impl Lower>;

    /// Shows the device every slot that was filled, by the shorter path or not, and returns whether a command must notify it.
    #[doc(hidden)]
    fn publish<const SHORT: bool>(queue: &mut Sends) -> bool;
}

macro_rules! providers {
    ([$($(#[$doc:meta])* $name:ident: $driver:ident $($boxed:ident)?, shared receives in $shared:ident;)*]) => {
        /// Which of the [`Provider`]s a device has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ProviderKind {
            $($(#[$doc])* $name,)*
        }

        $(
            pub use super::$driver::binding::$name;

            impl Provider for $name {
                const SHORT: Short = <super::$driver::Sends as SendRing>::SHORT;
                const FEW: usize = <super::$driver::Completions as CompletionRing>::FEW;

                #[inline(always)]
                fn poll_fast<T: Place>(queue: &mut Completions, places: &mut [T], may_take: impl Fn() -> bool) -> Option<usize> {
                    let Rings::$name(ring) = &mut queue.0 else { return None };
                    ring.poll_fast(places, may_take)
                }

                #[inline(always)]
                fn poll_few_fast<T: Place>(queue: &mut Completions, places: &mut [T], may_take: impl Fn() -> bool) -> Option<usize> {
                    let Rings::$name(ring) = &mut queue.0 else { return None };
                    ring.poll_few_fast(places, may_take)
                }

                #[inline(always)]
                fn post_receives<F: FillReceives>(queue: &mut Receives, pieces: u32, how: F) -> Option<F::Answer> {
                    let rq::Rings::$name(ring) = &mut queue.0 else { return None };
                    ring.post_kept(pieces, how)
                }

                #[inline(always)]
                fn post_shared_receives<F: FillReceives>(queue: &mut Receives, pieces: u32, how: F) -> Option<F::Answer> {
                    let rq::Rings::$shared(ring) = &mut queue.0 else { return None };
                    ring.post_kept(pieces, how)
                }

                #[inline(always)]
                fn one<const LOOKS: bool, const KIND: u8>(queue: &mut Sends) -> Option<impl Lower> {
                    let sq::Rings::$name(ring) = &mut queue.0 else { return None };
                    if ring.is_of(KIND) { Some(ring.by_ref().one::<LOOKS, KIND>()) } else { None }
                }

                #[inline(always)]
                fn batch<const KIND: u8>(queue: &mut Sends) -> Option<impl Lower> {
                    let sq::Rings::$name(ring) = &mut queue.0 else { return None };
                    if ring.is_of(KIND) { Some(ring.by_ref().batch::<KIND>()) } else { None }
                }

                #[inline(always)]
                fn short<const KIND: u8>(queue: &mut Sends) -> Option<impl Lower> {
                    let sq::Rings::$name(ring) = &mut queue.0 else { return None };
                    ring.by_ref().short::<KIND>(0)
                }

                #[inline(always)]
                fn publish<const SHORT: bool>(queue: &mut Sends) -> bool {
                    let sq::Rings::$name(ring) = &mut queue.0 else { return false };
                    let published = if SHORT { ring.publish_short() } else { ring.publish() };
                    published == Published::Shown
                }
            }
        )*
    };
}

with_drivers!([providers]);
