//! The memory that posted requests need until they have completed.

use std::sync::OnceLock;

use crate::kernel::error::{Error, Result};
use crate::verbs::ah::AddressHandle;
use crate::verbs::mr::{MemoryRegion, Segment};

/// What the requests in the slots of a queue need, each until its slot is used again.
///
/// The requests of most queues use only one region. It is then held once. From the first request on that needs something else, each
/// slot holds its own: at first all slots then hold that one region, which is released when the last of them, the slot of the
/// newest request, is used again. If slots are used in their order, requests without memory change nothing, until there are as many
/// of them in succession as there are slots.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The one region of all requests so far; `None` if there was none yet.
    all: Option<MemoryRegion>,
    /// For datagrams, the one address handle.
    all_to: Option<AddressHandle>,
    /// What the request in each slot needs, once a request has needed something else. Empty before that.
    slots: Vec<Slot>,
    /// The length of `slots` when it is used. The memory for it is allocated from the start.
    count: usize,
    /// Number of requests without memory since the last request with the one region. It may be too low after [`Held::let_go`].
    idle: usize,
    key: Key,
    /// The address handle that all slots of a queue hold; [`NOTHING`] also if each slot holds its own.
    to: Key,
    /// The values of `key` and `to` at the last call of [`Held::slots`].
    before: [Key; 2],
}

/// The region that all slots of a queue hold, or one of these values.
type Key = usize;

/// Nothing is held.
const NOTHING: Key = 0;
/// Each slot holds its own.
const OWN: Key = 1;

/// The region of all these segments, if they are of one.
#[inline(always)]
fn one_region<'a>(segments: &'a [Segment<'_>]) -> Option<&'a MemoryRegion> {
    let (first, rest) = segments.split_first()?;
    let region = first.region();
    rest.iter().all(|segment| segment.region().key() == region.key()).then_some(region)
}

/// What the request in one slot needs.
#[derive(Debug, Default)]
struct Slot {
    /// The one region of most requests. If it is set, there are no others.
    region: Option<MemoryRegion>,
    /// For a datagram.
    address: Option<AddressHandle>,
    others: Box<[MemoryRegion]>,
}

impl Slot {
    fn new(mut regions: impl ExactSizeIterator<Item = MemoryRegion>, address: Option<AddressHandle>) -> Self {
        match regions.len() {
            0 | 1 => Self { region: regions.next(), address, others: Box::default() },
            _ => Self { region: None, address, others: regions.collect() },
        }
    }

    fn is_empty(&self) -> bool {
        self.region.is_none() && self.address.is_none() && self.others.is_empty()
    }

    /// Whether it holds the regions of these segments, of which there are several, and this address handle.
    fn is_of(&self, segments: &[Segment<'_>], address: Option<&AddressHandle>) -> bool {
        self.others.len() == segments.len()
            && self.others.iter().zip(segments).all(|(held, segment)| held.key() == segment.region().key())
            && self.address.as_ref().map(AddressHandle::key) == address.map(AddressHandle::key)
    }

    /// Takes out all regions.
    fn into_regions(self) -> impl Iterator<Item = MemoryRegion> {
        self.region.into_iter().chain(self.others)
    }
}

impl Held {
    /// For a queue with this number of slots, which are empty.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) if there is not enough memory.
    pub(crate) fn new(op: &'static str, slots: usize) -> Result<Self> {
        Ok(Self { slots: Error::room(op, slots)?, count: slots, ..Self::default() })
    }

    /// Borrows it while requests are put into the slots.
    #[inline(always)]
    pub(crate) fn slots(&mut self) -> Slots<'_> {
        self.before = [self.key, self.to];
        Slots { key: self.key, held: self }
    }

    /// Borrows it for requests that are never taken back after they are put into the slots.
    #[inline]
    pub(crate) fn slots_that_stay(&mut self) -> Slots<'_> {
        Slots { key: self.key, held: self }
    }

    /// Whether this is the region that is held once for all slots.
    #[inline]
    pub(crate) fn is_of_all(&self, region: &MemoryRegion) -> bool {
        self.key == region.key()
    }

    /// Releases what the slot's last request needed, and holds the one region of a request that was posted.
    #[inline(always)]
    pub(crate) fn hold_one(&mut self, slot: u32, region: &MemoryRegion) {
        self.slots_that_stay().hold_one(slot, region);
    }

    /// Releases everything.
    pub(crate) fn let_all_go(&mut self) {
        self.slots.clear();
        (self.all, self.all_to) = (None, None);
        (self.key, self.to) = (NOTHING, NOTHING);
    }

    /// Releases what the newest `count` requests need, from slot `first` on, because they were not posted. `link` returns the slot after
    /// another one if it is not the next of a ring.
    #[cold]
    #[inline(never)]
    pub(crate) fn let_go(&mut self, first: u32, count: usize, link: impl Fn(u32) -> Option<u32>) {
        if self.before == [NOTHING; 2] {
            return self.let_all_go();
        }
        if self.before[0] == NOTHING && self.key != OWN {
            // The requests before these needed no region.
            (self.all, self.key) = (None, NOTHING);
        }
        self.idle = self.idle.saturating_sub(count);
        let (mut slot, last) = (first as usize, self.slots.len().wrapping_sub(1));
        for _ in 0..count {
            // All slots hold the same objects, which earlier requests need.
            let Some(place) = self.slots.get_mut(slot) else { return };
            *place = Slot::default();
            slot = match link(slot as u32) {
                Some(link) => link as usize,
                None if slot == last => 0,
                None => slot + 1,
            };
        }
    }

    /// Releases what the requests in the slots from `first` to before `end` need, continuing at the beginning of the ring. There is
    /// at least one such request, unless `is_none`: if both slots are the same, all slots are meant.
    #[cold]
    #[inline(never)]
    pub(crate) fn let_go_until(&mut self, first: u32, end: u32, is_none: bool) {
        let slots = self.count.max(1);
        let between = (slots + end as usize - first as usize) % slots;
        let count = if is_none {
            0
        } else if between == 0 {
            slots
        } else {
            between
        };
        self.let_go(first, count, |_| None);
    }

    /// Makes each slot hold its own.
    fn own(&mut self) -> &mut [Slot] {
        if self.key != OWN {
            let (all, to) = (self.all.take(), self.all_to.take());
            let slot = || Slot { region: all.clone(), address: to.clone(), others: Box::default() };
            self.slots.resize_with(self.count, slot);
            (self.key, self.to) = (OWN, NOTHING);
        }
        &mut self.slots
    }

    /// Holds this region for the next request of a slot. Returns the new key.
    #[cold]
    #[inline(never)]
    fn hold_another(&mut self, slot: u32, region: &MemoryRegion) -> Key {
        if self.key == NOTHING {
            (self.all, self.key, self.idle) = (Some(region.clone()), region.key(), 0);
            return self.key;
        }
        // From now on, each slot of the queue has an element of its own.
        self.put(slot, Slot { region: Some(region.clone()), ..Slot::default() })
    }

    #[inline(never)]
    fn hold_datagram(&mut self, slot: u32, region: Option<&MemoryRegion>, address: &AddressHandle) -> Key {
        let is_first = self.key == NOTHING && self.to == NOTHING;
        if is_first || self.key == NOTHING && self.to == address.key() {
            self.all_to.get_or_insert_with(|| address.clone());
            (self.all, self.to, self.idle) = (region.cloned(), address.key(), 0);
            self.key = region.map_or(NOTHING, MemoryRegion::key);
            return self.key;
        }
        let place = &mut self.own()[slot as usize];
        // An object that is already held is not cloned again.
        if place.region.as_ref().map(MemoryRegion::key) != region.map(MemoryRegion::key) {
            place.region = region.cloned();
        }
        if place.address.as_ref().is_none_or(|held| held.key() != address.key()) {
            place.address = Some(address.clone());
        }
        place.others = Box::default();
        OWN
    }

    /// Holds the regions of several segments for the next request of a slot: usually one region, or those that the previous request in
    /// the slot had too. Returns the new key.
    // `key` is passed as a value: if a reference to `Slots` were passed, it would stay in memory for every request. The function is marked as
    // cold, so that it costs nothing where all requests have one segment.
    #[cold]
    #[inline(never)]
    fn hold_several(
        &mut self,
        key: Key,
        slot: u32,
        segments: &[Segment<'_>],
        address: Option<&AddressHandle>,
    ) -> Key {
        let mut slots = Slots { key, held: self };
        match (one_region(segments), address) {
            (Some(region), None) => slots.hold_in_order(slot, region),
            (Some(region), Some(address)) => slots.hold_datagram(slot, Some(region), address),
            (None, address) => {
                let place = slots.held.slots.get(slot as usize);
                if !place.is_some_and(|place| place.is_of(segments, address)) {
                    slots.key = slots.held.hold_others(slot, segments, address);
                }
            }
        }
        slots.key
    }

    #[cold]
    #[inline(never)]
    fn hold_others(&mut self, slot: u32, segments: &[Segment<'_>], address: Option<&AddressHandle>) -> Key {
        let regions = segments.iter().map(|segment| segment.region().clone());
        self.put(slot, Slot::new(regions, address.cloned()))
    }

    #[inline(never)]
    fn put(&mut self, slot: u32, new: Slot) -> Key {
        self.own()[slot as usize] = new;
        OWN
    }

    /// Continues in a ring to whose first `moved` slots the newest requests were moved. `next` is the slot that the next request would
    /// have used.
    pub(crate) fn move_to(&mut self, mut new: Self, next: usize, moved: usize) {
        if self.key != OWN {
            (new.all, new.key) = (self.all.take(), self.key);
            (new.all_to, new.to) = (self.all_to.take(), self.to);
            *self = new;
            return;
        }
        let mut old = std::mem::take(&mut self.slots);
        // From the oldest request to the newest.
        let next = next.min(old.len());
        old.rotate_left(next);
        let stayed = old.len().saturating_sub(moved);
        let slots = new.own();
        let rest = slots.len().saturating_sub(moved).max(1);
        for (i, held) in old.into_iter().enumerate() {
            // A request that the device has taken may still be receiving data, so one of the other slots holds its memory.
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
// `key` is a copy of the field of `held`, so that the compiler keeps it in a register.
#[derive(Debug)]
pub(crate) struct Slots<'a> {
    key: Key,
    held: &'a mut Held,
}

impl<'a> Slots<'a> {
    /// Releases what the slot's last request needed, and holds what its next one needs.
    #[inline(always)]
    pub(crate) fn hold(&mut self, slot: u32, segments: &[Segment<'_>], address: Option<&AddressHandle>) {
        // Usually the request before needed the same, or nothing.
        match (segments, address) {
            ([segment], None) => self.hold_one(slot, segment.region()),
            ([], None) => {
                if self.key != NOTHING && !self.held.slots.get(slot as usize).is_some_and(Slot::is_empty) {
                    self.key = self.held.put(slot, Slot::default());
                }
            }
            ([segment], Some(address)) => self.hold_datagram(slot, Some(segment.region()), address),
            ([], Some(address)) => self.hold_datagram(slot, None, address),
            (segments, None) if segments.iter().all(|segment| segment.region().key() == self.key) => {
                self.held.idle = 0;
            }
            ([first, ..], Some(address))
                if segments.iter().all(|segment| segment.region().key() == self.key) =>
            {
                self.hold_datagram(slot, Some(first.region()), address);
            }
            _ => self.key = self.held.hold_several(self.key, slot, segments, address),
        }
    }

    /// Releases what the slot's last request needed, and holds what a datagram needs. Usually all datagrams have the same region and the
    /// same address, or the previous request in the slot had them.
    #[inline(always)]
    fn hold_datagram(&mut self, slot: u32, region: Option<&MemoryRegion>, address: &AddressHandle) {
        let held = &mut *self.held;
        if address.key() == held.to {
            match region {
                Some(region) if region.key() == self.key => {
                    held.idle = 0;
                    return;
                }
                // The region is released when every slot was used again, as if each slot had held it.
                None if held.idle < held.count || self.key == NOTHING => {
                    held.idle += 1;
                    return;
                }
                _ => {}
            }
        }
        let is_held = |held: &Slot| {
            let is_same = held.address.as_ref().is_some_and(|held| held.key() == address.key());
            is_same
                && held.region.as_ref().map(MemoryRegion::key) == region.map(MemoryRegion::key)
                && held.others.is_empty()
        };
        if !self.held.slots.get(slot as usize).is_some_and(is_held) {
            self.key = self.held.hold_datagram(slot, region, address);
        }
    }

    /// Releases what the slot's last request needed, and holds the one region that the next one needs.
    #[inline(always)]
    pub(crate) fn hold_one(&mut self, slot: u32, region: &MemoryRegion) {
        let key = region.key();
        if key != self.key {
            let held = self.held.slots.get(slot as usize).and_then(|held| held.region.as_ref());
            if held.is_none_or(|held| held.key() != key) {
                self.key = self.held.hold_another(slot, region);
            }
        }
    }

    /// Releases what the slot's last request needed, and holds the one region that the next one needs, in a queue whose slots are used in
    /// their order.
    #[inline(always)]
    pub(crate) fn hold_in_order(&mut self, slot: u32, region: &MemoryRegion) {
        self.held.idle = 0;
        self.hold_one(slot, region);
    }

    /// Releases what the slot's last request needed, in a queue whose slots are used in their order, because the next one needs nothing.
    #[inline(always)]
    pub(crate) fn pass_in_order(&mut self, slot: u32) {
        match self.key {
            NOTHING => {}
            OWN => self.hold(slot, &[], None),
            _ => {
                self.held.idle += 1;
                if self.held.idle >= self.held.count {
                    self.held.let_all_go();
                    self.key = NOTHING;
                }
            }
        }
    }

    /// Releases what the slot's last request needed, and holds these regions, which the next one needs.
    pub(crate) fn hold_regions(&mut self, slot: u32, regions: Vec<MemoryRegion>) {
        self.key = self.held.put(slot, Slot::new(regions.into_iter(), None));
    }

    /// The value that was borrowed.
    pub(crate) fn into_held(self) -> &'a mut Held {
        self.held
    }
}

/// What the requests of a queue need when its handle was dropped but its kernel object still exists. It is stored after that object, so
/// that it is released after it.
#[derive(Debug, Default)]
pub(crate) struct Kept(OnceLock<[Held; 2]>);

impl Kept {
    /// Keeps it for one queue, or for both queues of a queue pair.
    pub(crate) fn keep(&self, held: [Held; 2]) {
        // A handle is dropped only once.
        let _ = self.0.set(held);
    }
}

#[cfg(all(test, feature = "soft"))]
mod tests;
