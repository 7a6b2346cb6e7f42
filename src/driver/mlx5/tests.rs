//! Tests of the queues with a device that the tests simulate.

mod direct;
#[cfg(feature = "raw")]
mod handed;
mod lies;
mod limits;
mod made;
mod messages;
mod one_piece;
mod requests;
mod resize;
mod shared;
mod sizes;
mod threads;
mod windows;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uverbs_abi::mlx5::wqe::{CQE_REQ, CQE_REQ_ERR, CQE_RESP_SEND, Cqe64, WqeCtrlSeg};
use uverbs_abi::mlx5::{AllocUcontextResp, CreateCq, CreateQp};
use uverbs_abi::types::{SendFlags, WcFlags, wc_opcode};
use uverbs_abi::write::QpCap;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use self::made::ends;
pub(super) use self::made::{Elsewhere, open};
use super::shape::Ends;
use super::sizes::Wanted;
use super::{Completions, CqPlan, Form, Limits, QpPlan, Receives, Registers, Sends, WqPlan};
use crate::driver::completion::{Completion, Status};
use crate::driver::request::{Data, FrameHead, NoBytes, NoPieces, Opcode, Refused, Request, Sge};
use crate::driver::seam::{CompletionRing, CqSide, Plan, QpQueues, SendRing};
use crate::kernel::mapping::Mapping;

type Copied<'a, T> = std::iter::Copied<std::slice::Iter<'a, T>>;

fn pieces(list: &[Sge]) -> Data<Copied<'_, Sge>, NoBytes> {
    Data::Pieces(list.iter().copied())
}

fn inline<'a>(list: &'a [&'a [u8]]) -> Data<NoPieces, Copied<'a, &'a [u8]>> {
    Data::Inline(list.iter().copied())
}

/// A frame, signaled. Its first bytes are separate if they are given.
fn frame<P, B>(wr_id: u64, head: Option<FrameHead>, data: Data<P, B>) -> Request<'static, P, B> {
    Request { wr_id, flags: SendFlags::SIGNALED, opcode: Opcode::Send, data, head }
}

/// Takes completions as the safe interface does.
pub(super) fn poll(queue: &mut Completions, batch: &mut [Completion]) -> usize {
    queue.poll(batch, || true)
}

/// A queue pair with one completion queue, and the memory that the device sees.
struct Bench {
    sends: Sends,
    receives: Receives,
    queue: Completions,
    registers: Mapping,
    /// The memory of the current ring, its number of entries, and the memory of the first ring.
    cq_memory: Mapping,
    cq_slots: u32,
    first_memory: Mapping,
    qp_memory: Mapping,
    request: CreateQp,
    cq_request: CreateCq,
    cap: QpCap,
    /// Position of the next completion.
    next: u32,
}

pub(super) fn limits(eth_min_inline: u8) -> Limits {
    Limits::new(&AllocUcontextResp {
        max_sq_desc_sz: 1024,
        max_rq_desc_sz: 512,
        max_send_wqebb: 32768,
        max_recv_wr: 32768,
        max_srq_recv_wr: 16384,
        cache_line_size: 64,
        eth_min_inline,
        ..AllocUcontextResp::new_zeroed()
    })
}

fn cap(sends: u32, receives: u32, segments: u32, inline: u32) -> QpCap {
    QpCap {
        max_send_wr: sends,
        max_recv_wr: receives,
        max_send_sge: segments,
        max_recv_sge: segments,
        max_inline_data: inline,
    }
}

/// With room for all operations.
fn all(cap: QpCap) -> Wanted {
    Wanted { cap, operations: None, flags: 0 }
}

impl Bench {
    fn new(eth_min_inline: u8, wanted: &QpCap) -> Self {
        Self::with_large_sends(eth_min_inline, wanted, 0)
    }

    /// For large sends with headers of `header` bytes.
    fn with_large_sends(eth_min_inline: u8, wanted: &QpCap, header: u32) -> Self {
        Self::of(Form::Frames { header }, eth_min_inline, wanted)
    }

    fn of(form: Form, eth_min_inline: u8, wanted: &QpCap) -> Self {
        let limits = limits(eth_min_inline);
        let registers = Mapping::block(4096).unwrap();
        let page = Registers { page: registers.clone(), id: Some(9), offset: 0 };
        let mut plan = CqPlan::new("test", 7, &limits, page.clone()).unwrap();
        let cq_request = CreateCq::read_from_bytes(plan.payload().0).unwrap();
        let cq_memory = plan.memory().unwrap().clone();
        let queue = open(plan, 0);
        let mut index = 40;
        let mut plan =
            QpPlan::new("test", form, &all(*wanted), &limits, page, ends([queue.shared(); 2]), || {
                index += 1;
                index
            })
            .unwrap();
        let request = CreateQp::read_from_bytes(plan.payload().0).unwrap();
        let qp_memory = plan.memory().unwrap().clone();
        let QpQueues { sends, receives, cap, .. } = open(plan, 0x1234);
        // A queue pair that only sends has no receives; those of another one are used.
        let receives = receives.unwrap_or_else(|| {
            open(WqPlan::new("test", 1, 1, &limits, queue.shared(), || 39).unwrap(), 0x39)
        });
        let (cq_slots, first_memory, next) = (8, cq_memory.clone(), 0);
        Self {
            sends,
            receives,
            queue,
            registers,
            cq_memory,
            cq_slots,
            first_memory,
            qp_memory,
            request,
            cq_request,
            cap,
            next,
        }
    }

    fn send(&mut self, wr_id: u64, list: &[Sge]) -> bool {
        self.sends.put(&frame(wr_id, None, pieces(list))).is_ok()
    }

    /// Completes a request or a message, as the device does.
    fn complete(&mut self, opcode: u8, counter: u16, change: impl FnOnce(&mut Cqe64)) {
        let mut cqe =
            Cqe64 { srqn_uidx: self.request.uidx.into(), wqe_counter: counter.into(), ..Cqe64::new_zeroed() };
        change(&mut cqe);
        cqe.op_own = opcode << 4 | (self.next / self.cq_slots % 2) as u8 | cqe.op_own & 0xe;
        let slot = (self.next % self.cq_slots) as usize * 64;
        assert!(self.cq_memory.write(slot, cqe.as_bytes()));
        self.next += 1;
    }

    fn poll(&mut self) -> Vec<(u64, Status)> {
        let mut batch = Completion::batch::<16>();
        let count = poll(&mut self.queue, &mut batch);
        batch[..count].iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }

    /// A word of the queue pair's doorbell record: 0 for receives, 1 for sends.
    fn counter(&self, word: usize) -> u32 {
        let record = (self.request.db_addr - self.request.buf_addr) as usize;
        u32::from_be(self.qp_memory.load(record + 4 * word, Ordering::Relaxed))
    }

    fn ring(&self, block: usize, len: usize) -> Vec<u8> {
        let start = match self.request.sq_buf_addr {
            // After the receives.
            0 => (self.request.rq_wqe_count << self.request.rq_wqe_shift) as usize,
            address => (address - self.request.buf_addr) as usize,
        };
        let mut bytes = vec![0; len];
        assert!(self.qp_memory.read(start + 64 * block, &mut bytes));
        bytes
    }

    fn doorbell(&self, at: usize) -> [u8; 8] {
        let mut bytes = [0; 8];
        assert!(self.registers.read(at, &mut bytes));
        bytes
    }
}

pub(super) const PIECE: Sge = Sge { addr: 0x1122_3344_5566_7788, length: 0x99, lkey: 0xaabb_ccdd };

#[test]
fn a_send_is_laid_out_as_the_device_reads_it() {
    let mut bench = Bench::new(1, &cap(4, 4, 2, 0));
    assert!(bench.send(7, &[PIECE]));
    assert_eq!(bench.counter(1), 0, "nothing is told before the doorbell");
    bench.sends.publish();
    assert_eq!(bench.counter(1), 1);
    let wqe = bench.ring(0, 48);
    assert_eq!(wqe[..16], *b"\x00\x00\x00\x0a\x00\x12\x34\x03\0\0\0\x08\0\0\0\0");
    assert_eq!(wqe[16..32], [0; 16]);
    assert_eq!(wqe[32..], *b"\x00\x00\x00\x99\xaa\xbb\xcc\xdd\x11\x22\x33\x44\x55\x66\x77\x88");
    assert_eq!(bench.doorbell(0x800), wqe[..8]);
}

#[test]
fn checksums_are_asked_for_in_the_ethernet_segment() {
    for (inline, header) in [(1, None), (2, Some([0; 18]))] {
        let mut bench = Bench::new(inline, &cap(4, 4, 1, 0));
        for (block, flags) in [SendFlags::IP_CSUM, SendFlags::empty()].into_iter().enumerate() {
            let list = [Sge { length: 100, ..PIECE }];
            bench.sends.put(&Request { flags, ..frame(0, header, pieces(&list)) }).unwrap();
            // Both checksums: that of IPv4, and that of TCP or UDP.
            let asked = if flags.is_empty() { 0 } else { 0xc0 };
            assert_eq!(bench.ring(block, 64)[16..28], [0, 0, 0, 0, asked, 0, 0, 0, 0, 0, 0, 0]);
        }
    }
}

#[test]
fn the_first_bytes_of_a_frame_stand_in_the_request_where_the_device_wants_them() {
    let mut bench = Bench::new(2, &cap(4, 4, 3, 64));
    let header: [u8; 18] = std::array::from_fn(|i| i as u8 + 1);
    let list = [Sge { length: 10, ..PIECE }, Sge { length: 100, ..PIECE }];
    let flags = SendFlags::empty();
    bench.sends.put(&Request { flags, ..frame(1, Some(header), pieces(&list)) }).unwrap();
    let wqe = bench.ring(0, 64);
    assert_eq!(wqe[7], 4, "sixteen bytes each: control, two for Ethernet, one piece");
    assert_eq!(wqe[11], 0, "not signaled");
    assert_eq!((&wqe[28..30], &wqe[30..48]), (&[0, 18][..], &header[..]));
    assert_eq!(wqe[48..], *b"\x00\x00\x00\x5c\xaa\xbb\xcc\xdd\x11\x22\x33\x44\x55\x66\x77\x90");
    let bytes: [u8; 40] = std::array::from_fn(|i| i as u8 + 1);
    bench.sends.put(&frame(1, Some(header), inline(&[&bytes]))).unwrap();
    let wqe = bench.ring(1, 128);
    assert_eq!(wqe[48..52], [0x80, 0, 0, 22]);
    assert_eq!(wqe[52..74], bytes[18..]);
    assert_eq!(wqe[7], 5, "74 bytes are five times sixteen");
    assert_eq!(bench.sends.next_slot(), 3, "it took two blocks");
}

/// As libmlx5 writes it (`set_tso_eth_seg`, qp.c, version 44): the header begins in the last two bytes of the Ethernet segment's first
/// unit and takes as many further units as it needs.
#[test]
fn a_large_send_has_its_whole_header_in_the_request() {
    // Control, Ethernet with two bytes, the other 52 in four units, two pieces: 128 bytes.
    let mut bench = Bench::with_large_sends(1, &cap(4, 4, 2, 0), 54);
    let header: [u8; 54] = std::array::from_fn(|i| i as u8 + 1);
    let list = [Sge { lkey: 1, ..PIECE }, Sge { lkey: 2, ..PIECE }];
    let large = |header, mss, list| Request {
        flags: SendFlags::IP_CSUM,
        opcode: Opcode::Large { header, mss },
        ..frame(5, None, pieces(list))
    };
    bench.sends.put(&large(&header, 0x5a8, &list)).unwrap();
    let wqe = bench.ring(0, 128);
    assert_eq!(wqe[..8], *b"\x00\x00\x00\x0e\x00\x12\x34\x08");
    assert_eq!(wqe[16..30], [0, 0, 0, 0, 0xc0, 0, 0x05, 0xa8, 0, 0, 0, 0, 0, 54]);
    assert_eq!(wqe[30..84], header);
    // All of each piece, because the header is not part of them.
    assert_eq!(wqe[96..112], *b"\x00\x00\x00\x99\x00\x00\x00\x01\x11\x22\x33\x44\x55\x66\x77\x88");
    assert_eq!(wqe[112..], *b"\x00\x00\x00\x99\x00\x00\x00\x02\x11\x22\x33\x44\x55\x66\x77\x88");
    assert_eq!(bench.sends.next_slot(), 2);
    // A header of only Ethernet fits into the place that every frame has for it.
    bench.sends.put(&large(&header[..14], 1, &list[..1])).unwrap();
    let wqe = bench.ring(2, 64);
    assert_eq!((wqe[7], &wqe[22..30], &wqe[30..44]), (4, &[0, 1, 0, 0, 0, 0, 0, 14][..], &header[..14]));
    assert_eq!(wqe[48..56], *b"\x00\x00\x00\x99\x00\x00\x00\x01");
    // Its completion reports a large send.
    bench.sends.publish();
    bench.complete(CQE_REQ, 0, |cqe| {
        cqe.sop_drop_qpn = 0x0e00_1234.into();
        cqe.timestamp = 99.into();
    });
    let mut batch = Completion::batch::<1>();
    assert_eq!(poll(&mut bench.queue, &mut batch), 1);
    assert_eq!((batch[0].wr_id, batch[0].opcode, batch[0].timestamp), (5, wc_opcode::TSO, 99));
}

#[test]
fn a_header_longer_than_was_asked_for_does_not_fit() {
    let mut bench = Bench::with_large_sends(1, &cap(1, 1, 1, 0), 54);
    let fits = |bench: &mut Bench, len: usize| {
        let opcode = Opcode::Large { header: &[0; 96][..len], mss: 1 };
        bench.sends.put(&Request { opcode, ..frame(0, None, pieces(&[PIECE])) }).is_ok()
    };
    // 112 bytes in two blocks: there is room for one more unit.
    assert!(!fits(&mut bench, 83));
    assert_eq!(bench.sends.next_slot(), 0);
    assert!(fits(&mut bench, 82));
    let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
    for header in [983, u32::MAX] {
        let plan = QpPlan::new(
            "test",
            Form::Frames { header },
            &all(cap(1, 1, 1, 0)),
            &limits(1),
            page.clone(),
            ends([bench.queue.shared(); 2]),
            || 0,
        );
        assert!(plan.is_err(), "the device takes 1,024 bytes in a request");
    }
}

#[test]
fn a_request_goes_round_the_end_of_the_ring() {
    // Requests of up to two blocks in a ring of four.
    let mut bench = Bench::new(1, &cap(2, 1, 5, 0));
    assert_eq!((bench.request.sq_wqe_count, bench.sends.free()), (4, 2));
    let pieces: Vec<_> = (0..5).map(|lkey| Sge { lkey, ..PIECE }).collect();
    // One block and two, and then two that begin in the last one.
    assert!(bench.send(1, &pieces[..1]) && bench.send(2, &pieces));
    bench.sends.publish();
    assert_eq!(bench.sends.free(), 0);
    bench.complete(CQE_REQ, 1, |_| {});
    assert_eq!(bench.poll(), [(2, Status::Success)]);
    assert_eq!(bench.sends.free(), 2);
    assert!(bench.send(3, &pieces));
    bench.sends.publish();
    assert_eq!(bench.counter(1), 5);
    let control = WqeCtrlSeg::read_from_bytes(&bench.ring(3, 16)).unwrap();
    assert_eq!((control.opmod_idx_opcode.get(), control.qpn_ds.get() & 0xff), (3 << 8 | 0x0a, 7));
    // The third piece is the first unit of the ring.
    assert_eq!(bench.ring(0, 8), *b"\x00\x00\x00\x99\x00\x00\x00\x02");
}

#[test]
fn receives_are_told_when_the_queue_pair_is_ready() {
    let mut bench = Bench::new(1, &cap(1, 4, 2, 0));
    assert_eq!((bench.request.rq_wqe_count, bench.request.rq_wqe_shift), (4, 5));
    bench.receives.put(70, [PIECE].into_iter()).unwrap();
    bench.receives.publish();
    assert_eq!(bench.counter(0), 0);
    bench.receives.start();
    assert_eq!(bench.counter(0), 1);
    let mut wqe = [0; 32];
    assert!(bench.qp_memory.read(0, &mut wqe));
    assert_eq!(wqe[..16], *b"\x00\x00\x00\x99\xaa\xbb\xcc\xdd\x11\x22\x33\x44\x55\x66\x77\x88");
    assert_eq!(wqe[16..], *b"\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00");
    assert!((71..74).all(|wr_id| bench.receives.put(wr_id, [PIECE; 2].into_iter()).is_ok()));
    assert_eq!(bench.receives.free(), 0);
    bench.receives.publish();
    bench.complete(CQE_RESP_SEND, 0, |cqe| {
        cqe.byte_cnt = 60.into();
        cqe.sop_drop_qpn = 0x0055_6677.into();
        cqe.timestamp = 99.into();
    });
    let mut batch = Completion::batch::<2>();
    assert_eq!(poll(&mut bench.queue, &mut batch), 1);
    let got = batch[0];
    assert_eq!((got.wr_id, got.len, got.immediate, got.timestamp), (70, 60, 0x55_6677, 99));
    assert_eq!((got.opcode, got.qp_num, got.status), (wc_opcode::RECV, 0x1234, Status::Success));
    assert_eq!(bench.receives.free(), 1);
}

#[test]
fn a_completion_tells_right_checksums_and_the_tag_that_was_taken_off() {
    let mut bench = Bench::new(1, &cap(1, 4, 1, 0));
    let good = WcFlags::IP_CSUM_OK;
    // Bits of the first byte: both checksums are right; of the second: IPv4 or IPv6, and a tag was removed.
    let cases = [
        (0x06, 2 << 2, good),
        (0x06, 2 << 2 | 1, good | WcFlags::WITH_VLAN),
        (0x02, 2 << 2, WcFlags::empty()),
        (0x04, 2 << 2, WcFlags::empty()),
        (0x06, 1 << 2 | 1, WcFlags::WITH_VLAN),
    ];
    for (counter, (checks, kind, flags)) in cases.into_iter().enumerate() {
        bench.receives.put(0, [PIECE].into_iter()).unwrap();
        bench.complete(CQE_RESP_SEND, counter as u16, |cqe| {
            (cqe.hds_ip_ext, cqe.l4_hdr_type_etc, cqe.vlan_info) = (checks, kind, 0x6123.into());
        });
        let mut batch = Completion::batch::<2>();
        assert_eq!(poll(&mut bench.queue, &mut batch), 1);
        assert_eq!((batch[0].flags, batch[0].vlan), (flags, 0x6123), "{checks:#x} {kind:#x}");
    }
}

#[test]
fn a_queue_goes_round_and_tells_how_far_it_was_read() {
    let mut bench = Bench::new(1, &cap(8, 1, 1, 0));
    let record = (bench.cq_request.db_addr - bench.cq_request.buf_addr) as usize;
    for round in 0..10_u32 {
        for i in 0..3 {
            let counter = (round * 3 + i) as u16;
            assert!(bench.send(counter.into(), &[PIECE]));
            bench.complete(CQE_REQ, counter, |_| {});
        }
        let first = u64::from(round * 3);
        assert_eq!(bench.poll(), [first, first + 1, first + 2].map(|wr_id| (wr_id, Status::Success)));
        assert_eq!(bench.poll(), []);
        let read = u32::from_be(bench.cq_memory.load(record, Ordering::Relaxed));
        assert_eq!(read, round * 3 + 3);
        assert_eq!(bench.sends.free(), 8);
    }
}

#[test]
fn who_may_take_is_asked_only_when_there_is_something_and_no_leaves_it_there() {
    let mut bench = Bench::new(1, &cap(8, 1, 1, 0));
    let mut batch = Completion::batch::<2>();
    assert_eq!(bench.queue.poll(&mut batch, || unreachable!()), 0);
    assert!(bench.send(1, &[PIECE]));
    bench.complete(CQE_REQ, 0, |_| {});
    assert_eq!(bench.queue.poll(&mut batch, || false), 0);
    assert_eq!(bench.poll(), [(1, Status::Success)]);
}

#[test]
fn errors_have_their_status() {
    let mut bench = Bench::new(1, &cap(8, 1, 1, 0));
    for (counter, (syndrome, status)) in
        [(0x04, Status::LocalProtection), (0x05, Status::Flushed), (0x77, Status::General)]
            .into_iter()
            .enumerate()
    {
        assert!(bench.send(counter as u64, &[PIECE]));
        // The syndrome of an error is at the place of the last byte of the timestamp.
        bench.complete(CQE_REQ_ERR, counter as u16, |cqe| cqe.timestamp = syndrome.into());
        assert_eq!(bench.poll(), [(counter as u64, status)]);
    }
}

#[test]
fn what_is_taken_back_is_never_told_and_its_places_are_used_again() {
    let mut bench = Bench::new(2, &cap(4, 1, 1, 0));
    let put = |bench: &mut Bench, wr_id, head| bench.sends.put(&frame(wr_id, head, pieces(&[PIECE])));
    put(&mut bench, 1, Some([1; 18])).unwrap();
    assert_eq!(put(&mut bench, 2, None), Err(Refused::TooLarge), "the device wants 18 bytes");
    bench.sends.rewind();
    bench.sends.publish();
    assert_eq!((bench.counter(1), bench.doorbell(0x800), bench.sends.free()), (0, [0; 8], 4));
    put(&mut bench, 3, Some([3; 18])).unwrap();
    bench.sends.publish();
    assert_eq!((bench.counter(1), &bench.ring(0, 48)[30..]), (1, &[3; 18][..]));
    bench.complete(CQE_REQ, 0, |_| {});
    assert_eq!(bench.poll(), [(3, Status::Success)]);
}

#[test]
fn what_was_posted_before_a_reset_is_forgotten() {
    let mut bench = Bench::new(1, &cap(4, 1, 1, 0));
    assert!(bench.send(1, &[PIECE]) && bench.send(2, &[PIECE]));
    bench.sends.publish();
    bench.complete(CQE_REQ, 0, |_| {});
    bench.complete(CQE_REQ, 1, |_| {});
    bench.sends.reset();
    assert_eq!((bench.counter(1), bench.sends.free()), (0, 4));
    assert!(bench.send(3, &[PIECE]));
    bench.complete(CQE_REQ, 0, |_| {});
    assert_eq!(bench.poll(), [(3, Status::Success)]);
}

#[test]
fn completions_of_a_queue_pair_that_is_gone_are_left_out() {
    let mut bench = Bench::new(1, &cap(4, 1, 1, 0));
    assert!(bench.send(1, &[PIECE]));
    bench.complete(CQE_REQ, 0, |_| {});
    let Bench { sends, receives, mut queue, .. } = bench;
    drop((sends, receives));
    assert_eq!(poll(&mut queue, &mut Completion::batch::<4>()), 0);
}

#[test]
fn a_queue_is_armed_with_a_new_number_after_each_event() {
    let mut bench = Bench::new(1, &cap(8, 1, 1, 0));
    let record = (bench.cq_request.db_addr - bench.cq_request.buf_addr) as usize;
    let mut counter = 0;
    let mut complete = |bench: &mut Bench, solicited: bool| {
        assert!(bench.send(counter.into(), &[PIECE]));
        bench.complete(CQE_REQ, counter, |cqe| cqe.op_own = u8::from(solicited) * 2);
        assert_eq!(bench.poll().len(), 1);
        counter += 1;
    };
    let armed = |bench: &Bench| u32::from_be(bench.cq_memory.load(record + 4, Ordering::Relaxed));
    bench.queue.shared().arm(false);
    assert_eq!(armed(&bench), 0);
    assert_eq!(bench.doorbell(0x20), [0; 8]);
    bench.queue.shared().arm(false);
    assert_eq!(armed(&bench), 0, "no event yet");
    complete(&mut bench, false);
    bench.queue.shared().arm(true);
    assert_eq!(armed(&bench), 1 << 28 | 1 << 24 | 1);
    assert_eq!(bench.doorbell(0x20), [0x11, 0, 0, 1, 0, 0, 0, 0]);
    complete(&mut bench, false);
    bench.queue.shared().arm(true);
    assert_eq!(armed(&bench), 1 << 28 | 1 << 24 | 2, "not a solicited one");
    complete(&mut bench, true);
    bench.queue.shared().arm(false);
    assert_eq!(armed(&bench), 2 << 28 | 3);
}
