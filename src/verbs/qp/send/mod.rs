//! The send queue of a queue pair, by address and key. The safe interface and bindings both post to it.

mod batch;
mod ended;
mod flagged;
#[cfg(feature = "raw")]
mod parts;

use nix::errno::Errno;
use uverbs_abi::types::{SendFlags, qp_state};

use self::batch::Counting;
pub use self::batch::{Batch, FillSends};
use crate::completion_counter::{Bound, Posted};
use crate::device::context::Context;
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use crate::device::context::Unseen;
#[cfg(feature = "raw")]
use crate::driver::queues::SendLayout;
use crate::driver::queues::{Sends, Way, in_blocks};
#[cfg(feature = "raw")]
use crate::driver::request::Sge;
use crate::driver::request::{Data, FrameHead, NoBytes, NoPieces, Opcode, Refused, RequestKind};
use crate::driver::seam::{Lower, Published, WithSends};
use crate::kernel::command::Doorbell;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::process::{Here, Origin, elsewhere};
use crate::verbs::work::{NOT_READY, refused};

/// A send queue. A request names memory by address and key, and its caller must keep that memory until the request has completed.
#[derive(Debug)]
pub struct SendQueue {
    sends: Sends,
    /// Checked before each batch: the slots of a shared ring may contain the parent's requests.
    origin: Origin,
    /// A word, not a `bool`: an `Option` of this type would store `None` in the byte of the `bool`, and not in the tag of `sends`, which
    /// is read anyway.
    wants_head: u32,
    /// Maximum number of pieces and of inline bytes of a request.
    pieces: u32,
    inline: u32,
    /// The request that was begun last, if counters are bound.
    begun: Option<Posted>,
    /// The completion counters, if there are any.
    pub(super) bound: Option<Box<Bound>>,
    doorbell: Doorbell,
    context: Context,
}

impl SendQueue {
    /// For the queue pair with this handle. Each request may have up to `pieces` pieces, or up to `inline` inline bytes.
    pub(super) fn new(context: &Context, handle: u32, sends: Sends, pieces: u32, inline: u32) -> Self {
        let doorbell = context.doorbell(handle);
        let origin = context.origin();
        let wants_head = sends.wants_head().into();
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

    /// How requests are written into the queue.
    #[inline(always)]
    pub(super) fn way(&self) -> Way {
        self.sends.way()
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.sends.slots()
    }

    /// Number of slots, for a queue whose requests complete in their order.
    pub(super) fn logged(&self) -> Option<u32> {
        self.sends.is_in_order().then(|| self.sends.slots() as u32)
    }

    /// The slot that is filled next.
    pub(super) fn next_slot(&self) -> u32 {
        self.sends.next_slot()
    }

    /// Whether the device needs the first bytes of a frame in the request itself. They must then be passed to [`Batch::put`].
    #[inline]
    pub fn wants_head(&self) -> bool {
        self.wants_head != 0
    }

    /// Maximum number of pieces of memory of a request.
    #[inline]
    pub fn max_pieces(&self) -> u32 {
        self.pieces
    }

    /// Maximum bytes of an inline request.
    #[inline]
    pub fn max_inline(&self) -> u32 {
        self.inline
    }

    /// A batch in a ring of slots, which `how` fills. The device sees it after [`SendQueue::publish`].
    ///
    /// # Errors
    /// [`Refused::Elsewhere`], before anything else is checked; [`Refused::Lacks`] for any other queue.
    #[inline(always)]
    pub(super) fn slots_batch<F: FillSends>(&mut self, how: F) -> Result<(), F::Error> {
        self.filled(how, |sends, filling| {
            let Some(slots) = sends.slots_alone() else { return Err(Refused::Lacks.into()) };
            filling.with(slots.batch())
        })
    }

    /// The same for one step of a request: beginning it, or setting its data.
    ///
    /// # Errors
    /// As [`SendQueue::slots_batch`].
    #[inline(always)]
    pub(super) fn slots_step<F: FillSends>(&mut self, how: F) -> Result<(), F::Error> {
        self.filled(how, |sends, filling| {
            let Some(slots) = sends.slots_alone() else { return Err(Refused::Lacks.into()) };
            filling.with(slots.one::<true>())
        })
    }

    /// As both of these, for blocks.
    ///
    /// # Errors
    /// As [`SendQueue::slots_batch`].
    #[inline(always)]
    pub(super) fn blocks_batch<F: FillSends>(&mut self, how: F) -> Result<(), F::Error> {
        self.filled(how, |sends, filling| {
            let Some(blocks) = sends.blocks_alone() else { return Err(Refused::Lacks.into()) };
            in_blocks(blocks, filling)
        })
    }

    /// Performs a step of one request in any queue: begins it, or sets its data. The device sees it after [`SendQueue::publish`].
    ///
    /// # Errors
    /// [`Refused::Elsewhere`] in a child of `fork`, before anything else is checked; and those of `how`.
    #[inline(always)]
    pub fn step<F: FillSends>(&mut self, how: F) -> Result<(), F::Error> {
        match self.sends.way() {
            Way::Slots => self.slots_step(how),
            Way::Blocks => self.blocks_batch(how),
            Way::Numbered | Way::Flagged => self.apart(how),
        }
    }

    /// The same for a batch of several requests.
    ///
    /// # Errors
    /// As [`SendQueue::step`].
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn batch<F: FillSends>(&mut self, how: F) -> Result<(), F::Error> {
        match self.sends.way() {
            Way::Slots => self.slots_batch(how),
            Way::Blocks => self.blocks_batch(how),
            Way::Numbered | Way::Flagged => self.apart(how),
        }
    }

    #[inline(always)]
    fn filled<F: FillSends>(
        &mut self,
        how: F,
        way: impl FnOnce(&mut Sends, Filling<'_, F>) -> Result<(), F::Error>,
    ) -> Result<(), F::Error> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere.into());
        }
        let halfway = Halfway(self);
        let (sends, filling) = halfway.0.filling(how);
        let answer = way(sends, filling);
        std::mem::forget(halfway);
        answer
    }

    /// The layout of the queue. The shortest path for slots is [`SendQueue::step_in_slots`], and for blocks
    /// [`SendQueue::step_in_blocks`].
    #[cfg(feature = "raw")]
    pub fn layout(&self) -> SendLayout {
        self.sends.layout()
    }

    /// A step of one request by the shortest path, for a caller that has already checked the process: `here` is the result of that
    /// check. Returns `None` if `here` is not the process that owns the queue, for a queue without slots, and if counters are
    /// bound: use [`SendQueue::step`] then. Unless it `LOOKS` at the consumer index, only slots that are already known to be free
    /// are used, and a request is refused as for a full queue if there is none.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn step_in_slots<const LOOKS: bool>(&mut self, here: Here) -> Option<Batch<'_, impl Lower>> {
        let Self { origin, sends, pieces, inline, bound, .. } = self;
        let lower = sends.slots_alone()?.one::<LOOKS>();
        let is_short = origin.is(here) && bound.is_none();
        is_short.then_some(Batch { lower, pieces: *pieces, inline: *inline, counting: None })
    }

    /// The same for a batch of requests.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn batch_in_slots(&mut self, here: Here) -> Option<Batch<'_, impl Lower>> {
        let Self { origin, sends, pieces, inline, bound, .. } = self;
        let lower = sends.slots_alone()?.batch();
        let is_short = origin.is(here) && bound.is_none();
        is_short.then_some(Batch { lower, pieces: *pieces, inline: *inline, counting: None })
    }

    /// As both of these, for a queue of blocks with requests of this kind, a [`RequestKind`](crate::raw::RequestKind).
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn step_in_blocks<const LOOKS: bool, const KIND: u8>(
        &mut self,
        here: Here,
    ) -> Option<Batch<'_, impl Lower>> {
        let Self { origin, sends, pieces, inline, bound, .. } = self;
        let lower = sends.blocks_way::<LOOKS, KIND>()?;
        let is_short = origin.is(here) && bound.is_none();
        is_short.then_some(Batch { lower, pieces: *pieces, inline: *inline, counting: None })
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
        self.step(Pieces { wr_id, flags, opcode, pieces })
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
        put.map_err(|why| {
            self.rewind();
            refused(op, why)
        })?;
        self.publish_as(op)
    }

    /// Posts one of the crate's own requests behind all others. No counter counts it. Returns its slot, or `None` if there is no
    /// room.
    pub(super) fn post_marker(&mut self, op: &'static str, wr_id: u64) -> Result<Option<u32>> {
        let Some(here) = self.origin.ask() else { return Err(elsewhere(op)) };
        let (mut at, opcode) = (None, Opcode::Send);
        let one = One { wr_id, flags: SendFlags::SIGNALED, opcode, hold: |slot| at = Some(slot) };
        let filling = Filling { pieces: 0, inline: 0, counting: None, how: one };
        let put = match self.sends.way() {
            Way::Slots => self.sends.slots_alone().map(|slots| filling.with(slots.one::<true>())),
            Way::Blocks => self.sends.blocks_alone().map(|blocks| in_blocks(blocks, filling)),
            Way::Numbered | Way::Flagged => self.sends.apart(filling),
        };
        if !matches!(put, Some(Ok(()))) {
            return Ok(None);
        }
        // Queues with flags are known to be idle without a marker.
        if self.sends.publish() == Published::Shown
            && let Err(why) = self.context.ring(op, &mut self.doorbell, here)
        {
            self.sends.retract();
            return Err(self.context.unseen(op, why));
        }
        Ok(at)
    }

    /// Discards the requests that were put and not published.
    #[cold]
    pub fn rewind(&mut self) {
        if self.origin.is_here() {
            self.sends.rewind();
            self.begun = None;
            self.bound.iter_mut().for_each(|bound| bound.rewind());
        }
    }

    /// Shows the device every request that was put.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the queue pair is not ready to send: the device has seen none of the requests,
    /// and they are taken back. [`Disassociated`](ErrorKind::Disassociated) in a child of `fork`, with nothing done. Others of the
    /// kernel if a command notifies the device: it is not known then whether the device has seen the requests.
    ///
    /// # Kernel
    /// The doorbell is `POST_SEND` through `INVOKE_WRITE`, without a request: it makes the kernel read the ring (rxe_post_send,
    /// rxe_verbs.c, Linux 6.1).
    #[inline(always)]
    pub fn publish(&mut self) -> Result<()> {
        self.publish_as(SEND)
    }

    /// The same with another name for the operation.
    #[inline(always)]
    pub(super) fn publish_as(&mut self, op: &'static str) -> Result<()> {
        let Some(here) = self.origin.ask() else { return Err(elsewhere(op)) };
        self.show(op, here).map_err(|why| self.not_looked_at(op, why))
    }

    /// The same, but a failure is returned as a small value, which must be passed to [`SendQueue::unseen`].
    ///
    /// # Errors
    /// As [`SendQueue::publish`].
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn try_publish(&mut self) -> Result<(), Unseen> {
        match self.origin.ask() {
            Some(here) => self.show(SEND, here),
            None => Err(Unseen::ELSEWHERE),
        }
    }

    /// This process, if it owns the queue.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn here(&self) -> Option<Here> {
        self.origin.ask()
    }

    /// As [`SendQueue::try_publish`], for a caller that has already checked the process: `here` is the result of that check.
    ///
    /// # Errors
    /// As [`SendQueue::publish`]; if `here` is not the process that owns the queue, that for a child of `fork`.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn publish_here(&mut self, here: Here) -> Result<(), Unseen> {
        if self.origin.is(here) { self.show(SEND, here) } else { Err(Unseen::ELSEWHERE) }
    }

    /// The error for a failure of [`SendQueue::try_publish`], [`SendQueue::publish_here`] or [`SendQueue::post_flagged`]. Takes
    /// back the requests if the kernel has refused to read them.
    #[cold]
    pub fn unseen(&mut self, why: Unseen) -> Error {
        self.not_looked_at(SEND, why)
    }

    #[inline(always)]
    fn show(&mut self, op: &'static str, here: Here) -> Result<(), Unseen> {
        if self.bound.is_some() {
            self.show_counters();
        }
        match self.sends.publish() {
            Published::Nothing | Published::Told => Ok(()),
            Published::Shown => self.context.ring(op, &mut self.doorbell, here),
        }
    }

    /// Called before the device can complete any of the requests.
    #[cold]
    #[inline(never)]
    fn show_counters(&mut self) {
        if let Some(bound) = &mut self.bound {
            self.begun.take().iter().for_each(|begun| bound.stage(begun));
            bound.publish();
        }
    }

    #[cold]
    #[inline(never)]
    fn not_looked_at(&mut self, op: &'static str, why: Unseen) -> Error {
        let error = self.context.unseen(op, why);
        // siw returns this for a queue pair without a connection (`siw_post_send`, siw_verbs.c, Linux 6.1).
        let is_unconnected = error.errno() == Some(Errno::ENOTCONN as i32);
        let others = if is_unconnected { self.context.driver().connected_by_others() } else { None };
        // If the kernel refused because of the state, it has not read the ring.
        if error.kind() == ErrorKind::InvalidInput {
            self.sends.retract();
            self.bound.iter_mut().for_each(|bound| bound.retract());
        }
        error.hinted_if(ErrorKind::InvalidInput, others.unwrap_or(NOT_READY))
    }

    /// The queue pair has entered a state.
    pub(super) fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            // A request that was begun is discarded with those that were posted.
            self.rewind();
        }
        self.sends.enter(state);
        if let (Some(bound), qp_state::RESET) = (&mut self.bound, state) {
            bound.reset();
        }
    }
}

/// A batch that is being filled. If a panic stops this, the part that the device has not seen is discarded.
struct Halfway<'a>(&'a mut SendQueue);

impl Drop for Halfway<'_> {
    fn drop(&mut self) {
        self.0.rewind();
    }
}

/// The name of the operation in errors.
pub(super) const SEND: &str = "qp.post_send";

struct Filling<'a, F> {
    pieces: u32,
    inline: u32,
    counting: Option<Counting<'a>>,
    how: F,
}

impl<F: FillSends> WithSends for Filling<'_, F> {
    const KIND: Option<RequestKind> = F::KIND;
    const KNOWS_FLAGS: bool = F::KNOWS_FLAGS;
    type Answer = Result<(), F::Error>;

    #[inline(always)]
    fn with<L: Lower>(self, lower: L) -> Self::Answer {
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
    // None of these requests is for a queue with flags.
    const KNOWS_FLAGS: bool = false;
    type Error = Refused;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Refused> {
        let slot = batch.next_slot();
        let nothing = Data::<NoPieces, NoBytes>::Pieces(std::iter::empty());
        // The head is for devices that need one.
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
    type Error = Refused;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Refused> {
        let data = Data::<_, NoBytes>::Pieces(self.pieces.iter());
        batch.put(self.wr_id, self.flags, self.opcode, None, &data)
    }
}
