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

mod poller;
mod sink;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use uverbs_abi::efa::io::{
    CDESC_PHASE, CQ_DB_ARM, CQ_DB_CMD_SN, CQ_DB_CONSUMER_INDEX, RECV_QUEUE, SEND_QUEUE,
};
use uverbs_abi::efa::{CREATE_CQ_RESP_DB_OFF, CREATE_CQ_WITH_COMPLETION_CHANNEL, CreateCq, CreateCqResp};
use zerocopy::{FromZeros, IntoBytes};

use self::poller::{End, IN_A_ROW, Poller, Ring, after};
#[cfg(feature = "raw")]
use self::sink::Telling;
use self::sink::{Places, Single};
use super::doorbell::Doorbell;
use super::entry::{ENTRY, First};
#[cfg(feature = "raw")]
use super::entry::{Told, Untold};
use super::track::Track;
use crate::driver::Kernel;
#[cfg(feature = "raw")]
use crate::driver::bound::OwnRing;
use crate::driver::completion::Place;
use crate::driver::ring::units::{SmallUnits, Units};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

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
#[derive(Clone, Debug, Default)]
struct Known {
    /// None of a number that no queue pair has.
    track: Option<Arc<Track>>,
    /// By this number completions name it.
    number: u16,
    /// Which of [`SENDS`] and [`RECEIVES`] complete here.
    here: u32,
}

/// Bits of an entry's first word, which has one of them.
const SENDS: u32 = First::word(0, SEND_QUEUE << 1);
const RECEIVES: u32 = First::word(0, RECV_QUEUE << 1);

impl Known {
    /// It, if an entry that begins in this way completes here.
    #[inline(always)]
    fn track(&self, first: First) -> Option<&Track> {
        if self.here & first.0 == 0 { None } else { self.track.as_deref() }
    }
}

/// What queue pairs know of a completion queue, and who asks for events.
#[derive(Debug)]
pub(crate) struct CompletionSide {
    /// The process that has the queue: a child of `fork` takes no lock of it.
    origin: Origin,
    doorbell: Option<Doorbell>,
    makes_events: bool,
    /// How many entries were taken, as the device was told. Only the poller changes it.
    taken: AtomicU32,
    /// The queue pairs that complete here, by their numbers, and how often that has changed: the poller has a copy.
    known: Mutex<Vec<Known>>,
    changes: AtomicU32,
    /// How many events were made, where the doorbell has that number; and [`ARMED`] while one was asked for and is looked for.
    events: AtomicU32,
}

/// A bit of [`CompletionSide::events`], one event, and the bits of the doorbell that have their number.
const ARMED: u32 = 1;
const EVENT: u32 = 1 << CQ_DB_CMD_SN.trailing_zeros();

impl CompletionSide {
    fn change(&self, how: impl FnOnce(&mut Vec<Known>)) {
        if self.origin.is_here() {
            how(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Adds a queue pair, in the place of one of this number that is gone.
    pub(super) fn add(&self, track: &Arc<Track>, sends: bool, receives: bool) {
        let here = if sends { SENDS } else { 0 } | if receives { RECEIVES } else { 0 };
        let new = Known { track: Some(track.clone()), number: track.number as u16, here };
        self.change(|known| match known.binary_search_by_key(&new.number, |known| known.number) {
            Ok(at) => known[at] = new,
            Err(at) => known.insert(at, new),
        });
    }

    /// Forgets a queue pair; what it left in the queue is nobody's.
    pub(super) fn remove(&self, track: &Arc<Track>) {
        self.change(|known| {
            known.retain(|known| !known.track.as_ref().is_some_and(|of| Arc::ptr_eq(of, track)))
        });
    }

    /// Requests an event for the next completion. Returns false if the device makes no events of this kind. With `are_told`, the caller
    /// reports each event that it has read by [`CompletionSide::tell`], and the poller does not search for the completion that makes this
    /// event: any thread may then request an event while another one polls.
    pub(crate) fn arm(&self, solicited_only: bool, are_told: bool) -> bool {
        let Some(doorbell) = self.doorbell.as_ref().filter(|_| self.makes_events && !solicited_only) else {
            return false;
        };
        let events = self.events.load(RELAXED);
        if !are_told {
            self.events.fetch_or(ARMED, RELAXED);
        }
        doorbell.ring(Self::word(self.taken.load(RELAXED), events) | CQ_DB_ARM);
        true
    }

    /// What the doorbell says of so many entries and events.
    #[inline(always)]
    fn word(taken: u32, events: u32) -> u32 {
        taken & CQ_DB_CONSUMER_INDEX | events & CQ_DB_CMD_SN
    }

    /// Tells the device that so many entries were taken, which are its own again.
    #[inline(always)]
    fn give_back(&self, taken: u32) {
        let events = self.events.load(RELAXED);
        if events & ARMED == 0 { self.give_back_at(taken, events) } else { self.give_back_armed(taken) }
    }

    /// The same where the first of those entries is the one for which the queue was armed.
    #[cold]
    #[inline(never)]
    fn give_back_armed(&self, taken: u32) {
        const MADE: u32 = EVENT - ARMED;
        let events = self.events.fetch_add(MADE, RELAXED);
        self.give_back_at(taken, events.wrapping_add(MADE));
    }

    #[inline(always)]
    fn give_back_at(&self, taken: u32, events: u32) {
        self.taken.store(taken, RELAXED);
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring_back(Self::word(taken, events));
        }
    }

    /// An event was read.
    #[cfg(feature = "raw")]
    pub(crate) fn tell(&self) {
        self.events.fetch_add(EVENT, RELAXED);
    }
}

/// The side of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    memory: Mapping,
    rings: Box<[Ring]>,
    /// Entries of each, a power of two, less one.
    last: u32,
    /// The ring that is looked at next.
    next: usize,
    /// How many entries were taken; the device was told of fewer until [`Completions::release`].
    taken: u32,
    poller: Poller,
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
        let mut list: Vec<Ring> = match Error::room(op, rings.into()) {
            Ok(list) => list,
            Err(error) => return Some(Err(error)),
        };
        for ring in 0..usize::from(rings) {
            list.push(Ring::new(Units::small(&memory, ring * bytes, bytes)?));
        }
        let shared = CompletionSide {
            origin: Origin::here(),
            doorbell,
            makes_events,
            taken: AtomicU32::new(0),
            known: Mutex::default(),
            changes: AtomicU32::new(0),
            events: AtomicU32::new(0),
        };
        Some(Ok(Self {
            memory,
            rings: list.into_boxed_slice(),
            last: entries - 1,
            next: 0,
            taken: 0,
            poller: Poller::new(Arc::new(shared)),
        }))
    }

    pub(crate) fn shared(&self) -> &Arc<CompletionSide> {
        self.poller.shared()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.last + 1
    }

    /// Whether the device has written no completion.
    #[cfg(feature = "raw")]
    pub(crate) fn is_empty(&self) -> bool {
        self.rings.iter().all(Ring::is_empty)
    }

    /// Fills `places` with completions, as many as there are and fit; tells the device at once, and says how many. Before each of them
    /// `may_take` is asked: if not, it stays, and so do those behind it.
    // Apart, so that the ways of other drivers are no longer for it.
    #[inline(never)]
    pub(crate) fn poll<T: Place>(&mut self, places: &mut [T], may_take: impl Fn() -> bool) -> usize {
        self.many(places, may_take).unwrap_or(0)
    }

    /// The same; none if there are some of which none may be taken, or which take longer.
    #[inline(always)]
    pub(crate) fn short_poll<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        self.many(places, may_take)
    }

    #[inline(always)]
    fn many<T: Place>(&mut self, places: &mut [T], may_take: impl Fn() -> bool) -> Option<usize> {
        let most = places.len();
        let mut sink = Places(places);
        let end = self.take(&may_take, &mut sink);
        let count = most - sink.0.len();
        if count == 0 && end == End::Refused {
            // What was taken by earlier calls is another process's, to which the doorbell is left.
            return None;
        }
        if count > 0 || may_take() {
            self.end_batch();
        }
        Some(count)
    }

    /// The same of one.
    #[inline(always)]
    pub(crate) fn short_one<T: Place>(
        &mut self,
        place: &mut T,
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self.take_one(&may_take, &mut Single(place)) {
            End::Full => {
                self.shared().give_back(self.taken);
                Some(1)
            }
            // What was nobody's is given back by another poll, which this one is not the end of.
            End::Empty if self.is_released() => Some(0),
            End::Empty | End::Refused | End::Nobodys => None,
        }
    }

    /// Goes on to the next ring.
    #[inline(always)]
    fn turn(&mut self) {
        self.next = after(self.next, self.rings.len());
    }

    /// Whether the device was told of all that was taken.
    #[inline(always)]
    fn is_released(&self) -> bool {
        self.shared().taken.load(RELAXED) == self.taken
    }

    /// The next one, put into its place; without one, whether there is none. What was nobody's is given back then: a poll that finds nothing has no
    /// end.
    #[cfg(feature = "raw")]
    pub(crate) fn next_told(&mut self, may_take: impl Fn() -> bool, place: &mut Told) -> Result<(), bool> {
        loop {
            match self.take_one(&may_take, &mut Telling(place)) {
                End::Full => return Ok(()),
                End::Nobodys => {}
                End::Refused => return Err(false),
                End::Empty => break,
            }
        }
        // What was taken before may be another process's, to which the doorbell is left.
        if may_take() {
            self.release();
        }
        Err(true)
    }

    /// As [`Completions::next_told`] by the shortest path, in the ring of the previous completion; see [`Told::fill_received`].
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn short_told(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Told,
    ) -> Result<u64, Untold> {
        let taken = self.take_same(may_take, place);
        taken.map_err(|end| if end == End::Empty { Untold::Elsewhere } else { Untold::Other })
    }

    /// To be called after [`Untold::Elsewhere`]: continues with the next ring that has a completion.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn look_elsewhere(&mut self) -> Result<(), Untold> {
        if self.turn_to_filled() {
            Ok(())
        } else {
            Err(if self.is_released() { Untold::Nothing } else { Untold::Other })
        }
    }

    /// As [`Completions::release`]. Once for every [`IN_A_ROW`] completions, the next poll begins with the next ring.
    #[inline(always)]
    pub(crate) fn end_batch(&mut self) {
        let released = self.shared().taken.load(RELAXED);
        if (released ^ self.taken) >= IN_A_ROW {
            self.turn();
        }
        self.release();
    }

    /// Where the rings lie, one behind the other, for whoever reads them in place of this queue.
    #[cfg(feature = "raw")]
    pub(crate) fn ring(&self) -> OwnRing {
        OwnRing {
            address: self.memory.address(),
            entry_size: ENTRY as u32,
            entries: self.capacity(),
            doorbell: self.shared().doorbell.as_ref().map_or(0, Doorbell::address),
            most_at_once: 0,
        }
    }

    /// Tells the device of all that was taken, if there is any.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if !self.is_released() {
            self.shared().give_back(self.taken);
        }
    }
}
