//! The half of a connected queue pair that sends: which packet of which request is sent next, and what responses mean for it.
//!
//! It has neither the data nor a socket nor a clock. Its owner adds requests, asks for packets, fills in their data, and passes on
//! responses with the time of their arrival.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::message::{part_of, unready_time};
use super::packet::{Atomic, Operation, Packet, Remote, Service};
use super::psn;
pub use super::settings::Settings;

/// The shortest time after which a request is repeated: a peer in user space may have to wait for a processor.
const LEAST_TIMEOUT: Duration = Duration::from_millis(20);
/// The number of retries after "receiver not ready" that means for ever.
const FOR_EVER: u8 = 7;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A message, with immediate data.
    Send(Option<u32>),
    /// A message that invalidates a key.
    SendInvalidate(u32),
    /// A write, with immediate data.
    Write(Remote, Option<u32>),
    /// A read.
    Read(Remote),
    /// An atomic operation that exchanges a value.
    CompareSwap(Atomic),
    /// An atomic operation that adds.
    FetchAdd(Atomic),
}

impl Work {
    /// Whether its response has data.
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareSwap(_) | Self::FetchAdd(_))
    }

    fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap(_) | Self::FetchAdd(_))
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its operation.
    pub work: Work,
    /// Number of bytes that are sent or read.
    pub len: u32,
    /// The receiver is to be notified.
    pub solicited: bool,
    /// It begins only when all earlier reads and atomic operations have ended.
    pub fence: bool,
    /// The number of the shared queue to which it is, on an extended connection.
    pub srq: u32,
}

/// A request that has a sequence number.
#[derive(Debug)]
struct Flight {
    request: Request,
    first: u32,
    /// Number of its sequence numbers, and how many of them are acknowledged or answered.
    span: u32,
    acked: u32,
    /// Number of packets that are read at a time. It does not change, since the responder knows where each part ends.
    part: u32,
}

impl Flight {
    fn is_done(&self) -> bool {
        self.acked == self.span
    }
}

/// A packet to be sent: its headers, and which bytes of which request are its data.
#[derive(Debug)]
pub struct Emission {
    /// The headers.
    pub packet: Packet,
    /// The request, counted from the oldest that has not ended.
    pub request: usize,
    /// The first byte of its data.
    pub offset: u32,
    /// Number of bytes of data.
    pub len: u32,
}

/// What a response means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing for the data.
    Nothing,
    /// Its data belongs at this place of a request, counted from the oldest.
    Data {
        /// The request.
        request: usize,
        /// The first byte.
        offset: u32,
    },
    /// This request ends with a fault, after those before it.
    Fault(usize, Fault),
}

/// Why a request ends without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer does not respond.
    Retries,
    /// The peer had no receive.
    Unready,
    /// The peer refuses the request as invalid.
    InvalidRequest,
    /// The peer refuses access to its memory.
    Access,
    /// The peer has failed.
    Operation,
    /// The response has a wrong length.
    BadResponse,
}

/// What has happened, to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reports of missing packets.
    pub sequence: u64,
    /// Reports that the peer has no receive.
    pub unready: u64,
    /// Repetitions.
    pub retries: u64,
}

/// The state of the sender.
#[derive(Debug, Default)]
pub struct Requester {
    flights: VecDeque<Flight>,
    /// The sequence number of the next request that is added.
    next: u32,
    /// That of the next packet, and the first that was never sent.
    position: u32,
    limit: u32,
    /// Number of retries since the last progress.
    retries: u8,
    unready: u8,
    /// Packets were sent again, and there was no progress since: further signs of the same loss are ignored.
    is_recovering: bool,
    /// When it stops waiting for a response, and when it tries again after the peer was not ready.
    deadline: Option<Instant>,
    resume: Option<Instant>,
    counts: Counts,
}

impl Requester {
    /// Begins with this sequence number.
    pub fn begin(&mut self, psn: u32) {
        *self = Self { next: psn, position: psn, limit: psn, ..Self::default() };
    }

    /// The sequence number of the next request.
    pub fn next_psn(&self) -> u32 {
        self.next
    }

    /// Number of requests that have not ended.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether all requests have ended.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// What has happened since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Adds a request.
    pub fn add(&mut self, request: Request, settings: &Settings) {
        let span = if request.work.is_atomic() { 1 } else { request.len.div_ceil(settings.mtu).max(1) };
        self.flights.push_back(Flight {
            request,
            first: self.next,
            span,
            acked: 0,
            part: settings.packets(),
        });
        self.next = psn::add(self.next, span);
    }

    /// Whether the oldest request has ended; it is forgotten then.
    pub fn take_done(&mut self) -> bool {
        let is_done = self.flights.front().is_some_and(Flight::is_done);
        is_done && self.flights.pop_front().is_some()
    }

    /// Whether every request that was added has been sent.
    pub fn wants_more(&self) -> bool {
        self.position == self.next && self.resume.is_none()
    }

    /// The oldest sequence number that is not acknowledged.
    fn oldest(&self) -> u32 {
        let oldest = self.flights.iter().find(|flight| !flight.is_done());
        oldest.map_or(self.next, |flight| psn::add(flight.first, flight.acked))
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.resume.or(self.deadline)
    }

    /// The next packet, if one may be sent now.
    pub fn packet(&mut self, settings: &Settings, now: Instant) -> Option<Emission> {
        if self.resume.is_some() {
            return None;
        }
        let index = self.flights.iter().position(|flight| {
            (0..flight.span as i32).contains(&psn::distance(flight.first, self.position))
        })?;
        let oldest = self.oldest();
        let window = settings.packets();
        let is_reliable = settings.service != Service::Uc;
        let flight = &self.flights[index];
        let at = psn::distance(flight.first, self.position) as u32;
        let under_way = psn::distance(oldest, self.position).max(0) as u32;
        if is_reliable && under_way >= window || (at == 0 && self.waits(index, settings)) {
            return None;
        }
        let left = flight.span - at;
        let request = flight.request;
        let base = Packet::new(settings.service, Operation::SendOnly, settings.to);
        let base = Packet { psn: self.position, srq: request.srq, ..base };
        let (packet, taken, offset, len) = match request.work {
            Work::Read(remote) => {
                // A long read is several short ones, one after the other, so that no more arrives than is asked for.
                // What is asked for again ends where it ended the first time: the responder expects the next part there.
                let part = left.min(flight.part - at % flight.part);
                if at > flight.acked {
                    return None;
                }
                let offset = at * settings.mtu;
                let len = (request.len - offset).min(part * settings.mtu);
                let remote = Remote { address: remote.address.wrapping_add(offset.into()), len, ..remote };
                (Packet { operation: Operation::ReadRequest, remote, asks: true, ..base }, part, 0, 0)
            }
            Work::CompareSwap(atomic) => {
                (Packet { operation: Operation::CompareSwap, atomic, asks: true, ..base }, 1, 0, 0)
            }
            Work::FetchAdd(atomic) => {
                (Packet { operation: Operation::FetchAdd, atomic, asks: true, ..base }, 1, 0, 0)
            }
            _ => {
                let offset = at * settings.mtu;
                let len = (request.len - offset).min(settings.mtu);
                // The end of a message asks for an acknowledgement, and so does what opens a window that is half used.
                let asks = left == 1 || (under_way + 1).is_multiple_of((window / 2).max(1));
                (
                    Packet { asks: asks && is_reliable, ..part_of(&request, base, at == 0, left == 1) },
                    1,
                    offset,
                    len,
                )
            }
        };
        self.position = psn::add(self.position, taken);
        if psn::distance(self.limit, self.position) > 0 {
            self.limit = self.position;
        }
        if is_reliable {
            if self.deadline.is_none() {
                self.deadline = deadline(settings, now);
            }
        } else if let Some(flight) = self.flights.get_mut(index) {
            flight.acked += taken;
        }
        Some(Emission { packet, request: index, offset, len })
    }

    /// Whether a request waits for earlier ones.
    fn waits(&self, index: usize, settings: &Settings) -> bool {
        let Some(flight) = self.flights.get(index) else { return true };
        let asked = || self.flights.iter().take(index).filter(|flight| flight.request.work.is_answered());
        let outstanding = asked().filter(|flight| !flight.is_done()).count();
        flight.request.fence && outstanding > 0
            || flight.request.work.is_answered() && outstanding >= settings.reads as usize
    }

    /// A response has arrived, with `len` bytes of data.
    pub fn answer(&mut self, packet: &Packet, len: usize, settings: &Settings, now: Instant) -> Meaning {
        // A response to what was not sent, or to what has long ended.
        let sent = psn::distance(packet.psn, self.limit);
        if sent <= 0 || sent > 1 << 22 {
            return Meaning::Nothing;
        }
        match packet.operation {
            Operation::Acknowledge => match packet.syndrome >> 5 {
                0 => {
                    self.acknowledge(psn::add(packet.psn, 1), settings, now);
                    Meaning::Nothing
                }
                1 => self.not_ready(packet, settings, now),
                3 => self.refused(packet, settings, now),
                _ => Meaning::Nothing,
            },
            _ => self.data(packet, len, settings, now),
        }
    }

    /// Everything before this number has arrived. Missing responses are requested again.
    fn acknowledge(&mut self, before: u32, settings: &Settings, now: Instant) {
        let (mut progress, mut lost) = (false, None);
        for flight in &mut self.flights {
            let count = psn::distance(flight.first, before);
            if count <= 0 {
                break;
            }
            let count = (count as u32).min(flight.span);
            if flight.acked >= count {
                continue;
            }
            if flight.request.work.is_answered() {
                lost = Some(psn::add(flight.first, flight.acked));
                break;
            }
            flight.acked = count;
            progress = true;
        }
        if progress {
            self.progress(settings, now);
        }
        if let Some(from) = lost {
            self.again(from, settings, now);
        }
    }

    fn progress(&mut self, settings: &Settings, now: Instant) {
        (self.retries, self.unready, self.is_recovering) = (0, 0, false);
        let oldest = self.oldest();
        // What was acknowledged is not sent again.
        if psn::distance(self.position, oldest) > 0 {
            self.position = oldest;
        }
        let waits = psn::distance(oldest, self.limit) > 0;
        self.deadline = deadline(settings, now).filter(|_| waits);
    }

    /// Something was lost: sends everything from this number on again, once.
    fn again(&mut self, from: u32, settings: &Settings, now: Instant) {
        if !self.is_recovering && self.resume.is_none() {
            self.is_recovering = true;
            self.counts.retries += 1;
            self.position = from;
            self.deadline = deadline(settings, now);
        }
    }

    /// Handles the data of a read, or the old value of an atomic operation.
    fn data(&mut self, packet: &Packet, len: usize, settings: &Settings, now: Instant) -> Meaning {
        let is_there = |flight: &Flight| {
            let at = psn::distance(flight.first, packet.psn);
            flight.request.work.is_answered() && (0..flight.span as i32).contains(&at)
        };
        let Some(index) = self.flights.iter().position(is_there) else { return Meaning::Nothing };
        let first = self.flights[index].first;
        // Everything that was sent before has arrived, because the peer has responded to this.
        self.acknowledge(first, settings, now);
        if self.flights.iter().take(index).any(|flight| !flight.is_done()) {
            return Meaning::Nothing;
        }
        let Some(flight) = self.flights.get_mut(index) else { return Meaning::Nothing };
        let at = psn::distance(first, packet.psn) as u32;
        if at < flight.acked {
            return Meaning::Nothing;
        }
        if at > flight.acked {
            let from = psn::add(first, flight.acked);
            self.again(from, settings, now);
            return Meaning::Nothing;
        }
        let is_atomic = flight.request.work.is_atomic();
        let offset = if is_atomic { 0 } else { at * settings.mtu };
        let fits = if is_atomic {
            packet.operation == Operation::AtomicAcknowledge
        } else {
            packet.operation != Operation::AtomicAcknowledge
                && len == (flight.request.len - offset).min(settings.mtu) as usize
        };
        if !fits {
            return Meaning::Fault(index, Fault::BadResponse);
        }
        flight.acked += 1;
        self.progress(settings, now);
        Meaning::Data { request: index, offset }
    }

    /// The peer had no receive: the message is sent again later.
    fn not_ready(&mut self, packet: &Packet, settings: &Settings, now: Instant) -> Meaning {
        let is_new = psn::distance(self.oldest(), packet.psn) >= 0;
        self.acknowledge(packet.psn, settings, now);
        if !is_new || self.resume.is_some() {
            return Meaning::Nothing;
        }
        self.counts.unready += 1;
        if settings.unready != FOR_EVER {
            if self.unready >= settings.unready {
                return self.fault_at(packet.psn, Fault::Unready);
            }
            self.unready += 1;
        }
        self.position = self.oldest();
        self.deadline = None;
        self.resume = Some(now + unready_time(packet.syndrome & 0x1f));
        Meaning::Nothing
    }

    fn refused(&mut self, packet: &Packet, settings: &Settings, now: Instant) -> Meaning {
        if psn::distance(self.oldest(), packet.psn) < 0 {
            return Meaning::Nothing;
        }
        self.acknowledge(packet.psn, settings, now);
        let fault = match packet.syndrome & 0x1f {
            0 => {
                self.counts.sequence += 1;
                self.again(self.oldest(), settings, now);
                return Meaning::Nothing;
            }
            1 => Fault::InvalidRequest,
            2 => Fault::Access,
            3 => Fault::Operation,
            _ => return Meaning::Nothing,
        };
        self.fault_at(packet.psn, fault)
    }

    fn fault_at(&self, psn: u32, fault: Fault) -> Meaning {
        let is_it = |flight: &Flight| (0..flight.span as i32).contains(&psn::distance(flight.first, psn));
        let index = self.flights.iter().position(is_it);
        index.map_or(Meaning::Nothing, |index| Meaning::Fault(index, fault))
    }

    /// Does what is due. A fault ends the oldest request.
    pub fn tick(&mut self, settings: &Settings, now: Instant) -> Option<Fault> {
        if let Some(resume) = self.resume {
            if resume <= now {
                (self.resume, self.is_recovering) = (None, false);
                self.position = self.oldest();
                self.deadline = deadline(settings, now);
            }
            return None;
        }
        self.deadline.filter(|deadline| *deadline <= now)?;
        if psn::distance(self.oldest(), self.limit) <= 0 {
            self.deadline = None;
            return None;
        }
        if self.retries >= settings.retries {
            return Some(Fault::Retries);
        }
        self.retries += 1;
        self.counts.retries += 1;
        self.is_recovering = true;
        self.position = self.oldest();
        self.deadline = deadline(settings, now);
        None
    }
}

fn deadline(settings: &Settings, now: Instant) -> Option<Instant> {
    settings.timeout.map(|timeout| now + timeout.max(LEAST_TIMEOUT))
}
