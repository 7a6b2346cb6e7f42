//! What moves by itself: frames through the rules into receive rings, completions, errors and flushes.
//!
//! A frame that is received goes to a queue pair through the rules only. Each rule that it meets counts it;
//! whether there is a posted receive for it or not makes no difference to that, as on real hardware. A queue
//! pair that has no receive posted drops it.
//!
//! Rings and registered memory belong to the user: whatever they say is bounded here, and read once.

use uverbs_abi::rxe::{RecvWqe, SendWqe, Sge};
use uverbs_abi::types::{event_type, qp_state, wc_opcode, wc_status};
use uverbs_abi::write::Wc;
use zerocopy::{FromZeros, IntoBytes};

use super::memory::Memory;
use super::queues::{Armed, Qp};
use super::state::State;
use super::steering::Origin;

/// Most bytes of a frame, without its check sequence.
pub(super) const MAX_FRAME: usize = 9216;

impl State {
    /// A frame comes in, from the wire or from a queue pair of this device.
    pub(super) fn arrive(&mut self, frame: &[u8], origin: Origin) {
        let mut met = Vec::new();
        self.steering.steer(frame, origin, |delivery| met.push(delivery));
        let port = match origin {
            Origin::Wire { port } | Origin::Sent { port, .. } => port,
        };
        for delivery in met {
            if delivery.counters.is_some() {
                self.count(delivery.flow, frame.len());
            }
            if let Some(number) = delivery.qp.filter(|_| !delivery.drop) {
                self.receive(number, frame, port, delivery.tag);
            }
        }
    }

    /// Puts a frame into the oldest posted receive. A flow tag goes to the completion's immediate data, without
    /// a flag that says so; it is zero without a tag, as on mlx5.
    fn receive(&mut self, number: u32, frame: &[u8], port: u8, tag: Option<u32>) {
        let Some(qp) = self.qps.get(&number) else { return };
        let is_ready = matches!(qp.state, qp_state::RTR | qp_state::RTS);
        if !is_ready || qp.receives.available() == 0 {
            return;
        }
        let mut wqe = RecvWqe::new_zeroed();
        // A slot is never smaller than this.
        let read = qp.receives.read(0, wqe.as_mut_bytes());
        let cq = qp.recv_cq;
        let status =
            if read { self.scatter(qp, wqe.dma.num_sge, frame) } else { Err(wc_status::LOC_QP_OP_ERR) };
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.receives.advance();
            // Before the completion: who sees that may count on the slot.
            qp.receives.release();
        }
        let wc = Wc {
            wr_id: wqe.wr_id,
            status: status.err().unwrap_or(wc_status::SUCCESS),
            opcode: wc_opcode::RECV,
            // At most MAX_FRAME, or what was injected; a longer frame than fits is an error anyway.
            byte_len: frame.len() as u32,
            ex: tag.unwrap_or(0),
            qp_num: number,
            port_num: port,
            ..Wc::new_zeroed()
        };
        self.complete(cq, &wc);
        if status.is_err() {
            self.break_qp(number);
        }
    }

    /// Copies a frame into the pieces of a receive, all of it or nothing.
    fn scatter(&self, qp: &Qp, num_sge: u32, frame: &[u8]) -> Result<(), u32> {
        let mut places: Vec<(&Memory, usize, &[u8])> = Vec::new();
        let mut rest = frame;
        for piece in 0..num_sge as usize {
            if rest.is_empty() {
                break;
            }
            let mut sge = Sge::new_zeroed();
            let at = size_of::<RecvWqe>().saturating_add(piece.saturating_mul(size_of::<Sge>()));
            if piece >= qp.cap.max_recv_sge as usize || !qp.receives.read(at, sge.as_mut_bytes()) {
                return Err(wc_status::LOC_QP_OP_ERR);
            }
            if sge.length == 0 {
                continue;
            }
            let (memory, offset) = self.reach(qp.pd, &sge, true).ok_or(wc_status::LOC_PROT_ERR)?;
            let (now, later) = rest.split_at(rest.len().min(sge.length as usize));
            places.push((memory, offset, now));
            rest = later;
        }
        if !rest.is_empty() {
            return Err(wc_status::LOC_LEN_ERR);
        }
        let written = places.iter().all(|(memory, offset, bytes)| memory.write(*offset, bytes));
        if written { Ok(()) } else { Err(wc_status::LOC_PROT_ERR) }
    }

    /// Adds a completion to a queue and announces it if that was asked for. Raw packets are never solicited;
    /// an error always is.
    pub(super) fn complete(&mut self, id: u32, wc: &Wc) {
        let Some(cq) = self.cqs.get_mut(&id) else { return };
        if cq.overrun {
            return;
        }
        if cq.ring.free() == 0 || !cq.ring.write(0, wc.as_bytes()) {
            return self.overrun(id);
        }
        cq.ring.advance();
        cq.ring.publish();
        let announce = match cq.armed {
            Armed::No => false,
            Armed::Solicited => wc.status != wc_status::SUCCESS,
            Armed::Next => true,
        };
        if announce {
            cq.armed = Armed::No;
            if let Some(channel) = cq.channel.and_then(|channel| self.events.get(&channel)) {
                channel.completion(cq.user_handle);
            }
        }
    }

    /// A completion came to a full queue: it is lost, the queue is dead, and what completes to it is broken.
    fn overrun(&mut self, id: u32) {
        let Some(cq) = self.cqs.get_mut(&id) else { return };
        cq.overrun = true;
        if let Some(events) = cq.events.and_then(|events| self.events.get(&events)) {
            events.asynchronous(event_type::CQ_ERR, cq.user_handle);
        }
        let hit = |qp: &Qp| [qp.send_cq, qp.recv_cq].contains(&id) && qp.state != qp_state::RESET;
        let numbers: Vec<_> = self.qps.iter().filter(|(_, qp)| hit(qp)).map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(qp) = self.qps.get(&number).filter(|qp| qp.state != qp_state::ERR) else { continue };
            if let Some(events) = qp.events.and_then(|events| self.events.get(&events)) {
                events.asynchronous(event_type::QP_FATAL, qp.user_handle);
            }
            self.break_qp(number);
        }
    }

    /// The queue pair goes to the error state, and what is posted ends.
    pub(super) fn break_qp(&mut self, number: u32) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.state = qp_state::ERR;
            self.flush(number);
        }
    }

    /// Ends everything posted to a queue pair with "flushed".
    pub(super) fn flush(&mut self, number: u32) {
        let Some(qp) = self.qps.get(&number) else { return };
        let (sends, receives) = (qp.sends.available(), qp.receives.available());
        for _ in 0..sends {
            let Some(qp) = self.qps.get_mut(&number) else { return };
            let mut wqe = SendWqe::new_zeroed();
            let _ = qp.sends.read(0, wqe.as_mut_bytes());
            qp.sends.advance();
            qp.sends.release();
            let cq = qp.send_cq;
            self.flushed(number, cq, wqe.wr.wr_id, wc_opcode::SEND);
        }
        for _ in 0..receives {
            let Some(qp) = self.qps.get_mut(&number) else { return };
            let mut wqe = RecvWqe::new_zeroed();
            let _ = qp.receives.read(0, wqe.as_mut_bytes());
            qp.receives.advance();
            qp.receives.release();
            let cq = qp.recv_cq;
            self.flushed(number, cq, wqe.wr_id, wc_opcode::RECV);
        }
    }

    fn flushed(&mut self, number: u32, cq: u32, wr_id: u64, opcode: u32) {
        let wc = Wc { wr_id, status: wc_status::WR_FLUSH_ERR, opcode, qp_num: number, ..Wc::new_zeroed() };
        self.complete(cq, &wc);
    }

    /// Flushes what was posted to a broken queue pair since: receives have no doorbell, so the device looks
    /// when it is called for another reason.
    pub(super) fn flush_if_broken(&mut self, number: u32) {
        if self.qps.get(&number).is_some_and(|qp| qp.state == qp_state::ERR) {
            self.flush(number);
        }
    }

    /// The same for all queue pairs of a completion queue.
    pub(super) fn flush_late(&mut self, cq: u32) {
        let on = |qp: &Qp| [qp.send_cq, qp.recv_cq].contains(&cq);
        let numbers: Vec<_> = self.qps.iter().filter(|(_, qp)| on(qp)).map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.flush_if_broken(number));
    }

    pub(super) fn set_port(&mut self, number: u32, port: u8) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.port = port;
        }
    }

    /// Takes a queue pair to a state, with all that follows from it.
    pub(super) fn set_state(&mut self, number: u32, state: u8) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.state = state;
        match state {
            qp_state::RESET => {
                for ring in [&mut qp.sends, &mut qp.receives] {
                    (0..ring.available()).for_each(|_| ring.advance());
                    ring.release();
                }
            }
            qp_state::RTS => self.drain(number),
            qp_state::ERR => self.flush(number),
            _ => {}
        }
    }
}
