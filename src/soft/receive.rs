//! Receiving: the oldest posted receive of a queue pair, and the data that is written to it.

use uverbs_abi::types::{qp_type, wc_opcode, wc_status};
use uverbs_abi::write::Wc;

use super::events::About;
use super::pieces::{self, Receive};
use super::queue_pairs::Qp;
use super::state::State;

impl State {
    /// The oldest receive that a queue pair can use, if there is one.
    pub(super) fn next_receive(&self, qp: &Qp) -> Option<Receive> {
        match qp.srq {
            Some(srq) => self.srqs.get(&srq)?.oldest(),
            None => pieces::oldest_receive(qp.receives.as_ref()?, qp.cap.max_recv_sge),
        }
    }

    /// Removes the oldest receive. A program that sees the completion may use the slot.
    pub(super) fn take_receive(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if let Some(ring) = &mut qp.receives {
            ring.advance();
            ring.release();
        } else if let Some(srq) = qp.srq {
            self.take_shared(srq);
        }
    }

    /// Writes bytes that need no acknowledgement into the oldest receive: all of them or nothing; of a frame, the part that fits is
    /// written, as cards do. Without a posted receive they are lost; if they do not fit, the queue pair enters the error state.
    pub(super) fn land(&mut self, number: u32, bytes: &[u8], wc: Wc, solicited: bool) {
        let Some(qp) = self.qps.get(&number).filter(|qp| qp.can_receive()) else { return };
        let Some(receive) = self.next_receive(qp) else { return };
        let is_frame = qp.kind == qp_type::RAW_PACKET;
        let room = if is_frame { receive.len() } else { receive.room as usize };
        let fits = bytes.len() <= room;
        if !fits && qp.srq.is_none() && self.profile.drops_long_datagrams() {
            return;
        }
        let part = bytes.get(..room).filter(|_| is_frame).unwrap_or(bytes);
        let landed = if fits || is_frame { Ok(()) } else { Err(wc_status::LOC_LEN_ERR) };
        let landed = landed.and_then(|()| self.landing(qp.pd, &receive, part.len())).and_then(|places| {
            let written = pieces::put(part, &places);
            if written { Ok(()) } else { Err(wc_status::LOC_PROT_ERR) }
        });
        let landed = landed.and(if fits { Ok(()) } else { Err(wc_status::LOC_LEN_ERR) });
        let cq = qp.recv_cq;
        self.take_receive(number);
        let status = landed.err().map_or(wc_status::SUCCESS, |status| self.profile.bad_receive(status));
        let found = Wc {
            wr_id: receive.wr_id,
            status,
            opcode: wc_opcode::RECV,
            // Frames and datagrams are short, or were injected; a length that exceeds this field does not fit into a receive either.
            byte_len: bytes.len() as u32,
            qp_num: number,
            ..wc
        };
        let is_told = self.complete(cq, &found, solicited);
        self.count_receive(&found);
        // rxe moves the queue pair to the error state if it cannot write a completion (`RESPST_ERR_CQ_OVERFLOW`, rxe_resp.c).
        if status != wc_status::SUCCESS || (!is_told && self.profile.is_rxe()) {
            self.break_qp(number);
        }
    }

    /// Ends every receive in a queue pair's own ring with "flushed".
    pub(super) fn flush_receives(&mut self, number: u32) {
        let posted = self.qps.get(&number).map_or(0, Qp::posted);
        let mut is_told = true;
        for _ in 0..posted {
            let Some(qp) = self.qps.get(&number) else { return };
            let (cq, receive) = (qp.recv_cq, self.next_receive(qp));
            self.take_receive(number);
            let wr_id = receive.map_or(0, |receive| receive.wr_id);
            is_told = self.flushed(number, cq, wr_id, wc_opcode::RECV, is_told);
        }
    }

    /// Reports an event of a queue pair.
    pub(super) fn announce(&self, number: u32, event: u32) {
        let Some(qp) = self.qps.get(&number) else { return };
        if qp.domain.is_some() {
            return self.announce_target(number, event);
        }
        if let Some(events) = qp.events.and_then(|events| self.events.get(&events)) {
            events.asynchronous(About::Qp(number), event, qp.user_handle);
        }
    }
}
