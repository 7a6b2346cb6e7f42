//! Keeping snapshots fresh: by a thread, by the caller's own loop, or by tokio.

mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::thread::SamplerThread;
use super::Snapshot;
use super::refresh::Refresher;
use crate::counters::clock::{self, Clock, Pace};
use crate::kernel::process::Origin;

/// Refreshes many snapshots from the device at an interval, so that readers always find fresh values.
///
/// It must be driven in one of three ways: your loop calls [`Sampler::tick`], [`Sampler::spawn`] starts a thread, or, with the
/// feature `tokio`, a task awaits `Sampler::run`.
///
/// In each interval there is one round, in which every snapshot is refreshed once. Snapshots of one bulk source (`CounterPool` of
/// mlx5) are refreshed together, with one command. A snapshot that another thread has refreshed since the round was due is
/// skipped. If reading one snapshot fails, the others are still read; the snapshot keeps the error ([`Snapshot::last_error`]) and
/// the next round tries again. A snapshot that has ended is removed.
///
/// If rounds take longer than the interval, or ticks are late, missed rounds are not repeated: [`Sampler::report`] returns how
/// many intervals were missed and how late rounds began.
///
/// In a child of `fork` the parent's sampler has no snapshots and accepts none.
///
/// ```
/// # use std::time::Duration;
/// # use uverbs::{FlowRule, Point, Sampler, SoftDevice};
/// # fn main() -> uverbs::Result<()> {
/// # let device = SoftDevice::default();
/// # let context = device.open()?;
/// # let cq = context.create_cq(16)?;
/// # let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
/// # let counters = context.create_counters()?;
/// # counters.attach(Point::Packets, 0)?;
/// let flow = qp.create_flow(&FlowRule::normal(1).count(&counters))?;
/// let snapshot = counters.snapshot()?;
/// let mut sampler = Sampler::new(Duration::from_millis(1));
/// sampler.add(&snapshot);
///
/// let tick = sampler.tick(); // in a loop that has other things to do too
/// assert_eq!(tick.refreshed, 1);
/// assert!(tick.wait <= Duration::from_millis(1));
///
/// let thread = sampler.spawn()?; // or a thread of its own, until it is dropped
/// device.inject(&[0; 60]);
/// while snapshot.latest::<1>()?.0 != [1] {
///     std::thread::yield_now();
/// }
/// assert_eq!(thread.report().failed, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sampler {
    set: Arc<Set>,
    interval_ns: u64,
    at_most: usize,
    /// When the next round is due; `None` before the first.
    next_ns: Option<u64>,
    round: Option<Round>,
    /// The members in order, as of change number `seen`: a tick takes no lock while no member is added or removed.
    members: Vec<Arc<Refresher>>,
    seen: u64,
}

/// A round that is in progress.
#[derive(Clone, Copy, Debug)]
struct Round {
    due_ns: u64,
    begun_ns: u64,
    /// The index of the next member.
    next: usize,
}

/// The state that is shared with threads that add members and query the report while a thread samples. In a child of `fork` it is empty,
/// because a lock may be held by a thread that does not exist there.
#[derive(Debug)]
struct Set {
    origin: Origin,
    members: Mutex<BTreeMap<usize, Member>>,
    /// Number of changes of the members.
    changes: AtomicU64,
    told: Mutex<Told>,
}

/// The snapshots that one refresher feeds. A member is identified by the address of its refresher, which it keeps; snapshots by their
/// addresses.
#[derive(Debug)]
struct Member {
    refresher: Arc<Refresher>,
    snapshots: BTreeSet<usize>,
}

/// What one [`Sampler::tick`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Commands that read the device, and snapshots that others had refreshed.
    pub refreshed: usize,
    /// Commands that failed.
    pub failed: usize,
    /// Snapshots, or bulk sources of them, that have ended and were removed.
    pub ended: usize,
    /// Time until the next round is due; zero if the round is not over or the next one is due.
    pub wait: Duration,
}

/// What a [`Sampler`] has done since it was created, and how late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplerReport {
    /// Rounds that were started.
    pub rounds: u64,
    /// Commands that read the device, and snapshots that others had refreshed, in all ticks.
    pub refreshed: u64,
    /// Commands that failed, in all ticks.
    pub failed: u64,
    /// Snapshots, or bulk sources of them, that have ended and were removed, in all ticks.
    pub ended: u64,
    /// Intervals without a round.
    pub missed: u64,
    /// How late the last round began.
    pub last_lateness: Duration,
    /// The maximum lateness of all rounds.
    pub max_lateness: Duration,
    /// Duration of the last complete round.
    pub last_round: Duration,
}

/// The contents of a [`SamplerReport`], in nanoseconds.
#[derive(Debug, Default)]
struct Told {
    rounds: u64,
    refreshed: u64,
    failed: u64,
    ended: u64,
    missed: u64,
    last_late_ns: u64,
    max_late_ns: u64,
    last_round_ns: u64,
}

/// When a round began.
#[derive(Clone, Copy)]
struct Begun {
    missed: u64,
    late_ns: u64,
}

impl Told {
    /// Adds the results of a tick, the round that began in it, and the duration of the round that ended in it.
    fn add(&mut self, tick: &Tick, begun: Option<Begun>, took_ns: Option<u64>) {
        self.refreshed += tick.refreshed as u64;
        self.failed += tick.failed as u64;
        self.ended += tick.ended as u64;
        if let Some(Begun { missed, late_ns }) = begun {
            self.rounds += 1;
            self.missed += missed;
            self.last_late_ns = late_ns;
            self.max_late_ns = self.max_late_ns.max(late_ns);
        }
        self.last_round_ns = took_ns.unwrap_or(self.last_round_ns);
    }

    fn report(&self) -> SamplerReport {
        SamplerReport {
            rounds: self.rounds,
            refreshed: self.refreshed,
            failed: self.failed,
            ended: self.ended,
            missed: self.missed,
            last_lateness: Duration::from_nanos(self.last_late_ns),
            max_lateness: Duration::from_nanos(self.max_late_ns),
            last_round: Duration::from_nanos(self.last_round_ns),
        }
    }
}

impl Set {
    fn members(&self) -> Option<MutexGuard<'_, BTreeMap<usize, Member>>> {
        self.origin.is_here().then(|| self.members.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn told(&self) -> Option<MutexGuard<'_, Told>> {
        self.origin.is_here().then(|| self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn report(&self) -> SamplerReport {
        self.told().map(|told| told.report()).unwrap_or_default()
    }

    fn add(&self, snapshot: &Snapshot) {
        let (member, snapshot, refresher) = keys(snapshot);
        let new = || Member { refresher: refresher.clone(), snapshots: BTreeSet::new() };
        if let Some(mut members) = self.members() {
            members.entry(member).or_insert_with(new).snapshots.insert(snapshot);
            self.changed();
        }
    }

    fn remove(&self, snapshot: &Snapshot) -> bool {
        let (key, snapshot, _) = keys(snapshot);
        let Some(mut members) = self.members() else { return false };
        let Some(member) = members.get_mut(&key) else { return false };
        let was_there = member.snapshots.remove(&snapshot);
        if member.snapshots.is_empty() {
            members.remove(&key);
            self.changed();
        }
        was_there
    }

    /// Counts a member that was not refreshed, and removes it if it never will be.
    #[cold]
    fn failed(&self, refresher: &Arc<Refresher>, tick: &mut Tick) {
        if !refresher.has_ended() {
            tick.failed += 1;
            return;
        }
        tick.ended += 1;
        if let Some(mut members) = self.members() {
            members.remove(&key(refresher));
            self.changed();
        }
    }

    /// Makes the sampler copy the members again. The members must be locked.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// The identity of a member.
fn key(refresher: &Arc<Refresher>) -> usize {
    Arc::as_ptr(refresher).addr()
}

fn keys(snapshot: &Snapshot) -> (usize, usize, &Arc<Refresher>) {
    let refresher = snapshot.refresher();
    (key(refresher), snapshot.key(), refresher)
}

impl Sampler {
    /// Creates a sampler without snapshots, with one round per `interval`; zero for rounds without a pause.
    pub fn new(interval: Duration) -> Self {
        let interval_ns = clock::nanoseconds(interval);
        let set = Set {
            origin: Origin::here(),
            members: Mutex::default(),
            changes: AtomicU64::new(0),
            told: Mutex::default(),
        };
        Self {
            set: Arc::new(set),
            interval_ns,
            at_most: 64,
            next_ns: None,
            round: None,
            members: Vec::new(),
            seen: 0,
        }
    }

    /// Limits the commands of one tick (default 64, at least 1). The next tick continues.
    #[must_use]
    pub fn at_most(mut self, commands: usize) -> Self {
        self.at_most = commands.max(1);
        self
    }

    /// Adds a snapshot; no effect if it was added already.
    pub fn add(&self, snapshot: &Snapshot) {
        self.set.add(snapshot);
    }

    /// Removes a snapshot and returns whether it was there.
    pub fn remove(&self, snapshot: &Snapshot) -> bool {
        self.set.remove(snapshot)
    }

    /// Commands of one round: snapshots, with those of one bulk source counted as one.
    pub fn len(&self) -> usize {
        self.set.members().map_or(0, |members| members.len())
    }

    /// Whether there is no snapshot to refresh.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was done so far, and how late.
    pub fn report(&self) -> SamplerReport {
        self.set.report()
    }

    /// Makes the refreshes that are due, up to the limit of [`Sampler::at_most`].
    pub fn tick(&mut self) -> Tick {
        self.step(Clock::Monotonic, || true)
    }

    /// Makes the refreshes that are due by the caller's own clock, which shows `now_ns`; see [`tick`](Self::tick) and
    /// [`Snapshot::read_at`].
    pub fn tick_at(&mut self, now_ns: u64) -> Tick {
        self.step(Clock::At(now_ns), || true)
    }

    /// Makes the refreshes that are due, until `goes_on` returns false after a command.
    fn step(&mut self, clock: Clock, goes_on: impl Fn() -> bool) -> Tick {
        let mut tick = Tick::default();
        if !self.set.origin.is_here() {
            tick.wait = Duration::from_nanos(self.interval_ns);
            return tick;
        }
        let mut pace = Pace::new(clock);
        let (mut round, begun) = match self.round.take() {
            Some(round) => (round, None),
            None => {
                let now_ns = pace.looked().ns;
                let Some((round, begun)) = self.begin(now_ns) else {
                    tick.wait = self.wait(now_ns);
                    return tick;
                };
                (round, Some(begun))
            }
        };
        let mut left = self.at_most;
        loop {
            if self.is_changed() {
                self.look(&mut round);
            }
            let rest = self.members.get(round.next..).unwrap_or_default();
            let next = &rest[..rest.len().min(left)];
            let (mut done, mut goes_on_all) = (0, true);
            for refresher in next {
                done += 1;
                if refresher.refresh_at(|| pace.now(), || refresher.is_refreshed_since(round.due_ns)).is_err()
                {
                    self.set.failed(refresher, &mut tick);
                }
                goes_on_all = goes_on();
                if !goes_on_all || self.is_changed() {
                    break;
                }
            }
            let is_last = done == next.len();
            (round.next, left) = (round.next + done, left - done);
            tick.refreshed += done;
            if is_last || !goes_on_all {
                break;
            }
        }
        tick.refreshed -= tick.failed + tick.ended;
        let mut took = None;
        if round.next < self.members.len() {
            self.round = Some(round);
        } else {
            let now_ns = pace.now().ns;
            took = Some(now_ns.saturating_sub(round.begun_ns));
            tick.wait = self.wait(now_ns);
        }
        if let Some(mut told) = self.set.told() {
            told.add(&tick, begun, took);
        }
        tick
    }

    /// Whether the members have changed since they were copied last.
    #[inline]
    fn is_changed(&self) -> bool {
        self.seen != self.set.changes.load(Ordering::Acquire)
    }

    /// Copies the current members, and continues after the member that was refreshed last.
    #[cold]
    fn look(&mut self, round: &mut Round) {
        let last = round.next.checked_sub(1).and_then(|last| self.members.get(last)).map(key);
        let Some(members) = self.set.members() else { return };
        self.seen = self.set.changes.load(Ordering::Relaxed);
        self.members.clear();
        self.members.extend(members.values().map(|member| member.refresher.clone()));
        round.next = last.map_or(0, |last| self.members.partition_point(|member| key(member) <= last));
    }

    /// Begins the next round, if it is due.
    fn begin(&mut self, now_ns: u64) -> Option<(Round, Begun)> {
        let due_ns = self.next_ns.unwrap_or(now_ns);
        let late_ns = now_ns.checked_sub(due_ns)?;
        let missed = late_ns.checked_div(self.interval_ns).unwrap_or(0);
        let due_ns = if self.interval_ns == 0 { now_ns } else { due_ns + missed * self.interval_ns };
        self.next_ns = Some(due_ns.saturating_add(self.interval_ns));
        let begun = Begun { missed, late_ns };
        Some((Round { due_ns, begun_ns: now_ns, next: 0 }, begun))
    }

    fn wait(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.next_ns.map_or(0, |next| next.saturating_sub(now_ns)))
    }
}
