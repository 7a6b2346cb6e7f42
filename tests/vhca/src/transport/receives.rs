//! Receive requests: from a queue pair's own ring or from a shared queue, up to their completions.

use super::qp::{Qp, state};
use super::responder::Refusal;
use super::{Around, completion};
use crate::bits::Bits;
use crate::ifc::context::qpc;
use crate::mkey::Reach;
use crate::queue::{CompletionEntry, Opcode, Segment, Syndrome, Xrc, event};
use crate::queue_counter::QueueEvent;
use crate::transport::route::Route;
use uverbs::raw::roce::{Packet, Service};

/// A receive request that is being filled by a message.
#[derive(Debug)]
pub(super) struct Receiving {
    counter: u16,
    pub(super) segments: Vec<Segment>,
    /// The user of the keys in the request.
    pub(super) reach: Reach,
    /// Number of bytes that have arrived.
    pub(super) filled: usize,
    /// The shared queue of XRC from which it was taken, which determines the completion queue.
    xrc: Option<Xrc>,
}

impl Qp {
    /// The user of the keys in requests of this queue pair.
    pub(super) fn reach(&self) -> Reach {
        Reach { pd: self.pd(), qpn: self.number, reserved: self.context.is(qpc::rlky) }
    }

    /// The next receive request, for a message that begins with this packet.
    pub(super) fn take_receive(
        &mut self,
        packet: &Packet,
        around: &mut Around<'_>,
    ) -> Result<Receiving, Refusal> {
        let shared = match packet.service {
            Service::Xrc => Some(packet.srq),
            _ => self.shared_receives(),
        };
        let ring = match shared {
            Some(number) => around.pools.get_mut(&number),
            None => self.receives.as_mut(),
        };
        let ring = ring.ok_or(Refusal::NotReady)?;
        let taken = ring.take(around.memory);
        let (pd, xrc) = (ring.work.pd, ring.xrc);
        let limit_is_reached = shared.is_some() && ring.limit_is_reached(around.memory);
        if let (Some(number), true) = (shared, limit_is_reached) {
            around.event(event::SHARED_LIMIT, number);
        }
        match taken {
            Ok(Some((counter, segments))) => {
                let xrc = xrc.filter(|_| packet.service == Service::Xrc);
                let reach = Reach { pd: Some(pd), ..self.reach() };
                Ok(Receiving { counter, segments, reach, filled: 0, xrc })
            }
            Ok(None) => {
                around.count(QueueEvent::OutOfBuffer);
                Err(Refusal::NotReady)
            }
            Err(_) => {
                *around.faults += 1;
                Err(Refusal::NotReady)
            }
        }
    }

    /// The message that fills the request has ended.
    pub(super) fn complete_receive(
        &mut self,
        opcode: Opcode,
        is_inline: bool,
        route: &Route,
        packet: &Packet,
        around: &mut Around<'_>,
    ) {
        let Some(receiving) = self.responder.receiving.take() else { return };
        let (len, link) = (receiving.filled as u32, around.port.link);
        let mut entry = completion::responder(self, opcode, receiving.counter, len, packet, route, link);
        if is_inline {
            entry.put_inline(&packet.payload);
        }
        self.post_receive(&receiving, entry, around);
    }

    /// The message that fills the request cannot be received.
    pub(super) fn end_receiving(&mut self, syndrome: Syndrome, around: &mut Around<'_>) {
        let Some(receiving) = self.responder.receiving.take() else { return };
        around.counts.count_responder(syndrome);
        let entry = completion::responder_error(self, receiving.counter, syndrome);
        self.post_receive(&receiving, entry, around);
    }

    fn post_receive(&self, receiving: &Receiving, mut entry: CompletionEntry, around: &mut Around<'_>) {
        let mut cqn = self.context.num(qpc::cqn_rcv);
        if let Some(xrc) = receiving.xrc {
            cqn = xrc.cqn;
            entry.user_index(xrc.user_index);
        }
        around.complete(cqn, entry);
    }

    /// The queue pair enters the error state: the receive in progress and the remaining ones are flushed.
    pub(super) fn enter_error(&mut self, around: &mut Around<'_>) {
        if self.state() != state::ERROR {
            self.set_state(state::ERROR);
            self.fail_all(around);
        }
    }

    /// The consequences of the error state.
    pub(super) fn fail_all(&mut self, around: &mut Around<'_>) {
        self.end_receiving(Syndrome::Flushed, around);
        self.flush_receives(around);
        if self.shared_receives().is_some() {
            around.event(event::LAST_REQUEST, self.number);
        }
    }

    /// Completes all its own receive requests as flushed.
    pub(super) fn flush_receives(&mut self, around: &mut Around<'_>) {
        let cqn = self.context.num(qpc::cqn_rcv);
        while let Some(ring) = &mut self.receives {
            match ring.take(around.memory) {
                Ok(Some((counter, _))) => {
                    around.counts.count_responder(Syndrome::Flushed);
                    let flushed = completion::responder_error(self, counter, Syndrome::Flushed);
                    around.complete(cqn, flushed);
                }
                Ok(None) => return,
                Err(_) => return *around.faults += 1,
            }
        }
    }
}
