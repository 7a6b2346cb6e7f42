//! Cursors, with which bindings go through completions one by one.

use uverbs_abi::types::wc_status;

use super::completion::{Extended, Fields, Missed};
use super::cq::{Completions, Rings, with_ring};
pub use super::efa::Told;
pub use super::mlx5::Unread;
use super::seam::CompletionRing;

/// The number and the status of a completion.
pub type Shown = (u64, u32);

/// A position in a completion queue, and the completion there: for `ibv_start_poll`, `ibv_next_poll` and `ibv_end_poll`.
///
/// How a completion is kept while its fields are read depends on the driver, so there are several cursors. A cursor is used with one queue,
/// of its driver; with another one it finds nothing.
pub trait Cursor: Fields {
    /// Whether the cursor itself shows that a poll was begun.
    const SHOWS_BEGIN: bool = false;

    /// Moves to the first completion of a poll, by the shortest path.
    ///
    /// # Errors
    /// Why no completion was taken.
    #[doc(hidden)]
    #[inline(always)]
    fn first_fast(&mut self, queue: &mut Completions, may_take: impl Fn() -> bool) -> Result<Shown, Missed> {
        self.next_fast(queue, may_take)
    }

    /// Moves to the next completion of a poll, by the shortest path.
    ///
    /// # Errors
    /// Why no completion was taken.
    #[doc(hidden)]
    fn next_fast(&mut self, queue: &mut Completions, may_take: impl Fn() -> bool) -> Result<Shown, Missed>;

    /// Searches the other rings, after [`Missed::Elsewhere`]. If it succeeds, the short path may find a completion there.
    ///
    /// # Errors
    /// Why it would not find one. This is never [`Missed::Elsewhere`].
    #[doc(hidden)]
    #[inline(always)]
    fn search(_queue: &mut Completions) -> Result<(), Missed> {
        Err(Missed::Other)
    }

    /// Moves to the first completion of a poll, by a path that takes every completion. `None` if there is none, or if it must not be taken.
    #[doc(hidden)]
    fn first(&mut self, queue: &mut Completions, may_take: impl Fn() -> bool) -> Option<Shown> {
        self.next(queue, may_take)
    }

    /// Moves to the next completion of a poll, by a path that takes every completion. `None` as for [`Cursor::first`].
    #[doc(hidden)]
    fn next(&mut self, queue: &mut Completions, may_take: impl Fn() -> bool) -> Option<Shown>;

    /// Gives back the entries of all completions that were taken. Returns false, with nothing done, if `may` does, and if the cursor shows
    /// that no poll was begun.
    #[doc(hidden)]
    fn end(&mut self, queue: &mut Completions, may: impl Fn() -> bool) -> bool;

    /// The completion as completion counters need it.
    #[doc(hidden)]
    fn extended(&self) -> Extended;
}

impl Cursor for Unread {
    #[inline(always)]
    fn next_fast(&mut self, queue: &mut Completions, may_take: impl Fn() -> bool) -> Result<Shown, Missed> {
        let Rings::Mlx5(ring) = &mut queue.0 else { return Err(Missed::Other) };
        ring.short_unread(may_take, self).map(|()| (self.wr_id(), self.status()))
    }

    fn next(&mut self, queue: &mut Completions, may_take: impl Fn() -> bool) -> Option<Shown> {
        let Rings::Mlx5(ring) = &mut queue.0 else { return None };
        ring.next_unread(may_take, self).ok()?;
        Some((self.wr_id(), self.status()))
    }

    #[inline(always)]
    fn end(&mut self, queue: &mut Completions, may: impl Fn() -> bool) -> bool {
        let Rings::Mlx5(ring) = &mut queue.0 else { return false };
        let is_ended = may();
        if is_ended {
            ring.release();
        }
        is_ended
    }

    fn extended(&self) -> Extended {
        Unread::extended(self)
    }
}

/// For efa, and for drivers without a cursor of their own, whose entries are given back immediately and do not name a sender.
impl Cursor for Told {
    #[inline(always)]
    fn next_fast(&mut self, queue: &mut Completions, may_take: impl Fn() -> bool) -> Result<Shown, Missed> {
        let Rings::Efa(ring) = &mut queue.0 else { return Err(Missed::Other) };
        ring.short_told(may_take, self).map(|wr_id| (wr_id, wc_status::SUCCESS))
    }

    #[inline(always)]
    fn search(queue: &mut Completions) -> Result<(), Missed> {
        let Rings::Efa(ring) = &mut queue.0 else { return Err(Missed::Other) };
        ring.look_elsewhere()
    }

    #[inline(never)]
    fn next(&mut self, queue: &mut Completions, may_take: impl Fn() -> bool) -> Option<Shown> {
        match &mut queue.0 {
            Rings::Efa(ring) => ring.next_told(may_take, self).ok()?,
            rings => *self = Self::plain(&with_ring!(rings, ring => ring.next_copied(&may_take))?.wc),
        }
        Some((self.wr_id(), self.status()))
    }

    #[inline(always)]
    fn end(&mut self, queue: &mut Completions, may: impl Fn() -> bool) -> bool {
        let is_ended = may();
        if let (true, Rings::Efa(ring)) = (is_ended, &mut queue.0) {
            ring.end_batch();
        }
        is_ended
    }

    fn extended(&self) -> Extended {
        Extended { wc: self.wc(), ..Extended::default() }
    }
}
