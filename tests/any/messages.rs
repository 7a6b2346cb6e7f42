//! The effect of each operation of a connection on memory, and its completions, on every device.

use crate::commands::ring;
use crate::commands::verbs::*;
use crate::common::{Target, on_every_device};
use uverbs::soft::RawAttr;
use uverbs_abi::ids::qp;
use uverbs_abi::types::{QpCreateFlags, SendFlags, qp_state, qp_type, wc_opcode, wc_status, wr_opcode};
use uverbs_abi::write::Wc;
use zerocopy::IntoBytes;

const RC: u8 = qp_type::RC;
const GRH: u32 = 1;
const WITH_IMM: u32 = 2;
const OK: u32 = wc_status::SUCCESS;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
}

fn pair(target: &Target) -> Pair<()> {
    let [a, b] = [(); 2].map(|()| Side::on(target.raw(), 16384));
    Pair::between(RC, a, b)
}

#[test]
fn sends_arrive_in_order_with_what_they_carry() {
    on_every_device(|target| {
        let pair = pair(target);
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
        let (sent, received) = (pair.a.take_at_least(2), pair.b.take_at_least(3));
        assert_eq!(ends(&sent), [(1, OK), (3, OK)]);
        assert_eq!(
            (sent[0].opcode, sent[0].byte_len, sent[0].qp_num),
            (wc_opcode::SEND, 3000, pair.qa.number)
        );
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
    });
}

#[test]
fn writes_go_to_memory_and_say_so_only_with_immediate_data() {
    on_every_device(|target| {
        let pair = pair(target);
        pair.a.fill(0, &pattern(500));
        let write = |wr_id, opcode, len| {
            Post::new(wr_id, opcode, &[pair.a.piece(0, len)]).remote(pair.b.address + 777, pair.b.key)
        };
        pair.qb.receive(20, &[]);
        pair.send(&[write(1, wr_opcode::RDMA_WRITE, 500)]);
        assert_eq!(ends(&pair.a.take_at_least(1)), [(1, OK)]);
        assert_eq!(pair.b.take().len(), 0);
        assert_eq!(pair.b.look(777, 500), pattern(500));
        pair.a.fill(0, &[9; 4]);
        pair.send(&[write(2, wr_opcode::RDMA_WRITE_WITH_IMM, 4).extra(5)]);
        let (sent, received) = (pair.a.take_at_least(1), pair.b.take_at_least(1));
        assert_eq!(ends(&sent), [(2, OK)]);
        assert_eq!((sent[0].opcode, sent[0].wc_flags), (wc_opcode::RDMA_WRITE, WITH_IMM));
        let wc = received[0];
        assert_eq!((wc.wr_id, wc.opcode, wc.byte_len, wc.ex), (20, wc_opcode::RECV_RDMA_WITH_IMM, 4, 5));
        assert_eq!(wc.wc_flags, GRH | WITH_IMM);
        assert_eq!(pair.b.look(777, 5), [9, 9, 9, 9, pattern(5)[4]]);
        // A write of zero bytes, to no address.
        pair.send(&[Post::new(3, wr_opcode::RDMA_WRITE, &[]).remote(0, 0)]);
        assert_eq!(ends(&pair.a.take_at_least(1)), [(3, OK)]);
    });
}

#[test]
fn a_read_brings_memory_home() {
    on_every_device(|target| {
        let pair = pair(target);
        pair.b.fill(100, &pattern(5000));
        let pieces = [pair.a.piece(0, 10), pair.a.piece(20, 4990)];
        pair.send(&[Post::new(1, wr_opcode::RDMA_READ, &pieces).remote(pair.b.address + 100, pair.b.key)]);
        let sent = pair.a.take_at_least(1);
        assert_eq!(ends(&sent), [(1, OK)]);
        assert_eq!((sent[0].opcode, sent[0].byte_len), (wc_opcode::RDMA_READ, 5000));
        assert_eq!([pair.a.look(0, 10), pair.a.look(20, 4990)].concat(), pattern(5000));
        assert_eq!(pair.a.look(10, 10), [0; 10]);
        assert_eq!((pair.a.query(&pair.qa).sq_psn, pair.b.query(&pair.qb).rq_psn), (105, 105));
    });
}

#[test]
fn atomic_operations_change_memory_and_tell_what_was_there() {
    on_every_device(|target| {
        let pair = pair(target);
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
        let sent = pair.a.take_at_least(3);
        assert_eq!(ends(&sent), [(1, OK), (2, OK), (3, OK)]);
        let told: Vec<_> = sent.iter().map(|wc| (wc.opcode, wc.byte_len)).collect();
        assert_eq!(told, [(wc_opcode::COMP_SWAP, 8), (wc_opcode::COMP_SWAP, 8), (wc_opcode::FETCH_ADD, 8)]);
        assert_eq!([8, 16, 24].map(|at| value(&pair.a, at)), [7, u64::MAX, u64::MAX]);
        assert_eq!(value(&pair.b, 64), 4);
    });
}

#[test]
fn every_send_completes_if_the_queue_pair_says_so() {
    on_every_device(|target| {
        let pair = pair(target);
        let flags = RawAttr::input(qp::create::FLAGS, QpCreateFlags::SQ_SIG_ALL.bits().as_bytes());
        let qp = ring::Qp::make(&pair.a.file, create(RC, pair.a.pd, pair.a.cq.handle).with(flags));
        pair.a.raise(RC, &qp, pair.qb.number, qp_state::RTS);
        assert_eq!(pair.b.modify(&change(RC, pair.qb.handle, 0, qp_state::RESET)), Ok(()));
        pair.b.raise(RC, &pair.qb, qp.number, qp_state::RTS);
        let write =
            Post::new(1, wr_opcode::RDMA_WRITE, &[pair.a.piece(0, 3)]).remote(pair.b.address, pair.b.key);
        qp.post(&write.flags(SendFlags::empty()));
        qp.ring_doorbell(&pair.a.file);
        assert_eq!(ends(&pair.a.take_at_least(1)), [(1, OK)]);
        assert_eq!(pair.a.query(&qp).sq_sig_all, 1);
    });
}
