//! The receive queue of efa: a ring of pieces of memory, as many for a request as it has.
//!
//! Source: `efa_post_recv`, providers/efa/verbs.c, rdma-core 65.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uverbs_abi::efa::io::{LKEY, RX_FIRST, RX_LAST, RxDesc};
use uverbs_abi::types::qp_state;

use super::doorbell::Doorbell;
use super::qp::Queues;
use super::track::{Kind, Numbers};
#[cfg(feature = "raw")]
use crate::driver::bound::OwnRing;
use crate::driver::queues::LowerReceive;
use crate::driver::request::{Refused, Sge};
use crate::kernel::error::Result;
use crate::kernel::mapping::Mapping;

/// Bytes of a piece in the ring.
pub(super) const PIECE: usize = size_of::<RxDesc>();

/// The receive queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    queues: Arc<Queues>,
    numbers: Numbers,
    memory: Mapping,
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
        memory: Mapping,
        doorbell: Doorbell,
        [places, pieces]: [u32; 2],
    ) -> Result<Self> {
        let numbers = Numbers::new(op, &queues.track().receives, queues.generation())?;
        let (head, published, told) = (0, 0, 0);
        let (is_ready, is_over) = (false, false);
        Ok(Self {
            queues,
            numbers,
            memory,
            doorbell,
            places,
            pieces,
            head,
            published,
            told,
            is_ready,
            is_over,
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
        self.numbers.rewind(&self.queues.track().receives);
    }

    /// Tells the device of every request filled so far, as soon as it may see them.
    pub(crate) fn publish(&mut self) {
        self.published = self.head;
        self.numbers.publish();
        if self.is_ready && self.told != self.published {
            self.told = self.published;
            self.doorbell.ring(self.told & 0xffff);
        }
    }

    /// Where the ring lies, for whoever writes to it in place of this queue.
    #[cfg(feature = "raw")]
    pub(crate) fn ring(&self) -> OwnRing {
        OwnRing {
            address: self.memory.address(),
            entry_size: PIECE as u32,
            entries: self.places,
            doorbell: self.doorbell.address(),
            most_at_once: self.places,
        }
    }

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            (self.head, self.published, self.told) = (0, 0, 0);
            let track = self.queues.track();
            self.numbers.reset(&track.receives, track.next_generation());
        }
        (self.is_ready, self.is_over) = (state != qp_state::RESET, state == qp_state::ERR);
        // What was posted before.
        self.publish();
    }

    /// Writes a piece into the ring: the words of an [`RxDesc`].
    #[inline]
    fn put_piece(&self, counter: u32, piece: [u64; 2]) {
        let at = (counter & self.places.wrapping_sub(1)) as usize * PIECE;
        // The ring was seen to be inside when it was mapped.
        if let Some(places) = self.memory.values::<2>(at) {
            places.iter().zip(piece).for_each(|(place, word)| place.store(word.to_le(), Ordering::Relaxed));
        }
    }
}

impl LowerReceive for &mut Receives {
    fn next_slot(&self) -> u32 {
        Receives::next_slot(self)
    }

    fn links(&self) -> impl Fn(u32) -> Option<u32> {
        // They are asked for one behind the other, from the first on.
        let next = std::cell::Cell::new(0);
        move |_| {
            next.set(next.get() + 1);
            self.numbers.staged().get(next.get()).copied().map(u32::from)
        }
    }

    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        if self.is_over {
            return Err(Refused::NotReady);
        }
        if pieces.len() > self.pieces as usize {
            return Err(Refused::TooLarge);
        }
        let lane = &self.queues.track().receives;
        let Some(number) = self.numbers.take(lane, wr_id, Kind::Receive) else { return Err(Refused::Full) };
        // Of no memory there is one piece of no bytes.
        let (mut left, mut pieces) = (pieces.len().max(1), pieces);
        let (mut marks, mut number) = (RX_FIRST, u64::from(number));
        while left > 0 {
            left -= 1;
            if left == 0 {
                marks |= RX_LAST;
            }
            let Sge { addr, length, lkey } = pieces.next().map_or(Sge::default(), |piece| *piece.borrow());
            // No message is longer: the rest of the piece is not needed, nor what is behind it.
            let length = u64::from(length.min(u16::MAX.into()));
            self.put_piece(self.head, [addr, number | length << 16 | u64::from(lkey & LKEY | marks) << 32]);
            self.head = self.head.wrapping_add(1);
            (marks, number) = (0, 0);
        }
        Ok(())
    }
}
