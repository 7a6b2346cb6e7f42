//! Messages between connected queue pairs: what each operation does on both sides, and how each can fail.
#![cfg(feature = "soft")]

#[path = "soft/ring.rs"]
#[allow(dead_code, reason = "the other tests' part of it")]
mod ring;
mod soft;
#[path = "soft/verbs.rs"]
mod verbs;

use std::io::Read;

use ring::Cq;
use soft::*;
use uverbs::soft::RawAttr;
use uverbs_abi::ids::qp;
use uverbs_abi::types::{
    QpCreateFlags, SendFlags, event_type, qp_state, qp_type, wc_opcode, wc_status, wr_opcode,
};
use uverbs_abi::write::{CompEventDesc, ModifyQp, QueryQp, Wc, cmd};
use verbs::*;
use zerocopy::{FromZeros, IntoBytes};

const RC: u8 = qp_type::RC;
const GRH: u32 = 1;
const WITH_IMM: u32 = 2;
const OK: u32 = wc_status::SUCCESS;
const FLUSHED: u32 = wc_status::WR_FLUSH_ERR;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
}

#[test]
fn sends_arrive_in_order_with_what_they_carry() {
    let pair = Pair::new(RC);
    let bytes = pattern(3000);
    pair.a.fill(0, &bytes);
    for (wr_id, at) in [(10, 4000), (11, 8000), (12, 12000)] {
        pair.qb.receive(wr_id, &[pair.b.piece(at, 100), pair.b.piece(at + 100, 2900)]);
    }
    let pieces = [pair.a.piece(0, 1), pair.a.piece(1, 2999)];
    pair.send(&[
        Post::new(1, wr_opcode::SEND, &pieces),
        Post::new(2, wr_opcode::SEND_WITH_IMM, &pieces[..1]).extra(0x1234_5678).flags(SendFlags::empty()),
        Post::inline(3, wr_opcode::SEND, b"inside the request"),
    ]);
    let (sent, received) = (pair.a.take(), pair.b.take());
    assert_eq!(ends(&sent), [(1, OK), (3, OK)]);
    assert_eq!((sent[0].opcode, sent[0].byte_len, sent[0].qp_num), (wc_opcode::SEND, 3000, pair.qa.number));
    assert_eq!(ends(&received), [(10, OK), (11, OK), (12, OK)]);
    let told = |wc: &Wc| (wc.opcode, wc.byte_len, wc.ex, wc.wc_flags, wc.qp_num, wc.port_num);
    let number = pair.qb.number;
    assert_eq!(told(&received[0]), (wc_opcode::RECV, 3000, 0, GRH, number, 1));
    assert_eq!(told(&received[1]), (wc_opcode::RECV, 1, 0x1234_5678, GRH | WITH_IMM, number, 1));
    assert_eq!(told(&received[2]), (wc_opcode::RECV, 18, 0, GRH, number, 1));
    assert_eq!(pair.b.look(4000, 3000), bytes);
    assert_eq!(pair.b.look(8000, 2), [bytes[0], 0]);
    assert_eq!(pair.b.look(12000, 18), *b"inside the request");
    // Three packets, one, one.
    assert_eq!(pair.a.query(&pair.qa).sq_psn, 105);
    assert_eq!(pair.b.query(&pair.qb).rq_psn, 105);
}

#[test]
fn writes_go_to_memory_and_say_so_only_with_immediate_data() {
    let pair = Pair::new(RC);
    pair.a.fill(0, &pattern(500));
    let write = |wr_id, opcode, len| {
        Post::new(wr_id, opcode, &[pair.a.piece(0, len)]).remote(pair.b.address + 777, pair.b.key)
    };
    pair.qb.receive(20, &[]);
    pair.send(&[write(1, wr_opcode::RDMA_WRITE, 500)]);
    assert_eq!(pair.b.take().len(), 0);
    assert_eq!(pair.b.look(777, 500), pattern(500));
    pair.a.fill(0, &[9; 4]);
    pair.send(&[write(2, wr_opcode::RDMA_WRITE_WITH_IMM, 4).extra(5)]);
    let (sent, received) = (pair.a.take(), pair.b.take());
    assert_eq!(ends(&sent), [(1, OK), (2, OK)]);
    assert_eq!((sent[1].opcode, sent[1].wc_flags), (wc_opcode::RDMA_WRITE, WITH_IMM));
    let wc = received[0];
    assert_eq!((wc.wr_id, wc.opcode, wc.byte_len, wc.ex), (20, wc_opcode::RECV_RDMA_WITH_IMM, 4, 5));
    assert_eq!(wc.wc_flags, GRH | WITH_IMM);
    assert_eq!(pair.b.look(777, 5), [9, 9, 9, 9, pattern(5)[4]]);
    // Nothing, to nowhere.
    pair.send(&[Post::new(3, wr_opcode::RDMA_WRITE, &[]).remote(0, 0)]);
    assert_eq!(ends(&pair.a.take()), [(3, OK)]);
}

#[test]
fn a_read_brings_memory_home() {
    let pair = Pair::new(RC);
    pair.b.fill(100, &pattern(5000));
    let pieces = [pair.a.piece(0, 10), pair.a.piece(20, 4990)];
    pair.send(&[Post::new(1, wr_opcode::RDMA_READ, &pieces).remote(pair.b.address + 100, pair.b.key)]);
    let sent = pair.a.take();
    assert_eq!(ends(&sent), [(1, OK)]);
    assert_eq!((sent[0].opcode, sent[0].byte_len), (wc_opcode::RDMA_READ, 5000));
    assert_eq!([pair.a.look(0, 10), pair.a.look(20, 4990)].concat(), pattern(5000));
    assert_eq!(pair.a.look(10, 10), [0; 10]);
    assert_eq!((pair.a.query(&pair.qa).sq_psn, pair.b.query(&pair.qb).rq_psn), (105, 105));
}

#[test]
fn atomic_operations_change_memory_and_tell_what_was_there() {
    let pair = Pair::new(RC);
    let value = |side: &Side, at| u64::from_ne_bytes(side.look(at, 8).try_into().unwrap());
    pair.b.fill(64, &7_u64.to_ne_bytes());
    let atomic = |wr_id, opcode, a, b| {
        let post = Post::new(wr_id, opcode, &[pair.a.piece(8 * wr_id as usize, 8)]);
        post.atomic(pair.b.address + 64, pair.b.key, a, b)
    };
    pair.send(&[
        atomic(1, wr_opcode::ATOMIC_CMP_AND_SWP, 7, u64::MAX),
        atomic(2, wr_opcode::ATOMIC_CMP_AND_SWP, 7, 1),
        atomic(3, wr_opcode::ATOMIC_FETCH_AND_ADD, 5, 0),
    ]);
    let sent = pair.a.take();
    assert_eq!(ends(&sent), [(1, OK), (2, OK), (3, OK)]);
    let told: Vec<_> = sent.iter().map(|wc| (wc.opcode, wc.byte_len)).collect();
    assert_eq!(told, [(wc_opcode::COMP_SWAP, 8), (wc_opcode::COMP_SWAP, 8), (wc_opcode::FETCH_ADD, 8)]);
    assert_eq!([8, 16, 24].map(|at| value(&pair.a, at)), [7, u64::MAX, u64::MAX]);
    assert_eq!(value(&pair.b, 64), 4);
}

#[test]
fn a_large_message_is_moved_whole() {
    let len = if cfg!(miri) { 70_000 } else { 8 << 20 };
    let pair = Pair::with(RC, len + 4096);
    let bytes = pattern(len);
    pair.a.fill(0, &bytes);
    pair.qb.receive(1, &[pair.b.piece(4096, len as u32)]);
    pair.send(&[Post::new(2, wr_opcode::SEND, &[pair.a.piece(0, len as u32)])]);
    assert_eq!((ends(&pair.a.take()), ends(&pair.b.take())), (vec![(2, OK)], vec![(1, OK)]));
    assert!(pair.b.look(4096, len) == bytes);
    if !cfg!(miri) {
        let post = Post::new(3, wr_opcode::SEND, &[pair.a.piece(0, len as u32), pair.a.piece(0, 1)]);
        pair.send(&[post]);
        assert_eq!(ends(&pair.a.take()), [(3, wc_status::LOC_LEN_ERR)]);
    }
}

#[test]
fn a_queue_pair_can_talk_to_itself() {
    let pair = Pair::unconnected(RC, 4096);
    pair.a.raise(RC, &pair.qa, pair.qa.number, qp_state::RTS);
    pair.a.fill(0, &[1, 2, 3]);
    pair.qa.receive(1, &[pair.a.piece(100, 10)]);
    pair.send(&[Post::new(2, wr_opcode::SEND, &[pair.a.piece(0, 3)])]);
    assert_eq!(ends(&pair.a.take()), [(1, OK), (2, OK)]);
    assert_eq!(pair.a.look(100, 4), [1, 2, 3, 0]);
}

#[test]
fn every_send_completes_if_the_queue_pair_says_so() {
    let pair = Pair::unconnected(RC, 4096);
    let flags = RawAttr::input(qp::create::FLAGS, QpCreateFlags::SQ_SIG_ALL.bits().as_bytes());
    let qp = ring::Qp::make(&pair.a.file, create(RC, pair.a.pd, pair.a.cq.handle).with(flags));
    pair.a.raise(RC, &qp, pair.qb.number, qp_state::RTS);
    pair.b.raise(RC, &pair.qb, qp.number, qp_state::RTS);
    let write = Post::new(1, wr_opcode::RDMA_WRITE, &[pair.a.piece(0, 3)]).remote(pair.b.address, pair.b.key);
    qp.post(&write.flags(SendFlags::empty()));
    qp.ring_doorbell(&pair.a.file);
    assert_eq!(ends(&pair.a.take()), [(1, OK)]);
    assert_eq!(pair.a.query(&qp).sq_sig_all, 1);
}

#[test]
fn a_sender_waits_for_the_receiver_if_it_was_told_to() {
    let pair = Pair::new(RC);
    pair.send(&[Post::new(1, wr_opcode::SEND, &[]), Post::new(2, wr_opcode::RDMA_WRITE, &[])]);
    assert_eq!(pair.a.take().len(), 0);
    pair.qb.receive(20, &[]);
    assert_eq!(pair.a.take().len(), 0);
    // Any command will do, of either side.
    pair.b.query(&pair.qb);
    assert_eq!((ends(&pair.a.take()), ends(&pair.b.take())), (vec![(1, OK), (2, OK)], vec![(20, OK)]));

    // It waits no longer than its queue pair is ready.
    pair.send(&[Post::new(3, wr_opcode::SEND, &[])]);
    assert_eq!(pair.a.modify(&change(RC, pair.qa.handle, 0, qp_state::ERR)), Ok(()));
    assert_eq!(ends(&pair.a.take()), [(3, FLUSHED)]);
    pair.qb.receive(21, &[]);
    pair.b.query(&pair.qb);
    assert_eq!(pair.b.take().len(), 0);
}

#[test]
fn a_sender_in_a_hurry_gives_up() {
    let pair = Pair::unconnected(RC, 4096);
    pair.b.raise(RC, &pair.qb, pair.qa.number, qp_state::RTR);
    pair.a.raise(RC, &pair.qa, pair.qb.number, qp_state::RTR);
    let request = ModifyQp { rnr_retry: 6, ..change(RC, pair.qa.handle, 0, qp_state::RTS) };
    assert_eq!(pair.a.modify(&request), Ok(()));
    pair.send(&[Post::new(1, wr_opcode::SEND, &[])]);
    assert_eq!(ends(&pair.a.take()), [(1, wc_status::RNR_RETRY_EXC_ERR)]);
    assert_eq!(pair.a.query(&pair.qa).qp_state, qp_state::ERR);
    assert_eq!(pair.b.query(&pair.qb).qp_state, qp_state::RTR);
}

#[test]
fn a_send_queue_drains_what_has_begun() {
    let pair = Pair::new(RC);
    let to = |state| ModifyQp { attr_mask: 1, ..change(RC, pair.qa.handle, 0, state) };
    pair.send(&[Post::new(1, wr_opcode::SEND, &[]), Post::new(2, wr_opcode::SEND, &[])]);
    assert_eq!(pair.a.modify(&to(qp_state::SQD)), Ok(()));
    assert_eq!(pair.a.query(&pair.qa).sq_draining, 1);
    assert_eq!(pair.a.modify(&to(qp_state::RTS)), Err(nix::libc::EINVAL));
    pair.qb.receive(20, &[]);
    pair.qb.receive(21, &[]);
    assert_eq!(pair.a.query(&pair.qa).sq_draining, 1);
    assert_eq!(ends(&pair.a.take()), [(1, OK)]);
    assert_eq!(pair.a.query(&pair.qa).sq_draining, 0);
    assert_eq!(pair.a.next_event(), (event_type::SQ_DRAINED, 88));
    // It receives all the same.
    pair.qa.receive(10, &[]);
    pair.qb.post(&Post::new(5, wr_opcode::SEND, &[]));
    pair.qb.ring_doorbell(&pair.b.file);
    assert_eq!(ends(&pair.a.take()), [(10, OK)]);
    assert_eq!(pair.a.modify(&to(qp_state::RTS)), Ok(()));
    assert_eq!(ends(&pair.a.take()), [(2, OK)]);
}

#[test]
fn solicited_messages_wake_who_waits_for_them() {
    let pair = Pair::unconnected(RC, 4096);
    let mut command = write(cmd::CREATE_COMP_CHANNEL, &0_u64, 4);
    let fd = pair.b.file.invoke_fd(&mut command).unwrap().unwrap();
    let cq = Cq::new(&pair.b.file, 32, Some(std::os::fd::AsRawFd::as_raw_fd(&fd)));
    let qb = ring::Qp::make(&pair.b.file, create(RC, pair.b.pd, cq.handle));
    pair.a.raise(RC, &pair.qa, qb.number, qp_state::RTS);
    pair.b.raise(RC, &qb, pair.qa.number, qp_state::RTS);
    (1..=3).for_each(|wr_id| qb.receive(wr_id, &[]));
    done(&pair.b.file, write(cmd::REQ_NOTIFY_CQ, &[cq.handle, 1], 0));
    pair.send(&[Post::new(1, wr_opcode::SEND, &[])]);
    pair.send(&[Post::new(2, wr_opcode::SEND, &[]).flags(SIGNALED | SendFlags::SOLICITED)]);
    pair.send(&[Post::new(3, wr_opcode::SEND, &[]).flags(SIGNALED | SendFlags::SOLICITED)]);
    assert_eq!(cq.drain().len(), 3);
    pair.device.unplug();
    let mut records = Vec::new();
    std::fs::File::from(fd).read_to_end(&mut records).unwrap();
    assert_eq!(records.len(), size_of::<CompEventDesc>());
}

#[test]
fn nothing_is_left_of_a_file_whose_sender_waits() {
    let pair = Pair::new(RC);
    pair.send(&[Post::new(1, wr_opcode::SEND, &[])]);
    let Pair { device, a, b, .. } = pair;
    drop(b);
    let request = QueryQp { qp_handle: pair.qa.handle, ..QueryQp::new_zeroed() };
    done(&a.file, write(cmd::QUERY_QP, &request, 128));
    assert_eq!(ends(&a.take()), [(1, wc_status::RETRY_EXC_ERR)]);
    drop(a);
    assert!(device.resources().is_empty());
}
