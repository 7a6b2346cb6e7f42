//! Queues in the guest's memory: of events, of completions, of work.

mod cq;
mod eq;
mod wq;

pub(crate) use self::cq::Cq;
pub(crate) use self::eq::Eq;
pub(crate) use self::wq::{OVERSIZED, Piece, Wq, Wqe};

use crate::device::Device;
use crate::hwc;

/// The types of events (`enum gdma_eqe_type`).
pub(crate) mod event {
    pub(crate) const COMPLETION: u8 = 3;
    pub(crate) const TEST: u8 = 64;
    pub(crate) const INIT_EQ: u8 = 129;
    pub(crate) const INIT_DATA: u8 = 130;
    pub(crate) const INIT_DONE: u8 = 131;
    pub(crate) const QP_FATAL: u8 = 176;
}

/// The owner bits of an entry: the number of the round in which it is written. Positions begin with the first one of round 1, so that
/// memory of zeros has no entries.
fn owner(written: u32, count: u32) -> u32 {
    (written / count.max(1)) & 7
}

impl Device {
    /// Writes an event.
    pub(crate) fn post_event(&mut self, eq: u32, kind: u8, data: u32) {
        let Some(queue) = self.eqs.get_mut(eq) else { return };
        let (result, vector) = queue.post(&self.memory, kind, data);
        self.note_fault(result);
        if let Some(vector) = vector {
            self.raise(vector);
        }
    }

    /// Writes a completion: 60 bytes of data, the number of the queue, and whether it is a send queue.
    pub(crate) fn post_completion(&mut self, cq: u32, data: &[u8], queue: u32, is_send: bool) {
        let Some(it) = self.cqs.get_mut(cq) else { return };
        let (result, tells) = it.post(&self.memory, data, queue, is_send);
        let (eq, is_overrun) = (it.eq, it.is_overrun());
        self.note_fault(result);
        if is_overrun {
            self.complain(format!("completion queue {cq}: the driver has not rung for too many entries"));
        }
        if tells {
            self.post_event(eq, event::COMPLETION, cq);
        }
    }

    fn raise(&mut self, vector: u32) {
        self.interrupts_raised += 1;
        self.interrupts.raise(vector);
    }

    /// A doorbell in page `page`.
    pub(crate) fn ring(&mut self, page: u32, offset: u64, value: u64) {
        let (id, high) = (value as u32 & 0xff_ffff, (value >> 32) as u32);
        let (index, arms) = (high & 0x7fff_ffff, high >> 31 == 1);
        match offset {
            0x000 => self.ring_send(page, id, high),
            0x400 => self.ring_receive(page, id, high),
            0x408 => self.arm_requester(page, id, high & 0xff_ffff),
            0x800 => {
                let Some(cq) = self.cqs.get_mut(id).filter(|cq| cq.doorbell == page) else {
                    return self.complain(format!("doorbell page {page}: no completion queue {id}"));
                };
                let (tells, eq) = (cq.ring(index, arms), cq.eq);
                if tells {
                    self.post_event(eq, event::COMPLETION, id);
                }
            }
            // The moderation of interrupts, which are not moderated here.
            0x820 => {}
            0xff8 => {
                let id = id & 0xffff;
                let Some(eq) = self.eqs.get_mut(id).filter(|eq| eq.doorbell == page) else {
                    return self.complain(format!("doorbell page {page}: no event queue {id}"));
                };
                if let Some(vector) = eq.ring(index, arms) {
                    self.raise(vector);
                }
            }
            _ => self.complain(format!("doorbell page {page}: nothing at {offset:#x}")),
        }
    }

    fn ring_send(&mut self, page: u32, id: u32, position: u32) {
        if hwc::is_own(id) {
            return self.ring_command(position);
        }
        if self.wqs.get(id).is_some_and(|wq| wq.is_send && wq.ring.doorbell == page) {
            return self.transmit(id, position);
        }
        self.ring_rdma_send(page, id, position);
    }

    fn ring_receive(&mut self, page: u32, id: u32, position: u32) {
        if hwc::is_own(id) {
            return self.hwc.receives.set_producer(position);
        }
        if let Some(wq) = self.wqs.get_mut(id).filter(|wq| !wq.is_send && wq.ring.doorbell == page) {
            return wq.ring.set_producer(position);
        }
        self.ring_rdma_receive(page, id, position);
    }
}
