use super::*;

fn ring(entries: u32) -> (Producer<u64>, Consumer<u64>) {
    let (geometry, map) = Geometry::create(entries, 8).unwrap();
    assert_eq!(Geometry::of(&map), Some(geometry));
    (Producer::open(map.clone()).unwrap(), Consumer::open(map).unwrap())
}

/// Fills the next slot with a value. False if there is none.
fn fill(producer: &mut Producer<u64>, value: u64) -> bool {
    let mut batch = producer.batch();
    let is_free = batch.next().map(|mut slot| slot.put::<0, u64>(value)).is_some();
    batch.filled();
    is_free
}

fn put(producer: &mut Producer<u64>, value: u64) {
    assert!(fill(producer, value));
    producer.publish();
}

fn take(consumer: &mut Consumer<u64>) -> Vec<u64> {
    let mut values = [0; 16];
    let count = consumer.take_if(&mut values, || true, |place, slot| *place = slot.get()).unwrap();
    values[..count].to_vec()
}

fn window(consumer: &Consumer<u64>) -> Window<u64> {
    // SAFETY: no test empties slots of a ring in two ways at the same time.
    consumer.window().opened()
}

fn value(window: &Window<u64>) -> u64 {
    window.field::<0, u64>()
}

#[test]
fn slots_are_shown_one_by_one_and_given_back_together() {
    let (mut producer, mut consumer) = ring(7);
    let mut window = window(&consumer);
    for round in 0..20 {
        assert!(!window.begin(|| u32::MAX), "there is nothing yet");
        assert!((value(&window), window.next(u32::MAX), window.end(u32::MAX)) == (0, false, false));
        (1..=5).for_each(|at| put(&mut producer, 10 * round + at));
        assert!(!window.begin(|| 0), "the way is closed");
        assert!(window.begin(|| u32::MAX) && value(&window) == 10 * round + 1);
        assert!(window.next(u32::MAX) && value(&window) == 10 * round + 2);
        // The short path is closed in the middle: nothing moves, and the current slot can still be read.
        assert!(!window.next(0) && !window.end(0));
        assert_eq!((value(&window), producer.free()), (10 * round + 2, 2));
        // Slots that are filled meanwhile are seen by the next look.
        put(&mut producer, 10 * round + 6);
        assert!((3..=5).all(|at| window.next(u32::MAX) && value(&window) == 10 * round + at));
        assert!(!window.next(u32::MAX), "more was not known of");
        window.look();
        assert_eq!(producer.free(), 5, "those that it has passed are given back");
        assert!(window.next(u32::MAX) && value(&window) == 10 * round + 6);
        window.look();
        assert!(!window.next(u32::MAX));
        assert_eq!((value(&window), producer.free()), (10 * round + 6, 6));
        assert!(window.end(u32::MAX) && !window.end(u32::MAX) && !window.next(u32::MAX));
        assert_eq!((value(&window), producer.free()), (0, 7));
        // Slots that were not shown stay, and the consumer continues there.
        (7..=9).for_each(|at| put(&mut producer, 10 * round + at));
        assert!(window.begin(|| u32::MAX) && window.end(u32::MAX));
        assert_eq!(take(&mut consumer), [8, 9].map(|at| 10 * round + at));
    }
}

#[test]
fn who_goes_on_for_longer_than_the_ring_is_long_finds_all_of_it() {
    let (mut producer, consumer) = ring(7);
    let mut window = window(&consumer);
    put(&mut producer, 0);
    assert!(window.begin(|| u32::MAX) && value(&window) == 0);
    for at in 1..100 {
        put(&mut producer, at);
        window.look();
        assert!(window.next(u32::MAX) && value(&window) == at);
    }
    assert!(window.end(u32::MAX) && producer.free() == 7);
}

#[test]
fn an_index_that_lies_shows_slots_of_the_ring_only() {
    let (geometry, map) = Geometry::create(3, 8).unwrap();
    let consumer = Consumer::<u64>::open(map.clone()).unwrap();
    let mut window = window(&consumer);
    for (producer, own) in [(u32::MAX, 0), (2, u32::MAX - 1), (1 << 31, 77), (6, 1)] {
        map.store(PRODUCER_INDEX, producer, Ordering::Relaxed);
        map.store(CONSUMER_INDEX, own, Ordering::Relaxed);
        let mut shown = u32::from(window.begin(|| u32::MAX));
        while window.next(u32::MAX) {
            shown += 1;
        }
        assert!(shown <= geometry.capacity() && value(&window) == 0, "{producer} {own}: {shown}");
        window.look();
        let _ = (window.next(u32::MAX), window.end(u32::MAX));
    }
}

#[test]
fn a_window_without_a_ring_shows_nothing() {
    let mut window = Window::<u64>::default();
    assert!(!window.begin(|| u32::MAX) && !window.next(u32::MAX) && !window.end(u32::MAX));
    window.look();
    assert_eq!((window.next(u32::MAX), value(&window)), (false, 0));
}

#[test]
fn what_goes_in_comes_out_in_order_across_threads() {
    let (mut producer, mut consumer) = ring(7);
    assert_eq!((producer.geometry().capacity(), producer.geometry().slot_size()), (7, 64));
    let count = if cfg!(miri) { 50 } else { 10_000_u64 };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for value in 0..count {
                // In two steps, because a slot borrows the ring.
                while producer.free() == 0 {
                    std::thread::yield_now();
                }
                let mut batch = producer.batch();
                let mut slot = batch.next().unwrap();
                slot.put::<0, u64>(value);
                assert!(slot.put_item(0, &[value; 2]) && slot.put_bytes(0, &value.to_ne_bytes()));
                batch.filled();
                drop(batch);
                producer.publish();
            }
        });
        let mut expected = 0;
        while expected < count {
            if consumer.take_one(|| true, |slot| slot.get() == expected) == Some(1) {
                expected += 1;
            } else {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn a_header_that_lies_is_refused() {
    let (_, map) = Geometry::create(7, 8).unwrap();
    for (mask, log2_size) in [(6, 6), (u32::MAX, 6), (0xffff, 6), (7, 64), (7, 31)] {
        map.store(INDEX_MASK, mask, Ordering::Relaxed);
        map.store(LOG2_ELEM_SIZE, log2_size, Ordering::Relaxed);
        assert_eq!(Geometry::of(&map), None, "{mask} {log2_size}");
        assert!(Producer::<u64>::open(map.clone()).is_none() && Consumer::<u64>::open(map.clone()).is_none());
    }
}

#[test]
fn a_header_that_changes_later_changes_nothing() {
    let (geometry, map) = Geometry::create(3, 8).unwrap();
    let mut producer = Producer::<u64>::open(map.clone()).unwrap();
    for at in [INDEX_MASK, LOG2_ELEM_SIZE, CONSUMER_INDEX] {
        map.store(at, u32::MAX, Ordering::Relaxed);
    }
    let mut filled = 0;
    let mut batch = producer.batch();
    while let Some(mut slot) = batch.next() {
        assert!(slot.put_bytes(0, &[filled; 56]));
        batch.filled();
        filled += 1;
    }
    drop(batch);
    // The index of the other side is masked: it is at the last slot, so two are free.
    assert_eq!((filled, producer.geometry()), (2, geometry));
}

#[test]
fn slots_too_small_for_what_they_hold_are_refused() {
    let (_, map) = Geometry::create(7, 64).unwrap();
    assert!(Producer::<[u64; 8]>::open(map.clone()).is_some());
    assert!(Producer::<[u64; 9]>::open(map.clone()).is_none() && Consumer::<[u64; 9]>::open(map).is_none());
}

/// An iterator that says seven, and has more.
struct Liar<'a>(std::slice::Iter<'a, u64>);

impl<'a> Iterator for Liar<'a> {
    type Item = &'a u64;

    fn next(&mut self) -> Option<&'a u64> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (7, Some(7))
    }
}

impl ExactSizeIterator for Liar<'_> {}

#[test]
fn nothing_is_written_behind_a_slot() {
    let (_, map) = Geometry::create(7, 64).unwrap();
    let mut producer = Producer::<u64>::open(map.clone()).unwrap();
    let mut batch = producer.batch();
    let mut slot = batch.next().unwrap();
    assert!(slot.put_item(6, &1_u64) && !slot.put_item(7, &1_u64) && !slot.put_item(usize::MAX / 32, &1_u64));
    assert_eq!(slot.put_items([3_u64; 7].iter(), |_: &u64| {}), Some(7));
    assert_eq!(slot.put_items([3_u64; 8].iter(), |_: &u64| panic!("nothing is written")), None);
    assert_eq!(slot.put_items(Liar([4_u64; 99].iter()), |_: &u64| {}), Some(7), "no more than it said");
    assert!(slot.put_bytes(0, &[2; 56]) && !slot.put_bytes(0, &[2; 57]) && slot.put_bytes(56, &[]));
    assert!(!slot.put_bytes(1, &[2; 56]) && !slot.put_bytes(57, &[]) && !slot.put_bytes(usize::MAX, &[2]));
    let mut next = [0; 64];
    assert!(map.read(SLOTS + 64, &mut next));
    assert_eq!(next, [0; 64]);
}

#[test]
fn a_ring_for_nothing_is_full() {
    let (mut producer, mut consumer) = ring(0);
    assert_eq!((producer.geometry().capacity(), producer.free(), consumer.available()), (0, 0, 0));
    assert!(
        producer.batch().next().is_none()
            && producer.batch().last().is_none()
            && consumer.take_one(|| unreachable!(), |_| true) == Some(0)
            && !window(&consumer).begin(|| u32::MAX)
    );
}

#[test]
fn a_full_ring_takes_no_more_and_a_rewound_one_forgets() {
    let (mut producer, consumer) = ring(3);
    for free in (0..3).rev() {
        assert!(fill(&mut producer, 1));
        assert_eq!(producer.free(), free);
    }
    assert!(!fill(&mut producer, 1), "what is filled without a slot is nothing");
    assert_eq!((consumer.available(), producer.free()), (0, 0));
    producer.rewind();
    assert_eq!(producer.free(), 3);
    assert!(fill(&mut producer, 1));
    // A slot that was not completely filled does not count as filled.
    assert!(producer.batch().next().is_some() && producer.one::<true>().next().is_some());
    producer.publish();
    assert_eq!((consumer.available(), producer.free(), producer.batch().last().is_none()), (1, 2, true));
    assert!(fill(&mut producer, 1));
    producer.publish();
    producer.retract();
    assert_eq!((consumer.available(), producer.free()), (1, 2));
}

#[test]
fn a_slot_is_taken_unseen_only_where_one_is_known_to_be_free() {
    let (mut producer, mut consumer) = ring(3);
    assert!(producer.one::<false>().next().is_none());
    for value in 0..3 {
        let mut one = producer.one::<true>();
        one.next().unwrap().put::<0, u64>(value);
        one.filled();
    }
    producer.publish();
    assert_eq!(take(&mut consumer), [0, 1, 2]);
    assert!(producer.one::<false>().next().is_none() && producer.one::<true>().next().is_some());
    // `one::<true>` has read the consumer's position, which also counts for `one::<false>`.
    assert!(producer.one::<false>().next().is_some());
}

#[test]
fn a_slot_that_ends_with_bytes_is_filled_with_all_of_them_or_not_at_all() {
    let (_, map) = Geometry::create(3, 8).unwrap();
    let mut producer = Producer::<u64>::open(map.clone()).unwrap();
    let mut consumer = Consumer::<u64>::open(map.clone()).unwrap();
    for round in 0..8 {
        let bytes = [round as u8; 56];
        let slot = producer.next_slot();
        assert!(!producer.one::<false>().filled_with(&bytes[..1]), "no slot is known to be free");
        let mut one = producer.one::<true>();
        one.next().unwrap().put::<0, u64>(round);
        assert!(!one.filled_with(&[0xff; 57]) && one.next_slot() == slot);
        assert!(one.filled_with(&bytes) && one.next_slot() != slot);
        producer.rewind();
        let mut batch = producer.batch();
        batch.next().unwrap().put::<0, u64>(round);
        assert!(!batch.filled_with(&[0xff; 57]) && batch.next_slot() == slot);
        assert!(batch.filled_with(&bytes) && batch.next_slot() != slot);
        drop(batch);
        producer.publish();
        assert_eq!(take(&mut consumer), [round]);
        let mut whole = [0; 64];
        assert!(map.read(SLOTS + 64 * slot as usize, &mut whole));
        assert_eq!(whole[8..], bytes);
        producer.rewind();
    }
}

#[test]
fn the_slot_that_was_filled_last_is_found_all_round_the_ring() {
    let (mut producer, mut consumer) = ring(3);
    for round in 0..8 {
        assert!(fill(&mut producer, 0));
        let of_batch = producer.batch().last().map(|mut slot| slot.put::<0, u64>(round));
        let of_step = producer.one::<true>().last().map(|mut slot| assert!(slot.put_bytes(0, &[1])));
        assert_eq!((of_batch, of_step), (Some(()), Some(())));
        producer.publish();
        assert_eq!(take(&mut consumer), [round]);
    }
}

#[test]
fn what_is_not_kept_leaves_from_among_what_waits() {
    let (mut producer, mut consumer) = ring(7);
    // Once around the end of the ring.
    for round in 0..4 {
        consumer.retain(|value| value % 2 == 1);
        assert_eq!(consumer.available(), 0);
        for value in 0..6 {
            put(&mut producer, 10 * round + value);
        }
        consumer.retain(|value| value % 2 == 1);
        put(&mut producer, 10 * round + 6);
        assert_eq!(producer.free(), 3, "the slots are free at once");
        assert_eq!(take(&mut consumer), [1, 3, 5, 6].map(|value| 10 * round + value));
    }
}

#[test]
fn bytes_of_any_length_are_copied_and_no_more() {
    let (_, map) = Geometry::create(1, 256).unwrap();
    let mut producer = Producer::<u64>::open(map.clone()).unwrap();
    for len in 0..=80_u8 {
        let bytes: Vec<u8> = (1..=len).collect();
        let mut batch = producer.batch();
        let mut slot = batch.next().unwrap();
        assert!(slot.put_bytes(0, &[0; 100]) && slot.put_bytes(3, &bytes));
        let mut there = [0xff; 100];
        assert!(map.read(SLOTS + 8, &mut there));
        assert_eq!((&there[..3], &there[3..][..bytes.len()]), (&[0; 3][..], &bytes[..]), "{len} bytes");
        assert!(there[3 + bytes.len()..].iter().all(|byte| *byte == 0), "{len} bytes");
    }
}

#[test]
fn one_is_taken_if_it_may_be_and_is_put() {
    let (mut producer, mut consumer) = ring(3);
    assert_eq!(consumer.take_one(|| unreachable!(), |_| unreachable!()), Some(0));
    for value in 0..8 {
        put(&mut producer, value);
        assert_eq!(consumer.take_one(|| false, |_| unreachable!()), None);
        assert_eq!(consumer.take_one(|| true, |_| false), None);
        assert_eq!((consumer.available(), producer.free()), (1, 2), "nothing has happened");
        let mut taken = None;
        let count = consumer.take_one(|| true, |slot| taken.replace(slot.get()).is_none());
        assert_eq!((count, taken), (Some(1), Some(value)));
        assert_eq!((consumer.available(), producer.free()), (0, 3));
    }
}

#[test]
fn one_or_two_slots_are_taken_or_none() {
    let (mut producer, mut consumer) = ring(7);
    let is_plain = |place: &mut u64, slot: Filled<'_, u64>| {
        *place = slot.get();
        *place < 100
    };
    let mut values = [0; 8];
    // Across the end of the ring.
    for round in 0..10 {
        assert_eq!(consumer.take_few_if(&mut values, || unreachable!(), is_plain), Some(0));
        (1..=3).for_each(|at| put(&mut producer, round + at));
        assert_eq!(consumer.take_few_if(&mut values, || true, is_plain), None, "three");
        assert_eq!(consumer.take_few_if(&mut values[..2], || false, is_plain), None, "the way is closed");
        assert_eq!(consumer.take_few_if(&mut values[..0], || true, is_plain), None);
        assert_eq!(consumer.take_few_if(&mut values[..1], || true, is_plain), Some(1));
        assert_eq!(
            (consumer.take_few_if(&mut values[1..], || true, is_plain), consumer.available()),
            (Some(2), 0)
        );
        assert_eq!(values[..3], [round + 1, round + 2, round + 3]);
        for last in [1, 2] {
            (1..last).for_each(|at| put(&mut producer, at));
            put(&mut producer, 100);
            assert_eq!(consumer.take_few_if(&mut values, || true, is_plain), None, "one is not put");
            assert_eq!(take(&mut consumer).len() as u64, last, "and none was taken");
        }
    }
}
