//! Faults around a process: the device is removed, its link goes down, its memory is limited.
//!
//! Commands in the environment control a real device: `UVERBS_TEST_REMOVE` and `UVERBS_TEST_RESTORE` remove it and bring it back, and
//! `UVERBS_TEST_LINK` followed by `down` or `up` does that to its link.
#![cfg(feature = "soft")]

mod common;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::*;
use uverbs::abi::types::port_state;
use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Context, ErrorKind, EventKind, MemoryRegion,
    Operation, QpState, QueuePair, Rc, ReceiveRequest, SendRequest, Status,
};

/// Starts the command in a variable, if it is set.
fn start(variable: &str, argument: &str) -> Option<Child> {
    let command = std::env::var(variable).ok()?;
    Some(Command::new("sh").arg("-c").arg(format!("{command} {argument}")).spawn().expect("sh"))
}

/// Waits for it; it must succeed.
#[track_caller]
fn finish(mut child: Child) {
    let mut status = None;
    until("the end of a command", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

/// Runs it. False if it is not set.
#[track_caller]
fn run(variable: &str, argument: &str) -> bool {
    start(variable, argument).map(finish).is_some()
}

/// Two queue pairs that are connected, and memory.
struct Connected {
    context: Context,
    one: QueuePair<Rc>,
    two: QueuePair<Rc>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Connected {
    fn new(target: &Target) -> Self {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(64).unwrap();
        let memory = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
        let [mut one, mut two] = [(); 2].map(|()| pd.rc(&cq).create().unwrap());
        let mut options = ConnectionOptions::new(1, 1);
        (options.timeout, options.retries) = (15, 2);
        let (a, b) = (one.endpoint(&options, 1).unwrap(), two.endpoint(&options, 2).unwrap());
        one.connect(&options, &a, &b).unwrap();
        two.connect(&options, &b, &a).unwrap();
        Self { context, one, two, cq, memory }
    }

    fn receive(&mut self, wr_id: u64) {
        let segments = [self.memory.segment(0..64).unwrap()];
        self.two.post_receive(&[ReceiveRequest::new(wr_id, &segments)]).unwrap();
    }

    fn send(&mut self, wr_id: u64) -> uverbs::Result<()> {
        let segments = [self.memory.segment(64..128).unwrap()];
        self.one.post_send(&[SendRequest::new(wr_id, Operation::Send, &segments).signaled()])
    }

    #[track_caller]
    fn ends(&mut self, count: usize) -> Vec<(u64, Status)> {
        let mut all = Vec::new();
        until("completions", || {
            let mut batch = Completion::batch::<8>();
            let found = self.cq.poll(&mut batch);
            all.extend(batch[..found].iter().map(|end| (end.wr_id, end.status)));
            all.len() >= count
        });
        all.sort_by_key(|(wr_id, _)| *wr_id);
        all
    }

    fn events(&self) -> Vec<EventKind> {
        std::iter::from_fn(|| self.context.next_event().ok().flatten()).map(|event| event.kind).collect()
    }
}

#[test]
fn a_device_that_is_taken_away_ends_everything_and_nothing_hangs() {
    on_every_connecting_device(|target| {
        let mut pair = Connected::new(target);
        let channel = pair.context.create_comp_channel().unwrap();
        let cq = pair.context.cq(4).channel(&channel).create().unwrap();
        pair.receive(1);
        // During traffic: this message was received, and the other one is not waited for.
        pair.send(2).unwrap();
        match &target.soft {
            Some(soft) => soft.unplug(),
            None => return skip(target, "only drivers that can let go of a context answer at once"),
        }
        let context = pair.context.clone();
        let gone = |what: &str, error: Option<uverbs::Error>| {
            assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Disassociated), "{what}");
        };
        gone("a protection domain", context.alloc_pd().err());
        gone("a completion queue", context.create_cq(4).err());
        gone("a query", context.query_device().err());
        gone("a state", pair.one.modify(&uverbs::Attributes::to(QpState::Error)).err());
        gone("a request for events", cq.notify(false).err());
        // In either case the call must return.
        drop(pair.send(3));
        sees_the_end(&context, &channel);
        gone("a channel", channel.next_event().err());
        drop((cq, channel));
        // The queues are still memory of the process.
        let mut batch = Completion::batch::<8>();
        pair.cq.poll(&mut batch);
        drop((pair, context));
    });
}

/// `ib_uverbs_remove_one` (uverbs_main.c, Linux 6.1) waits for the last file of a driver without `disassociate_ucontext`, such as rxe
/// before Linux 7.3.
#[test]
fn a_driver_that_cannot_let_go_keeps_a_device_until_it_is_closed() {
    on_every_connecting_device(|target| {
        let mut pair = Connected::new(target);
        pair.receive(1);
        pair.send(2).unwrap();
        assert_eq!(pair.ends(2), [(1, Status::Success), (2, Status::Success)]);
        if target.device.driver() != "rxe" {
            return skip(target, "its driver lets go at once");
        }
        let Some(removal) = start("UVERBS_TEST_REMOVE", "") else {
            return skip(target, "no command takes it away");
        };
        until("a device that is not listed", || target.is_gone());
        let context = pair.context.clone();
        // A driver that can detach contexts does so about now.
        let start = Instant::now();
        let refused = || context.alloc_pd().err();
        while refused().is_none() && start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(error) = refused() {
            assert_eq!(error.kind(), ErrorKind::Disassociated, "{error}");
            pair.receive(3);
            assert_eq!(pair.send(4).unwrap_err().kind(), ErrorKind::Disassociated);
        } else {
            // A process that has the device open continues.
            pair.receive(3);
            pair.send(4).unwrap();
            assert_eq!(pair.ends(2), [(3, Status::Success), (4, Status::Success)]);
        }
        drop(pair);
        drop(context);
        finish(removal);
        assert!(run("UVERBS_TEST_RESTORE", ""), "it comes back");
        until("a port that is active, and its address", || target.is_ready());
    });
}

#[test]
fn a_link_that_is_down_ends_traffic_and_one_that_is_up_again_carries_it() {
    on_every_connecting_device(|target| {
        if target.soft.is_some() {
            return skip(target, "its link is always up");
        }
        let mut pair = Connected::new(target);
        pair.receive(1);
        pair.send(2).unwrap();
        assert_eq!(pair.ends(2), [(1, Status::Success), (2, Status::Success)]);
        if !run("UVERBS_TEST_LINK", "down") {
            return skip(target, "no command takes its link down");
        }
        let state = |pair: &Connected| pair.context.query_port(1).unwrap().legacy_resp.state;
        until("a port that is down", || state(&pair) == port_state::DOWN);
        assert_eq!(pair.events(), [EventKind::PortError]);
        pair.receive(3);
        pair.send(4).unwrap();
        Answers::of(target).is(
            "a request on a link that is down",
            pair.ends(1)[0],
            (4, Status::RetryExceeded),
        );
        assert_eq!(pair.one.state().unwrap(), QpState::Error);
        assert!(run("UVERBS_TEST_LINK", "up"));
        until("a port that is active", || state(&pair) == port_state::ACTIVE);
        assert!(pair.events().contains(&EventKind::PortActive));
        drop(pair);
        until("its address", || target.is_ready());
        let mut again = Connected::new(target);
        again.receive(5);
        again.send(6).unwrap();
        assert_eq!(again.ends(2), [(5, Status::Success), (6, Status::Success)]);
    });
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

#[test]
fn memory_beyond_the_limit_is_exhausted() {
    on_every_device(|target| {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory")).unwrap();
        let limit = line.split_whitespace().next().and_then(|limit| limit.parse::<usize>().ok());
        let Some(limit) = limit.filter(|_| target.soft.is_none() && !is_root()) else {
            return skip(target, "it takes any memory of this process");
        };
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let error = pd.register(limit + 4096, AccessFlags::LOCAL_WRITE).unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Exhausted, Some(ENOMEM)), "{error}");
        // Memory within the limit can still be registered, and is released.
        for _ in 0..3 {
            pd.register(limit / 2, AccessFlags::LOCAL_WRITE).unwrap().destroy().unwrap();
        }
    });
}
