//! Queue pairs of erdma that are about to be created.
//!
//! Source: `erdma_alloc_qp_buf_and_db` and `__erdma_alloc_dbs`, providers/erdma/erdma_verbs.c, rdma-core 65; `erdma_create_qp` and
//! `init_user_qp`, erdma_verbs.c, Linux 6.1 to 7.3.

use std::sync::Arc;

use uverbs_abi::erdma::{CreateQpReq, CreateQpResp, MAX_SLOTS, SDB_ENTRY, SLOT};
use uverbs_abi::types::QpCreateFlags;
use uverbs_abi::write::QpCap;
use zerocopy::{FromZeros, IntoBytes};

use super::completions::CompletionSide;
use super::receives::Receives;
use super::sends::Sends;
use super::track::{Lane, MOST, Queues, Track};
use super::{PAGE, Pages, within};
use crate::driver::ring::units::{SmallUnits, Units};
use crate::driver::seam::{Created, Payload, Plan, QpQueues, QpShape};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// Distances between doorbells in a page.
const SEND_DOORBELL: usize = 128;
const RECEIVE_DOORBELL: usize = 32;

/// A queue pair that is about to be created.
#[derive(Debug)]
pub(super) struct QpPlan {
    request: CreateQpReq,
    response: CreateQpResp,
    cap: QpCap,
    /// Numbers of requests that were asked for.
    wanted: [u32; 2],
    signals_all: bool,
    /// The send queue, on the next page the receive queue, and on the last page the doorbell records.
    memory: Mapping,
    /// Numbers of slots, and the offsets of the receive queue and of the records.
    slots: [u32; 2],
    receives_at: usize,
    records_at: usize,
    pages: Pages,
    doorbells: [u32; 2],
    sides: [Arc<CompletionSide>; 2],
}

impl QpPlan {
    pub(super) fn new(
        op: &'static str,
        shape: &QpShape,
        pages: Pages,
        doorbells: [u32; 2],
        sides: [Arc<CompletionSide>; 2],
    ) -> Result<Self> {
        // The driver has no queue pair without one of the two.
        let mut cap = shape.cap;
        let wanted = [cap.max_send_wr, cap.max_recv_wr];
        (cap.max_send_wr, cap.max_recv_wr) = (cap.max_send_wr.max(1), cap.max_recv_wr.max(1));
        let slots = |what, wanted: u32, each: u32| {
            if wanted > MOST / each {
                Err(Error::beyond(op, what, wanted, MOST / each))
            } else {
                Ok(wanted * each)
            }
        };
        let slots = [
            slots("requests of a send queue (max_send_wr)", cap.max_send_wr, MAX_SLOTS as u32)?,
            slots("requests of a receive queue (max_recv_wr)", cap.max_recv_wr, 1)?,
        ]
        .map(u32::next_power_of_two);
        let [receives_at, receives] = slots.map(|count| (count as usize * SLOT).next_multiple_of(PAGE));
        let records_at = receives_at + receives;
        let memory = Mapping::block(records_at + PAGE).map_err(|errno| Error::kernel(op, errno))?;
        let request = CreateQpReq {
            db_record_va: memory.address() + records_at as u64,
            qbuf_va: memory.address(),
            qbuf_len: records_at as u32,
            ..CreateQpReq::new_zeroed()
        };
        let signals_all = shape.flags.contains(QpCreateFlags::SQ_SIG_ALL);
        let response = CreateQpResp::new_zeroed();
        Ok(Self {
            request,
            response,
            cap,
            wanted,
            signals_all,
            memory,
            slots,
            receives_at,
            records_at,
            pages,
            doorbells,
            sides,
        })
    }
}

impl Plan<QpCap, QpQueues<Sends, Receives>> for QpPlan {
    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    fn asked(&self, _: QpCap) -> QpCap {
        self.cap
    }

    fn memory(&self) -> Option<&Mapping> {
        Some(&self.memory)
    }

    fn open(self: Box<Self>, made: Created<'_, QpCap>) -> Result<QpQueues<Sends, Receives>> {
        let op = made.op;
        let CreateQpResp { qp_id, num_sqe, num_rqe, rq_offset } = self.response;
        let [sends, receives] = self.slots;
        if [num_sqe, num_rqe, rq_offset] != [sends, receives, self.receives_at as u32] || qp_id != made.number
        {
            return Err(Error::malformed(op, "a queue pair of another size, or with another number"));
        }
        let lanes = (Lane::new(op, sends)?, Lane::new(op, receives)?);
        let queues = Queues::new(Track { number: qp_id, sends: lanes.0, receives: lanes.1 }, self.sides);
        let units = Units::new(&self.memory, 0, sends as usize * SLOT);
        let small = SmallUnits::small(&self.memory, self.receives_at, receives as usize * SLOT);
        let nonsense = || Error::malformed(op, "a queue pair without room");
        let [kind, entry] = self.doorbells;
        let of_sends = if kind == SDB_ENTRY.into() { entry.saturating_mul(2) } else { qp_id & 0x1f };
        let doorbell = within(op, &self.pages.sends, (of_sends as usize).saturating_mul(SEND_DOORBELL))?;
        let record = within(op, &self.memory, self.records_at)?;
        let [has_sends, has_receives] = self.wanted.map(|wanted| wanted > 0);
        let options = [self.signals_all, has_sends];
        let sends = Sends::new(units.ok_or_else(nonsense)?, queues.clone(), [record, doorbell], options);
        let doorbell = within(op, &self.pages.receives, (qp_id & 0x7f) as usize * RECEIVE_DOORBELL)?;
        let record = within(op, &self.memory, self.records_at + 8)?;
        let receives = Receives::new(small.ok_or_else(nonsense)?, queues, [record, doorbell], has_receives);
        let mut cap = made.size;
        for (size, is_there) in [(&mut cap.max_send_wr, has_sends), (&mut cap.max_recv_wr, has_receives)] {
            *size *= u32::from(is_there);
        }
        Ok(QpQueues { sends, receives: Some(receives), cap, known: None })
    }
}
