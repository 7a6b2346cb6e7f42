//! What a completion counter promises by itself, without any device: its values, its wait objects, and its waits. The
//! sentences are those of libfabric's manual page fi_cntr(3); docs/completion-counters.md has the table.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::select::{FdSet, select};
use nix::sys::time::{TimeVal, TimeValLike};
use uverbs::{CompletionCounter, CounterEvents, ErrorKind, WaitHandle, WaitObject, WaitSet};

/// A wait that must end by itself does so long before this.
const LONG: Option<Duration> = Some(Duration::from_secs(60));
/// For waits that must not end by themselves.
const SHORT: Option<Duration> = Some(Duration::from_millis(20));

fn counter(object: WaitObject) -> CompletionCounter {
    CompletionCounter::new(object).unwrap()
}

/// Those that `wait` works with.
fn waiting_objects() -> [WaitObject; 4] {
    [WaitObject::Unspecified, WaitObject::FileDescriptor, WaitObject::MutexCondvar, WaitObject::Yield]
}

fn all_objects() -> [WaitObject; 6] {
    let [one, two, three, four] = waiting_objects();
    [WaitObject::None, WaitObject::Set(WaitSet::new()), one, two, three, four]
}

#[track_caller]
fn ends_with(result: uverbs::Result<()>, kind: ErrorKind) {
    assert_eq!(result.unwrap_err().kind(), kind);
}

fn values(counter: &CompletionCounter) -> (u64, u64) {
    (counter.read(), counter.read_err())
}

fn fd(counter: &CompletionCounter) -> BorrowedFd<'_> {
    let WaitHandle::FileDescriptor(fd) = counter.wait_handle().unwrap() else { panic!("a file descriptor") };
    fd
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
}

/// Returns once `flag` is this high, however slow the machine is.
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
fn without_a_wait_object_there_is_none() {
    let counter = CompletionCounter::builder().create().unwrap();
    ends_with(counter.wait(0, SHORT), ErrorKind::InvalidInput);
    assert_eq!(counter.wait_handle().unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(counter.arm(1).is_err());
}

#[test]
fn waiting_with_none_or_a_set_is_invalid() {
    for object in [WaitObject::None, WaitObject::Set(WaitSet::new())] {
        let counter = counter(object);
        counter.add(1).unwrap();
        // Also when there is nothing to wait for.
        for threshold in [0, 1, 2] {
            ends_with(counter.wait(threshold, LONG), ErrorKind::InvalidInput);
            ends_with(counter.wait_since(threshold, 0, LONG), ErrorKind::InvalidInput);
        }
    }
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
            // What is not the waiter's business wakes its thread again and again.
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    waiting.unpark();
                    counter.set(0).unwrap();
                    thread::yield_now();
                }
            });
            // A deadline that began again with each wake-up would never come.
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
        // A time that no clock can tell is for ever, too.
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
                    // Failures end a wait; the next one goes on.
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
fn the_wait_object_underneath_can_be_had() {
    let [file, pair, set] =
        [WaitObject::FileDescriptor, WaitObject::MutexCondvar, WaitObject::Set(WaitSet::new())].map(counter);
    assert!(matches!(file.wait_handle().unwrap(), WaitHandle::FileDescriptor(_)));
    assert!(matches!(pair.wait_handle().unwrap(), WaitHandle::MutexCondvar(..)));
    assert!(matches!(set.wait_handle().unwrap(), WaitHandle::Set(_)));
}

#[test]
fn an_unspecified_wait_object_waits_but_cannot_be_had() {
    for object in [WaitObject::Unspecified, WaitObject::Yield] {
        let counter = counter(object);
        counter.wait(0, None).unwrap();
        let error = counter.wait_handle().unwrap_err();
        assert_eq!((error.kind(), error.hint().is_some()), (ErrorKind::Unsupported, true));
    }
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
#[cfg_attr(miri, ignore = "Miri has no select")]
fn the_file_descriptor_works_with_select_poll_and_epoll() {
    let counter = counter(WaitObject::FileDescriptor);
    let fd = fd(&counter);
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 7)).unwrap();
    let ready = || {
        let mut set = FdSet::new();
        set.insert(fd);
        let selected = select(fd.as_raw_fd() + 1, &mut set, None, None, &mut TimeVal::zero()).unwrap();
        let mut events = [EpollEvent::empty(); 2];
        let polled = epoll.wait(&mut events, EpollTimeout::ZERO).unwrap();
        assert_eq!((selected == 1, polled == 1), (is_readable(fd), is_readable(fd)));
        is_readable(fd)
    };
    for round in 0..3 {
        assert!(!counter.arm(round * 10 + 5).unwrap());
        assert!(!ready());
        counter.add(4).unwrap();
        assert!(!ready(), "below the threshold");
        counter.add(1).unwrap();
        assert!(ready());
        counter.add(5).unwrap();
        assert!(ready(), "until it is armed again");
    }
    assert!(counter.arm(1).unwrap(), "reached already");
    assert!(ready());
    assert!(!counter.arm(u64::MAX).unwrap());
    assert!(!ready());
    counter.add_err(1).unwrap();
    assert!(ready(), "an error");
}

#[test]
fn a_new_file_descriptor_tells_of_the_first_change() {
    for change in
        [|counter: &CompletionCounter| counter.add(1), |counter: &CompletionCounter| counter.add_err(1)]
    {
        let counter = counter(WaitObject::FileDescriptor);
        assert!(!is_readable(fd(&counter)));
        change(&counter).unwrap();
        assert!(is_readable(fd(&counter)));
    }
}

#[test]
fn a_thread_that_sleeps_on_the_file_descriptor_is_woken() {
    let counter = counter(WaitObject::FileDescriptor);
    thread::scope(|scope| {
        for round in 1..=20 {
            counter.arm(round).unwrap();
            scope.spawn(|| counter.add(1).unwrap());
            let mut fds = [PollFd::new(fd(&counter), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, PollTimeout::from(60_000_u16)).unwrap(), 1);
            assert_eq!(counter.read(), round);
        }
    });
}

#[test]
fn a_mutex_and_condvar_wake_who_waits_by_hand() {
    let counter = counter(WaitObject::MutexCondvar);
    let WaitHandle::MutexCondvar(mutex, condvar) = counter.wait_handle().unwrap() else { panic!("a pair") };
    thread::scope(|scope| {
        for round in 1..=20 {
            scope.spawn(|| counter.add(1).unwrap());
            let mut held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            while !counter.arm(round).unwrap() {
                let (again, waited) = condvar.wait_timeout(held, LONG.unwrap()).unwrap();
                assert!(!waited.timed_out(), "it is notified");
                held = again;
            }
            drop(held);
            assert_eq!(counter.read(), round);
        }
    });
}

#[test]
fn yield_waits_by_looking_again() {
    let counter = counter(WaitObject::Yield);
    thread::scope(|scope| {
        scope.spawn(|| counter.wait(2, LONG).unwrap());
        counter.add(1).unwrap();
        counter.add(1).unwrap();
    });
}

#[test]
fn a_set_waits_for_many_counters() {
    let set = WaitSet::new();
    let counters = [(); 5].map(|()| counter(WaitObject::Set(set.clone())));
    ends_with(set.wait(SHORT), ErrorKind::TimedOut);
    for (i, one) in counters.iter().enumerate() {
        for counter in &counters {
            counter.arm(counter.read() + 2).unwrap();
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                one.add(1).unwrap();
                one.add(1).unwrap();
            });
            set.wait(LONG).unwrap();
            assert_eq!(one.read(), 2, "counter {i}");
        });
    }
    ends_with(set.wait(SHORT), ErrorKind::TimedOut);
    counters[3].arm(100).unwrap();
    counters[3].add_err(1).unwrap();
    set.wait(LONG).unwrap();
}

#[test]
fn a_signal_of_a_set_that_nobody_waited_for_is_not_lost() {
    let set = WaitSet::new();
    let counter = counter(WaitObject::Set(set.clone()));
    counter.add(1).unwrap();
    set.wait(LONG).unwrap();
    ends_with(set.wait(Some(Duration::ZERO)), ErrorKind::TimedOut);
    assert!(counter.arm(1).unwrap(), "reached already");
    set.wait(LONG).unwrap();
}

#[test]
fn the_set_of_a_counter_can_be_had_from_it() {
    let counter = counter(WaitObject::Set(WaitSet::new()));
    let WaitHandle::Set(set) = counter.wait_handle().unwrap() else { panic!("a set") };
    counter.add(1).unwrap();
    set.wait(LONG).unwrap();
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

mod tasks {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    struct Thread(thread::Thread);

    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// The smallest of runtimes.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::new(Thread(thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    }

    #[test]
    fn a_task_waits_as_a_thread_does() {
        for object in waiting_objects() {
            let counter = counter(object);
            block_on(counter.wait_async(0)).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| counter.add(2).unwrap());
                block_on(counter.wait_async(2)).unwrap();
                let wait = counter.wait_async(3);
                scope.spawn(|| counter.add_err(1).unwrap());
                ends_with(block_on(wait), ErrorKind::OperationFailed);
            });
        }
        let none = counter(WaitObject::None);
        ends_with(block_on(none.wait_async(0)), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_task_that_gives_up_leaves_nothing_behind() {
        struct Unwanted;
        impl Wake for Unwanted {
            fn wake(self: Arc<Self>) {
                panic!("woken after it has gone");
            }
        }
        let counter = counter(WaitObject::Unspecified);
        {
            let waker = Waker::from(Arc::new(Unwanted));
            let mut wait = pin!(counter.wait_async(1));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        counter.add(1).unwrap();
    }
}
