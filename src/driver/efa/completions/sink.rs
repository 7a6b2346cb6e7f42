//! Destinations of completions.

use crate::driver::completion::Place;
#[cfg(feature = "raw")]
use crate::driver::efa::entry::Told;
use crate::driver::efa::entry::{self, Entry, First};
use crate::driver::efa::track::Track;
use crate::driver::ring::units::Item;

/// A destination of completions.
pub(super) trait Sink {
    /// Whether there is room for another completion.
    fn has_room(&self) -> bool;

    /// Stores the completion of an entry of this queue pair. Returns false if the queue pair has no such request.
    fn put(&mut self, first: First, entry: Item<'_, Entry>, track: &Track) -> bool;
}

/// The places for the completions of a poll, of which the first is filled next.
pub(super) struct Places<'a, T>(pub(super) &'a mut [T]);

impl<T: Place> Sink for Places<'_, T> {
    #[inline(always)]
    fn has_room(&self) -> bool {
        !self.0.is_empty()
    }

    #[inline(always)]
    fn put(&mut self, first: First, entry: Item<'_, Entry>, track: &Track) -> bool {
        let Some(place) = self.0.first_mut() else { return false };
        let is_put = entry::put(first, entry, track, place);
        if is_put && let Some((_, rest)) = std::mem::take(&mut self.0).split_first_mut() {
            self.0 = rest;
        }
        is_put
    }
}

/// The place for one completion.
pub(super) struct Single<'a, T>(pub(super) &'a mut T);

impl<T: Place> Sink for Single<'_, T> {
    fn has_room(&self) -> bool {
        true
    }

    #[inline(always)]
    fn put(&mut self, first: First, entry: Item<'_, Entry>, track: &Track) -> bool {
        entry::put(first, entry, track, self.0)
    }
}

/// The place for one completion in the device's format, which names the sender.
#[cfg(feature = "raw")]
pub(super) struct Telling<'a>(pub(super) &'a mut Told);

#[cfg(feature = "raw")]
impl Sink for Telling<'_> {
    fn has_room(&self) -> bool {
        true
    }

    #[inline(always)]
    fn put(&mut self, first: First, entry: Item<'_, Entry>, track: &Track) -> bool {
        self.0.fill(first, entry, track)
    }
}
