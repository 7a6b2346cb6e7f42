//! The receive queue of efa: a ring of pieces of memory, as many for a request as it has.
//!
//! Source: `efa_post_recv`, providers/efa/verbs.c, rdma-core 65.

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::efa::io::{LKEY, RX_FIRST, RX_LAST, RxDesc};
use uverbs_abi::types::qp_state;

use super::doorbell::Doorbell;
use super::qp::Queues;
use super::track::{Kind, Numbers};
#[cfg(feature = "raw")]
use crate::driver::bound::OwnRing;
use crate::driver::queues::LowerReceive;
use crate::driver::receives::{Plains, ShortReceives};
use crate::driver::request::{Refused, Sge};
use crate::driver::ring::units::Units;
use crate::kernel::error::{Error, Result};

/// Bytes of a piece in the ring.
pub(super) const PIECE: usize = size_of::<RxDesc>();

/// The receive queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    queues: Arc<Queues>,
    numbers: Numbers,
    /// Indices of the requests that may be forgotten, in their order, and how many there are. There is room for all.
    staged: Box<[u16]>,
    count: usize,
    /// In pieces.
    ring: Units,
    doorbell: Doorbell,
    /// Number of places for pieces, a power of two.
    places: u32,
    /// Most pieces of a request.
    pieces: u32,
    /// Pieces that were filled, that may be seen by the device, and of which it was told.
    head: u32,
    published: u32,
    told: u32,
    /// Whether the device takes receives: it is told of those of before when it does.
    is_ready: bool,
    /// The queue pair is in the error state, in which nothing is posted (`efa_post_recv_validate`).
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

    /// Number of places for requests.
    pub(crate) fn slots(&self) -> usize {
        self.queues.track().receives.requests() as usize
    }

    /// The place that is filled next: the number of the request.
    pub(crate) fn next_slot(&self) -> u32 {
        self.numbers.next(&self.queues.track().receives).unwrap_or(0).into()
    }

    /// Whether all that was posted has completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.numbers.is_idle(&self.queues.track().receives)
    }

    /// Forgets what was filled since it was published last.
    pub(crate) fn rewind(&mut self) {
        self.head = self.published;
        let staged = self.staged.get(..self.count).unwrap_or_default();
        for index in staged.iter().rev() {
            self.numbers.give_back(&self.queues.track().receives, *index);
        }
        self.count = 0;
    }

    /// The way to requests that are posted whatever comes behind them: nothing of it may be forgotten.
    #[inline(always)]
    pub(crate) fn keeping(&mut self) -> Filling<'_, false> {
        Filling(self)
    }

    /// The way to those that may be forgotten until they are published.
    #[inline(always)]
    pub(crate) fn staging(&mut self) -> Filling<'_, true> {
        Filling(self)
    }

    /// Tells the device of every request filled so far, as soon as it may see them.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        self.published = self.head;
        self.count = 0;
        if self.is_ready && self.told != self.published {
            self.told = self.published;
            self.doorbell.ring(self.told & 0xffff);
        }
    }

    /// Where the ring lies, for whoever writes to it in place of this queue.
    #[cfg(feature = "raw")]
    pub(crate) fn ring(&self) -> OwnRing {
        OwnRing {
            address: self.ring.map().address(),
            entry_size: PIECE as u32,
            entries: self.places,
            doorbell: self.doorbell.address(),
            most_at_once: self.places,
        }
    }

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            (self.head, self.published, self.told, self.count) = (0, 0, 0, 0);
            let track = self.queues.track();
            self.numbers.reset(&track.receives, track.next_generation());
        }
        (self.is_ready, self.is_over) = (state != qp_state::RESET, state == qp_state::ERR);
        // What was posted before.
        self.publish();
    }

    /// Writes a piece into the ring.
    #[inline(always)]
    fn put_piece(&mut self, piece: &Sge, number: u16, marks: u32) {
        let at = self.head & self.places.wrapping_sub(1);
        self.ring.put(at as usize, words(piece, number, marks));
        self.head = self.head.wrapping_add(1);
    }

    /// The pieces of a request of none, or of several.
    #[inline(never)]
    fn put_pieces(&mut self, mut pieces: impl ExactSizeIterator<Item: Borrow<Sge>>, number: u16) {
        // Of no memory there is one piece of no bytes.
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

/// A piece as the device reads it: the words of an [`RxDesc`].
#[inline(always)]
fn words(&Sge { addr, length, lkey }: &Sge, number: u16, marks: u32) -> [u64; 2] {
    // No message is longer. The rest of the piece is not needed, nor are the pieces after it.
    let length = u64::from(length.min(u16::MAX.into()));
    let rest = u64::from(number) | length << 16 | u64::from(lkey & LKEY | marks) << 32;
    [addr, rest].map(u64::to_le)
}

impl ShortReceives for Receives {
    #[inline(always)]
    fn post_one(&mut self, wr_id: u64, piece: &Sge) -> Option<u32> {
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
    fn post_all<'p>(&mut self, requests: impl Plains<'p>) -> bool {
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

/// A receive queue while requests are written into it, which may be forgotten if it `STAGES` them.
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
        // They are asked for one behind the other, from the first on.
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
