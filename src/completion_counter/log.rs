//! What was posted to a send queue and is not accounted for yet.
//!
//! A completion of success says that everything before it in the queue has succeeded too, without a completion if it
//! was posted so; a completion of failure says the same of what stands before the request that failed. So it takes a log
//! of the requests, in their order, to count each.
//!
//! One thread posts, another may poll. The poster writes entries and then moves `head`; the poller reads what is before
//! `head` and then moves `tail`, whereupon the places are the poster's again. Each place belongs to one side at a
//! time, so entries are relaxed atomics, and the two positions are stored with release and loaded with acquire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a request of a send queue does, as far as counters tell it apart.
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

/// A request as it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) wr_id: u64,
    pub(crate) kind: Kind,
    pub(crate) bytes: u32,
    /// Its success is told by a completion. A word, zero if not: an `Option` of a send queue, which has one of these, says `None` by the
    /// tag of its driver's queue, which is looked at anyway, and not in the byte of a `bool`.
    pub(crate) signaled: u32,
}

#[derive(Debug, Default)]
struct Entry {
    wr_id: AtomicU64,
    /// Bytes, then eight bits of the kind, then the bit `SIGNALED`.
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
    /// As many as a power of two.
    entries: Box<[Entry]>,
    head: AtomicU32,
    tail: AtomicU32,
}

impl Log {
    /// With room for at least so many requests.
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

    /// The poller: takes out the requests before `end`, and hands them on.
    fn take(&self, tail: u32, end: u32, mut each: impl FnMut(Posted)) {
        let mut position = tail;
        while position != end {
            each(self.entry(position).load());
            position = position.wrapping_add(1);
        }
        self.tail.store(end, Ordering::Release);
    }

    /// The poller: the position of the first request that `is_it`, up to the first that has a completion in any case:
    /// none can have completed behind that.
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

    /// The poller: a request has completed with success. It and all before it are handed on. A completion that is not
    /// of the next request that has one is of an earlier life of the queue.
    pub(super) fn succeed(&self, wr_id: u64, each: impl FnMut(Posted)) {
        let tail = self.tail.load(Ordering::Relaxed);
        if let Some(at) = self.find(tail, |posted| posted.signaled != 0 && posted.wr_id == wr_id) {
            self.take(tail, at.wrapping_add(1), each);
        }
    }

    /// The poller: a request has failed, which is the answer if it is in here. All before it have succeeded, and are
    /// handed on.
    pub(super) fn fail(&self, wr_id: u64, each: impl FnMut(Posted)) -> Option<Posted> {
        let tail = self.tail.load(Ordering::Relaxed);
        let at = self.find(tail, |posted| posted.wr_id == wr_id)?;
        self.take(tail, at, each);
        let failed = self.entry(at).load();
        self.tail.store(at.wrapping_add(1), Ordering::Release);
        Some(failed)
    }

    /// The poller: everything that was posted has ended, and whatever failed has said so. The rest is handed on.
    pub(super) fn finish(&self, each: impl FnMut(Posted)) {
        self.take(self.tail.load(Ordering::Relaxed), self.head.load(Ordering::Acquire), each);
    }
}

/// The poster's side of a log.
#[derive(Debug)]
pub(super) struct Writer {
    log: Arc<Log>,
    /// Where the next request goes, and how far the poller has been shown them before the last time and now.
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

    /// How many requests there is room for.
    pub(super) fn free(&self) -> u32 {
        self.room() - self.next.wrapping_sub(self.log.tail.load(Ordering::Acquire))
    }

    /// Writes a request that is about to be posted; there is room for it.
    pub(super) fn stage(&mut self, posted: &Posted) {
        self.log.entry(self.next).store(posted);
        self.next = self.next.wrapping_add(1);
    }

    /// Forgets what was staged since the last time it was shown.
    pub(super) fn rewind(&mut self) {
        self.next = self.shown;
    }

    /// Shows the poller what was staged.
    pub(super) fn publish(&mut self) {
        (self.before, self.shown) = (self.shown, self.next);
        self.log.head.store(self.next, Ordering::Release);
    }

    /// Takes back what was shown last: the device has not looked at it, so nothing has completed.
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
