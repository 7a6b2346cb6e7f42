//! Threads that wait and threads that change a counter: in every order that loom can find, and with real threads.
//!
//! `RUSTFLAGS="--cfg uverbs_loom" cargo test --release --lib loom`

#[cfg(uverbs_loom)]
mod loom {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use ::loom::thread::spawn;

    use super::super::{CompletionCounter, WaitObject};
    use crate::kernel::error::ErrorKind;

    fn counter() -> Arc<CompletionCounter> {
        Arc::new(CompletionCounter::new(WaitObject::Unspecified).unwrap())
    }

    /// All orders of up to three forced switches between threads: loom's advice for more than two threads.
    fn in_any_order(threads: usize, run: impl Fn() + Sync + Send + 'static) {
        let mut model = ::loom::model::Builder::new();
        model.preemption_bound = (threads > 2).then_some(3);
        model.check(run);
    }

    #[test]
    fn a_waiter_sees_an_add_or_is_woken_by_it() {
        in_any_order(2, || {
            let counter = counter();
            let other = counter.clone();
            let adder = spawn(move || other.add(1).unwrap());
            counter.wait(1, None).unwrap();
            assert_eq!(counter.read(), 1);
            adder.join().unwrap();
        });
    }

    #[test]
    fn two_adders_wake_a_waiter_between_them() {
        in_any_order(3, || {
            let counter = counter();
            let adders = [(); 2].map(|()| {
                let counter = counter.clone();
                spawn(move || counter.add(1).unwrap())
            });
            counter.wait(2, None).unwrap();
            adders.into_iter().for_each(|adder| adder.join().unwrap());
        });
    }

    #[test]
    fn waiters_for_different_values_are_all_woken() {
        in_any_order(3, || {
            let counter = counter();
            let waiters = [1, 2].map(|threshold| {
                let counter = counter.clone();
                spawn(move || counter.wait(threshold, None).unwrap())
            });
            counter.add(1).unwrap();
            counter.set(2).unwrap();
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        });
    }

    #[test]
    fn a_waiter_that_comes_too_late_for_one_value_is_woken_by_the_next() {
        in_any_order(2, || {
            let counter = counter();
            let other = counter.clone();
            let setter = spawn(move || [1, 0, 1].map(|value| other.set(value).unwrap()));
            counter.wait(1, None).unwrap();
            setter.join().unwrap();
            assert_eq!(counter.read(), 1);
        });
    }

    #[test]
    fn a_waiter_that_comes_too_late_for_a_value_is_woken_by_a_failure() {
        in_any_order(2, || {
            let counter = counter();
            let other = counter.clone();
            let setter = spawn(move || {
                other.set(1).unwrap();
                other.set(0).unwrap();
                other.add_err(1).unwrap();
            });
            if let Err(error) = counter.wait_since(1, 0, None) {
                assert_eq!((error.kind(), counter.read_err()), (ErrorKind::OperationFailed, 1));
            }
            setter.join().unwrap();
        });
    }

    #[test]
    fn a_task_that_comes_too_late_for_one_value_is_woken_by_the_next() {
        in_any_order(2, || {
            let counter = counter();
            let other = counter.clone();
            let setter = spawn(move || [1, 0, 1].map(|value| other.set(value).unwrap()));
            ::loom::future::block_on(async { counter.wait_async(1).await }).unwrap();
            setter.join().unwrap();
            assert_eq!(counter.read(), 1);
        });
    }

    #[test]
    fn a_waiter_sees_a_failure_or_is_woken_by_it() {
        in_any_order(2, || {
            let counter = counter();
            let seen = counter.read_err();
            let other = counter.clone();
            let adder = spawn(move || other.add_err(1).unwrap());
            let ended = counter.wait_since(1, seen, None);
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::OperationFailed);
            adder.join().unwrap();
        });
    }

    #[test]
    fn a_failure_and_a_success_wake_once() {
        in_any_order(3, || {
            let counter = counter();
            let seen = counter.read_err();
            let (one, two) = (counter.clone(), counter.clone());
            // A separate thread: loom cannot handle a thread that is unparked while it joins another.
            let waiter = spawn(move || match one.wait_since(1, seen, None) {
                Ok(()) => assert_eq!(one.read(), 1),
                Err(error) => assert_eq!((error.kind(), one.read_err()), (ErrorKind::OperationFailed, 1)),
            });
            let failure = spawn(move || two.add_err(1).unwrap());
            counter.add(1).unwrap();
            waiter.join().unwrap();
            failure.join().unwrap();
        });
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_nobody_behind() {
        in_any_order(2, || {
            let counter = counter();
            let other = counter.clone();
            let adder = spawn(move || other.add(1).unwrap());
            // With a time limit of zero the result is immediate: the value was reached, or it was not.
            match counter.wait(1, Some(std::time::Duration::ZERO)) {
                Ok(()) => assert_eq!(counter.read(), 1),
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
            }
            adder.join().unwrap();
            counter.wait(1, None).unwrap();
        });
    }

    #[test]
    fn a_task_sees_an_add_or_is_woken_by_it() {
        in_any_order(2, || {
            let counter = counter();
            let other = counter.clone();
            let adder = spawn(move || other.add(1).unwrap());
            ::loom::future::block_on(async { counter.wait_async(1).await }).unwrap();
            adder.join().unwrap();
        });
    }

    fn is_cancelled(ended: crate::kernel::error::Result<()>) -> bool {
        ended.is_err_and(|error| error.kind() == ErrorKind::Cancelled)
    }

    #[test]
    fn a_cancel_ends_the_wait_before_or_after_it() {
        in_any_order(2, || {
            let counter = counter();
            let canceller = counter.canceller();
            let other = spawn(move || canceller.cancel());
            assert!(is_cancelled(counter.wait(1, None)));
            other.join().unwrap();
            assert_eq!((counter.read(), counter.read_err()), (0, 0));
        });
    }

    #[test]
    fn a_cancel_ends_the_wait_of_a_task_before_or_after_it() {
        in_any_order(2, || {
            let counter = counter();
            let canceller = counter.canceller();
            let other = spawn(move || canceller.cancel());
            assert!(is_cancelled(::loom::future::block_on(async { counter.wait_async(1).await })));
            other.join().unwrap();
        });
    }

    #[test]
    fn a_cancel_and_an_add_end_one_wait_and_leave_no_other_behind() {
        in_any_order(3, || {
            let counter = counter();
            let (one, two, canceller) = (counter.clone(), counter.clone(), counter.canceller());
            let waiter = spawn(move || match one.wait(1, None) {
                Ok(()) => assert_eq!(one.read(), 1),
                ended => assert!(is_cancelled(ended)),
            });
            let adder = spawn(move || two.add(1).unwrap());
            canceller.cancel();
            waiter.join().unwrap();
            adder.join().unwrap();
            // Whether or not the cancel has found a wait, a value that is reached is reached.
            counter.wait(1, None).unwrap();
        });
    }

    #[test]
    fn a_cancel_is_not_lost_on_a_wait_whose_value_is_set_back() {
        in_any_order(3, || {
            let counter = counter();
            let (one, canceller) = (counter.clone(), counter.canceller());
            let setter = spawn(move || [1, 0].map(|value| one.set(value).unwrap()));
            let other = spawn(move || canceller.cancel());
            // It saw the value in time, or it is cancelled, also if it was just going back to the list.
            if let Err(error) = counter.wait(1, None) {
                assert_eq!(error.kind(), ErrorKind::Cancelled);
            }
            setter.join().unwrap();
            other.join().unwrap();
        });
    }

    #[test]
    fn a_task_with_another_waker_is_woken_by_that() {
        in_any_order(2, || {
            let counter = counter();
            let other = counter.clone();
            let adder = spawn(move || other.add(1).unwrap());
            let mut wait = pin!(counter.wait_async(1));
            let first = wait.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
            if first.is_pending() {
                ::loom::future::block_on(wait).unwrap();
            } else {
                assert!(matches!(first, Poll::Ready(Ok(()))));
            }
            adder.join().unwrap();
        });
    }
}

#[cfg(not(uverbs_loom))]
mod threads {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::super::{CompletionCounter, Outcome, WaitObject, WaitSet, event_file};
    use crate::kernel::error::ErrorKind;

    /// Miri is slow.
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };

    #[test]
    fn two_threads_that_wait_for_each_other_never_stop() {
        let [ping, pong] = [(); 2].map(|()| CompletionCounter::new(WaitObject::Unspecified).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    ping.wait(round, None).unwrap();
                    pong.add(1).unwrap();
                }
            });
            for round in 1..=ROUNDS {
                ping.add(1).unwrap();
                pong.wait(round, None).unwrap();
            }
        });
        assert_eq!((ping.read(), pong.read()), (ROUNDS, ROUNDS));
    }

    #[test]
    fn waits_that_time_out_and_adds_do_not_trip_over_each_other() {
        let counter = CompletionCounter::new(WaitObject::Unspecified).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let _ = counter.wait(counter.read() + 2, Some(Duration::from_micros(50)));
                    }
                });
            }
            for _ in 0..ROUNDS {
                counter.add(1).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!((counter.read(), counter.read_err()), (ROUNDS, 0));
        assert_eq!(counter.state().waiters(), 0);
    }

    #[test]
    fn a_spinning_wait_misses_no_failure_between_two_looks() {
        let counter = CompletionCounter::new(WaitObject::Yield).unwrap();
        let wait = counter.state().begin(1, None).unwrap();
        let look = || counter.state().spin(1, &wait, Some(Instant::now()), None, || ()).unwrap();
        assert_eq!(look(), None);
        counter.add_err(1).unwrap();
        counter.set_err(0).unwrap();
        assert_eq!(look(), Some(Outcome::Failed));
    }

    #[test]
    fn a_cancel_ends_all_waits_in_progress_or_the_next_one_and_no_other() {
        let objects = [WaitObject::Unspecified, WaitObject::Yield];
        for counter in objects.map(|object| CompletionCounter::new(object).unwrap()) {
            let canceller = counter.canceller();
            let is_in_progress = |count| {
                while counter.state().waits() < count {
                    std::thread::yield_now();
                }
            };
            let soon = Some(Duration::from_millis(1));
            std::thread::scope(|scope| {
                let waits = [1, 5, 5].map(|value| {
                    scope.spawn({
                        let counter = &counter;
                        move || counter.wait(value, None).unwrap_err().kind()
                    })
                });
                is_in_progress(3);
                canceller.clone().cancel();
                for wait in waits {
                    assert_eq!(wait.join().unwrap(), ErrorKind::Cancelled);
                }
            });
            assert_eq!(counter.wait(1, soon).unwrap_err().kind(), ErrorKind::TimedOut);
            canceller.cancel();
            canceller.cancel();
            let kinds = [(); 2].map(|()| counter.wait(1, soon).unwrap_err().kind());
            assert_eq!(kinds, [ErrorKind::Cancelled, ErrorKind::TimedOut]);
            assert_eq!((counter.read(), counter.read_err(), counter.state().waits()), (0, 0, 0));
            canceller.cancel();
            counter.add(1).unwrap();
            counter.wait(1, None).unwrap();
            drop(counter);
            canceller.cancel();
        }
    }

    #[test]
    fn a_cancel_ends_the_wait_for_a_set_and_no_signal_is_lost() {
        let set = WaitSet::new();
        let counter = CompletionCounter::new(WaitObject::Set(set.clone())).unwrap();
        let canceller = set.canceller();
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| set.wait(None).unwrap_err().kind());
            canceller.cancel();
            assert_eq!(wait.join().unwrap(), ErrorKind::Cancelled);
        });
        canceller.cancel();
        counter.add(1).unwrap();
        set.wait(None).unwrap();
        assert_eq!(set.wait(None).unwrap_err().kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn a_wait_on_a_file_goes_on_when_the_value_is_set_back() {
        let counter = CompletionCounter::new(WaitObject::None).unwrap();
        let file = Arc::new(event_file("test").unwrap());
        let mut wait = counter.tell_file(file.clone(), 10);
        for _ in 0..3 {
            counter.set(10).unwrap();
            counter.set(0).unwrap();
            assert_eq!(wait.outcome(), None);
            assert!(file.read().is_err(), "whoever sleeps on the file goes on sleeping");
        }
        counter.set(11).unwrap();
        assert_eq!((wait.outcome(), file.read()), (Some(Outcome::Reached), Ok(1)));
        let mut wait = counter.tell_file(file, 20);
        counter.add_err(1).unwrap();
        counter.set_err(0).unwrap();
        assert_eq!(wait.outcome(), Some(Outcome::Failed));
    }
}
