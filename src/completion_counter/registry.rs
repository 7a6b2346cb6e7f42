//! Finds the counters of a queue pair when its completions are polled.
//!
//! A completion queue has a list of them behind a lock, and a number that is increased with each change. The poller has a copy of
//! the list, and reads the number after each poll. The number is zero until a counter or a memory window is bound; reading it is
//! the only cost until then.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CompletionCounter;
use super::ledger::{Binding, Counted, Ledger};
use super::log::{Log, Posted, Writer};
use super::watch::WindowBinder;
use crate::driver::completion::Completion;
#[cfg(feature = "raw")]
use crate::driver::completion::Extended;
use crate::kernel::process::{Gate, Origin, Passage};

/// The queue pairs with counters that complete in a completion queue.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Checked before the lock is taken, because a child of `fork` must not wait for that lock.
    origin: Origin,
    entries: Mutex<Vec<Entry>>,
    /// The queue pairs that have bound memory windows, by their numbers.
    binders: Mutex<Vec<Arc<WindowBinder>>>,
    changes: AtomicU32,
    /// Closed when a counter or a window is bound.
    gate: Gate,
}

#[derive(Clone, Debug)]
struct Entry {
    ledger: Arc<Ledger>,
    /// Whether the sends of the queue pair complete here, and whether its receives do.
    sends: bool,
    receives: bool,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            origin: Origin::here(),
            entries: Mutex::default(),
            binders: Mutex::default(),
            changes: AtomicU32::new(0),
            gate: Gate::open(),
        }
    }
}

impl Registry {
    fn change(&self, how: impl FnOnce(&mut Vec<Entry>)) {
        if !self.origin.is_here() {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        how(&mut entries);
        drop(entries);
        self.changed();
    }

    /// The word of the gate, which is open in the process that owns the queue until a counter or a memory window is bound. Read it
    /// only after a completion was found: counters and windows that the completion affects were bound before it was written.
    pub(crate) fn passage(&self) -> Passage {
        self.gate.passage()
    }

    /// Makes pollers update their copy.
    fn changed(&self) {
        // Zero is reserved for queues on which nothing was ever bound.
        let next = |changes: u32| Some(changes.wrapping_add(1).max(1));
        let _ = self.changes.fetch_update(Ordering::Release, Ordering::Relaxed, next);
        self.gate.close();
    }

    fn binders(&self) -> MutexGuard<'_, Vec<Arc<WindowBinder>>> {
        self.binders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, completions of this queue pair are passed to it.
    pub(super) fn watch(&self, of: &Arc<WindowBinder>) {
        let mut binders = self.binders();
        match binders.binary_search_by_key(&of.number(), |of| of.number()) {
            // The entry of a destroyed queue pair, whose number this one has now.
            Ok(at) => binders[at] = of.clone(),
            Err(at) => binders.insert(at, of.clone()),
        }
        drop(binders);
        self.changed();
    }

    /// From now on, they are not passed to it any more.
    pub(super) fn unwatch(&self, of: &Arc<WindowBinder>) {
        self.binders().retain(|other| !Arc::ptr_eq(other, of));
        self.changed();
    }

    /// Adds a queue pair to the list, or replaces its entry.
    fn put(&self, entry: Entry) {
        let key = |entry: &Entry| entry.ledger.number;
        self.change(|entries| match entries.binary_search_by_key(&key(&entry), key) {
            Ok(at) => entries[at] = entry,
            Err(at) => entries.insert(at, entry),
        });
    }

    /// Removes a queue pair. Completions that it left in the queue are no longer counted. Another queue pair may already have its
    /// number.
    fn remove(&self, ledger: &Arc<Ledger>) {
        self.change(|entries| entries.retain(|entry| !Arc::ptr_eq(&entry.ledger, ledger)));
    }
}

/// The poller's copy of the list.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    entries: Vec<Entry>,
    binders: Vec<Arc<WindowBinder>>,
    changes: u32,
}

impl Tally {
    /// Counts the completions that were taken from the queue.
    #[inline]
    pub(crate) fn count(&mut self, registry: &Registry, completions: &[Completion]) {
        let changes = registry.changes.load(Ordering::Acquire);
        // A child of `fork` takes no completions, and must not read the list.
        if changes != 0 && !completions.is_empty() {
            self.count_bound(registry, changes, completions);
        }
    }

    /// Counts one completion.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn count_extended(&mut self, registry: &Registry, extended: &Extended) {
        let changes = registry.changes.load(Ordering::Acquire);
        if changes != 0 {
            self.count_bound(registry, changes, &[Completion::from(extended)]);
        }
    }

    #[inline(never)]
    fn count_bound(&mut self, registry: &Registry, changes: u32, completions: &[Completion]) {
        if changes != self.changes {
            let entries = registry.entries.lock().unwrap_or_else(PoisonError::into_inner);
            self.entries.clone_from(&entries);
            drop(entries);
            self.binders.clone_from(&registry.binders());
            self.changes = changes;
        }
        if !self.binders.is_empty() {
            self.see(completions);
        }
        for completion in completions {
            let known = self.entries.binary_search_by_key(&completion.qp_num, |entry| entry.ledger.number);
            if let Some(entry) = known.ok().and_then(|at| self.entries.get(at)) {
                entry.ledger.count(completion, entry.sends, entry.receives);
            }
        }
    }
}

impl Tally {
    fn see(&self, completions: &[Completion]) {
        for completion in completions {
            let known = self.binders.binary_search_by_key(&completion.qp_num, |of| of.number());
            if let Some(of) = known.ok().and_then(|at| self.binders.get(at)) {
                of.see(completion);
            }
        }
    }
}

/// The part of a queue pair that counts: its counters, and the log of the requests that it posts.
#[derive(Debug)]
pub(crate) struct Bound {
    /// `None` if completions alone contain everything that is needed.
    writer: Option<Writer>,
    ledger: Arc<Ledger>,
    /// The registries of the completion queues for sends and for receives.
    queues: [Arc<Registry>; 2],
}

impl Bound {
    /// For a queue pair with room for `sends` requests, without counters yet. `sends` is `None` for a queue pair whose requests
    /// complete in any order: their completions identify the operation.
    pub(crate) fn new(number: u32, sends: Option<u32>, queues: [Arc<Registry>; 2]) -> Self {
        let log = sends.map(Log::new);
        let ledger = Ledger { number, log: log.clone(), bindings: Vec::new(), markers: Arc::default() };
        Self { writer: log.map(Writer::new), ledger: Arc::new(ledger), queues }
    }

    /// The operations of this queue pair that a counter counts.
    pub(crate) fn counted_by(&self, counter: &CompletionCounter) -> Counted {
        let of_counter = |binding: &&Binding| Arc::ptr_eq(&binding.state, counter.state());
        let bindings = self.ledger.bindings.iter().filter(of_counter);
        bindings.fold(Counted::empty(), |all, binding| all | binding.counted)
    }

    /// Binds a counter, which counts from now on.
    pub(crate) fn bind(&mut self, counter: &CompletionCounter, counted: Counted) {
        let state = counter.state().clone();
        state.bound.fetch_add(1, Ordering::Relaxed);
        let mut bindings = self.ledger.bindings.clone();
        bindings.push(Binding { state, counted });
        self.replace(self.ledger.log.clone(), bindings);
    }

    fn replace(&mut self, log: Option<Arc<Log>>, bindings: Vec<Binding>) {
        let Ledger { number, markers, .. } = &*self.ledger;
        self.ledger = Arc::new(Ledger { number: *number, log, bindings, markers: markers.clone() });
        let is_one = Arc::ptr_eq(&self.queues[0], &self.queues[1]);
        let ledger = &self.ledger;
        let entry = |sends, receives| Entry { ledger: ledger.clone(), sends, receives };
        self.queues[0].put(entry(true, is_one));
        if !is_one {
            self.queues[1].put(entry(false, true));
        }
    }

    /// The queue pair was reset: posted requests end without completions.
    pub(crate) fn reset(&mut self) {
        self.writer = self.writer.as_ref().map(|writer| Writer::new(Log::new(writer.room())));
        let log = self.writer.as_ref().map(|writer| writer.log().clone());
        self.replace(log, self.ledger.bindings.clone());
    }

    /// Requests with the number `wr_id` or the next one are not counted. The crate itself posts them, behind all others.
    pub(crate) fn set_marker(&self, wr_id: u64) {
        let markers: &AtomicU64 = &self.ledger.markers;
        markers.store(wr_id, Ordering::Relaxed);
    }

    /// Number of requests that can be posted.
    pub(crate) fn free(&self) -> u32 {
        self.writer.as_ref().map_or(u32::MAX, Writer::free)
    }

    /// Whether a request without a completion would never be counted, because completions arrive in any order and each proves only
    /// that its own request has ended.
    pub(crate) fn needs_completions(&self) -> bool {
        self.writer.is_none()
    }

    /// Records a request that is about to be posted.
    pub(crate) fn stage(&mut self, posted: &Posted) {
        self.writer.iter_mut().for_each(|writer| writer.stage(posted));
    }

    /// Discards the requests that were staged: they are not posted.
    pub(crate) fn rewind(&mut self) {
        self.writer.iter_mut().for_each(Writer::rewind);
    }

    /// The staged requests are posted next.
    pub(crate) fn publish(&mut self) {
        self.writer.iter_mut().for_each(Writer::publish);
    }

    /// The device has refused the requests that were published last.
    pub(crate) fn retract(&mut self) {
        self.writer.iter_mut().for_each(Writer::retract);
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        for queue in &self.queues {
            queue.remove(&self.ledger);
        }
        for binding in &self.ledger.bindings {
            binding.state.bound.fetch_sub(1, Ordering::Release);
        }
    }
}
