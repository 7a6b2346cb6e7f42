//! The completion queue of mana: a ring of entries, each with the number of the round in which it was written.
//!
//! One entry may complete many sends, and some requests complete without an entry: those of a queue pair that has failed are flushed when
//! the ring has no more entries. An entry that does not fit the outstanding requests is skipped.

use std::sync::Arc;

use uverbs_abi::types::{WcFlags, wc_opcode, wc_status};
use uverbs_abi::write::Wc;

use super::gdma::{PSN, UNIT, kind};
use super::side::{CompletionSide, Known, Table, key};
use super::status::{FLUSHED, status_of};
use super::track::{Posted, Track};
use crate::driver::completion::{Extended, Place};
use crate::driver::ring::units::Units;
use crate::driver::seam::{CompletionRing, CqSide};

/// The part of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    units: Units,
    side: Arc<CompletionSide>,
    /// A copy of the table of queue pairs, and the number of changes with which it was made.
    known: Table,
    changes: u32,
    /// An entry of which not all sends have completed.
    current: Option<Acknowledged>,
    /// The queue pairs to be flushed, and the number of flushes with which they were found.
    over: Vec<Known>,
    flushes: u32,
}

/// Sends up to a packet have completed.
#[derive(Debug)]
struct Acknowledged {
    track: Arc<Track>,
    /// The number of the queue pair's life.
    life: u32,
    /// The last packet, and the code with which the send after it has failed.
    psn: u32,
    code: Option<u32>,
}

/// The words of an entry that are used: of its data, and the one with its queue.
#[derive(Clone, Copy, Debug)]
struct Entry {
    index: u32,
    kind: u8,
    words: [u32; 5],
    queue: u32,
    is_send: bool,
}

impl Entry {
    fn new(index: u32, words: [u32; 16]) -> Self {
        let word = |i: usize| u32::from_le(words[i]);
        let last = word(15);
        Self {
            index,
            kind: word(0) as u8,
            words: [word(0), word(1), word(2), word(3), word(4)],
            queue: last & 0xff_ffff,
            is_send: last >> 24 & 1 == 1,
        }
    }
}

/// A completion of a queue pair.
fn wc(track: &Track, posted: &Posted, code: Option<u32>) -> Wc {
    Wc {
        wr_id: posted.wr_id,
        status: code.map_or(wc_status::SUCCESS, status_of),
        opcode: posted.opcode,
        vendor_err: code.unwrap_or(0),
        qp_num: track.numbers.qp,
        ..Wc::default()
    }
}

impl Completions {
    pub(super) fn new(units: Units, side: Arc<CompletionSide>) -> Self {
        let (known, over) = (Table::default(), Vec::new());
        Self { units, side, known, changes: 0, current: None, over, flushes: 0 }
    }

    /// Whether there is nothing to be taken.
    fn has_nothing(&self) -> bool {
        self.current.is_none()
            && self.over.is_empty()
            && self.flushes == self.side.flushes()
            && !self.side.is_written(self.side.taken())
    }

    /// Takes the next completion, if there is one and `may_take` returns true.
    fn next(&mut self, may_take: &dyn Fn() -> bool) -> Option<Extended> {
        if self.has_nothing() || !may_take() {
            return None;
        }
        loop {
            if let Some(found) = self.acknowledged().or_else(|| self.entry()) {
                return Some(Extended { wc: found, ..Extended::default() });
            }
            if self.current.is_none() && !self.side.is_written(self.side.taken()) {
                break;
            }
        }
        let found = self.flushed()?;
        Some(Extended { wc: found, ..Extended::default() })
    }

    /// The queue pair of a ring.
    fn known(&mut self, queue: u32, is_send: bool) -> Option<Known> {
        let changes = self.side.changes();
        if changes != self.changes {
            (self.changes, self.known) = (changes, self.side.table());
        }
        self.known.get(&key(queue, is_send)).cloned()
    }

    /// Takes the next entry of the ring, and returns the completion that it is, if any.
    fn entry(&mut self) -> Option<Wc> {
        let index = self.side.taken();
        if !self.side.is_written(index) {
            return None;
        }
        let place = index & (self.side.count() - 1);
        let entry = Entry::new(index, self.units.reading().get::<[u32; 16]>(place as usize).read());
        self.side.pass(index.wrapping_add(1));
        let known = self.known(entry.queue, entry.is_send)?;
        self.open(&entry, &known)
    }

    fn open(&mut self, entry: &Entry, known: &Known) -> Option<Wc> {
        let (track, numbers) = (&known.track, known.track.numbers);
        let is_answer = !entry.is_send && entry.queue == numbers.answers;
        match entry.kind {
            kind::ARMED if is_answer && known.sends => {
                let mut ending = track.lock();
                // The upper three bits say whether it is an acknowledgement.
                if ending.is_stale(0, entry.index) || entry.words[1] >> 29 != 0 {
                    return None;
                }
                let psn = entry.words[2] & PSN;
                if track.is_sent(psn) {
                    self.acknowledge(track, ending.life, psn, None);
                } else {
                    // All of it has completed before, or the device is wrong.
                    track.arm_next(psn);
                }
                None
            }
            kind::ERROR => {
                self.fail(entry, known, is_answer || entry.is_send && entry.queue == numbers.sends)
            }
            kind::SEND | kind::SEND_IMMEDIATE | kind::WRITE_IMMEDIATE
                if !entry.is_send && entry.queue == numbers.qp && known.receives =>
            {
                received(entry, track)
            }
            _ => None,
        }
    }

    fn acknowledge(&mut self, track: &Arc<Track>, life: u32, psn: u32, code: Option<u32>) {
        self.current = Some(Acknowledged { track: track.clone(), life, psn, code });
    }

    /// A request has failed, and with it the queue pair.
    fn fail(&mut self, entry: &Entry, known: &Known, is_send: bool) -> Option<Wc> {
        let track = &known.track;
        let code = entry.words[0] >> 8 & 0x3ff;
        let mut ending = track.lock();
        if ending.is_stale(usize::from(!is_send), entry.index)
            || !(if is_send { known.sends } else { known.receives })
        {
            return None;
        }
        let found = if is_send {
            let psn = entry.words[2].wrapping_sub(1) & PSN;
            self.acknowledge(track, ending.life, psn, Some(code));
            None
        } else {
            track.end();
            track.receives.pop().map(|oldest| wc(track, &oldest, Some(code)))
        };
        drop(ending);
        self.flush_later(known);
        found
    }

    /// Everything of a queue pair is flushed once the ring has no more entries.
    fn flush_later(&mut self, known: &Known) {
        if !self.over.iter().any(|over| Arc::ptr_eq(&over.track, &known.track)) {
            self.over.push(known.clone());
        }
    }

    /// Takes the next send that the last entry completes.
    fn acknowledged(&mut self) -> Option<Wc> {
        let Acknowledged { track, life, psn, code } = self.current.as_ref()?;
        let ending = track.lock();
        if *life == ending.life {
            while let Some(oldest) = track.take_sent(*psn) {
                if oldest.is_signaled {
                    return Some(wc(track, &oldest, None));
                }
            }
            if let Some(code) = *code {
                track.end();
                let failed = track.sends.pop().map(|oldest| wc(track, &oldest, Some(code)));
                drop(ending);
                self.current = None;
                return failed;
            }
            track.arm_next(*psn);
        }
        drop(ending);
        self.current = None;
        None
    }

    /// Takes the next request of a queue pair that has failed.
    fn flushed(&mut self) -> Option<Wc> {
        let flushes = self.side.flushes();
        if flushes != self.flushes {
            self.flushes = flushes;
            let table = self.side.table();
            let over = table.into_values().filter(|known| known.track.is_over());
            over.for_each(|known| self.flush_later(&known));
        }
        while let Some(known) = self.over.last() {
            let track = &known.track;
            let ending = track.lock();
            // It may have been reset meanwhile.
            if track.is_over() {
                let sent = known.sends.then(|| track.sends.pop()).flatten();
                let flushed = sent.or_else(|| known.receives.then(|| track.receives.pop()).flatten());
                if let Some(posted) = flushed {
                    return Some(wc(track, &posted, Some(FLUSHED)));
                }
            }
            drop(ending);
            self.over.pop();
        }
        None
    }
}

/// A message has arrived for the oldest receive.
fn received(entry: &Entry, track: &Track) -> Option<Wc> {
    let mut ending = track.lock();
    let oldest = track.receives.front()?;
    let at = entry.words[4] / UNIT as u32;
    if ending.is_stale(1, entry.index) || at != oldest.at {
        return None;
    }
    track.receives.pop()?;
    let len = entry.words[1];
    let is_write = entry.kind == kind::WRITE_IMMEDIATE;
    if !is_write && u64::from(len) > oldest.bytes {
        // The device cannot have received that much.
        return Some(Wc { status: wc_status::GENERAL_ERR, ..wc(track, &oldest, None) });
    }
    let mut wc = wc(track, &oldest, None);
    wc.byte_len = len;
    if is_write {
        wc.opcode = wc_opcode::RECV_RDMA_WITH_IMM;
    }
    if entry.kind != kind::SEND {
        wc.wc_flags = WcFlags::WITH_IMM.bits();
        wc.ex = entry.words[3].to_be();
    }
    Some(wc)
}

impl CompletionRing for Completions {
    fn capacity(&self) -> u32 {
        self.side.count()
    }

    fn side(&self) -> Arc<dyn CqSide> {
        self.side.clone()
    }

    #[cfg(feature = "raw")]
    fn is_empty(&self) -> bool {
        self.has_nothing()
    }

    /// Only where there is nothing.
    #[inline]
    fn poll_fast<P: Place>(&mut self, _: &mut [P], _: impl Fn() -> bool) -> Option<usize> {
        self.has_nothing().then_some(0)
    }

    #[inline]
    fn poll<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> usize {
        let mut count = 0;
        for place in places {
            let Some(next) = self.next(&may_take) else { break };
            place.put(&next);
            count += 1;
        }
        count
    }

    #[cfg(feature = "raw")]
    fn next_copied(&mut self, may_take: &dyn Fn() -> bool) -> Option<Extended> {
        self.next(may_take)
    }
}
