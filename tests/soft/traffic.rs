//! Frames through the soft device: rings, completions, events, errors.

use std::io::Read;
use std::sync::atomic::Ordering;

use crate::commands::ring::{Cq, Qp};
use crate::commands::*;
use uverbs::transport::Mapping;
use uverbs_abi::rxe::Sge;
use uverbs_abi::types::{QpAttrMask, SendFlags, event_type, qp_state, wc_opcode, wc_status};
use uverbs_abi::write::{AsyncEventDesc, CompEventDesc, QueryQp, QueryQpResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// The mistake, the pieces with it, and the status.
type Bad = (&'static str, fn(&Pair) -> Vec<Sge>, u32);

/// Two queue pairs on one completion queue, both ready, and memory; the second one has a flow for `OTHER`.
struct Pair {
    world: World,
    cq: Cq,
    a: Qp,
    b: Qp,
    memory: Mapping,
    address: u64,
    key: u32,
}

impl Pair {
    fn new() -> Self {
        Self::on(|world| Cq::new(&world.file, 32, None))
    }

    fn on(cq: impl FnOnce(&World) -> Cq) -> Self {
        let world = World::new();
        let cq = cq(&world);
        let [a, b] = [(); 2].map(|()| Qp::new(&world.file, world.pd, &cq));
        world.ready(a.handle);
        world.ready(b.handle);
        done(&world.file, create_flow(b.handle, &[eth(OTHER)]));
        let (_, key, address, memory) = register(&world.file, world.pd, 16384);
        Self { world, cq, a, b, memory, address, key }
    }

    fn piece(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: self.address + offset as u64, length, lkey: self.key }
    }

    fn frame(&self, len: usize) -> Vec<u8> {
        let mut frame: Vec<u8> = (0..len).map(|i| i as u8).collect();
        frame[..6].copy_from_slice(&OTHER);
        frame
    }

    fn send(&self, wr_id: u64, pieces: &[Sge]) {
        self.a.post_send(wr_id, SIGNALED, pieces);
        self.a.ring_doorbell(&self.world.file);
    }

    fn state(&self, qp: &Qp) -> u8 {
        let request = QueryQp { qp_handle: qp.handle, ..QueryQp::new_zeroed() };
        let command = done(&self.world.file, write(cmd::QUERY_QP, &request, 128));
        answer::<QueryQpResp>(&command, CORE_OUT).qp_state
    }

    fn modify(&self, qp: &Qp, state: u8) {
        done(&self.world.file, write(cmd::MODIFY_QP, &modify(qp.handle, state, QpAttrMask::empty()), 0));
    }
}

#[test]
fn a_frame_goes_from_ring_to_ring() {
    let pair = Pair::new();
    let frame = pair.frame(100);
    assert!(pair.memory.write(0, &frame));
    pair.b.post_receive(7, &[pair.piece(1000, 60), pair.piece(3001, 500)]);
    pair.send(1, &[pair.piece(0, 40), pair.piece(40, 60)]);
    let (received, sent) = (pair.cq.ring.take().unwrap(), pair.cq.ring.take().unwrap());
    assert_eq!((sent.wr_id, sent.status, sent.opcode), (1, wc_status::SUCCESS, wc_opcode::SEND));
    assert_eq!((sent.qp_num, received.qp_num), (pair.a.number, pair.b.number));
    assert_eq!((received.wr_id, received.opcode, received.byte_len), (7, wc_opcode::RECV, 100));
    let mut back = [0; 100];
    assert!(pair.memory.read(1000, &mut back[..60]));
    assert!(pair.memory.read(3001, &mut back[60..]));
    assert_eq!(back, frame[..]);
    assert!(pair.cq.ring.take().is_none());
    // Unsignalled, and inline.
    pair.a.post_send(2, SendFlags::empty(), &[pair.piece(0, 100)]);
    pair.a.post_inline(3, &frame[..64]);
    pair.a.ring_doorbell(&pair.world.file);
    assert_eq!(pair.cq.drain(), [(3, wc_status::SUCCESS)]);
}

#[test]
fn a_dropped_frame_is_counted_all_the_same() {
    let pair = Pair::new();
    let handle = pair.world.counters;
    let specs = [eth([2, 0, 0, 0, 0, 3]), count(handle)];
    new_flow(&pair.world.file, create_flow(pair.b.handle, &specs).with(map(&PACKETS_AND_BYTES)));
    let mut frame = pair.frame(60);
    frame[5] = 3;
    pair.world.device.inject(&frame); // nothing posted
    pair.b.post_receive(1, &[pair.piece(0, 64)]);
    pair.world.device.inject(&frame);
    pair.world.device.inject(&pair.frame(60)[..20]); // another address
    assert_eq!(pair.cq.drain(), [(1, wc_status::SUCCESS)]);
    let values: [u64; 2] = answer(&done(&pair.world.file, read_counters(handle, 16)), 1);
    assert_eq!(values, [2, 120]);
    // A queue pair does not receive its own frames.
    done(&pair.world.file, create_flow(pair.a.handle, &[eth([2, 0, 0, 0, 0, 4])]));
    frame[5] = 4;
    assert!(pair.memory.write(0, &frame));
    pair.a.post_receive(9, &[pair.piece(0, 64)]);
    pair.send(2, &[pair.piece(0, 60)]);
    assert_eq!(pair.cq.drain(), [(2, wc_status::SUCCESS)]);
}

#[test]
fn a_tag_is_in_the_immediate_data() {
    let pair = Pair::new();
    let tag = spec(uverbs_abi::flow::SPEC_ACTION_TAG, &[0x34, 0x12, 0, 0, 0, 0, 0, 0]);
    done(&pair.world.file, create_flow(pair.b.handle, &[eth([2, 0, 0, 0, 0, 3]), tag]));
    let mut frame = pair.frame(60);
    frame[5] = 3;
    pair.b.post_receive(1, &[pair.piece(0, 64)]);
    pair.world.device.inject(&frame);
    let wc = pair.cq.ring.take().unwrap();
    assert_eq!((wc.ex, wc.wc_flags, wc.port_num), (0x1234, 0, 1));
}

#[test]
fn a_bad_send_stops_the_send_queue_and_flushes_it_and_receives_go_on() {
    let bad: [Bad; 8] = [
        ("an unknown key", |p| vec![Sge { lkey: p.key ^ 1, ..p.piece(0, 60) }], wc_status::LOC_PROT_ERR),
        ("a key of nothing", |p| vec![Sge { lkey: u32::MAX, ..p.piece(0, 60) }], wc_status::LOC_PROT_ERR),
        ("the end of the region", |p| vec![p.piece(16380, 60)], wc_status::LOC_PROT_ERR),
        (
            "an address before it",
            |p| vec![Sge { addr: p.address - 1, ..p.piece(0, 60) }],
            wc_status::LOC_PROT_ERR,
        ),
        (
            "an address that wraps",
            |p| vec![Sge { addr: u64::MAX, ..p.piece(0, 60) }],
            wc_status::LOC_PROT_ERR,
        ),
        ("a frame too short", |p| vec![p.piece(0, 13)], wc_status::LOC_LEN_ERR),
        ("a frame too long", |p| vec![p.piece(0, 9217)], wc_status::LOC_LEN_ERR),
        ("nothing", |_| vec![], wc_status::LOC_LEN_ERR),
    ];
    for (name, pieces, status) in bad {
        let pair = Pair::new();
        pair.a.post_receive(5, &[pair.piece(0, 64)]);
        // A failed request has a completion although it is not signaled.
        pair.a.post_send(1, SendFlags::empty(), &pieces(&pair));
        pair.a.post_send(2, SIGNALED, &[pair.piece(0, 60)]);
        pair.a.ring_doorbell(&pair.world.file);
        let flushed = wc_status::WR_FLUSH_ERR;
        assert_eq!(pair.cq.drain(), [(1, status), (2, flushed)], "{name}");
        assert_eq!(pair.state(&pair.a), qp_state::SQE, "{name}");
        pair.a.post_send(3, SIGNALED, &[pair.piece(0, 60)]);
        pair.a.ring_doorbell(&pair.world.file);
        assert_eq!(pair.cq.drain(), [(3, flushed)], "{name}");
        pair.modify(&pair.a, qp_state::ERR);
        assert_eq!(pair.cq.drain(), [(5, flushed)], "{name}");
        assert_eq!(pair.state(&pair.b), qp_state::RTS, "{name}");
    }
}

#[test]
fn rings_full_of_nonsense_do_no_harm() {
    let pair = Pair::new();
    // Numbers of pieces and lengths beyond all limits.
    pair.a.sends.put(&[&[0xff; 208]]);
    pair.a.ring_doorbell(&pair.world.file);
    assert_eq!(pair.cq.drain(), [(u64::MAX, wc_status::LOC_QP_OP_ERR)]);
    pair.b.receives.put(&[&[0xff; 64]]);
    pair.world.device.inject(&pair.frame(60));
    assert_eq!(pair.cq.drain().len(), 1);
    assert_eq!(pair.state(&pair.b), qp_state::ERR);
    // Random indices, and a false header.
    for qp in [&pair.a, &pair.b] {
        pair.modify(qp, qp_state::RESET);
        for ring in [&qp.sends, &qp.receives] {
            for offset in [0, 4, 128, 256] {
                ring.map.store(offset, 0xdead_beef, Ordering::Release);
            }
        }
        pair.world.ready(qp.handle);
        pair.world.device.inject(&pair.frame(60));
        pair.modify(qp, qp_state::ERR);
    }
    for offset in [0, 4, 128, 256] {
        pair.cq.ring.map.store(offset, u32::MAX, Ordering::Release);
    }
    pair.world.device.inject(&pair.frame(60));
}

#[test]
fn a_receive_too_small_is_a_length_error() {
    let pair = Pair::new();
    pair.b.post_receive(1, &[pair.piece(0, 59)]);
    pair.b.post_receive(2, &[pair.piece(0, 64)]);
    pair.world.device.inject(&pair.frame(60));
    assert_eq!(pair.cq.drain(), [(1, wc_status::LOC_LEN_ERR), (2, wc_status::WR_FLUSH_ERR)]);
    // Requests that are posted later are flushed with the next command.
    pair.b.post_receive(3, &[pair.piece(0, 64)]);
    done(&pair.world.file, write(cmd::REQ_NOTIFY_CQ, &[pair.cq.handle, 0], 0));
    assert_eq!(pair.cq.drain(), [(3, wc_status::WR_FLUSH_ERR)]);
}

#[test]
fn reset_forgets_and_error_flushes() {
    let pair = Pair::new();
    pair.b.post_receive(1, &[pair.piece(0, 64)]);
    pair.modify(&pair.b, qp_state::RESET);
    assert_eq!(pair.cq.drain(), []);
    pair.world.device.inject(&pair.frame(60));
    pair.world.ready(pair.b.handle);
    pair.b.post_receive(2, &[pair.piece(0, 64)]);
    pair.b.post_receive(3, &[pair.piece(0, 64)]);
    pair.world.device.inject(&pair.frame(60));
    pair.modify(&pair.b, qp_state::ERR);
    assert_eq!(pair.cq.drain(), [(2, wc_status::SUCCESS), (3, wc_status::WR_FLUSH_ERR)]);
}

#[test]
fn an_armed_queue_announces_once() {
    let mut channel = None;
    let pair = Pair::on(|world| {
        let mut command = write(cmd::CREATE_COMP_CHANNEL, &0_u64, 4);
        let fd = world.file.invoke_fd(&mut command).unwrap().unwrap();
        let cq = Cq::new(&world.file, 32, Some(std::os::fd::AsRawFd::as_raw_fd(&fd)));
        channel = Some(std::fs::File::from(fd));
        cq
    });
    let arm = |solicited: u32| {
        done(&pair.world.file, write(cmd::REQ_NOTIFY_CQ, &[pair.cq.handle, solicited], 0));
    };
    let receive = |wr_id| {
        pair.b.post_receive(wr_id, &[pair.piece(0, 64)]);
        pair.world.device.inject(&pair.frame(60));
    };
    receive(1); // not armed
    arm(1);
    receive(2); // not solicited
    arm(0);
    receive(3);
    receive(4); // not armed any more
    arm(1);
    pair.modify(&pair.b, qp_state::ERR);
    pair.b.post_receive(5, &[]);
    pair.modify(&pair.b, qp_state::ERR); // an error announces itself
    let mut channel = channel.unwrap();
    let mut record = CompEventDesc::new_zeroed();
    for _ in 0..2 {
        channel.read_exact(record.as_mut_bytes()).unwrap();
        assert_eq!(record.cq_handle, 77);
    }
    pair.world.device.unplug();
    assert_eq!(channel.read(record.as_mut_bytes()).unwrap(), 0);
}

#[test]
fn a_full_completion_queue_breaks_what_is_on_it() {
    let pair = Pair::on(|world| Cq::new(&world.file, 1, None));
    assert_eq!(pair.cq.ring.mask(), 1);
    pair.b.post_receive(1, &[pair.piece(0, 64)]);
    pair.b.post_receive(2, &[pair.piece(0, 64)]);
    pair.world.device.inject(&pair.frame(60));
    pair.world.device.inject(&pair.frame(60));
    assert_eq!(pair.cq.drain(), [(1, wc_status::SUCCESS)]);
    let mut events = std::fs::File::from(pair.world.events.as_ref().unwrap().try_clone().unwrap());
    let mut record = AsyncEventDesc::new_zeroed();
    let expected = [(event_type::CQ_ERR, 77), (event_type::QP_FATAL, 88), (event_type::QP_FATAL, 88)];
    for (event_type, element) in expected {
        events.read_exact(record.as_mut_bytes()).unwrap();
        assert_eq!((record.event_type, record.element), (event_type, element));
    }
    assert_eq!(pair.state(&pair.a), qp_state::ERR);
}

#[test]
fn requests_posted_before_ready_go_out_with_it() {
    let pair = Pair::new();
    let late = Qp::new(&pair.world.file, pair.world.pd, &pair.cq);
    assert!(pair.memory.write(0, &pair.frame(60)));
    pair.b.post_receive(1, &[pair.piece(100, 64)]);
    late.post_send(2, SIGNALED, &[pair.piece(0, 60)]);
    pair.world.ready(late.handle);
    assert_eq!(pair.cq.drain(), [(1, wc_status::SUCCESS), (2, wc_status::SUCCESS)]);
}
