//! Completion queues of efa.
//!
//! A queue has several rings, one after another in its memory, which the kernel's driver allocates. The device chooses in which of them
//! a queue pair completes when the queue pair is created, so all of them are polled in turn. An entry may be read when its phase bit is
//! that of the current round; the phase of the first round is one. A doorbell reports how many entries were taken, of all rings
//! together, and also requests an event.
//!
//! The device accepts a request for an event with the number of events that were made before. The program may read events from their
//! file at any time; the queue itself shows that an event was made, because an armed queue makes it at the first completion. Bindings
//! read events themselves, and report each event instead.
//!
//! Source: `efa_poll_sub_cq`, `cq_next_sub_cqe_get` and `efa_update_cq_doorbell`, providers/efa/verbs.c, rdma-core 65;
//! `efa_create_user_cq`, efa_verbs.c, Linux 7.3.

mod poller;
mod sink;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
#[cfg(feature = "raw")]
use super::entry::Told;
use super::entry::{ENTRY, First};
use super::track::Track;
#[cfg(feature = "raw")]
use crate::driver::completion::Missed;
use crate::driver::completion::Place;
use crate::driver::ring::units::{SmallUnits, Units};
#[cfg(feature = "raw")]
use crate::driver::seam::OwnRing;
use crate::driver::seam::{CompletionRing, CqSide, Created, Payload, Plan};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

use crate::kernel::process::Origin;

const RELAXED: Ordering = Ordering::Relaxed;

/// A completion queue that is about to be created.
#[derive(Debug)]
pub(crate) struct CqPlan {
    request: CreateCq,
    response: CreateCqResp,
    entries: u32,
    /// The program's own memory, if the driver is to allocate none.
    memory: Option<Mapping>,
}

impl CqPlan {
    /// For `wanted` completions in each of this many rings.
    pub(super) fn new(wanted: u32, rings: u16, has_channel: bool) -> Self {
        let request = CreateCq {
            cq_entry_size: ENTRY as u32,
            num_sub_cqs: rings,
            flags: if has_channel { CREATE_CQ_WITH_COMPLETION_CHANNEL } else { 0 },
            ..CreateCq::new_zeroed()
        };
        // A power of two, because indices are masked. The kernel refuses a number that is too large, and zero.
        let entries = if wanted == 0 { 0 } else { wanted.checked_next_power_of_two().unwrap_or(wanted) };
        Self { request, response: CreateCqResp::new_zeroed(), entries, memory: None }
    }

    /// Adds these flags of the driver.
    pub(super) fn with(mut self, flags: u8) -> Self {
        self.request.flags |= flags;
        self
    }

    /// For `wanted` completions in each of this many rings, in this memory of the program, which is cleared.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the memory is too small, or does not begin at a multiple of the size of an
    /// entry.
    pub(super) fn in_memory(op: &'static str, wanted: u32, rings: u16, memory: &Mapping) -> Result<Self> {
        let plan = Self::new(wanted, rings, false);
        let bytes = u64::from(plan.entries) * u64::from(rings) * ENTRY as u64;
        if bytes > memory.len() as u64 {
            let what = "bytes of memory for the completions";
            return Err(Error::outside(op, what, memory.len(), format_args!("at least {bytes}")));
        }
        // The phase of a cleared entry is not that of the first round.
        let zeros = [0; ENTRY];
        let is_clear = (0..bytes as usize / ENTRY).all(|entry| memory.write(entry * ENTRY, &zeros));
        if !is_clear || !memory.address().is_multiple_of(ENTRY as u64) {
            let what = "address of the memory of a completion queue";
            return Err(Error::outside(
                op,
                what,
                format_args!("{:#x}", memory.address()),
                format_args!("a multiple of {ENTRY}"),
            ));
        }
        Ok(Self { memory: Some(memory.clone()), ..plan })
    }
}

impl Plan<u32, Completions> for CqPlan {
    /// The program's own memory.
    fn memory(&self) -> Option<&Mapping> {
        self.memory.as_ref()
    }

    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    fn asked(&self, _: u32) -> u32 {
        self.entries
    }

    /// The kernel has created it with this many entries in each ring.
    fn open(self: Box<Self>, made: Created<'_, u32>) -> Result<Completions> {
        let Created { op, size: entries, kernel, .. } = made;
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

/// A queue pair that completes its sends, its receives, or both in a queue.
#[derive(Clone, Debug, Default)]
struct Known {
    /// `None` for a number that no queue pair has.
    track: Option<Arc<Track>>,
    /// The number by which completions name the queue pair.
    number: u16,
    /// Which of [`SENDS`] and [`RECEIVES`] complete here.
    here: u32,
}

/// Bits of an entry's first word, which say to which queue its request belongs.
const SENDS: u32 = First::word(0, SEND_QUEUE << 1);
const RECEIVES: u32 = First::word(0, RECV_QUEUE << 1);

impl Known {
    /// The queue pair, if entries with this first word complete here.
    #[inline(always)]
    fn track(&self, first: First) -> Option<&Track> {
        if self.here & first.0 == 0 { None } else { self.track.as_deref() }
    }
}

/// The part of a completion queue that its queue pairs use, and that requests events.
#[derive(Debug)]
pub(crate) struct CompletionSide {
    /// The process that created the queue. A child of `fork` must not take its locks.
    origin: Origin,
    doorbell: Option<Doorbell>,
    makes_events: bool,
    /// Number of entries that the doorbell has reported as taken. Only the poller changes it.
    taken: AtomicU32,
    /// The queue pairs that complete here, in the order of their numbers, and the number of changes to the list. The poller has a copy.
    known: Mutex<Vec<Known>>,
    changes: AtomicU32,
    /// Number of events that were made, in the bits of the doorbell; and [`ARMED`] while an event is requested whose completion is
    /// searched for.
    events: AtomicU32,
}

/// The bit of [`CompletionSide::events`] for an armed queue, and the lowest bit of the number of events, as in the doorbell.
const ARMED: u32 = 1;
const EVENT: u32 = 1 << CQ_DB_CMD_SN.trailing_zeros();

impl CompletionSide {
    fn change(&self, how: impl FnOnce(&mut Vec<Known>)) {
        if self.origin.is_here() {
            how(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Adds a queue pair. It replaces an earlier one with the same number.
    pub(super) fn add(&self, track: &Arc<Track>, sends: bool, receives: bool) {
        let here = if sends { SENDS } else { 0 } | if receives { RECEIVES } else { 0 };
        let new = Known { track: Some(track.clone()), number: track.number as u16, here };
        self.change(|known| match known.binary_search_by_key(&new.number, |known| known.number) {
            Ok(at) => known[at] = new,
            Err(at) => known.insert(at, new),
        });
    }

    /// Removes a queue pair. Entries that it left in the queue are skipped.
    pub(super) fn remove(&self, track: &Arc<Track>) {
        self.change(|known| {
            known.retain(|known| !known.track.as_ref().is_some_and(|of| Arc::ptr_eq(of, track)))
        });
    }

    /// The value for the doorbell.
    #[inline(always)]
    fn word(taken: u32, events: u32) -> u32 {
        taken & CQ_DB_CONSUMER_INDEX | events & CQ_DB_CMD_SN
    }

    /// Gives entries back to the device: reports the number of entries taken.
    #[inline(always)]
    fn give_back(&self, taken: u32) {
        let events = self.events.load(RELAXED);
        if events & ARMED == 0 { self.give_back_at(taken, events) } else { self.give_back_armed(taken) }
    }

    /// Gives entries back to the device if the queue is armed. The first of these entries has made the event.
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
}

impl CqSide for CompletionSide {
    /// Requests an event for the next completion. Returns false if the device makes no events of this kind. With `are_told`, the caller
    /// reports each event that it has read by [`CompletionSide::tell`], and the poller does not search for the completion that makes this
    /// event: any thread may then request an event while another one polls.
    fn arm_apart(&self, solicited_only: bool, are_told: bool) -> bool {
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

    /// Counts an event that the program has read.
    #[cfg(feature = "raw")]
    fn tell(&self) {
        self.events.fetch_add(EVENT, RELAXED);
    }
}

/// The part of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    memory: Mapping,
    rings: Box<[Ring]>,
    /// Number of entries of each ring, a power of two, minus one.
    last: u32,
    /// Index of the ring that is read next.
    next: usize,
    /// Number of entries taken, which [`Completions::release`] reports to the device.
    taken: u32,
    poller: Poller,
}

impl Completions {
    /// Returns `None` if this many rings of this many entries do not fit in the memory, or are not a power of two.
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

    pub(super) fn shared(&self) -> &Arc<CompletionSide> {
        self.poller.shared()
    }

    /// Continues with the next ring.
    #[inline(always)]
    fn turn(&mut self) {
        self.next = after(self.next, self.rings.len());
    }

    /// Whether all entries that were taken have been given back to the device.
    #[inline(always)]
    fn is_released(&self) -> bool {
        self.shared().taken.load(RELAXED) == self.taken
    }

    /// Takes the next completion into `place`. The error says whether the queue is empty. In that case, entries that were skipped are
    /// given back: a poll that finds nothing is not followed by a release.
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
        // Otherwise entries taken before may belong to another process, which rings the doorbell.
        if may_take() {
            self.release();
        }
        Err(true)
    }

    /// Takes the next completion into `place` by the shortest path, in the ring of the previous completion. Returns its `wr_id`, which is
    /// not stored; see [`Told::fill_received`].
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn short_told(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Told,
    ) -> Result<u64, Missed> {
        let taken = self.take_same(may_take, place);
        taken.map_err(|end| if end == End::Empty { Missed::Elsewhere } else { Missed::Other })
    }

    /// To be called after [`Missed::Elsewhere`]: continues with the next ring that has a completion.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn look_elsewhere(&mut self) -> Result<(), Missed> {
        if self.turn_to_filled() {
            Ok(())
        } else {
            Err(if self.is_released() { Missed::Nothing } else { Missed::Other })
        }
    }

    /// Gives all entries that were taken back to the device, at the end of a poll. Once for every [`IN_A_ROW`] completions, the next poll
    /// begins with the next ring.
    #[inline(always)]
    pub(crate) fn end_batch(&mut self) {
        let released = self.shared().taken.load(RELAXED);
        if (released ^ self.taken) >= IN_A_ROW {
            self.turn();
        }
        self.release();
    }

    /// Gives all entries that were taken back to the device.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if !self.is_released() {
            self.shared().give_back(self.taken);
        }
    }
}

impl CompletionRing for Completions {
    fn capacity(&self) -> u32 {
        self.last + 1
    }

    fn side(&self) -> Arc<dyn CqSide> {
        self.shared().clone()
    }

    #[cfg(feature = "raw")]
    fn is_empty(&self) -> bool {
        self.rings.iter().all(Ring::is_empty)
    }

    #[inline(always)]
    fn poll_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        let most = places.len();
        let mut sink = Places(places);
        let end = self.take(&may_take, &mut sink);
        let count = most - sink.0.len();
        if count == 0 && end == End::Refused {
            // Entries that earlier calls took belong to another process, which rings the doorbell.
            return None;
        }
        if count > 0 || may_take() {
            self.end_batch();
        }
        Some(count)
    }

    /// Not if an entry was skipped.
    #[inline(always)]
    fn poll_one_fast<P: Place>(&mut self, place: &mut P, may_take: impl Fn() -> bool) -> Option<usize> {
        match self.take_one(&may_take, &mut Single(place)) {
            End::Full => {
                self.shared().give_back(self.taken);
                Some(1)
            }
            // Otherwise entries were skipped and have not been given back, which the full path does.
            End::Empty if self.is_released() => Some(0),
            End::Empty | End::Refused | End::Nobodys => None,
        }
    }

    #[cfg(feature = "raw")]
    const FEW: usize = 1;

    #[cfg(feature = "raw")]
    #[inline(always)]
    fn poll_few_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        self.poll_one_fast(places.first_mut()?, may_take)
    }

    /// The rings, one after another.
    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        Some(OwnRing {
            address: self.memory.address(),
            entry_size: ENTRY as u32,
            entries: self.capacity(),
            doorbell: self.shared().doorbell.as_ref().map_or(0, Doorbell::address),
            most_at_once: 0,
            ..OwnRing::default()
        })
    }
}
