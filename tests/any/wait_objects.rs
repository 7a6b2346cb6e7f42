//! The wait objects of a completion counter: what each supports, and what is refused.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::counting::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::select::{FdSet, select};
use nix::sys::time::{TimeVal, TimeValLike};
use uverbs::{CompletionCounter, ErrorKind, WaitHandle, WaitObject, WaitSet};

fn fd(counter: &CompletionCounter) -> BorrowedFd<'_> {
    let WaitHandle::FileDescriptor(fd) = counter.wait_handle().unwrap() else { panic!("a file descriptor") };
    fd
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
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
        // Also if there is nothing to wait for.
        for threshold in [0, 1, 2] {
            ends_with(counter.wait(threshold, LONG), ErrorKind::InvalidInput);
            ends_with(counter.wait_since(threshold, 0, LONG), ErrorKind::InvalidInput);
        }
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
#[cfg_attr(miri, ignore = "Miri has no poll")]
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
#[cfg_attr(miri, ignore = "Miri has no poll")]
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
#[cfg_attr(miri, ignore = "Miri has no poll")]
fn a_signal_stays_when_the_value_is_set_back() {
    let counter = counter(WaitObject::FileDescriptor);
    counter.arm(10).unwrap();
    counter.set(10).unwrap();
    counter.set(0).unwrap();
    assert!(is_readable(fd(&counter)), "it was reached");
    // A sleeping thread checks the value, and sleeps again.
    assert!(!counter.arm(10).unwrap());
    assert!(!is_readable(fd(&counter)));
    counter.add_err(1).unwrap();
    counter.set_err(0).unwrap();
    assert!(is_readable(fd(&counter)));
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

    /// A minimal runtime.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::new(Thread(thread::current())));
        let mut future = pin!(future);
        let start = Instant::now();
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park_timeout(LONG.unwrap()),
            }
            assert!(start.elapsed() < LONG.unwrap(), "it is woken");
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
    fn a_wait_ends_at_a_failure_that_is_taken_back() {
        for object in waiting_objects() {
            let counter = counter(object);
            counter.set_err(3).unwrap();
            for changes in [[4, 3], [0, 3]] {
                let wait = counter.wait_async(1);
                changes.into_iter().for_each(|errors| counter.set_err(errors).unwrap());
                ends_with(block_on(wait), ErrorKind::OperationFailed);
            }
            let mut wait = pin!(counter.wait_async(1));
            assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            counter.add_err(1).unwrap();
            counter.set_err(3).unwrap();
            ends_with(block_on(wait), ErrorKind::OperationFailed);
            // The next one does not concern it.
            counter.add(1).unwrap();
            block_on(counter.wait_async(1)).unwrap();
        }
    }

    #[test]
    fn a_wait_does_not_end_at_a_value_that_is_taken_back() {
        for object in waiting_objects() {
            let counter = counter(object);
            let mut wait = pin!(counter.wait_async(10));
            let mut look = || wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            for value in [9, 10, 11] {
                assert!(look().is_pending());
                counter.set(value).unwrap();
                counter.set(0).unwrap();
                assert!(look().is_pending());
            }
            counter.set(10).unwrap();
            assert!(matches!(look(), Poll::Ready(Ok(()))));
        }
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
