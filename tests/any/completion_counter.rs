//! The behaviour of a completion counter alone, without a device: its values and its waits. The sentences are those of libfabric's manual
//! page fi_cntr(3); docs/internals/completion-counters.md has the table.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::counting::*;
use uverbs::{CompletionCounter, CounterEvents, ErrorKind, WaitObject, WaitSet};

/// Returns when `flag` has this value, however slow the machine is.
fn until(flag: &AtomicU32, high: u32) {
    while flag.load(Ordering::SeqCst) < high {
        thread::yield_now();
    }
}

#[test]
fn a_new_counter_stands_at_zero_and_is_as_asked_for() {
    for object in all_objects() {
        assert_eq!(values(&counter(object)), (0, 0));
    }
    let bytes = CompletionCounter::builder().events(CounterEvents::Bytes).create().unwrap();
    assert_eq!(
        (bytes.events(), counter(WaitObject::None).events()),
        (CounterEvents::Bytes, CounterEvents::Completions)
    );
}

#[test]
fn flags_other_than_zero_are_refused() {
    for flags in [1, 1 << 63, u64::MAX] {
        let error = CompletionCounter::builder().flags(flags).create().unwrap_err();
        assert_eq!((error.kind(), error.hint().is_some()), (ErrorKind::InvalidInput, true));
    }
    assert!(CompletionCounter::builder().flags(0).create().is_ok());
}

#[test]
fn add_and_set_change_one_value_and_leave_the_other() {
    let counter = counter(WaitObject::None);
    counter.add(5).unwrap();
    counter.add(0).unwrap();
    counter.add_err(2).unwrap();
    assert_eq!(values(&counter), (5, 2));
    counter.set(3).unwrap();
    assert_eq!(values(&counter), (3, 2));
    counter.set_err(9).unwrap();
    counter.add_err(1).unwrap();
    assert_eq!(values(&counter), (3, 10));
    counter.set(0).unwrap();
    counter.set_err(0).unwrap();
    assert_eq!(values(&counter), (0, 0));
}

#[test]
fn a_set_counter_goes_on_from_there() {
    let counter = counter(WaitObject::None);
    counter.set(100).unwrap();
    counter.add(1).unwrap();
    assert_eq!(counter.read(), 101);
}

#[test]
fn values_have_64_bits_and_begin_again_behind_them() {
    let counter = counter(WaitObject::Unspecified);
    counter.set(u64::MAX).unwrap();
    counter.wait(u64::MAX, None).unwrap();
    counter.add(2).unwrap();
    counter.set_err(u64::MAX).unwrap();
    counter.add_err(1).unwrap();
    assert_eq!(values(&counter), (1, 0));
}

#[test]
fn a_wait_for_what_is_reached_returns_at_once() {
    for object in waiting_objects() {
        let counter = counter(object);
        counter.wait(0, None).unwrap();
        counter.add(7).unwrap();
        counter.wait(7, None).unwrap();
        counter.wait(3, Some(Duration::ZERO)).unwrap();
    }
}

#[test]
fn a_wait_ends_at_the_threshold() {
    for object in waiting_objects() {
        let counter = counter(object);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                counter.wait(3, LONG).unwrap();
                assert!(counter.read() >= 3, "upon success the value is the threshold or more");
            });
            for _ in 0..3 {
                assert!(counter.read() < 3);
                counter.add(1).unwrap();
            }
            waiter.join().unwrap();
        });
    }
}

#[test]
fn setting_wakes_as_adding_does() {
    for object in waiting_objects() {
        let counter = counter(object);
        thread::scope(|scope| {
            scope.spawn(|| counter.wait(10, LONG).unwrap());
            counter.set(10).unwrap();
        });
    }
}

#[test]
fn a_wait_does_not_end_below_the_threshold() {
    for object in waiting_objects() {
        let counter = counter(object);
        counter.add(4).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                counter.wait(6, LONG).unwrap();
                assert!(is_over.load(Ordering::SeqCst));
            });
            counter.add(1).unwrap();
            thread::sleep(Duration::from_millis(5));
            is_over.store(true, Ordering::SeqCst);
            counter.add(1).unwrap();
        });
    }
}

#[test]
fn a_change_of_the_error_value_wakes_every_waiter() {
    for object in waiting_objects() {
        let counter = counter(object);
        let seen = counter.read_err();
        thread::scope(|scope| {
            let waiters = [1, 2, u64::MAX].map(|threshold| {
                let counter = &counter;
                scope.spawn(move || counter.wait_since(threshold, seen, LONG))
            });
            counter.add_err(1).unwrap();
            for waiter in waiters {
                ends_with(waiter.join().unwrap(), ErrorKind::OperationFailed);
            }
        });
        assert_eq!(values(&counter), (0, 1));
    }
}

#[test]
fn setting_the_error_value_lower_is_a_change_too() {
    let counter = counter(WaitObject::Unspecified);
    counter.set_err(5).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| counter.wait_since(1, 5, LONG));
        counter.set_err(4).unwrap();
        ends_with(waiter.join().unwrap(), ErrorKind::OperationFailed);
    });
}

#[test]
fn an_error_from_before_the_wait_does_not_end_it() {
    for object in waiting_objects() {
        let counter = counter(object);
        counter.add_err(3).unwrap();
        ends_with(counter.wait(1, SHORT), ErrorKind::TimedOut);
        ends_with(counter.wait_since(1, 3, SHORT), ErrorKind::TimedOut);
        // Unless the caller has not seen it.
        ends_with(counter.wait_since(1, 2, LONG), ErrorKind::OperationFailed);
    }
}

#[test]
fn adding_nothing_to_the_error_value_wakes_nobody() {
    let counter = counter(WaitObject::Unspecified);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| counter.wait_since(1, 0, LONG));
        for _ in 0..1000 {
            counter.add_err(0).unwrap();
            counter.set_err(0).unwrap();
        }
        counter.add(1).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_timeout_changes_nothing() {
    for object in waiting_objects() {
        let counter = counter(object);
        counter.add(1).unwrap();
        counter.add_err(2).unwrap();
        let start = Instant::now();
        ends_with(counter.wait(2, SHORT), ErrorKind::TimedOut);
        assert!(start.elapsed() >= SHORT.unwrap(), "not before the time");
        ends_with(counter.wait(2, Some(Duration::ZERO)), ErrorKind::TimedOut);
        assert_eq!(values(&counter), (1, 2));
        counter.add(1).unwrap();
        counter.wait(2, SHORT).unwrap();
    }
}

#[test]
fn wake_ups_do_not_move_the_deadline() {
    for object in waiting_objects() {
        let counter = counter(object);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiting = thread::current();
            let (counter, is_over) = (&counter, &is_over);
            // Changes that do not concern the waiter wake its thread repeatedly.
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    waiting.unpark();
                    counter.set(0).unwrap();
                    thread::yield_now();
                }
            });
            // A deadline that restarted with each wake-up would never be reached.
            let start = Instant::now();
            ends_with(counter.wait(1, SHORT), ErrorKind::TimedOut);
            assert!(start.elapsed() >= SHORT.unwrap());
            is_over.store(true, Ordering::SeqCst);
        });
    }
}

#[test]
fn without_a_timeout_a_wait_is_for_ever() {
    for object in waiting_objects() {
        let counter = counter(object);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                counter.wait(1, None).unwrap();
                ended.store(true, Ordering::SeqCst);
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!ended.load(Ordering::SeqCst), "it waits");
            counter.add(1).unwrap();
        });
        // A time that no clock can represent also means for ever.
        counter.wait(1, Some(Duration::MAX)).unwrap();
    }
}

#[test]
fn waiters_for_different_thresholds_are_woken_one_by_one() {
    for object in waiting_objects() {
        let counter = counter(object);
        let woken = AtomicU32::new(0);
        thread::scope(|scope| {
            for threshold in 1..=8 {
                let (counter, woken) = (&counter, &woken);
                scope.spawn(move || {
                    counter.wait(threshold, LONG).unwrap();
                    woken.fetch_add(1, Ordering::SeqCst);
                });
            }
            for reached in 1..=8 {
                counter.add(1).unwrap();
                until(&woken, reached);
                assert_eq!(woken.load(Ordering::SeqCst), reached, "nobody else is woken");
            }
        });
    }
}

#[test]
fn many_threads_lose_no_update() {
    let rounds: u64 = if cfg!(miri) { 50 } else { 10_000 };
    let counter = counter(WaitObject::Unspecified);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..rounds).for_each(|_| counter.add(1).unwrap()));
            scope.spawn(|| counter.wait(4 * rounds, LONG).or_else(|_| counter.wait(4 * rounds, LONG)));
        }
        // It never goes back.
        let mut last = 0;
        while last < 4 * rounds {
            let value = counter.read();
            assert!(value >= last);
            last = value;
        }
    });
    assert_eq!(values(&counter), (4 * rounds, 0));
}

#[test]
fn threads_that_add_set_and_wait_come_to_an_end() {
    let rounds: u64 = if cfg!(miri) { 20 } else { 2_000 };
    for object in waiting_objects() {
        let counter = counter(object);
        thread::scope(|scope| {
            for threshold in [1, rounds, 2 * rounds] {
                let counter = &counter;
                scope.spawn(move || {
                    // Failures end a wait; the next one continues.
                    while counter.wait(threshold, LONG).is_err() {
                        assert!(counter.read_err() <= rounds);
                    }
                });
            }
            scope.spawn(|| (0..rounds).for_each(|_| counter.add_err(1).unwrap()));
            scope.spawn(|| (0..rounds).for_each(|_| counter.add(2).unwrap()));
            scope.spawn(|| (0..rounds).for_each(|_| drop(counter.wait(u64::MAX, Some(Duration::ZERO)))));
        });
        assert_eq!(values(&counter), (2 * rounds, rounds));
    }
}

#[test]
fn a_wait_goes_on_when_the_value_is_set_back() {
    for object in waiting_objects() {
        let counter = counter(object);
        let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for threshold in [5, 10] {
                let (counter, begun, ended) = (&counter, &begun, &ended);
                scope.spawn(move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    counter.wait(threshold, LONG).unwrap();
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            until(&begun, 2);
            thread::sleep(SHORT.unwrap());
            // Below each threshold, or for no longer than it takes to set it back.
            counter.set(4).unwrap();
            for value in [10, 0, 5, 3, 10, 4] {
                counter.set(value).unwrap();
            }
            counter.set(10).unwrap();
            until(&ended, 2);
        });
    }
}

#[test]
fn a_value_that_begins_again_ends_no_wait() {
    for object in waiting_objects() {
        let counter = counter(object);
        counter.set(u64::MAX - 1).unwrap();
        // From below the threshold to above it, and through zero.
        thread::scope(|scope| {
            let waiter = scope.spawn(|| counter.wait(u64::MAX, SHORT));
            counter.add(3).unwrap();
            ends_with(waiter.join().unwrap(), ErrorKind::TimedOut);
        });
        assert_eq!(counter.read(), 1);
    }
}

#[test]
fn a_counter_tells_what_its_owner_has_given_it() {
    for cookie in [0, 7, u64::MAX] {
        let counter = CompletionCounter::builder().cookie(cookie).create().unwrap();
        assert_eq!((counter.cookie(), values(&counter)), (cookie, (0, 0)));
    }
    assert_eq!(counter(WaitObject::None).cookie(), 0);
}

#[test]
fn operation_flags_are_kept() {
    let counter = counter(WaitObject::None);
    assert_eq!(counter.operation_flags(), 0);
    counter.set_operation_flags(0x55);
    assert_eq!((counter.operation_flags(), values(&counter)), (0x55, (0, 0)));
}

#[test]
fn a_counter_that_is_not_bound_can_be_closed() {
    for object in all_objects() {
        assert!(counter(object).destroy().is_ok());
    }
}

#[test]
fn a_counter_is_shared_between_threads() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<CompletionCounter>();
    is_shared::<WaitSet>();
    let counter = std::sync::Arc::new(counter(WaitObject::Unspecified));
    let other = counter.clone();
    let thread = thread::spawn(move || other.wait(1, LONG));
    counter.add(1).unwrap();
    thread.join().unwrap().unwrap();
}
