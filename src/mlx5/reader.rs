//! Reading all counters of a pool.

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::mlx5::prm::{QueryFlowCounterIn, TrafficCounter};

use super::devx;
use super::pool::{PoolCore, PoolCounter};
use crate::kernel::error::{Error, Result};

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Totals {
    /// What came after `base`. What was read before that is of an earlier flow, and nothing of it counts.
    #[inline]
    pub(super) fn since(self, base: Self) -> Self {
        let Self { packets, bytes } = self;
        Self { packets: packets.saturating_sub(base.packets), bytes: bytes.saturating_sub(base.bytes) }
    }
}

impl From<TrafficCounter> for Totals {
    #[inline]
    fn from(counter: TrafficCounter) -> Self {
        Self { packets: counter.packets.get(), bytes: counter.octets.get() }
    }
}

/// Reads of all counters of a [`CounterPool`](super::CounterPool), each by one command: no allocation and no lock.
///
/// It keeps the pool. One reader is for one thread; make one for each.
#[derive(Debug)]
pub struct PoolReader {
    pool: Arc<PoolCore>,
    request: QueryFlowCounterIn,
    answer: Box<[u8]>,
}

impl PoolReader {
    pub(super) fn new(pool: Arc<PoolCore>) -> Self {
        let (request, answer) = (pool.row.request(), vec![0; pool.row.answer_size()]);
        Self { pool, request, answer: answer.into() }
    }

    /// Reads all counters of the pool at once, by one command.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) when the device has gone; when the firmware refuses, the hint
    /// has its status and syndrome. There are no values then, not even old ones.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_QUERY` with `QUERY_FLOW_COUNTER` (devx.c, Linux 6.1).
    #[inline]
    pub fn read(&mut self) -> Result<Values<'_>> {
        let op = "pool.read";
        devx::query(&self.pool.row.object, op, &self.request, &mut self.answer)?;
        Ok(Values::new(&self.pool, self.pool.row.counters(op, &self.answer)?))
    }

    /// Reads all counters, and writes what these have into `totals`, one for each.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), before any command, when there are not as many places as counters or
    /// one is of another pool; those of [`PoolReader::read`], which leave `totals` as they are.
    pub fn read_all(&mut self, counters: &[PoolCounter], totals: &mut [Totals]) -> Result<()> {
        let op = "pool.read";
        if counters.len() != totals.len() {
            let hint = format!("{} places for {} counters", totals.len(), counters.len());
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        if counters.iter().any(|counter| !Arc::ptr_eq(counter.pool(), &self.pool)) {
            return Err(Error::refused(op, Errno::EINVAL, "the counter belongs to another pool"));
        }
        let values = self.read()?;
        for (counter, totals) in counters.iter().zip(totals) {
            *totals = values.of(counter).unwrap_or_default();
        }
        Ok(())
    }
}

/// What one read has found: all counters of the pool at one time.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    pool: &'a Arc<PoolCore>,
    counters: &'a [TrafficCounter],
}

impl<'a> Values<'a> {
    #[inline]
    pub(super) fn new(pool: &'a Arc<PoolCore>, counters: &'a [TrafficCounter]) -> Self {
        Self { pool, counters }
    }

    /// What a counter has counted since it was taken: nothing if that was after the read. None for a counter of another
    /// pool.
    #[inline]
    pub fn of(&self, counter: &PoolCounter) -> Option<Totals> {
        let now = *self.counters.get(counter.index())?;
        Arc::ptr_eq(counter.pool(), self.pool).then(|| counter.since(now.into()))
    }

    /// The device's own counts by [index](PoolCounter::index), as it wrote them: in network order, of everything since
    /// the pool was made.
    #[inline]
    pub fn raw(&self) -> &'a [TrafficCounter] {
        self.counters
    }
}
