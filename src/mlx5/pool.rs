//! The pool: which counters are given out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use uverbs_abi::mlx5::prm::{
    AllocFlowCounterIn, CAP_FLOW_COUNTER_BULK_ALLOC, CAP_LOG_MAX_FLOW_COUNTER_BULK,
    CMD_OP_ALLOC_FLOW_COUNTER, CMD_OP_QUERY_FLOW_COUNTER, HCA_CAP_FLOW_TABLE, HCA_CAP_GENERAL,
    MAX_FLOW_COUNTERS, QueryFlowCounterIn, TrafficCounter,
};
use zerocopy::{FromBytes, FromZeros};

use super::devx::{self, HEAD};
use super::matching::Features;
use super::queries::PoolQueries;
use super::reader::{PoolReader, Totals};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::object::{self, Object};

/// Flow counters with numbers in a row, which one command to the firmware reads.
///
/// Cheap to clone; freed when the last clone, counter, flow and reader is gone.
#[derive(Clone, Debug)]
pub struct CounterPool(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    /// The counters, as an object of the kernel.
    pub(super) row: Object,
    /// The firmware's number of the first.
    first: u32,
    capacity: usize,
    pub(super) features: Features,
    /// Those that nobody has; the one that has been free longest is given out first, since counts of its last flow
    /// may come late.
    free: Mutex<VecDeque<u32>>,
}

impl CounterPool {
    /// Most counters of a pool: what one command can read.
    pub const MAX: usize = MAX_FLOW_COUNTERS;

    /// Allocates `capacity` counters. The firmware gives them in rows of 128 times a power of two, so some more may be
    /// taken.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for none or more than [`CounterPool::MAX`];
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on a context that was not opened with
    /// [`OpenOptions::devx`](crate::OpenOptions::devx), and when the device does not have that many in a row;
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when it has no more.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_CREATE` with `ALLOC_FLOW_COUNTER` (devx.c, Linux 6.1).
    pub fn new(context: &Context, capacity: usize) -> Result<Self> {
        let op = "pool.create";
        if !(1..=Self::MAX).contains(&capacity) {
            let hint = format!("a pool has 1 to {} counters; for more, make several", Self::MAX);
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        if !context.has_devx() {
            let hint = "bulk counters need a context that was opened with OpenOptions::devx(true)";
            return Err(Error::refused(op, Errno::EOPNOTSUPP, hint));
        }
        let general = devx::capabilities(context, op, HCA_CAP_GENERAL)?;
        let flow_table = devx::capabilities(context, op, HCA_CAP_FLOW_TABLE)?;
        let capability = |byte: usize| general.get(byte).copied().unwrap_or(0);
        let flow_counter_bulk = unit(capability(CAP_FLOW_COUNTER_BULK_ALLOC), capacity).ok_or_else(|| {
            let hint = format!("the device cannot allocate {capacity} flow counters in a row");
            Error::refused(op, Errno::EOPNOTSUPP, hint)
        })?;
        let most =
            1_usize.checked_shl(capability(CAP_LOG_MAX_FLOW_COUNTER_BULK).into()).unwrap_or(usize::MAX);
        if most < asked(capacity) {
            let hint = format!("the device reads no more than {most} flow counters with one command");
            return Err(Error::refused(op, Errno::EOPNOTSUPP, hint));
        }
        let request = AllocFlowCounterIn {
            opcode: CMD_OP_ALLOC_FLOW_COUNTER.into(),
            flow_counter_bulk,
            ..AllocFlowCounterIn::new_zeroed()
        };
        let (row, first) = devx::alloc_counters(context, op, &request)?;
        let free = Mutex::new((0..capacity as u32).collect());
        let features = Features::new(&flow_table);
        Ok(Self(Arc::new(Inner { row, first, capacity, features, free })))
    }

    /// How many counters it has.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// How many of them nobody has.
    pub fn available(&self) -> usize {
        self.0.free().len()
    }

    /// The device that it is on.
    pub fn context(&self) -> &Context {
        self.0.row.context()
    }

    /// Takes a counter, which begins at zero. It is given back when the last clone of it and the last flow that counts
    /// into it are gone.
    ///
    /// The device does not set counters back, so what the counter has is read, by a command, and subtracted from then on.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when all are taken; those of [`PoolReader::read`].
    pub fn take(&self) -> Result<PoolCounter> {
        let Some(index) = self.0.free().pop_front() else {
            return Err(Error::refused("pool.take", Errno::ENOSPC, "all counters of the pool are taken"));
        };
        // Given back by its drop if the read fails.
        let taken = Taken { pool: self.0.clone(), index, is_lost: AtomicBool::new(false) };
        let base = taken.pool.read_one("pool.take", index)?;
        Ok(PoolCounter(Arc::new(Slot { taken, base })))
    }

    /// Prepares reads of all counters, for one thread.
    pub fn reader(&self) -> PoolReader {
        PoolReader::new(self.0.clone())
    }

    /// Prepares reads of all counters that nobody waits for.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when the process has no file descriptor left.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC` (devx.c, Linux 6.1).
    pub fn queries(&self) -> Result<PoolQueries> {
        PoolQueries::new(self.0.clone())
    }

    /// Frees the counters and says how that went.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a clone, a counter, a flow or a reader is around.
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::get_mut(&mut self.0) else {
            let hint = "a counter of the pool, a flow that counts into one, or a reader is around";
            return Err((self, object::shared("pool.destroy", hint)));
        };
        inner.row.release().map_err(|error| (self, error))
    }
}

/// The size of the shortest row of at least `capacity` counters, in units of 128. The capability has a bit for each size.
fn unit(sizes: u8, capacity: usize) -> Option<u8> {
    let sizes = (0..8).map(|bit| 1_u8 << bit).filter(|size| sizes & size != 0);
    sizes.into_iter().find(|size| usize::from(*size) * 128 >= capacity)
}

/// How many counters are asked for at once: the firmware wants a multiple of 4.
fn asked(capacity: usize) -> usize {
    capacity.next_multiple_of(4)
}

impl Inner {
    fn free(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The command that reads all counters.
    pub(super) fn request(&self) -> QueryFlowCounterIn {
        QueryFlowCounterIn {
            opcode: CMD_OP_QUERY_FLOW_COUNTER.into(),
            num_of_counters: (asked(self.capacity) as u16).into(),
            flow_counter_id: self.first.into(),
            ..QueryFlowCounterIn::new_zeroed()
        }
    }

    /// Bytes of the answer to it.
    pub(super) fn answer_size(&self) -> usize {
        HEAD + asked(self.capacity) * size_of::<TrafficCounter>()
    }

    /// The counters in such an answer.
    #[inline]
    pub(super) fn counters<'a>(&self, op: &'static str, answer: &'a [u8]) -> Result<&'a [TrafficCounter]> {
        let counters = answer.get(HEAD..).and_then(|bytes| <[TrafficCounter]>::ref_from_bytes(bytes).ok());
        let counters = counters.and_then(|counters| counters.get(..self.capacity));
        counters.ok_or_else(|| Error::malformed(op, "an answer of another length"))
    }

    /// What the device has counted into one.
    fn read_one(&self, op: &'static str, index: u32) -> Result<Totals> {
        let request = QueryFlowCounterIn {
            num_of_counters: 0.into(),
            flow_counter_id: self.first.wrapping_add(index).into(),
            ..self.request()
        };
        let mut answer = [0; HEAD + size_of::<TrafficCounter>()];
        devx::query(&self.row, op, &request, &mut answer)?;
        let counter = TrafficCounter::read_from_bytes(&answer[HEAD..]);
        counter.map(Totals::from).map_err(|_| Error::malformed(op, "an answer of another length"))
    }
}

/// A counter of a [`CounterPool`], for one flow or several.
///
/// Cheap to clone. It counts from zero from when it was [taken](CounterPool::take).
#[derive(Clone, Debug)]
pub struct PoolCounter(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    taken: Taken,
    /// What the device had counted before.
    base: Totals,
}

/// A number that nobody else has.
#[derive(Debug)]
struct Taken {
    pool: Arc<Inner>,
    index: u32,
    /// A flow that could not be destroyed goes on counting into it.
    is_lost: AtomicBool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !*self.is_lost.get_mut() {
            self.pool.free().push_back(self.index);
        }
    }
}

impl PoolCounter {
    /// Its place in the pool, from 0.
    pub fn index(&self) -> usize {
        self.0.taken.index as usize
    }

    pub(super) fn pool(&self) -> &Arc<Inner> {
        &self.0.taken.pool
    }

    /// What was counted since it was taken, if the device says `now`. What was read before is of an earlier flow, and
    /// nothing of it counts.
    #[inline]
    pub(super) fn since(&self, now: Totals) -> Totals {
        let Totals { packets, bytes } = self.0.base;
        Totals { packets: now.packets.saturating_sub(packets), bytes: now.bytes.saturating_sub(bytes) }
    }

    /// Never gives it out again.
    pub(super) fn lose(&self) {
        self.0.taken.is_lost.store(true, Ordering::Relaxed);
    }

    /// Reads this one alone, by a command.
    ///
    /// # Errors
    /// Those of [`PoolReader::read`].
    pub fn read(&self) -> Result<Totals> {
        Ok(self.since(self.pool().read_one("pool_counter.read", self.0.taken.index)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_row_that_the_device_has_is_taken() {
        assert_eq!(unit(0xff, 1), Some(1));
        assert_eq!(unit(0xff, 128), Some(1));
        assert_eq!(unit(0xff, 129), Some(2));
        assert_eq!(unit(0xff, CounterPool::MAX), Some(32));
        assert_eq!(unit(0b100, 1), Some(4));
        assert_eq!(unit(0b111, 513), None);
        assert_eq!(unit(0, 1), None);
    }

    #[test]
    fn the_longest_answer_has_a_length_of_16_bits() {
        assert_eq!(asked(CounterPool::MAX), CounterPool::MAX);
        assert!(HEAD + asked(CounterPool::MAX) * size_of::<TrafficCounter>() <= usize::from(u16::MAX));
        assert_eq!([1, 4, 5, 4090].map(asked), [4, 4, 8, 4092]);
    }
}
