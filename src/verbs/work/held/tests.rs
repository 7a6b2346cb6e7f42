//! What a queue holds, and when it releases it.

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

    // Nothing is kept of requests that were not posted, unless an earlier one needs it.
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
    // Follows the links of a list.
    put(&mut held, &[&two, &two, &two]);
    held.let_go(1, 2, |slot| Some(slot + 2));
    assert_eq!(owners(&two), 2);
}

#[test]
fn a_datagram_of_another_region_or_address_holds_them_until_its_slot_is_used_by_another() {
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
    // From now on each slot holds its own objects. The other slot holds what all of them held.
    assert_eq!(put(&[&two], Some(&to)), (2, 2, 3, 1));
    assert_eq!(put(&[&two], Some(&other)), (2, 2, 2, 2));
    assert_eq!(put(&[&one, &two], Some(&other)), (3, 2, 2, 2));
    // For bytes that are in the request itself.
    assert_eq!(put(&[], Some(&other)), (2, 1, 2, 2));
    assert_eq!(put(&[], Some(&to)), (2, 1, 3, 1));
    assert_eq!(put(&[], None), (2, 1, 2, 1));
    assert_eq!(put(&[&one], Some(&to)), (3, 1, 3, 1));
    held.let_all_go();
    assert_eq!((one.owners(), to.owners()), (1, 1));
}

#[test]
fn datagrams_of_one_region_for_one_address_hold_both_once_and_bytes_let_the_region_go_slot_by_slot() {
    let pd = SoftDevice::default().open().unwrap().alloc_pd().unwrap();
    let one = pd.register(64, AccessFlags::LOCAL_WRITE).unwrap();
    let to = pd.create_ah(&Route::new(1, 0, [0; 16])).unwrap();
    let owners = || (one.owners(), to.owners());
    let mut held = Held::new("test", 4).unwrap();
    let segment = [one.segment(..).unwrap()];
    held.slots().hold(2, &[], Some(&to));
    assert_eq!(owners(), (1, 2));
    held.slots().hold(0, &segment, Some(&to));
    // Not posted: everything is as before.
    held.let_go(0, 1, |_| None);
    assert_eq!(owners(), (1, 2));
    for slot in [3, 1, 0, 2, 1] {
        held.slots().hold(slot, &segment, Some(&to));
        held.slots().hold(slot, &[], Some(&to));
        assert_eq!((owners(), held.slots.len()), ((2, 2), 0), "held once");
    }
    // A request with a region may still be under way, however many others were posted after it.
    for _ in 0..3 {
        held.slots().hold(1, &[], Some(&to));
    }
    assert_eq!(owners(), (2, 2));
    for (slot, left) in [(1, 4), (0, 3), (0, 3), (2, 2), (3, 1)] {
        held.slots().hold(slot, &[], Some(&to));
        assert_eq!(owners(), (left, 5), "{slot}");
    }
    held.let_all_go();
    assert_eq!(owners(), (1, 1));
    // The first batch, of which nothing is posted.
    held.slots().hold(0, &segment, Some(&to));
    held.let_go(0, 1, |_| None);
    assert_eq!(owners(), (1, 1));
}

/// The marker of a drain is a request of another kind, in the same queue.
#[test]
fn requests_of_no_memory_before_the_one_region_do_not_let_it_go() {
    let pd = SoftDevice::default().open().unwrap().alloc_pd().unwrap();
    let one = pd.register(64, AccessFlags::LOCAL_WRITE).unwrap();
    let to = pd.create_ah(&Route::new(1, 0, [0; 16])).unwrap();
    let mut held = Held::new("test", 4).unwrap();
    let segment = [one.segment(..).unwrap()];
    for _ in 0..2 {
        (0..9).for_each(|slot| held.slots().hold(slot % 4, &[], Some(&to)));
        held.slots().hold(1, &segment, Some(&to));
        held.slots().pass_in_order(2);
        assert_eq!((one.owners(), held.slots.len()), (2, 0));
        held.let_all_go();
    }
    (0..9).for_each(|slot| held.slots().hold(slot % 4, &[], Some(&to)));
    held.let_all_go();
    held.hold_one(1, &one);
    held.slots().pass_in_order(2);
    assert_eq!(one.owners(), 2);
}

/// Requests that were not posted do not count.
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
    // Each slot separately.
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

#[test]
fn several_segments_of_one_region_are_held_as_one() {
    let [one, two] = regions();
    let segments = |regions: &[&'static str], at: &[MemoryRegion; 2]| {
        regions.iter().map(|name| at[usize::from(*name == "two")].clone()).collect::<Vec<_>>()
    };
    let both = [one.clone(), two.clone()];
    let owners = || [both[0].owners() - 2, both[1].owners() - 2];
    let mut held = Held::new("test", 4).unwrap();
    let mut hold = |slot, names: &[&'static str]| {
        let regions = segments(names, &both);
        let segments: Vec<_> = regions.iter().map(|region| region.segment(..8).unwrap()).collect();
        held.slots().hold(slot, &segments, None);
    };
    for slot in 0..4 {
        hold(slot, &["one", "one", "one"]);
    }
    assert_eq!(owners(), [1, 0], "held once");
    for round in 0..2 {
        for slot in 0..4 {
            hold(slot, &["one", "two"]);
        }
        assert_eq!(owners(), [4, 4], "{round}");
    }
    hold(2, &["two", "one"]);
    hold(3, &["two", "two"]);
    assert_eq!(owners(), [3, 4], "the second of these needs one");

    // Requests without memory release the one region only when every slot was used again.
    held.let_all_go();
    let two_parts = [one.segment(..8).unwrap(), one.segment(8..).unwrap()];
    held.slots().hold(0, &two_parts, None);
    for slot in [1, 2, 3] {
        held.slots().pass_in_order(slot);
    }
    held.slots().hold(0, &two_parts, None);
    for (slot, left) in [(1, 1), (2, 1), (3, 1), (0, 0)] {
        held.slots().pass_in_order(slot);
        assert_eq!(owners()[0], left, "{slot}");
    }
}
