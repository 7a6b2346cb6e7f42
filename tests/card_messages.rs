//! Faults around connections, datagrams and shared receive queues: the device is removed during traffic, a peer moves a queue pair to the
//! error state, memory is destroyed while it is posted. `card_faults.rs` has those of frames and counters.
//!
//! `UVERBS_TEST_REMOVE` and `UVERBS_TEST_RESTORE` are commands that remove a real device and bring it back.
#![cfg(feature = "soft")]

mod common;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use common::*;
use uverbs::{
    AddressHandle, Completion, CompletionQueue, Context, Datagram, Error, ErrorKind, MemoryRegion, Operation,
    QpState, QueuePair, Rc, ReceiveRequest, Remote, SendRequest, SharedReceiveQueue, Status, Ud,
};

const KEY: u32 = 0x11;

fn run(variable: &str) -> bool {
    let Ok(command) = std::env::var(variable) else { return false };
    Command::new("sh").args(["-c", &command]).status().expect("sh").success()
}

/// A connection, one with a shared receive queue, and datagrams, each to itself; and the posted requests.
struct Traffic {
    rc: QueuePair<Rc>,
    shared: QueuePair<Rc>,
    ud: QueuePair<Ud>,
    srq: SharedReceiveQueue,
    to: AddressHandle,
    cq: CompletionQueue,
    memory: MemoryRegion,
    context: Context,
    posted: BTreeSet<u64>,
    next: u64,
}

impl Traffic {
    fn new(context: Context) -> Self {
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64).unwrap());
        let options = options(&context);
        let srq = pd.create_srq(8).unwrap();
        let mut rc = pd.rc(&cq).send_depth(4).receive_depth(8).create().unwrap();
        let mut shared = pd.rc(&cq).send_depth(4).srq(&srq).create().unwrap();
        let mut ud = pd.ud(&cq).send_depth(4).receive_depth(8).create().unwrap();
        for qp in [&mut rc, &mut shared] {
            let own = qp.endpoint(&options, 1).unwrap();
            qp.connect(&options, &own, &own).unwrap();
        }
        let own = ud.endpoint(&options, 1).unwrap();
        ud.activate(&options, KEY, 1).unwrap();
        let to = pd.create_ah(&options.route(&own)).unwrap();
        let memory = pd.register(4096, ALL).unwrap();
        Self { rc, shared, ud, srq, to, cq, memory, context, posted: BTreeSet::new(), next: 0 }
    }

    /// Posts one of each, as far as there is room. Returns the first other error.
    fn post(&mut self) -> Result<(), Error> {
        let Self { rc, shared, ud, srq, to, memory, posted, next, .. } = self;
        let mut note = |wr_id, answer: uverbs::Result<()>| match answer {
            Ok(()) => Ok(posted.insert(wr_id)),
            Err(error) if error.kind() == ErrorKind::Exhausted => Ok(false),
            Err(error) => Err(error),
        };
        let (from, into) = ([memory.segment(..8)?], [memory.segment(64..256)?]);
        let first = *next;
        *next += 6;
        // A ring of sends may have room for more than the posted receives: each has its own.
        let send = |wr_id| [SendRequest::new(wr_id, Operation::Send, &from).signaled()];
        if note(first, rc.post_receive(&[ReceiveRequest::new(first, &into)]))? {
            note(first + 3, rc.post_send(&send(first + 3)))?;
        }
        if note(first + 1, srq.post_receive(&[ReceiveRequest::new(first + 1, &into)]))? {
            note(first + 4, shared.post_send(&send(first + 4)))?;
        }
        note(first + 2, ud.post_receive(&[ReceiveRequest::new(first + 2, &into)]))?;
        let datagram = Datagram { to, qp_num: ud.number(), qkey: KEY, immediate: None };
        note(first + 5, ud.post_send(&[SendRequest::new(first + 5, datagram, &from).signaled()]))?;
        Ok(())
    }

    /// Takes completions: each request once, and only posted ones.
    fn poll(&mut self) -> Vec<Completion> {
        let mut batch = Completion::batch::<16>();
        let count = self.cq.poll(&mut batch);
        for end in &batch[..count] {
            assert!(self.posted.remove(&end.wr_id), "{end:?}");
        }
        batch[..count].to_vec()
    }

    fn works(&mut self) {
        for _ in 0..50 {
            self.post().unwrap();
            assert!(self.poll().iter().all(|end| end.status == Status::Success));
        }
        let start = Instant::now();
        while !self.rc_is_idle() {
            assert!(self.poll().iter().all(|end| end.status == Status::Success));
            let states = [self.rc.state(), self.shared.state(), self.ud.state()];
            assert!(start.elapsed() < LIMIT, "{:?} of {} are left in {states:?}", self.posted, self.next);
        }
    }

    fn rc_is_idle(&self) -> bool {
        self.posted.iter().all(|wr_id| wr_id % 6 < 3)
    }
}

#[track_caller]
fn gone<T: std::fmt::Debug>(what: &str, answer: uverbs::Result<T>) {
    assert_eq!(answer.map_err(|error| error.kind()).err(), Some(ErrorKind::Disassociated), "{what}");
}

#[test]
fn a_device_that_is_taken_away_in_the_midst_of_traffic_ends_it_and_nothing_hangs() {
    on_every_connecting_device(|target| {
        if target.soft.is_none() && target.device.driver() != "mlx5" {
            return skip(target, "its driver may wait for who has it open");
        }
        if target.soft.is_none() && std::env::var_os("UVERBS_TEST_REMOVE").is_none() {
            return skip(target, "no command takes it away");
        }
        let mut traffic = Traffic::new(target.open());
        let context = traffic.context.clone();
        let channel = context.create_comp_channel().unwrap();
        let waiting = context.cq(4).channel(&channel).create().unwrap();
        waiting.notify(false).unwrap();
        let (rounds, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (mut traffic, refused) = std::thread::scope(|scope| {
            let talker = scope.spawn(|| {
                let mut refused = None;
                while !is_over.load(Ordering::Relaxed) {
                    if let Err(error) = traffic.post() {
                        refused = Some(error.kind());
                    }
                    traffic.poll();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                (traffic, refused)
            });
            let more = |count| {
                let before = rounds.load(Ordering::Relaxed);
                until("traffic", || talker.is_finished() || rounds.load(Ordering::Relaxed) >= before + count);
            };
            let _end = End(&is_over);
            more(300);
            match &target.soft {
                Some(soft) => soft.unplug(),
                None => assert!(run("UVERBS_TEST_REMOVE")),
            }
            // A program that does not read events continues for a while.
            more(300);
            is_over.store(true, Ordering::Relaxed);
            talker.join().unwrap()
        });
        assert!(matches!(refused, None | Some(ErrorKind::Disassociated)), "{refused:?}");
        sees_the_end(&context, &channel);
        gone("a channel", channel.next_event());
        gone("a protection domain", context.alloc_pd());
        gone("a query", context.query_device());
        gone("a state", traffic.rc.state());
        gone("a change", traffic.ud.to_error());
        gone("a limit", traffic.srq.arm(1));
        traffic.poll();
        let begun = Instant::now();
        drop((waiting, channel, traffic, context));
        assert!(begun.elapsed() < LIMIT);
        if target.soft.is_none() {
            assert!(run("UVERBS_TEST_RESTORE"), "it comes back");
            until("a port that is active, and its address", || target.is_ready());
            Traffic::new(target.open_again()).works();
        }
    });
}

/// A request with a wrong key moves both queue pairs to the error state. Each posted request completes once, and both can be used again.
#[test]
fn a_queue_pair_that_is_broken_gives_everything_back_and_begins_again() {
    on_every_connecting_device(|target| {
        let mut traffic = Traffic::new(target.open());
        let options = options(&traffic.context);
        for round in 0..3 {
            traffic.works();
            let Traffic { rc, shared, posted, memory, next, .. } = &mut traffic;
            let segments = [memory.segment(..8).unwrap()];
            let wrong = Remote { address: memory.address(), rkey: memory.rkey() ^ 0x5500 };
            for qp in [rc, shared] {
                let posts = [
                    SendRequest::new(*next + 3, Operation::Write(wrong), &segments),
                    SendRequest::new(*next + 4, Operation::Send, &segments).signaled(),
                ];
                qp.post_send(&posts).unwrap();
                posted.extend([*next + 3, *next + 4]);
                *next += 6;
            }
            // The sender fails first, or its peer, which is the same queue pair.
            let mut failed = 0;
            until("all that was sent", || {
                for end in traffic.poll() {
                    let is_expected = matches!(
                        end.status,
                        Status::RemoteAccess | Status::Flushed | Status::RetryExceeded | Status::Success
                    );
                    assert!(is_expected, "{round}: {end:?}");
                    failed += u32::from(!matches!(end.status, Status::Success | Status::Flushed));
                }
                traffic.rc_is_idle()
            });
            assert!(failed <= 2, "{failed}");
            let states = [&traffic.rc, &traffic.shared].map(|qp| qp.state().unwrap());
            assert_eq!(states, [QpState::Error; 2]);
            for qp in [&mut traffic.rc, &mut traffic.shared] {
                qp.reset().unwrap();
                let own = qp.endpoint(&options, round).unwrap();
                qp.connect(&options, &own, &own).unwrap();
            }
            // Receives in its own queue that were not flushed yet are discarded; those in the shared one are not.
            traffic.posted.retain(|wr_id| wr_id % 6 != 0);
        }
        traffic.works();
    });
}
