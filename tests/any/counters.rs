//! Counters: what the manual pages of libibverbs specify, and what the kernel adds.

use crate::common::*;
use uverbs::{Error, ErrorKind, Eth, FlowRule, Point, ReadCountersFlags};

fn to_mac(mac: [u8; 6]) -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst(mac))
}

#[test]
fn the_example_of_the_manual_runs() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        for round in 1..=3 {
            let Some(wire) = target.wire() else { return skip(target, "no frames can be made to arrive") };
            wire.inject(&frame(MAC, 60));
            wire.inject(&frame([2, 0, 0, 0, 0, 9], 60));
            let mut values = [0; 2];
            counters.read_with(&mut values, ReadCountersFlags::PREFER_CACHED).unwrap();
            assert_eq!(values, [round, round * 60]);
        }
        flow.destroy().unwrap();
        counters.destroy().unwrap();
    });
}

#[test]
fn read_before_a_flow_is_invalid() {
    on_every_counting_device(|target| {
        let counters = packets_and_bytes(&target.open());
        refuses(
            counters.read(&mut [0; 2]),
            ErrorKind::InvalidInput,
            EINVAL,
            "no flow uses these counters: create a flow that counts into them first",
        );
    });
}

#[test]
fn read_after_the_last_flow_is_invalid_and_totals_survive_a_rebind() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let rule = to_mac(MAC).count(&counters);
        let flow = raw.qp.create_flow(&rule).unwrap();
        target.wire().iter().for_each(|wire| wire.inject(&frame(MAC, 100)));
        let before = read2(&counters);
        drop(flow);
        refuses(counters.read(&mut [0; 2]), ErrorKind::InvalidInput, EINVAL, "no flow");
        counters.attach(Point::Bytes, 4).unwrap();
        let _flow = raw.qp.create_flow(&rule).unwrap();
        let mut values = [7; 5];
        counters.read(&mut values).unwrap();
        assert_eq!(values, [before[0], before[1], 0, 0, before[1]]);
    });
}

#[test]
fn points_at_one_index_are_summed_and_gaps_are_zero() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = context.create_counters().unwrap();
        for (point, index) in [(Point::Packets, 3), (Point::Packets, 3), (Point::Bytes, 3), (Point::Bytes, 1)]
        {
            counters.attach(point, index).unwrap();
        }
        let _flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        let Some(wire) = target.wire() else { return skip(target, "no frames can be made to arrive") };
        wire.inject(&frame(MAC, 64));
        let mut values = [u64::MAX; 6];
        counters.read(&mut values).unwrap();
        assert_eq!(values, [0, 64, 0, 66, 0, 0]);
    });
}

#[test]
fn a_buffer_without_room_for_the_highest_index_is_invalid() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = context.create_counters().unwrap();
        counters.attach(Point::Packets, 5).unwrap();
        let _flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        refuses(counters.read(&mut [0; 5]), ErrorKind::InvalidInput, EINVAL, "at least 6 allowed");
        refuses(counters.read(&mut []), ErrorKind::InvalidInput, EINVAL, "at least 6 allowed");
        counters.read(&mut [0; 6]).unwrap();
        counters.read(&mut vec![0; 100_000]).unwrap();
    });
}

#[test]
fn the_highest_index_is_the_last_that_a_read_returns() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = context.create_counters().unwrap();
        for index in [8191, 0x8000_0000, u32::MAX] {
            refuses(
                counters.attach(Point::Packets, index),
                ErrorKind::InvalidInput,
                EINVAL,
                "at most 8190 allowed",
            );
        }
        counters.attach(Point::Packets, 8190).unwrap();
        let flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        let mut values = vec![1; 8191];
        counters.read(&mut values).unwrap();
        assert_eq!(values, vec![0; 8191]);
        assert_eq!(flow.reader().unwrap().read().unwrap().len(), 8191);
    });
}

#[test]
fn more_points_than_the_kernel_takes_are_refused() {
    on_every_counting_device(|target| {
        let counters = target.open().create_counters().unwrap();
        for _ in 0..8191 {
            counters.attach(Point::Packets, 0).unwrap();
        }
        refuses(
            counters.attach(Point::Packets, 0),
            ErrorKind::InvalidInput,
            EINVAL,
            "8192 given, at most 8191 allowed",
        );
    });
}

#[test]
fn attach_while_bound_is_busy_and_allowed_again_after() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        for index in [2, 8191] {
            refuses(counters.attach(Point::Bytes, index), ErrorKind::Busy, EBUSY, "a flow uses");
        }
        flow.destroy().unwrap();
        counters.attach(Point::Bytes, 2).unwrap();
    });
}

#[test]
fn an_unknown_description_is_unsupported() {
    assert_eq!(Point::try_from(0).unwrap(), Point::Packets);
    assert_eq!(Point::try_from(1).unwrap(), Point::Bytes);
    refuses(Point::try_from(2), ErrorKind::Unsupported, EOPNOTSUPP, "packets and bytes");
}

/// After this, libmlx5 leaves its mutex locked, so that the next attach never returns.
#[test]
fn a_flow_on_counters_without_points_does_not_deadlock() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = context.create_counters().unwrap();
        let rule = to_mac(MAC).count(&counters);
        refuses(raw.qp.create_flow(&rule), ErrorKind::InvalidInput, EINVAL, "attach a point");
        counters.attach(Point::Packets, 0).unwrap();
        raw.qp.create_flow(&rule).unwrap();
    });
}

#[test]
fn flows_on_one_object_accumulate() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let other = [2, 0, 0, 0, 0, 2];
        let one = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        let two = raw.qp.create_flow(&to_mac(other).count(&counters)).unwrap();
        let Some(wire) = target.wire() else { return skip(target, "no frames can be made to arrive") };
        wire.inject(&frame(MAC, 60));
        wire.inject(&frame(other, 100));
        assert_eq!(read2(&counters), [2, 160]);
        drop(one);
        wire.inject(&frame(MAC, 60));
        wire.inject(&frame(other, 100));
        assert_eq!(read2(&counters), [3, 260]);
        drop(two);
    });
}

#[test]
fn counters_in_use_are_busy_and_given_back() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        let (counters, error): (_, Error) = counters.destroy().unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Busy, Some(EBUSY)));
        assert_eq!(read2(&counters), [0, 0]);
        flow.destroy().unwrap();
        counters.destroy().unwrap();
    });
}

#[test]
fn a_reader_reads_without_a_guard_and_keeps_its_flow() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        let mut reader = flow.reader_with(ReadCountersFlags::PREFER_CACHED).unwrap();
        assert_eq!(reader.values(), [0, 0]);
        target.wire().iter().for_each(|wire| wire.inject(&frame(MAC, 60)));
        assert_eq!(reader.read().unwrap(), read2(&counters));
        let (flow, error) = flow.destroy().unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Busy, Some(EBUSY)));
        drop(flow);
        target.wire().iter().for_each(|wire| wire.inject(&frame(MAC, 60)));
        assert_eq!(reader.read().unwrap(), read2(&counters));
        drop(reader);
        refuses(counters.read(&mut [0; 2]), ErrorKind::InvalidInput, EINVAL, "no flow");
        let plain = raw.qp.create_flow(&to_mac(MAC)).unwrap();
        refuses(plain.reader(), ErrorKind::InvalidInput, EINVAL, "no count action");
    });
}

#[test]
fn values_never_go_down() {
    on_every_counting_device(|target| {
        let Some(wire) = target.wire() else { return skip(target, "no frames can be made to arrive") };
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let flow = raw.qp.create_flow(&to_mac(MAC).count(&counters)).unwrap();
        let mut reader = flow.reader().unwrap();
        let mut last = [0, 0];
        for len in [60, 61, 1514, 9000] {
            wire.inject(&frame(MAC, len));
            let now = reader.read().unwrap();
            assert!(now[0] == last[0] + 1 && now[1] == last[1] + len as u64);
            last.copy_from_slice(now);
        }
    });
}

#[test]
fn counters_of_another_open_device_are_refused() {
    on_every_counting_device(|target| {
        let (context, other) = (target.open(), target.open());
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&other);
        let rule = to_mac(MAC).count(&counters);
        refuses(raw.qp.create_flow(&rule), ErrorKind::InvalidInput, EINVAL, "another open device");
    });
}
