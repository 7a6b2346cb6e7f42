//! How a requester handles the responses of the peer, and missing ones.

use std::time::Duration;

use super::data::scatter;
use super::qp::{Qp, state};
use super::requester::{Answer, Flight, Work};
use super::{Around, path};
use crate::bits::Bits;
use crate::ifc::context::qpc;
use crate::queue::Syndrome;
use crate::queue_counter::QueueEvent;
use uverbs::raw::roce::psn;
use uverbs::raw::roce::{Operation as Kind, Packet, Remote};

/// The number of retries that means for ever.
const FOR_EVER: u32 = 7;

impl Qp {
    /// A response arrives: an acknowledgement, data of a read, the old value of an atomic operation, or a refusal.
    pub(super) fn answered(&mut self, packet: &Packet, around: &mut Around<'_>) {
        if !matches!(self.state(), state::READY_TO_SEND | state::SEND_DRAINED) {
            return;
        }
        match packet.operation {
            Kind::Acknowledge => match packet.syndrome >> 5 {
                0 => self.acknowledge(psn::add(packet.psn, 1), around),
                1 => self.not_ready(packet, around),
                _ => self.refused(packet, around),
            },
            _ => self.take_answer(packet, around),
        }
        self.advance(around);
    }

    /// Everything before this number has arrived. Missing responses are requested again.
    fn acknowledge(&mut self, before: u32, around: &mut Around<'_>) {
        let mut progress = false;
        let mut lost = None;
        for flight in self.requester.flights.iter_mut().filter(|flight| flight.span > 0) {
            let count = psn::distance(flight.first, before);
            if count <= 0 {
                break;
            }
            let count = (count as u32).min(flight.span);
            if flight.awaits_answer() {
                if flight.acked < count {
                    lost = Some(psn::add(flight.first, flight.acked));
                    break;
                }
            } else if flight.acked < count {
                flight.acked = count;
                progress = true;
            }
        }
        if progress {
            self.progress(around.now);
        }
        if let Some(from) = lost {
            self.miss_answer(from, around);
        }
    }

    fn progress(&mut self, now: Duration) {
        let is_waiting = self.requester.flights.iter().any(|flight| !flight.is_done());
        (self.requester.retries, self.requester.unready, self.requester.has_asked) = (0, 0, false);
        self.requester.deadline = self.deadline(now).filter(|_| is_waiting);
    }

    /// Handles the data of a read, or the old value of an atomic operation.
    fn take_answer(&mut self, packet: &Packet, around: &mut Around<'_>) {
        let (mtu, reach) = (self.mtu(), self.reach());
        let is_there = |flight: &Flight| {
            flight.awaits_answer()
                && (0..flight.span as i32).contains(&psn::distance(flight.first, packet.psn))
        };
        let Some(at) = self.requester.flights.iter().position(is_there) else { return };
        let index = psn::distance(self.requester.flights[at].first, packet.psn) as u32;
        // Everything that was sent before has arrived, because the peer has responded to this; a response before this one was lost.
        self.acknowledge(self.requester.flights[at].first, around);
        let Some(flight) = self.requester.flights.get_mut(at) else { return };
        if index < flight.acked {
            return;
        }
        if index > flight.acked {
            let from = psn::add(flight.first, flight.acked);
            return self.miss_answer(from, around);
        }
        let original = packet.original.to_le_bytes();
        let (to, at, bytes) = match &mut flight.work {
            Work::Read { to, len } => {
                let at = index as usize * mtu;
                if packet.payload.len() != (*len as usize - at).min(mtu) {
                    flight.work = Work::Fault(Syndrome::BadResponse);
                    flight.acked = flight.span;
                    return;
                }
                (to, at, &packet.payload[..])
            }
            Work::Atomic(to) => (to, 0, &original[..]),
            _ => return,
        };
        let put = match to {
            Answer::Memory(segments) => scatter(around, reach, segments, at, bytes),
            Answer::Inline(all) => {
                all[at..at + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
        };
        flight.acked += 1;
        if let Err(syndrome) = put {
            (flight.work, flight.acked) = (Work::Fault(syndrome), flight.span);
        }
        self.progress(around.now);
    }

    /// The peer had no receive request: the message is sent again later.
    fn not_ready(&mut self, packet: &Packet, around: &mut Around<'_>) {
        self.acknowledge(packet.psn, around);
        self.retire(around);
        if self.requester.flights.iter().all(Flight::is_done) || self.requester.resume.is_some() {
            return;
        }
        let most = self.context.num(qpc::rnr_retry);
        if most != FOR_EVER {
            if self.requester.unready >= most {
                return self.fail(packet.psn, Syndrome::RnrRetryExceeded, around);
            }
            self.requester.unready += 1;
        }
        around.count(QueueEvent::NotReady);
        self.requester.deadline = None;
        self.requester.resume = Some(around.now + unready_time(packet.syndrome & 0x1f));
    }

    fn refused(&mut self, packet: &Packet, around: &mut Around<'_>) {
        self.acknowledge(packet.psn, around);
        let syndrome = match packet.syndrome & 0x1f {
            0 => {
                around.count(QueueEvent::SequenceNak);
                return self.ask_again(packet.psn, around);
            }
            1 => Syndrome::RemoteInvalidRequest,
            2 => Syndrome::RemoteAccess,
            _ => Syndrome::RemoteOperation,
        };
        self.fail(packet.psn, syndrome, around);
    }

    /// The request with this number ends with an error, and the queue enters the error state.
    fn fail(&mut self, psn: u32, syndrome: Syndrome, around: &mut Around<'_>) {
        let is_it = |flight: &Flight| (0..flight.span as i32).contains(&psn::distance(flight.first, psn));
        if let Some(flight) = self.requester.flights.iter_mut().find(|flight| is_it(flight)) {
            (flight.work, flight.acked) = (Work::Fault(syndrome), flight.span);
            self.retire(around);
        }
    }

    /// The response shows that an earlier one was lost.
    fn miss_answer(&mut self, from: u32, around: &mut Around<'_>) {
        if self.asks_again() {
            around.count(QueueEvent::ImpliedNak);
        }
        self.ask_again(from, around);
    }

    /// Whether the loss was not known yet.
    fn asks_again(&self) -> bool {
        !self.requester.has_asked && self.requester.resume.is_none()
    }

    /// Something was lost: sends everything from this number on again, once.
    fn ask_again(&mut self, from: u32, around: &mut Around<'_>) {
        if self.asks_again() {
            self.requester.has_asked = true;
            self.again(from, around);
        }
    }

    /// Sends everything from this number on again.
    fn again(&mut self, from: u32, around: &mut Around<'_>) {
        let route = path::of_path(self.path(), around.port);
        let mtu = self.mtu() as u32;
        for flight in self.requester.flights.iter().filter(|flight| !flight.is_done()) {
            let skipped = psn::distance(flight.first, from).max(flight.acked as i32) as u32;
            match (&flight.work, flight.packets.first()) {
                (Work::Read { len, .. }, Some(request)) => {
                    let Remote { address, key, .. } = request.remote;
                    let passed = flight.acked * mtu;
                    let remote = Remote { address: address + u64::from(passed), key, len: len - passed };
                    let psn = psn::add(flight.first, flight.acked);
                    around.send(route, Packet { psn, remote, ..request.clone() });
                }
                _ => flight
                    .packets
                    .iter()
                    .skip(skipped as usize)
                    .for_each(|packet| around.send(route, packet.clone())),
            }
        }
        self.requester.deadline = self.deadline(around.now);
    }

    /// Checks whether it is time to retry, or to end with an error.
    pub(super) fn tick(&mut self, around: &mut Around<'_>) {
        if self.state() == state::ERROR {
            // Receives that are posted in this state have no doorbell.
            self.flush_receives(around);
            return self.flush_sends(around);
        }
        let Some(oldest) = self.requester.flights.iter().find(|flight| !flight.is_done()) else { return };
        let oldest = psn::add(oldest.first, oldest.acked);
        if self.requester.resume.is_some_and(|time| time <= around.now) {
            (self.requester.resume, self.requester.has_asked) = (None, false);
            self.again(oldest, around);
            self.advance(around);
        } else if self.requester.resume.is_none()
            && self.requester.deadline.is_some_and(|time| time <= around.now)
        {
            if self.requester.retries >= self.context.num(qpc::retry_count) {
                self.fail(oldest, Syndrome::RetryExceeded, around);
                return self.advance(around);
            }
            around.count(QueueEvent::AckTimeout);
            self.requester.retries += 1;
            self.requester.has_asked = true;
            self.again(oldest, around);
        }
    }
}

/// How long a requester waits after "receiver not ready": table 45 of the InfiniBand specification.
fn unready_time(code: u8) -> Duration {
    const HUNDREDTHS: [u64; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(HUNDREDTHS[usize::from(code & 31)] * 10)
}
