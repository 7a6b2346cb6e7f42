//! Scrapes share one reading: however many arrive at the same time, the devices are read once.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::exposition::{Families, Form, Metric};

const READS: Metric<'static> =
    Metric::counter("uverbs_exporter_reads", "Passes over all devices since the exporter was started.");

/// The result of one pass, and its texts, each created when it is first requested.
pub(super) struct Snapshot {
    families: Families,
    /// When the pass began. No value is older.
    begun: Instant,
    texts: [OnceLock<String>; 2],
}

impl Snapshot {
    pub(super) fn new(families: Families, begun: Instant) -> Self {
        Self { families, begun, texts: Default::default() }
    }

    /// The text in one format.
    pub(super) fn text(&self, form: Form) -> &str {
        let [text, open_metrics] = &self.texts;
        let place = match form {
            Form::Text => text,
            Form::OpenMetrics => open_metrics,
        };
        place.get_or_init(|| self.families.text(form))
    }
}

/// Reads all devices once.
pub(super) type Read = Box<dyn FnMut() -> Families + Send>;

/// The newest snapshot, and the means to make the next one.
pub(super) struct Snapshots {
    max_age: Duration,
    state: Mutex<State>,
    /// Notified when a pass has ended.
    ended: Condvar,
}

struct State {
    latest: Option<Arc<Snapshot>>,
    /// Snapshots that began before this time are not used any more.
    since: Instant,
    /// Taken by the thread that reads.
    read: Option<Read>,
    passes: u64,
}

impl Snapshots {
    pub(super) fn new(max_age: Duration, read: Read) -> Self {
        let state = State { latest: None, since: Instant::now(), read: Some(read), passes: 0 };
        Self { max_age, state: Mutex::new(state), ended: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, scrapes get only values that are read from now on, whatever the allowed age is.
    pub(super) fn forget(&self) {
        self.state().since = Instant::now();
    }

    /// A snapshot that is not older than allowed. If there is none, the calling thread reads, unless another thread already does.
    pub(super) fn get(&self) -> Arc<Snapshot> {
        let asked = Instant::now();
        let mut state = self.state();
        loop {
            let since = state.since;
            let is_young = |snapshot: &&Arc<Snapshot>| {
                snapshot.begun >= since && asked.saturating_duration_since(snapshot.begun) <= self.max_age
            };
            if let Some(snapshot) = state.latest.as_ref().filter(is_young) {
                return snapshot.clone();
            }
            let Some(read) = state.read.take() else {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.passes += 1;
            let passes = state.passes;
            drop(state);
            let mut turn = Turn { snapshots: self, read: Some(read), snapshot: None };
            let begun = Instant::now();
            let mut families = turn.read.as_mut().map(|read| read()).unwrap_or_default();
            families.add(&READS, &[], passes);
            let snapshot = Arc::new(Snapshot::new(families, begun));
            turn.snapshot = Some(snapshot.clone());
            return snapshot;
        }
    }
}

/// The right to read, which ends also if the reading thread panics.
struct Turn<'a> {
    snapshots: &'a Snapshots,
    read: Option<Read>,
    snapshot: Option<Arc<Snapshot>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.snapshots.state();
        state.read = self.read.take();
        if self.snapshot.is_some() {
            state.latest = self.snapshot.take();
        }
        self.snapshots.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    fn counted(max_age: Duration, takes: Duration) -> (Arc<Snapshots>, Arc<AtomicU64>) {
        let reads = Arc::new(AtomicU64::new(0));
        let ours = reads.clone();
        let read = Box::new(move || {
            ours.fetch_add(1, Ordering::Relaxed);
            thread::sleep(takes);
            Families::default()
        });
        (Arc::new(Snapshots::new(max_age, read)), reads)
    }

    #[test]
    fn scrapes_at_once_cost_one_read() {
        let (snapshots, reads) = counted(Duration::from_secs(60), Duration::from_millis(200));
        let scrapes: Vec<_> = (0..16)
            .map(|number| {
                let snapshots = snapshots.clone();
                let form = if number % 2 == 0 { Form::Text } else { Form::OpenMetrics };
                thread::spawn(move || snapshots.get().text(form).to_owned())
            })
            .collect();
        for scrape in scrapes {
            assert!(scrape.join().expect("no panic").contains("uverbs_exporter_reads_total 1\n"));
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        snapshots.get();
        assert_eq!(reads.load(Ordering::Relaxed), 1, "it is young enough");
    }

    #[test]
    fn what_is_too_old_is_read_again() {
        let (snapshots, reads) = counted(Duration::from_millis(1), Duration::ZERO);
        for number in 1..=3 {
            let text = snapshots.get().text(Form::Text).to_owned();
            assert!(text.contains(&format!("uverbs_exporter_reads_total {number}\n")), "{text}");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(reads.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn what_was_forgotten_is_read_again() {
        let (snapshots, reads) = counted(Duration::from_secs(60), Duration::ZERO);
        for number in 1..=3 {
            for _ in 0..2 {
                snapshots.get();
                assert_eq!(reads.load(Ordering::Relaxed), number);
            }
            snapshots.forget();
        }
    }

    #[test]
    fn a_read_that_was_too_slow_for_its_age_ends_all_the_same() {
        // A thread that waited for a pass uses its result unless the pass began too long before the thread's request.
        let (snapshots, reads) = counted(Duration::from_millis(1), Duration::from_millis(50));
        let scrapes: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn({
                    let snapshots = snapshots.clone();
                    move || drop(snapshots.get())
                })
            })
            .collect();
        scrapes.into_iter().for_each(|scrape| scrape.join().expect("no panic"));
        assert!((1..=4).contains(&reads.load(Ordering::Relaxed)));
    }

    #[test]
    fn a_reading_that_dies_leaves_the_next_one_its_turn() {
        let mut is_first = true;
        let read = Box::new(move || {
            assert!(!std::mem::take(&mut is_first), "it dies on purpose");
            Families::default()
        });
        let snapshots = Arc::new(Snapshots::new(Duration::from_secs(60), read));
        let ours = snapshots.clone();
        thread::spawn(move || drop(ours.get())).join().expect_err("it has died");
        assert!(snapshots.get().text(Form::Text).contains("uverbs_exporter_reads_total 2\n"));
    }
}
