//! Commands for completion queues and queue pairs.

use super::{Answer, EMPTY, Status, numbers};
use crate::bytes::{Bytes as _, BytesMut as _};
use crate::device::{Device, PAGE, SEND_MEMORY};
use crate::limits::caps;
use crate::object::Doorbell;
use crate::queue::{Cq, Qp, ReceiveRing, SendRing, state};

/// Size of a receive descriptor in bytes.
const DESCRIPTOR: u32 = 16;
/// The offset of a send queue in its pages: not zero, so that a driver that ignores the offset is detected.
const INSIDE: u64 = 256;

/// Bits of MODIFY_QP's mask.
mod mask {
    pub(super) const STATE: u32 = 1 << 0;
    pub(super) const CURRENT: u32 = 1 << 1;
    pub(super) const QKEY: u32 = 1 << 2;
    pub(super) const PSN: u32 = 1 << 3;
    pub(super) const DRAINED: u32 = 1 << 4;
    pub(super) const RNR_RETRY: u32 = 1 << 5;
    pub(super) const ALL: u32 = (1 << 6) - 1;
}

impl Device {
    pub(super) fn create_cq(&mut self, payload: &[u8]) -> Result<Answer, Status> {
        let limits = &self.limits;
        let depth = payload.u16(2);
        let cq = Cq::new(payload, limits.sub_cqs_per_cq).ok_or(Status::Illegal)?;
        if u32::from(depth) > limits.max_cq_depth || cq.eq.is_some_and(|eq| !self.eqs.has(eq.into())) {
            return Err(Status::Illegal);
        }
        if cq.has_wide_ids() && !limits.has(caps::WIDE_IDS) {
            return Err(Status::Unsupported);
        }
        let number = self.cqs.insert(limits.max_cq, cq).ok_or(Status::Exhausted)?;
        let doorbell = self
            .add_doorbell(payload.u16(22), Doorbell::Cq(number))
            .inspect_err(|_| drop(self.cqs.remove(number)))?;
        let mut answer = numbers(&[number as u16, depth]);
        answer.put_u32(12, doorbell);
        answer.put_u32(16, 1); // there is a doorbell
        Ok(answer)
    }

    pub(super) fn destroy_cq(&mut self, number: u16) -> Result<(), Status> {
        let number = number.into();
        if self.qps.values().any(|qp| qp.send_cq.0 == number || qp.receive_cq.0 == number) {
            return Err(Status::Busy);
        }
        self.cqs.remove(number).ok_or(Status::Illegal)?;
        self.remove_doorbells(|doorbell| doorbell == Doorbell::Cq(number));
        Ok(())
    }

    /// The send ring of a request, without its place.
    fn send_ring(&self, payload: &[u8]) -> Result<SendRing, Status> {
        let (bytes, depth) = (payload.u32(36), payload.u32(40));
        let limits = &self.limits;
        if depth == 0 && bytes == 0 {
            return Ok(SendRing::default());
        }
        let slot = bytes.checked_div(depth).unwrap_or(0);
        let is_good = depth.is_power_of_two()
            && matches!(slot, 64 | 128)
            && slot * depth == bytes
            && depth <= limits.max_sq_depth.min(1 << 15)
            && depth >= limits.min_sq_depth.into()
            && bytes <= limits.max_llq_size;
        is_good
            .then(|| SendRing { slot: slot as usize, depth: depth as u16, ..SendRing::default() })
            .ok_or(Status::Illegal)
    }

    fn receive_ring(&self, payload: &[u8]) -> Result<ReceiveRing, Status> {
        let (bytes, depth) = (payload.u32(44), payload.u32(48));
        let slots = bytes / DESCRIPTOR;
        let is_good = (depth == 0 && bytes == 0)
            || bytes % DESCRIPTOR == 0
                && slots.is_power_of_two()
                && slots <= 1 << 15
                && depth <= self.limits.max_rq_depth.min(slots);
        is_good
            .then(|| ReceiveRing { base: payload.u64(12), slots: slots as u16, ..ReceiveRing::default() })
            .ok_or(Status::Illegal)
    }

    pub(super) fn create_qp(&mut self, payload: &[u8]) -> Result<Answer, Status> {
        let (pd, kind, flags) = (payload.u16(0), payload.u8(2), payload.u8(3));
        let (send_cq, receive_cq, uar) = (payload.u32(20), payload.u32(24), payload.u16(52));
        let (send, receive) = (self.send_ring(payload)?, self.receive_ring(payload)?);
        // No known driver uses rings at virtual addresses.
        let is_there = self.pds.has(pd.into())
            && self.cqs.has(send_cq)
            && self.cqs.has(receive_cq)
            && self.uars.has(uar.into());
        if !is_there || !matches!(kind, 1 | 2) || flags & 3 != 0 {
            return Err(Status::Illegal);
        }
        let (is_unsolicited, has_wide_ids) = (flags & 1 << 2 != 0, flags & 1 << 3 != 0);
        if is_unsolicited && !self.limits.has(caps::UNSOLICITED_WRITE)
            || has_wide_ids && !self.limits.has(caps::WIDE_IDS)
        {
            return Err(Status::Unsupported);
        }
        let rings = self.limits.sub_cqs_per_cq.max(1);
        let generation = self.generation;
        let qp = Qp {
            number: 0,
            pd,
            is_reliable: kind == 2,
            is_unsolicited,
            has_wide_ids,
            send_cq: (send_cq, generation % rings),
            receive_cq: (receive_cq, generation.wrapping_add(1) % rings),
            send,
            receive,
            state: state::RESET,
            qkey: 0,
            psn: 0,
            rnr_retry: 0,
            counting: Vec::new(),
        };
        let subs = [qp.send_cq.1, qp.receive_cq.1];
        let handle = self.qps.insert(self.limits.max_qp, qp).ok_or(Status::Exhausted)?;
        let place = self.place_qp(handle, uar).inspect_err(|_| self.forget_qp(handle))?;
        self.generation = generation.wrapping_add(1);
        let number = (u32::from(generation) << self.qp_bits() | handle) as u16;
        if let Some(qp) = self.qps.get_mut(handle) {
            (qp.number, qp.send.offset) = (number, place[2] as usize);
        }
        let mut answer = EMPTY;
        answer.put_u32(8, handle);
        answer.put_u16(12, number);
        answer.put_u16(16, subs[0]);
        answer.put_u16(18, subs[1]);
        place.into_iter().enumerate().for_each(|(i, offset)| answer.put_u32(20 + i * 4, offset));
        Ok(answer)
    }

    /// The places of a queue pair's doorbells and of its send queue.
    fn place_qp(&mut self, handle: u32, uar: u16) -> Result<[u32; 3], Status> {
        let pages = u64::from(self.limits.max_llq_size).next_multiple_of(PAGE) + PAGE;
        let start = u64::from(handle) * pages;
        if start + pages > SEND_MEMORY {
            return Err(Status::Exhausted);
        }
        let send = self.add_doorbell(uar, Doorbell::Send(handle))?;
        let receive = self.add_doorbell(uar, Doorbell::Receive(handle))?;
        Ok([send, receive, (start + INSIDE) as u32])
    }

    /// Removes a queue pair with everything that belongs only to it.
    fn forget_qp(&mut self, handle: u32) {
        self.forget_requests(handle);
        let Some(qp) = self.qps.remove(handle) else { return };
        qp.counting.iter().for_each(|(number, _)| self.release_counter(*number));
        self.remove_doorbells(
            |doorbell| matches!(doorbell, Doorbell::Send(of) | Doorbell::Receive(of) if of == handle),
        );
    }

    pub(super) fn destroy_qp(&mut self, handle: u32) -> Result<(), Status> {
        if !self.qps.has(handle) {
            return Err(Status::Illegal);
        }
        self.forget_qp(handle);
        Ok(())
    }

    pub(super) fn modify_qp(&mut self, payload: &[u8]) -> Result<(), Status> {
        let (mask, handle, next, current) = (payload.u32(0), payload.u32(4), payload.u32(8), payload.u32(12));
        let has_retry = self.limits.has(caps::RNR_RETRY);
        let qp = self.qps.get_mut(handle).ok_or(Status::Illegal)?;
        let has = |bit| mask & bit != 0;
        let is_wrong = mask & !mask::ALL != 0
            || has(mask::CURRENT) && current != qp.state
            || has(mask::STATE) && !qp.may_become(next)
            || has(mask::RNR_RETRY) && (!has_retry || !qp.is_reliable || payload.u8(25) > 7);
        if is_wrong {
            return Err(Status::Illegal);
        }
        if has(mask::DRAINED) && payload.u8(24) != 0 {
            // There is no event that could report this.
            return Err(Status::Unsupported);
        }
        if has(mask::QKEY) {
            qp.qkey = payload.u32(16);
        }
        if has(mask::PSN) {
            qp.psn = payload.u32(20);
        }
        if has(mask::RNR_RETRY) {
            qp.rnr_retry = payload.u8(25);
        }
        if has(mask::STATE) {
            self.set_qp_state(handle, next);
        }
        Ok(())
    }

    pub(super) fn query_qp(&self, payload: &[u8]) -> Result<Answer, Status> {
        let qp = self.qps.get(payload.u32(0)).ok_or(Status::Illegal)?;
        let mut answer = EMPTY;
        answer.put_u32(8, qp.state);
        answer.put_u32(12, qp.qkey);
        answer.put_u32(16, qp.psn);
        answer.put_u8(20, u8::from(qp.state == state::SQD && qp.send.under_way > 0));
        answer.put_u8(21, qp.rnr_retry);
        Ok(answer)
    }
}
