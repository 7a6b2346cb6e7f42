//! The receive queue of mana: that of the responder.

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::types::{qp_state, wc_opcode};

use super::doorbell::Doorbell;
use super::gdma::{self, POSITION, UNIT};
use super::plans::Registered;
use super::track::{Posted, Track};
use crate::driver::request::{Refused, Sge};
use crate::driver::ring::units::Units;
use crate::driver::seam::{FillReceives, LowerReceive, ReceiveBatch, ReceiveRing};

/// The receive queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    registered: Arc<Registered>,
    ring: Units,
    doorbell: Doorbell,
    /// Maximum number of pieces of a request.
    pieces: u32,
    /// Number of requests that were filled and that were published, and the positions after them.
    head: u32,
    published: u32,
    at: u32,
    published_at: u32,
    /// Whether the queue pair has left the reset state.
    is_ready: bool,
}

impl Receives {
    pub(super) fn new(registered: Arc<Registered>, ring: Units, doorbell: Doorbell, pieces: u32) -> Self {
        Self {
            registered,
            ring,
            doorbell,
            pieces,
            head: 0,
            published: 0,
            at: 0,
            published_at: 0,
            is_ready: false,
        }
    }

    fn track(&self) -> &Track {
        self.registered.track()
    }

    /// Announces everything that was filled. One doorbell announces at most 255 requests.
    fn publish(&mut self) {
        let track = self.registered.track();
        track.receives.publish(self.head);
        while self.published != self.head {
            let count = self.head.wrapping_sub(self.published).min(u8::MAX.into());
            self.published = self.published.wrapping_add(count);
            let is_all = self.published == self.head;
            let end = if is_all { self.at } else { track.receives.stored(self.published).at };
            self.doorbell.ring(track.numbers.qp, count as u8, end.wrapping_mul(UNIT as u32));
        }
        self.published_at = self.at;
    }
}

impl ReceiveRing for Receives {
    fn slots(&self) -> usize {
        self.track().receives.places() as usize
    }

    fn next_slot(&self) -> u32 {
        self.track().receives.place(self.head)
    }

    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let answer = how.fill(&mut ReceiveBatch::new(Filling(self), pieces));
        if F::is_kept(&answer) {
            self.publish();
        } else {
            self.rewind();
        }
        answer
    }

    fn rewind(&mut self) {
        (self.head, self.at) = (self.published, self.published_at);
    }

    fn is_idle(&self) -> Option<bool> {
        Some(self.track().receives.is_idle())
    }

    /// The queue of sends resets what both share.
    fn enter(&mut self, state: u8) {
        self.rewind();
        if state == qp_state::RESET {
            (self.at, self.published_at) = (0, 0);
        }
        self.is_ready = state != qp_state::RESET;
    }
}

/// A receive queue, borrowed to be filled.
#[derive(Debug)]
pub(crate) struct Filling<'a>(&'a mut Receives);

impl LowerReceive for Filling<'_> {
    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        let receives = &mut *self.0;
        let track = receives.registered.track();
        if !receives.is_ready || track.is_over() {
            return Err(Refused::NotReady);
        }
        if pieces.len() > receives.pieces as usize {
            return Err(Refused::TooLarge);
        }
        let lane = &track.receives;
        if lane.is_full(receives.head) {
            return Err(Refused::Full);
        }
        let (units, bytes) = gdma::receive((&mut receives.ring, receives.at), pieces)?;
        let posted = Posted {
            wr_id,
            opcode: wc_opcode::RECV,
            is_signaled: true,
            at: receives.at,
            units,
            bytes,
            ..Posted::default()
        };
        lane.store(receives.head, &posted);
        receives.head = receives.head.wrapping_add(1);
        receives.at = receives.at.wrapping_add(units) & POSITION;
        Ok(())
    }
}
