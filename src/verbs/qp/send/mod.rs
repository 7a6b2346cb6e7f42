//! The send queue of a queue pair, by address and key. The safe interface and bindings both post to it.

mod batch;
mod ended;
#[cfg(feature = "raw")]
mod parts;

use nix::errno::Errno;
use uverbs_abi::types::{SendFlags, qp_state};
use uverbs_abi::write::ModifyQp;

use self::batch::Counting;
pub use self::batch::{Batch, FillSends};
use crate::completion_counter::{Bound, Posted};
use crate::device::context::Context;
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use crate::device::context::Unseen;
#[cfg(feature = "raw")]
use crate::driver::request::Sge;
use crate::driver::request::{
    ADDRESSED, Data, FRAMES, FrameHead, NoBytes, NoPieces, Opcode, Refused, Terms, with_kind,
};
use crate::driver::seam::{Lower, Published, SendRing, Short, Simple};
use crate::driver::sq::{Rings, Sends, Stored, with_sends};
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

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.sends.slots()
    }

    /// Number of slots, for a queue whose requests complete in their order.
    pub(super) fn logged(&self) -> Option<u32> {
        self.sends.completes_in_order().then(|| self.sends.slots() as u32)
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

    /// The queue of this driver.
    #[inline]
    pub(super) fn ring<R: Stored>(&mut self) -> Option<&mut R> {
        R::of(&mut self.sends)
    }

    /// The queue, to choose code for its driver.
    #[inline]
    pub(super) fn rings(&self) -> &Rings {
        &self.sends.0
    }

    /// Posts requests, which `how` fills, or none.
    ///
    /// # Errors
    /// [`Refused::Elsewhere`] in a child of `fork`, before anything else is checked; those of `how`; and what [`SendQueue::publish`] returns,
    /// which must be passed to [`SendQueue::unseen`].
    #[inline(always)]
    pub(super) fn post<R: Stored, F: FillSends>(
        &mut self,
        is_one: bool,
        how: F,
    ) -> Result<Result<(), Unseen>, F::Error> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere.into());
        }
        let halfway = Halfway(self);
        let Self { sends, pieces, inline, begun, bound, .. } = &mut *halfway.0;
        let ring = R::of(sends).ok_or(Refused::Lost)?;
        let (pieces, inline) = (*pieces, *inline);
        let counting = bound.as_mut().map(|bound| Counting { begun, bound });
        with_kind!(F::KIND, KIND => {
            if is_one {
                how.fill(&mut Batch { lower: ring.one::<true, KIND>(), pieces, inline, counting })?;
            } else {
                how.fill(&mut Batch { lower: ring.batch::<KIND>(), pieces, inline, counting })?;
            }
        });
        match halfway.0.origin.ask() {
            Some(here) => Ok(halfway.publish::<R>(false, here)),
            None => Err(Refused::Elsewhere.into()),
        }
    }

    /// Posts one request, or this many, without reports for counters. `None`, with nothing done, if one of them cannot be posted, if counters
    /// are bound, and in a child of `fork`: use [`SendQueue::post`] then.
    #[inline(always)]
    pub(super) fn post_short<R: Stored, F: FillSends>(
        &mut self,
        count: Option<usize>,
        how: F,
    ) -> Option<Result<(), Unseen>> {
        let Self { origin, pieces: 1.., bound: None, .. } = self else { return None };
        let here = origin.ask()?;
        let halfway = Halfway(self);
        let Self { sends, pieces, inline, .. } = &mut *halfway.0;
        // The number of pieces is then not checked again.
        let pieces = if F::IS_OF_ONE_PIECE { 1 } else { *pieces };
        let (inline, counting) = (*inline, None);
        let is_short = match R::SHORT {
            Short::Nothing => false,
            Short::OnePiece => F::IS_OF_ONE_PIECE && F::KIND as u8 != FRAMES,
            Short::Simple => true,
            // Of several requests those before a refused one could not be taken back.
            Short::Everything => count.is_none(),
        };
        let ring = R::of(sends)?;
        with_kind!(F::KIND, KIND => {
            if is_short {
                let lower = ring.short::<KIND>(count.unwrap_or(1))?;
                how.fill(&mut Batch { lower, pieces, inline, counting }).ok()?;
            } else if count.is_none() {
                how.fill(&mut Batch { lower: ring.one::<true, KIND>(), pieces, inline, counting }).ok()?;
            } else {
                how.fill(&mut Batch { lower: ring.batch::<KIND>(), pieces, inline, counting }).ok()?;
            }
        });
        // To keep the first answer while several requests are put costs more than to check again.
        let here = if count.is_none() { here } else { halfway.0.origin.ask()? };
        Some(halfway.publish::<R>(is_short, here))
    }

    /// Posts requests that all have one piece, or all have inline bytes, and returns how many are posted: see [`SendRing::post_list`].
    /// Returns zero if counters are bound, and in a child of `fork`.
    #[inline(always)]
    pub(super) fn post_list<'r, R: Stored, Q, O: Terms + 'r>(
        &mut self,
        requests: &'r [Q],
        read: impl Fn(&'r Q) -> Option<Simple<'r, O>>,
        hold: impl FnMut(u32, &'r Q),
    ) -> usize {
        let Self { origin, sends, pieces: 1.., inline, bound: None, .. } = self else { return 0 };
        match R::of(sends).filter(|_| origin.is_here()) {
            Some(ring) => ring.post_list(*inline, requests, read, hold),
            None => 0,
        }
    }

    /// Performs a step of one request in any queue: begins it, or sets its data. The device sees it after [`SendQueue::publish`].
    ///
    /// # Errors
    /// [`Refused::Elsewhere`] in a child of `fork`, before anything else is checked; and those of `how`.
    #[inline(always)]
    pub fn step<F: FillSends>(&mut self, how: F) -> Result<(), F::Error> {
        self.fill(how, |sends, filling| {
            with_sends!(&mut sends.0, ring => with_kind!(F::KIND, KIND => filling.with(ring.one::<true, KIND>())))
        })
    }

    /// Puts a batch of several requests into any queue. The device sees them after [`SendQueue::publish`].
    ///
    /// # Errors
    /// As [`SendQueue::step`].
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn batch<F: FillSends>(&mut self, how: F) -> Result<(), F::Error> {
        self.fill(how, |sends, filling| {
            with_sends!(&mut sends.0, ring => with_kind!(F::KIND, KIND => filling.with(ring.batch::<KIND>())))
        })
    }

    #[inline(always)]
    fn fill<F: FillSends>(
        &mut self,
        how: F,
        fill: impl FnOnce(&mut Sends, Filling<'_, F>) -> Result<(), F::Error>,
    ) -> Result<(), F::Error> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere.into());
        }
        let halfway = Halfway(self);
        let Self { sends, pieces, inline, begun, bound, .. } = &mut *halfway.0;
        let counting = bound.as_mut().map(|bound| Counting { begun, bound });
        let answer = fill(sends, Filling { pieces: *pieces, inline: *inline, counting, how });
        std::mem::forget(halfway);
        answer
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
        let put = with_sends!(&mut self.sends.0, ring => filling.with(ring.one::<true, ADDRESSED>()));
        if put.is_err() {
            return Ok(None);
        }
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
    #[inline]
    pub fn publish(&mut self) -> Result<()> {
        self.publish_as(SEND)
    }

    /// Shows the device every request that was put, with another name for the operation in errors.
    #[inline(always)]
    pub(super) fn publish_as(&mut self, op: &'static str) -> Result<()> {
        let Some(here) = self.origin.ask() else { return Err(elsewhere(op)) };
        self.show(op, here).map_err(|why| self.not_looked_at(op, why))
    }

    /// This process, if it owns the queue.
    #[cfg(feature = "raw")]
    #[inline]
    pub fn here(&self) -> Option<Here> {
        self.origin.ask()
    }

    /// The error for requests that were put but not shown. Takes back the requests if the kernel has refused to read them.
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

    /// The kernel has changed attributes of the queue pair. If the state is one of them, [`SendQueue::enter`] follows.
    pub(super) fn changed(&mut self, request: &ModifyQp) {
        self.sends.changed(request);
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

impl Halfway<'_> {
    /// Shows the device all that was filled.
    #[inline(always)]
    fn publish<R: Stored>(self, is_short: bool, here: Here) -> Result<(), Unseen> {
        if !is_short && self.0.bound.is_some() {
            self.0.show_counters();
        }
        let ring = self.0.ring::<R>();
        let published = ring.map(|ring| if is_short { ring.publish_short() } else { ring.publish() });
        let SendQueue { context, doorbell, .. } = &mut *self.0;
        let shown = match published {
            Some(Published::Shown) => context.ring(SEND, doorbell, here),
            _ => Ok(()),
        };
        std::mem::forget(self);
        shown
    }
}

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

impl<F: FillSends> Filling<'_, F> {
    #[inline(always)]
    fn with<L: Lower>(self, lower: L) -> Result<(), F::Error> {
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
