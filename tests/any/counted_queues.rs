//! Completion counters and queues: binding, progress, and the destruction of both, on every device.

use std::time::{Duration, Instant};

use crate::common::counted::*;
use crate::common::counting::{LONG, values};
use crate::common::*;
use uverbs::{
    Attributes, CompletionCounter, CompletionQueue, Counted, ErrorKind, Operation, Progress,
    ProtectionDomain, QpState, Rc, ReceiveRequest, Remote, SendRequest, Status, WaitObject,
};

#[test]
fn what_software_cannot_see_is_unsupported() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let counter = counter();
        let mut one = Side::new(&context, make);
        for counted in [
            Counted::REMOTE_READ,
            Counted::REMOTE_WRITE,
            Counted::REMOTE_WRITE | Counted::SEND,
            Counted::from_bits_retain(1 << 30),
        ] {
            refuses(one.qp.bind_counter(&counter, counted), ErrorKind::Unsupported, EOPNOTSUPP, "");
        }
        let ud = |pd: &ProtectionDomain, cq: &CompletionQueue| pd.ud(cq).create().unwrap();
        let mut datagrams = Side::new(&context, ud);
        for counted in [Counted::READ, Counted::WRITE, Counted::REMOTE_WRITE_IMMEDIATE] {
            let refused = datagrams.qp.bind_counter(&counter, counted);
            refuses(refused, ErrorKind::Unsupported, EOPNOTSUPP, "no such operations");
        }
        assert!(counter.destroy().is_ok(), "nothing was bound");
    });
}

#[test]
fn a_bad_bind_changes_nothing() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let [sent, late] = [(); 2].map(|()| counter());
        let (mut one, two) = bound(&context, |one, _| {
            refuses(
                one.qp.bind_counter(&sent, Counted::empty()),
                ErrorKind::InvalidInput,
                EINVAL,
                "no operation",
            );
            one.qp.bind_counter(&sent, Counted::SEND | Counted::WRITE).unwrap();
            let twice = one.qp.bind_counter(&sent, Counted::WRITE);
            refuses(twice, ErrorKind::InvalidInput, EINVAL, "already");
            one.qp.bind_counter(&sent, Counted::READ).unwrap();
        });
        let bind = one.qp.bind_counter(&late, Counted::WRITE);
        refuses(bind, ErrorKind::InvalidInput, EINVAL, "before the queue pair is connected");
        assert!(late.destroy().is_ok(), "it was not bound");
        one.send(1, Operation::Write(two.remote(0)), 0..8);
        one.until(&sent, 1);
        assert_eq!(values(&sent), (1, 0), "counted once");
    });
}

#[test]
fn closing_a_bound_counter_is_busy_and_gives_it_back() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let written = counter();
        let (mut one, two) = bound(&context, |one, two| {
            one.qp.bind_counter(&written, Counted::WRITE).unwrap();
            two.qp.bind_counter(&written, Counted::WRITE).unwrap();
        });
        one.send(1, Operation::Write(two.remote(0)), 0..8);
        one.until(&written, 1);
        let (written, busy) = written.destroy().unwrap_err();
        assert_eq!((busy.kind(), values(&written)), (ErrorKind::Busy, (1, 0)));
        drop(one);
        let (written, busy) = written.destroy().unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy, "one queue pair is left");
        drop(two);
        assert!(written.destroy().is_ok());
    });
}

#[test]
fn a_counter_that_is_dropped_while_bound_goes_with_the_queue_pair() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (mut one, two) =
            bound(&context, |one, _| one.qp.bind_counter(&counter(), Counted::WRITE).unwrap());
        one.send(1, Operation::Write(two.remote(0)), 0..8);
        assert_eq!(one.completion().wr_id, 1);
    });
}

#[test]
fn a_queue_pair_that_was_reset_counts_on() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let written = counter();
        let (mut one, mut two) =
            bound(&context, |one, _| one.qp.bind_counter(&written, Counted::WRITE).unwrap());
        for round in 1..=3 {
            one.send(7, Operation::Write(two.remote(0)), 0..8);
            one.until(&written, 2 * round - 1);
            // This one is discarded by the reset.
            one.qp.post_send(&[SendRequest::inline(8, Operation::Write(two.remote(0)), b"gone")]).unwrap();
            one.qp.reset().unwrap();
            two.qp.reset().unwrap();
            connect(&context, &mut one.qp, &mut two.qp);
            one.send(7, Operation::Write(two.remote(0)), 0..8);
            one.until(&written, 2 * round);
            assert_eq!(values(&written), (2 * round, 0));
        }
    });
}

#[test]
fn a_queue_pair_in_init_can_still_be_bound() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let received = counter();
        let mut one = Side::new(&context, make);
        let init = Attributes::to(QpState::Init).port(1).pkey_index(0).access(ALL);
        one.qp.modify(&init).unwrap();
        one.receive(1, 0..64);
        one.qp.bind_counter(&received, Counted::RECEIVE).unwrap();
        one.qp.to_error().unwrap();
        assert_eq!(one.completion().status, Status::Flushed);
        assert_eq!(values(&received), (0, 1));
    });
}

#[test]
fn one_counter_counts_for_several_queue_pairs() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let all = counter();
        let bind = |one: &mut Side<Rc>, two: &mut Side<Rc>| {
            one.qp.bind_counter(&all, Counted::WRITE).unwrap();
            two.qp.bind_counter(&all, Counted::WRITE).unwrap();
        };
        let (mut a, mut b) = bound(&context, bind);
        let (mut c, mut d) = bound(&context, bind);
        for (from, to) in [(&mut a, b.remote(0)), (&mut c, d.remote(0))] {
            (0..4).for_each(|i| from.send(i, Operation::Write(to), 0..16));
        }
        b.send(1, Operation::Write(a.remote(0)), 0..16);
        a.until(&all, 4);
        b.until(&all, 5);
        c.until(&all, 9);
        assert_eq!(d.cq.progress(), 0);
        assert_eq!(values(&all), (9, 0));
    });
}

#[test]
fn queue_pairs_share_a_completion_queue_and_not_their_counters() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(64).unwrap());
        let memory = pd.register(4096, ALL).unwrap();
        let remote = Remote { address: memory.address(), rkey: memory.rkey() };
        let counters = [(); 3].map(|()| counter());
        let mut qps: Vec<_> = counters
            .iter()
            .map(|counter| {
                let mut qp = make(&pd, &cq);
                qp.bind_counter(counter, Counted::WRITE).unwrap();
                qp
            })
            .collect();
        // And one without any counter.
        qps.push(make(&pd, &cq));
        let [a, b, c, d] = &mut qps[..] else { unreachable!() };
        connect(&context, a, b);
        connect(&context, c, d);
        let segments = [memory.segment(0..8).unwrap()];
        for (i, qp) in qps.iter_mut().enumerate() {
            for _ in 0..=i {
                qp.post_send(&[SendRequest::new(9, Operation::Write(remote), &segments).signaled()]).unwrap();
            }
        }
        for (i, counter) in counters.iter().enumerate() {
            cq.progress_until(counter, i as u64 + 1, LONG).unwrap();
        }
        let values = counters.each_ref().map(values);
        assert_eq!(values, [(1, 0), (2, 0), (3, 0)]);
    });
}

#[test]
fn without_a_channel_there_is_no_thread() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let cq = context.create_cq(4).unwrap();
        let error = Progress::start(cq, drop).unwrap_err();
        assert_eq!((error.kind(), error.hint().is_some()), (ErrorKind::InvalidInput, true));
    });
}

#[test]
fn a_thread_makes_progress_while_others_wait() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let [sent, received] = [(); 2].map(|()| counter());
        let (pd, channel) = (context.alloc_pd().unwrap(), context.create_comp_channel().unwrap());
        let cq = context.cq(64).channel(&channel).create().unwrap();
        let (mut a, mut b) = (make(&pd, &cq), make(&pd, &cq));
        a.bind_counter(&sent, Counted::SEND).unwrap();
        b.bind_counter(&received, Counted::RECEIVE).unwrap();
        connect(&context, &mut a, &mut b);
        let memory = pd.register(4096, ALL).unwrap();
        let segments = [memory.segment(0..64).unwrap()];
        let (tell, told) = std::sync::mpsc::channel();
        let progress = Progress::start(cq, move |completion| tell.send(completion.wr_id).unwrap()).unwrap();
        for round in 1..=20 {
            b.post_receive(&[ReceiveRequest::new(1, &segments)]).unwrap();
            a.post_send(&[SendRequest::new(2, Operation::Send, &segments).signaled()]).unwrap();
            sent.wait(round, LONG).unwrap();
            received.wait(round, LONG).unwrap();
        }
        let mut cq = progress.stop().unwrap();
        assert_eq!(cq.progress(), 0);
        assert_eq!((values(&sent), values(&received)), ((20, 0), (20, 0)));
        assert_eq!(told.iter().count(), 40, "each completion was handed over");
    });
}

#[test]
fn progress_on_a_channel_sleeps_until_there_is_something() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let received = CompletionCounter::new(WaitObject::None).unwrap();
        let channel = context.create_comp_channel().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut cq = context.cq(64).channel(&channel).create().unwrap();
        let mut qp = make(&pd, &cq);
        qp.bind_counter(&received, Counted::RECEIVE).unwrap();
        let mut other = Side::new(&context, make);
        connect(&context, &mut qp, &mut other.qp);
        let memory = pd.register(4096, ALL).unwrap();
        (0..3).for_each(|_| {
            qp.post_receive(&[ReceiveRequest::new(1, &[memory.segment(0..64).unwrap()])]).unwrap();
        });
        let late = cq.progress_until(&received, 1, Some(Duration::from_millis(5))).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        std::thread::scope(|scope| {
            scope.spawn(|| other.send(1, Operation::Send, 0..8));
            cq.progress_until(&received, 1, LONG).unwrap();
        });
        // Another thread may add to the counter, or report a failure.
        std::thread::scope(|scope| {
            scope.spawn(|| received.add(1).unwrap());
            cq.progress_until(&received, 2, LONG).unwrap();
        });
        std::thread::scope(|scope| {
            let failed = scope.spawn(|| cq.progress_until(&received, 3, LONG));
            // One of these arrives during the wait.
            while !failed.is_finished() {
                received.add_err(1).unwrap();
                std::thread::yield_now();
            }
            assert_eq!(failed.join().unwrap().unwrap_err().kind(), ErrorKind::OperationFailed);
        });
    });
}

#[test]
fn places_of_unsignaled_sends_are_free_when_they_are_counted() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let written = counter();
        let (mut one, two) = bound(&context, |one, _| one.qp.bind_counter(&written, Counted::WRITE).unwrap());
        let write = Operation::Write(two.remote(0));
        let request = || SendRequest::inline(3, write, b"unsignaled");
        let mut posted = 1;
        one.qp.post_send(&[request().signaled()]).unwrap();
        // The device has finished them, but no completion says so.
        let full = loop {
            match one.qp.post_send(&[request()]) {
                Ok(()) => posted += 1,
                Err(error) => break error,
            }
            assert!(posted <= 4096, "the log is not larger than the queue");
        };
        assert_eq!(full.kind(), ErrorKind::Exhausted);
        one.until(&written, 1);
        // The log has room again. The ring has room when the device has finished the second one, which may still be in progress.
        let begun = Instant::now();
        while let Err(error) = one.qp.post_send(&[request().signaled()]) {
            assert!(
                error.kind() == ErrorKind::Exhausted && begun.elapsed() < Duration::from_secs(20),
                "{error}"
            );
            std::thread::yield_now();
        }
        one.until(&written, posted + 1);
        assert_eq!(values(&written), (posted + 1, 0));
    });
}
