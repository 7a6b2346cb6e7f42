//! The requests that were posted to a send queue and are not counted yet.
//!
//! A successful completion means that every earlier request in the queue has succeeded too, including unsignaled ones, which have
//! no completion. A failed completion means the same for the requests before the one that failed. Counting each request therefore
//! needs a log of the requests in their order.
//!
//! One thread posts while another may poll. The poster writes entries and then moves `head`. The poller reads the entries before
//! `head` and then moves `tail`, which gives the places back to the poster. Each place belongs to one side at a time, so entries
//! are relaxed atomics. The two positions are stored with release and loaded with acquire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The kind of a request of a send queue, as far as counters distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Write,
    Read,
    /// Nothing that is counted, such as the bind of a memory window.
    Other,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Send, Self::Write, Self::Read, Self::Other];
}

/// A request at the time it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) wr_id: u64,
    pub(crate) kind: Kind,
    pub(crate) bytes: u32,
    /// Not zero if the request has a completion when it succeeds. This is a word instead of a `bool` so that an `Option` of a
    /// send queue, which contains one of these, stores `None` in the tag of its driver's queue, which is read anyway, and not in
    /// the byte of the `bool`.
    pub(crate) signaled: u32,
}

#[derive(Debug, Default)]
struct Entry {
    wr_id: AtomicU64,
    /// The number of bytes, then eight bits for the kind, then the bit `SIGNALED`.
    what: AtomicU64,
}

const KIND: u32 = 32;
const SIGNALED: u64 = 1 << 40;

impl Entry {
    fn store(&self, posted: &Posted) {
        self.wr_id.store(posted.wr_id, Ordering::Relaxed);
        let signaled = if posted.signaled != 0 { SIGNALED } else { 0 };
        self.what.store(u64::from(posted.bytes) | (posted.kind as u64) << KIND | signaled, Ordering::Relaxed);
    }

    fn load(&self) -> Posted {
        let what = self.what.load(Ordering::Relaxed);
        let kind = Kind::ALL.get((what >> KIND) as usize & 0xff).copied().unwrap_or(Kind::Other);
        let wr_id = self.wr_id.load(Ordering::Relaxed);
        Posted { wr_id, kind, bytes: what as u32, signaled: (what & SIGNALED != 0).into() }
    }
}

/// The log of one send queue.
#[derive(Debug)]
pub(super) struct Log {
    /// Their number is a power of two.
    entries: Box<[Entry]>,
    head: AtomicU32,
    tail: AtomicU32,
}

impl Log {
    /// A log with room for at least `room` requests.
    pub(super) fn new(room: u32) -> Arc<Self> {
        let entries = (0..room.max(1).next_power_of_two()).map(|_| Entry::default()).collect();
        Arc::new(Self { entries, head: AtomicU32::new(0), tail: AtomicU32::new(0) })
    }

    fn room(&self) -> u32 {
        self.entries.len() as u32
    }

    fn entry(&self, position: u32) -> &Entry {
        &self.entries[position as usize & (self.entries.len() - 1)]
    }

    /// Called by the poller. Removes the requests before `end` and passes them to `each`.
    fn take(&self, tail: u32, end: u32, mut each: impl FnMut(Posted)) {
        let mut position = tail;
        while position != end {
            each(self.entry(position).load());
            position = position.wrapping_add(1);
        }
        self.tail.store(end, Ordering::Release);
    }

    /// Called by the poller. The position of the first request for which `is_it` is true. The search ends at the first request
    /// that always has a completion, because nothing behind it can have completed.
    fn find(&self, tail: u32, is_it: impl Fn(&Posted) -> bool) -> Option<u32> {
        let head = self.head.load(Ordering::Acquire);
        let mut position = tail;
        while position != head {
            let posted = self.entry(position).load();
            if is_it(&posted) {
                return Some(position);
            }
            if posted.signaled != 0 {
                return None;
            }
            position = position.wrapping_add(1);
        }
        None
    }

    /// Called by the poller when a request has succeeded. Passes it and all requests before it to `each`. If the completion does
    /// not belong to the next request that has one, it dates from before a reset of the queue and is ignored.
    pub(super) fn succeed(&self, wr_id: u64, each: impl FnMut(Posted)) {
        let tail = self.tail.load(Ordering::Relaxed);
        if let Some(at) = self.find(tail, |posted| posted.signaled != 0 && posted.wr_id == wr_id) {
            self.take(tail, at.wrapping_add(1), each);
        }
    }

    /// Called by the poller when a request has failed. Returns this request if it is in the log. All requests before it have
    /// succeeded and are passed to `each`.
    pub(super) fn fail(&self, wr_id: u64, each: impl FnMut(Posted)) -> Option<Posted> {
        let tail = self.tail.load(Ordering::Relaxed);
        let at = self.find(tail, |posted| posted.wr_id == wr_id)?;
        self.take(tail, at, each);
        let failed = self.entry(at).load();
        self.tail.store(at.wrapping_add(1), Ordering::Release);
        Some(failed)
    }

    /// Called by the poller when everything that was posted has ended, and every failure had its completion. The remaining
    /// requests are passed to `each`.
    pub(super) fn finish(&self, each: impl FnMut(Posted)) {
        self.take(self.tail.load(Ordering::Relaxed), self.head.load(Ordering::Acquire), each);
    }
}

/// The part of a log that the poster uses.
#[derive(Debug)]
pub(super) struct Writer {
    log: Arc<Log>,
    /// Position of the next request, and the positions up to which the poller sees requests, now and before the last `publish`.
    next: u32,
    shown: u32,
    before: u32,
}

impl Writer {
    pub(super) fn new(log: Arc<Log>) -> Self {
        Self { log, next: 0, shown: 0, before: 0 }
    }

    pub(super) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    pub(super) fn room(&self) -> u32 {
        self.log.room()
    }

    /// Number of requests that still fit.
    pub(super) fn free(&self) -> u32 {
        self.room() - self.next.wrapping_sub(self.log.tail.load(Ordering::Acquire))
    }

    /// Writes a request that is about to be posted. There must be room for it.
    pub(super) fn stage(&mut self, posted: &Posted) {
        self.log.entry(self.next).store(posted);
        self.next = self.next.wrapping_add(1);
    }

    /// Discards the requests that were staged since the last `publish`.
    pub(super) fn rewind(&mut self) {
        self.next = self.shown;
    }

    /// Makes the staged requests visible to the poller.
    pub(super) fn publish(&mut self) {
        (self.before, self.shown) = (self.shown, self.next);
        self.log.head.store(self.next, Ordering::Release);
    }

    /// Takes back the requests of the last `publish`: the device has not read them, so none of them has completed.
    pub(super) fn retract(&mut self) {
        (self.shown, self.next) = (self.before, self.before);
        self.log.head.store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(wr_id: u64, signaled: bool) -> Posted {
        Posted { wr_id, kind: Kind::Write, bytes: wr_id as u32 * 100, signaled: signaled.into() }
    }

    fn log(requests: &[(u64, bool)]) -> (Writer, Arc<Log>) {
        let log = Log::new(4);
        let mut writer = Writer::new(log.clone());
        for (wr_id, signaled) in requests {
            writer.stage(&posted(*wr_id, *signaled));
        }
        writer.publish();
        (writer, log)
    }

    fn ids(run: impl FnOnce(&mut dyn FnMut(Posted))) -> Vec<u64> {
        let mut ids = Vec::new();
        run(&mut |posted| ids.push(posted.wr_id));
        ids
    }

    #[test]
    fn a_success_proves_what_came_before_it() {
        let (writer, log) = log(&[(1, false), (2, false), (3, true), (4, false)]);
        assert_eq!(writer.free(), 0);
        assert_eq!(ids(|each| log.succeed(3, each)), [1, 2, 3]);
        assert_eq!(writer.free(), 3);
        assert_eq!(ids(|each| log.succeed(4, each)), [0_u64; 0], "it has no completion");
    }

    #[test]
    fn a_failure_proves_what_came_before_it() {
        let (_, log) = log(&[(1, false), (2, false), (3, true)]);
        let mut failed = None;
        assert_eq!(ids(|each| failed = log.fail(2, each)), [1]);
        assert_eq!(failed, Some(posted(2, false)));
        assert_eq!(log.fail(9, drop), None, "it is none of these");
        assert_eq!(log.fail(3, drop), Some(posted(3, true)));
    }

    #[test]
    fn completions_of_an_earlier_life_are_nobodys() {
        let (_, log) = log(&[(1, true), (2, true)]);
        assert_eq!(ids(|each| log.succeed(2, each)), [0_u64; 0]);
        assert_eq!(log.fail(2, drop), None, "1 completes before");
        assert_eq!(ids(|each| log.finish(each)), [1, 2]);
    }

    #[test]
    fn what_was_not_posted_is_forgotten() {
        let (mut writer, log) = log(&[(1, true)]);
        writer.stage(&posted(2, true));
        writer.rewind();
        writer.stage(&posted(3, true));
        writer.publish();
        writer.retract();
        assert_eq!(writer.free(), 3);
        assert_eq!(ids(|each| log.finish(each)), [1]);
    }

    #[test]
    fn places_are_used_again_round_the_end() {
        let (mut writer, log) = log(&[]);
        for round in 0..20 {
            for i in 0..3 {
                writer.stage(&posted(round * 3 + i, i == 2));
            }
            writer.publish();
            let first = round * 3;
            assert_eq!(ids(|each| log.succeed(first + 2, each)), [first, first + 1, first + 2]);
            assert_eq!(writer.free(), 4);
        }
    }
}
