//! The receive queue of efa: a ring of pieces of memory, in which a request takes as many places as it has pieces.
//!
//! Source: `efa_post_recv`, providers/efa/verbs.c, rdma-core 65.

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::efa::io::{LKEY, RX_FIRST, RX_LAST, RxDesc};
use uverbs_abi::types::qp_state;

use super::doorbell::Doorbell;
use super::qp::Queues;
use super::track::{Kind, Numbers};
use crate::driver::request::{Refused, Sge};
use crate::driver::ring::units::Units;
#[cfg(feature = "raw")]
use crate::driver::seam::OwnRing;
use crate::driver::seam::{FillReceives, LowerReceive, Plains, ReceiveBatch, ReceiveRing};
use crate::kernel::error::{Error, Result};

/// Bytes of a piece in the ring.
pub(super) const PIECE: usize = size_of::<RxDesc>();

/// The receive queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    queues: Arc<Queues>,
    numbers: Numbers,
    /// Indices of the requests that can still be discarded, in their order, and their number. There is room for all.
    staged: Box<[u16]>,
    count: usize,
    /// Its items are pieces.
    ring: Units,
    doorbell: Doorbell,
    /// Number of places for pieces, a power of two.
    places: u32,
    /// Maximum number of pieces of a request.
    pieces: u32,
    /// Number of pieces that were filled, that were published, and that the doorbell has announced.
    head: u32,
    published: u32,
    told: u32,
    /// Whether the device accepts receives. Those that were published before are announced when it begins to.
    is_ready: bool,
    /// Whether the queue pair is in the error state, in which nothing is posted (`efa_post_recv_validate`).
    is_over: bool,
}

impl Receives {
    pub(super) fn new(
        op: &'static str,
        queues: Arc<Queues>,
        ring: Units,
        doorbell: Doorbell,
        [places, pieces]: [u32; 2],
    ) -> Result<Self> {
        let lane = &queues.track().receives;
        let numbers = Numbers::new(op, lane, queues.generation())?;
        let mut staged = Error::room(op, lane.requests() as usize)?;
        staged.resize(lane.requests() as usize, 0);
        Ok(Self {
            queues,
            numbers,
            staged: staged.into_boxed_slice(),
            count: 0,
            ring,
            doorbell,
            places,
            pieces,
            head: 0,
            published: 0,
            told: 0,
            is_ready: false,
            is_over: false,
        })
    }

    /// Borrows the queue for requests that are posted whatever follows them: they cannot be discarded.
    #[inline(always)]
    pub(crate) fn keeping(&mut self) -> Filling<'_, false> {
        Filling(self)
    }

    /// Borrows the queue for requests that can be discarded until they are published.
    #[inline(always)]
    pub(crate) fn staging(&mut self) -> Filling<'_, true> {
        Filling(self)
    }

    /// Publishes every request that was filled, and rings the doorbell if the device accepts receives.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        self.published = self.head;
        self.count = 0;
        if self.is_ready && self.told != self.published {
            self.told = self.published;
            self.doorbell.ring(self.told & 0xffff);
        }
    }

    /// Writes a piece into the ring.
    #[inline(always)]
    fn put_piece(&mut self, piece: &Sge, number: u16, marks: u32) {
        let at = self.head & self.places.wrapping_sub(1);
        self.ring.put(at as usize, words(piece, number, marks));
        self.head = self.head.wrapping_add(1);
    }

    /// Writes the pieces of a request that has none, or several.
    #[inline(never)]
    fn put_pieces(&mut self, mut pieces: impl ExactSizeIterator<Item: Borrow<Sge>>, number: u16) {
        // A request without memory has one piece of no bytes.
        let (mut left, mut number) = (pieces.len().max(1), number);
        let mut marks = RX_FIRST;
        while left > 0 {
            left -= 1;
            if left == 0 {
                marks |= RX_LAST;
            }
            let piece = pieces.next().map_or(Sge::default(), |piece| *piece.borrow());
            self.put_piece(&piece, number, marks);
            (marks, number) = (0, 0);
        }
    }
}

/// A piece in the device's format: the words of an [`RxDesc`].
#[inline(always)]
fn words(&Sge { addr, length, lkey }: &Sge, number: u16, marks: u32) -> [u64; 2] {
    // No message is longer, so it needs neither the rest of the piece nor the pieces after it.
    let length = u64::from(length.min(u16::MAX.into()));
    let rest = u64::from(number) | length << 16 | u64::from(lkey & LKEY | marks) << 32;
    [addr, rest].map(u64::to_le)
}

impl ReceiveRing for Receives {
    fn slots(&self) -> usize {
        self.queues.track().receives.requests() as usize
    }

    /// The index of the next request.
    fn next_slot(&self) -> u32 {
        self.numbers.next(&self.queues.track().receives).unwrap_or(0).into()
    }

    #[inline(always)]
    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let answer = how.fill(&mut ReceiveBatch::new(self.staging(), pieces));
        if F::is_kept(&answer) {
            self.publish();
        } else {
            self.rewind();
        }
        answer
    }

    /// A refused request was not filled.
    #[inline(always)]
    fn post_one<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let answer = how.fill(&mut ReceiveBatch::new(self.keeping(), pieces));
        self.publish();
        answer
    }

    #[cfg(feature = "raw")]
    #[inline(always)]
    fn post_kept<F: FillReceives>(&mut self, pieces: u32, how: F) -> Option<F::Answer> {
        Some(self.post_one(pieces, how))
    }

    fn rewind(&mut self) {
        self.head = self.published;
        let staged = self.staged.get(..self.count).unwrap_or_default();
        for index in staged.iter().rev() {
            self.numbers.give_back(&self.queues.track().receives, *index);
        }
        self.count = 0;
    }

    fn is_idle(&self) -> Option<bool> {
        Some(self.numbers.is_idle(&self.queues.track().receives))
    }

    fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            (self.head, self.published, self.told, self.count) = (0, 0, 0, 0);
            let track = self.queues.track();
            self.numbers.reset(&track.receives, track.next_generation());
        }
        (self.is_ready, self.is_over) = (state != qp_state::RESET, state == qp_state::ERR);
        // Announces what was posted before.
        self.publish();
    }

    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        Some(OwnRing {
            address: self.ring.map().address(),
            entry_size: PIECE as u32,
            entries: self.places,
            doorbell: self.doorbell.address(),
            most_at_once: self.places,
            ..OwnRing::default()
        })
    }

    const HAS_FAST: bool = true;

    #[inline(always)]
    fn post_fast(&mut self, wr_id: u64, piece: &Sge) -> Option<u32> {
        if self.is_over {
            return None;
        }
        let lane = &self.queues.track().receives;
        let number = self.numbers.take_quick(lane, wr_id, Kind::Receive, 0)?;
        let place = self.numbers.last();
        self.put_piece(piece, number, RX_FIRST | RX_LAST);
        self.publish();
        Some(place)
    }

    #[inline(always)]
    fn post_list_fast<'p>(&mut self, requests: impl Plains<'p>) -> bool {
        let Self { queues, numbers, ring, places, head, is_over: false, .. } = self else { return false };
        let lane = &queues.track().receives;
        let Some(mut run) = numbers.run(lane, requests.len()) else { return false };
        let (mut ring, mut next, last) = (ring.writing(), *head, places.wrapping_sub(1));
        for request in requests {
            let Some((wr_id, piece)) = request else { return false };
            let Some(number) = run.take(wr_id, Kind::Receive, 0) else { return false };
            ring.put((next & last) as usize, words(piece, number, RX_FIRST | RX_LAST));
            next = next.wrapping_add(1);
        }
        run.keep();
        *head = next;
        self.publish();
        true
    }
}

/// A receive queue, borrowed to be filled. If it `STAGES` requests, they can be discarded.
#[derive(Debug)]
pub(crate) struct Filling<'a, const STAGES: bool>(&'a mut Receives);

impl<const STAGES: bool> LowerReceive for Filling<'_, STAGES> {
    const IS_IN_ORDER: bool = false;

    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn last_slot(&self) -> u32 {
        self.0.numbers.last()
    }

    fn links(&self) -> impl Fn(u32) -> Option<u32> {
        // The caller requests the links one after another, from the first one on.
        let next = std::cell::Cell::new(0);
        move |_| {
            next.set(next.get() + 1);
            self.0.staged.get(..self.0.count)?.get(next.get()).copied().map(u32::from)
        }
    }

    #[inline(always)]
    fn put<P>(&mut self, wr_id: u64, mut pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        let receives = &mut *self.0;
        if receives.is_over {
            return Err(Refused::NotReady);
        }
        if pieces.len() > receives.pieces as usize {
            return Err(Refused::TooLarge);
        }
        let lane = &receives.queues.track().receives;
        let numbers = &mut receives.numbers;
        let Some(number) = numbers.take(lane, wr_id, Kind::Receive, 0) else { return Err(Refused::Full) };
        if STAGES && let Some(place) = receives.staged.get_mut(receives.count) {
            *place = numbers.last() as u16;
            receives.count += 1;
        }
        match pieces.len() {
            1 => {
                let piece = pieces.next();
                receives.put_piece(
                    piece.as_ref().map_or(&Sge::default(), Borrow::borrow),
                    number,
                    RX_FIRST | RX_LAST,
                );
            }
            _ => receives.put_pieces(pieces, number),
        }
        Ok(())
    }
}
