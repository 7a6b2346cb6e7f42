//! Receive work queues: a receive ring without a queue pair.
//!
//! Source: `prepare_user_rq` and `create_rq`, qp.c, Linux 6.1.

use std::sync::Arc;

use uverbs_abi::mlx5::{CreateWq, CreateWqResp};
use uverbs_abi::write::QpCap;
use zerocopy::{FromZeros, IntoBytes};

use super::completions::Shared;
use super::shape::{Queues, Ring, SEGMENT, too_large};
use super::{Limits, Receives};
use crate::error::{Error, Result};
use crate::mapping::Mapping;

/// A work queue about to be made: what the driver is told, and its memory.
#[derive(Debug)]
pub(crate) struct WqPlan {
    /// The ring, and the doorbell record on a page of its own.
    memory: Mapping,
    record: usize,
    ring: Ring,
    request: CreateWq,
    response: CreateWqResp,
    queues: Queues,
}

impl WqPlan {
    /// For `depth` requests of `segments` segments; `queue` is where they complete, and `index` gives numbers by which
    /// completions name the work queue.
    pub(crate) fn new(
        op: &'static str,
        depth: u32,
        segments: u32,
        limits: &Limits,
        queue: &Arc<Shared>,
        index: impl FnMut() -> u32,
    ) -> Result<Self> {
        let wanted = QpCap { max_recv_wr: depth, max_recv_sge: segments, ..QpCap::new_zeroed() };
        let ring = Ring::of_receives(&wanted, limits).filter(|ring| ring.places > 0);
        let ring = ring.ok_or_else(|| too_large(op))?;
        let record = ring.bytes().next_multiple_of(4096);
        let memory = Mapping::block(record + 4096).map_err(|errno| Error::kernel(op, errno))?;
        let queues = Queues::join([queue; 2], 0, ring.places, index);
        let request = CreateWq {
            buf_addr: memory.address(),
            db_addr: memory.address() + record as u64,
            rq_wqe_count: ring.places,
            rq_wqe_shift: ring.stride.ilog2(),
            user_index: queues.track().index(),
            ..CreateWq::new_zeroed()
        };
        Ok(Self { memory, record, ring, request, response: CreateWqResp::new_zeroed(), queues })
    }

    /// The driver's request, and the place of its answer.
    pub(crate) fn payload(&mut self) -> (&[u8], &mut [u8]) {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    /// The memory that the device may write to as long as the work queue exists.
    pub(crate) fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// How many requests the ring holds, and segments each of them.
    pub(crate) fn capacity(&self) -> (u32, u32) {
        (self.ring.places, self.ring.stride / SEGMENT)
    }

    /// The ring, now that the kernel has made the work queue with this number.
    pub(crate) fn open(self, number: u32) -> Receives {
        let (places, segments) = self.capacity();
        let track = self.queues.track().clone();
        track.set_number(number);
        Receives {
            memory: self.memory,
            record: self.record,
            places,
            segments,
            head: 0,
            published: 0,
            ready: false,
            track,
            queues: Arc::new(self.queues),
        }
    }
}
