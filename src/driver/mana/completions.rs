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
use super::track::{Posted, RECEIVES, SENDS, Track};
use crate::driver::completion::{Extended, Place};
use crate::driver::seam::{CompletionRing, CqSide};

/// The part of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    side: Arc<CompletionSide>,
    /// A copy of the table of queue pairs, and the number of changes with which it was made.
    known: Table,
    changes: u32,
    /// An entry of which not all sends have completed.
    current: Option<Acknowledged>,
    /// The queue pairs that have failed, until they are reset: a request may be posted while the queue pair fails. And the number of flushes
    /// with which they were found.
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
    index: u64,
    kind: u8,
    words: [u32; 5],
    queue: u32,
    is_send: bool,
}

impl Entry {
    fn new(index: u64, words: [u32; 16]) -> Self {
        let [first, second, third, fourth, fifth, .., last] = words;
        Self {
            index,
            kind: first as u8,
            words: [first, second, third, fourth, fifth],
            queue: last & 0xff_ffff,
            is_send: last >> 24 & 1 == 1,
        }
    }
}

/// What an entry says.
enum Said {
    /// A request has completed, or nothing has.
    Done(Option<Wc>),
    /// Sends have.
    Acknowledged(Acknowledged),
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
    pub(super) fn new(side: Arc<CompletionSide>) -> Self {
        let (known, over) = (Table::new(), Vec::new());
        Self { side, known, changes: 0, current: None, over, flushes: 0 }
    }

    /// Whether there is nothing to be taken.
    fn has_nothing(&self) -> bool {
        self.current.is_none()
            && self.over.iter().all(Known::has_ended)
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
    #[inline]
    fn known(&mut self, queue: u32, is_send: bool) -> Option<&Known> {
        let changes = self.side.changes();
        if changes != self.changes {
            (self.changes, self.known) = (changes, self.side.table());
        }
        let key = key(queue, is_send);
        let at = self.known.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        self.known.get(at).map(|(_, known)| known)
    }

    /// Takes the next entry of the ring, and returns the completion that it is, if any.
    fn entry(&mut self) -> Option<Wc> {
        let index = self.side.taken();
        if !self.side.is_written(index) {
            return None;
        }
        let entry = Entry::new(index, self.side.entry(index));
        self.side.pass(index + 1);
        match open(&entry, self.known(entry.queue, entry.is_send)?) {
            Said::Done(found) => found,
            Said::Acknowledged(sends) => {
                self.current = Some(sends);
                None
            }
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
                track.end(SENDS);
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
            self.over.retain(|known| known.track.is_over());
            for (_, known) in self.side.table() {
                let is_new = !self.over.iter().any(|over| Arc::ptr_eq(&over.track, &known.track));
                if is_new && known.track.is_over() {
                    self.over.push(known);
                }
            }
        }
        self.over.iter().find_map(|known| {
            let track = &known.track;
            let _ending = track.lock();
            // It may have been reset meanwhile.
            let over = track.over();
            let sends = (known.sends && over & SENDS != 0).then_some(&track.sends);
            let receives = (known.receives && over & RECEIVES != 0).then_some(&track.receives);
            let posted = sends.into_iter().chain(receives).find_map(|lane| lane.pop())?;
            Some(wc(track, &posted, Some(FLUSHED)))
        })
    }
}

fn open(entry: &Entry, known: &Known) -> Said {
    let (track, numbers) = (&known.track, known.track.numbers);
    let is_answer = !entry.is_send && entry.queue == numbers.answers;
    match entry.kind {
        kind::ARMED if is_answer && known.sends => acknowledged(entry, track),
        kind::ERROR if is_answer || entry.is_send && entry.queue == numbers.sends => {
            send_failed(entry, known)
        }
        kind::ERROR => receive_failed(entry, known),
        kind::SEND | kind::SEND_IMMEDIATE | kind::WRITE_IMMEDIATE
            if !entry.is_send && entry.queue == numbers.qp && known.receives =>
        {
            Said::Done(received(entry, track))
        }
        _ => Said::Done(None),
    }
}

/// The packet has been acknowledged that was asked for.
fn acknowledged(entry: &Entry, track: &Arc<Track>) -> Said {
    let ending = track.lock();
    // The upper three bits say whether it is an acknowledgement.
    if ending.is_stale(0, entry.index) || entry.words[1] >> 29 != 0 {
        return Said::Done(None);
    }
    let psn = entry.words[2] & PSN;
    if track.is_sent(psn) {
        return Said::Acknowledged(Acknowledged { track: track.clone(), life: ending.life, psn, code: None });
    }
    // All of it has completed before, or the device is wrong.
    track.arm_next(psn);
    Said::Done(None)
}

/// The code of an error.
fn code(entry: &Entry) -> u32 {
    entry.words[0] >> 8 & 0x3ff
}

/// A send has failed, and with it the queue pair.
fn send_failed(entry: &Entry, Known { track, sends, .. }: &Known) -> Said {
    let ending = track.lock();
    if !sends || ending.is_stale(0, entry.index) {
        return Said::Done(None);
    }
    // Those before the packet that has failed have been acknowledged.
    let (psn, code) = (entry.words[2].wrapping_sub(1) & PSN, Some(code(entry)));
    if track.is_sent(psn) {
        return Said::Acknowledged(Acknowledged { track: track.clone(), life: ending.life, psn, code });
    }
    // If they were not sent, none is known to have been acknowledged: the oldest send has failed.
    track.end(SENDS);
    Said::Done(track.sends.pop().map(|oldest| wc(track, &oldest, code)))
}

/// The peer's request has failed, for which the oldest receive was, and with it the queue pair.
fn receive_failed(entry: &Entry, Known { track, receives, .. }: &Known) -> Said {
    let ending = track.lock();
    if !receives || ending.is_stale(1, entry.index) {
        return Said::Done(None);
    }
    track.end(RECEIVES);
    Said::Done(track.receives.pop().map(|oldest| wc(track, &oldest, Some(code(entry)))))
}

/// A message has arrived for the oldest receive.
fn received(entry: &Entry, track: &Track) -> Option<Wc> {
    let ending = track.lock();
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
