//! Work queues: what posted requests need, and the receive queue that a queue pair has or shares.

use std::borrow::Borrow;
use std::sync::OnceLock;

use nix::errno::Errno;

use crate::ah::AddressHandle;
use crate::driver::queues::{LowerReceive, Receives, WithReceives};
use crate::driver::request::{Refused, Sge};
use crate::error::{Error, Result};
use crate::mr::{MemoryRegion, Segment};
use crate::process::{Origin, elsewhere};

/// Room for a message or frame to be received: it fills `segments`, one behind the other.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_recv_wr")]
pub struct ReceiveRequest<'a> {
    wr_id: u64,
    segments: &'a [Segment<'a>],
}

impl<'a> ReceiveRequest<'a> {
    /// Room in `segments`; `wr_id` comes back in the completion.
    pub fn new(wr_id: u64, segments: &'a [Segment<'a>]) -> Self {
        Self { wr_id, segments }
    }
}

/// What the request in a slot of a queue needs until it is completed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    region: Option<MemoryRegion>,
    /// Those of further segments.
    more: Vec<MemoryRegion>,
    address: Option<AddressHandle>,
}

impl Held {
    /// Lets go of what the slot's last request needed, and takes hold of what its next one does.
    #[inline]
    pub(crate) fn hold(
        slots: &mut Vec<Self>,
        slot: u32,
        segments: &[Segment<'_>],
        address: Option<&AddressHandle>,
    ) {
        match slots.get_mut(slot as usize) {
            // Most often the request before needed the same, or nothing,
            Some(held) if held.is_enough(segments, address) => {}
            // or both need one region at most.
            Some(held) if segments.len() <= 1 && held.has_one_at_most() && address.is_none() => {
                held.region = segments.first().map(|segment| segment.region().clone());
            }
            _ => Self::hold_others(slots, slot, segments, address),
        }
    }

    #[inline]
    fn has_one_at_most(&self) -> bool {
        self.more.is_empty() && self.address.is_none()
    }

    #[inline]
    fn is_enough(&self, segments: &[Segment<'_>], address: Option<&AddressHandle>) -> bool {
        let same = match (segments, &self.region) {
            ([], None) => true,
            ([segment], Some(region)) => region.is_same(segment.region()),
            _ => false,
        };
        same && self.has_one_at_most() && address.is_none()
    }

    #[inline(never)]
    fn hold_others(
        slots: &mut Vec<Self>,
        slot: u32,
        segments: &[Segment<'_>],
        address: Option<&AddressHandle>,
    ) {
        let mut regions = segments.iter().map(|segment| segment.region().clone());
        let (region, more) = (regions.next(), regions.collect());
        Self::put(slots, slot, Self { region, more, address: address.cloned() });
    }

    /// Lets go of what the requests in the slots from `first` to `last`, if there is one, need, round the end of the ring: they were
    /// not posted.
    #[cold]
    pub(crate) fn let_go(slots: &mut [Self], first: u32, last: Option<u32>) {
        let Some(last) = last else { return };
        let (first, last) = (first as usize, last as usize);
        for (slot, held) in slots.iter_mut().enumerate() {
            let is_between =
                if first <= last { (first..=last).contains(&slot) } else { slot >= first || slot <= last };
            if is_between {
                *held = Self::default();
            }
        }
    }

    /// Lets go of what the slot's last request needed, and puts this in its place. `slots` is as long as the highest
    /// slot that was ever used.
    pub(crate) fn put(slots: &mut Vec<Self>, slot: u32, held: Self) {
        let slot = slot as usize;
        if slot >= slots.len() {
            slots.resize_with(slot + 1, Self::default);
        }
        slots[slot] = held;
    }
}

impl FromIterator<MemoryRegion> for Held {
    fn from_iter<I: IntoIterator<Item = MemoryRegion>>(regions: I) -> Self {
        Self { more: regions.into_iter().collect(), ..Self::default() }
    }
}

/// What the requests of a queue need when its handle is gone, but its kernel object is not. It stands behind
/// that object, so that it is let go after it.
#[derive(Debug, Default)]
pub(crate) struct Kept(OnceLock<Vec<Held>>);

impl Kept {
    pub(crate) fn keep(&self, held: Vec<Held>) {
        // A handle is dropped once.
        let _ = self.0.set(held);
    }
}

/// The error of a request that is not put into a queue.
#[cold]
#[inline(never)]
pub(crate) fn refused(op: &'static str, why: Refused) -> Error {
    let (errno, hint) = match why {
        Refused::Full => (Errno::ENOMEM, "the queue has no room for all of these; nothing was posted"),
        Refused::TooLarge => {
            (Errno::EINVAL, "more segments or inline bytes than the queue was made for; nothing was posted")
        }
        Refused::NotReady => (Errno::EINVAL, NOT_READY),
        Refused::Elsewhere => return elsewhere(op),
        Refused::NotBegun => (Errno::EINVAL, "a part of a request that was not begun"),
        Refused::Lacks => (Errno::EOPNOTSUPP, "the device has no such requests; nothing was posted"),
    };
    Error::refused(op, errno, hint)
}

/// Why a request is refused for the state of its queue pair.
pub(crate) const NOT_READY: &str = "the queue pair is not ready to send";

/// A receive queue, by address and key: what both the safe interface and bindings post to. Whoever posts keeps the memory until it
/// is filled.
#[derive(Debug)]
pub struct ReceiveQueue {
    receives: Receives,
    /// Asked before each batch: the slots of a shared ring may be the parent's requests.
    origin: Origin,
    /// Most pieces of a request.
    pieces: u32,
}

impl ReceiveQueue {
    pub(crate) fn new(origin: Origin, receives: Receives, pieces: u32) -> Self {
        Self { receives, origin, pieces }
    }

    /// How many requests it can hold.
    pub fn capacity(&self) -> u32 {
        self.receives.capacity()
    }

    /// Most pieces of memory of a request.
    #[inline]
    pub fn max_pieces(&self) -> u32 {
        self.pieces
    }

    /// Posts one request.
    ///
    /// # Errors
    /// As [`ReceiveBatch::put`] and [`ReceiveQueue::post`].
    #[cfg(feature = "raw")]
    pub fn post_one(&mut self, wr_id: u64, pieces: &[Sge]) -> Result<(), Refused> {
        self.post(One { wr_id, pieces })?
    }

    /// Posts a batch, which `how` fills.
    ///
    /// # Errors
    /// [`Refused::Elsewhere`], before anything is asked.
    #[inline(always)]
    pub fn post<F: FillReceives>(&mut self, how: F) -> Result<F::Answer, Refused> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere);
        }
        let pieces = self.pieces;
        let halfway = Halfway(self);
        let answer = halfway.0.receives.post(Filling { pieces, how });
        std::mem::forget(halfway);
        Ok(answer)
    }

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        self.receives.enter(state);
    }
}

/// A batch that is being filled. One that stops halfway, by a panic, is forgotten: it must not go out with the next.
struct Halfway<'a>(&'a mut ReceiveQueue);

impl Drop for Halfway<'_> {
    fn drop(&mut self) {
        self.0.receives.rewind();
    }
}

/// How a batch of receives is made, for whichever driver.
pub trait FillReceives {
    /// What comes of it.
    type Answer;

    /// Fills slots.
    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Self::Answer;

    /// Whether the device is to see what was filled; else that is forgotten.
    fn is_kept(answer: &Self::Answer) -> bool;
}

/// A batch of requests on its way into the slots of a receive queue.
#[derive(Debug)]
pub struct ReceiveBatch<L> {
    lower: L,
    pieces: u32,
}

impl<L: LowerReceive> ReceiveBatch<L> {
    /// The slot that is filled next.
    #[inline(always)]
    pub fn next_slot(&self) -> u32 {
        self.lower.next_slot()
    }

    /// Fills the next slot.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::TooLarge`]; nothing is filled then.
    #[inline(always)]
    pub fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        if pieces.len() > self.pieces as usize {
            return Err(Refused::TooLarge);
        }
        self.lower.put(wr_id, pieces)
    }
}

struct Filling<F> {
    pieces: u32,
    how: F,
}

impl<F: FillReceives> WithReceives for Filling<F> {
    type Answer = F::Answer;

    #[inline(always)]
    fn with<L: LowerReceive>(self, lower: L) -> F::Answer {
        self.how.fill(&mut ReceiveBatch { lower, pieces: self.pieces })
    }

    #[inline(always)]
    fn is_kept(answer: &F::Answer) -> bool {
        F::is_kept(answer)
    }
}

/// A batch of one receive.
#[cfg(feature = "raw")]
struct One<'a> {
    wr_id: u64,
    pieces: &'a [Sge],
}

#[cfg(feature = "raw")]
impl FillReceives for One<'_> {
    type Answer = Result<(), Refused>;

    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Self::Answer {
        batch.put(self.wr_id, self.pieces.iter())
    }

    fn is_kept(answer: &Self::Answer) -> bool {
        answer.is_ok()
    }
}

/// Receives with what each of them needs.
struct Holding<'a> {
    requests: &'a [ReceiveRequest<'a>],
    held: &'a mut Vec<Held>,
}

impl FillReceives for Holding<'_> {
    type Answer = Result<(), Refused>;

    #[inline(always)]
    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Self::Answer {
        let (first, mut last) = (batch.next_slot(), None);
        for ReceiveRequest { wr_id, segments } in self.requests {
            let slot = batch.next_slot();
            if let Err(why) = batch.put(*wr_id, segments.iter().map(Segment::sge)) {
                Held::let_go(self.held, first, last);
                return Err(why);
            }
            // Not before: of a full ring the next slot is that of a request which is not completed.
            Held::hold(self.held, slot, segments, None);
            last = Some(slot);
        }
        Ok(())
    }

    /// All or none.
    #[inline(always)]
    fn is_kept(answer: &Self::Answer) -> bool {
        answer.is_ok()
    }
}

/// A receive queue, and what the request in each of its slots needs. That is let go when its slot is used again.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) queue: ReceiveQueue,
    held: Vec<Held>,
}

impl Receiving {
    pub(crate) fn new(op: &'static str, queue: ReceiveQueue) -> Result<Self> {
        let held = Error::room(op, queue.receives.slots())?;
        Ok(Self { queue, held })
    }

    /// Posts all requests or none.
    #[inline]
    pub(crate) fn post(&mut self, op: &'static str, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        let Self { queue, held } = self;
        let posted = queue.post(Holding { requests, held }).and_then(|posted| posted);
        posted.map_err(|why| refused(op, why))
    }

    /// Posts room for nothing; false when there is no slot for it.
    pub(crate) fn post_empty(&mut self, wr_id: u64) -> bool {
        self.post("", &[ReceiveRequest::new(wr_id, &[])]).is_ok()
    }

    /// Goes on in another ring, to whose first slots the device has moved what it had not taken yet.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there is no memory: nothing has changed here.
    pub(crate) fn move_to(&mut self, op: &'static str, receives: Receives) -> Result<()> {
        let mut new = Self::new(op, ReceiveQueue { receives, ..self.queue })?;
        let moved = new.queue.receives.next_slot() as usize;
        // From the oldest request to the newest; the newest ones have moved.
        self.held.resize_with(self.queue.receives.slots(), Held::default);
        new.held.resize_with(new.queue.receives.slots(), Held::default);
        let next = (self.queue.receives.next_slot() as usize).min(self.held.len());
        self.held.rotate_left(next);
        let stayed = self.held.len().saturating_sub(moved);
        let rest = new.held.len().saturating_sub(moved).max(1);
        for (i, held) in std::mem::take(&mut self.held).into_iter().enumerate() {
            // A request that was taken may still be filled: its memory stays for as long as there are slots.
            let slot = if i < stayed { moved + i % rest } else { i - stayed };
            if let Some(place) = new.held.get_mut(slot) {
                place.more.extend(held.region.into_iter().chain(held.more));
            }
        }
        *self = new;
        Ok(())
    }

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        self.queue.enter(state);
    }

    /// Everything that was posted is known to have ended.
    pub(crate) fn let_go(&mut self) {
        self.held.fill(Held::default());
    }

    /// What the posted requests need, taken out.
    pub(crate) fn take_held(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.held)
    }
}
