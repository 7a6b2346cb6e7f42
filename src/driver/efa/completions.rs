//! Completion queues of efa.
//!
//! A queue has several rings, one behind the other in its memory, which the kernel's driver gives; a queue pair completes in those that
//! the device chose when it was made, so all are looked at in turn. An entry is ours when its phase is that of the round that we are in,
//! which begins at one. How many entries were taken, of all rings together, is told by a doorbell, which also asks for an event.
//!
//! The device takes an ask for an event with the number of those that were made before. Events reach the program by way of a file
//! that it may read when it likes; but that one was made is seen in the queue: an armed queue makes it at the first completion.
//! Bindings, which read events themselves, tell of each instead.
//!
//! Source: `efa_poll_sub_cq`, `cq_next_sub_cqe_get` and `efa_update_cq_doorbell`, providers/efa/verbs.c, rdma-core 65;
//! `efa_create_user_cq`, efa_verbs.c, Linux 7.3.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use uverbs_abi::efa::io::{CDESC_PHASE, CQ_DB_ARM, CQ_DB_CONSUMER_INDEX, RxCdescEx};
use uverbs_abi::efa::{CREATE_CQ_RESP_DB_OFF, CREATE_CQ_WITH_COMPLETION_CHANNEL, CreateCq, CreateCqResp};
use uverbs_abi::write::Wc;
use zerocopy::{FromZeros, IntoBytes};

use super::doorbell::Doorbell;
use super::entry::{ENTRY, is_send, raise};
use super::track::Track;
use crate::driver::Kernel;
#[cfg(feature = "raw")]
use crate::driver::bound::{OwnRing, Told};
use crate::driver::completion::Extended;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;
use crate::kernel::mapping::barrier::after_owner;
use crate::kernel::process::Origin;

const RELAXED: Ordering = Ordering::Relaxed;

/// A completion queue about to be made.
#[derive(Debug)]
pub(crate) struct CqPlan {
    request: CreateCq,
    response: CreateCqResp,
    entries: u32,
    /// The process's own, if the driver shall make none.
    memory: Option<Mapping>,
}

impl CqPlan {
    /// With room for `wanted` in each of so many rings.
    pub(super) fn new(wanted: u32, rings: u16, has_channel: bool) -> Self {
        let request = CreateCq {
            cq_entry_size: ENTRY as u32,
            num_sub_cqs: rings,
            flags: if has_channel { CREATE_CQ_WITH_COMPLETION_CHANNEL } else { 0 },
            ..CreateCq::new_zeroed()
        };
        // Indices are masked. What is too much is left to the kernel to refuse, and so is nothing at all.
        let entries = if wanted == 0 { 0 } else { wanted.checked_next_power_of_two().unwrap_or(wanted) };
        Self { request, response: CreateCqResp::new_zeroed(), entries, memory: None }
    }

    /// The same with flags of the driver's besides.
    pub(super) fn with(mut self, flags: u8) -> Self {
        self.request.flags |= flags;
        self
    }

    /// The same in this memory.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when it is too small.
    pub(super) fn in_memory(op: &'static str, wanted: u32, rings: u16, memory: &Mapping) -> Result<Self> {
        let plan = Self::new(wanted, rings, false);
        let bytes = u64::from(plan.entries) * u64::from(rings) * ENTRY as u64;
        if bytes > memory.len() as u64 {
            let hint = format!("a completion queue for {} completions needs {bytes} bytes", plan.entries);
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        // An entry that was never written has the phase of none.
        let zeros = [0; ENTRY];
        let is_clear = (0..bytes as usize / ENTRY).all(|entry| memory.write(entry * ENTRY, &zeros));
        if !is_clear || !memory.address().is_multiple_of(ENTRY as u64) {
            let hint = "the memory of a completion queue begins at a multiple of 32";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        Ok(Self { memory: Some(memory.clone()), ..plan })
    }

    /// The memory that the device writes to as long as the queue exists, if the process has it.
    pub(crate) fn memory(&self) -> Option<&Mapping> {
        self.memory.as_ref()
    }

    /// The driver's request, and the place of its answer.
    pub(crate) fn payload(&mut self) -> (&[u8], &mut [u8]) {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    /// How many entries the kernel is asked for.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// The queue, now that the kernel has made it with so many entries in each ring.
    pub(in crate::driver) fn open(
        self,
        op: &'static str,
        entries: u32,
        kernel: &dyn Kernel,
    ) -> Result<Completions> {
        let CreateCqResp { comp_mask, q_mmap_key, q_mmap_size, db_off, db_mmap_key, .. } = self.response;
        let nonsense = || Error::malformed(op, "a completion queue that does not fit its size");
        let len = usize::try_from(q_mmap_size).map_err(|_| nonsense())?;
        let doorbell = (comp_mask & CREATE_CQ_RESP_DB_OFF != 0)
            .then(|| Doorbell::map(op, db_mmap_key, db_off, kernel))
            .transpose()?;
        let memory = match self.memory {
            Some(memory) => memory,
            None => kernel.map(op, q_mmap_key, len)?,
        };
        let makes_events = self.request.flags & CREATE_CQ_WITH_COMPLETION_CHANNEL != 0;
        Completions::new(op, memory, entries, self.request.num_sub_cqs, doorbell, makes_events)
            .ok_or_else(nonsense)?
    }
}

/// A queue pair that completes in a queue: what it sends, what it receives, or both.
#[derive(Clone, Debug)]
struct Known {
    track: Arc<Track>,
    sends: bool,
    receives: bool,
}

impl Known {
    /// By this number completions name it.
    fn number(&self) -> u16 {
        self.track.number as u16
    }
}

/// What queue pairs know of a completion queue, and who asks for events.
#[derive(Debug)]
pub(crate) struct CompletionSide {
    /// The process that has the queue: a child of `fork` takes no lock of it.
    origin: Origin,
    doorbell: Option<Doorbell>,
    makes_events: bool,
    /// How many entries were taken. Only the poller changes it.
    taken: AtomicU32,
    /// The queue pairs that complete here, by their numbers, and how often that has changed: the poller has a copy.
    known: Mutex<Vec<Known>>,
    changes: AtomicU32,
    /// Whether an event was asked for, and how many were made.
    is_armed: AtomicBool,
    events: AtomicU32,
    /// Who reads events tells so: then the queue is not searched for the one that made it.
    is_told: AtomicBool,
}

impl CompletionSide {
    fn change(&self, how: impl FnOnce(&mut Vec<Known>)) {
        if self.origin.is_here() {
            how(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Adds a queue pair, in the place of one of this number that is gone.
    pub(super) fn add(&self, track: &Arc<Track>, sends: bool, receives: bool) {
        let new = Known { track: track.clone(), sends, receives };
        self.change(|known| match known.binary_search_by_key(&new.number(), Known::number) {
            Ok(at) => known[at] = new,
            Err(at) => known.insert(at, new),
        });
    }

    /// Forgets a queue pair; what it left in the queue is nobody's.
    pub(super) fn remove(&self, track: &Arc<Track>) {
        self.change(|known| known.retain(|known| !Arc::ptr_eq(&known.track, track)));
    }

    /// Asks for an event at the next completion; false if the device makes none of this kind.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        if solicited_only || !self.makes_events || self.doorbell.is_none() {
            return false;
        }
        if !self.is_told.load(Ordering::Relaxed) {
            self.is_armed.store(true, Ordering::Relaxed);
        }
        self.ring(CQ_DB_ARM);
        true
    }

    fn ring(&self, arm: u32) {
        if let Some(doorbell) = &self.doorbell {
            let events = self.events.load(Ordering::Relaxed) & 3;
            doorbell.ring(self.taken.load(Ordering::Relaxed) & CQ_DB_CONSUMER_INDEX | events << 29 | arm);
        }
    }

    /// Who reads the events of the queue tells of each, from the first on: then any thread may ask for one while another polls.
    #[cfg(feature = "raw")]
    pub(crate) fn expect_told(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    /// An event was read.
    #[cfg(feature = "raw")]
    pub(crate) fn tell(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }
}

/// The side of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    memory: Mapping,
    rings: Box<[Ring]>,
    /// Entries of each, a power of two.
    entries: u32,
    /// The ring that is looked at next.
    next: usize,
    /// Whether entries were taken of which the device was not told.
    is_behind: bool,
    /// A copy of the queue pairs that complete here.
    known: Vec<Known>,
    changes: u32,
    /// Where the queue pair was whose completion was taken last.
    last: usize,
    shared: Arc<CompletionSide>,
}

/// One ring.
#[derive(Clone, Copy, Debug)]
struct Ring {
    /// Where it begins in the memory.
    begin: usize,
    /// Counter of the next entry.
    position: u32,
}

impl Ring {
    /// Where the next entry is.
    #[inline(always)]
    fn at(self, entries: u32) -> usize {
        self.begin + (self.position & (entries - 1)) as usize * ENTRY
    }

    /// The phase that it has when the device has written it.
    #[inline(always)]
    fn phase(self, entries: u32) -> u8 {
        u8::from(self.position & entries == 0) * CDESC_PHASE
    }
}

impl Completions {
    /// None if the memory is not that of so many rings of so many entries.
    fn new(
        op: &'static str,
        memory: Mapping,
        entries: u32,
        rings: u16,
        doorbell: Option<Doorbell>,
        makes_events: bool,
    ) -> Option<Result<Self>> {
        let bytes = (entries as usize).checked_mul(ENTRY)?;
        let all = bytes.checked_mul(rings.into())?;
        if !entries.is_power_of_two() || rings == 0 || all > memory.len() {
            return None;
        }
        let mut list = match Error::room(op, rings.into()) {
            Ok(list) => list,
            Err(error) => return Some(Err(error)),
        };
        list.extend((0..usize::from(rings)).map(|ring| Ring { begin: ring * bytes, position: 0 }));
        let shared = CompletionSide {
            origin: Origin::here(),
            doorbell,
            makes_events,
            taken: AtomicU32::new(0),
            known: Mutex::default(),
            changes: AtomicU32::new(0),
            is_armed: AtomicBool::new(false),
            events: AtomicU32::new(0),
            is_told: AtomicBool::new(false),
        };
        Some(Ok(Self {
            memory,
            rings: list.into_boxed_slice(),
            entries,
            next: 0,
            is_behind: false,
            known: Vec::new(),
            changes: 0,
            last: 0,
            shared: Arc::new(shared),
        }))
    }

    pub(crate) fn shared(&self) -> &Arc<CompletionSide> {
        &self.shared
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.entries
    }

    /// The next entry of a ring, if the device has written it.
    #[inline(always)]
    fn filled(&self, ring: Ring) -> Option<[u64; ENTRY / 8]> {
        let words = self.memory.values::<{ ENTRY / 8 }>(ring.at(self.entries))?;
        // What the device wrote before the phase is read after it.
        let first = words[0].load(Ordering::Acquire);
        after_owner();
        let is_ours = first.to_ne_bytes()[3] & CDESC_PHASE == ring.phase(self.entries);
        is_ours.then(|| [first, words[1].load(RELAXED), words[2].load(RELAXED), words[3].load(RELAXED)])
    }

    /// Whether the device has written no completion.
    #[cfg(feature = "raw")]
    pub(crate) fn is_empty(&self) -> bool {
        self.rings.iter().all(|ring| self.filled(*ring).is_none())
    }

    /// Fills `places` with completions, as many as there are and fit; tells the device at once, and says how many. Before each of them
    /// `may_take` is asked: if not, it stays, and so do those behind it.
    // Apart, so that the ways of other drivers are no longer for it.
    #[inline(never)]
    pub(crate) fn poll<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        mut fill: impl FnMut(&mut T, &Extended),
    ) -> usize {
        let mut count = 0;
        while let Some(place) = places.get_mut(count) {
            let Some(entry) = self.next_filled() else { break };
            if !may_take() {
                // What was taken before is another process's, to which the doorbell is left.
                return count;
            }
            self.pass();
            // Of one that is nobody's nothing is said.
            if let Some(wc) = self.find(&entry) {
                fill(place, &Extended { wc, ..Extended::default() });
                count += 1;
            }
        }
        self.release();
        count
    }

    /// The next entry, of the first ring that has one.
    #[inline(always)]
    fn next_filled(&mut self) -> Option<RxCdescEx> {
        // Rings are looked at in turn, each once.
        for _ in 0..self.rings.len() {
            let ring = self.rings.get(self.next).copied()?;
            if let Some(words) = self.filled(ring) {
                return Some(zerocopy::transmute!(words));
            }
            self.next = self.behind();
        }
        None
    }

    /// The ring behind the next.
    #[inline(always)]
    fn behind(&self) -> usize {
        if self.next + 1 < self.rings.len() { self.next + 1 } else { 0 }
    }

    /// Takes the next completion, with what the device wrote; `may_take` is asked before. Without one, whether there is none.
    #[cfg(feature = "raw")]
    fn next_entry(&mut self, may_take: impl Fn() -> bool) -> Result<(Wc, RxCdescEx), bool> {
        while let Some(entry) = self.next_filled() {
            if !may_take() {
                return Err(false);
            }
            self.pass();
            if let Some(wc) = self.find(&entry) {
                return Ok((wc, entry));
            }
        }
        Err(true)
    }

    /// The same, put into its place; false if there is none. What was nobody's is given back then: a poll that finds nothing has no
    /// end.
    #[cfg(feature = "raw")]
    #[inline(never)]
    pub(crate) fn next_told(&mut self, may_take: impl Fn() -> bool, place: &mut Told) -> bool {
        match self.next_entry(may_take) {
            Ok((wc, entry)) => {
                *place = Told { wc, sender: entry.src_addr };
                true
            }
            Err(is_none) => {
                // What may not be taken is another process's, to which the doorbell is left.
                if is_none {
                    self.release();
                }
                false
            }
        }
    }

    /// Where the rings lie, one behind the other, for whoever reads them in place of this queue.
    #[cfg(feature = "raw")]
    pub(crate) fn ring(&self) -> OwnRing {
        OwnRing {
            address: self.memory.address(),
            entry_size: ENTRY as u32,
            entries: self.entries,
            doorbell: self.shared.doorbell.as_ref().map_or(0, Doorbell::address),
            most_at_once: 0,
        }
    }

    /// Goes on behind the entry that is next, in the same ring.
    #[inline(always)]
    fn pass(&mut self) {
        if let Some(ring) = self.rings.get_mut(self.next) {
            ring.position = ring.position.wrapping_add(1);
        }
        self.is_behind = true;
        let shared = &*self.shared;
        shared.taken.store(shared.taken.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if shared.is_armed.load(Ordering::Relaxed) {
            // It is the one for which the queue was armed.
            shared.is_armed.store(false, Ordering::Relaxed);
            shared.events.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the entry says, if its queue pair is still there.
    #[inline(always)]
    fn find(&mut self, entry: &RxCdescEx) -> Option<Wc> {
        // Each is behind all that was changed before its request was posted.
        let changes = self.shared.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.learn(changes);
        }
        let number = entry.base.common.qp_num.get();
        let is_it = |known: &&Known| known.number() == number;
        let known = match self.known.get(self.last).filter(is_it) {
            Some(known) => known,
            None => {
                self.last = self.known.binary_search_by_key(&number, Known::number).ok()?;
                self.known.get(self.last)?
            }
        };
        let is_here = if is_send(entry) { known.sends } else { known.receives };
        if is_here { raise(entry, &known.track) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, changes: u32) {
        self.known.clone_from(&self.shared.known.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes = changes;
    }

    /// Tells the device of all that was taken. The next ring is another one, so that a full one holds back none.
    pub(crate) fn release(&mut self) {
        if self.is_behind {
            (self.is_behind, self.next) = (false, self.behind());
            self.shared.ring(0);
        }
    }
}
