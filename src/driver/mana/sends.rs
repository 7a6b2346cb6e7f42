//! The send queue of mana: that of the requester, and the places of the answers to reads.

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::types::{QpAttrMask, SendFlags, qp_state, wc_opcode};
use uverbs_abi::write::ModifyQp;

use super::doorbell::Doorbell;
use super::gdma::{self, POSITION, PSN, Send, UNIT, distance};
use super::plans::Registered;
use super::track::{Posted, RECEIVES, SENDS, Track};
use crate::driver::request::{Address, Data, FrameHead, InlineParts, Opcode, Refused, Sge, Terms};
use crate::driver::ring::units::Units;
use crate::driver::seam::{Lower, Published, SendRing};

/// The supported flags of requests.
const KNOWN: SendFlags = SendFlags::SIGNALED.union(SendFlags::SOLICITED).union(SendFlags::FENCE);

/// Numbers of packets can be compared if no more than these are outstanding.
const MOST_PACKETS: i32 = 1 << 22;

/// Where the queue is: the number of the next request, the positions of the next request and of the next place of an answer, in units, the
/// number of the next packet, and that of the next send.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    request: u32,
    at: u32,
    answer: u32,
    psn: u32,
    send: u32,
    /// Number of places of answers since the last publication.
    answers: u8,
}

/// The rings and the doorbells of a requester.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) sends: Units,
    /// The places of answers, and the size of their ring in units.
    pub(super) answers: Units,
    pub(super) answer_units: u32,
    pub(super) send_bell: Doorbell,
    pub(super) answer_bell: Doorbell,
}

/// The send queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Sends {
    registered: Arc<Registered>,
    rings: Rings,
    /// Maximum number of pieces of a request, and of a place for an answer.
    pieces: u32,
    signals_all: bool,
    head: Head,
    published: Head,
    /// Bytes of a full packet; zero until it is known.
    mtu: u32,
    is_ready: bool,
}

impl Sends {
    pub(super) fn new(registered: Arc<Registered>, rings: Rings, pieces: u32, signals_all: bool) -> Self {
        let (head, published) = (Head::default(), Head::default());
        Self { registered, rings, pieces, signals_all, head, published, mtu: 0, is_ready: false }
    }

    fn track(&self) -> &Track {
        self.registered.track()
    }

    fn put_request(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: Opcode<'_>,
        pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    ) -> Result<(), Refused> {
        let track = self.registered.track();
        if !KNOWN.contains(flags) {
            return Err(Refused::Lacks);
        }
        let flags = if self.signals_all { flags | SendFlags::SIGNALED } else { flags };
        let done = match opcode {
            Opcode::Send | Opcode::SendImmediate(_) => wc_opcode::SEND,
            Opcode::Write(_) | Opcode::WriteImmediate(..) => wc_opcode::RDMA_WRITE,
            Opcode::Read(_) => wc_opcode::RDMA_READ,
            _ => return Err(Refused::Lacks),
        };
        if !self.is_ready || track.is_over() || self.mtu == 0 {
            return Err(Refused::NotReady);
        }
        if pieces.len() > self.pieces as usize {
            return Err(Refused::TooLarge);
        }
        let (lane, head, rings) = (&track.sends, &self.head, &mut self.rings);
        if lane.is_full(head.request) {
            return Err(Refused::Full);
        }
        let (mtu, psn) = (self.mtu, head.psn);
        let request = Send { flags, opcode, psn, number: head.send, mtu };
        let to = (&mut rings.sends, head.at);
        let (units, len, answer) = if done == wc_opcode::RDMA_READ {
            let used = head.answer.wrapping_sub(lane.answered());
            let needed = (gdma::receive_size(pieces.len()) / UNIT) as u32;
            if used.saturating_add(needed) > rings.answer_units || head.answers == u8::MAX {
                return Err(Refused::Full);
            }
            let (answer, read) = gdma::answer((&mut rings.answers, head.answer), pieces, psn)?;
            let (units, len) = gdma::send(to, &request, std::iter::empty::<Sge>(), read)?;
            (units, len, Some(answer))
        } else {
            let (units, len) = gdma::send(to, &request, pieces, 0)?;
            (units, len, None)
        };
        let end = psn.wrapping_add(len.div_ceil(mtu).max(1)) & PSN;
        // The oldest one may have ended meanwhile: then there is more room than this says.
        let oldest = lane.stored(lane.taken());
        let is_alone = head.request == lane.taken();
        if !is_alone && !(0..MOST_PACKETS).contains(&distance(oldest.end, end)) {
            return Err(Refused::Full);
        }
        let answer_units = answer.unwrap_or(0);
        let posted = Posted {
            wr_id,
            opcode: done,
            is_signaled: flags.contains(SendFlags::SIGNALED),
            at: head.at,
            units,
            answer: answer_units,
            end: end.wrapping_sub(1) & PSN,
            bytes: 0,
        };
        lane.store(head.request, &posted);
        self.head = Head {
            request: head.request.wrapping_add(1),
            at: head.at.wrapping_add(units) & POSITION,
            answer: head.answer.wrapping_add(answer_units),
            psn: end,
            send: head.send.wrapping_add(1) & PSN,
            answers: head.answers + u8::from(answer.is_some()),
        };
        Ok(())
    }
}

impl SendRing for Sends {
    fn slots(&self) -> usize {
        self.track().sends.places() as usize
    }

    fn next_slot(&self) -> u32 {
        self.track().sends.place(self.head.request)
    }

    fn one<const LOOKS: bool, const KIND: u8>(&mut self) -> impl Lower {
        Writing(self)
    }

    /// The places of answers are announced before the reads. What is published can complete at once.
    fn publish(&mut self) -> Published {
        let Head { request, at, answer, answers, .. } = self.head;
        if request == self.published.request {
            return Published::Nothing;
        }
        let track = self.registered.track();
        track.sends.publish(request);
        track.tell_newest(track.sends.stored(request.wrapping_sub(1)).at);
        if answers > 0 {
            let position = (answer & POSITION).wrapping_mul(UNIT as u32);
            self.rings.answer_bell.ring(track.numbers.answers, answers, position);
        }
        self.rings.send_bell.ring(track.numbers.sends, 0, at.wrapping_mul(UNIT as u32));
        self.head.answers = 0;
        self.published = self.head;
        Published::Told
    }

    fn rewind(&mut self) {
        self.head = self.published;
    }

    fn is_idle(&self) -> Option<bool> {
        Some(self.track().sends.is_idle())
    }

    fn changed(&mut self, request: &ModifyQp) {
        let mask = QpAttrMask::from_bits_retain(request.attr_mask);
        if mask.contains(QpAttrMask::PATH_MTU) {
            self.mtu = 128_u32.checked_shl(request.path_mtu.into()).unwrap_or(0).min(4096);
        }
        let is_ready = mask.contains(QpAttrMask::STATE) && request.qp_state == qp_state::RTS;
        if is_ready && mask.contains(QpAttrMask::SQ_PSN) {
            self.rewind();
            (self.head.psn, self.head.send) = (request.sq_psn & PSN, 1);
            self.published = self.head;
            self.track().arm(request.sq_psn);
        }
    }

    fn enter(&mut self, state: u8) {
        self.rewind();
        match state {
            qp_state::RESET => {
                let request = self.head.request;
                self.head = Head { request, ..Head::default() };
                self.published = self.head;
                self.mtu = 0;
                self.registered.reset();
            }
            qp_state::ERR => self.track().end(SENDS | RECEIVES),
            _ => {}
        }
        self.is_ready = state == qp_state::RTS;
    }
}

/// A send queue, borrowed to be filled.
#[derive(Debug)]
struct Writing<'a>(&'a mut Sends);

impl Lower for Writing<'_> {
    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        _: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        match data {
            Data::Pieces(pieces) => self.0.put_request(wr_id, flags, opcode.opcode(), pieces.clone()),
            Data::Inline(_) => Err(Refused::Lacks),
        }
    }

    fn set_address(&mut self, _: Address, _: u32, _: u32) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }
}
