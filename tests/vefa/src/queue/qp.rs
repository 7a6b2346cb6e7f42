//! Queue pairs: their states, and their doorbells.

use super::{Completion, Operation, Posted, ReceiveRing, Work, status};
use crate::counter::counted;
use crate::device::Device;

/// States (`efa_admin_qp_state`).
pub(crate) mod state {
    pub(crate) const RESET: u32 = 0;
    pub(crate) const INIT: u32 = 1;
    pub(crate) const RTR: u32 = 2;
    pub(crate) const RTS: u32 = 3;
    pub(crate) const SQD: u32 = 4;
    pub(crate) const ERROR: u32 = 6;
}

/// A ring of sends in the device's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendRing {
    pub(crate) offset: usize,
    /// Bytes of a slot, 64 or 128.
    pub(crate) slot: usize,
    pub(crate) depth: u16,
    pub(crate) produced: u16,
    pub(crate) consumed: u16,
    /// Number of requests that were taken and have not ended.
    pub(crate) under_way: u32,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: u16,
    pub(crate) pd: u16,
    /// SRD; otherwise UD.
    pub(crate) is_reliable: bool,
    /// A write with immediate data consumes no receive.
    pub(crate) is_unsolicited: bool,
    pub(crate) has_wide_ids: bool,
    /// The completion queue, and the number of its ring.
    pub(crate) send_cq: (u32, u16),
    pub(crate) receive_cq: (u32, u16),
    pub(crate) send: SendRing,
    pub(crate) receive: ReceiveRing,
    pub(crate) state: u32,
    pub(crate) qkey: u32,
    pub(crate) psn: u32,
    pub(crate) rnr_retry: u8,
    /// Counters, and the events that each counts.
    pub(crate) counting: Vec<(u32, u32)>,
}

impl Qp {
    /// Whether it accepts incoming packets.
    pub(crate) fn receives(&self) -> bool {
        matches!(self.state, state::RTR | state::RTS | state::SQD)
    }

    /// Whether a state may follow the current one.
    pub(crate) fn may_become(&self, next: u32) -> bool {
        matches!(
            (self.state, next),
            (_, state::RESET | state::ERROR)
                | (state::RESET | state::INIT, state::INIT)
                | (state::INIT, state::RTR)
                | (state::RTR | state::RTS | state::SQD, state::RTS)
                | (state::RTS | state::SQD, state::SQD)
        )
    }
}

impl Device {
    /// The queue pair of a number.
    pub(crate) fn qp_by_number(&self, number: u16) -> Option<(u32, &Qp)> {
        let handle = u32::from(number) & ((1 << self.qp_bits()) - 1);
        self.qps.get(handle).filter(|qp| qp.number == number).map(|qp| (handle, qp))
    }

    /// The doorbell of a send queue: the number of all requests so far.
    pub(crate) fn ring_send(&mut self, handle: u32, produced: u16) {
        let (batch, least) = (usize::from(self.limits.max_tx_batch) * 64, self.limits.min_sq_depth);
        let Some(qp) = self.qps.get_mut(handle) else { return };
        let (number, send) = (qp.number, &mut qp.send);
        let new = produced.wrapping_sub(send.produced);
        let all = u32::from(produced.wrapping_sub(send.consumed)) + send.under_way;
        let wrong = if new > send.depth || all > send.depth.into() {
            Some("more requests than there are slots")
        } else if batch > 0 && usize::from(new) * send.slot > batch {
            Some("more bytes than may be written before a doorbell")
        } else if least > 0 && new == send.depth && new > 0 {
            Some("the whole ring before a doorbell")
        } else {
            None
        };
        if let Some(what) = wrong {
            self.complain(format!("queue pair {number:#x}: {new} sends: {what}"));
            return self.set_qp_state(handle, state::ERROR);
        }
        send.produced = produced;
        self.send_all(handle);
    }

    /// Executes the requests in a send queue.
    pub(crate) fn send_all(&mut self, handle: u32) {
        while let Some(qp) = self.qps.get_mut(handle) {
            let send = &mut qp.send;
            if send.consumed == send.produced || !matches!(qp.state, state::RTS | state::ERROR) {
                break;
            }
            let index = usize::from(send.consumed % send.depth);
            let phase = (send.consumed / send.depth) as u8 & 1;
            let start = send.offset + index * send.slot;
            let slot =
                self.send_memory.get(start..).and_then(|memory| memory.get(..send.slot)).unwrap_or_default();
            let work = Work::parse(slot, phase, qp.is_reliable, &self.limits);
            send.consumed = send.consumed.wrapping_add(1);
            let (number, is_broken) = (qp.number, qp.state == state::ERROR);
            match work {
                Some((work, _)) if is_broken => self.complete_send(handle, &work, status::FLUSHED),
                Some((work, Err(status))) => self.complete_send(handle, &work, status),
                Some((work, Ok(()))) => self.launch(handle, work),
                None if is_broken => {}
                None => {
                    self.complain(format!("queue pair {number:#x}: slot {index} has no request"));
                    self.set_qp_state(handle, state::ERROR);
                }
            }
        }
        self.run_fabric(false);
    }

    pub(crate) fn ring_receive(&mut self, handle: u32, produced: u16) {
        let Some(qp) = self.qps.get_mut(handle) else { return };
        if qp.receive.ring(produced).is_err() {
            let number = qp.number;
            self.complain(format!("queue pair {number:#x}: more receives than there are slots"));
            self.set_qp_state(handle, state::ERROR);
        } else if qp.state == state::ERROR {
            self.flush_receives(handle);
        }
    }

    pub(crate) fn ring_cq(&mut self, number: u32, doorbell: u32) {
        let Some(cq) = self.cqs.get_mut(number) else { return };
        let (posted, eq) = (cq.ring(doorbell), cq.eq);
        self.tell(number, posted, eq);
    }

    fn tell(&mut self, number: u32, posted: Posted, eq: Option<u16>) {
        if let (Posted::Event, Some(eq)) = (posted, eq) {
            self.completion_event(eq, number as u16);
        }
    }

    /// Writes a completion.
    pub(crate) fn complete(&mut self, (number, ring): (u32, u16), completion: Completion) {
        self.statistics.completions += 1;
        let Some(cq) = self.cqs.get_mut(number) else { return };
        let eq = cq.eq;
        match cq.post(&self.memory, ring, completion) {
            Ok(posted) => self.tell(number, posted, eq),
            Err(fault) => self.note_fault(Err(fault)),
        }
    }

    /// Ends a request that was taken from the queue.
    pub(crate) fn complete_send(&mut self, handle: u32, work: &Work, status: u8) {
        let Some(qp) = self.qps.get(handle) else { return };
        let (cq, number, has_wide_ids) = (qp.send_cq, qp.number, qp.has_wide_ids);
        if status != status::FLUSHED {
            let event = match work.operation {
                Operation::Send => counted::SEND,
                Operation::Read => counted::READ,
                Operation::Write => counted::WRITE,
            };
            self.count_event(handle, event + u32::from(status != status::OK));
        }
        self.statistics.ended(work, status);
        let id = if has_wide_ids { work.id } else { work.id & 0xffff };
        if work.wants_completion {
            let operation = work.operation;
            self.complete(cq, Completion::Send { id, status, operation, qp: number });
        }
    }

    /// Changes the state. In the error state all requests in the queues end; a reset discards them.
    pub(crate) fn set_qp_state(&mut self, handle: u32, next: u32) {
        let Some(qp) = self.qps.get_mut(handle) else { return };
        let before = std::mem::replace(&mut qp.state, next);
        match next {
            state::RESET => {
                (qp.send.produced, qp.send.consumed) = (0, 0);
                (qp.receive.produced, qp.receive.consumed) = (0, 0);
                self.forget_requests(handle);
            }
            state::ERROR if before != state::ERROR => {
                self.flush_requests(handle);
                self.send_all(handle);
                self.flush_receives(handle);
            }
            state::RTS => self.send_all(handle),
            _ => {}
        }
    }
}
