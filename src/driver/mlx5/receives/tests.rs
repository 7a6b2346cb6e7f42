//! Receive rings.

use uverbs_abi::mlx5::wqe::{CQE_RESP_SEND, Cqe64};
use zerocopy::{FromZeros, IntoBytes};

use super::super::tests::{PIECE, limits, open, poll};
use super::super::work_queue::WqPlan;
use super::super::{Completions, CqPlan, Registers};
use super::*;
use crate::driver::completion::Completion;
use crate::driver::seam::Plan;
use crate::kernel::mapping::Mapping;

/// A work queue for four requests of two pieces, and the queue in which they complete.
struct Bench {
    memory: Mapping,
    cq_memory: Mapping,
    queue: Completions,
    receives: Receives,
    completed: u8,
}

impl Bench {
    fn new() -> Self {
        let limits = limits(1);
        let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
        let plan = CqPlan::new("test", 7, &limits, page).unwrap();
        let (cq_memory, queue) = (plan.memory().unwrap().clone(), open(plan, 0));
        let plan = WqPlan::new("test", 4, 2, &limits, queue.shared(), || 5).unwrap();
        let memory = plan.memory().unwrap().clone();
        Self { memory, cq_memory, queue, receives: open(plan, 0x100), completed: 0 }
    }

    /// The device completes the request in this place. Returns the numbers of the polled completions.
    fn complete(&mut self, place: u16) -> Vec<u64> {
        let op_own = CQE_RESP_SEND << 4 | u8::from(self.completed & 8 != 0);
        let cqe = Cqe64 { srqn_uidx: 5.into(), wqe_counter: place.into(), op_own, ..Cqe64::new_zeroed() };
        assert!(self.cq_memory.write(usize::from(self.completed % 8) * 64, cqe.as_bytes()));
        self.completed += 1;
        let mut batch = Completion::batch::<2>();
        let count = poll(&mut self.queue, &mut batch);
        batch[..count].iter().map(|completion| completion.wr_id).collect()
    }

    /// The segments in a place: length, key and address.
    fn place(&self, place: usize) -> [(u32, u32, u64); 2] {
        let mut bytes = [0; 32];
        assert!(self.memory.read(place * 32, &mut bytes));
        let word = |at| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let segment = |at| (word(at), word(at + 4), u64::from(word(at + 8)) << 32 | u64::from(word(at + 12)));
        [segment(0), segment(16)]
    }
}

const END_READ: (u32, u32, u64) = (0, INVALID_LKEY, 0);

fn read(piece: Sge) -> (u32, u32, u64) {
    (piece.length, piece.lkey, piece.addr)
}

#[test]
fn receives_of_one_piece_are_posted_all_or_none_by_the_short_path() {
    let mut bench = Bench::new();
    let (mut next, mut done) = (0_u64, 0);
    let piece = |addr| Sge { addr, ..PIECE };
    for round in 0..20_u64 {
        let pieces = [piece(2 * round), piece(2 * round + 1)];
        // Where no place is known to be free, the path for all requests looks for more.
        let requests = || (next..).zip(&pieces).map(Some).collect::<Vec<_>>();
        let bad = [Some((90, &pieces[0])), None];
        let empty = [Some((90, &pieces[0])), Some((91, &Sge { length: 0, ..PIECE }))];
        for refused in [&bad, &empty] {
            assert!(!bench.receives.post_list_fast(refused.iter().copied()));
            assert_eq!(bench.receives.next_slot(), next as u32 % 4, "nothing was posted");
        }
        if !bench.receives.post_list_fast(requests().into_iter()) {
            for (wr_id, piece) in requests().into_iter().flatten() {
                bench.receives.put(wr_id, [*piece].into_iter()).unwrap();
            }
            assert!(!bench.receives.post_list_fast(requests().into_iter()), "others are not published");
            bench.receives.publish();
        }
        for (at, piece) in pieces.iter().enumerate() {
            assert_eq!(bench.place((next as usize + at) % 4), [read(*piece), END_READ]);
        }
        next += 2;
        assert_eq!(bench.receives.published, next as u32);
        assert_eq!([bench.complete(done as u16), bench.complete(done as u16 + 1)], [[done], [done + 1]]);
        done += 2;
    }
    assert_eq!(bench.receives.post_fast(7, &PIECE), None, "no place is known to be free");
    bench.receives.put(7, [PIECE].into_iter()).unwrap();
    bench.receives.publish();
    assert_eq!(bench.receives.post_fast(7, &PIECE), Some(1));
    assert!(!bench.receives.post_list_fast([Some((0, &PIECE)); 4].into_iter()), "there is no room");
}

#[test]
fn a_batch_goes_round_the_end_and_stops_where_the_ring_is_full() {
    let mut bench = Bench::new();
    for wr_id in 0..3 {
        bench.receives.put(wr_id, [PIECE].into_iter()).unwrap();
    }
    bench.receives.publish();
    assert_eq!((bench.complete(0), bench.complete(1)), (vec![0], vec![1]));
    let mut batch = bench.receives.writing();
    for (wr_id, slot) in [(3, 3), (4, 0), (5, 1)] {
        assert_eq!(batch.next_slot(), slot);
        let piece = Sge { addr: wr_id, ..PIECE };
        batch.put(wr_id, [piece].into_iter()).unwrap();
    }
    assert_eq!(batch.put(6, [PIECE].into_iter()), Err(Refused::Full), "the request in place 2 waits");
    drop(batch);
    bench.receives.publish();
    assert_eq!(bench.receives.put(6, [PIECE].into_iter()), Err(Refused::Full));
    for (place, wr_id) in [(3, 3), (0, 4), (1, 5)] {
        assert_eq!(bench.place(place), [read(Sge { addr: wr_id, ..PIECE }), END_READ]);
    }
    assert_eq!(bench.place(2)[0], read(PIECE));
    let completed: Vec<_> = [2, 3, 0, 1].into_iter().flat_map(|place| bench.complete(place)).collect();
    assert_eq!((completed, bench.receives.free()), (vec![2, 3, 4, 5], 4));
}

#[test]
fn what_is_forgotten_leaves_its_places_to_the_next() {
    let mut bench = Bench::new();
    bench.receives.put(0, [PIECE].into_iter()).unwrap();
    bench.receives.publish();
    let mut batch = bench.receives.writing();
    assert!((1..4).all(|wr_id| batch.put(wr_id, [PIECE].into_iter()).is_ok()));
    drop(batch);
    bench.receives.rewind();
    assert_eq!((bench.receives.next_slot(), bench.receives.free()), (1, 3));
    assert!((11..14).all(|wr_id| bench.receives.put(wr_id, [PIECE].into_iter()).is_ok()));
    assert_eq!(bench.receives.put(14, [PIECE].into_iter()), Err(Refused::Full));
    bench.receives.publish();
    assert_eq!((bench.complete(0), bench.complete(1)), (vec![0], vec![11]));
}

#[test]
fn pieces_of_every_number_and_length() {
    let most = INLINE_SEG - 1;
    let sized = |length| Sge { length, ..PIECE };
    let (one, long, none, too_long) = (sized(1), sized(most), sized(0), sized(most + 1));
    let cases: [(&[Sge], _); 11] = [
        (&[], Some([END_READ, (0, 0, 0)])),
        (&[one], Some([read(one), END_READ])),
        (&[long], Some([read(long), END_READ])),
        (&[none], Some([END_READ, (0, 0, 0)])),
        (&[too_long], None),
        (&[sized(u32::MAX)], None),
        (&[none, long], Some([read(long), END_READ])),
        (&[one, long], Some([read(one), read(long)])),
        (&[one, too_long], None),
        (&[one, none, long, none], Some([read(one), read(long)])),
        (&[one, one, one], None),
    ];
    for (pieces, wanted) in cases {
        let mut bench = Bench::new();
        let put = bench.receives.put(7, pieces.iter().copied());
        let (put_wanted, slot) = if wanted.is_some() { (Ok(()), 1) } else { (Err(Refused::TooLarge), 0) };
        assert_eq!((put, bench.receives.next_slot()), (put_wanted, slot), "{pieces:?}");
        if let Some(wanted) = wanted {
            assert_eq!(bench.place(0), wanted, "{pieces:?}");
        }
    }
}

#[test]
fn a_device_that_completes_what_nobody_posted_frees_no_place_in_use() {
    let mut bench = Bench::new();
    for wr_id in 0..4 {
        bench.receives.put(wr_id, [PIECE].into_iter()).unwrap();
    }
    bench.receives.publish();
    // All requests are done; then the device reports one of them again.
    assert_eq!((bench.complete(3), bench.complete(1)), (vec![3], vec![]));
    assert_eq!(bench.receives.free(), 4);
    // After a reset, the number of places that are known to be free is zero.
    bench.receives.reset();
    assert!((4..8).all(|wr_id| bench.receives.put(wr_id, [PIECE].into_iter()).is_ok()));
    assert_eq!(bench.receives.put(8, [PIECE].into_iter()), Err(Refused::Full));
    // A completion that names a place without a request is ignored.
    bench.receives.reset();
    bench.receives.put(9, [PIECE].into_iter()).unwrap();
    bench.receives.publish();
    assert_eq!(bench.complete(2), []);
    assert_eq!((bench.receives.free(), bench.complete(0)), (3, vec![9]));
}
