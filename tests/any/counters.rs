//! Counters: what the manual pages of libibverbs specify, and what the kernel adds.

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use uverbs::{ErrorKind, Eth, FlowRule, Point};

fn to_mac(mac: [u8; 6]) -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst(mac))
}

#[test]
fn the_example_of_the_manual_runs() {
    hold(each::flows::the_example_of_the_manual_runs);
}

#[test]
fn read_before_a_flow_is_invalid() {
    hold(each::flows::read_before_a_flow_is_invalid);
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
    hold(each::flows::points_at_one_index_are_summed_and_gaps_are_zero);
}

#[test]
fn a_buffer_without_room_for_the_highest_index_is_invalid() {
    hold(each::flows::a_buffer_without_room_for_the_highest_index_is_invalid);
}

#[test]
fn the_highest_index_is_the_last_that_a_read_returns() {
    hold(each::flows::the_highest_index_is_the_last_that_a_read_returns);
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
    hold(each::flows::attach_while_bound_is_busy_and_allowed_again_after);
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
    hold(each::flows::flows_on_one_object_accumulate);
}

#[test]
fn counters_in_use_are_busy_and_given_back() {
    hold(each::flows::counters_in_use_are_busy_and_given_back);
}

#[test]
fn a_reader_reads_without_a_guard_and_keeps_its_flow() {
    hold(each::flows::a_reader_reads_without_a_guard_and_keeps_its_flow);
}

#[test]
fn values_never_go_down() {
    hold(each::flows::values_never_go_down);
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

#[test]
fn thousands_of_packets_are_counted_without_exception() {
    hold(each::flows::thousands_of_packets_are_counted_without_exception);
}
