//! Two threads in turns: one notes the time and adds 1, the other waits, notes the time, and answers through a counter
//! of the same kind. The next turn begins when the answer is there, so turns do not overlap.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uverbs::CompletionCounter;

use super::super::clock::{Clock, Monotonic};
use super::super::pace::Limit;
use super::super::progress::Progress;
use super::super::run::{cpu_of, pin, together};
use super::super::tally::Tally;
use super::object::Object;
use crate::Outcome;
use crate::failure;
use crate::stop::Stop;

/// How long, and where.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) warm_up: Limit,
    pub(super) limit: Limit,
    /// Where the adder and the waiter run, in turn; anywhere if it is empty.
    pub(super) cpus: Vec<usize>,
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) latency: Tally,
    /// Turns in which the counter had reached the threshold before the wait began.
    pub(super) early: u64,
    /// From first to last, in ns.
    pub(super) elapsed: u64,
}

/// What both threads have.
#[derive(Debug)]
struct Shared {
    clock: Monotonic,
    /// Added to by the adder, and by the waiter.
    there: CompletionCounter,
    back: CompletionCounter,
    /// Of this turn, written by the waiter before it answers: when it was back, and whether it did not have to wait.
    woken: AtomicU64,
    early: AtomicBool,
    /// One of them has left.
    over: AtomicBool,
}

/// Lets the other one go, however this one leaves.
struct Leave<'a> {
    over: &'a AtomicBool,
    awaited: &'a CompletionCounter,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // A counter in the process's own memory does not refuse it.
        let _ = self.awaited.add(1);
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The adder, which measures.
    fn add(
        &self,
        object: Object,
        setting: &Setting,
        stop: &Stop,
        samples: &AtomicU64,
    ) -> Outcome<[Measured; 2]> {
        let _leave = Leave { over: &self.over, awaited: &self.there };
        cpu_of(0, &setting.cpus).map_or(Ok(()), pin)?;
        let waiter = object.waiter(&self.back)?;
        let mut turn = 0;
        let mut phase = |limit: Limit, samples: &AtomicU64| -> Outcome<Measured> {
            let mut measured = Measured { latency: Tally::new()?, early: 0, elapsed: 0 };
            let begun = self.clock.now();
            let (most, end) = limit.bounds(begun);
            let mut count = 0;
            while count < most && self.clock.now() < end && !stop.is_set() {
                turn += 1;
                let added = self.clock.now();
                self.there.add(1)?;
                waiter.wait(turn)?;
                if self.is_over() {
                    break;
                }
                measured.latency.record(self.woken.load(Ordering::Relaxed).saturating_sub(added));
                measured.early += u64::from(self.early.load(Ordering::Relaxed));
                count += 1;
                samples.store(count, Ordering::Relaxed);
            }
            measured.elapsed = self.clock.now() - begun;
            Ok(measured)
        };
        Ok([phase(setting.warm_up, &AtomicU64::new(0))?, phase(setting.limit, samples)?])
    }

    /// The waiter.
    fn wait(&self, object: Object, setting: &Setting) -> Outcome {
        let _leave = Leave { over: &self.over, awaited: &self.back };
        cpu_of(1, &setting.cpus).map_or(Ok(()), pin)?;
        let waiter = object.waiter(&self.there)?;
        for turn in 1.. {
            let early = self.there.read() >= turn;
            waiter.wait(turn)?;
            let woken = self.clock.now();
            if self.is_over() {
                break;
            }
            self.woken.store(woken, Ordering::Relaxed);
            self.early.store(early, Ordering::Relaxed);
            self.back.add(1)?;
        }
        Ok(())
    }
}

/// Measures one wait object: the warm-up, and what comes after.
pub(super) fn run(
    object: Object,
    setting: &Setting,
    stop: &Stop,
    progress: &Progress,
) -> Outcome<[Measured; 2]> {
    let shared = Shared {
        clock: Monotonic::new(),
        there: object.counter()?,
        back: object.counter()?,
        woken: AtomicU64::new(0),
        early: AtomicBool::new(false),
        over: AtomicBool::new(false),
    };
    let samples = AtomicU64::new(0);
    let (shared, seen) = (&shared, &samples);
    let parts = [true, false].map(|adds| {
        move || match adds {
            true => shared.add(object, setting, stop, seen).map(Some),
            false => shared.wait(object, setting).map(|()| None),
        }
    });
    let mut measured = None;
    failure::first(together(parts, || samples.load(Ordering::Relaxed), progress).into_iter().map(
        |result| {
            measured = result?.or(measured.take());
            Ok(())
        },
    ))?;
    measured.ok_or_else(|| failure::Failure::Other("a measuring thread broke".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_counts_once_and_the_warm_up_apart() {
        let setting = Setting { warm_up: Limit::Samples(3), limit: Limit::Samples(50), cpus: Vec::new() };
        for object in Object::meant(&[Object::All]) {
            let [warm_up, measured] =
                run(object, &setting, &Stop::default(), &Progress::new(setting.limit, 1)).unwrap();
            assert_eq!((warm_up.latency.count(), measured.latency.count()), (3, 50), "{object:?}");
            assert!(measured.early <= 50 && measured.latency.max() <= measured.elapsed, "{measured:?}");
        }
    }

    #[test]
    fn one_that_may_not_begin_does_not_keep_the_other() {
        let limit = Limit::Samples(u64::MAX);
        for object in Object::meant(&[Object::All]) {
            let setting = Setting { warm_up: limit, limit, cpus: vec![60_000] };
            assert!(run(object, &setting, &Stop::default(), &Progress::new(setting.limit, 1)).is_err());
        }
    }
}
