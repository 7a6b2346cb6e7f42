//! Numbers for a batch of requests that is posted completely or not at all.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Entry, Kind, Lane, Numbers};

/// Takes numbers from the ring of free ones, one after another. The values for this are copied here, so that the compiler keeps them in
/// registers. The numbers are given back unless they are [kept](Self::keep).
#[derive(Debug)]
pub(in crate::driver::efa) struct Run<'a> {
    entries: &'a [Entry],
    free: &'a [AtomicU32],
    index: u32,
    marks: u16,
    taken: u32,
    /// The index that was taken last.
    last: u16,
    lane: &'a Lane,
    numbers: &'a mut Numbers,
}

impl Numbers {
    /// Begins to take numbers, if `count` of them are in the ring.
    #[inline(always)]
    pub(in crate::driver::efa) fn run<'a>(&'a mut self, lane: &'a Lane, count: usize) -> Option<Run<'a>> {
        if !self.have(lane, count) {
            return None;
        }
        let Lane { entries, free, index, .. } = lane;
        let Self { marks, taken, last, .. } = *self;
        Some(Run { entries, free, index: *index, marks, taken, last, lane, numbers: self })
    }

    /// Whether `count` numbers are in the ring.
    #[inline(always)]
    pub(in crate::driver::efa) fn have(&mut self, lane: &Lane, count: usize) -> bool {
        self.seen.wrapping_sub(self.taken) as usize >= count || self.sees(lane, count)
    }

    /// Whether `count` numbers are in the ring after the poller's counter was read again.
    #[cold]
    #[inline(never)]
    fn sees(&mut self, lane: &Lane, count: usize) -> bool {
        self.seen = lane.returned.load(Ordering::Acquire);
        self.seen.wrapping_sub(self.taken) as usize >= count
    }
}

impl Run<'_> {
    /// Takes an index for a request with this many bytes, and returns the request's number; see [`Numbers::take`].
    #[inline(always)]
    pub(in crate::driver::efa) fn take(&mut self, wr_id: u64, kind: Kind, bytes: u32) -> Option<u16> {
        let index = self.free.get((self.taken & self.index) as usize)?.load(Ordering::Relaxed);
        let number = index as u16 | self.marks;
        self.entries.get(index as usize)?.begin(number, wr_id, kind, bytes);
        self.taken = self.taken.wrapping_add(1);
        self.last = index as u16;
        Some(number)
    }

    /// The index that was taken last.
    #[inline(always)]
    pub(in crate::driver::efa) fn last(&self) -> u32 {
        self.last.into()
    }

    /// All requests whose numbers were taken are posted.
    #[inline(always)]
    pub(in crate::driver::efa) fn keep(self) {
        (self.numbers.taken, self.numbers.last) = (self.taken, self.last);
        std::mem::forget(self);
    }
}

impl Drop for Run<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Passed by value: a value that a function gets by reference is not kept in a register.
        if self.taken != self.numbers.taken {
            self.numbers.give_back_until(self.taken, self.lane);
        }
    }
}

impl Numbers {
    /// Gives back the numbers with the next indices in the ring, up to `end`. Their requests are not posted.
    #[cold]
    #[inline(never)]
    fn give_back_until(&mut self, end: u32, lane: &Lane) {
        while self.taken != end {
            // The indices are still in the ring: there is room for all others until these are given back.
            let index = lane.place(self.taken).map(|place| place.load(Ordering::Relaxed));
            self.taken = self.taken.wrapping_add(1);
            index.iter().for_each(|index| self.give_back(lane, *index as u16));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::pair;
    use super::*;

    #[test]
    fn a_run_gives_back_what_is_not_kept_and_is_none_where_there_are_too_few() {
        let (lane, mut numbers) = pair(4);
        assert!(numbers.run(&lane, 5).is_none() && numbers.run(&lane, 0).is_some());
        for round in 0..if cfg!(miri) { 20 } else { 1000_u64 } {
            let mut run = numbers.run(&lane, 3).unwrap();
            let forgotten = [0, 1, 2].map(|wr_id| run.take(wr_id, Kind::Receive, 0).unwrap());
            drop(run);
            assert!(numbers.is_idle(&lane));
            assert!(forgotten.iter().all(|number| lane.complete(*number).is_none()));
            // The numbers that were given back are not in the ring.
            assert!(numbers.run(&lane, 2).is_none());
            let posted: Vec<_> =
                (0..4).map(|wr_id| numbers.take(&lane, round + wr_id, Kind::Send, 0).unwrap()).collect();
            assert!(numbers.run(&lane, 1).is_none() && numbers.take(&lane, 0, Kind::Send, 0).is_none());
            for (number, wr_id) in posted.iter().zip(round..) {
                assert_eq!(lane.complete(*number).unwrap().wr_id, wr_id);
            }
            let mut run = numbers.run(&lane, 4).unwrap();
            let posted = [5, 6, 7, 8].map(|wr_id| run.take(wr_id, Kind::Read, 9).unwrap());
            run.keep();
            assert!(numbers.run(&lane, 1).is_none());
            for number in posted.into_iter().rev() {
                assert_eq!(lane.complete(number).unwrap().bytes, 9);
            }
            assert!(numbers.is_idle(&lane));
        }
    }

    /// A poster that sometimes discards a batch, beside a poller: each number belongs to one request at a time.
    #[test]
    fn runs_beside_a_poller_lose_no_number() {
        let (lane, mut numbers) = pair(8);
        let (posted, done) = std::sync::mpsc::channel::<(u16, u64)>();
        std::thread::scope(|scope| {
            let lane = &lane;
            scope.spawn(move || {
                for (number, wr_id) in done {
                    assert_eq!(lane.complete(number).map(|done| done.wr_id), Some(wr_id));
                }
            });
            let mut wr_id = 0_u64;
            while wr_id < if cfg!(miri) { 60 } else { 20_000 } {
                if let Some(mut run) = numbers.run(lane, 3) {
                    let taken = [0, 1, 2]
                        .map(|more| (run.take(wr_id + more, Kind::Receive, 0).unwrap(), wr_id + more));
                    wr_id += 3;
                    if wr_id.is_multiple_of(4) {
                        continue;
                    }
                    run.keep();
                    taken.into_iter().for_each(|request| posted.send(request).unwrap());
                } else if let Some(number) = numbers.take(lane, wr_id, Kind::Receive, 0) {
                    posted.send((number, wr_id)).unwrap();
                    wr_id += 1;
                } else {
                    std::thread::yield_now();
                }
            }
            drop(posted);
        });
        assert!(numbers.is_idle(&lane));
    }
}
