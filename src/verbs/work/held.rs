//! What posted requests need until they are completed.

use std::sync::OnceLock;

use crate::kernel::error::{Error, Result};
use crate::verbs::ah::AddressHandle;
use crate::verbs::mr::{MemoryRegion, Segment};

/// What the requests in the slots of a queue need, each until its slot is used again.
///
/// Most queues only ever have requests of one region. That is held once, and slots are gone through from the first request on that
/// needs something else: then each slot holds the one region, and it goes when the last of them is used again, which is that of its newest
/// request. Requests of no memory among them change nothing where slots are used in their order, until there were as many of
/// them one behind the other as there are slots.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The one region of all requests so far, or not yet of any.
    all: Option<MemoryRegion>,
    /// Of requests that need more than that; none before.
    slots: Vec<Slot>,
    /// How many there are then, for which there is room already.
    count: usize,
    /// Requests of no memory since the last one of the one region, at least.
    idle: usize,
    key: Key,
    /// The key when requests were last put.
    before: Key,
}

/// Which region all slots of a queue hold, or one of these.
type Key = usize;

/// Nothing is held.
const NOTHING: Key = 0;
/// Each slot holds what it holds.
const OWN: Key = 1;

/// What the request in one slot needs.
#[derive(Debug, Default)]
struct Slot {
    /// The one region of most requests. If there is one, there are no others.
    region: Option<MemoryRegion>,
    /// Of a datagram.
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

    /// All regions, taken out.
    fn into_regions(self) -> impl Iterator<Item = MemoryRegion> {
        self.region.into_iter().chain(self.others)
    }
}

impl Held {
    /// Of a queue with so many slots, in which there is nothing yet.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when there is no memory.
    pub(crate) fn new(op: &'static str, slots: usize) -> Result<Self> {
        Ok(Self { slots: Error::room(op, slots)?, count: slots, ..Self::default() })
    }

    /// Its slots, for requests to be put.
    #[inline(always)]
    pub(crate) fn slots(&mut self) -> Slots<'_> {
        self.before = self.key;
        Slots { key: self.key, held: self }
    }

    /// Lets go of everything.
    pub(crate) fn let_all_go(&mut self) {
        self.slots.clear();
        (self.all, self.key) = (None, NOTHING);
    }

    /// Lets go of what the newest `count` requests need, from slot `first` on: they were not posted. `link` gives the slot behind
    /// another if it is not the next of a ring.
    #[cold]
    #[inline(never)]
    pub(crate) fn let_go(&mut self, first: u32, count: usize, link: impl Fn(u32) -> Option<u32>) {
        if self.before == NOTHING {
            return self.let_all_go();
        }
        self.idle = self.idle.saturating_sub(count);
        let (mut slot, last) = (first as usize, self.slots.len().wrapping_sub(1));
        for _ in 0..count {
            // Earlier requests need what all need.
            let Some(place) = self.slots.get_mut(slot) else { return };
            *place = Slot::default();
            slot = match link(slot as u32) {
                Some(link) => link as usize,
                None if slot == last => 0,
                None => slot + 1,
            };
        }
    }

    /// The same of what the requests in the slots from `first` on and before `end` need, round the end of the ring. There is one
    /// at least, unless `is_none`.
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

    /// What each slot holds by itself.
    fn own(&mut self) -> &mut [Slot] {
        if self.key != OWN {
            let all = self.all.take();
            self.slots.resize_with(self.count, || Slot { region: all.clone(), ..Slot::default() });
            self.key = OWN;
        }
        &mut self.slots
    }

    /// A slot's next request needs this: gives the key from then on.
    #[cold]
    #[inline(never)]
    fn hold_one(&mut self, slot: u32, region: &MemoryRegion) -> Key {
        if self.key == NOTHING {
            (self.all, self.key) = (Some(region.clone()), region.key());
            return self.key;
        }
        // There is one for each slot of the queue.
        self.put(slot, Slot { region: Some(region.clone()), ..Slot::default() })
    }

    #[inline(never)]
    fn hold_datagram(&mut self, slot: u32, region: Option<&MemoryRegion>, address: &AddressHandle) -> Key {
        let place = &mut self.own()[slot as usize];
        // What is the same stays.
        if place.region.as_ref().map(MemoryRegion::key) != region.map(MemoryRegion::key) {
            place.region = region.cloned();
        }
        if place.address.as_ref().is_none_or(|held| held.key() != address.key()) {
            place.address = Some(address.clone());
        }
        place.others = Box::default();
        OWN
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

    /// Goes on in a ring to whose first `moved` slots the newest requests have moved; `next` is where the next one would have gone.
    pub(crate) fn move_to(&mut self, mut new: Self, next: usize, moved: usize) {
        if self.key != OWN {
            (new.all, new.key) = (self.all.take(), self.key);
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
// What all hold is at hand: a compiler keeps it in a register.
#[derive(Debug)]
pub(crate) struct Slots<'a> {
    key: Key,
    held: &'a mut Held,
}

impl<'a> Slots<'a> {
    /// Lets go of what the slot's last request needed, and takes hold of what its next one does.
    #[inline(always)]
    pub(crate) fn hold(&mut self, slot: u32, segments: &[Segment<'_>], address: Option<&AddressHandle>) {
        // Most often the request before needed the same, or nothing.
        match (segments, address) {
            ([segment], None) => self.hold_one(slot, segment.region()),
            ([], None) => {
                if self.key != NOTHING && !self.held.slots.get(slot as usize).is_some_and(Slot::is_empty) {
                    self.key = self.held.put(slot, Slot::default());
                }
            }
            ([segment], Some(address)) => self.hold_datagram(slot, Some(segment.region()), address),
            ([], Some(address)) => self.hold_datagram(slot, None, address),
            _ => self.key = self.held.hold_others(slot, segments, address),
        }
    }

    /// The same of a datagram. Most often the one whose slot it takes was of the same region, and for the same address.
    #[inline(always)]
    fn hold_datagram(&mut self, slot: u32, region: Option<&MemoryRegion>, address: &AddressHandle) {
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

    /// The same of a request that needs one region.
    #[inline(always)]
    pub(crate) fn hold_one(&mut self, slot: u32, region: &MemoryRegion) {
        let key = region.key();
        if key != self.key {
            let held = self.held.slots.get(slot as usize).and_then(|held| held.region.as_ref());
            if held.is_none_or(|held| held.key() != key) {
                self.key = self.held.hold_one(slot, region);
            }
        }
    }

    /// The same, in a queue whose slots are used in their order, of a request that needs one region.
    #[inline(always)]
    pub(crate) fn hold_in_order(&mut self, slot: u32, region: &MemoryRegion) {
        self.held.idle = 0;
        self.hold_one(slot, region);
    }

    /// The same of a request that needs nothing.
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

    /// The same of a request that needs these regions.
    pub(crate) fn hold_regions(&mut self, slot: u32, regions: Vec<MemoryRegion>) {
        self.key = self.held.put(slot, Slot::new(regions.into_iter(), None));
    }

    /// What they are of.
    pub(crate) fn into_held(self) -> &'a mut Held {
        self.held
    }
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

#[cfg(all(test, feature = "soft"))]
mod tests {
    use super::*;
    use crate::device::SoftDevice;
    use crate::verbs::ah::Route;
    use uverbs_abi::types::AccessFlags;

    fn regions() -> [MemoryRegion; 2] {
        let pd = SoftDevice::default().open().unwrap().alloc_pd().unwrap();
        [(); 2].map(|()| pd.register(64, AccessFlags::LOCAL_WRITE).unwrap())
    }

    #[test]
    fn what_was_not_posted_is_let_go_round_the_end_of_the_ring() {
        let [one, _] = regions();
        let slot = |region: &MemoryRegion| Slot { region: Some(region.clone()), ..Slot::default() };
        let mut held = Held::new("test", 4).unwrap();
        for (first, end, is_none, left) in [
            (1, 3, false, [true, false, false, true]),
            (3, 1, false, [false, true, true, false]),
            (2, 2, false, [false; 4]),
            (2, 2, true, [true; 4]),
        ] {
            held.own().fill_with(|| slot(&one));
            held.slots().into_held().let_go_until(first, end, is_none);
            let holds: Vec<_> = held.slots.iter().map(|slot| !slot.is_empty()).collect();
            assert_eq!(holds, left, "{first} to {end}");
        }
        held.slots().hold(0, &[], None);
        assert!(held.slots[0].is_empty() && !held.slots[1].is_empty());
        held.let_all_go();
        assert!(held.slots.is_empty() && held.own().iter().all(Slot::is_empty));
        assert_eq!(held.slots.len(), 4);
    }

    #[test]
    fn the_one_region_of_all_requests_goes_when_the_slot_of_its_newest_is_used_again() {
        let [one, two] = regions();
        let owners = |region: &MemoryRegion| region.owners();
        let mut held = Held::new("test", 4).unwrap();
        for slot in [0, 1, 2] {
            held.slots().hold(slot, &[one.segment(..).unwrap()], None);
        }
        assert_eq!((owners(&one), held.slots.len()), (2, 0), "held once");
        for (slot, left) in [(3, 4), (0, 3), (1, 2), (2, 1)] {
            held.slots().hold(slot, &[two.segment(..).unwrap()], None);
            assert_eq!(owners(&one), left, "{slot}");
        }
        assert_eq!(owners(&two), 5);
        held.slots().hold(3, &[], None);
        held.slots().hold(0, &[one.segment(..).unwrap(), two.segment(..).unwrap()], None);
        assert_eq!((owners(&one), owners(&two)), (2, 4));
        held.slots().hold(0, &[one.segment(..).unwrap()], None);
        assert_eq!((owners(&one), owners(&two)), (2, 3));
        held.let_all_go();
        assert_eq!((owners(&one), owners(&two)), (1, 1));

        // Of requests that were not posted nothing is left, unless an earlier one needs it.
        let put = |held: &mut Held, regions: &[&MemoryRegion]| {
            let mut slots = held.slots();
            for (slot, region) in (1..).zip(regions) {
                slots.hold(slot, &[region.segment(..).unwrap()], None);
            }
        };
        for regions in [&[&one][..], &[&one, &two]] {
            put(&mut held, regions);
            held.let_go(1, regions.len(), |_| None);
            assert_eq!((owners(&one), owners(&two)), (1, 1));
        }
        held.slots().hold(0, &[one.segment(..).unwrap()], None);
        put(&mut held, &[&one, &one]);
        held.let_go(1, 2, |_| None);
        assert_eq!((owners(&one), owners(&two)), (2, 1));
        put(&mut held, &[&one, &two]);
        held.let_go(1, 2, |_| None);
        assert_eq!((owners(&one), owners(&two)), (3, 1));
        // Along the links of a list.
        put(&mut held, &[&two, &two, &two]);
        held.let_go(1, 2, |slot| Some(slot + 2));
        assert_eq!(owners(&two), 2);
    }

    #[test]
    fn a_datagram_holds_its_region_and_its_address_handle_until_its_slot_is_used_by_another() {
        let pd = SoftDevice::default().open().unwrap().alloc_pd().unwrap();
        let [one, two] = [(); 2].map(|()| pd.register(64, AccessFlags::LOCAL_WRITE).unwrap());
        let route = Route::new(1, 0, [0; 16]);
        let [to, other] = [(); 2].map(|()| pd.create_ah(&route).unwrap());
        let mut held = Held::new("test", 2).unwrap();
        let mut put = |regions: &[&MemoryRegion], address| {
            let segments: Vec<_> = regions.iter().map(|region| region.segment(..).unwrap()).collect();
            held.slots().hold(1, &segments, address);
            (one.owners(), two.owners(), to.owners(), other.owners())
        };
        for _ in 0..2 {
            assert_eq!(put(&[&one], Some(&to)), (2, 1, 2, 1), "the same changes nothing");
        }
        assert_eq!(put(&[&two], Some(&to)), (1, 2, 2, 1));
        assert_eq!(put(&[&two], Some(&other)), (1, 2, 1, 2));
        assert_eq!(put(&[&one, &two], Some(&other)), (2, 2, 1, 2));
        // Of bytes in the request.
        assert_eq!(put(&[], Some(&other)), (1, 1, 1, 2));
        assert_eq!(put(&[], Some(&to)), (1, 1, 2, 1));
        assert_eq!(put(&[], None), (1, 1, 1, 1));
        assert_eq!(put(&[&one], Some(&to)), (2, 1, 2, 1));
        held.let_all_go();
        assert_eq!((one.owners(), to.owners()), (1, 1));
    }

    /// What was not posted does not count.
    #[test]
    fn the_one_region_goes_when_so_many_requests_of_no_memory_were_posted_as_there_are_slots() {
        let [one, two] = regions();
        let mut held = Held::new("test", 4).unwrap();
        let pass =
            |held: &mut Held, slots: &[u32]| slots.iter().for_each(|slot| held.slots().pass_in_order(*slot));
        held.slots().hold_in_order(0, &one);
        pass(&mut held, &[1, 2]);
        held.slots().hold_in_order(3, &one);
        pass(&mut held, &[0, 1, 2]);
        for _ in 0..9 {
            pass(&mut held, &[3]);
            held.let_go(3, 1, |_| None);
            held.slots().hold_in_order(3, &one);
            pass(&mut held, &[0, 1, 2]);
        }
        for _ in 0..9 {
            let mut slots = held.slots();
            slots.hold_in_order(3, &one);
            slots.pass_in_order(0);
            held.let_go(3, 2, |_| None);
        }
        assert_eq!(one.owners(), 2);
        pass(&mut held, &[3, 0, 1]);
        assert_eq!(one.owners(), 2);
        pass(&mut held, &[2]);
        assert_eq!((one.owners(), held.slots.len()), (1, 0));
        pass(&mut held, &[3]);
        // Each slot by itself.
        held.slots().hold_in_order(0, &one);
        held.slots().hold_in_order(1, &two);
        for (slot, left) in [(2, (3, 2)), (3, (2, 2)), (0, (1, 2)), (1, (1, 1))] {
            pass(&mut held, &[slot]);
            assert_eq!((one.owners(), two.owners()), left, "{slot}");
        }
    }

    #[test]
    fn what_is_held_moves_to_another_ring() {
        let [one, two] = regions();
        let mut held = Held::new("test", 2).unwrap();
        held.slots().hold(0, &[one.segment(..).unwrap()], None);
        held.move_to(Held::new("test", 4).unwrap(), 1, 1);
        assert_eq!((one.owners(), held.count), (2, 4));
        held.slots().hold(3, &[two.segment(..).unwrap()], None);
        held.move_to(Held::new("test", 2).unwrap(), 0, 1);
        assert_eq!((one.owners(), two.owners()), (4, 2));
        held.let_all_go();
        assert_eq!((one.owners(), two.owners()), (1, 1));
    }
}
