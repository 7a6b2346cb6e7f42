//! A connected queue pair as the requester: requests become packets, and responses end them.

use std::collections::VecDeque;
use std::time::Instant;

use uverbs::raw::roce::requester::{Fault, Meaning, Request, Requester, Settings, Work};
use uverbs::raw::roce::responder::Responder;
use uverbs::raw::roce::{Operation, Packet};

use super::{Access, Host, Piece, Received, Send, Status};
use crate::transport::incoming::Incoming;

/// Maximum number of requests in flight.
const MOST_SENDS: usize = 64;

/// A reliable connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) settings: Settings,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    /// The requests that the requester has, with why they fail.
    sends: VecDeque<(Send, Option<Status>)>,
    /// A request that fails when those before it have ended.
    broken: Option<(u64, Status)>,
    pub(super) incoming: Incoming,
    has_failed: bool,
}

impl Connection {
    /// A connection that sends and expects packets with these numbers first.
    pub fn new(settings: Settings, first: u32, expected: u32) -> Self {
        let mut connection = Self {
            settings,
            requester: Requester::default(),
            responder: Responder::default(),
            sends: VecDeque::new(),
            broken: None,
            incoming: Incoming::default(),
            has_failed: false,
        };
        connection.begin_sending(first);
        connection.responder.begin(expected);
        connection
    }

    /// Begins to send with this packet number.
    pub fn begin_sending(&mut self, first: u32) {
        self.requester.begin(first);
    }

    /// The attributes.
    pub fn settings(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The number of the next packet, and of the one that is expected next.
    pub fn numbers(&self) -> (u32, u32) {
        (self.requester.next_psn(), self.responder.expected())
    }

    /// Whether a request has failed, ours or the peer's: the device moves the queue pair to the error state, and calls
    /// [`flush`](Self::flush).
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether all requests have ended.
    pub fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.broken.is_none()
    }

    /// Whether it takes another request.
    pub fn has_room(&self) -> bool {
        !self.has_failed && self.broken.is_none() && self.sends.len() < MOST_SENDS
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.requester.due()
    }

    /// Adds a request. [`advance`](Self::advance) sends it.
    pub fn post(&mut self, send: Send) {
        let len = match send.work {
            Work::Read(_) => send.to.iter().map(|piece| piece.len).sum(),
            Work::CompareSwap(_) | Work::FetchAdd(_) => 8,
            _ => send.data.len() as u32,
        };
        let request = Request { work: send.work, len, solicited: send.solicited, fence: send.fence, srq: 0 };
        self.requester.add(request, &self.settings);
        self.sends.push_back((send, None));
    }

    /// Adds a request that cannot be executed: it fails after those before it.
    pub fn post_broken(&mut self, token: u64, status: Status) {
        self.broken.get_or_insert((token, status));
    }

    /// Sends as many packets as may be under way, and ends requests.
    pub fn advance(&mut self, host: &mut impl Host, now: Instant) {
        while !self.has_failed
            && let Some(emission) = self.requester.packet(&self.settings, now)
        {
            let mut packet = emission.packet;
            if let Some((send, _)) = self.sends.get(emission.request) {
                let from = emission.offset as usize;
                let data = send.data.get(from..from + emission.len as usize);
                packet.payload = data.unwrap_or_default().to_vec();
            }
            host.send(packet);
        }
        self.retire(host);
    }

    /// A packet arrives from the peer.
    pub fn arrive(&mut self, packet: &Packet, host: &mut impl Host, now: Instant) {
        if self.has_failed {
            return;
        }
        if is_response(packet.operation) {
            self.answered(packet, host, now);
            self.advance(host, now);
        } else {
            self.requested(packet, host);
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, host: &mut impl Host, now: Instant) {
        if let Some(fault) = self.requester.tick(&self.settings, now) {
            self.fault(0, status_of(fault));
        }
        self.advance(host, now);
    }

    /// Ends everything that has not ended, as flushed.
    pub fn flush(&mut self, host: &mut impl Host) {
        self.has_failed = true;
        for (send, _) in std::mem::take(&mut self.sends) {
            host.sent(send.token, Status::Flushed, 0);
        }
        if let Some((token, _)) = self.broken.take() {
            host.sent(token, Status::Flushed, 0);
        }
        if let Some(receive) = self.incoming.receive.take() {
            host.received(receive.token, Status::Flushed, Received::default());
        }
    }

    /// Nothing is executed any more.
    pub(super) fn fail(&mut self) {
        self.has_failed = true;
    }

    fn fault(&mut self, index: usize, status: Status) {
        if let Some((_, fault)) = self.sends.get_mut(index) {
            fault.get_or_insert(status);
        }
    }

    fn answered(&mut self, packet: &Packet, host: &mut impl Host, now: Instant) {
        match self.requester.answer(packet, packet.payload.len(), &self.settings, now) {
            Meaning::Nothing => {}
            Meaning::Fault(index, fault) => self.fault(index, status_of(fault)),
            Meaning::Data { request, offset } => {
                let original = packet.original.to_le_bytes();
                let is_atomic = packet.operation == Operation::AtomicAcknowledge;
                let bytes = if is_atomic { &original[..] } else { &packet.payload };
                let Some((send, fault)) = self.sends.get_mut(request) else { return };
                if scatter(host, &send.to, offset as usize, bytes).is_err() {
                    fault.get_or_insert(Status::LocalProtection);
                }
            }
        }
    }

    /// Ends requests in the order in which they were posted.
    fn retire(&mut self, host: &mut impl Host) {
        while !self.has_failed
            && let Some((send, fault)) = self.sends.front()
        {
            let (token, fault) = (send.token, *fault);
            if let Some(status) = fault {
                self.sends.pop_front();
                self.fail();
                host.sent(token, status, 0);
            } else if self.requester.take_done() {
                let len = send.to.iter().map(|piece| piece.len).sum::<u32>() + send.data.len() as u32;
                self.sends.pop_front();
                host.sent(token, Status::Success, len);
            } else {
                return;
            }
        }
        if !self.has_failed
            && let Some((token, status)) = self.broken.take()
        {
            self.fail();
            host.sent(token, status, 0);
        }
    }
}

/// Why a message does not fit into its memory.
pub(super) enum Misfit {
    Length,
    Denied,
}

/// Writes bytes to their place in a message with this memory: `at` bytes of it come before.
pub(super) fn scatter(
    host: &mut impl Host,
    to: &[Piece],
    mut at: usize,
    mut bytes: &[u8],
) -> Result<(), Misfit> {
    for piece in to {
        let len = piece.len as usize;
        if at >= len {
            at -= len;
            continue;
        }
        let (part, rest) = bytes.split_at(bytes.len().min(len - at));
        if part.is_empty() {
            return Ok(());
        }
        let address = piece.address.wrapping_add(at as u64);
        let place = Piece { address, len: part.len() as u32, ..*piece };
        host.write(place, Access::LocalWrite, part).map_err(|_| Misfit::Denied)?;
        (bytes, at) = (rest, 0);
    }
    if bytes.is_empty() { Ok(()) } else { Err(Misfit::Length) }
}

fn is_response(operation: Operation) -> bool {
    use Operation::*;
    matches!(operation, Acknowledge | AtomicAcknowledge | ReadFirst | ReadMiddle | ReadLast | ReadOnly)
}

fn status_of(fault: Fault) -> Status {
    match fault {
        Fault::Retries => Status::RetriesExceeded,
        Fault::Unready => Status::UnreadyRetriesExceeded,
        Fault::InvalidRequest => Status::RemoteInvalidRequest,
        Fault::Access => Status::RemoteAccess,
        Fault::Operation => Status::RemoteOperation,
        Fault::BadResponse => Status::BadResponse,
    }
}
