//! Taking completions: into places, and one by one in the device's format.

use super::*;
#[cfg(feature = "raw")]
use crate::driver::completion::Missed;
use crate::driver::completion::Place;
#[cfg(feature = "raw")]
use crate::driver::mlx5::entry::Unread;
use crate::driver::mlx5::run::Ended;
#[cfg(feature = "raw")]
use crate::driver::seam::OwnRing;
use crate::driver::seam::{CompletionRing, Kernel};

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
        // The most entries of a run. It counts them again after each that needs the longer path: behind one, probably others do.
        const RUN: usize = 32;
        let (mut count, mut most) = (0, RUN);
        let is_refused = loop {
            let Some(rest) = places.get_mut(count..) else { break false };
            let wanted = rest.len().min(most);
            let (taken, ended) = self.run::<false, _>(&mut rest[..wanted], &may_take, &mut fill);
            count += taken;
            match ended {
                Ended::Full if count == places.len() => break false,
                Ended::Full | Ended::More => most = (2 * most).min(RUN),
                Ended::Empty => break false,
                Ended::Refused => break true,
                Ended::Other => {
                    most = 1;
                    let Some(place) = places.get_mut(count) else { break false };
                    match self.next_other(&may_take) {
                        Ok(said) => fill(place, &said),
                        Err(is_empty) => break !is_empty,
                    }
                    count += 1;
                }
            }
        };
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
}

impl CompletionRing for Completions {
    fn capacity(&self) -> u32 {
        self.own.entries() - 1
    }

    fn side(&self) -> Arc<dyn CqSide> {
        self.shared.clone()
    }

    fn resize(
        &mut self,
        op: &'static str,
        entries: u32,
        _: &dyn Kernel,
        command: impl FnOnce(Payload<'_>, Option<&Mapping>) -> Result<()>,
    ) -> Result<Option<Mapping>> {
        self.renew(op, entries, |request, memory| command((request.as_bytes(), &mut []), Some(memory)))
    }

    #[cfg(feature = "raw")]
    #[inline]
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
        let taken = match self.run::<true, _>(&mut [()], &may_take, |(), said| place.put(said)) {
            (1, _) => Ok(()),
            (_, Ended::Other | Ended::More) => self.next_other(may_take).map(|said| place.put(&said)),
            (_, ended) => Err(ended == Ended::Empty),
        };
        self.release();
        match taken {
            Ok(()) => Some(1),
            Err(is_empty) => is_empty.then_some(0),
        }
    }

    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        self.shared.is_handed_over.store(true, Ordering::Relaxed);
        let [_, number]: [u32; 2] = zerocopy::transmute!(self.shared.number);
        Some(OwnRing {
            address: self.own.memory().address(),
            entry_size: self.own.size(),
            entries: self.own.entries(),
            doorbell: self.shared.doorbell.address(),
            record: self.shared.consumer.address(),
            numbers: [u32::from_be(number), 0],
            ..OwnRing::default()
        })
    }

    #[cfg(feature = "raw")]
    const FEW: usize = 1;

    #[cfg(feature = "raw")]
    #[inline(always)]
    fn poll_few_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        self.poll_one_fast(places.first_mut()?, may_take)
    }

    #[inline(always)]
    fn poll<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> usize {
        self.take(places, may_take, |place, said| place.put(said)).0
    }
}
