//! Changes of memory windows that completions report: a peer has invalidated a key, or a bind has failed.
//!
//! A queue pair that has bound a window is in the [`Registry`] of its completion queues. Polling such a queue updates the state
//! of the window. Polling other queues costs nothing more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use uverbs_abi::types::{WcFlags, wc_opcode};

use super::registry::Registry;
use crate::device::context::Invalidated;
use crate::driver::completion::{Completion, Status};
use crate::kernel::process::Origin;

/// What completions have reported about one request that binds a window.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The peer has invalidated the key: the window was bound, and is no longer.
    invalidated: Arc<Invalidated>,
    /// It is not known whether the request was carried out.
    failed: AtomicBool,
    done: AtomicBool,
}

impl Seen {
    pub(crate) fn invalidated(&self) -> bool {
        self.invalidated.is_so()
    }

    /// Whether the peer has invalidated the key, for callers that keep it.
    pub(crate) fn invalidation(&self) -> Arc<Invalidated> {
        self.invalidated.clone()
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn fail(&self) {
        if !self.done.load(Ordering::Acquire) {
            self.failed.store(true, Ordering::Release);
        }
    }
}

/// A queue pair that has bound windows: its requests, by the keys that they give.
#[derive(Debug)]
pub(crate) struct WindowBinder {
    number: u32,
    /// A child of `fork` must not take the lock, because the thread that holds it may not exist there.
    origin: Origin,
    requests: Mutex<BTreeMap<u32, (u64, Arc<Seen>)>>,
}

impl WindowBinder {
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    fn requests(&self) -> MutexGuard<'_, BTreeMap<u32, (u64, Arc<Seen>)>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called for each polled completion of this queue pair.
    pub(super) fn see(&self, completion: &Completion) {
        let succeeded = completion.status == Status::Success;
        if succeeded && completion.is_receive() {
            if completion.flags.contains(WcFlags::WITH_INVALIDATE)
                && let Some((_, seen)) = self.requests().get(&completion.immediate)
            {
                seen.invalidated.set();
            }
        } else if !succeeded || completion.opcode == wc_opcode::BIND_MW {
            for (_, seen) in self.requests().values().filter(|(wr_id, _)| *wr_id == completion.wr_id) {
                if succeeded { seen.done.store(true, Ordering::Release) } else { seen.fail() }
            }
        }
    }
}

/// One request, for as long as its window needs it.
#[derive(Debug)]
pub(crate) struct Watch {
    of: Arc<WindowBinder>,
    key: u32,
    seen: Arc<Seen>,
}

impl Watch {
    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.of.origin.is_here() {
            return;
        }
        let mut requests = self.of.requests();
        // Another request may have the key by now.
        if requests.get(&self.key).is_some_and(|(_, seen)| Arc::ptr_eq(seen, &self.seen)) {
            requests.remove(&self.key);
        }
    }
}

/// The part of a queue pair. It is empty until the queue pair binds a window.
#[derive(Debug, Default)]
pub(crate) struct Watching(OnceLock<(Arc<WindowBinder>, [Arc<Registry>; 2])>);

impl Watching {
    /// Watches a request that is about to be posted and that gives the window this key. `queues` are the registries of the queue
    /// pair's completion queues.
    pub(crate) fn watch(
        &self,
        (number, origin): (u32, Origin),
        queues: impl FnOnce() -> [Arc<Registry>; 2],
        wr_id: u64,
        key: u32,
    ) -> Watch {
        let (of, _) = self.0.get_or_init(|| {
            let (of, queues) =
                (Arc::new(WindowBinder { number, origin, requests: Mutex::default() }), queues());
            queues.iter().for_each(|queue| queue.watch(&of));
            (of, queues)
        });
        let seen = Arc::new(Seen::default());
        of.requests().insert(key, (wr_id, seen.clone()));
        Watch { of: of.clone(), key, seen }
    }

    /// The queue pair was reset or destroyed: requests that were not carried out end without a completion.
    pub(crate) fn reset(&self) {
        if let Some((of, _)) = self.0.get() {
            of.requests().values().for_each(|(_, seen)| seen.fail());
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some((of, queues)) = self.0.get().filter(|(of, _)| of.origin.is_here()) {
            queues.iter().for_each(|queue| queue.unwatch(of));
            // Completions that were not polled by now are not reported.
            self.reset();
        }
    }
}
