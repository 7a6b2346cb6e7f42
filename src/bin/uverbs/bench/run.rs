//! One measurement: threads warm up, begin together, and their results are added up.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::clock::Monotonic;
use super::pace::{Limit, Measured, Pace, Plan, Watched};
use super::progress::Progress;
use super::rig::Reads;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::stop::Stop;

/// Time between two updates of the progress.
const LOOK: Duration = Duration::from_millis(50);

/// How all threads measure.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// Samples of all threads per second, for an open loop.
    pub(super) rate: Option<u64>,
    pub(super) limit: Limit,
    /// `None` for the default warm-up for this limit.
    pub(super) warm_up: Option<u64>,
    pub(super) batch: u32,
    /// The processors on which threads run, in turn; if it is empty, any.
    pub(super) cpus: Vec<usize>,
}

impl Setting {
    /// The plan of one of `threads` threads. Their intended times are spread evenly.
    fn plan(&self, thread: u64, threads: u64) -> Plan {
        let pace = self.rate.map_or(Pace::Closed, |rate| Pace::Open {
            interval: (1_000_000_000 * threads / rate).max(1),
            first: 1_000_000_000 * thread / rate,
        });
        let limit = match self.limit {
            Limit::Samples(all) => Limit::Samples(all / threads + u64::from(thread < all % threads)),
            time @ Limit::Time(_) => time,
        };
        Plan { pace, limit, batch: self.batch }
    }
}

/// The results, with the warm-up separately.
#[derive(Clone, Debug)]
pub(super) struct Measurements {
    pub(super) warm_up: Measured,
    pub(super) measured: Measured,
}

/// Measures each of `reads` in its own thread.
pub(super) fn run(
    reads: Vec<Reads<'_>>,
    setting: &Setting,
    stop: &Stop,
    progress: &mut Progress,
) -> Outcome<Measurements> {
    let threads = reads.len();
    let barrier = Barrier::new(threads);
    let counts: Vec<AtomicU64> = reads.iter().map(|_| AtomicU64::new(0)).collect();
    let parts = reads.into_iter().zip(&counts).enumerate().map(|(number, (mut reads, samples))| {
        let barrier = &barrier;
        let plan = setting.plan(number as u64, threads as u64);
        let cpu = cpu_of(number, &setting.cpus);
        move || one(&mut reads, &plan, setting, cpu, stop, barrier, samples)
    });
    let seen = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    let results = together(parts, seen, progress);
    let mut sum = Measurements { warm_up: Measured::new()?, measured: Measured::new()? };
    failure::first(results.into_iter().map(|result| {
        let result = result?;
        sum.warm_up.add(&result.warm_up)?;
        sum.measured.add(&result.measured)
    }))?;
    Ok(sum)
}

/// Runs each part in its own thread, and shows the number of samples meanwhile.
fn together<T: Send>(
    parts: impl IntoIterator<Item = impl FnOnce() -> Outcome<T> + Send>,
    seen: impl Fn() -> u64,
    progress: &Progress,
) -> Vec<Outcome<T>> {
    thread::scope(|scope| {
        let running: Vec<_> = parts.into_iter().map(|part| scope.spawn(part)).collect();
        while running.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(LOOK);
            progress.show(seen());
        }
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|_| Err(panicked()))).collect()
    })
}

/// The processor of a thread: the processors in turn; `None` if there are none.
fn cpu_of(thread: usize, cpus: &[usize]) -> Option<usize> {
    cpus.get(thread % cpus.len().max(1)).copied()
}

fn panicked() -> Failure {
    Failure::Other("a measuring thread panicked".to_owned())
}

/// One thread's part.
fn one(
    reads: &mut Reads<'_>,
    plan: &Plan,
    setting: &Setting,
    cpu: Option<usize>,
    stop: &Stop,
    barrier: &Barrier,
    samples: &AtomicU64,
) -> Outcome<Measurements> {
    let pinned = cpu.map_or(Ok(()), pin);
    let clock = Monotonic::new();
    let warm_up = setting.warm_up.map_or_else(|| setting.limit.warm_up(), Limit::Samples);
    let warm_up = Plan { pace: Pace::Closed, limit: warm_up, batch: 1 };
    let watched = Watched { stop: Some(stop.flag()), samples: None };
    let warm_up = pinned.and_then(|()| reads.measure(&clock, &warm_up, &watched));
    // A thread that failed must not keep the others waiting.
    barrier.wait();
    let warm_up = warm_up?;
    let watched = Watched { samples: Some(samples), ..watched };
    let measured = reads.measure(&clock, plan, &watched)?;
    Ok(Measurements { warm_up, measured })
}

/// Keeps the calling thread on one processor.
pub(super) fn pin(cpu: usize) -> Outcome {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|errno| Failure::Usage(format!("--cpu: this process may not run on CPU {cpu} ({errno})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(rate: Option<u64>, limit: Limit) -> Setting {
        Setting { rate, limit, warm_up: None, batch: 1, cpus: Vec::new() }
    }

    #[test]
    fn threads_share_the_samples() {
        let setting = setting(None, Limit::Samples(10));
        let parts: Vec<_> = (0..3).map(|thread| setting.plan(thread, 3).limit).collect();
        assert_eq!(parts, [4, 3, 3].map(Limit::Samples));
    }

    #[test]
    fn threads_share_the_rate() {
        let setting = setting(Some(1000), Limit::Time(1));
        let paces: Vec<_> = (0..2).map(|thread| setting.plan(thread, 2).pace).collect();
        let pace = |first| Pace::Open { interval: 2_000_000, first };
        assert_eq!(paces, [pace(0), pace(1_000_000)]);
    }
}
