//! Takes what the device has written out of the rings, and finds whose it is.

use super::*;
use crate::driver::ring::units::Reading;

/// What completions that are taken become.
pub(super) trait Sink {
    /// Whether one more is wanted.
    fn has_room(&self) -> bool;

    /// Takes over an entry of this queue pair; false if that waits for no such completion.
    fn put(&mut self, first: First, entry: Item<'_, Entry>, track: &Track) -> bool;
}

/// How a look at the rings ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As many were taken as were wanted.
    Full,
    /// There are no more.
    Empty,
    /// What there is may not be taken.
    Refused,
    /// One was taken of which nobody waits for it.
    Nobodys,
}

/// One ring.
#[derive(Debug)]
pub(super) struct Ring {
    units: SmallUnits,
    /// Index of the next entry.
    next: u32,
    /// What the first word of an entry has of [`PHASE`] in this round.
    phase: u32,
}

/// The bit of an entry's first word that tells the round.
const PHASE: u32 = First::word(0, CDESC_PHASE);

impl Ring {
    pub(super) fn new(units: SmallUnits) -> Self {
        Self { units, next: 0, phase: PHASE }
    }

    /// The first word of the entry with this index, if the device has written it.
    #[inline(always)]
    fn filled(reading: Reading<'_, { Self::LINE }>, next: u32, phase: u32) -> Option<First> {
        let word = reading.load(next as usize * (ENTRY / 4));
        ((word ^ phase) & PHASE == 0).then_some(First(word))
    }

    const LINE: usize = ENTRY;

    /// Whether the device has written no entry.
    #[cfg(feature = "raw")]
    pub(super) fn is_empty(&self) -> bool {
        Self::filled(self.units.reading(), self.next, self.phase).is_none()
    }
}

impl Completions {
    /// Takes completions as long as there is room for them; before each of them `may_take` is asked. Of those that are nobody's nothing is
    /// said.
    #[inline(always)]
    pub(super) fn take(&mut self, may_take: impl Fn() -> bool, sink: &mut impl Sink) -> End {
        let Self { rings, entries, next, behind, poller, .. } = self;
        let (count, last) = (rings.len(), entries.wrapping_sub(1));
        // Rings are looked at in turn, each once behind the last completion.
        let mut left = count;
        while let Some(ring) = rings.get_mut(*next) {
            let reading = ring.units.reading();
            loop {
                if !sink.has_room() {
                    return End::Full;
                }
                let at = ring.next;
                let Some(first) = Ring::filled(reading, at, ring.phase) else { break };
                if !may_take() {
                    return End::Refused;
                }
                *behind += 1;
                let entry = reading.get(at as usize);
                if let Some(track) = poller.find(first.flags(), entry.field::<4, u16>())
                    && sink.put(first, entry, track)
                {
                    left = count;
                }
                // Not before: until then the entry is in the ring.
                ring.next = at.wrapping_add(1) & last;
                if ring.next == 0 {
                    ring.phase ^= PHASE;
                }
            }
            *next = if *next + 1 < count { *next + 1 } else { 0 };
            left -= 1;
            if left == 0 {
                break;
            }
        }
        End::Empty
    }
}

impl Completions {
    /// As [`Completions::take`], of one. It ends at one that is nobody's.
    #[inline(always)]
    pub(super) fn take_one(&mut self, may_take: impl Fn() -> bool, sink: &mut impl Sink) -> End {
        let Self { rings, entries, next, behind, poller, .. } = self;
        let (mut left, last) = (rings.len(), entries.wrapping_sub(1));
        let (mut turn, count) = (*next, left);
        // Each ring is looked at once.
        let (ring, first) = loop {
            if left == 0 {
                return End::Empty;
            }
            let Some(ring) = rings.get_mut(turn) else { return End::Empty };
            if let Some(first) = Ring::filled(ring.units.reading(), ring.next, ring.phase) {
                break (ring, first);
            }
            turn = if turn + 1 < count { turn + 1 } else { 0 };
            left -= 1;
        };
        if !may_take() {
            return End::Refused;
        }
        *next = turn;
        *behind += 1;
        let at = ring.next;
        let entry = ring.units.reading().get(at as usize);
        let track = poller.find(first.flags(), entry.field::<4, u16>());
        let is_put = match track {
            Some(track) => sink.put(first, entry, track),
            None => false,
        };
        // Not before: until then the entry is in the ring.
        ring.next = at.wrapping_add(1) & last;
        if ring.next == 0 {
            ring.phase ^= PHASE;
        }
        if is_put { End::Full } else { End::Nobodys }
    }
}

/// The queue pairs that complete in a queue, as who polls it knows them.
#[derive(Debug)]
pub(super) struct Poller {
    /// A copy of what `shared` has.
    known: Vec<Known>,
    changes: u32,
    /// The queue pair whose completion was taken last: where it is, and what is known of it but for its requests.
    last: usize,
    number: u16,
    here: u8,
    shared: Arc<CompletionSide>,
}

impl Poller {
    pub(super) fn new(shared: Arc<CompletionSide>) -> Self {
        Self { known: Vec::new(), changes: 0, last: 0, number: 0, here: 0, shared }
    }

    pub(super) fn shared(&self) -> &Arc<CompletionSide> {
        &self.shared
    }

    /// The queue pair of the entry, if it is still there and completes here what the entry is of.
    #[inline(always)]
    fn find(&mut self, flags: u8, number: u16) -> Option<&Track> {
        // Each is behind all that was changed before its request was posted.
        let changes = self.shared.changes.load(Ordering::Acquire);
        let number = u16::from_le(number);
        if changes != self.changes {
            self.learn(changes, number);
        } else if number != self.number {
            self.search(number);
        }
        if self.here & flags == 0 {
            return None;
        }
        self.known.get(self.last).map(|known| &*known.track)
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, changes: u32, number: u16) {
        self.known.clone_from(&self.shared.known.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes = changes;
        self.search(number);
    }

    #[cold]
    #[inline(never)]
    fn search(&mut self, number: u16) {
        self.number = number;
        (self.last, self.here) = match self.known.binary_search_by_key(&number, Known::number) {
            Ok(at) => (at, self.known[at].here),
            // Nothing of it completes here.
            Err(_) => (0, 0),
        };
    }
}
