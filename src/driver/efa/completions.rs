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
use uverbs_abi::efa::io::{CDESC_PHASE, CQ_DB_ARM, CQ_DB_CONSUMER_INDEX, RECV_QUEUE, SEND_QUEUE};
use uverbs_abi::efa::{CREATE_CQ_RESP_DB_OFF, CREATE_CQ_WITH_COMPLETION_CHANNEL, CreateCq, CreateCqResp};
use zerocopy::{FromZeros, IntoBytes};

use super::doorbell::Doorbell;
use super::entry::{ENTRY, Entry, First, Told};
use super::track::Track;
use crate::driver::Kernel;
#[cfg(feature = "raw")]
use crate::driver::bound::OwnRing;
use crate::driver::completion::{Extended, Place};
use crate::driver::ring::units::{Item, SmallUnits, Units};
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
#[derive(Clone, Debug)]
struct Known {
    track: Arc<Track>,
    /// By this number completions name it.
    number: u16,
    /// Which of [`SENDS`] and [`RECEIVES`] complete here.
    here: u8,
}

/// Bits of [`CDESC_Q_TYPE`], of which an entry has one.
const SENDS: u8 = SEND_QUEUE << 1;
const RECEIVES: u8 = RECV_QUEUE << 1;

impl Known {
    fn number(&self) -> u16 {
        self.number
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
        let here = if sends { SENDS } else { 0 } | if receives { RECEIVES } else { 0 };
        let new = Known { track: track.clone(), number: track.number as u16, here };
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

    #[inline(always)]
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
    /// How many entries were taken of which the device was not told.
    behind: u32,
    poller: Poller,
}

/// One ring.
#[derive(Debug)]
struct Ring {
    units: SmallUnits,
    /// Counter of the next entry.
    position: u32,
}

impl Ring {
    /// The next entry and its first word, if the device has written it.
    #[inline(always)]
    fn filled(&self, entries: u32) -> Option<(First, Item<'_, Entry>)> {
        let (units, at) = (self.units.reading(), self.position as usize);
        let first = First(units.load(at.wrapping_mul(ENTRY / 4)));
        let ours = u8::from(self.position & entries == 0) * CDESC_PHASE;
        (first.flags() & CDESC_PHASE == ours).then(|| (first, units.get(at)))
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
        let mut list: Vec<Ring> = match Error::room(op, rings.into()) {
            Ok(list) => list,
            Err(error) => return Some(Err(error)),
        };
        for ring in 0..usize::from(rings) {
            list.push(Ring { units: Units::small(&memory, ring * bytes, bytes)?, position: 0 });
        }
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
            behind: 0,
            poller: Poller { known: Vec::new(), changes: 0, last: 0, shared: Arc::new(shared) },
        }))
    }

    pub(crate) fn shared(&self) -> &Arc<CompletionSide> {
        &self.poller.shared
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.entries
    }

    /// Whether the device has written no completion.
    #[cfg(feature = "raw")]
    pub(crate) fn is_empty(&self) -> bool {
        self.rings.iter().all(|ring| ring.filled(self.entries).is_none())
    }

    /// Fills `places` with completions, as many as there are and fit; tells the device at once, and says how many. Before each of them
    /// `may_take` is asked: if not, it stays, and so do those behind it.
    // Apart, so that the ways of other drivers are no longer for it.
    #[inline(never)]
    pub(crate) fn poll<T: Place>(&mut self, places: &mut [T], may_take: impl Fn() -> bool) -> usize {
        self.short_poll(places, may_take).unwrap_or(0)
    }

    /// The same; none if there are some of which none may be taken.
    #[inline(always)]
    pub(crate) fn short_poll<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        let mut count = 0;
        for place in &mut *places {
            match self.take(&may_take, |told| place.put(&Extended { wc: told.wc(), ..Extended::default() })) {
                Look::Taken => count += 1,
                Look::Nothing => break,
                // What was taken by earlier calls is another process's, to which the doorbell is left.
                Look::Refused if count == 0 => return None,
                Look::Refused => break,
            }
        }
        if self.behind > 0 && (count > 0 || may_take()) {
            self.release();
        }
        Some(count)
    }

    /// Takes the next completion, with what the device wrote; `may_take` is asked before. Of one that is nobody's nothing is said.
    #[inline(always)]
    fn take(&mut self, may_take: impl Fn() -> bool, mut put: impl FnMut(&Told)) -> Look {
        // Rings are looked at in turn, each once.
        let mut left = self.rings.len();
        loop {
            let Self { rings, entries, next, behind, poller, .. } = self;
            let count = rings.len();
            let Some(ring) = rings.get_mut(*next) else { return Look::Nothing };
            if let Some((first, entry)) = ring.filled(*entries) {
                if !may_take() {
                    return Look::Refused;
                }
                *behind += 1;
                let is_taken = poller
                    .find(first.flags(), entry.field::<4, u16>())
                    .is_some_and(|known| Told::hand(first, entry, &known.track, &mut put));
                // Not before: until then the entry is in the ring.
                ring.position = ring.position.wrapping_add(1);
                if is_taken {
                    return Look::Taken;
                }
                continue;
            }
            *next = if *next + 1 < count { *next + 1 } else { 0 };
            left -= 1;
            if left == 0 {
                return Look::Nothing;
            }
        }
    }

    /// The ring behind the next.
    #[inline(always)]
    fn behind(&self) -> usize {
        if self.next + 1 < self.rings.len() { self.next + 1 } else { 0 }
    }

    /// The same, put into its place; without one, whether there is none. What was nobody's is given back then: a poll that finds nothing has no
    /// end.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn next_told(&mut self, may_take: impl Fn() -> bool, place: &mut Told) -> Result<(), bool> {
        match self.take(&may_take, |told| *place = *told) {
            Look::Taken => Ok(()),
            Look::Nothing => {
                // What was taken before may be another process's, to which the doorbell is left.
                if self.behind > 0 && may_take() {
                    self.release_nothing();
                }
                Err(true)
            }
            Look::Refused => Err(false),
        }
    }

    /// Where the rings lie, one behind the other, for whoever reads them in place of this queue.
    #[cfg(feature = "raw")]
    pub(crate) fn ring(&self) -> OwnRing {
        OwnRing {
            address: self.memory.address(),
            entry_size: ENTRY as u32,
            entries: self.entries,
            doorbell: self.shared().doorbell.as_ref().map_or(0, Doorbell::address),
            most_at_once: 0,
        }
    }

    /// The same where no poll took anything of it.
    #[cfg(feature = "raw")]
    #[cold]
    #[inline(never)]
    fn release_nothing(&mut self) {
        self.release();
    }

    /// Tells the device of all that was taken. The next ring is another one, so that a full one holds back none.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if self.behind == 0 {
            return;
        }
        self.next = self.behind();
        let shared = &*self.poller.shared;
        let taken = shared.taken.load(RELAXED).wrapping_add(self.behind);
        shared.taken.store(taken, RELAXED);
        self.behind = 0;
        if shared.is_armed.load(RELAXED) {
            // The first of them is the one for which the queue was armed.
            shared.is_armed.store(false, RELAXED);
            shared.events.fetch_add(1, RELAXED);
        }
        shared.ring(0);
    }
}

/// The queue pairs that complete in a queue, as who polls it knows them.
#[derive(Debug)]
struct Poller {
    /// A copy of what `shared` has.
    known: Vec<Known>,
    changes: u32,
    /// Where the queue pair was whose completion was taken last.
    last: usize,
    shared: Arc<CompletionSide>,
}

impl Poller {
    /// The queue pair of the entry, if it is still there and completes here what the entry is of.
    #[inline(always)]
    fn find(&mut self, flags: u8, number: u16) -> Option<&Known> {
        // Each is behind all that was changed before its request was posted.
        let changes = self.shared.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.learn(changes);
        }
        let number = u16::from_le(number);
        if self.known.get(self.last).is_none_or(|known| known.number != number) {
            self.last = self.search(number)?;
        }
        let known = self.known.get(self.last)?;
        (known.here & flags != 0).then_some(known)
    }

    #[cold]
    #[inline(never)]
    fn search(&self, number: u16) -> Option<usize> {
        self.known.binary_search_by_key(&number, Known::number).ok()
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, changes: u32) {
        self.known.clone_from(&self.shared.known.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes = changes;
    }
}

/// What came of a look at what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Taken,
    Nothing,
    /// What there is may not be taken.
    Refused,
}
