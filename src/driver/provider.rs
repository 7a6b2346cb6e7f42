//! Drivers as types, for bindings: code that is compiled once for each driver.

use super::completion::Place;
use super::cq::{Completions, Rings};
use super::seam::CompletionRing;
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
}

macro_rules! providers {
    ($($(#[$doc:meta])* $name:ident: $driver:ident;)*) => {
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
            }
        )*
    };
}

providers! {
    /// rxe, and the soft device.
    Rxe: rxe;
    /// mlx5.
    Mlx5: mlx5;
    /// efa.
    Efa: efa;
    /// siw.
    Siw: siw;
}
