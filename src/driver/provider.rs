//! Drivers as types, for bindings: code that is compiled once for each driver.

use super::completion::Place;
use super::cq::{Completions, Rings};
use super::rq::{self, Receives};
use super::seam::{CompletionRing, FillReceives, ReceiveRing};
use super::{efa, mlx5, rxe, siw};

/// Which of the [`Provider`]s a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// rxe, and the soft device.
    Rxe,
    /// mlx5.
    Mlx5,
    /// efa.
    Efa,
    /// siw.
    Siw,
}

/// A driver, for code that is compiled once for each. Values of these types are never made.
pub trait Provider: 'static {
    /// For at most so many places, [`Provider::poll_few_fast`] comes before [`Provider::poll_fast`].
    const FEW: usize;

    /// Takes completions into `places` by the short path of the driver, as many as are available and fit, and returns their number.
    /// `None`, with nothing taken, if the first completion must not be taken on this path, and for a queue of another driver.
    #[doc(hidden)]
    fn poll_fast<T: Place>(
        queue: &mut Completions,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize>;

    /// The same for the usual poll, which finds one completion or none. It may also return `None`, with nothing taken, if there are
    /// several.
    #[doc(hidden)]
    fn poll_few_fast<T: Place>(
        queue: &mut Completions,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize>;

    /// Posts to the receive queue of a queue pair by the short path of the driver: what `how` fills, whatever [`FillReceives::is_kept`]
    /// returns. `None`, with nothing done, if the queue accepts no requests, and for a queue of another driver.
    #[doc(hidden)]
    fn post_receives<F: FillReceives>(queue: &mut Receives, pieces: u32, how: F) -> Option<F::Answer>;

    /// As [`Provider::post_receives`], for a shared queue.
    #[doc(hidden)]
    fn post_shared_receives<F: FillReceives>(queue: &mut Receives, pieces: u32, how: F) -> Option<F::Answer>;
}

macro_rules! providers {
    ($($(#[$doc:meta])* $name:ident: $driver:ident, shared receives in $shared:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $name {}

            impl Provider for $name {
                const FEW: usize = <$driver::Completions as CompletionRing>::FEW;

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
            }
        )*
    };
}

providers! {
    /// rxe, and the soft device.
    Rxe: rxe, shared receives in Rxe;
    /// mlx5.
    Mlx5: mlx5, shared receives in Mlx5Shared;
    /// efa.
    Efa: efa, shared receives in Efa;
    /// siw.
    Siw: siw, shared receives in Siw;
}
