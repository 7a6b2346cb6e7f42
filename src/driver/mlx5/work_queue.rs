//! Receive work queues: a receive ring without a queue pair.
//!
//! Source: `prepare_user_rq` and `create_rq`, qp.c, Linux 6.1.

use std::sync::Arc;

use uverbs_abi::mlx5::wqe::RCV_DBR;
use uverbs_abi::mlx5::{CreateWq, CreateWqResp};
use zerocopy::{FromZeros, IntoBytes};

use super::completions::CompletionSide;
use super::shape::{Queues, Source, part, word};
use super::sizes::{ReceiveRing, refused};
use super::{Form, Limits, Receives};
use crate::driver::ring::units::{Units, Word};
use crate::driver::seam::{Created, Payload, Plan};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// A work queue that is about to be created: the driver's request, and the memory.
#[derive(Debug)]
pub(crate) struct WqPlan {
    /// The ring, and the doorbell record on a separate page.
    memory: Mapping,
    units: Units,
    counter: Word,
    ring: ReceiveRing,
    request: CreateWq,
    response: CreateWqResp,
    queues: Queues,
}

impl WqPlan {
    /// For `depth` requests of `segments` segments. They complete in `queue`, and `index` returns numbers by which completions name the
    /// work queue.
    pub(crate) fn new(
        op: &'static str,
        depth: u32,
        segments: u32,
        limits: &Limits,
        queue: &Arc<CompletionSide>,
        index: impl FnMut() -> u32,
    ) -> Result<Self> {
        if depth == 0 {
            return Err(Error::outside(op, "receives of a work queue", depth, "at least 1"));
        }
        let ring = ReceiveRing::new(depth, segments, limits).map_err(|hint| refused(op, hint))?;
        let record = ring.bytes().next_multiple_of(4096);
        let memory = limits.memory.block(record + 4096).map_err(|errno| Error::kernel(op, errno))?;
        let (units, counter) =
            (part(op, &memory, 0, ring.bytes())?, word(op, &memory, record + 4 * RCV_DBR)?);
        let queues =
            Queues::join(op, [queue; 2], Form::Frames { header: 0 }, 0, Source::Own(ring.places), index)?;
        let request = CreateWq {
            buf_addr: memory.address(),
            db_addr: memory.address() + record as u64,
            rq_wqe_count: ring.places,
            rq_wqe_shift: ring.stride.ilog2(),
            user_index: queues.track().index(),
            ..CreateWq::new_zeroed()
        };
        let response = CreateWqResp::new_zeroed();
        Ok(Self { memory, units, counter, ring, request, response, queues })
    }
}

impl Plan<[u32; 2], Receives> for WqPlan {
    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    fn memory(&self) -> Option<&Mapping> {
        Some(&self.memory)
    }

    fn asked(&self, _: [u32; 2]) -> [u32; 2] {
        [self.ring.places, self.ring.segments()]
    }

    fn open(self: Box<Self>, made: Created<'_, [u32; 2]>) -> Result<Receives> {
        let ring = &self.ring;
        self.queues.track().set_number(made.number);
        Ok(Receives::new(self.units, self.counter, ring.places, ring.segments(), Arc::new(self.queues)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use uverbs_abi::mlx5::wqe::{CQE_RESP_SEND, Cqe64};
    use uverbs_abi::mlx5::{AllocUcontextResp, CreateCq};
    use zerocopy::FromBytes;

    use super::super::tests::{PIECE, limits, open, poll};
    use super::super::{CqPlan, Registers};
    use super::*;
    use crate::driver::completion::{Completion, Status};
    use crate::driver::seam::{CompletionRing, ReceiveRing};

    #[test]
    fn of_an_entry_of_128_bytes_the_second_half_counts() {
        let limits = Limits::new(&AllocUcontextResp {
            max_rq_desc_sz: 512,
            max_recv_wr: 64,
            cache_line_size: 128,
            eth_min_inline: 1,
            ..AllocUcontextResp::new_zeroed()
        });
        let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
        let mut plan = CqPlan::new("test", 3, &limits, page).unwrap();
        let request = CreateCq::read_from_bytes(plan.payload().0).unwrap();
        assert_eq!((request.cqe_size, request.db_addr - request.buf_addr), (128, 4 * 128));
        let memory = plan.memory().unwrap().clone();
        let mut queue = open(plan, 0);
        let mut wq = open(WqPlan::new("test", 4, 1, &limits, queue.shared(), || 3).unwrap(), 0x77);
        assert_eq!((queue.capacity(), poll(&mut queue, &mut Completion::batch::<4>())), (3, 0));
        for position in 0..10_u8 {
            wq.put(position.into(), [PIECE].into_iter()).unwrap();
            let op_own = CQE_RESP_SEND << 4 | u8::from(position / 4 % 2 != 0);
            let cqe = Cqe64 {
                srqn_uidx: 3.into(),
                wqe_counter: u16::from(position).into(),
                byte_cnt: 60.into(),
                op_own,
                ..Cqe64::new_zeroed()
            };
            let slot = usize::from(position) % 4 * 128;
            // The first half does not matter: the device may put data there.
            assert!(memory.write(slot, &[0xff; 64]));
            assert!(memory.write(slot + 64, cqe.as_bytes()));
            let mut batch = Completion::batch::<4>();
            assert_eq!(poll(&mut queue, &mut batch), 1);
            assert_eq!((batch[0].wr_id, batch[0].len, batch[0].qp_num), (position.into(), 60, 0x77));
            assert_eq!(batch[0].status, Status::Success);
        }
    }

    #[test]
    fn a_work_queue_is_a_receive_ring_of_its_own() {
        let limits = limits(1);
        let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
        let mut plan = CqPlan::new("test", 7, &limits, page).unwrap();
        let cq_memory = plan.memory().unwrap().clone();
        assert!(!plan.payload().0.is_empty());
        let mut queue = open(plan, 0);
        // Two queues request the same index: the second gets another one.
        let mut indices = [5, 5, 6].into_iter();
        let mut make = |depth, segments| {
            let mut plan =
                WqPlan::new("test", depth, segments, &limits, queue.shared(), || indices.next().unwrap())
                    .unwrap();
            let request = CreateWq::read_from_bytes(plan.payload().0).unwrap();
            (plan.memory().unwrap().clone(), request, plan)
        };
        let (_, first, one) = make(1, 1);
        let (memory, second, two) = make(5, 3);
        assert_eq!([first.user_index, second.user_index], [5, 6]);
        assert_eq!((first.rq_wqe_count, first.rq_wqe_shift), (4, 4), "64 bytes at least");
        assert_eq!((second.rq_wqe_count, second.rq_wqe_shift, two.asked([0; 2])), (8, 6, [8, 4]));
        assert_eq!((second.buf_addr, second.flags, second.comp_mask), (memory.address(), 0, 0));
        let record = (second.db_addr - second.buf_addr) as usize;
        let counter = || u32::from_be(memory.load(record, Ordering::Relaxed));

        let (one, mut two) = (open(one, 0x100), open(two, 0x200));
        two.put(70, [PIECE; 3].into_iter()).unwrap();
        two.publish();
        assert_eq!(counter(), 0, "not ready");
        two.start();
        assert_eq!((counter(), two.free()), (1, 7));
        let mut place = [0; 64];
        assert!(memory.read(0, &mut place));
        assert_eq!(place[..4], [0, 0, 0, 0x99]);
        assert_eq!(place[48..56], [0, 0, 0, 0, 0, 0, 1, 0], "behind the last piece");
        let cqe = |index: u32, slot: usize| {
            let op_own = CQE_RESP_SEND << 4;
            let cqe = Cqe64 { srqn_uidx: index.into(), op_own, ..Cqe64::new_zeroed() };
            assert!(cq_memory.write(slot * 64, cqe.as_bytes()));
        };
        cqe(6, 0);
        let mut batch = Completion::batch::<2>();
        assert_eq!(poll(&mut queue, &mut batch), 1);
        assert_eq!((batch[0].wr_id, batch[0].qp_num, two.free()), (70, 0x200, 8));
        // After all requests are done, the ring begins at the first place again.
        two.put(71, [PIECE].into_iter()).unwrap();
        two.reset();
        assert_eq!((counter(), two.free(), two.next_slot()), (0, 8, 0));
        drop((one, two));
        cqe(6, 1);
        assert_eq!(poll(&mut queue, &mut batch), 0, "it is gone");
    }

    #[test]
    fn what_the_device_does_not_have_is_refused() {
        let limits = limits(1);
        let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(0), offset: 0 };
        let queue = open(CqPlan::new("test", 1, &limits, page).unwrap(), 0);
        for (depth, segments) in [(0, 1), (32769, 1), (1, 33), (u32::MAX, 1), (1, u32::MAX)] {
            let plan = WqPlan::new("test", depth, segments, &limits, queue.shared(), || 0);
            assert!(plan.is_err(), "{depth} requests of {segments} pieces");
        }
    }
}
