//! Work queues: what posted requests need, and the receive queue that a queue pair has or shares.

#[cfg(feature = "raw")]
mod raw;

use std::sync::OnceLock;

use nix::errno::Errno;

use crate::ah::AddressHandle;
use crate::driver::queues::Receives;
use crate::error::{Error, Result};
use crate::mr::{MemoryRegion, Segment};

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
        match slots.get(slot as usize) {
            // Most often the request before needed the same, or nothing.
            Some(held) if held.is_enough(segments, address) => {}
            _ => Self::hold_others(slots, slot, segments, address),
        }
    }

    #[inline]
    fn is_enough(&self, segments: &[Segment<'_>], address: Option<&AddressHandle>) -> bool {
        let same = match (segments, &self.region) {
            ([], None) => true,
            ([segment], Some(region)) => region.is_same(segment.region()),
            _ => false,
        };
        same && self.more.is_empty() && address.is_none() && self.address.is_none()
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

#[cold]
pub(crate) fn full(op: &'static str) -> Error {
    Error::refused(op, Errno::ENOMEM, "the queue has no room for all of these; nothing was posted")
}

#[cold]
pub(crate) fn oversized(op: &'static str) -> Error {
    let hint = "more segments or inline bytes than the queue was made for; nothing was posted";
    Error::refused(op, Errno::EINVAL, hint)
}

/// A receive queue: the ring, and what the request in each of its slots needs. That is let go when its slot is
/// used again.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    ring: Receives,
    held: Vec<Held>,
    /// Most segments of a request.
    segments: u32,
}

impl ReceiveQueue {
    pub(crate) fn new(op: &'static str, mut ring: Receives, segments: u32) -> Result<Self> {
        let held = Error::room(op, ring.slots())?;
        Ok(Self { ring, held, segments })
    }

    /// How many requests the ring can hold.
    pub(crate) fn capacity(&mut self) -> u32 {
        self.ring.capacity()
    }

    /// How many requests can be posted now.
    pub(crate) fn free(&mut self) -> u32 {
        self.ring.free()
    }

    /// Posts all requests or none.
    pub(crate) fn post(&mut self, op: &'static str, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        if requests.len() > self.free() as usize {
            return Err(full(op));
        }
        if requests.iter().any(|request| request.segments.len() > self.segments as usize) {
            return Err(oversized(op));
        }
        for request in requests {
            let slot = self.ring.next_slot();
            Held::hold(&mut self.held, slot, request.segments, None);
            if !self.ring.put(request.wr_id, request.segments.iter().map(Segment::sge)) {
                self.ring.rewind();
                return Err(oversized(op));
            }
        }
        self.ring.publish();
        Ok(())
    }

    /// Posts room for nothing; false when there is no slot for it.
    pub(crate) fn post_empty(&mut self, wr_id: u64) -> bool {
        let slot = self.ring.next_slot();
        if self.free() == 0 || !self.ring.put(wr_id, std::iter::empty()) {
            return false;
        }
        Held::hold(&mut self.held, slot, &[], None);
        self.ring.publish();
        true
    }

    /// Goes on in another ring, to whose first slots the device has moved what it had not taken yet.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there is no memory: nothing has changed here.
    pub(crate) fn move_to(&mut self, op: &'static str, ring: Receives) -> Result<()> {
        let mut new = Self::new(op, ring, self.segments)?;
        let moved = new.ring.next_slot() as usize;
        // From the oldest request to the newest; the newest ones have moved.
        self.held.resize_with(self.ring.slots(), Held::default);
        new.held.resize_with(new.ring.slots(), Held::default);
        let next = (self.ring.next_slot() as usize).min(self.held.len());
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
        self.ring.enter(state);
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
