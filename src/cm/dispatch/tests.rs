//! The dispatch of events in every order of its waiters that loom can find. The file is a queue: threads sleep until it is readable, and
//! tasks are woken when something arrives.
//!
//! `RUSTFLAGS="--cfg uverbs_loom" cargo test --release --lib loom`

mod loom {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use ::loom::sync::{Condvar, Mutex, Notify};
    use ::loom::thread::spawn;
    use uverbs_abi::cm::EventResp;

    use super::super::dispatch::{Dispatch, Kind};

    /// The kernel's file.
    #[derive(Default)]
    struct File {
        events: VecDeque<Box<EventResp>>,
        /// Tasks that are woken by the next event.
        tasks: Vec<Waker>,
    }

    struct Manager {
        dispatch: Mutex<Dispatch>,
        file: Mutex<File>,
        readable: Condvar,
    }

    impl Manager {
        fn new() -> Arc<Self> {
            let (dispatch, file) = (Mutex::new(Dispatch::default()), Mutex::new(File::default()));
            Arc::new(Self { dispatch, file, readable: Condvar::new() })
        }

        fn enter(&self) -> u64 {
            self.dispatch.lock().unwrap().enter()
        }

        fn arrives(&self, uid: u64) {
            let mut file = self.file.lock().unwrap();
            file.events.push_back(Box::new(EventResp { uid, ..EventResp::default() }));
            let tasks = std::mem::take(&mut file.tasks);
            drop(file);
            self.readable.notify_all();
            tasks.into_iter().for_each(Waker::wake);
        }

        /// Reads one event, if there is one and it is this one's turn.
        fn read(&self, kind: Kind) -> bool {
            let mut dispatch = self.dispatch.lock().unwrap();
            if !dispatch.may_read(kind) {
                return false;
            }
            let event = self.file.lock().unwrap().events.pop_front();
            let Some(event) = event else { return false };
            let given = dispatch.give(event);
            drop(dispatch);
            given.wake();
            true
        }

        fn stops(&self, kind: Kind, ticket: u64) {
            let next = self.dispatch.lock().unwrap().stops(kind, ticket);
            next.into_iter().for_each(Waker::wake);
        }

        /// The next event. If there is none, the waker is called when there is one.
        fn take(&self, uid: u64, ticket: u64, waker: &Waker) -> Option<Box<EventResp>> {
            self.dispatch.lock().unwrap().take(uid, ticket, waker).ok()
        }
    }

    /// Someone who sleeps until woken.
    struct Sleeper(Notify, ::loom::sync::atomic::AtomicBool);

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.1.store(true, ::loom::sync::atomic::Ordering::Release);
            self.0.notify();
        }
    }

    impl Sleeper {
        fn new() -> (Arc<Self>, Waker) {
            let sleeper = Arc::new(Self(Notify::new(), ::loom::sync::atomic::AtomicBool::new(false)));
            (sleeper.clone(), Waker::from(sleeper))
        }

        fn is_woken(&self) -> bool {
            self.1.swap(false, ::loom::sync::atomic::Ordering::Acquire)
        }
    }

    /// As `Waiting::within`: waits as a thread for one event.
    fn thread(manager: &Manager, uid: u64) {
        let (sleeper, waker) = Sleeper::new();
        let (call, ticket) = (Dispatch::number(), Dispatch::number());
        let mut before = Some(manager.dispatch.lock().unwrap().given());
        loop {
            sleeper.is_woken();
            if manager.take(uid, call, &waker).is_some() {
                break;
            }
            let mut dispatch = manager.dispatch.lock().unwrap();
            let (reads, given) = (dispatch.wants_to_read(Kind::Thread, ticket, &waker), dispatch.given());
            drop(dispatch);
            if before.take().is_some_and(|before| before != given) {
                continue;
            }
            if !reads {
                sleeper.0.wait();
                continue;
            }
            if sleeper.is_woken() {
                continue;
            }
            let mut file = manager.file.lock().unwrap();
            while file.events.is_empty() {
                file = manager.readable.wait(file).unwrap();
            }
            drop(file);
            manager.read(Kind::Thread);
        }
        manager.stops(Kind::Thread, ticket);
    }

    /// A thread whose time has elapsed before anything came.
    fn impatient(manager: &Manager, uid: u64) {
        let (_, waker) = Sleeper::new();
        let (call, ticket) = (Dispatch::number(), Dispatch::number());
        assert!(manager.take(uid, call, &waker).is_none());
        manager.dispatch.lock().unwrap().wants_to_read(Kind::Thread, ticket, &waker);
        manager.stops(Kind::Thread, ticket);
        let old = manager.dispatch.lock().unwrap().waits_no_more(uid, call);
        assert!(old.is_some(), "nothing has come");
    }

    /// As the future of `Waiting`: waits as a task for one event.
    fn task(manager: &Manager, uid: u64) {
        let (sleeper, waker) = Sleeper::new();
        let (call, ticket) = (Dispatch::number(), Dispatch::number());
        loop {
            if manager.take(uid, call, &waker).is_some() {
                break;
            }
            if !manager.dispatch.lock().unwrap().wants_to_read(Kind::Task, ticket, &waker) {
                sleeper.0.wait();
                continue;
            }
            let mut file = manager.file.lock().unwrap();
            if file.events.is_empty() {
                file.tasks.push(waker.clone());
                drop(file);
                sleeper.0.wait();
                continue;
            }
            drop(file);
            if !manager.read(Kind::Task) && !manager.dispatch.lock().unwrap().may_read(Kind::Task) {
                sleeper.0.wait();
            }
        }
        manager.stops(Kind::Task, ticket);
    }

    /// All orders of up to three forced switches between threads: loom's advice for more than two threads.
    fn in_any_order(run: impl Fn() + Sync + Send + 'static) {
        let mut model = ::loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(run);
    }

    /// Two waiters, each with an event, and one who only comes and goes if `leaves`.
    fn two(one: fn(&Manager, u64), other: fn(&Manager, u64), leaves: bool) {
        in_any_order(move || {
            let manager = Manager::new();
            let uids = [manager.enter(), manager.enter()];
            let (first, second) = (manager.clone(), manager.clone());
            let waiters = [spawn(move || one(&first, uids[0])), spawn(move || other(&second, uids[1]))];
            if leaves {
                impatient(&manager, manager.enter());
            }
            // In the other order, so that one of them reads what is the other's.
            manager.arrives(uids[1]);
            manager.arrives(uids[0]);
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        });
    }

    #[test]
    fn two_threads_have_their_events_whoever_reads_them() {
        two(thread, thread, false);
    }

    #[test]
    fn a_reader_that_leaves_does_not_leave_a_thread_waiting() {
        two(thread, thread, true);
    }

    #[test]
    fn a_task_and_a_thread_have_their_events_whoever_reads_them() {
        two(task, thread, false);
    }

    #[test]
    fn a_thread_that_leaves_does_not_leave_a_task_waiting() {
        two(task, task, true);
    }
}
