//! Cached reads: when the device is read, the age of values, and the errors if there are none.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use uverbs::{Counters, ErrorKind, Eth, Flow, FlowRule, Point, Snapshot};

const HOUR: Duration = Duration::from_secs(3600);
const EIO: i32 = 5;
const EREMOTEIO: i32 = 121;

fn ns(count: u64) -> Duration {
    Duration::from_nanos(count)
}

/// Counters of a flow to [`MAC`], on a device with a switch.
struct Counted {
    raw: Raw,
    counters: Counters,
    flow: Flow,
    switch: Switch,
}

impl Counted {
    fn new(target: &Target) -> Self {
        let (context, switch) = Switch::open(&target.device);
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let flow = raw.qp.create_flow(&to(MAC, &counters)).unwrap();
        Self { raw, counters, flow, switch }
    }

    fn snapshot(&self) -> Snapshot {
        self.counters.snapshot().unwrap()
    }
}

fn to(mac: [u8; 6], counters: &Counters) -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst(mac)).count(counters)
}

#[test]
fn a_fresh_read_sends_no_command() {
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        let snapshot = world.snapshot();
        target.wire().iter().for_each(|wire| wire.inject(&frame(MAC, 60)));
        let first = snapshot.read_cached::<2>(HOUR).unwrap();
        assert_eq!(*first, read2(&world.counters));
        let commands = world.switch.commands();
        for _ in 0..1000 {
            let mut values = [7; 3];
            let seen = snapshot.read_cached::<2>(HOUR).unwrap();
            assert_eq!((*seen, seen.stamp()), (*first, first.stamp()));
            assert_eq!(snapshot.read_cached_into(HOUR, &mut values[..2]).unwrap().stamp(), first.stamp());
            assert_eq!(snapshot.read_cached_into(HOUR, &mut values).unwrap().stamp(), first.stamp());
            assert_eq!(values, [first[0], first[1], 0]);
            assert_eq!(*snapshot.read_at::<2>(first.stamp().taken_ns() + 9, ns(10)).unwrap(), *first);
            assert_eq!(snapshot.latest::<2>().unwrap(), (*first, first.stamp()));
        }
        assert_eq!(world.switch.commands(), commands);
    });
}

#[test]
fn values_grow_old_by_the_clock_and_are_read_again() {
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        let snapshot = world.snapshot();
        assert_eq!(world.switch.reads(), 0, "nothing is read before it is asked for");
        let at = |now, limit| {
            let seen = snapshot.read_at::<2>(now, ns(limit)).unwrap();
            (seen.stamp().epoch(), seen.stamp().taken_ns(), seen.age_ns(), world.switch.reads())
        };
        assert_eq!(at(1000, 10), (1, 1000, 0, 1));
        assert_eq!(at(1009, 10), (1, 1000, 9, 1));
        assert_eq!(at(1010, 10), (2, 1010, 0, 2), "as old as the limit is too old");
        assert_eq!(at(1500, 491), (2, 1010, 490, 2));
        assert_eq!(at(1500, 490), (3, 1500, 0, 3));
        assert_eq!(at(1400, 10), (3, 1500, 0, 3), "later than now is young");
        assert_eq!(at(1500, 0), (4, 1500, 0, 4), "no limit is so short that zero is below it");
        let mut values = [0; 2];
        let seen = snapshot.read_at_into(1520, ns(10), &mut values).unwrap();
        assert_eq!((seen.stamp().epoch(), seen.age()), (5, Duration::ZERO));
        assert_eq!(snapshot.latest::<2>().unwrap().1.age_at(1530), ns(10));
        assert_eq!(snapshot.latest::<2>().unwrap().1.age_at(7), ns(0));
    });
}

#[test]
fn values_grow_old_by_themselves() {
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        let snapshot = world.snapshot();
        let first = snapshot.read_cached::<2>(HOUR).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let second = snapshot.read_cached::<2>(HOUR).unwrap();
        assert_eq!(second.stamp(), first.stamp());
        assert!(second.age() >= Duration::from_millis(15), "{:?}", second.age());
        let third = snapshot.read_cached::<2>(Duration::from_millis(15)).unwrap();
        assert_eq!(third.stamp().epoch(), 2);
        assert!(third.stamp().taken_ns() >= first.stamp().taken_ns() + 15_000_000);
        assert_eq!(snapshot.read_cached::<2>(Duration::ZERO).unwrap().stamp().epoch(), 3);
        assert_eq!(world.switch.reads(), 3);
    });
}

#[test]
fn a_failed_read_keeps_its_error_and_what_is_young_enough_is_still_given() {
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        let snapshot = world.snapshot();
        let failed = |result: uverbs::Result<_>| {
            refuses(result, ErrorKind::Other, EREMOTEIO, "");
        };
        world.switch.fail(EREMOTEIO);
        assert_eq!(snapshot.last_error(), None);
        let error = snapshot.read_at::<2>(1000, ns(100)).unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Other, Some(EREMOTEIO)));
        assert_eq!(snapshot.last_error(), Some(error.clone()));
        let nothing = snapshot.latest::<2>().unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::NotFound, "{nothing}");

        world.switch.fail(0);
        snapshot.read_at::<2>(1000, ns(100)).unwrap();
        assert_eq!(snapshot.last_error(), None);
        world.switch.fail(EREMOTEIO);
        assert_eq!(
            snapshot.read_at::<2>(1100, ns(100)).unwrap_err(),
            error,
            "too old, and no others to be had"
        );
        let seen = snapshot.read_at::<2>(1150, ns(151)).unwrap();
        assert_eq!((seen.stamp().taken_ns(), seen.age_ns()), (1000, 150), "their age is not hidden");
        assert_eq!(snapshot.last_error(), Some(error));
        assert!(!snapshot.has_ended());
        assert_eq!(world.switch.reads(), 3);
        failed(snapshot.refresh());
        failed(snapshot.read_cached::<2>(Duration::ZERO).map(drop));
        world.switch.fail(0);
        assert_eq!(snapshot.read_at::<2>(1200, ns(100)).unwrap().stamp().epoch(), 2);
        assert_eq!(snapshot.last_error(), None);
    });
}

#[test]
fn a_snapshot_of_a_device_that_has_gone_says_so() {
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        let snapshot = world.snapshot();
        snapshot.refresh().unwrap();
        world.switch.fail(EIO);
        snapshot.read_cached::<2>(HOUR).unwrap();
        assert_eq!(snapshot.refresh().unwrap_err().kind(), ErrorKind::Disassociated);
        let reads = world.switch.reads();
        all_say(&snapshot, ErrorKind::Disassociated, EIO, "");
        assert_eq!(world.switch.reads(), reads, "it is not asked again");
        assert_eq!(snapshot.last_error().unwrap().kind(), ErrorKind::Disassociated);
        // If a device does not confirm the destruction, its memory would be kept for good.
        world.switch.fail(0);
    });
}

/// Checks every read, with any limit, and every clone.
#[track_caller]
fn all_say(snapshot: &Snapshot, kind: ErrorKind, errno: i32, hint: &str) {
    let clone = snapshot.clone();
    let now = snapshot.read_cached::<2>(Duration::ZERO);
    refuses(now, kind, errno, hint);
    refuses(clone.read_cached::<2>(HOUR), kind, errno, hint);
    refuses(snapshot.read_cached_into(Duration::MAX, &mut [0; 2]), kind, errno, hint);
    refuses(snapshot.read_at::<2>(0, HOUR), kind, errno, hint);
    refuses(snapshot.latest::<2>(), kind, errno, hint);
    refuses(snapshot.refresh(), kind, errno, hint);
    assert!(snapshot.has_ended());
}

#[test]
fn a_snapshot_ends_with_the_last_flow_and_holds_up_nobody() {
    on_every_counting_device(|target| {
        let Counted { raw, counters, flow, switch } = Counted::new(target);
        let snapshot = counters.snapshot().unwrap();
        snapshot.refresh().unwrap();
        let other = [2, 0, 0, 0, 0, 2];
        let second = raw.qp.create_flow(&to(other, &counters)).unwrap();
        flow.destroy().unwrap();
        assert!(!snapshot.has_ended(), "another flow counts");
        let shared = second.snapshot().unwrap();
        assert_eq!(shared.read_cached::<2>(HOUR).unwrap().stamp().epoch(), 1, "it is the same one");
        second.destroy().unwrap();
        all_say(&snapshot, ErrorKind::InvalidInput, EINVAL, "has ended");
        refuses(
            counters.snapshot(),
            ErrorKind::InvalidInput,
            EINVAL,
            "no flow uses these counters: create a flow that counts into them first",
        );

        // A flow that is created later has another snapshot, with the points of that time.
        counters.attach(Point::Bytes, 4).unwrap();
        let flow = raw.qp.create_flow(&to(MAC, &counters)).unwrap();
        let next = counters.snapshot().unwrap();
        assert_eq!((next.len(), snapshot.len()), (5, 2));
        next.read_cached::<5>(HOUR).unwrap();
        all_say(&snapshot, ErrorKind::InvalidInput, EINVAL, "has ended");
        drop(flow);
        assert!(next.has_ended());
        let commands = switch.commands();
        counters.destroy().unwrap();
        assert_eq!(switch.commands(), commands + 1);
        all_say(&snapshot, ErrorKind::InvalidInput, EINVAL, "has ended");
    });
}

#[test]
fn a_snapshot_needs_a_flow_and_reads_need_room() {
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        let lonely = packets_and_bytes(&world.raw.context);
        refuses(
            lonely.snapshot(),
            ErrorKind::InvalidInput,
            EINVAL,
            "no flow uses these counters: create a flow that counts into them first",
        );
        let plain = world.raw.qp.create_flow(&FlowRule::normal(1).eth(Eth::any().dst([2; 6]))).unwrap();
        refuses(plain.snapshot(), ErrorKind::InvalidInput, EINVAL, "no count action");
        let snapshot = world.flow.snapshot().unwrap();
        for _ in 0..2 {
            refuses(snapshot.read_cached::<1>(HOUR), ErrorKind::InvalidInput, EINVAL, "at least 2 allowed");
            refuses(snapshot.read_at::<0>(0, HOUR), ErrorKind::InvalidInput, EINVAL, "at least 2 allowed");
            refuses(snapshot.latest_into(&mut [0]), ErrorKind::InvalidInput, EINVAL, "at least 2 allowed");
            assert_eq!(snapshot.read_cached::<4>(HOUR).unwrap()[2..], [0, 0]);
            assert_eq!(snapshot.latest::<3>().unwrap().0[2], 0);
        }
        assert_eq!(world.switch.reads(), 1);
    });
}

#[test]
fn reads_that_come_together_share_commands_and_are_never_older_than_their_call() {
    let (threads, calls) = if cfg!(miri) { (3, 4) } else { (8, 50) };
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        let snapshot = world.snapshot();
        world.switch.delay(Duration::from_millis(2));
        let (start, newest) = (Barrier::new(threads), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..calls {
                        // Values that were published before the call are too old for it, even if another thread read them.
                        let before = newest.load(Ordering::SeqCst);
                        let seen = snapshot.read_cached::<2>(Duration::ZERO).unwrap();
                        let epoch = seen.stamp().epoch() as usize;
                        assert!(epoch > before, "{epoch} after {before}");
                        newest.fetch_max(epoch, Ordering::SeqCst);
                    }
                });
            }
        });
        let (reads, all) = (world.switch.reads(), threads * calls);
        println!("{reads} commands for {all} reads on {}", target.device.name());
        assert!(reads < all, "{reads} commands for {all} reads");
    });
}

#[test]
fn a_snapshot_is_read_again_when_it_is_too_old() {
    hold(each::flows::a_snapshot_is_read_again_when_it_is_too_old);
}
