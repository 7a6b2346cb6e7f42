//! The pool: which of its counters are in use.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use uverbs_abi::mlx5::prm::{
    AllocFlowCounterIn, CAP_FLOW_COUNTER_BULK_ALLOC, CAP_LOG_MAX_FLOW_COUNTER_BULK,
    CMD_OP_ALLOC_FLOW_COUNTER, HCA_CAP_FLOW_TABLE, HCA_CAP_GENERAL,
};
use zerocopy::FromZeros;

use super::devx::command as devx;
use super::matching::Features;
use super::queries::PoolQueries;
use super::reader::{PoolReader, Totals};
use super::row::{self, Row};
use super::snapshots::Snapshots;
use crate::counters::Snapshot;
use crate::device::context::Context;
use crate::device::object;
use crate::kernel::error::{Error, Result, limit};

/// Flow counters with consecutive numbers, which one firmware command reads.
///
/// Cheap to clone; freed when the last clone, counter, flow and reader are gone.
#[derive(Clone, Debug)]
pub struct CounterPool(pub(super) Arc<PoolCore>);

#[derive(Debug)]
pub(super) struct PoolCore {
    pub(super) row: Arc<Row>,
    pub(super) features: Features,
    pub(super) snapshots: Snapshots,
    /// The free ones. The one that has been free longest is used first, because counts of its last flow may arrive late.
    free: Mutex<VecDeque<u32>>,
}

impl CounterPool {
    /// Maximum number of counters in a pool: as many as one command can read.
    pub const MAX: usize = row::MAX;

    /// Allocates `capacity` counters. The firmware allocates rows of 128 times a power of two, so it may reserve more.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for zero or more than [`CounterPool::MAX`] counters;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on a context that was not opened with
    /// [`OpenOptions::devx`](crate::OpenOptions::devx), and if the device does not support rows of that length;
    /// [`Exhausted`](crate::ErrorKind::Exhausted) if it has no free counters.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_CREATE` with `ALLOC_FLOW_COUNTER` (devx.c, Linux 6.1).
    pub fn new(context: &Context, capacity: usize) -> Result<Self> {
        let op = "pool.create";
        if !(1..=Self::MAX).contains(&capacity) {
            let allowed = format!("1 to {}", Self::MAX);
            return Err(Error::outside(op, "counters of a pool", capacity, allowed));
        }
        if !context.has_devx() {
            let hint = "bulk counters need a context that was opened with OpenOptions::devx(true)";
            return Err(Error::refused(op, Errno::EOPNOTSUPP, hint));
        }
        let general = devx::capabilities(context, op, HCA_CAP_GENERAL)?;
        let flow_table = devx::capabilities(context, op, HCA_CAP_FLOW_TABLE)?;
        let capability = |byte: usize| general.get(byte).copied().unwrap_or(0);
        let flow_counter_bulk =
            row::unit(capability(CAP_FLOW_COUNTER_BULK_ALLOC), capacity).ok_or_else(|| {
                let most = row::longest(capability(CAP_FLOW_COUNTER_BULK_ALLOC));
                let allowed = format!("at most {most} (in a row, on this device)");
                let hint = limit("counters of a pool", capacity, allowed);
                Error::refused(op, Errno::EOPNOTSUPP, hint)
            })?;
        let most =
            1_usize.checked_shl(capability(CAP_LOG_MAX_FLOW_COUNTER_BULK).into()).unwrap_or(usize::MAX);
        if most < row::asked(capacity) {
            let allowed = format!("at most {most} (what the device reads with one command)");
            let hint = limit("counters of a pool", capacity, allowed);
            return Err(Error::refused(op, Errno::EOPNOTSUPP, hint));
        }
        let request = AllocFlowCounterIn {
            opcode: CMD_OP_ALLOC_FLOW_COUNTER.into(),
            flow_counter_bulk,
            ..AllocFlowCounterIn::new_zeroed()
        };
        let (object, first) = devx::alloc_counters(context, op, &request)?;
        let row = Arc::new(Row { object, first, capacity });
        let free = Mutex::new((0..capacity as u32).collect());
        let (features, snapshots) = (Features::new(&flow_table), Snapshots::new(&row));
        Ok(Self(Arc::new(PoolCore { row, features, snapshots, free })))
    }

    /// Number of counters in the pool.
    pub fn capacity(&self) -> usize {
        self.0.row.capacity
    }

    /// Number of free counters; zero in a child of `fork`.
    pub fn available(&self) -> usize {
        self.0.free().map_or(0, |free| free.len())
    }

    /// The open device to which it belongs.
    pub fn context(&self) -> &Context {
        self.0.row.object.context()
    }

    /// Takes a counter, which starts at zero. It is returned to the pool when its last clone and the last flow that counts into
    /// it are gone.
    ///
    /// The device does not reset counters. The present value is therefore read, with a command, and subtracted from later values.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) if all are taken; those of [`PoolReader::read`].
    pub fn take(&self) -> Result<PoolCounter> {
        let op = "pool.take";
        self.context().check_origin(op)?;
        let Some(index) = self.0.free().and_then(|mut free| free.pop_front()) else {
            return Err(Error::refused(
                op,
                Errno::ENOSPC,
                "all counters of the pool are taken: drop one, or create another pool",
            ));
        };
        // The drop gives it back if the read fails.
        let taken = Taken { pool: self.0.clone(), index, is_lost: AtomicBool::new(false) };
        let base = taken.pool.row.read_one(op, index)?;
        Ok(PoolCounter(Arc::new(Slot { taken, base })))
    }

    /// Prepares reads of all counters, for use by one thread.
    pub fn reader(&self) -> PoolReader {
        PoolReader::new(self.0.clone())
    }

    /// Prepares asynchronous reads of all counters.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) if the process has no free file descriptor.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC` (devx.c, Linux 6.1).
    pub fn queries(&self) -> Result<PoolQueries> {
        PoolQueries::new(self.0.clone())
    }

    /// Frees the counters and reports any error.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a clone, a counter, a flow or a reader exists.
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let released = Arc::get_mut(&mut self.0).and_then(|inner| {
            // Snapshots may read the row.
            inner.snapshots.end();
            Some(Arc::get_mut(&mut inner.row)?.object.release())
        });
        let hint = "a counter of the pool, a flow that counts into one, or a reader still exists";
        released.unwrap_or_else(|| Err(object::shared("pool.destroy", hint))).map_err(|error| (self, error))
    }
}

impl PoolCore {
    /// `None` in a child of `fork`, which must not wait for the lock.
    fn free(&self) -> Option<MutexGuard<'_, VecDeque<u32>>> {
        let is_here = self.row.object.context().is_here();
        is_here.then(|| self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A counter of a [`CounterPool`], for one flow or several.
///
/// Cheap to clone. It starts at zero when it is [taken](CounterPool::take).
#[derive(Clone, Debug)]
pub struct PoolCounter(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    taken: Taken,
    /// What the device had counted before.
    base: Totals,
}

/// The number of a counter, with exclusive use.
#[derive(Debug)]
struct Taken {
    pool: Arc<PoolCore>,
    index: u32,
    /// A flow that could not be destroyed continues to count into it.
    is_lost: AtomicBool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.pool.snapshots.end_of(self.index);
        if !*self.is_lost.get_mut()
            && let Some(mut free) = self.pool.free()
        {
            free.push_back(self.index);
        }
    }
}

impl PoolCounter {
    /// Its index in the pool, from 0.
    pub fn index(&self) -> usize {
        self.0.taken.index as usize
    }

    pub(super) fn pool(&self) -> &Arc<PoolCore> {
        &self.0.taken.pool
    }

    /// The counts since it was taken, if the device reports `now`.
    #[inline]
    pub(super) fn since(&self, now: Totals) -> Totals {
        now.since(self.0.base)
    }

    /// Never uses it again.
    pub(super) fn lose(&self) {
        self.0.taken.is_lost.store(true, Ordering::Relaxed);
    }

    /// The cache of this counter: packets and bytes, as values 0 and 1. All callers get the same one.
    ///
    /// One command refreshes the snapshots of all counters of the pool, also if only one was too old. A snapshot ends when its
    /// counter is returned to the pool.
    pub fn snapshot(&self) -> Snapshot {
        self.pool().snapshots.of(self.0.taken.index, self.0.base)
    }

    /// Reads only this counter, with one command.
    ///
    /// # Errors
    /// Those of [`PoolReader::read`].
    pub fn read(&self) -> Result<Totals> {
        Ok(self.since(self.pool().row.read_one("pool_counter.read", self.0.taken.index)?))
    }
}
