//! Messages between connected queue pairs in cases where the soft device has limits or no clock; `messages.rs` in `tests/any` has the
//! effects of operations on every device.

use std::io::Read;

use crate::commands::ring::{self, Cq};
use crate::commands::verbs::*;
use crate::commands::*;
use uverbs_abi::types::{SendFlags, event_type, qp_state, qp_type, wc_status, wr_opcode};
use uverbs_abi::write::{CompEventDesc, ModifyQp, QueryQp, cmd};
use zerocopy::FromZeros;

const RC: u8 = qp_type::RC;
const OK: u32 = wc_status::SUCCESS;
const FLUSHED: u32 = wc_status::WR_FLUSH_ERR;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
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
fn a_sender_waits_for_the_receiver_if_it_was_told_to() {
    let pair = Pair::new(RC);
    pair.send(&[Post::new(1, wr_opcode::SEND, &[]), Post::new(2, wr_opcode::RDMA_WRITE, &[])]);
    assert_eq!(pair.a.take().len(), 0);
    pair.qb.receive(20, &[]);
    assert_eq!(pair.a.take().len(), 0);
    // Any command has this effect, on either side.
    pair.b.query(&pair.qb);
    assert_eq!((ends(&pair.a.take()), ends(&pair.b.take())), (vec![(1, OK), (2, OK)], vec![(20, OK)]));

    // It waits only as long as its queue pair is ready.
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
    // It still receives.
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
    let mut records = [0; 64];
    assert_eq!(std::fs::File::from(fd).read(&mut records).unwrap(), size_of::<CompEventDesc>());
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

/// A response of eight bytes needs room: without it nothing is sent, and nothing changes at the peer.
#[test]
fn an_atomic_operation_without_room_is_not_carried_out() {
    let add = |pair: &Pair, room| {
        let add = Post::new(1, wr_opcode::ATOMIC_FETCH_AND_ADD, &[pair.a.piece(0, room)]);
        add.atomic(pair.b.address, pair.b.key, 5, 0)
    };
    let pair = Pair::new(RC);
    pair.send(&[add(&pair, 8), add(&pair, 16), add(&pair, 7)]);
    assert_eq!(ends(&pair.a.take()), [(1, OK), (1, OK), (1, wc_status::LOC_LEN_ERR)]);
    assert_eq!(pair.b.look(0, 8), 10_u64.to_ne_bytes());
    let states = [pair.a.query(&pair.qa).qp_state, pair.b.query(&pair.qb).qp_state];
    assert_eq!(states, [qp_state::ERR, qp_state::RTS]);
}
