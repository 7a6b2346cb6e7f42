//! Shared receive queues: their list, and completions of the queue pairs that have received from them.

use uverbs_abi::mlx5::CreateSrq;
use uverbs_abi::mlx5::wqe::{CQE_RESP_ERR, CQE_RESP_SEND, SYNDROME_LOCAL_LENGTH_ERR};

use super::super::{Places, SharedReceives, SrqPlan};
use super::*;
use crate::driver::seam::{Known, LowerReceive, ReceiveRing, plain};

/// A shared queue for three requests of three pieces, a completion queue, and two queue pairs.
struct Shared {
    memory: Mapping,
    request: CreateSrq,
    receives: SharedReceives,
    queue: Completions,
    cq_memory: Mapping,
    completed: u32,
    pairs: [Option<(Sends, Known)>; 2],
}

const NUMBERS: [u32; 2] = [0x100, 0x200];

fn pair(queue: &Completions, places: &Arc<Places>, index: u32) -> (Sends, Known) {
    let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
    let ends = Ends { queues: [queue.shared(); 2], shared: Some(places) };
    let wanted = cap(1, 4, 1, 0);
    let mut plan =
        QpPlan::new("test", Form::Messages, &all(wanted), &limits(0), page, ends, || index).unwrap();
    let request = CreateQp::read_from_bytes(plan.payload().0).unwrap();
    let QpQueues { mut sends, receives, cap, known } = open(plan, NUMBERS[index as usize]);
    assert_eq!((request.rq_wqe_count, request.rq_wqe_shift, cap.max_recv_wr), (0, 0, 0));
    assert!(receives.is_none());
    sends.set_ready(true);
    (sends, known.unwrap())
}

impl Shared {
    fn new() -> Self {
        let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
        let cq = CqPlan::new("test", 63, &limits(0), page).unwrap();
        let (cq_memory, queue) = (cq.memory().unwrap().clone(), open(cq, 0));
        let mut plan = SrqPlan::new("test", 3, 2, &limits(0), None, || unreachable!()).unwrap();
        assert_eq!(plan.asked([0; 2]), [3, 3]);
        let request = CreateSrq::read_from_bytes(plan.payload().0).unwrap();
        let (memory, receives) = (plan.memory().unwrap().clone(), open(plan, 0));
        let pairs = [0, 1].map(|index| Some(pair(&queue, receives.places(), index)));
        Self { memory, request, receives, queue, cq_memory, completed: 0, pairs }
    }

    fn post(&mut self, wr_id: u64) -> Result<(), Refused> {
        let mut batch = self.receives.writing();
        let put = batch.put(wr_id, [PIECE].into_iter());
        batch.end(true);
        put
    }

    /// The counter for the device: how many entries it may take.
    fn counter(&self) -> u32 {
        let at = (self.request.db_addr - self.request.buf_addr) as usize;
        u32::from_be(self.memory.load(at, Ordering::Relaxed))
    }

    /// The entry to which this one is linked.
    fn link(&self, entry: u16) -> u16 {
        let mut link = [0; 2];
        assert!(self.memory.read(usize::from(entry) * 64 + 2, &mut link));
        u16::from_be_bytes(link)
    }

    /// The first `count` entries from zero on, in the order in which the device takes them.
    fn list(&self, count: usize) -> Vec<u16> {
        std::iter::successors(Some(0), |entry| Some(self.link(*entry))).take(count).collect()
    }

    /// The device uses an entry for a message to this queue pair.
    fn complete(&mut self, pair: u32, entry: u16) {
        self.write(CQE_RESP_SEND, pair, entry, 0);
    }

    fn write(&mut self, kind: u8, pair: u32, entry: u16, number: u32) {
        let op_own = kind << 4 | (self.completed / 64 % 2) as u8;
        let cqe = Cqe64 {
            srqn_uidx: pair.into(),
            wqe_counter: entry.into(),
            sop_drop_qpn: number.into(),
            timestamp: u64::from(SYNDROME_LOCAL_LENGTH_ERR).into(),
            op_own,
            ..Cqe64::new_zeroed()
        };
        assert!(self.cq_memory.write(self.completed as usize % 64 * 64, cqe.as_bytes()));
        self.completed += 1;
    }

    fn poll(&mut self) -> Vec<(u64, u32)> {
        let mut batch = Completion::batch::<8>();
        let count = poll(&mut self.queue, &mut batch);
        batch[..count].iter().map(|completion| (completion.wr_id, completion.qp_num)).collect()
    }
}

#[test]
fn entries_are_a_list_of_which_the_last_is_not_posted() {
    let mut shared = Shared::new();
    assert_eq!((shared.list(4), shared.counter(), shared.request.uidx), (vec![0, 1, 2, 3], 0, 0));
    assert_eq!([1, 2, 3].map(|wr_id| shared.post(wr_id)), [Ok(()); 3]);
    assert_eq!((shared.post(4), shared.counter()), (Err(Refused::Full), 3));
    // Its pieces follow the head.
    let mut entry = [0; 32];
    assert!(shared.memory.read(64 + 16, &mut entry));
    let piece = [PIECE.length.to_be_bytes(), PIECE.lkey.to_be_bytes()].concat();
    assert_eq!((&entry[..8], &entry[20..24]), (&piece[..], &[0, 0, 1, 0][..]));
}

#[test]
fn receives_of_one_piece_are_posted_all_at_once_or_not_at_all() {
    let (mut shared, mut other) = (Shared::new(), Shared::new());
    let empty = Sge { length: 0, ..PIECE };
    for round in 0..9_u64 {
        let plain = |count: u64| plain(round * 10..round * 10 + count, &PIECE);
        let (counter, list) = (shared.counter(), shared.list(4));
        for at in 0..3 {
            for bad in [None, Some((7, &empty))] {
                let mut requests = plain(3);
                requests[at] = bad;
                assert!(!shared.receives.post_list_fast(requests.into_iter()), "{at}");
                assert_eq!(shared.counter(), counter);
                let entry = shared.receives.next_slot() as u16;
                // A completion of an entry that is not posted is ignored.
                shared.complete(0, entry);
                assert_eq!(shared.poll(), []);
            }
        }
        assert!(
            !shared.receives.post_list_fast(plain(4).into_iter())
                && shared.receives.post_list_fast(plain(0).into_iter())
        );
        assert_eq!((shared.counter(), shared.list(4)), (counter, list));
        let entry = shared.receives.next_slot();
        assert!(shared.receives.post_list_fast(plain(2).into_iter()));
        assert!(!shared.receives.post_list_fast(plain(2).into_iter()), "there is room for one");
        assert!(shared.receives.post_fast(round * 10 + 2, &PIECE).is_some_and(|last| last != entry));
        assert_eq!(shared.receives.post_fast(3, &PIECE), None, "it is full");
        assert!((0..3).all(|wr_id| other.post(round * 10 + wr_id).is_ok()));
        assert_eq!((shared.counter(), shared.list(6)), (other.counter(), other.list(6)));
        for shared in [&mut shared, &mut other] {
            let free = shared.receives.next_slot() as u16;
            let posted: Vec<_> = (0..4).filter(|entry| *entry != free).collect();
            posted.into_iter().for_each(|entry| shared.complete(1, entry));
        }
        assert_eq!(shared.poll(), other.poll());
    }
}

#[test]
fn entries_come_back_in_any_order_from_any_queue_pair() {
    let mut shared = Shared::new();
    assert!((1..4).all(|wr_id| shared.post(wr_id).is_ok()));
    shared.complete(1, 2);
    assert_eq!((shared.post(4), shared.poll()), (Err(Refused::Full), vec![(3, 0x200)]));
    // The entry that is done is appended after the last; only then can the last one be posted.
    assert_eq!((shared.post(4), shared.list(5), shared.counter()), (Ok(()), vec![0, 1, 2, 3, 2], 4));
    assert_eq!(shared.post(5), Err(Refused::Full));
    shared.complete(0, 1);
    shared.complete(1, 0);
    shared.complete(0, 3);
    assert_eq!(shared.poll(), [(2, 0x100), (1, 0x200), (4, 0x100)]);
    assert_eq!([5, 6, 7, 8].map(|wr_id| shared.post(wr_id).is_ok()), [true, true, true, false]);
    assert_eq!(shared.counter(), 7);
    // A thousand rounds of the list.
    for round in 0..1000 {
        let posted: Vec<_> = (0..4).filter(|entry| *entry != shared.receives.next_slot() as u16).collect();
        for entry in posted.into_iter().rev() {
            shared.complete(u32::from(entry) % 2, entry);
        }
        assert_eq!(shared.poll().len(), 3);
        assert!((0..3).all(|wr_id| shared.post(wr_id).is_ok()), "{round}");
        assert_eq!(shared.post(3), Err(Refused::Full));
    }
}

#[test]
fn what_is_forgotten_leaves_its_entries_to_the_next() {
    let mut shared = Shared::new();
    shared.post(1).unwrap();
    let mut batch = shared.receives.writing();
    assert!((2..4).all(|wr_id| batch.put(wr_id, [PIECE].into_iter()).is_ok()));
    assert_eq!((batch.put(4, [PIECE].into_iter()), batch.links()(1)), (Err(Refused::Full), Some(2)));
    batch.end(false);
    assert_eq!((shared.receives.next_slot(), shared.counter()), (1, 1));
    let mut batch = shared.receives.writing();
    batch.put(5, [PIECE].into_iter()).unwrap();
    // As in a panic.
    drop(batch);
    assert_eq!((shared.receives.next_slot(), shared.counter()), (1, 1));
    // The device uses the entry, although it was not posted.
    shared.complete(0, 1);
    assert_eq!(shared.poll(), []);
    assert!((12..14).all(|wr_id| shared.post(wr_id).is_ok()));
    shared.complete(0, 0);
    shared.complete(0, 1);
    assert_eq!(shared.poll(), [(1, 0x100), (12, 0x100)]);
    let mut batch = shared.receives.writing();
    assert_eq!(batch.put(9, [PIECE; 4].into_iter()), Err(Refused::TooLarge));
    assert_eq!(batch.next_slot(), 3);
}

#[test]
fn failures_give_their_entries_back() {
    let mut shared = Shared::new();
    assert!((1..4).all(|wr_id| shared.post(wr_id).is_ok()));
    shared.write(CQE_RESP_ERR, 0, 0, 0);
    let mut batch = Completion::batch::<2>();
    assert_eq!(poll(&mut shared.queue, &mut batch), 1);
    assert_eq!((batch[0].wr_id, batch[0].status, batch[0].qp_num), (1, Status::LocalLength, 0x100));
    assert_eq!((shared.post(4), shared.post(5)), (Ok(()), Err(Refused::Full)));
}

/// A queue pair that was reset or destroyed still has completions in the queue: they are not reported, but the entries are given back.
#[test]
fn what_a_queue_pair_had_taken_goes_back_when_it_begins_again_or_goes() {
    let mut shared = Shared::new();
    assert!((1..4).all(|wr_id| shared.post(wr_id).is_ok()));
    shared.complete(0, 0);
    shared.complete(1, 1);
    if let Some((sends, _)) = &mut shared.pairs[0] {
        sends.reset();
    }
    assert_eq!(shared.poll(), [(2, 0x200)]);
    assert!(shared.post(4).is_ok() && shared.post(5).is_ok() && shared.post(6).is_err());
    // The handle was dropped, and a message arrives before the kernel's object is destroyed.
    let (sends, known) = shared.pairs[1].take().unwrap();
    shared.complete(1, 2);
    drop(sends);
    shared.complete(1, 3);
    drop(known);
    shared.complete(0, 0);
    assert_eq!(shared.poll(), [(5, 0x100)]);
    assert!((7..10).all(|wr_id| shared.post(wr_id).is_ok()));
    assert_eq!(shared.post(10), Err(Refused::Full));
    // Its index is free again after all its completions were taken.
    shared.pairs[1] = Some(pair(&shared.queue, shared.receives.places(), 1));
    let entry = (0..4).find(|entry| u32::from(*entry) != shared.receives.next_slot()).unwrap();
    shared.complete(1, entry);
    assert_eq!(shared.poll().len(), 1);
}

/// A device reports entries as done that were not posted, or reports them twice: each is in the list only once.
#[test]
fn completions_that_were_made_up_put_no_entry_into_the_list_twice() {
    let mut shared = Shared::new();
    for turn in 0..300_u16 {
        let _ = shared.post(turn.into());
        for entry in [turn.wrapping_mul(7) % 4, turn.wrapping_mul(7) % 4, turn] {
            shared.complete(0, entry);
        }
        assert!(shared.poll().len() <= 3);
        let next = shared.receives.next_slot();
        let known: Vec<_> = (0..4).filter(|entry| shared.link(*entry) < 4).collect();
        assert_eq!((known.len(), next < 4), (4, true));
    }
}

/// A queue of extended connections has its own index, and a completion names the queue pair that received.
#[test]
fn a_queue_of_extended_connections_completes_by_itself() {
    let mut shared = Shared::new();
    let queue = shared.queue.shared().clone();
    let mut plan = SrqPlan::new("test", 4, 1, &limits(0), Some(&queue), || 9).unwrap();
    assert_eq!(plan.asked([0; 2]), [7, 1]);
    assert_eq!(CreateSrq::read_from_bytes(plan.payload().0).unwrap().uidx, 9);
    let mut receives = open(plan, 0);
    let mut batch = receives.writing();
    batch.put(70, [PIECE].into_iter()).unwrap();
    batch.end(true);
    shared.write(CQE_RESP_SEND, 9, 0, 0x0a00_0345);
    assert_eq!(shared.poll(), [(70, 0x345)]);
    drop(receives);
    shared.write(CQE_RESP_SEND, 9, 0, 0x345);
    assert_eq!(shared.poll(), []);
}

/// One thread posts. Another acts as the device and polls: it follows the list as far as the counter says, and completes the entries in
/// another order.
#[test]
fn every_request_is_taken_once_and_in_order_while_another_thread_polls() {
    let turns: u32 = if cfg!(miri) { 60 } else { 20_000 };
    let mut plan = SrqPlan::new("test", 15, 1, &limits(0), None, || unreachable!()).unwrap();
    let record = {
        let request = CreateSrq::read_from_bytes(plan.payload().0).unwrap();
        (request.db_addr - request.buf_addr) as usize
    };
    let (memory, mut receives) = (plan.memory().unwrap().clone(), open(plan, 0));
    let places = receives.places().clone();
    let device = std::thread::spawn(move || {
        let (mut entry, mut taken, mut wr_ids) = (0_u16, Vec::new(), Vec::new());
        while wr_ids.len() < turns as usize {
            let counter = u32::from_be(memory.load(record, Ordering::Acquire));
            while (wr_ids.len() + taken.len()) as u32 & 0xffff != counter {
                // The link of the last entry is written before it is followed.
                let mut link = [0; 2];
                taken.push(entry);
                assert!(memory.read(usize::from(entry) * 32 + 2, &mut link));
                entry = u16::from_be_bytes(link);
            }
            let count = taken.len();
            taken.rotate_left(count / 2);
            let done = taken.drain(..).map(|entry| places.complete(entry).unwrap());
            let mut done: Vec<_> = done.collect();
            done.sort_unstable();
            wr_ids.extend(done);
            std::thread::yield_now();
        }
        wr_ids
    });
    let mut next = 0;
    while next < turns {
        let mut batch = receives.writing();
        while next < turns && batch.put(next.into(), [PIECE].into_iter()).is_ok() {
            next += 1;
        }
        batch.end(true);
        std::thread::yield_now();
    }
    assert!(device.join().unwrap().into_iter().eq(0..u64::from(turns)));
}

/// Queue pairs are created and destroyed, and their sends complete in a queue whose positions are ahead of or behind those of the other.
#[test]
fn a_queue_pair_that_is_gone_is_known_to_no_queue_for_long() {
    let mut shared = Shared::new();
    for pair in &mut shared.pairs {
        pair.take();
    }
    let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
    let sent = open(CqPlan::new("test", 7, &limits(0), page).unwrap(), 0);
    for index in 0..20 {
        let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
        let queues = [sent.shared(), shared.queue.shared()];
        let ends = Ends { queues, shared: Some(shared.receives.places()) };
        let wanted = cap(1, 4, 1, 0);
        let plan =
            QpPlan::new("test", Form::Messages, &all(wanted), &limits(0), page, ends, || index).unwrap();
        let QpQueues { sends, known, .. } = open(plan, 0x300);
        shared.post(u64::from(index)).unwrap();
        let entry = (shared.counter() - 1) as u16 % 4;
        shared.complete(index, entry);
        drop(sends);
        drop(known);
        assert_eq!((sent.shared().known(), shared.poll().len()), (0, 0), "{index}");
    }
    // With the next change the last one is removed.
    shared.pairs[0] = Some(pair(&shared.queue, shared.receives.places(), 0));
    assert_eq!(shared.queue.shared().known(), 1);
}

#[test]
fn what_is_too_large_is_refused() {
    for (depth, segments) in [(16384, 1), (65536, 1), (u32::MAX, 1), (1, 32), (1, u32::MAX)] {
        assert!(SrqPlan::new("test", depth, segments, &limits(0), None, || 0).is_err(), "{depth} {segments}");
    }
    let asked = |[depth, segments]: [u32; 2]| {
        SrqPlan::new("test", depth, segments, &limits(0), None, || 0).unwrap().asked([0; 2])
    };
    assert_eq!((asked([1, 0]), asked([16383, 31])), ([1, 1], [16383, 31]));
}

/// A queue for zero requests can be created, as with libmlx5.
#[test]
fn a_queue_without_requests_takes_none() {
    let plan = SrqPlan::new("test", 0, 1, &limits(0), None, || 0).unwrap();
    assert_eq!(plan.asked([0; 2]), [0, 1]);
    let mut queue = open(plan, 0);
    let refused = queue.writing().put(1, [PIECE].into_iter());
    assert!(matches!(refused, Err(Refused::Full)));
    assert!(queue.post_fast(1, &PIECE).is_none());
}
