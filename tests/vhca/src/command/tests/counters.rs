//! Counters of queues and of the port, read as the driver reads them.

use super::*;
use crate::counter::Counter;
use crate::ifc::command::{
    access_register_in, access_register_out, create_qp_in, modify_rq_in, rst2init_qp_in,
};
use crate::ifc::context::{qpc, rqc, wq};
use crate::ifc::counter::{
    alloc_q_counter_out, eth_802_3_cntrs_grp_data_layout as ieee_802_3,
    eth_2819_cntrs_grp_data_layout as rfc_2819, eth_2863_cntrs_grp_data_layout as rfc_2863,
    eth_extended_cntrs_grp_data_layout as extended, ib_port_cntrs_grp_data_layout as infiniband,
    phys_layer_cntrs, ppcnt_reg, query_cong_statistics_in, query_cong_statistics_out, query_q_counter_in,
    query_q_counter_out, query_vport_counter_in, query_vport_counter_out,
};
use crate::object::{Handle, Kind};
use crate::port_counter::Cast;
use crate::queue::{Receive, Rq, state};
use crate::queue_counter::QueueEvent;
use crate::transport::Qp;

const BAD_RESOURCE: u32 = Status::BadResource as u32;
const IN_USE: u32 = Status::BadResourceState as u32;
const BAD_PARAMETER: u32 = Status::BadParameter as u32;

impl Driver {
    fn alloc_set(&mut self) -> (u32, u32) {
        let output = self.run(&input(0x771, 16), 16);
        (output.num(alloc_pd_out::status), output.num(alloc_q_counter_out::counter_set_id))
    }

    fn dealloc_set(&mut self, set: u32) -> u32 {
        let mut command = input(0x772, 16);
        command.set(alloc_q_counter_out::counter_set_id, set);
        self.long(&command).0
    }

    /// The status, and the number of packets out of sequence.
    fn query_set(&mut self, set: u32, clear: bool) -> (u32, u32) {
        let mut command = input(0x773, 32);
        command.set(query_q_counter_in::counter_set_id, set);
        command.set(query_q_counter_in::clear, clear);
        let output = self.run(&command, 256);
        (output.num(alloc_pd_out::status), output.num(query_q_counter_out::out_of_sequence))
    }

    /// A queue pair without queues, in the state RESET.
    fn qp(&mut self) -> u32 {
        let mut command = input(0x500, 272);
        let context = command.part_mut(create_qp_in::qpc);
        context.set(qpc::no_sq, 1_u32);
        context.set(qpc::rq_type, 3_u32);
        let number = self.device.objects.create(Kind::Qp, vec![]).unwrap();
        let qp = Qp { number, ..Qp::new(&command).unwrap() };
        self.device.transport.qps.insert(number, qp);
        number
    }

    fn modify_qp(&mut self, opcode: u32, qp: u32, mask: u32, set: u32) -> u32 {
        let mut command = input(opcode, 272);
        command.set(object::NUMBER, qp);
        command.set(rst2init_qp_in::opt_param_mask, mask);
        command.part_mut(rst2init_qp_in::qpc).set(qpc::counter_set_id, set);
        self.long(&command).0
    }

    fn set_of(&self, qp: u32) -> u32 {
        self.device.transport.qps[&qp].counter_set()
    }

    /// Reads PPCNT: the status, and the group's counters.
    fn ppcnt(&mut self, group: u32, port: u32, clear: bool) -> (u32, Vec<u8>) {
        let mut command = input(0x805, 16 + 256);
        command.set(alloc_pd_in::op_mod, 1_u32);
        command.set(access_register_in::register_id, 0x5008_u32);
        let register = command.part_mut(access_register_in::register_data);
        for (field, value) in
            [(ppcnt_reg::local_port, port), (ppcnt_reg::grp, group), (ppcnt_reg::clr, clear.into())]
        {
            register.set(field, value);
        }
        // The bytes that are sent are not those of the answer.
        register.part_mut(ppcnt_reg::counter_set).fill(0xee);
        let output = self.run(&command, 16 + 256);
        let register = output.part(access_register_out::register_data);
        (output.num(alloc_pd_out::status), register.part(ppcnt_reg::counter_set).to_vec())
    }
}

#[test]
fn sets_are_made_counted_in_and_freed() {
    let mut driver = Driver::new();
    assert_eq!((driver.alloc_set(), driver.alloc_set()), ((OK, 1), (OK, 2)));
    driver.device.counter_sets.count(2, QueueEvent::OutOfSequence);
    assert_eq!((driver.query_set(1, false), driver.query_set(2, true)), ((OK, 0), (OK, 1)));
    assert_eq!(driver.query_set(2, false), (OK, 0));
    assert_eq!((driver.dealloc_set(2), driver.dealloc_set(2)), (OK, BAD_RESOURCE));
    assert_eq!((driver.query_set(2, false).0, driver.query_set(0, false).0), (BAD_RESOURCE, BAD_RESOURCE));
    // A set begins at zero, even if its number was used before.
    driver.device.counter_sets.count(2, QueueEvent::OutOfSequence);
    assert_eq!((driver.alloc_set(), driver.query_set(2, false)), ((OK, 2), (OK, 0)));
}

#[test]
fn there_are_as_many_sets_as_the_capability_says() {
    let mut driver = Driver::new();
    let mut query = input(0x100, 16);
    query.set(alloc_pd_in::op_mod, 1_u32);
    let most = driver.run(&query, 4112)[16..].num(crate::ifc::capability::cmd_hca_cap::max_qp_cnt);
    assert_eq!((1..=most).find(|_| driver.alloc_set().0 != OK), None);
    assert_eq!(driver.alloc_set(), (Status::Limit as u32, 0));
    assert_eq!((driver.dealloc_set(77), driver.alloc_set()), (OK, (OK, 77)));
}

#[test]
fn what_is_refused_says_which_command_and_why() {
    let mut driver = Driver::new();
    let mut command = input(0x772, 16);
    command.set(alloc_q_counter_out::counter_set_id, 9_u32);
    let output = driver.run(&command, 16);
    let said = (output.num(alloc_pd_out::status), output.num(alloc_pd_out::syndrome));
    assert_eq!(said, (BAD_RESOURCE, 0x772 << 16 | BAD_RESOURCE));
    // Too short.
    for (opcode, len, out) in [(0x773, 16, 256), (0x773, 32, 128), (0x770, 16, 528), (0x826, 16, 64)] {
        let status = driver.run(&input(opcode, len), out).num(alloc_pd_out::status);
        let expected =
            if len == 16 && opcode != 0x826 { Status::BadInputLength } else { Status::BadOutputLength };
        assert_eq!(status, expected as u32, "{opcode:x}");
    }
}

/// A queue pair is added to a set when it leaves RESET, and moved to another one by RTS2RTS with the bit for that.
#[test]
fn a_queue_pair_holds_the_set_it_counts_in() {
    const COUNTERS: u32 = 1 << 25;
    let mut driver = Driver::new();
    let [(_, one), (_, two)] = [driver.alloc_set(), driver.alloc_set()];
    let qp = driver.qp();
    assert_eq!(driver.modify_qp(0x502, qp, 0, 99), BAD_RESOURCE);
    assert_eq!((driver.device.transport.qps[&qp].state(), driver.set_of(qp)), (0, 0), "nothing has changed");
    assert_eq!((driver.modify_qp(0x502, qp, 0, one), driver.set_of(qp)), (OK, one));
    assert_eq!(driver.dealloc_set(one), IN_USE);
    assert_eq!((driver.modify_qp(0x503, qp, 0, two), driver.modify_qp(0x504, qp, 0, two)), (OK, OK));
    assert_eq!(driver.set_of(qp), one, "these do not move it");
    assert_eq!((driver.modify_qp(0x505, qp, 0, two), driver.set_of(qp)), (OK, one), "nor without the bit");
    assert_eq!((driver.modify_qp(0x505, qp, COUNTERS, two), driver.set_of(qp)), (OK, two));
    assert_eq!((driver.dealloc_set(one), driver.dealloc_set(two)), (OK, IN_USE));
    assert_eq!((driver.modify_qp(0x505, qp, COUNTERS, one), driver.set_of(qp)), (BAD_RESOURCE, two));
    assert_eq!((driver.modify_qp(0x505, qp, COUNTERS, 0), driver.set_of(qp)), (OK, 0));
    assert_eq!(driver.dealloc_set(two), OK);

    // Destroying a queue pair, or resetting it, removes it from the set.
    let (_, set) = driver.alloc_set();
    assert_eq!(driver.modify_qp(0x505, qp, COUNTERS, set), OK);
    assert_eq!((driver.short(0x50a, qp).0, driver.set_of(qp)), (OK, 0));
    assert_eq!(driver.modify_qp(0x502, qp, 0, set), OK);
    assert_eq!(
        (driver.dealloc_set(set), driver.short(0x501, qp).0, driver.dealloc_set(set)),
        (IN_USE, OK, OK)
    );
}

/// A receive queue is added to a set by MODIFY_RQ with the bit for that.
#[test]
fn a_receive_queue_counts_packets_without_a_request_in_its_set() {
    const COUNTERS: u64 = 1 << 3;
    let mut driver = Driver::new();
    let [(_, one), (_, two)] = [driver.alloc_set(), driver.alloc_set()];
    // A ring of one request, of which none is posted.
    let mut context = vec![0; 248];
    let ring = &mut context[rqc::wq.offset / 8..];
    for (field, value) in [(wq::wq_type, 1), (wq::log_wq_stride, 4), (wq::dbr_addr, OUTPUT + 0x8000)] {
        ring.set(field, value);
    }
    ring.put(wq::pas, &OUTPUT.to_be_bytes());
    let number = driver.device.objects.create(Kind::Rq, vec![]).unwrap();
    driver.device.rqs.insert(number, Rq::new(&context).unwrap());
    let mut modify = |from: u32, to: u32, mask: u64, set: u32| {
        let mut command = input(0x909, 272);
        command.set(object::NUMBER, number);
        command.set(modify_rq_in::rq_state, from);
        command.set(modify_rq_in::modify_bitmask, mask);
        let context = command.part_mut(modify_rq_in::ctx);
        context.set(rqc::state, to);
        context.set(rqc::counter_set_id, set);
        let status = driver.long(&command).0;
        let packet = Receive { bytes: &[0; 60], tag: 0, hash: 0, headers: [0; 2], sum: [0; 2] };
        driver.device.deliver(number, &packet);
        (status, driver.device.rqs[&number].counter_set())
    };
    let (reset, ready) = (state::RESET, state::READY);
    assert_eq!(modify(reset, ready, COUNTERS, 99), (BAD_RESOURCE, 0));
    assert_eq!(modify(reset, reset, COUNTERS, one), (OK, one), "it is not ready");
    assert_eq!(modify(reset, ready, COUNTERS, one), (OK, one));
    assert_eq!(modify(ready, ready, 0, two), (OK, one), "not without the bit");
    assert_eq!(modify(ready, ready, COUNTERS, two), (OK, two));
    assert_eq!(driver.device.statistics.no_request, 5);
    let out_of_buffer = |driver: &mut Driver, set: u32| {
        let mut shown = [0; 256];
        driver.device.counter_sets.read(set, false).unwrap().show(&mut shown);
        shown[..].num(query_q_counter_out::out_of_buffer)
    };
    assert_eq!((out_of_buffer(&mut driver, one), out_of_buffer(&mut driver, two)), (2, 1));
    assert_eq!((driver.dealloc_set(one), driver.dealloc_set(two)), (OK, IN_USE));
    assert_eq!((driver.short(0x90a, number).0, driver.dealloc_set(two)), (OK, OK));
}

/// Two received frames and one sent, of different kinds, and packets of queue pairs.
fn busy() -> Driver {
    let mut driver = Driver::new();
    let frame = |first: u8, len: usize| [&[first; 6][..], &vec![0; len - 6]].concat();
    driver.device.receive(&frame(0xff, 60));
    driver.device.receive(&frame(0x02, 100));
    let counts = &mut driver.device.port_counts;
    let rdma = &mut counts.function.rdma;
    rdma.received.count(Cast::Unicast, 1000);
    rdma.sent.count(Cast::Multicast, 1 << 33);
    counts.link.frames.sent.count(Cast::Multicast, 200);
    counts.function.ethernet.sent.count(Cast::Multicast, 200);
    (counts.link.refused, counts.link.wrong_sums, counts.marked) = (70_000, 7, 5);
    driver
}

#[test]
fn the_function_tells_what_came_and_went_by_protocol() {
    use query_vport_counter_out::*;
    let mut driver = busy();
    let mut query = input(0x770, 32);
    let expected = [
        (received_ib_unicast, 1, 1000),
        (transmitted_ib_multicast, 1, 1 << 33),
        (received_eth_broadcast, 1, 60),
        (received_eth_unicast, 1, 100),
        (transmitted_eth_multicast, 1, 200),
    ];
    // The second read clears them.
    for clear in [false, true] {
        query.set(query_vport_counter_in::clear, clear);
        let output = driver.run(&query, 528);
        assert_eq!(output.num(alloc_pd_out::status), OK);
        let counter = |field: Field| {
            let [packets, octets] = [traffic_counter::packets, traffic_counter::octets]
                .map(|part| output.wide(part.within(field)));
            (field, packets, octets)
        };
        let found = ALL.iter().map(|(_, field)| counter(*field));
        let found: Vec<_> = found.filter(|(_, packets, octets)| packets + octets > 0).collect();
        assert_eq!(found, expected);
    }
    let mut cleared = driver.run(&query, 528);
    cleared[..16].fill(0);
    assert_eq!(cleared, [0; 528]);
    assert_ne!(driver.device.port_counts.link, Default::default(), "those of the wire are others");
    for (field, value) in [(query_vport_counter_in::other_vport, 1), (query_vport_counter_in::port_num, 2)] {
        let mut query = input(0x770, 32);
        query.set(field, value as u32);
        assert_eq!(driver.run(&query, 528).num(alloc_pd_out::status), BAD_PARAMETER);
    }
}

#[test]
fn marks_of_congestion_are_told_until_they_are_cleared() {
    let mut driver = busy();
    let mut query = input(0x826, 16);
    let marked = Field::new(query_cong_statistics_out::np_ecn_marked_roce_packets_high.offset, 64);
    assert_eq!(driver.run(&query, 272).wide(marked), 5);
    query.set(query_cong_statistics_in::clear, 1_u32);
    assert_eq!((driver.run(&query, 272).wide(marked), driver.run(&query, 272).wide(marked)), (5, 0));
}

#[test]
fn every_group_of_the_port_register_has_what_was_counted() {
    let mut driver = busy();
    let wide = |field: Field| Field::new(field.offset, 64);
    let groups: &[(u32, &[(Field, u64)])] = &[
        (
            0x0,
            &[
                (ieee_802_3::a_frames_received_ok_high, 2),
                (ieee_802_3::a_octets_received_ok_high, 160),
                (ieee_802_3::a_broadcast_frames_received_ok_high, 1),
                (ieee_802_3::a_frames_transmitted_ok_high, 1),
                (ieee_802_3::a_octets_transmitted_ok_high, 200),
                (ieee_802_3::a_multicast_frames_xmitted_ok_high, 1),
            ],
        ),
        (
            0x1,
            &[
                (rfc_2863::if_in_octets_high, 160),
                (rfc_2863::if_in_ucast_pkts_high, 1),
                (rfc_2863::if_in_broadcast_pkts_high, 1),
                (rfc_2863::if_in_errors_high, 70_000),
                (rfc_2863::if_out_octets_high, 200),
                (rfc_2863::if_out_multicast_pkts_high, 1),
            ],
        ),
        (
            0x2,
            &[
                (rfc_2819::ether_stats_octets_high, 160),
                (rfc_2819::ether_stats_pkts_high, 2),
                (rfc_2819::ether_stats_broadcast_pkts_high, 1),
            ],
        ),
        (0x5, &[(extended::rx_icrc_encapsulated_high, 7)]),
        (0x3, &[]),
        (0x10, &[]),
        (0x11, &[]),
        (0x12, &[]),
        (0x13, &[]),
        (0x16, &[]),
    ];
    for (group, expected) in groups {
        let mut wanted = vec![0; 248];
        expected.iter().for_each(|(field, value)| wanted.set(wide(*field), *value));
        assert_eq!(driver.ppcnt(*group, 1, false), (OK, wanted), "group {group:#x}");
    }
    assert_eq!(driver.ppcnt(0x3f, 1, false).0, BAD_PARAMETER);
    assert_eq!(driver.ppcnt(0x0, 2, false).0, BAD_PARAMETER);
}

/// InfiniBand's counters are narrow, and saturate.
#[test]
fn narrow_counters_do_not_wrap() {
    let mut driver = busy();
    for _ in 0..300 {
        driver.device.set_port(false);
        driver.device.set_port(false);
        driver.device.set_port(true);
    }
    assert_eq!(driver.ppcnt(0x12, 1, false).1.num(phys_layer_cntrs::link_down_events), 300);
    let mut wanted = vec![0; 248];
    wanted.set(infiniband::link_downed_counter, 255_u32);
    wanted.set(infiniband::port_rcv_errors, 0xffff_u32);
    assert_eq!(driver.ppcnt(0x20, 1, true), (OK, wanted));
    assert_eq!(driver.ppcnt(0x20, 1, false), (OK, vec![0; 248]), "it was cleared");
    assert_ne!(driver.device.port_counts.function, Default::default(), "those of the function are others");
}

#[test]
fn the_driver_goes_and_the_port_counts_on() {
    let mut driver = busy();
    let (_, set) = driver.alloc_set();
    let before = driver.device.port_counts;
    assert_eq!(driver.short(0x105, 0).0, OK);
    assert_eq!(driver.query_set(set, false).0, BAD_RESOURCE);
    assert_eq!(driver.device.port_counts, before);
    assert_eq!(
        driver.device.port_counts.function.ethernet.received.sum(),
        Counter { packets: 2, octets: 160 }
    );
    assert!(driver.device.objects.expect(Handle(Kind::CounterSet, set.into())).is_err());
}
