//! Reading all counters of a pool.

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::mlx5::prm::{QueryFlowCounterIn, TrafficCounter};

use super::devx::command as devx;
use super::pool::{PoolCore, PoolCounter};
use crate::kernel::error::{Error, Result};

/// The values of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Totals {
    /// The counts since `base`. If the values are older than `base`, they belong to an earlier flow and count as zero.
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

/// Reads all counters of a [`CounterPool`](super::CounterPool) with one command per read, without allocation and without a lock.
///
/// It keeps the pool alive. Use one reader per thread.
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

    /// Reads all counters of the pool, with one command.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone; if the firmware refuses, the hint contains its
    /// status and syndrome. After an error there are no values, not even old ones.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_QUERY` with `QUERY_FLOW_COUNTER` (devx.c, Linux 6.1).
    #[inline]
    pub fn read(&mut self) -> Result<Values<'_>> {
        let op = "pool.read";
        devx::query(&self.pool.row.object, op, &self.request, &mut self.answer)?;
        Ok(Values::new(&self.pool, self.pool.row.counters(op, &self.answer)?))
    }

    /// Reads all counters, and writes the values of `counters` into `totals`, one for each.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), before any command, if the slices have different lengths or a counter
    /// belongs to another pool; those of [`PoolReader::read`], which leave `totals` unchanged.
    pub fn read_all(&mut self, counters: &[PoolCounter], totals: &mut [Totals]) -> Result<()> {
        let op = "pool.read";
        if counters.len() != totals.len() {
            let allowed = format!("{} (one for each counter)", counters.len());
            return Err(Error::outside(op, "places for values", totals.len(), allowed));
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

/// The result of one read: all counters of the pool at one time.
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

    /// What a counter has counted since it was taken; zero if it was taken after the read. None for a counter of another pool.
    #[inline]
    pub fn of(&self, counter: &PoolCounter) -> Option<Totals> {
        let now = *self.counters.get(counter.index())?;
        Arc::ptr_eq(counter.pool(), self.pool).then(|| counter.since(now.into()))
    }

    /// The device's own counts by [index](PoolCounter::index), as it wrote them: in network byte order, since the pool was
    /// created.
    #[inline]
    pub fn raw(&self) -> &'a [TrafficCounter] {
        self.counters
    }
}
