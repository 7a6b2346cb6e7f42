//! The send queue of a queue pair, by address and key: what both the safe interface and bindings post to.

use std::borrow::Borrow;

use uverbs_abi::types::{SendFlags, qp_state};

use super::counting;
use crate::command::Doorbell;
use crate::completion_counter::{Bound, Posted};
use crate::context::Context;
use crate::driver::queues::{Lower, Published, Sends, WithSends};
use crate::driver::request::{Data, FrameHead, NoBytes, NoPieces, Opcode, Refused, Sge};
use crate::error::{Error, ErrorKind, Result};
use crate::process::{Origin, elsewhere};
use crate::work::{NOT_READY, refused};

/// A send queue. A request names memory by address and key, and whoever posts it keeps that memory until it is completed.
#[derive(Debug)]
pub struct SendQueue {
    sends: Sends,
    /// Asked before each batch: the slots of a shared ring may be the parent's requests.
    origin: Origin,
    wants_head: bool,
    /// Most pieces and most inline bytes of a request.
    pieces: u32,
    inline: u32,
    /// The request that was begun last, where counters are bound.
    begun: Option<Posted>,
    /// The completion counters, if there are any.
    pub(super) bound: Option<Box<Bound>>,
    doorbell: Doorbell,
    context: Context,
}

impl SendQueue {
    /// Of the queue pair with this handle, with room for so many pieces and inline bytes in each request.
    pub(super) fn new(context: &Context, handle: u32, sends: Sends, pieces: u32, inline: u32) -> Self {
        let doorbell = context.doorbell(handle);
        let origin = context.origin();
        let wants_head = sends.wants_head();
        Self {
            sends,
            origin,
            wants_head,
            pieces,
            inline,
            begun: None,
            bound: None,
            doorbell,
            context: context.clone(),
        }
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.sends.slots()
    }

    /// Whether the device must find the first bytes of a frame in the request itself: then [`Batch::put`] is to be given them.
    #[inline]
    pub fn wants_head(&self) -> bool {
        self.wants_head
    }

    /// Most pieces of memory of a request.
    #[inline]
    pub fn max_pieces(&self) -> u32 {
        self.pieces
    }

    /// Most bytes of a request that is posted inline.
    #[inline]
    pub fn max_inline(&self) -> u32 {
        self.inline
    }

    /// Begins a batch, which `how` fills. The device sees it after [`SendQueue::publish`].
    ///
    /// # Errors
    /// [`Refused::Elsewhere`], before anything is asked.
    #[inline(always)]
    pub fn batch<F: FillSends>(&mut self, how: F) -> Result<F::Answer, Refused> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere);
        }
        let halfway = Halfway(self);
        let (sends, filling) = halfway.0.filling(how);
        let answer = sends.batch(filling);
        std::mem::forget(halfway);
        Ok(answer)
    }

    /// The same for a step of one request: it is begun, or gets its data.
    ///
    /// # Errors
    /// As [`SendQueue::batch`].
    #[inline(always)]
    pub fn step<F: FillSends>(&mut self, how: F) -> Result<F::Answer, Refused> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere);
        }
        let halfway = Halfway(self);
        let (sends, filling) = halfway.0.filling(how);
        let answer = sends.step(filling);
        std::mem::forget(halfway);
        Ok(answer)
    }

    /// A step of one request by the shortest way. None where there is none, and in a child of `fork`: there is [`SendQueue::step`].
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn short_step(&mut self) -> Option<Batch<'_, impl Lower>> {
        let Self { origin, sends, pieces, inline, bound, .. } = self;
        if !origin.is_here() || bound.is_some() {
            return None;
        }
        let (pieces, inline) = (*pieces, *inline);
        sends.short_way().map(|lower| Batch { lower, pieces, inline, counting: None })
    }

    /// Writes one request over pieces of memory into the next slot, as [`Batch::put`] does.
    ///
    /// # Errors
    /// As [`Batch::put`] and [`SendQueue::batch`].
    #[cfg(feature = "raw")]
    pub fn put(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &Opcode<'_>,
        pieces: &[Sge],
    ) -> Result<(), Refused> {
        self.step(Pieces { wr_id, flags, opcode, pieces })?
    }

    #[inline(always)]
    fn filling<F>(&mut self, how: F) -> (&mut Sends, Filling<'_, F>) {
        let Self { sends, pieces, inline, begun, bound, .. } = self;
        let counting = bound.as_mut().map(|bound| Counting { begun, bound });
        (sends, Filling { pieces: *pieces, inline: *inline, counting, how })
    }

    /// Posts one request without data.
    pub(super) fn post_local(
        &mut self,
        op: &'static str,
        wr_id: u64,
        flags: SendFlags,
        opcode: Opcode<'_>,
        hold: impl FnOnce(u32),
    ) -> Result<()> {
        let put = self.step(One { wr_id, flags, opcode, hold });
        put.and_then(|put| put).map_err(|why| {
            self.rewind();
            refused(op, why)
        })?;
        self.publish_as(op)
    }

    /// Posts a request of the crate's own behind all others, which no counter counts, and says in which slot; none when there is no
    /// room.
    pub(super) fn post_marker(&mut self, op: &'static str, wr_id: u64) -> Result<Option<u32>> {
        self.origin.check(op)?;
        let (mut at, opcode) = (None, Opcode::Send);
        let one = One { wr_id, flags: SendFlags::SIGNALED, opcode, hold: |slot| at = Some(slot) };
        if self.sends.step(Filling { pieces: 0, inline: 0, counting: None, how: one }).is_err() {
            return Ok(None);
        }
        if self.sends.publish() == Published::Shown {
            self.context.ring(op, &mut self.doorbell).inspect_err(|_| self.sends.retract())?;
        }
        Ok(at)
    }

    /// Forgets what was put and not published.
    #[cold]
    pub fn rewind(&mut self) {
        if self.origin.is_here() {
            self.sends.rewind();
            self.begun = None;
            self.bound.iter_mut().for_each(|bound| bound.rewind());
        }
    }

    /// Shows the device every request put so far. With an error it has seen none of them.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) when the queue pair is not ready to send, and others of the kernel where it has to be
    /// told; [`Disassociated`](ErrorKind::Disassociated) in a child of `fork`.
    ///
    /// # Kernel
    /// The doorbell is `POST_SEND` by `INVOKE_WRITE`, with no request in it: the kernel looks at the ring
    /// (rxe_post_send, rxe_verbs.c, Linux 6.1).
    #[inline(always)]
    pub fn publish(&mut self) -> Result<()> {
        self.publish_as(SEND)
    }

    /// The same under another name.
    #[inline(always)]
    pub(super) fn publish_as(&mut self, op: &'static str) -> Result<()> {
        if !self.origin.is_here() {
            return Err(elsewhere(op));
        }
        if let Some(bound) = &mut self.bound {
            // Before the device can complete any of these.
            self.begun.take().iter().for_each(|begun| bound.stage(begun));
            bound.publish();
        }
        match self.sends.publish() {
            Published::Nothing | Published::Told => Ok(()),
            Published::Shown => match self.context.ring(op, &mut self.doorbell) {
                Ok(()) => Ok(()),
                Err(error) => Err(self.not_looked_at(error)),
            },
        }
    }

    #[cold]
    fn not_looked_at(&mut self, error: Error) -> Error {
        // Refused for its state, the kernel has not looked at the ring.
        if error.kind() == ErrorKind::InvalidInput {
            self.sends.retract();
            self.bound.iter_mut().for_each(|bound| bound.retract());
        }
        error.hinted_if(ErrorKind::InvalidInput, NOT_READY)
    }

    /// The queue pair has come to a state.
    pub(super) fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            // What was begun is gone with what was posted.
            self.rewind();
        }
        self.sends.enter(state);
        if let (Some(bound), qp_state::RESET) = (&mut self.bound, state) {
            bound.reset();
        }
    }
}

/// A batch that is being filled. One that stops halfway, by a panic, is forgotten as far as the device has not seen it.
struct Halfway<'a>(&'a mut SendQueue);

impl Drop for Halfway<'_> {
    fn drop(&mut self) {
        self.0.rewind();
    }
}

/// Names posting in errors.
pub(super) const SEND: &str = "qp.post_send";

/// How a batch of requests is made, for whichever driver.
pub trait FillSends {
    /// What comes of it.
    type Answer;

    /// Fills slots. What is refused halfway leaves those before it filled.
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Self::Answer;
}

/// A batch of requests on its way into the slots of a send queue.
#[derive(Debug)]
pub struct Batch<'a, L> {
    lower: L,
    pieces: u32,
    inline: u32,
    counting: Option<Counting<'a>>,
}

/// What completion counters are told.
#[derive(Debug)]
struct Counting<'a> {
    /// The request that was begun last.
    begun: &'a mut Option<Posted>,
    bound: &'a mut Bound,
}

impl Counting<'_> {
    /// A request begins, so that the one before it is complete.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, next: Posted) -> Result<(), Refused> {
        self.begun.take().iter().for_each(|begun| self.bound.stage(begun));
        if self.bound.free() == 0 {
            return Err(Refused::Full);
        }
        *self.begun = Some(next);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn set_bytes(&mut self, bytes: u64) {
        // A sum of 4 GiB or more is not posted.
        self.begun.iter_mut().for_each(|begun| begun.bytes = bytes as u32);
    }
}

impl<L: Lower> Batch<'_, L> {
    /// The slot that is filled next.
    #[inline(always)]
    pub fn next_slot(&self) -> u32 {
        self.lower.next_slot()
    }

    /// Writes a request into the next slot. `head` is the first bytes of a frame, if [`SendQueue::wants_head`].
    ///
    /// # Errors
    /// [`Refused::Full`]; [`Refused::TooLarge`]; [`Refused::Lacks`] for what the driver or the device has not; [`Refused::NotReady`].
    /// Nothing is written then.
    #[inline(always)]
    pub fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &Opcode<'_>,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        if !self.fits(data) {
            return Err(Refused::TooLarge);
        }
        if let Some(counting) = &mut self.counting {
            counting.begin(counting::posted(opcode, wr_id, flags, data.len() as u32))?;
        }
        let put = self.lower.put(wr_id, flags, opcode, head, data);
        if put.is_err() {
            self.forget();
        }
        put
    }

    /// Writes all of a request into the next slot but its data, of which it has none until it is told.
    ///
    /// # Errors
    /// As [`Batch::put`].
    #[inline(always)]
    pub fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        if let Some(counting) = &mut self.counting {
            counting.begin(counting::posted(opcode, wr_id, flags, 0))?;
        }
        let begun = self.lower.begin(wr_id, flags, opcode);
        if begun.is_err() {
            self.forget();
        }
        begun
    }

    /// Gives the request that was begun last its data, and flags, in the place of what was set before. `head` is the first bytes of a
    /// frame, if [`SendQueue::wants_head`].
    ///
    /// # Errors
    /// [`Refused::TooLarge`]; [`Refused::NotBegun`]. All is to be taken back then ([`SendQueue::rewind`]).
    #[inline(always)]
    pub fn set_data<'b, P, B>(
        &mut self,
        flags: SendFlags,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        if !self.fits(data) {
            return Err(Refused::TooLarge);
        }
        if let Some(counting) = &mut self.counting {
            counting.set_bytes(data.len());
        }
        self.lower.set_data(flags, head, data)
    }

    /// Gives that datagram its address: the driver's number of the handle, queue pair and queue key there.
    ///
    /// # Errors
    /// [`Refused::NotBegun`]; [`Refused::Lacks`].
    #[inline(always)]
    pub fn set_address(&mut self, ah: u32, qp_num: u32, qkey: u32) -> Result<(), Refused> {
        self.lower.set_address(ah, qp_num, qkey)
    }

    #[inline(always)]
    fn fits<'b, P, B>(&self, data: &Data<P, B>) -> bool
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        match data {
            Data::Pieces(list) => list.len() <= self.pieces as usize,
            Data::Inline(_) => data.len() <= u64::from(self.inline),
        }
    }

    /// The request that was to be posted is not.
    #[inline(always)]
    fn forget(&mut self) {
        if let Some(counting) = &mut self.counting {
            *counting.begun = None;
        }
    }
}

struct Filling<'a, F> {
    pieces: u32,
    inline: u32,
    counting: Option<Counting<'a>>,
    how: F,
}

impl<F: FillSends> WithSends for Filling<'_, F> {
    type Answer = F::Answer;

    #[inline(always)]
    fn with<L: Lower>(self, lower: L) -> F::Answer {
        let Self { pieces, inline, counting, how } = self;
        how.fill(&mut Batch { lower, pieces, inline, counting })
    }
}

/// A batch of one request without data.
struct One<'a, H> {
    wr_id: u64,
    flags: SendFlags,
    opcode: Opcode<'a>,
    hold: H,
}

impl<H: FnOnce(u32)> FillSends for One<'_, H> {
    type Answer = Result<(), Refused>;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Self::Answer {
        let slot = batch.next_slot();
        let nothing = Data::<NoPieces, NoBytes>::Pieces(std::iter::empty());
        // The head is for devices that want one.
        batch.put(self.wr_id, self.flags, &self.opcode, Some(FrameHead::default()), &nothing)?;
        (self.hold)(slot);
        Ok(())
    }
}

/// A batch of one request over pieces of memory.
#[cfg(feature = "raw")]
struct Pieces<'a> {
    wr_id: u64,
    flags: SendFlags,
    opcode: &'a Opcode<'a>,
    pieces: &'a [Sge],
}

#[cfg(feature = "raw")]
impl FillSends for Pieces<'_> {
    type Answer = Result<(), Refused>;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Self::Answer {
        let data = Data::<_, NoBytes>::Pieces(self.pieces.iter());
        batch.put(self.wr_id, self.flags, self.opcode, None, &data)
    }
}
