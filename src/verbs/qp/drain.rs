//! Draining a queue pair: ending everything that was posted.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{QpType, QueuePair};
use crate::driver::completion::{Completion, Status};
use crate::driver::seam::Late;
use crate::kernel::error::{Error, Result};
use crate::verbs::cq::CompletionQueue;
use crate::verbs::work::Receiving;

/// The crate's own requests, posted behind all others: when one of them is flushed, so is everything before it. A device that
/// completes every request needs none, because the number of outstanding requests is known.
///
/// An empty ring is not sufficient: rxe gives the slot back before it writes the completion (do_complete, rxe_comp.c and rxe_resp.c,
/// Linux 6.1).
#[derive(Debug, Default)]
pub(super) struct Markers {
    /// The number of the markers in the send queue; those in the receive queue have the next number. It is random, so that it does
    /// not collide with numbers of the program.
    id: Option<u64>,
    /// Number of markers whose completion has not been polled yet.
    sends: u32,
    receives: u32,
}

impl Markers {
    fn id(&mut self) -> u64 {
        *self.id.get_or_insert_with(|| RandomState::new().hash_one("drain"))
    }

    /// Whether a completion of the queue pair is that of a marker, which is then counted.
    fn take(&mut self, wr_id: u64) -> bool {
        let Some(id) = self.id else { return false };
        let left = match wr_id.wrapping_sub(id) {
            0 => &mut self.sends,
            1 => &mut self.receives,
            _ => return false,
        };
        *left = left.saturating_sub(1);
        true
    }

    fn are_out(&self) -> bool {
        self.sends + self.receives > 0
    }
}

/// Number of completions that are taken at a time.
const BATCH: usize = 16;

impl<T: QpType> QueuePair<T> {
    /// Moves the queue pair to [`QpState::Error`](super::QpState::Error) and polls until everything that was posted has
    /// completed. Every completion that it polls meanwhile, also of other queue pairs, is passed to `take`.
    ///
    /// `queues` are the completion queues of the queue pair: one, or two if receives have their own; the list may contain others.
    /// Afterwards no further completion of this queue pair arrives, and the memory of its requests can be released.
    ///
    /// It does not wait for requests without a completion, such as unsignaled ones that succeed; completion counters include them
    /// afterwards, except on erdma, whose device does not say what became of those behind the last signaled one. Receives in a shared
    /// receive queue do not belong to the queue pair and stay there. A message that was arriving when the error occurred may still
    /// complete after this call; on devices with the event [`QpLastWqeReached`](crate::EventKind::QpLastWqeReached), this event reports
    /// that no further completion can arrive.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if a completion queue is missing, or in
    /// [`QpState::Reset`](super::QpState::Reset), where nothing is posted. [`TimedOut`](crate::ErrorKind::TimedOut) after
    /// `timeout`: a completion queue is full or has overrun, so completions were lost (or, on erdma, a request was posted after the device
    /// had failed by itself); drain may be called again.
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone: nothing completes any more.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uverbs::{AccessFlags, Attributes, Completion, QpState, ReceiveRequest, Status};
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::SoftDevice::default().open()?;
    /// let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(16)?);
    /// let mut qp = pd.ud(&cq).create()?;
    /// qp.modify(&Attributes::to(QpState::Init).port(1).pkey_index(0).qkey(1))?;
    /// let memory = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
    /// qp.post_receive(&[ReceiveRequest::new(7, &[memory.segment(0..2048)?])])?;
    /// let mut ended = Vec::new();
    /// qp.drain(&mut [&mut cq], Duration::from_secs(1), |completion| ended.push((completion.wr_id, completion.status)))?;
    /// assert_eq!(ended, [(7, Status::Flushed)]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ib_drain_qp")]
    pub fn drain(
        &mut self,
        queues: &mut [&mut CompletionQueue],
        timeout: Duration,
        mut take: impl FnMut(Completion),
    ) -> Result<()> {
        let op = "qp.drain";
        if !self.are_all(queues.iter().map(|queue| &**queue)) {
            let hint =
                "every completion queue of the queue pair must be given, to be polled; nothing was done";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        let markers = self.markers.id();
        if let Some(bound) = &self.sends.bound {
            bound.set_marker(markers);
        }
        self.to_error()?;
        let mut late = self.take_late();
        let start = Instant::now();
        let (mut sends, mut receives) = (true, self.receives.is_some());
        loop {
            // Full rings get free slots as the device flushes them.
            sends = sends && !self.have_sends_ended()?;
            receives = receives && !self.have_receives_ended()?;
            let (mut found, mut are_empty) = (0, true);
            for queue in &mut *queues {
                let taken = self.take_from(queue, &mut take);
                (found, are_empty) = (found + taken, are_empty && taken < BATCH);
            }
            // Without markers, only the slots are known to be free: completions may still be in the queues.
            let is_over = are_empty || self.sends.is_idle().is_none();
            if is_over && !(sends || receives || self.markers.are_out()) {
                self.end(queues, &mut late, &mut take);
                self.held.let_all_go();
                if let Some(receives) = &mut self.receives {
                    receives.let_go();
                }
                return Ok(());
            }
            if start.elapsed() >= timeout {
                self.end(queues, &mut late, &mut take);
                let hint = "not everything has completed; a completion queue without room loses completions";
                return Err(Error::refused(op, Errno::ETIMEDOUT, hint));
            }
            if found == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Whether these include all its completion queues.
    pub(crate) fn are_all<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a CompletionQueue, IntoIter: Clone>,
    ) -> bool {
        let queues = queues.into_iter();
        let is_given = |cq| queues.clone().any(|queue| Arc::ptr_eq(queue.shared(), cq));
        self.shared.cqs.iter().all(is_given)
    }

    /// Removes the requests that the device does not read any more, if there are any: those that were posted after the queue pair had
    /// entered the error state by itself.
    fn take_late(&mut self) -> Vec<Completion> {
        let (number, mut late) = (self.shared.number, Vec::new());
        let mut add = |Late { wr_id, opcode }| {
            let status = Status::Flushed;
            late.push(Completion { wr_id, status, opcode, qp_num: number, ..Completion::default() });
        };
        self.sends.take_late(&mut add);
        if let Some(receives) = &mut self.receives {
            receives.take_late(&mut add);
        }
        late
    }

    /// Passes late requests to `take` as completions, after all others.
    fn end(
        &self,
        queues: &mut [&mut CompletionQueue],
        late: &mut Vec<Completion>,
        take: &mut impl FnMut(Completion),
    ) {
        for completion in late.drain(..) {
            let cqs = &self.shared.cqs;
            let own = if completion.is_receive() { cqs.last() } else { cqs.first() };
            let is_own =
                |queue: &&mut &mut CompletionQueue| own.is_some_and(|own| Arc::ptr_eq(queue.shared(), own));
            if let Some(queue) = queues.iter_mut().find(is_own) {
                queue.count_ended(&completion);
            }
            take(completion);
        }
    }

    /// Takes up to [`BATCH`] completions from a queue and passes them to `take`, except for markers. Returns their number, with
    /// markers.
    fn take_from(&mut self, queue: &mut CompletionQueue, take: &mut impl FnMut(Completion)) -> usize {
        let mut batch = Completion::batch::<BATCH>();
        let found = queue.poll(&mut batch);
        for completion in &batch[..found] {
            if completion.qp_num != self.shared.number || !self.markers.take(completion.wr_id) {
                take(*completion);
            }
        }
        found
    }

    /// Whether all sends are known to end: the marker was posted, or, if each has a completion, all have ended.
    fn have_sends_ended(&mut self) -> Result<bool> {
        self.sends.is_idle().map_or_else(|| self.mark_sends(), Ok)
    }

    /// Whether all receives are known to end: the marker was posted, or, if each has a completion, all have ended.
    fn have_receives_ended(&mut self) -> Result<bool> {
        match self.receives.as_ref().and_then(Receiving::is_idle) {
            Some(is_idle) => Ok(is_idle),
            None => self.mark_receives(),
        }
    }

    /// Posts the marker of sends. False if there is no room yet.
    fn mark_sends(&mut self) -> Result<bool> {
        let Some(slot) = self.sends.post_marker("qp.drain", self.markers.id())? else { return Ok(false) };
        self.held.slots().pass_in_order(slot);
        self.markers.sends += 1;
        Ok(true)
    }

    /// Posts the marker of receives. False if there is no room yet.
    fn mark_receives(&mut self) -> Result<bool> {
        let wr_id = self.markers.id().wrapping_add(1);
        if !self.receives.as_mut().is_some_and(|receives| receives.post_empty(wr_id)) {
            return Ok(false);
        }
        self.markers.receives += 1;
        // Receives have no doorbell. Entering the error state again makes the device read them.
        self.to_error()?;
        Ok(true)
    }
}
