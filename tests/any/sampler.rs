//! Snapshots that are kept fresh: by ticks, by a thread, many of them, and while flows are created and destroyed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use uverbs::{Counters, Eth, Flow, FlowRule, Sampler, Snapshot, Tick};

const HOUR: Duration = Duration::from_secs(3600);
const EIO: i32 = 5;
const EREMOTEIO: i32 = 121;

fn ns(count: u64) -> Duration {
    Duration::from_nanos(count)
}

/// A flow for an address of its own, with its own counters.
fn counted(raw: &Raw, number: u16) -> (Counters, Flow, Snapshot) {
    let [high, low] = number.to_be_bytes();
    let counters = packets_and_bytes(&raw.context);
    let rule = FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 1, high, low])).count(&counters);
    let flow = raw.qp.create_flow(&rule).unwrap();
    let snapshot = counters.snapshot().unwrap();
    (counters, flow, snapshot)
}

/// How long threads race: the time in the environment, or a short time.
fn seconds() -> f64 {
    std::env::var("UVERBS_TEST_SECONDS").map_or(1.0, |seconds| seconds.parse().expect("a number"))
}

#[test]
fn each_interval_has_one_round_and_lateness_is_told() {
    on_every_counting_device(|target| {
        let (context, switch) = Switch::open(&target.device);
        let raw = Raw::new(&context);
        let (_counters, _flow, snapshot) = counted(&raw, 1);
        let mut sampler = Sampler::new(ns(100));
        let idle = sampler.tick_at(500);
        assert_eq!(idle, Tick { wait: ns(100), ..Tick::default() });
        sampler.add(&snapshot);
        sampler.add(&snapshot);
        assert_eq!(sampler.len(), 1, "twice is once");
        let mut at = |now| {
            let tick = sampler.tick_at(now);
            (tick.refreshed, tick.wait, switch.reads())
        };
        assert_eq!(at(599), (0, ns(1), 0));
        assert_eq!(at(600), (1, ns(100), 1));
        assert_eq!(at(650), (0, ns(50), 1));
        assert_eq!(at(730), (1, ns(70), 2), "late by 30");
        assert_eq!(at(800), (1, ns(100), 3), "the next one is due when it was");
        assert_eq!(at(1355), (1, ns(45), 4), "late by 455: four intervals are missed");
        let report = sampler.report();
        assert_eq!((report.rounds, report.refreshed, report.missed), (5, 4, 4));
        assert_eq!((report.last_lateness, report.max_lateness), (ns(455), ns(455)));
        sampler.tick_at(1400);
        let report = sampler.report();
        assert_eq!((report.last_lateness, report.max_lateness, report.missed), (ns(0), ns(455), 4));
        assert_eq!(snapshot.latest::<2>().unwrap().1.taken_ns(), 1400);
    });
}

#[test]
fn the_work_of_a_tick_is_bounded_and_the_next_one_goes_on() {
    on_every_counting_device(|target| {
        let (context, switch) = Switch::open(&target.device);
        let raw = Raw::new(&context);
        let all: Vec<_> = (0..10).map(|number| counted(&raw, number)).collect();
        let mut sampler = Sampler::new(ns(100)).at_most(4);
        all.iter().for_each(|(_, _, snapshot)| sampler.add(snapshot));
        let refreshed: Vec<_> = (0..3).map(|_| sampler.tick_at(1000).refreshed).collect();
        assert_eq!((refreshed, switch.reads()), (vec![4, 4, 2], 10));
        assert_eq!(sampler.tick_at(1000).wait, ns(100), "the round is over");
        // A round that takes longer than the interval: each snapshot is read once, and the next round is late.
        let tick = sampler.tick_at(1100);
        assert_eq!((tick.refreshed, tick.wait), (4, ns(0)));
        assert_eq!(sampler.tick_at(1250).refreshed, 4);
        assert_eq!(sampler.tick_at(1251), Tick { refreshed: 2, wait: ns(0), ..Tick::default() });
        assert_eq!(switch.reads(), 20);
        sampler.tick_at(1252);
        assert_eq!((sampler.report().last_lateness, sampler.report().missed), (ns(52), 0));
        assert!(sampler.remove(&all[0].2));
        assert!(!sampler.remove(&all[0].2));
        assert_eq!(sampler.len(), 9);
    });
}

#[test]
fn who_comes_or_goes_in_a_round_shifts_nobody() {
    on_every_counting_device(|target| {
        let (context, switch) = Switch::open(&target.device);
        let raw = Raw::new(&context);
        let all: Vec<_> = (0..12).map(|number| counted(&raw, number)).collect();
        let mut sampler = Sampler::new(ns(100)).at_most(3);
        all[..8].iter().for_each(|(_, _, snapshot)| sampler.add(snapshot));
        let is_read =
            |place: usize| all[place].2.latest::<2>().is_ok_and(|(_, stamp)| stamp.taken_ns() == 1000);
        assert_eq!(sampler.tick_at(1000).refreshed, 3);
        let (read, unread): (Vec<_>, Vec<_>) = (0..8).partition(|place| is_read(*place));
        // One that was read and one that was not are removed, and others are added.
        assert!(sampler.remove(&all[read[0]].2) && sampler.remove(&all[unread[0]].2));
        all[8..].iter().for_each(|(_, _, snapshot)| sampler.add(snapshot));
        while sampler.tick_at(1000).wait.is_zero() {}
        assert!(!is_read(unread[0]), "it was taken out before its turn");
        assert!(unread[1..].iter().all(|place| is_read(*place)), "each has its turn");
        let newcomers = (8..12).filter(|place| is_read(*place)).count();
        assert_eq!(switch.reads(), 7 + newcomers, "nobody is read twice in a round");
        for _ in 0..4 {
            sampler.tick_at(1100);
        }
        assert_eq!((switch.reads(), sampler.len()), (7 + newcomers + 10, 10));
    });
}

#[test]
fn what_another_has_just_read_is_not_read_again() {
    on_every_counting_device(|target| {
        let (context, switch) = Switch::open(&target.device);
        let raw = Raw::new(&context);
        let (_counters, _flow, snapshot) = counted(&raw, 1);
        let mut sampler = Sampler::new(ns(100));
        sampler.add(&snapshot);
        sampler.tick_at(1000);
        snapshot.read_at::<2>(1105, ns(50)).unwrap();
        assert_eq!(sampler.tick_at(1110).refreshed, 1, "it is fresh");
        assert_eq!(switch.reads(), 2);
        snapshot.read_at::<2>(1190, ns(50)).unwrap();
        sampler.tick_at(1200);
        assert_eq!(switch.reads(), 4, "what was read before the round was due does not count");
    });
}

#[test]
fn one_that_fails_does_not_stop_the_others_and_one_that_ended_is_let_go() {
    on_every_counting_device(|target| {
        let (good, _) = Switch::open(&target.device);
        let (bad, switch) = Switch::open(&target.device);
        let (good, bad) = (Raw::new(&good), Raw::new(&bad));
        let (_a, _b, one) = counted(&good, 1);
        let (_c, flow, two) = counted(&bad, 2);
        let (_d, ends, three) = counted(&good, 3);
        let (_e, _f, four) = counted(&bad, 4);
        let mut sampler = Sampler::new(ns(100));
        [&one, &two, &three, &four].into_iter().for_each(|snapshot| sampler.add(snapshot));
        switch.fail(EREMOTEIO);
        let counts = |tick: Tick| (tick.refreshed, tick.failed, tick.ended);
        assert_eq!(counts(sampler.tick_at(100)), (2, 2, 0));
        assert_eq!(two.last_error().unwrap().errno(), Some(EREMOTEIO));
        assert_eq!((one.last_error(), three.last_error()), (None, None));
        drop(ends);
        switch.fail(0);
        assert_eq!(counts(sampler.tick_at(200)), (3, 0, 1), "it tries again, and has let one go");
        assert_eq!((sampler.len(), three.has_ended()), (3, true));
        // The device is removed: the snapshot reports this, and so does its last value.
        switch.fail(EIO);
        assert_eq!(counts(sampler.tick_at(300)), (1, 0, 2));
        assert!(two.has_ended() && four.has_ended() && !one.has_ended());
        drop(flow);
        assert_eq!(counts(sampler.tick_at(400)), (1, 0, 0));
        let report = sampler.report();
        assert_eq!((report.refreshed, report.failed, report.ended), (7, 2, 3));
        // If a device does not confirm the destruction, its memory would be kept for good.
        switch.fail(0);
    });
}

#[test]
fn thousands_of_counters_are_kept_fresh() {
    on_every_counting_device(|target| {
        let count: u16 = match &target.soft {
            Some(_) if cfg!(miri) => 20,
            Some(_) => 3000,
            None => 200,
        };
        let (context, switch) = Switch::open(&target.device);
        let raw = Raw::new(&context);
        let all: Vec<_> = (0..count).map(|number| counted(&raw, number)).collect();
        let mut sampler = Sampler::new(HOUR);
        all.iter().for_each(|(_, _, snapshot)| sampler.add(snapshot));
        let injected: Vec<u16> = (0..count).step_by(7).collect();
        for number in &injected {
            let [high, low] = number.to_be_bytes();
            target.wire().iter().for_each(|wire| wire.inject(&frame([2, 0, 0, 1, high, low], 60)));
        }
        let mut ticks = 0;
        while sampler.tick().wait.is_zero() {
            ticks += 1;
        }
        assert_eq!(ticks, usize::from(count) / 64);
        assert_eq!(switch.reads(), usize::from(count));
        let has_wire = target.wire().is_some();
        for (number, (_, _, snapshot)) in (0..count).zip(&all) {
            let packets = u64::from(has_wire && number % 7 == 0);
            assert_eq!(*snapshot.read_cached::<2>(HOUR).unwrap(), [packets, packets * 60]);
        }
        assert_eq!(switch.reads(), usize::from(count), "all were fresh");
    });
}

/// Bytes are a function of packets, so values from two reads of the device would be detected.
#[test]
fn readers_beside_a_refresher_see_no_torn_value_and_none_that_goes_back() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let flow =
            raw.qp.create_flow(&FlowRule::normal(1).eth(Eth::any().dst(MAC)).count(&counters)).unwrap();
        let snapshot = counters.snapshot().unwrap();
        let sampler = Sampler::new(Duration::ZERO); // as fast as it goes
        sampler.add(&snapshot);
        snapshot.refresh().unwrap();
        let (done, looks) = (AtomicBool::new(false), AtomicU64::new(0));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (snapshot, done, looks) = (snapshot.clone(), &done, &looks);
                scope.spawn(move || {
                    let (mut last, mut count) = ((0, [0, 0]), 0);
                    while !done.load(Ordering::Relaxed) {
                        let (values, stamp) = if reader == 0 {
                            snapshot.latest::<2>().unwrap()
                        } else {
                            let seen = snapshot.read_cached::<2>(HOUR).unwrap();
                            (*seen, seen.stamp())
                        };
                        assert_eq!(values[1], values[0] * 60, "torn");
                        assert!((stamp.epoch(), values) >= last, "{stamp:?} {values:?} after {last:?}");
                        last = (stamp.epoch(), values);
                        count += 1;
                    }
                    looks.fetch_add(count, Ordering::Relaxed);
                });
            }
            let thread = sampler.spawn().unwrap();
            let _end = End(&done);
            let mut frames = 0_u64;
            while begun.elapsed().as_secs_f64() < seconds() && !(cfg!(miri) && frames > 20) {
                target.wire().iter().for_each(|wire| wire.inject(&frame(MAC, 60)));
                frames += 1;
                std::thread::yield_now();
            }
            // The reads continue when the sampler is dropped.
            let report = thread.report();
            drop(thread);
            let time = begun.elapsed().as_secs_f64();
            let rate = report.refreshed as f64 / time;
            println!("{rate:.0} refreshes/s, {frames} frames in {time:.1} s on {}", target.device.name());
            assert!(report.refreshed > 0 && report.failed == 0, "{report:?}");
        });
        println!("{} looks, none torn, none went back", looks.load(Ordering::Relaxed));
        drop(flow);
        assert!(snapshot.read_cached::<2>(HOUR).is_err());
    });
}

#[test]
fn a_sampler_ends_at_once_when_it_is_dropped_while_reads_go_on() {
    on_every_counting_device(|target| {
        let (context, switch) = Switch::open(&target.device);
        let raw = Raw::new(&context);
        let (_counters, _flow, snapshot) = counted(&raw, 1);
        snapshot.refresh().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        snapshot.read_cached::<2>(HOUR).unwrap();
                    }
                });
            }
            let _end = End(&done);
            // The drop does not wait for an hour: if it did, this test would hang.
            for interval in [HOUR, Duration::ZERO, Duration::from_micros(1)] {
                for _ in 0..if cfg!(miri) { 1 } else { 20 } {
                    let sampler = Sampler::new(interval);
                    sampler.add(&snapshot);
                    drop(sampler.spawn().unwrap());
                }
            }
            let reads = switch.reads();
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(switch.reads(), reads, "no thread is left that samples");
        });
    });
}

#[test]
fn flows_come_and_go_while_a_thread_samples() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let thread = Sampler::new(Duration::from_micros(50)).spawn().unwrap();
        let rounds = if cfg!(miri) { 3 } else { 100 };
        let (mut ended, begun) = (0, Instant::now());
        for round in 0..rounds {
            let (counters, flow, snapshot) = counted(&raw, round);
            thread.add(&snapshot);
            if round % 2 == 0 {
                // Until the sampler has detected it.
                while snapshot.latest::<2>().is_err() {
                    assert!(begun.elapsed().as_secs() < 60, "it is never read");
                    std::thread::yield_now();
                }
            }
            flow.destroy().map_err(|(_, error)| error).expect("nobody holds the flow up");
            assert!(snapshot.has_ended());
            snapshot.read_cached::<2>(HOUR).unwrap_err();
            counters.destroy().map_err(|(_, error)| error).expect("nobody holds the counters up");
            ended += 1;
        }
        while thread.report().ended < ended {
            assert!(begun.elapsed().as_secs() < 60, "{:?}", thread.report());
            std::thread::yield_now();
        }
        assert_eq!(thread.report().failed, 0);
    });
}
