//! The time in which a thread wakes up that waits for a completion counter, with each wait object: `cargo bench --bench wait [-- [--cpus
//! A,B] [--samples N] [OBJECT...]]`. It needs no device, because the counters are in the process's own memory. With `--test` it takes few
//! samples, and only checks them.
//!
//! Two threads take turns. One reads the clock and adds 1. The other waits for that threshold, reads the clock, and answers through a
//! second counter with the same wait object. A sample is the time between the two readings. The next turn begins after the answer, so
//! samples do not overlap. No sample is left out, and percentiles are exact.

use std::fmt::Display;
use std::hint::{black_box, spin_loop};
use std::process::exit;
use std::sync::PoisonError;
use std::thread;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, getppid};
use uverbs::{CompletionCounter, WaitHandle, WaitObject, WaitSet};

type Object = (&'static str, fn() -> WaitObject);

/// The wait objects, by name; `busy` reads repeatedly, which is the lower limit of any wait.
const OBJECTS: [Object; 6] = [
    ("unspecified", || WaitObject::Unspecified),
    ("fd", || WaitObject::FileDescriptor),
    ("mutex-cond", || WaitObject::MutexCondvar),
    ("yield", || WaitObject::Yield),
    ("wait-set", || WaitObject::Set(WaitSet::new())),
    ("busy", || WaitObject::None),
];

const SAMPLES: usize = 20_000;
const TEST_SAMPLES: usize = 200;

/// Ends the program with a message. If a thread only panicked, the other one would wait for ever.
fn fail(why: impl Display) -> ! {
    eprintln!("wait: {why}");
    exit(1)
}

fn sure<T>(result: Result<T, impl Display>) -> T {
    result.unwrap_or_else(|error| fail(error))
}

/// Returns when the counter has reached the threshold.
#[inline]
fn wait(counter: &CompletionCounter, handle: Option<WaitHandle<'_>>, busy: bool, threshold: u64) {
    match handle {
        None if busy => {
            while counter.read() < threshold {
                spin_loop();
            }
        }
        None => sure(counter.wait(threshold, None)),
        Some(WaitHandle::FileDescriptor(file)) => {
            if !sure(counter.arm(threshold)) {
                while counter.read() < threshold {
                    sure(poll(&mut [PollFd::new(file, PollFlags::POLLIN)], PollTimeout::NONE));
                }
            }
        }
        Some(WaitHandle::MutexCondvar(mutex, condvar)) => {
            // The notifying thread holds the mutex, so nothing is missed after `arm`.
            let mut held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            if !sure(counter.arm(threshold)) {
                while counter.read() < threshold {
                    held = condvar.wait(held).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        Some(WaitHandle::Set(set)) => {
            // The set is signalled even if the threshold is already reached, and each signal must be taken.
            sure(counter.arm(threshold));
            sure(set.wait(None));
            while counter.read() < threshold {
                sure(set.wait(None));
            }
        }
        Some(other) => fail(format!("no way to wait for {other:?}")),
    }
}

/// The times from `add` to the end of the wait in ns, and the number of turns in which the value was reached before the wait began.
fn turns(object: fn() -> WaitObject, cpus: [Option<usize>; 2], turns: u64) -> (Vec<u64>, usize) {
    let begun = Instant::now();
    let now = || begun.elapsed().as_nanos() as u64;
    let [there, back] = [object(), object()].map(|object| sure(CompletionCounter::new(object)));
    let busy = matches!(object(), WaitObject::None);
    let (added, woken): (Vec<_>, Vec<_>) = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            pin(cpus[1]);
            let handle = there.wait_handle().ok();
            let turn = |turn| {
                let early = there.read() >= turn;
                wait(&there, handle, busy, turn);
                let woken = now();
                sure(back.add(1));
                (woken, early)
            };
            (1..=turns).map(turn).collect()
        });
        pin(cpus[0]);
        let handle = back.wait_handle().ok();
        let turn = |turn| {
            let added = now();
            sure(there.add(1));
            wait(&back, handle, busy, turn);
            added
        };
        ((1..=turns).map(turn).collect(), waiter.join().unwrap_or_else(|_| fail("a thread broke")))
    });
    let early = woken.iter().filter(|(_, early)| *early).count();
    (woken.iter().zip(added).map(|((woken, _), added)| woken.saturating_sub(added)).collect(), early)
}

/// Keeps the calling thread on one processor.
fn pin(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    let mut set = CpuSet::new();
    if let Err(errno) = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)) {
        fail(format!("this process may not run on CPU {cpu} ({errno})"));
    }
}

/// The median cost of a call between two readings of the clock, in ns.
fn floor(call: impl Fn()) -> u64 {
    let mut times: Vec<_> = (0..10_000)
        .map(|_| {
            let begun = Instant::now();
            call();
            begun.elapsed().as_nanos() as u64
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let (mut samples, mut cpus, mut objects, mut test) = (SAMPLES, [None; 2], Vec::new(), false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| fail(format!("{arg} needs a value")));
        match arg.as_str() {
            "--bench" => {}
            "--test" => (samples, test) = (TEST_SAMPLES, true),
            "--samples" => samples = sure(value().parse::<std::num::NonZero<usize>>()).get(),
            "--cpus" => {
                let list: Vec<usize> = value().split(',').map(|cpu| sure(cpu.parse())).collect();
                // Both on the same one if there is only one.
                cpus = [list.first().copied(), list.last().copied()];
            }
            name => match OBJECTS.iter().find(|object| object.0 == name) {
                Some(object) => objects.push(*object),
                None => {
                    fail(format!("no wait object `{name}`; there are {:?}", OBJECTS.map(|object| object.0)))
                }
            },
        }
    }
    if objects.is_empty() {
        objects = OBJECTS.to_vec();
    }
    println!(
        "in each sample: {} ns of the clock; a system call that does nothing takes {} ns\n",
        floor(|| ()),
        floor(|| _ = black_box(getppid()))
    );
    println!("| wait object | samples | min, ns | median | mean | 99 % | 99.9 % | 99.99 % | max | early |");
    println!("| --- |{}", " ---: |".repeat(9));
    for (name, object) in objects {
        // Warm-up.
        turns(object, cpus, (samples as u64 / 10).clamp(1, 1000));
        let begun = Instant::now();
        let (mut times, early) = turns(object, cpus, samples as u64);
        let elapsed = begun.elapsed().as_nanos() as u64;
        times.sort_unstable();
        let quantile = |share: f64| times[((times.len() as f64 * share).ceil() as usize).max(1) - 1];
        let [min, median, p99, p999, p9999, max] = [0.0, 0.5, 0.99, 0.999, 0.9999, 1.0].map(quantile);
        let sum = times.iter().sum::<u64>();
        let mean = sum / times.len() as u64;
        println!(
            "| {name} | {samples} | {min} | {median} | {mean} | {p99} | {p999} | {p9999} | {max} | {early} |"
        );
        if test {
            assert_eq!(times.len(), samples, "{name}: each turn has one sample");
            assert!(sum <= elapsed && early <= samples, "{name}: samples do not overlap");
        }
    }
}
