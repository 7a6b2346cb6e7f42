//! Takes entries from the rings, and finds their queue pairs.

use super::sink::Sink;
use super::*;
#[cfg(feature = "raw")]
use crate::driver::efa::entry::{Plain, Told};
use crate::driver::ring::units::Reading;

/// Why a search of the rings has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As many completions were taken as there is room for.
    Full,
    /// There are no more completions.
    Empty,
    /// The next completion may not be taken.
    Refused,
    /// An entry was taken for which there is no request.
    Nobodys,
}

/// A ring of a completion queue.
#[derive(Debug)]
pub(super) struct Ring {
    units: SmallUnits,
    round: Round,
}

/// The position in a ring.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Index of the next entry.
    next: u32,
    /// The value of [`PHASE`] in the first word of an entry that was written in this round.
    phase: u32,
}

/// The phase bit of an entry's first word.
const PHASE: u32 = First::word(0, CDESC_PHASE);

impl Ring {
    pub(super) fn new(units: SmallUnits) -> Self {
        Self { units, round: Round { next: 0, phase: PHASE } }
    }

    /// Whether the device has written no entry.
    #[cfg(feature = "raw")]
    pub(super) fn is_empty(&self) -> bool {
        self.round.filled(self.units.reading()).is_none()
    }
}

impl Round {
    /// The first word of the next entry, if the device has written it.
    #[inline(always)]
    fn filled(self, reading: Reading<'_, ENTRY>) -> Option<First> {
        let word = reading.load(self.next as usize * (ENTRY / 4));
        ((word ^ self.phase) & PHASE == 0).then_some(First(word))
    }

    /// Continues after the entry at `next`. `last` is the index of the last entry of the ring.
    #[inline(always)]
    fn pass(&mut self, next: u32, last: u32) {
        self.next = next.wrapping_add(1) & last;
        if self.next == 0 {
            self.phase ^= PHASE;
        }
    }
}

impl Completions {
    /// Takes completions as long as `sink` has room for them. `may_take` is called before each of them. Entries without a request are
    /// skipped.
    #[inline(always)]
    pub(super) fn take(&mut self, may_take: impl Fn() -> bool, sink: &mut impl Sink) -> End {
        let Self { rings, last, next, taken, poller, .. } = self;
        let (count, last) = (rings.len(), *last);
        // The rings are read in turn, and each is read once more after the last completion.
        let mut left = count;
        while let Some(Ring { units, round }) = rings.get_mut(*next) {
            let reading = units.reading();
            loop {
                if !sink.has_room() {
                    return End::Full;
                }
                // A copy: fields that are used after the entry was read would otherwise be loaded from memory again.
                let now = *round;
                let Some(first) = now.filled(reading) else { break };
                if !may_take() {
                    return End::Refused;
                }
                let entry = reading.get(now.next as usize);
                *taken = taken.wrapping_add(1);
                round.pass(now.next, last);
                if let Some(track) = poller.find(first, entry.field::<4, u16>())
                    && sink.put(first, entry, track)
                {
                    left = count;
                }
            }
            *next = after(*next, count);
            left -= 1;
            if left == 0 {
                break;
            }
        }
        End::Empty
    }
}

/// The number of completions, a power of two, that are taken from one ring before the next ring is read. The completions of a queue pair
/// usually arrive in one ring, and a full ring must not delay the others for long.
pub(super) const IN_A_ROW: u32 = 64;

/// The ring after the one at `turn`.
#[inline(always)]
pub(super) fn after(turn: usize, count: usize) -> usize {
    if turn + 1 < count { turn + 1 } else { 0 }
}

/// The ring after the one at `turn`, for a case that is rare.
// A separate function, so that the compiler makes a branch, which costs less than calculating both results.
#[cold]
#[inline(never)]
fn behind(turn: usize, count: usize) -> usize {
    after(turn, count)
}

impl Completions {
    /// Takes one completion. `may_take` is called first. An entry without a request also ends the search.
    #[inline(always)]
    pub(super) fn take_one(&mut self, may_take: impl Fn() -> bool, sink: &mut impl Sink) -> End {
        let Self { rings, last, next, taken, poller, .. } = self;
        let (mut turn, mut left, count) = (*next, rings.len(), rings.len());
        // Each ring is read once.
        let (round, now, reading, first) = loop {
            let Some(Ring { units, round }) = rings.get_mut(turn) else { return End::Empty };
            let (now, reading) = (*round, units.reading());
            if let Some(first) = now.filled(reading) {
                break (round, now, reading, first);
            }
            left -= 1;
            if left == 0 {
                return End::Empty;
            }
            turn = after(turn, count);
        };
        if !may_take() {
            return End::Refused;
        }
        let entry = reading.get(now.next as usize);
        *taken = taken.wrapping_add(1);
        round.pass(now.next, *last);
        *next = if taken.is_multiple_of(IN_A_ROW) { behind(turn, count) } else { turn };
        let Some(track) = poller.find(first, entry.field::<4, u16>()) else { return End::Nobodys };
        if sink.put(first, entry, track) { End::Full } else { End::Nobodys }
    }
}

impl Completions {
    /// Takes the next completion in the usual case: a plain completion of a queue pair with recent completions, in the ring that is read
    /// next. Returns its `wr_id`. Other completions are not taken, but an entry without a request is skipped, with an error.
    // It calls no function, has no loop, and finishes with the ring before it finds the request, so that few registers are saved on the
    // stack.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(super) fn take_same(&mut self, may_take: impl Fn() -> bool, place: &mut Told) -> Result<u64, End> {
        let Self { rings, last, next, taken, poller, .. } = self;
        let Some(Ring { units, round }) = rings.get_mut(*next) else { return Err(End::Refused) };
        let (now, reading) = (*round, units.reading());
        let Some(first) = now.filled(reading) else { return Err(End::Empty) };
        if !may_take() {
            return Err(End::Refused);
        }
        let entry = reading.get(now.next as usize);
        let track = poller.same(first, entry.field::<4, u16>()).ok_or(End::Refused)?;
        let mut pass = || {
            *taken = taken.wrapping_add(1);
            round.pass(now.next, *last);
        };
        match first.plain() {
            Plain::Receive => {
                pass();
                place.fill_received(first, entry, track).ok_or(End::Nobodys)
            }
            Plain::Send => {
                pass();
                place.fill_sent(first, entry, track).ok_or(End::Nobodys)
            }
            Plain::No => Err(End::Refused),
        }
    }

    /// Continues with the next of the other rings that has an entry. Returns false if there is none.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(super) fn turn_to_filled(&mut self) -> bool {
        for _ in 1..self.rings.len() {
            self.turn();
            if self.rings.get(self.next).is_some_and(|ring| !ring.is_empty()) {
                return true;
            }
        }
        false
    }
}

/// Number of queue pairs whose completions are found at once, a power of two.
const RECENT: usize = 16;

/// The queue pairs that complete in a queue: the poller's copy of the list.
#[derive(Debug)]
pub(super) struct Poller {
    /// The queue pairs of recent completions, by the lowest bits of their numbers. For a number that no queue pair has, there is only the
    /// number.
    recent: [Known; RECENT],
    /// The list in `shared`, when there were this many changes.
    known: Vec<Known>,
    changes: u32,
    shared: Arc<CompletionSide>,
}

impl Poller {
    pub(super) fn new(shared: Arc<CompletionSide>) -> Self {
        Self { recent: Default::default(), known: Vec::new(), changes: 0, shared }
    }

    pub(super) fn shared(&self) -> &Arc<CompletionSide> {
        &self.shared
    }

    /// The queue pair of an entry, if it still exists and completes requests of this kind here.
    #[inline(always)]
    fn find(&mut self, first: First, number: u16) -> Option<&Track> {
        // Loaded for each entry: all changes that were made before its request was posted must be seen.
        let changes = self.shared.changes.load(Ordering::Acquire);
        let number = u16::from_le(number);
        if changes != self.changes {
            self.learn(changes);
        }
        if self.recent(number).number != number {
            self.search(number);
        }
        self.recent(number).track(first)
    }

    /// The queue pair of an entry, if it is one of those of recent completions and the list has not changed.
    #[cfg(feature = "raw")]
    #[inline(always)]
    fn same(&self, first: First, number: u16) -> Option<&Track> {
        let changes = self.shared.changes.load(Ordering::Acquire);
        let known = self.recent(u16::from_le(number));
        let is_same = changes == self.changes && u16::from_le(number) == known.number;
        if is_same { known.track(first) } else { None }
    }

    #[inline(always)]
    fn recent(&self, number: u16) -> &Known {
        &self.recent[usize::from(number) % RECENT]
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, changes: u32) {
        self.known.clone_from(&self.shared.known.lock().unwrap_or_else(PoisonError::into_inner));
        (self.changes, self.recent) = (changes, Default::default());
        // The number of an empty place may be that of a queue pair.
        for known in &self.known {
            self.recent[usize::from(known.number) % RECENT] = known.clone();
        }
    }

    /// Makes the queue pair with this number a recent one.
    #[cold]
    #[inline(never)]
    fn search(&mut self, number: u16) {
        let at = self.known.binary_search_by_key(&number, |known| known.number);
        // If none has this number, no queue pair with it completes here.
        let known = at.ok().and_then(|at| self.known.get(at)).cloned();
        self.recent[usize::from(number) % RECENT] = known.unwrap_or(Known { number, ..Known::default() });
    }
}
