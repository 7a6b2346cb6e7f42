//! Flow counters that one command reads: `mlx5::CounterPool`, on devices that have DEVX.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use uverbs::mlx5::{CounterPool, PoolCounter, PoolFlow, Totals};
use uverbs::{AccessFlags, Context, ErrorKind, FlowRule, FlowTag, Ipv4, OpenOptions, Sampler, Snapshot, Udp};

const ENOSPC: i32 = 28;

#[test]
fn every_counter_of_a_pool_has_exactly_its_own_packets_and_bytes() {
    on_every_bulk_device(|target, wire, raw| {
        let pool = CounterPool::new(&raw.context, 300).unwrap();
        assert_eq!((pool.capacity(), pool.available()), (300, 300));
        let flows: Vec<_> =
            (0..40).map(|i| pool.take().unwrap().create_flow(&raw.qp, &to(i)).unwrap()).collect();
        assert_eq!(pool.available(), 260);
        for i in 0..flows.len() {
            (0..=i % 5).for_each(|_| wire.inject(&frame(mac(i), 60 + i)));
        }
        wire.inject(&frame(mac(99), 60));
        let mut reader = pool.reader();
        let (count, values) = commands(target, "QUERY_FLOW_COUNTER", || reader.read().unwrap());
        assert!(count == 1 || target.control.is_none(), "{count} commands");
        for (i, flow) in flows.iter().enumerate() {
            let packets = i as u64 % 5 + 1;
            let expected = totals(packets, packets * (60 + i as u64));
            assert_eq!(values.of(flow.counter()), Some(expected), "counter {i}");
            assert_eq!(Totals::from(values.raw()[flow.counter().index()]), expected);
        }
        assert_eq!(values.raw().len(), 300);
        let others = values.raw()[flows.len()..].iter().map(|raw| Totals::from(*raw));
        assert!(others.into_iter().all(|raw| raw == Totals::default()));

        let counters: Vec<_> = flows.iter().map(|flow| flow.counter().clone()).collect();
        let mut all = vec![Totals::default(); counters.len()];
        let (count, done) = commands(target, "QUERY_FLOW_COUNTER", || reader.read_all(&counters, &mut all));
        done.unwrap();
        assert!(count == 1 || target.control.is_none(), "{count} commands");
        assert_eq!(all[39], totals(5, 5 * 99));
        assert_eq!(counters[38].read().unwrap(), totals(4, 4 * 98));
    });
}

#[test]
fn the_largest_pool_is_read_by_one_command_to_its_last_counter() {
    on_every_bulk_device(|target, wire, raw| {
        let pool = CounterPool::new(&raw.context, CounterPool::MAX).unwrap();
        let counters: Vec<_> = (0..CounterPool::MAX).map(|_| pool.take().unwrap()).collect();
        let [first, .., last] = &counters[..] else { panic!("4,092 counters") };
        assert_eq!((first.index(), last.index()), (0, CounterPool::MAX - 1));
        let _flows = [first, last].map(|counter| counter.create_flow(&raw.qp, &to(counter.index())).unwrap());
        wire.inject(&frame(mac(0), 60));
        (0..2).for_each(|_| wire.inject(&frame(mac(last.index()), 100)));
        let mut reader = pool.reader();
        let (count, values) = commands(target, "QUERY_FLOW_COUNTER", || reader.read().unwrap());
        assert!(count == 1 || target.control.is_none(), "{count} commands");
        assert_eq!(values.of(first), Some(totals(1, 60)));
        assert_eq!(values.of(last), Some(totals(2, 200)));
        let sum: u64 = counters.iter().map(|counter| values.of(counter).unwrap().packets).sum();
        assert_eq!(sum, 3);
    });
}

#[test]
fn counters_are_given_out_once_and_come_back_when_counter_and_flows_are_gone() {
    on_every_bulk_device(|_, wire, raw| {
        let pool = CounterPool::new(&raw.context, 3).unwrap();
        let counters = [(); 3].map(|()| pool.take().unwrap());
        refuses(pool.take(), ErrorKind::Exhausted, ENOSPC, "taken");
        let [one, two, _three] = counters;
        let flow = one.create_flow(&raw.qp, &to(1)).unwrap();
        drop((one, two));
        assert_eq!(pool.available(), 1, "a flow counts into the first");
        wire.inject(&frame(mac(1), 60));
        assert_eq!(flow.counter().read().unwrap(), totals(1, 60));
        flow.destroy().unwrap();
        assert_eq!(pool.available(), 2);
        // The second one has been free for longer.
        let again = [pool.take().unwrap(), pool.take().unwrap()];
        assert_eq!(again.each_ref().map(PoolCounter::index), [1, 0]);
        // The device continues its count; the counter begins at zero, also for a reader from before.
        let mut reader = pool.reader();
        let values = reader.read().unwrap();
        assert_eq!(Totals::from(values.raw()[0]), totals(1, 60));
        assert_eq!(values.of(&again[1]), Some(Totals::default()));
        let _flow = again[1].create_flow(&raw.qp, &to(1)).unwrap();
        wire.inject(&frame(mac(1), 100));
        assert_eq!(again[1].read().unwrap(), totals(1, 100));
        assert_eq!(reader.read().unwrap().of(&again[1]), Some(totals(1, 100)));
    });
}

#[test]
fn a_read_from_before_a_counter_was_taken_has_nothing_for_it() {
    on_every_bulk_device(|_, wire, raw| {
        let pool = CounterPool::new(&raw.context, 1).unwrap();
        let flow = pool.take().unwrap().create_flow(&raw.qp, &to(1)).unwrap();
        wire.inject(&frame(mac(1), 60));
        let mut reader = pool.reader();
        let values = reader.read().unwrap();
        wire.inject(&frame(mac(1), 60));
        drop(flow);
        let again = pool.take().unwrap();
        assert_eq!(values.of(&again), Some(Totals::default()));
    });
}

#[test]
fn flows_on_one_counter_add_up_and_take_their_own_packets_to_the_queue_pair() {
    on_every_bulk_device(|_, wire, raw| {
        let pool = CounterPool::new(&raw.context, 1).unwrap();
        let counter = pool.take().unwrap();
        let port = |port| FlowRule::normal(1).ipv4(Ipv4::any()).udp(Udp::any().dst_port(port));
        let tag = FlowTag::new(0x77).unwrap();
        let one = counter.create_flow(&raw.qp, &port(1).tag(tag)).unwrap();
        let two = counter.create_flow(&raw.qp, &port(2).priority(3).drop()).unwrap();
        let addresses = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let send = |port| wire.inject(&packet(addresses, [9, port], false, &[0; 20]));
        (1..=3).for_each(send);
        let len = packet(addresses, [9, 1], false, &[0; 20]).len() as u64;
        assert_eq!(counter.read().unwrap(), totals(2, 2 * len));
        drop(one);
        (1..=3).for_each(send);
        assert_eq!(counter.read().unwrap(), totals(3, 3 * len));
        drop(two);
        (1..=3).for_each(send);
        assert_eq!(counter.read().unwrap(), totals(3, 3 * len));
    });
}

#[test]
fn packets_come_in_with_their_tag_unless_they_are_dropped() {
    on_every_device(|target| {
        let Ok(context) = OpenOptions::new().devx(true).open(&target.device) else {
            return skip(target, "no DEVX");
        };
        let (Some(wire), mut raw) = (target.wire(), Raw::new(&context)) else {
            return skip(target, "no frames can be made to arrive");
        };
        let pool = CounterPool::new(&context, 2).unwrap();
        raw.post_receives(4);
        let rule = to(1).tag(FlowTag::new(0x77).unwrap());
        let _one = pool.take().unwrap().create_flow(&raw.qp, &rule).unwrap();
        let _two = pool.take().unwrap().create_flow(&raw.qp, &to(2).drop()).unwrap();
        wire.inject(&frame(mac(2), 60));
        wire.inject(&frame(mac(1), 60));
        let completions = raw.await_completions(1);
        assert_eq!((completions.len(), completions[0].immediate), (1, 0x77));
        let mut reader = pool.reader();
        let values = reader.read().unwrap();
        assert_eq!([0, 1].map(|i| Totals::from(values.raw()[i])), [totals(1, 60); 2]);
    });
}

#[test]
fn ordinary_counters_and_those_of_a_pool_go_side_by_side() {
    on_every_bulk_device(|_, wire, raw| {
        let pool = CounterPool::new(&raw.context, 1).unwrap();
        let in_pool = pool.take().unwrap().create_flow(&raw.qp, &to(1)).unwrap();
        let counters = packets_and_bytes(&raw.context);
        let _flow = raw.qp.create_flow(&to(2).count(&counters)).unwrap();
        wire.inject(&frame(mac(1), 60));
        (0..2).for_each(|_| wire.inject(&frame(mac(2), 100)));
        assert_eq!(in_pool.counter().read().unwrap(), totals(1, 60));
        assert_eq!(read2(&counters), [2, 200]);
    });
}

#[test]
fn what_makes_no_sense_is_refused_before_a_command() {
    on_every_bulk_device(|target, _, raw| {
        let plain = Raw::new(&target.open());
        let pool = CounterPool::new(&raw.context, 2).unwrap();
        let other = CounterPool::new(&raw.context, 1).unwrap();
        let (counter, foreign) = (pool.take().unwrap(), other.take().unwrap());
        let counters = packets_and_bytes(&raw.context);
        let (sent, ()) = commands(target, "QUERY_FLOW_COUNTER", || {
            refuses(
                CounterPool::new(&plain.context, 1),
                ErrorKind::Unsupported,
                EOPNOTSUPP,
                "OpenOptions::devx",
            );
            for capacity in [0, CounterPool::MAX + 1] {
                refuses(CounterPool::new(&raw.context, capacity), ErrorKind::InvalidInput, EINVAL, "4092");
            }
            let mut reader = pool.reader();
            let both = [counter.clone(), foreign.clone()];
            let mut two = [totals(7, 7); 2];
            refuses(reader.read_all(&both, &mut two), ErrorKind::InvalidInput, EINVAL, "another pool");
            refuses(
                reader.read_all(&both[..1], &mut two),
                ErrorKind::InvalidInput,
                EINVAL,
                "2 given, 1 (one",
            );
            assert_eq!(two, [totals(7, 7); 2]);
            let rule = to(1).count(&counters);
            refuses(counter.create_flow(&raw.qp, &rule), ErrorKind::InvalidInput, EINVAL, "of its own");
            refuses(
                counter.create_flow(&plain.qp, &to(1)),
                ErrorKind::InvalidInput,
                EINVAL,
                "another open device",
            );
            let rule = to(1).egress();
            refuses(counter.create_flow(&raw.qp, &rule), ErrorKind::Unsupported, EOPNOTSUPP, "received");
        });
        assert_eq!(sent, 0);
        assert_eq!(pool.reader().read().unwrap().of(&foreign), None);
        // The kernel has 16 priorities.
        let refused = counter.create_flow(&raw.qp, &to(1).priority(16));
        refuses(refused, ErrorKind::Exhausted, ENOMEM, "priorities are 0 to 15");
        let one = counter.create_flow(&raw.qp, &to(1).priority(15)).unwrap();
        let tagged = to(1).priority(15).tag(FlowTag::new(3).unwrap());
        refuses(counter.create_flow(&raw.qp, &tagged), ErrorKind::InvalidInput, EEXIST, "same match");
        drop(one);
    });
}

#[test]
fn what_the_firmware_refuses_is_told_and_gives_no_values() {
    on_every_bulk_device(|target, wire, raw| {
        let Some(control) = &target.control else {
            return skip(target, "its firmware cannot be told to fail");
        };
        let pool = CounterPool::new(&raw.context, 2).unwrap();
        let flow = pool.take().unwrap().create_flow(&raw.qp, &to(1)).unwrap();
        wire.inject(&frame(mac(1), 60));
        let counters = [flow.counter().clone()];
        let mut reader = pool.reader();
        assert_eq!(reader.read().unwrap().of(&counters[0]), Some(totals(1, 60)));
        let mut values = [totals(9, 9)];
        control.ask("fail QUERY_FLOW_COUNTER 5 2 0x1234");
        let error = reader.read().unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidInput, Some(EINVAL)));
        assert!(error.hint().unwrap().contains("status 0x5, syndrome 0x1234"), "{error}");
        reader.read_all(&counters, &mut values).unwrap_err();
        assert_eq!(values, [totals(9, 9)]);
        reader.read_all(&counters, &mut values).unwrap();
        assert_eq!(values, [totals(1, 60)]);

        // Nothing is lost if a counter cannot be taken or a flow cannot be created.
        control.ask("fail QUERY_FLOW_COUNTER 15");
        refuses(pool.take(), ErrorKind::Exhausted, EAGAIN, "no resources");
        assert_eq!(pool.available(), 1);
        control.ask("fail SET_FLOW_TABLE_ENTRY 8");
        let refused = pool.take().unwrap().create_flow(&raw.qp, &to(2));
        refuses(refused, ErrorKind::Exhausted, ENOMEM, "no room");
        assert_eq!(pool.available(), 1);
        control.ask("fail ALLOC_FLOW_COUNTER 8");
        refuses(CounterPool::new(&raw.context, 1), ErrorKind::Exhausted, ENOMEM, "a limit");
        control.ask("fail QUERY_HCA_CAP 2");
        refuses(CounterPool::new(&raw.context, 1), ErrorKind::Unsupported, EOPNOTSUPP, "no such command");
        control.ask("fail CREATE_UCTX 8");
        let error = OpenOptions::new().devx(true).open(&target.device).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        control.heal();
        drop(CounterPool::new(&raw.context, 1).unwrap());
    });
}

#[test]
fn one_command_refreshes_the_snapshots_of_all_counters() {
    on_every_bulk_device(|target, wire, raw| {
        let pool = CounterPool::new(&raw.context, 16).unwrap();
        let flows = [1, 2, 3].map(|i| pool.take().unwrap().create_flow(&raw.qp, &to(i)).unwrap());
        let snapshots = flows.each_ref().map(|flow| flow.counter().snapshot());
        (0..2).for_each(|_| wire.inject(&frame(mac(2), 60)));
        let old = Duration::from_secs(3600);
        let (count, ()) = commands(target, "QUERY_FLOW_COUNTER", || {
            assert_eq!(snapshots[0].read_cached::<2>(old).unwrap().values(), [0, 0]);
            let seen = snapshots[1].read_cached::<2>(old).unwrap();
            assert_eq!((seen.values(), seen.stamp().epoch()), ([2, 120], 1));
            // The same one for all callers.
            let again = flows[1].counter().snapshot().read_cached::<2>(old).unwrap();
            assert_eq!(again.stamp(), seen.stamp());
            let stamps = snapshots.each_ref().map(|snapshot| snapshot.latest::<2>().unwrap().1);
            assert!(stamps.iter().all(|stamp| *stamp == stamps[0]), "{stamps:?}");
        });
        assert!(count == 1 || target.control.is_none(), "{count} commands");

        if let Some(control) = &target.control {
            control.ask("fail QUERY_FLOW_COUNTER 5 1 0x77");
            let error = snapshots[1].read_cached::<2>(Duration::ZERO).unwrap_err();
            assert!(error.hint().unwrap().contains("syndrome 0x77"), "{error}");
            // The old values are returned to callers that accept old ones, with the old stamp.
            let seen = snapshots[1].read_cached::<2>(old).unwrap();
            assert_eq!((seen.values(), seen.stamp().epoch()), ([2, 120], 1));
        }
        wire.inject(&frame(mac(2), 60));
        assert_eq!(snapshots[1].read_cached::<2>(Duration::ZERO).unwrap().values(), [3, 180]);

        // The snapshot ends with its counter, and the snapshot of a new owner begins at zero.
        let [one, two, three] = flows;
        drop(two);
        assert!(snapshots[1].has_ended() && snapshots[1].read_cached::<2>(old).is_err());
        assert!(!snapshots[0].has_ended());
        let counters: Vec<_> = (0..pool.available()).map(|_| pool.take().unwrap()).collect();
        let again = counters.iter().find(|counter| counter.index() == 1).unwrap();
        assert_eq!(again.snapshot().read_cached::<2>(Duration::ZERO).unwrap().values(), [0, 0]);
        drop((one, three, counters));
        let snapshot = pool.take().unwrap().snapshot();
        assert!(snapshot.has_ended(), "nobody has the counter");
        pool.destroy().unwrap();
        assert!(snapshot.refresh().is_err());
    });
}

#[test]
fn a_sampler_keeps_a_whole_pool_fresh_with_one_command_a_round() {
    on_every_bulk_device(|target, wire, raw| {
        let pool = CounterPool::new(&raw.context, 100).unwrap();
        let counters: Vec<_> = (0..100).map(|_| pool.take().unwrap()).collect();
        let flow = counters[7].create_flow(&raw.qp, &to(1)).unwrap();
        let snapshots: Vec<_> = counters.iter().map(PoolCounter::snapshot).collect();
        let mut sampler = Sampler::new(Duration::from_nanos(100));
        snapshots.iter().for_each(|snapshot| sampler.add(snapshot));
        for round in 1..=3 {
            wire.inject(&frame(mac(1), 60));
            let (count, tick) = commands(target, "QUERY_FLOW_COUNTER", || sampler.tick_at(1_000_000 * round));
            assert_eq!(
                (tick.refreshed, tick.failed, tick.ended),
                (1, 0, 0),
                "a pool is one thing to refresh"
            );
            assert!(count == 1 || target.control.is_none(), "{count} commands");
            for (index, snapshot) in snapshots.iter().enumerate() {
                let (values, stamp) = snapshot.latest::<2>().unwrap();
                assert_eq!(values, if index == 7 { [round, 60 * round] } else { [0, 0] });
                assert_eq!((stamp.epoch(), stamp.taken_ns()), (round, 1_000_000 * round));
            }
        }
        drop((flow, counters));
        assert!(snapshots.iter().all(Snapshot::has_ended));
    });
}

#[test]
fn flows_come_and_go_while_another_thread_reads() {
    on_every_bulk_device(|_, wire, raw| {
        let pool = CounterPool::new(&raw.context, 64).unwrap();
        let steady = pool.take().unwrap().create_flow(&raw.qp, &to(1)).unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (mut reader, counter) = (pool.reader(), steady.counter().clone());
            let is_done = &is_done;
            let reads = scope.spawn(move || {
                let mut last = Totals::default();
                while !is_done.load(Ordering::Relaxed) {
                    let now = reader.read().unwrap().of(&counter).unwrap();
                    assert!(now.packets >= last.packets && now.bytes == now.packets * 60);
                    last = now;
                }
                last
            });
            for round in 0..30 {
                let flow = pool.take().unwrap().create_flow(&raw.qp, &to(2)).unwrap();
                wire.inject(&frame(mac(1), 60));
                wire.inject(&frame(mac(2), 60 + round));
                assert_eq!(flow.counter().read().unwrap(), totals(1, 60 + round as u64));
            }
            is_done.store(true, Ordering::Relaxed);
            assert!(reads.join().unwrap().packets <= 30);
        });
        assert_eq!(steady.counter().read().unwrap(), totals(30, 1800));
        assert_eq!(pool.available(), 63);
    });
}

fn everything(context: &Context) -> (CounterPool, PoolCounter, PoolFlow, uverbs::mlx5::PoolReader, Raw) {
    let raw = Raw::new(context);
    let pool = CounterPool::new(context, 1).unwrap();
    let counter = pool.take().unwrap();
    let flow = counter.create_flow(&raw.qp, &to(1)).unwrap();
    let reader = pool.reader();
    (pool, counter, flow, reader, raw)
}

#[test]
fn everything_is_dropped_in_any_order_and_destroyed_only_in_the_right_one() {
    on_every_bulk_device(|target, _, raw| {
        let objects = || target.control.as_ref().map_or(0, |control| control.ask("objects").len());
        drop(everything(&raw.context));
        let before = objects();
        let (pool, counter, flow, reader, raw) = everything(&raw.context);
        let (pool, error) = pool.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let Raw { qp, cq, memory, pd, .. } = raw;
        let (qp, error) = qp.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop((reader, counter));
        flow.destroy().unwrap();
        qp.destroy().unwrap();
        pool.destroy().unwrap();
        drop((cq, memory, pd));
        assert_eq!(objects(), before);

        let context = OpenOptions::new().devx(true).open(&target.device).unwrap();
        let (pool, counter, flow, reader, raw) = everything(&context);
        drop(context);
        drop(pool);
        drop(raw);
        drop(reader);
        drop(counter);
        drop(flow);
        let context = OpenOptions::new().devx(true).open(&target.device).unwrap();
        let (pool, counter, flow, reader, raw) = everything(&context);
        drop((reader, flow, raw, counter, context));
        drop(pool);
        assert_eq!(objects(), before);
    });
}

#[test]
fn a_context_with_devx_does_what_others_do() {
    on_every_bulk_device(|_, wire, raw| {
        let memory = raw.pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
        let counters = packets_and_bytes(&raw.context);
        let flow = raw.qp.create_flow(&to(1).count(&counters)).unwrap();
        wire.inject(&frame(mac(1), 60));
        assert_eq!(read2(&counters), [1, 60]);
        flow.destroy().unwrap();
        memory.destroy().unwrap();
    });
}
