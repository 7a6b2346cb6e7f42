//! Actions without a command: frames pass the rules and arrive in receive rings; completions, errors and flushes.
//!
//! A received frame reaches queue pairs only through the rules. Each rule that it matches counts it, whether or not a receive is posted
//! for it, as on real hardware. A queue pair without a posted receive drops it.
//!
//! Rings and registered memory belong to the user: every value in them is checked here, and read once.

use uverbs_abi::types::{event_type, qp_state, wc_opcode, wc_status};
use uverbs_abi::write::Wc;
use zerocopy::{FromZeros, IntoBytes};

use super::PORTS;
use super::completion_counters;
use super::events::About;
use super::pieces;
use super::queue_pairs::Qp;
use super::queues::Armed;
use super::state::State;
use super::steering::Origin;

/// Maximum length of a frame in bytes, without its check sequence.
pub(super) const MAX_FRAME: usize = 9216;

impl State {
    /// A frame arrives, from the wire or from a queue pair of this device.
    pub(super) fn arrive(&mut self, frame: &[u8], origin: Origin) {
        let port = match origin {
            Origin::Wire { port } => port,
            Origin::Sent { port, .. } => {
                self.frames.sent += 1;
                self.frames.sent_bytes += frame.len() as u64;
                port
            }
        };
        self.frames.received += 1;
        self.frames.received_bytes += frame.len() as u64;
        let Self { steering, counters, receivers, .. } = self;
        steering.steer(frame, origin, |delivery| {
            if let Some(counters) = delivery.counters.and_then(|id| counters.get_mut(&id)) {
                counters.count(frame.len());
            }
            if let Some(number) = delivery.qp.filter(|_| !delivery.drop) {
                receivers.push((number, delivery.tag));
            }
        });
        // Receiving causes no other frame, so nothing is added to this list meanwhile.
        for index in 0..self.receivers.len() {
            if let Some((number, tag)) = self.receivers.get(index).copied() {
                self.receive(number, frame, port, tag);
            }
        }
        self.receivers.clear();
    }

    /// A frame arrives from the wire.
    pub(super) fn arrive_from_wire(&mut self, frame: &[u8]) {
        if !self.gone {
            self.arrive(frame, Origin::Wire { port: PORTS });
            if !self.waiting.is_empty() {
                self.retry_waiting();
            }
        }
    }

    /// Puts a frame into the oldest posted receive. The completion has the flow tag in its immediate data, without a flag for it; zero if
    /// there is no tag, as on mlx5.
    fn receive(&mut self, number: u32, frame: &[u8], port: u8, tag: Option<u32>) {
        let wc = Wc { ex: tag.unwrap_or(0), port_num: port, ..Wc::new_zeroed() };
        self.land(number, frame, wc, false);
    }

    /// Adds a completion to a queue, and announces it if that was requested. An error always counts as solicited, except on rxe. False if
    /// the completion is lost.
    pub(super) fn complete(&mut self, id: u32, wc: &Wc, solicited: bool) -> bool {
        let solicited = solicited || (wc.status != wc_status::SUCCESS && !self.profile.is_rxe());
        let Some(cq) = self.cqs.get_mut(&id) else { return true };
        if cq.overrun {
            return false;
        }
        if cq.ring.free() == 0 || !cq.ring.write(0, wc.as_bytes()) {
            self.overrun(id);
            return false;
        }
        cq.ring.advance();
        cq.ring.publish();
        let announce = match cq.armed {
            Armed::No => false,
            Armed::Solicited => solicited,
            Armed::Next => true,
        };
        if announce {
            cq.armed = Armed::No;
            if let Some(channel) = cq.channel.and_then(|channel| self.events.get(&channel)) {
                channel.completion(id, cq.user_handle);
            }
        }
        true
    }

    /// A completion queue was full: the completion is lost, the queue cannot be used any more, and queue pairs that complete in it enter
    /// the error state. rxe continues (`rxe_cq_post`, rxe_cq.c).
    fn overrun(&mut self, id: u32) {
        let goes_on = self.profile.is_rxe();
        let Some(cq) = self.cqs.get_mut(&id) else { return };
        cq.overrun = !goes_on;
        if let Some(events) = cq.events.and_then(|events| self.events.get(&events)) {
            events.asynchronous(About::Cq(id), event_type::CQ_ERR, cq.user_handle);
        }
        if goes_on {
            return;
        }
        let hit = |qp: &Qp| [qp.send_cq, qp.recv_cq].contains(&id) && qp.state != qp_state::RESET;
        let numbers: Vec<_> = self.qps.iter().filter(|(_, qp)| hit(qp)).map(|(number, _)| *number).collect();
        for number in numbers {
            if self.qps.get(&number).is_some_and(|qp| qp.state != qp_state::ERR) {
                self.announce(number, event_type::QP_FATAL);
                self.break_qp(number);
            }
        }
    }

    /// Moves the queue pair to the error state, and ends everything that was posted.
    pub(super) fn break_qp(&mut self, number: u32) {
        if let Some(qp) = self.qps.get_mut(&number) {
            // It takes no more receives from a shared queue.
            let last = qp.srq.is_some() && qp.state != qp_state::ERR && self.profile.tells_of_last_receive();
            qp.state = qp_state::ERR;
            (qp.draining, qp.stuck_after) = (false, None);
            self.end_receiving(number);
            if last {
                self.announce(number, event_type::QP_LAST_WQE_REACHED);
            }
            self.flush(number);
        }
    }

    /// A send has failed. For unacknowledged types, only the send queue stops, and messages are still received (InfiniBand, 10.3.1). The
    /// same holds for a raw packet queue pair, which consists of two queues on mlx5 (`sqrq_state_to_qp_state`, qp.c, Linux 6.1).
    pub(super) fn break_sends(&mut self, number: u32) {
        let stops_alone = match self.qps.get(&number) {
            Some(qp) if qp.state == qp_state::RTS => self.profile.stops_sends_alone(qp.kind),
            _ => false,
        };
        match self.qps.get_mut(&number) {
            Some(qp) if stops_alone => {
                qp.state = qp_state::SQE;
                self.flush_sends(number);
            }
            _ => self.break_qp(number),
        }
    }

    /// Ends everything posted to a queue pair with "flushed".
    pub(super) fn flush(&mut self, number: u32) {
        self.flush_sends(number);
        self.flush_receives(number);
    }

    fn flush_sends(&mut self, number: u32) {
        let sends = self.qps.get(&number).map_or(0, |qp| qp.sends.available());
        let mut is_told = true;
        for _ in 0..sends {
            let Some(qp) = self.qps.get_mut(&number) else { return };
            let (cq, wqe) = (qp.send_cq, pieces::oldest_send(&qp.sends));
            qp.sends.advance();
            qp.sends.release();
            is_told = self.flushed(number, cq, wqe.wr.wr_id, wc_opcode::SEND, is_told);
            let operation = completion_counters::operation(wqe.wr.opcode);
            self.count_operation(number, operation, wc_status::WR_FLUSH_ERR);
        }
    }

    /// A request ends with "flushed". `is_told` is whether the completion of the previous request was written. Returns whether that of this
    /// one was.
    pub(super) fn flushed(&mut self, number: u32, cq: u32, wr_id: u64, opcode: u32, is_told: bool) -> bool {
        if !is_told && self.profile.flushes_in_silence() {
            return false;
        }
        let wc = Wc { wr_id, status: wc_status::WR_FLUSH_ERR, opcode, qp_num: number, ..Wc::new_zeroed() };
        let is_told = self.complete(cq, &wc, opcode == wc_opcode::RECV && self.profile.solicits_flushed());
        if opcode == wc_opcode::RECV {
            self.count_receive(&wc);
        }
        is_told
    }

    /// Flushes what was posted to a queue pair in the error state since then.
    pub(super) fn flush_if_broken(&mut self, number: u32) {
        match self.qps.get(&number) {
            Some(qp) if qp.state == qp_state::ERR => {
                if qp.sends.available() > 0 {
                    self.flush_when_asked(number, qp.kind);
                }
                self.flush_sends(number);
                self.flush_late_receives(number);
            }
            Some(qp) if qp.has_stopped_sends() => self.flush_sends(number),
            _ => {}
        }
    }

    /// Flushes receives that were posted to a queue pair in the error state since then.
    pub(super) fn flush_late_receives(&mut self, number: u32) {
        let is_broken = self.qps.get(&number).is_some_and(|qp| qp.state == qp_state::ERR);
        if is_broken && self.profile.sees_late_receives() {
            self.flush_receives(number);
        }
    }

    /// A request of this queue pair was flushed, or a message from a queue pair of this type has arrived.
    pub(super) fn flush_when_asked(&mut self, number: u32, kind: u8) {
        let asked = |qp: &Qp| qp.state == qp_state::ERR && qp.kind == kind;
        if self.profile.flushes_when_asked() && self.qps.get(&number).is_some_and(asked) {
            self.flush_receives(number);
        }
    }

    /// Flushes what was posted to each queue pair of a completion queue in the error state since then; see [`State::flush_if_broken`].
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

    /// Moves a queue pair to a state, with all consequences.
    pub(super) fn set_state(&mut self, number: u32, state: u8) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let from = std::mem::replace(&mut qp.state, state);
        match state {
            qp_state::RESET => {
                (qp.draining, qp.stuck_after, qp.link) = (false, None, None);
                for ring in [Some(&mut qp.sends), qp.receives.as_mut()].into_iter().flatten() {
                    (0..ring.available()).for_each(|_| ring.advance());
                    ring.release();
                }
            }
            qp_state::RTS if self.profile.resumes() => {
                self.drain(number);
            }
            qp_state::SQD if from != state || self.profile.drains_again() => self.hold(number),
            qp_state::ERR => {
                qp.state = from;
                self.break_qp(number);
            }
            _ => {}
        }
    }
}
