//! What posted requests need until they are completed.

use std::sync::OnceLock;

use crate::kernel::error::{Error, Result};
use crate::verbs::ah::AddressHandle;
use crate::verbs::mr::{MemoryRegion, Segment};

/// What the requests in the slots of a queue need, each until its slot is used again.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// None until the first request, so that making and destroying a queue does not go through them.
    slots: Vec<Slot>,
    /// How many there are then, for which there is room already.
    count: usize,
}

/// What the request in one slot needs.
#[derive(Debug, Default)]
struct Slot {
    /// The one region of most requests. If there is one, there is nothing else.
    region: Option<MemoryRegion>,
    others: Option<Box<Others>>,
}

/// What a request needs that is not one region.
#[derive(Debug, Default)]
struct Others {
    regions: Vec<MemoryRegion>,
    _address: Option<AddressHandle>,
}

impl Slot {
    fn new(mut regions: impl ExactSizeIterator<Item = MemoryRegion>, address: Option<AddressHandle>) -> Self {
        match (regions.len(), &address) {
            (0, None) => Self::default(),
            (1, None) => Self { region: regions.next(), others: None },
            _ => Self {
                region: None,
                others: Some(Box::new(Others { regions: regions.collect(), _address: address })),
            },
        }
    }

    /// All regions, taken out.
    fn into_regions(self) -> impl Iterator<Item = MemoryRegion> {
        self.region.into_iter().chain(self.others.into_iter().flat_map(|others| others.regions))
    }
}

impl Held {
    /// Of a queue with so many slots, in which there is nothing yet.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there is no memory.
    pub(crate) fn new(op: &'static str, slots: usize) -> Result<Self> {
        Ok(Self { slots: Error::room(op, slots)?, count: slots })
    }

    /// Its slots.
    #[inline(always)]
    pub(crate) fn slots(&mut self) -> Slots<'_> {
        if self.slots.is_empty() {
            self.fill();
        }
        Slots(&mut self.slots)
    }

    #[cold]
    #[inline(never)]
    fn fill(&mut self) {
        self.slots.resize_with(self.count, Slot::default);
    }

    /// Lets go of everything.
    pub(crate) fn let_all_go(&mut self) {
        self.slots.clear();
    }

    /// Goes on in a ring to whose first `moved` slots the newest requests have moved; `next` is where the next one would have gone.
    pub(crate) fn move_to(&mut self, mut new: Self, next: usize, moved: usize) {
        let mut old = std::mem::take(&mut self.slots);
        // From the oldest request to the newest.
        let next = next.min(old.len());
        old.rotate_left(next);
        let stayed = old.len().saturating_sub(moved);
        let slots = new.slots().0;
        let rest = slots.len().saturating_sub(moved).max(1);
        for (i, held) in old.into_iter().enumerate() {
            // A request that was taken may still be filled: its memory stays for as long as there are slots.
            let slot = if i < stayed { moved + i % rest } else { i - stayed };
            if let Some(place) = slots.get_mut(slot) {
                let both: Vec<_> = std::mem::take(place).into_regions().chain(held.into_regions()).collect();
                *place = Slot::new(both.into_iter(), None);
            }
        }
        *self = new;
    }
}

/// The slots of a queue while requests are put into them.
// Not a `Held` by reference: where the slots are would be looked up for each request.
#[derive(Debug)]
pub(crate) struct Slots<'a>(&'a mut [Slot]);

impl Slots<'_> {
    /// Lets go of what the slot's last request needed, and takes hold of what its next one does.
    #[inline(always)]
    pub(crate) fn hold(&mut self, slot: u32, segments: &[Segment<'_>], address: Option<&AddressHandle>) {
        let place = self.0.get(slot as usize);
        // Most often the request before needed the same, or nothing.
        match (segments, address) {
            ([segment], None) => {
                if !place
                    .and_then(|held| held.region.as_ref())
                    .is_some_and(|held| held.is_same(segment.region()))
                {
                    hold_one(self.0, slot, segment.region());
                }
            }
            ([], None) => {
                if !place.is_some_and(|held| held.region.is_none() && held.others.is_none()) {
                    put(self.0, slot, Slot::default());
                }
            }
            _ => hold_others(self.0, slot, segments, address),
        }
    }

    /// The same of a request that needs these regions.
    pub(crate) fn hold_regions(&mut self, slot: u32, regions: Vec<MemoryRegion>) {
        put(self.0, slot, Slot::new(regions.into_iter(), None));
    }

    /// Lets go of what the `count` requests from slot `first` on need.
    pub(crate) fn let_go_of(&mut self, first: u32, count: usize) {
        self.let_go_linked(first, count, |_| None);
    }

    /// The same, where `link` gives the slot behind another if
    /// it is not the next of a ring.
    #[cold]
    #[inline(never)]
    pub(crate) fn let_go_linked(&mut self, first: u32, count: usize, link: impl Fn(u32) -> Option<u32>) {
        let mut slot = first;
        for _ in 0..count {
            self.0[slot as usize] = Slot::default();
            slot = link(slot).unwrap_or((slot + 1) % self.0.len() as u32);
        }
    }

    /// Lets go of what the requests in the slots from `first` on and before `end` need, round the end of the ring: they were not
    /// posted. There is one at least, unless `is_none`.
    #[cold]
    #[inline(never)]
    pub(crate) fn let_go(&mut self, first: u32, end: u32, is_none: bool) {
        let (first, end, slots) = (first as usize, end as usize, self.0.len());
        let end = if is_none || first < end { end } else { end + slots };
        for slot in first..end {
            self.0[slot % slots] = Slot::default();
        }
    }
}

#[cold]
#[inline(never)]
fn hold_one(slots: &mut [Slot], slot: u32, region: &MemoryRegion) {
    // There is one for each slot of the queue.
    let held = &mut slots[slot as usize];
    if held.others.is_some() {
        held.others = None;
    }
    held.region = Some(region.clone());
}

#[cold]
#[inline(never)]
fn hold_others(slots: &mut [Slot], slot: u32, segments: &[Segment<'_>], address: Option<&AddressHandle>) {
    let regions = segments.iter().map(|segment| segment.region().clone());
    put(slots, slot, Slot::new(regions, address.cloned()));
}

#[inline(never)]
fn put(slots: &mut [Slot], slot: u32, new: Slot) {
    slots[slot as usize] = new;
}

/// What the requests of a queue need when its handle is gone, but its kernel object is not. It stands behind
/// that object, so that it is let go after it.
#[derive(Debug, Default)]
pub(crate) struct Kept(OnceLock<[Held; 2]>);

impl Kept {
    /// Keeps that of one queue, or of both of a queue pair.
    pub(crate) fn keep(&self, held: [Held; 2]) {
        // A handle is dropped once.
        let _ = self.0.set(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_posted_is_let_go_round_the_end_of_the_ring() {
        let mut held = Held::new("test", 4).unwrap();
        for (first, end, is_none, left) in [
            (1, 3, false, [true, false, false, true]),
            (3, 1, false, [false, true, true, false]),
            (2, 2, false, [false; 4]),
            (2, 2, true, [true; 4]),
        ] {
            held.slots().0.fill_with(|| Slot { region: None, others: Some(Box::default()) });
            held.slots().let_go(first, end, is_none);
            let holds: Vec<_> = held.slots.iter().map(|slot| slot.others.is_some()).collect();
            assert_eq!(holds, left, "{first} to {end}");
        }
        held.slots().hold(0, &[], None);
        assert!(held.slots[0].others.is_none() && held.slots[1].others.is_some());
        held.let_all_go();
        assert!(
            held.slots.is_empty()
                && held.slots().0.iter().all(|slot| slot.others.is_none())
                && held.slots.len() == 4
        );
    }
}
