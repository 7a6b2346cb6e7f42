//! Taking completions: into places, and one by one in the device's format.

use super::*;
#[cfg(feature = "raw")]
use crate::driver::completion::Missed;
use crate::driver::completion::Place;
#[cfg(feature = "raw")]
use crate::driver::mlx5::entry::Unread;
use crate::driver::seam::CompletionRing;

impl Completions {
    /// Fills `places` with as many completions as there are, gives their entries back immediately, and returns their number. The second
    /// value says whether it stopped at a completion that may not be taken: `may_take` is called before each of them.
    #[inline(always)]
    fn take<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        mut fill: impl FnMut(&mut T, &Extended),
    ) -> (usize, bool) {
        let (mut count, mut is_refused) = (0, false);
        while let Some(rest @ [_, ..]) = places.get_mut(count..) {
            let taken = match self.run(rest, &may_take, &mut fill) {
                Ok(0) => self.run_others(rest, &may_take, &mut fill),
                run => run,
            };
            match taken {
                Ok(taken) => count += taken,
                Err(is_empty) => {
                    is_refused = !is_empty;
                    break;
                }
            }
        }
        self.release();
        (count, is_refused)
    }

    /// The next completion in the device's format; see [`Completions::next_if`]. If there is none, entries without a queue pair
    /// are given back: a poll that finds nothing is not followed by a release, and the queue would fill up with them.
    #[cfg(feature = "raw")]
    pub(crate) fn next_unread(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Unread,
    ) -> Result<(), bool> {
        let taken = self.next_if(&may_take, |found| {
            found.keep(place);
            index_of(&found.cqe)
        });
        match taken {
            Ok(index) => self.known.note(index),
            Err(true) if may_take() => {
                self.release();
                return Err(true);
            }
            Err(_) => {}
        }
        self.shared.next.store(self.position, Ordering::Release);
        taken.map(drop)
    }

    /// A short path for the usual case: a request that succeeded, of the same queue pair as the last completion that the full
    /// path took. Otherwise it does nothing.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn short_unread(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Unread,
    ) -> Result<(), Missed> {
        let position = self.position;
        let Some(cqe) = self.ring.reading().filled(position) else { return Err(Missed::Nothing) };
        let shared = &*self.shared;
        let is_changed = shared.changes() != self.changes;
        if !may_take() || is_changed || shared.is_armed() {
            return Err(Missed::Other);
        }
        let Some(track) = self.known.again(index_of(&cqe)) else { return Err(Missed::Other) };
        let Some(found) = Found::succeeded(cqe, track, position) else { return Err(Missed::Other) };
        found.keep_good(place);
        self.position = position + 1;
        shared.next.store(position + 1, Ordering::Release);
        Ok(())
    }

    /// As [`CompletionRing::poll`], after a completion that was taken by itself.
    // A separate function, so that its caller need not save registers.
    #[cfg(feature = "raw")]
    #[inline(never)]
    fn poll_more<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> usize {
        self.poll(places, may_take)
    }
}

impl CompletionRing for Completions {
    fn capacity(&self) -> u32 {
        self.ring.entries() - 1
    }

    #[cfg(feature = "raw")]
    #[inline(always)]
    fn is_empty(&self) -> bool {
        !self.ring.is_filled(self.position)
    }

    #[inline(always)]
    fn poll_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        let (count, is_refused) = self.take(places, may_take, |place, said| place.put(said));
        (count > 0 || !is_refused).then_some(count)
    }

    #[inline(always)]
    fn poll_one_fast<P: Place>(&mut self, place: &mut P, may_take: impl Fn() -> bool) -> Option<usize> {
        let taken = match self.run(&mut [()], &may_take, |(), said| place.put(said)) {
            Ok(0) => self.next_other(may_take).map(|said| place.put(&said)),
            run => run.map(|_| ()),
        };
        self.release();
        match taken {
            Ok(()) => Some(1),
            Err(is_empty) => is_empty.then_some(0),
        }
    }

    #[cfg(feature = "raw")]
    const FEW: usize = 4;

    #[cfg(feature = "raw")]
    #[inline(always)]
    fn poll_few_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        let [place, rest @ ..] = places else { return Some(0) };
        match self.poll_one_fast(place, &may_take) {
            Some(1) if !rest.is_empty() && !self.is_empty() => Some(1 + self.poll_more(rest, may_take)),
            taken => taken,
        }
    }

    #[inline(always)]
    fn poll<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> usize {
        self.take(places, may_take, |place, said| place.put(said)).0
    }
}
