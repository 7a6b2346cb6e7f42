//! Messages: the layout of their requests, and the contents of their completions.

use uverbs_abi::mlx5::wqe::{
    CQE_REQ, CQE_REQ_ERR, CQE_RESP_ERR, CQE_RESP_SEND, CQE_RESP_SEND_IMM, CQE_RESP_SEND_INV, CQE_RESP_WR_IMM,
    Cqe64, SYNDROME_REMOTE_ACCESS_ERR, SYNDROME_WR_FLUSH_ERR,
};
#[cfg(feature = "raw")]
use uverbs_abi::types::wc_status;
use uverbs_abi::types::{SendFlags, WcFlags, wc_opcode};
use uverbs_abi::write::{AhAttr, GlobalRoute, QpCap};
use zerocopy::FromZeros;

#[cfg(feature = "raw")]
use super::super::Unread;
use super::{Bench, PIECE, cap, inline, pieces, poll};
use crate::driver::completion::{Completion, Status};
#[cfg(feature = "raw")]
use crate::driver::completion::{Fields, Missed};
use crate::driver::mlx5::Form;
use crate::driver::mlx5::address::plan_ah;
use crate::driver::request::{ADDRESSED, MESSAGES};
use crate::driver::request::{Address, Opcode, Refused, Remote, Request, Sge, ToSrq};
use crate::driver::seam::{Lower, SendRing};

const REMOTE: Remote = Remote { address: 0x0102_0304_0506_0708, rkey: 0x1122_3344 };

fn bench(wanted: &QpCap) -> Bench {
    let mut bench = Bench::of(Form::Messages, 0, wanted);
    bench.sends.set_ready(true);
    bench
}

/// The words of a request, as the device reads them.
fn words(bench: &Bench, block: usize, units: usize) -> Vec<u32> {
    let bytes = bench.ring(block, units * 16);
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

fn post(bench: &mut Bench, opcode: Opcode<'_>, flags: SendFlags, list: &[Sge]) -> Result<(), Refused> {
    bench.sends.put(&Request { wr_id: 7, flags, opcode, data: pieces(list), head: None })
}

/// What stock libmlx5 requests for 32 requests of 4 pieces and 64 bytes, and the sizes that are then returned.
#[test]
fn a_queue_pair_is_as_large_as_libmlx5_makes_it() {
    let bench = bench(&cap(32, 32, 4, 64));
    assert_eq!(
        (bench.request.sq_wqe_count, bench.request.rq_wqe_count, bench.request.rq_wqe_shift),
        (256, 32, 6)
    );
    assert_eq!((bench.request.sq_buf_addr, bench.cap.max_send_wr, bench.cap.max_inline_data), (0, 51, 124));
}

#[test]
fn each_operation_has_its_segments() {
    const NONE: SendFlags = SendFlags::empty();
    let mut bench = bench(&cap(16, 1, 2, 0));
    let piece = [PIECE.length, PIECE.lkey, (PIECE.addr >> 32) as u32, PIECE.addr as u32];
    let remote = [0x0102_0304, 0x0506_0708, 0x1122_3344, 0];
    let immediate = u32::from_ne_bytes([0xa0, 0xa1, 0xa2, 0xa3]);
    let cases = [
        (Opcode::Send, SendFlags::SIGNALED, 0x0a, [0x08, 0], Vec::new()),
        (Opcode::SendImmediate(immediate), SendFlags::SOLICITED, 0x0b, [0x02, 0xa0a1_a2a3], Vec::new()),
        (Opcode::SendInvalidate(0x0a0b_0c0d), NONE, 0x01, [0, 0x0a0b_0c0d], Vec::new()),
        (Opcode::Write(REMOTE), SendFlags::FENCE, 0x08, [0x80, 0], remote.to_vec()),
        (Opcode::WriteImmediate(REMOTE, immediate), NONE, 0x09, [0, 0xa0a1_a2a3], remote.to_vec()),
        (Opcode::Read(REMOTE), NONE, 0x10, [0, 0], remote.to_vec()),
        (
            Opcode::CompareSwap { remote: REMOTE, compare: 1 << 32 | 2, swap: 3 << 32 | 4 },
            NONE,
            0x11,
            [0, 0],
            [remote, [3, 4, 1, 2]].concat(),
        ),
        (Opcode::FetchAdd { remote: REMOTE, add: 5 }, NONE, 0x12, [0, 0], [remote, [0, 5, 0, 0]].concat()),
    ];
    for (number, (opcode, flags, code, [low, word], middle)) in cases.into_iter().enumerate() {
        post(&mut bench, opcode, flags, &[PIECE]).unwrap();
        // Atomic operations return eight bytes, whatever room there is.
        let len = if matches!(code, 0x11 | 0x12) { 8 } else { PIECE.length };
        let units = 2 + middle.len() as u32 / 4;
        let block = number;
        let control = [(block as u32) << 8 | code, 0x1234 << 8 | units, low, word];
        assert_eq!(
            words(&bench, block, units as usize),
            [&control[..], &middle, &[len], &piece[1..]].concat(),
            "{opcode:?}"
        );
    }
}

/// After the segment that names the peer's queue, the segments are those of a message.
#[test]
fn over_an_extended_connection_each_request_names_a_queue() {
    let mut bench = Bench::of(Form::Extended, 0, &cap(4, 0, 2, 0));
    bench.sends.set_ready(true);
    let mut send = |opcode, srq| {
        let opcode = ToSrq(opcode, srq);
        bench.sends.one::<true, ADDRESSED>().put(7, SendFlags::empty(), &opcode, None, &pieces(&[PIECE]))
    };
    assert_eq!((send(Opcode::Send, 0x0001_0203), send(Opcode::Read(REMOTE), 5)), (Ok(()), Ok(())));
    let piece = [PIECE.length, PIECE.lkey, (PIECE.addr >> 32) as u32, PIECE.addr as u32];
    let queue = |number| [number, 0, 0, 0];
    assert_eq!(words(&bench, 0, 3), [[0x0a, 0x1234 << 8 | 3, 0, 0], queue(0x0001_0203), piece].concat());
    let remote = [0x0102_0304, 0x0506_0708, 0x1122_3344, 0];
    assert_eq!(
        words(&bench, 1, 4),
        [[1 << 8 | 0x10, 0x1234 << 8 | 4, 0, 0], queue(5), remote, piece].concat()
    );
    // In parts, as bindings write it.
    let mut batch = bench.sends.one::<true, ADDRESSED>();
    assert_eq!(batch.set_srq(1), Ok(()));
    batch.begin(8, SendFlags::empty(), &Opcode::Send).unwrap();
    assert_eq!(
        (batch.set_srq(0x99), batch.set_data(SendFlags::empty(), None, &pieces(&[PIECE]))),
        (Ok(()), Ok(()))
    );
    drop(batch);
    assert_eq!(words(&bench, 2, 3), [[2 << 8 | 0x0a, 0x1234 << 8 | 3, 0, 0], queue(0x99), piece].concat());
    let mut bench = Bench::of(Form::Messages, 0, &cap(4, 0, 2, 0));
    assert_eq!(bench.sends.one::<true, MESSAGES>().set_srq(1), Err(Refused::Lacks));
}

#[test]
fn a_message_of_nothing_is_its_control_segment_and_bytes_stand_behind_it() {
    let mut bench = bench(&cap(4, 1, 1, 32));
    post(&mut bench, Opcode::Send, SendFlags::empty(), &[]).unwrap();
    assert_eq!(words(&bench, 0, 1), [0x0a, 0x1234 << 8 | 1, 0, 0]);
    let request = Request {
        wr_id: 1,
        flags: SendFlags::empty(),
        opcode: Opcode::Write(REMOTE),
        data: inline(&[b"0123", b"4"]),
        head: None,
    };
    bench.sends.put(&request).unwrap();
    let written = words(&bench, 1, 3);
    assert_eq!(written[..2], [1 << 8 | 0x08, 0x1234 << 8 | 3]);
    assert_eq!((written[8], &bench.ring(1, 48)[36..41]), (0x8000_0005, &b"01234"[..]));
}

#[test]
fn what_has_no_place_is_refused_before_it_is_written() {
    let mut bench = bench(&cap(2, 1, 1, 0));
    assert_eq!(
        post(&mut bench, Opcode::Large { header: &[0; 14], mss: 1 }, SendFlags::empty(), &[]),
        Err(Refused::Lacks)
    );
    assert_eq!(bench.sends.next_slot(), 0);
    while post(&mut bench, Opcode::Read(REMOTE), SendFlags::empty(), &[PIECE]).is_ok() {}
    assert_eq!(post(&mut bench, Opcode::Send, SendFlags::empty(), &[PIECE]), Err(Refused::Full));
}

/// Consecutive completions of one kind are taken by a separate loop, and others between them by another path.
#[test]
fn completions_of_every_kind_come_in_their_order_whatever_is_before_them() {
    let kinds = [CQE_REQ, CQE_RESP_SEND, CQE_REQ_ERR, CQE_RESP_WR_IMM];
    // Three of each in succession, and the number of places for them.
    for (case, most) in (0..64).zip([1, 2, 3, 8].into_iter().cycle()) {
        let mut bench = bench(&cap(4, 4, 1, 0));
        let mut counters = [0, 0];
        let mut wanted = Vec::new();
        for turn in 0..3 {
            let kind = kinds[case >> (2 * turn) & 3];
            let is_send = matches!(kind, CQE_REQ | CQE_REQ_ERR);
            for _ in 0..2 {
                let counter = &mut counters[usize::from(is_send)];
                let wr_id = u64::from(*counter) << 8 | u64::from(kind);
                if *counter == 4 {
                    continue;
                }
                if is_send {
                    let data = pieces(&[PIECE]);
                    let (flags, opcode, head) = (SendFlags::empty(), Opcode::Send, None);
                    bench.sends.put(&Request { wr_id, flags, opcode, data, head }).unwrap();
                } else {
                    bench.receives.put(wr_id, [PIECE].into_iter()).unwrap();
                }
                bench.complete(kind, *counter, |cqe| cqe.byte_cnt = 5.into());
                *counter += 1;
                let status = if kind == CQE_REQ_ERR { Status::General } else { Status::Success };
                wanted.push((wr_id, status));
            }
        }
        let mut found = Vec::new();
        loop {
            let mut batch = Completion::batch::<8>();
            let count = poll(&mut bench.queue, &mut batch[..most]);
            found.extend(batch[..count].iter().map(|completion| (completion.wr_id, completion.status)));
            if count == 0 {
                break;
            }
        }
        assert_eq!(found, wanted, "{case}");
    }
}

fn completed(bench: &mut Bench) -> Completion {
    let mut batch = Completion::batch::<2>();
    assert_eq!(poll(&mut bench.queue, &mut batch), 1);
    batch[0]
}

#[test]
fn completions_say_what_was_done() {
    let (none, with_imm) = (WcFlags::empty(), WcFlags::WITH_IMM);
    for (code, opcode, len, flags) in [
        (0x0a, wc_opcode::SEND, 0, none),
        (0x0b, wc_opcode::SEND, 0, with_imm),
        (0x08, wc_opcode::RDMA_WRITE, 0, none),
        (0x09, wc_opcode::RDMA_WRITE, 0, with_imm),
        (0x10, wc_opcode::RDMA_READ, 77, none),
        (0x11, wc_opcode::COMP_SWAP, 8, none),
        (0x12, wc_opcode::FETCH_ADD, 8, none),
    ] {
        let mut bench = bench(&cap(4, 1, 1, 0));
        post(&mut bench, Opcode::Send, SendFlags::empty(), &[PIECE]).unwrap();
        bench.complete(CQE_REQ, 0, |cqe| {
            cqe.sop_drop_qpn = (code << 24 | 0x1234).into();
            cqe.byte_cnt = 77.into();
        });
        let done = completed(&mut bench);
        assert_eq!((done.wr_id, done.status, done.opcode, done.len), (7, Status::Success, opcode, len));
        assert_eq!((done.flags, done.immediate), (flags, 0));
    }
}

#[test]
fn completions_say_what_came() {
    let immediate = u32::from_ne_bytes([1, 2, 3, 4]);
    for (kind, opcode, flags, word) in [
        (CQE_RESP_SEND, wc_opcode::RECV, WcFlags::empty(), 0),
        (CQE_RESP_SEND_IMM, wc_opcode::RECV, WcFlags::WITH_IMM, immediate),
        (CQE_RESP_SEND_INV, wc_opcode::RECV, WcFlags::WITH_INVALIDATE, 0x0102_0304),
        (CQE_RESP_WR_IMM, wc_opcode::RECV_RDMA_WITH_IMM, WcFlags::WITH_IMM, immediate),
    ] {
        let mut bench = bench(&cap(1, 4, 1, 0));
        bench.receives.put(9, [PIECE].into_iter()).unwrap();
        bench.complete(kind, 0, |cqe| {
            cqe.imm_inval_pkey = 0x0102_0304.into();
            cqe.byte_cnt = 100.into();
            cqe.flags_rqpn = 0x1000_0055.into();
            cqe.slid = 7.into();
        });
        let done = completed(&mut bench);
        assert_eq!((done.wr_id, done.status, done.opcode, done.len), (9, Status::Success, opcode, 100));
        assert_eq!((done.immediate, done.flags), (word, flags | WcFlags::GRH));
        assert_eq!((done.source_qp, done.source_lid()), (0x55, 7));
    }
}

#[test]
fn failures_have_their_reasons() {
    let mut bench = bench(&cap(4, 4, 1, 0));
    let failed = |syndrome: u8| move |cqe: &mut Cqe64| cqe.timestamp = u64::from(syndrome).into();
    post(&mut bench, Opcode::Write(REMOTE), SendFlags::empty(), &[PIECE]).unwrap();
    bench.receives.put(9, [PIECE].into_iter()).unwrap();
    bench.complete(CQE_REQ_ERR, 0, failed(SYNDROME_REMOTE_ACCESS_ERR));
    assert_eq!(completed(&mut bench).status, Status::RemoteAccess);
    bench.complete(CQE_RESP_ERR, 0, failed(SYNDROME_WR_FLUSH_ERR));
    assert_eq!((completed(&mut bench).wr_id, bench.sends.free()), (9, 4));
}

/// Bindings read a completion in the queue: both paths return the same, and fields that a send does not have are empty.
#[cfg(feature = "raw")]
#[test]
fn what_came_is_read_where_it_lies() {
    let immediate = u32::from_ne_bytes([1, 2, 3, 4]);
    for (kind, word) in [(CQE_RESP_SEND_IMM, immediate), (CQE_RESP_SEND_INV, 0x0102_0304), (CQE_REQ, 0)] {
        for is_short in [false, true] {
            let mut bench = bench(&cap(4, 4, 1, 0));
            post(&mut bench, Opcode::Send, SendFlags::empty(), &[PIECE]).unwrap();
            bench.receives.put(7, [PIECE].into_iter()).unwrap();
            let fill = |cqe: &mut Cqe64| {
                cqe.imm_inval_pkey = 0x0102_0304.into();
                cqe.flags_rqpn = 0x1b00_0055.into();
                cqe.slid = 9.into();
                cqe.ml_path = 0x83;
                cqe.sop_drop_qpn = 0x0a00_1234.into();
            };
            bench.complete(kind, 0, fill);
            let mut place = Unread::default();
            // The short path takes only completions of the same queue pair as the last one.
            assert_eq!(bench.queue.short_unread(|| true, &mut place), Err(Missed::Other));
            assert_eq!(bench.queue.next_unread(|| true, &mut place), Ok(()));
            if is_short {
                let counter = if kind == CQE_REQ { bench.sends.next_slot() as u16 } else { 1 };
                post(&mut bench, Opcode::Send, SendFlags::empty(), &[PIECE]).unwrap();
                bench.receives.put(7, [PIECE].into_iter()).unwrap();
                bench.complete(kind, counter, fill);
                place = Unread::default();
                assert_eq!(bench.queue.short_unread(|| true, &mut place), Ok(()));
            }
            let read = (place.source_qp(), place.source_lid(), place.service_level(), place.path_bits());
            let wanted = if kind == CQE_REQ { (0, 0, 0, 0) } else { (0x55, 9, 0xb, 3) };
            assert_eq!((place.wr_id(), place.immediate(), read), (7, word, wanted), "{kind}");
        }
    }
}

/// Data in completions was not requested. If the device reports that an entry contains the data, it is not in memory.
#[test]
fn data_in_a_completion_that_was_not_asked_for_is_an_error() {
    for format in [1, 2, 3] {
        let mut bench = bench(&cap(1, 4, 1, 0));
        for _ in 0..2 {
            bench.receives.put(9, [PIECE].into_iter()).unwrap();
        }
        bench.complete(CQE_RESP_SEND, 0, |cqe| cqe.op_own = format << 2);
        assert_eq!(completed(&mut bench).status, Status::General);
        #[cfg(feature = "raw")]
        {
            bench.complete(CQE_RESP_SEND, 1, |cqe| cqe.op_own = format << 2);
            let mut place = Unread::default();
            assert_eq!(bench.queue.short_unread(|| true, &mut place), Err(Missed::Other));
            assert_eq!(bench.queue.next_unread(|| true, &mut place), Ok(()));
            assert_eq!((place.wr_id(), place.status()), (9, wc_status::GENERAL_ERR));
        }
    }
}

#[test]
fn completions_that_lie_are_numbers_and_no_more() {
    let mut bench = bench(&cap(4, 4, 1, 0));
    for kind in 0..15_u8 {
        for counter in [0, 3, 4, u16::MAX] {
            bench.complete(kind, counter, |cqe| {
                cqe.sop_drop_qpn = u32::MAX.into();
                cqe.byte_cnt = u32::MAX.into();
            });
            let mut batch = Completion::batch::<2>();
            assert!(poll(&mut bench.queue, &mut batch) <= 1);
        }
    }
}

fn address(attr: AhAttr) -> Address {
    plan_ah(&attr).address()
}

#[test]
fn a_datagram_has_its_address_in_front() {
    let attr = AhAttr { dlid: 0x0a0b, sl: 3, src_path_bits: 5, static_rate: 3, ..AhAttr::new_zeroed() };
    let local = address(attr);
    let grh = GlobalRoute {
        dgid: [0xd1; 16],
        flow_label: 0x12345,
        sgid_index: 9,
        hop_limit: 64,
        traffic_class: 0xc7,
        ..GlobalRoute::new_zeroed()
    };
    let global = address(AhAttr { grh, is_global: 1, ..attr });
    let mut bench = Bench::of(Form::Datagrams, 0, &cap(4, 1, 1, 0));
    bench.sends.set_ready(true);
    let immediate = u32::from_ne_bytes([1, 2, 3, 4]);
    for (ah, immediate) in [(local, None), (global, Some(immediate))] {
        let opcode = Opcode::Datagram { ah, qp_num: 0x55, qkey: 0x1122_3344, immediate };
        post(&mut bench, opcode, SendFlags::SIGNALED, &[PIECE]).unwrap();
    }
    let piece = [PIECE.length, PIECE.lkey, (PIECE.addr >> 32) as u32, PIECE.addr as u32];
    let first = [0x1122_3344, 0, 0x8000_0055, 0x8305_0a0b];
    let none = [0; 8];
    assert_eq!(words(&bench, 0, 5), [&[0x0a, 0x1234 << 8 | 5, 8, 0], &first[..], &none, &piece].concat());
    let far = [0, 0, 0xc740, 1 << 30 | 9 << 20 | 0x12345, 0xd1d1_d1d1, 0xd1d1_d1d1, 0xd1d1_d1d1, 0xd1d1_d1d1];
    let control = [2 << 8 | 0x0b, 0x1234 << 8 | 5, 8, 0x0102_0304];
    assert_eq!(words(&bench, 2, 5), [&control[..], &first, &far, &piece].concat());
    assert_eq!(post(&mut bench, Opcode::Read(REMOTE), SendFlags::SIGNALED, &[PIECE]), Err(Refused::Lacks));
}

#[test]
fn on_ethernet_the_kernel_tells_the_hardware_address() {
    let grh = GlobalRoute { dgid: [0xd1; 16], sgid_index: 3, hop_limit: 64, ..GlobalRoute::new_zeroed() };
    let mut plan = plan_ah(&AhAttr { grh, sl: 5, is_global: 1, ..AhAttr::new_zeroed() });
    plan.payload().1[..10].copy_from_slice(&[10, 0, 0, 0, 2, 0x11, 0x22, 0x33, 0x44, 0x55]);
    let mut bench = Bench::of(Form::Datagrams, 0, &cap(1, 1, 1, 0));
    bench.sends.set_ready(true);
    let opcode = Opcode::Datagram { ah: plan.address(), qp_num: 1, qkey: 0, immediate: None };
    post(&mut bench, opcode, SendFlags::empty(), &[]).unwrap();
    let written = words(&bench, 0, 4);
    assert_eq!(
        (written[7] >> 16, written[7] & 0xc000),
        (0x0a00, 0xc000),
        "service level, and a port of its own range"
    );
    assert_eq!(written[8..12], [0, 0x0211_2233, 0x4455_0040, 3 << 20]);
}

/// Sends and receives, some of them failed, in a ring that is used again and again, with polls of any size.
#[test]
fn completions_come_in_their_order_whatever_the_size_of_a_poll() {
    let mut bench = bench(&cap(8, 8, 1, 0));
    bench.receives.start();
    let mut seed = 1_u64;
    let mut below = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    let mut posted = [0_u64; 2];
    for round in 0..if cfg!(miri) { 40 } else { 4000 } {
        let mut wanted = Vec::new();
        for _ in 0..=below(7) {
            let (queue, has_failed) = (below(2) as usize, below(5) == 0);
            let counter = posted[queue];
            posted[queue] += 1;
            let wr_id = 2 * counter + queue as u64;
            let opcode = if queue == 0 {
                let data = pieces(&[PIECE]);
                let request =
                    Request { wr_id, flags: SendFlags::SIGNALED, opcode: Opcode::Send, data, head: None };
                bench.sends.put(&request).unwrap();
                if has_failed { CQE_REQ_ERR } else { CQE_REQ }
            } else {
                bench.receives.put(wr_id, [PIECE].into_iter()).unwrap();
                if has_failed { CQE_RESP_ERR } else { CQE_RESP_SEND }
            };
            bench.complete(opcode, counter as u16, |cqe| cqe.timestamp = u64::from(has_failed).into());
            wanted.push((wr_id, has_failed));
        }
        bench.sends.publish();
        bench.receives.publish();
        let mut found = Vec::new();
        while found.len() < wanted.len() {
            let mut batch = [Completion::default(); 9];
            let most = 1 + below(9) as usize;
            let count = poll(&mut bench.queue, &mut batch[..most]);
            assert_eq!(count, most.min(wanted.len() - found.len()), "{round}");
            found.extend(batch[..count].iter().map(|said| (said.wr_id, said.status != Status::Success)));
        }
        assert_eq!(found, wanted, "{round}");
        assert_eq!(poll(&mut bench.queue, &mut [Completion::default(); 9]), 0);
    }
}
