//! Snapshots of the counters of a pool: one command refreshes all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_abi::mlx5::prm::QueryFlowCounterIn;

use super::devx::command as devx;
use super::reader::Totals;
use super::row::Row;
use crate::counters::clock::Moment;
use crate::counters::{Publisher, Refresher, Snapshot, Source};
use crate::device::context::Context;
use crate::kernel::error::Result;

/// The publications of counters, by their index.
type Feeds = Mutex<BTreeMap<u32, Feed>>;

#[derive(Debug)]
struct Feed {
    publisher: Publisher,
    /// What the device had counted when the counter was taken.
    base: Totals,
}

/// The snapshots of a pool.
#[derive(Debug)]
pub(super) struct Snapshots {
    feeds: Arc<Feeds>,
    refresher: Arc<Refresher>,
    context: Context,
}

/// Reads a row of counters with one command, and publishes those that have a snapshot.
#[derive(Debug)]
struct Bulk {
    feeds: Arc<Feeds>,
    row: Arc<Row>,
    request: QueryFlowCounterIn,
    answer: Box<[u8]>,
}

impl Source for Bulk {
    fn refresh(&mut self, at: Moment) -> Result<()> {
        let op = "pool.read";
        devx::query(&self.row.object, op, &self.request, &mut self.answer)?;
        let counters = self.row.counters(op, &self.answer)?;
        for (index, feed) in &mut *lock(&self.feeds) {
            if let Some(counter) = counters.get(*index as usize) {
                let Totals { packets, bytes } = Totals::from(*counter).since(feed.base);
                feed.publisher.publish(at, &[packets, bytes]);
            }
        }
        Ok(())
    }
}

impl Drop for Bulk {
    /// The row is not read any more: the device was removed, or the pool was dropped.
    fn drop(&mut self) {
        if self.row.object.context().is_here() {
            lock(&self.feeds).clear();
        }
    }
}

impl Snapshots {
    pub(super) fn new(row: &Arc<Row>) -> Self {
        let feeds = Arc::<Feeds>::default();
        let answer = vec![0; row.answer_size()].into();
        let bulk = Bulk { feeds: feeds.clone(), row: row.clone(), request: row.request(), answer };
        let context = row.object.context().clone();
        Self { feeds, refresher: Arc::new(Refresher::new(&context, Box::new(bulk))), context }
    }

    /// The snapshot of a counter that had `base` when it was taken.
    pub(super) fn of(&self, index: u32, base: Totals) -> Snapshot {
        if !self.context.is_here() {
            // A child of `fork` must not take a lock of its parent; it gets a snapshot that has ended.
            return Snapshot::new(Publisher::new(&self.context, 2).cell(), self.refresher.clone());
        }
        let mut feeds = lock(&self.feeds);
        let feed =
            feeds.entry(index).or_insert_with(|| Feed { publisher: Publisher::new(&self.context, 2), base });
        Snapshot::new(feed.publisher.cell(), self.refresher.clone())
    }

    /// No more values of this counter will be published.
    pub(super) fn end_of(&self, index: u32) {
        if self.context.is_here() {
            lock(&self.feeds).remove(&index);
        }
    }

    /// No more values will be published. Waits until a read in progress has ended.
    pub(super) fn end(&self) {
        // Nothing is destroyed, so nothing fails.
        self.refresher.end_with(|| Ok(())).unwrap_or_default();
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(feeds: &Feeds) -> MutexGuard<'_, BTreeMap<u32, Feed>> {
    feeds.lock().unwrap_or_else(PoisonError::into_inner)
}
