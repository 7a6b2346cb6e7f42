//! Extended reliable connections: one connection to several shared receive queues, of several openers of a domain.

use std::fs::File;
use std::thread;

use crate::common::*;
use uverbs::{
    AccessFlags, Attributes, CompletionCounter, ConnectionOptions, Counted, ErrorKind, EventKind, Operation,
    QpState, ReceiveRequest, SendRequest, Status, Subject, WaitObject, XrcOpen,
};

#[test]
fn each_message_goes_to_the_queue_that_it_names() {
    on_every_extended_device(|target| {
        let mut scene = Extended::new(target);
        let numbers = scene.queues.each_ref().map(ExtendedQueue::number);
        assert_ne!(numbers[0], numbers[1]);
        (1..=3).for_each(|wr_id| scene.queues.iter_mut().for_each(|queue| queue.post(wr_id)));

        assert_eq!(scene.send(Operation::Send, numbers[1], b"second"), Status::Success);
        assert_eq!(scene.send(Operation::SendImmediate(0x1234_5678), numbers[0], b"first"), Status::Success);
        let remote = scene.queues[1].remote(1024);
        let written = Operation::WriteImmediate(remote, 0x9abc_def0);
        assert_eq!(scene.send(written, numbers[1], b"written"), Status::Success);

        let [first, second] = &mut scene.queues;
        let got = first.completion();
        assert_eq!((got.wr_id, got.status, got.len), (1, Status::Success, 5));
        assert_eq!((got.immediate, got.qp_num), (0x1234_5678_u32.to_be(), scene.there.number()));
        assert_eq!(&first.bytes::<5>(64), b"first");
        first.nothing();
        let got = [second.completion(), second.completion()];
        assert_eq!(got.map(|got| (got.wr_id, got.len)), [(1, 6), (2, 7)]);
        assert_eq!(got[1].immediate, 0x9abc_def0_u32.to_be());
        assert_eq!(got.map(|got| got.qp_num), [scene.there.number(); 2]);
        assert_eq!((&second.bytes::<6>(64), &second.bytes::<7>(1024)), (b"second", b"written"));
        second.nothing();
    });
}

#[test]
fn memory_is_reached_through_the_queue_of_its_protection_domain() {
    on_every_extended_device(|target| {
        let mut scene = Extended::new(target);
        let [first, second] = scene.queues.each_ref().map(ExtendedQueue::number);
        let remote = scene.queues[0].remote(8);
        assert_eq!(scene.send(Operation::Write(remote), first, &7_u64.to_ne_bytes()), Status::Success);
        assert_eq!(scene.fetch(Operation::Read(remote), first), (Status::Success, 7));
        assert_eq!(scene.fetch(Operation::FetchAdd { remote, add: 3 }, first), (Status::Success, 7));
        let swap = Operation::CompareSwap { remote, compare: 10, swap: 40 };
        assert_eq!(scene.fetch(swap, first), (Status::Success, 10));
        assert_eq!(u64::from_ne_bytes(scene.queues[0].bytes(8)), 40);
        scene.queues.iter_mut().for_each(ExtendedQueue::nothing);

        // The other queue is in another protection domain.
        assert_eq!(scene.send(Operation::Write(remote), second, b"12345678"), Status::RemoteAccess);
        assert_eq!(u64::from_ne_bytes(scene.queues[0].bytes(8)), 40);
        assert_eq!(scene.there.state().unwrap(), QpState::Error);
    });
}

#[test]
fn a_queue_that_is_not_of_the_domain_takes_nothing() {
    on_every_extended_device(|target| {
        let mut scene = Extended::new(target);
        let other = scene.context.open_xrcd().unwrap();
        let mut foreign = ExtendedQueue::new(&other);
        foreign.post(1);
        let plain = scene.queues[0].pd.create_srq(4).unwrap();
        assert_eq!(plain.number(), None);
        for srq in [foreign.number(), 0xff_fff0] {
            assert_eq!(scene.send(Operation::Send, srq, b"lost"), Status::RemoteInvalidRequest);
            assert_eq!(scene.there.state().unwrap(), QpState::Error);
            assert_eq!(scene.here.qp.state().unwrap(), QpState::Error);
            let event = event_about(&scene.context, Subject::QueuePair(RECEIVER));
            assert_eq!(event, EventKind::QpRequestError);
            scene.there.reset().unwrap();
            scene.here.qp.reset().unwrap();
            connect_extended(&options(&scene.context), &mut scene.here, &mut scene.there);
        }
        foreign.nothing();
        scene.queues[0].post(1);
        let number = scene.queues[0].number();
        assert_eq!(scene.send(Operation::Send, number, b"back"), Status::Success);
        assert_eq!(scene.queues[0].completion().wr_id, 1);
    });
}

#[test]
fn a_message_waits_for_a_receive_of_its_queue() {
    on_every_extended_device(|target| {
        let mut scene = Extended::with(target, |options| options.rnr_timer = 1);
        let [_, second] = scene.queues.each_ref().map(ExtendedQueue::number);
        scene.queues[0].post(1);
        let request = SendRequest::inline(5, Operation::Send.to_srq(second), b"late").signaled();
        scene.here.qp.post_send(&[request]).unwrap();
        scene.queues[0].nothing();
        scene.queues[1].post(2);
        assert_eq!(scene.queues[1].completion().wr_id, 2);
        assert_eq!(scene.here.completion().status, Status::Success);

        // Without retries it fails, and no receive is used.
        let mut scene = Extended::with(target, |options| options.rnr_retries = 0);
        let [first, _] = scene.queues.each_ref().map(ExtendedQueue::number);
        assert_eq!(scene.send(Operation::Send, first, b"refused"), Status::RnrRetryExceeded);
        assert_eq!(scene.here.qp.state().unwrap(), QpState::Error);
    });
}

#[test]
fn a_message_too_long_ends_its_receive_with_an_error() {
    on_every_extended_device(|target| {
        let mut scene = Extended::new(target);
        let number = scene.queues[0].number();
        let segments = [scene.queues[0].memory.segment(0..4).unwrap()];
        scene.queues[0].srq.post_receive(&[ReceiveRequest::new(3, &segments)]).unwrap();
        assert_eq!(scene.send(Operation::Send, number, b"too long"), Status::RemoteInvalidRequest);
        let got = scene.queues[0].completion();
        assert_eq!((got.wr_id, got.status, got.qp_num), (3, Status::LocalLength, scene.there.number()));
        assert_eq!(scene.there.state().unwrap(), QpState::Error);
    });
}

#[test]
fn a_queue_of_a_domain_is_resized_armed_and_asked_like_any_other() {
    on_every_extended_device(|target| {
        let mut scene = Extended::new(target);
        let number = scene.queues[0].number();
        let queue = &mut scene.queues[0];
        queue.post(1);
        match queue.srq.resize(20) {
            Err(error) if target.device.driver() == "mlx5" => {
                assert_eq!(error.kind(), ErrorKind::Unsupported)
            }
            resized => resized.unwrap(),
        }
        queue.post(2);
        queue.srq.arm(2).unwrap();
        assert_eq!(queue.srq.query().unwrap().srq_limit, 2);
        no_event_about(&scene.context, Subject::SharedReceiveQueue(QUEUE));
        assert_eq!(scene.send(Operation::Send, number, b"x"), Status::Success);
        let event = event_about(&scene.context, Subject::SharedReceiveQueue(QUEUE));
        assert_eq!((event, scene.queues[0].completion().wr_id), (EventKind::SrqLimitReached, 1));
    });
}

#[test]
fn a_domain_is_shared_by_a_file() {
    on_every_extended_device(|target| {
        let (one, other) = (target.open(), target.open());
        let path = std::env::temp_dir().join(format!("uverbs-xrc-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let not_there = one.open_xrcd_of(&file, XrcOpen::Existing);
        refuses(not_there.map(drop), ErrorKind::NotFound, EAGAIN, "create it first");
        let domain = one.open_xrcd_of(&file, XrcOpen::CreateNew).unwrap();
        let again = File::open(&path).unwrap();
        let there = other.open_xrcd_of(&again, XrcOpen::CreateNew);
        refuses(there.map(drop), ErrorKind::InvalidInput, EINVAL, "open already");
        let shared = other.open_xrcd_of(&again, XrcOpen::Create).unwrap();
        // The file identifies the domain, not its descriptor or its name.
        std::fs::remove_file(&path).unwrap();
        drop((file, again));

        // One process creates the queue pair, the other a queue; the first closes.
        let mut there = domain.receive_qp().create().unwrap();
        let mut queue = ExtendedQueue::new(&shared);
        queue.post(1);
        let mut here = xrc_sender(&one);
        connect_extended(&options(&one), &mut here, &mut there);
        let mut opened = shared.open_receive_qp(there.number()).unwrap();
        assert_eq!(opened.number(), there.number());
        there.destroy().unwrap();
        domain.destroy().unwrap();
        assert_eq!(opened.state().unwrap(), QpState::ReadyToReceive);
        let request = SendRequest::inline(1, Operation::Send.to_srq(queue.number()), b"hello").signaled();
        here.qp.post_send(&[request]).unwrap();
        assert_eq!(here.completion().status, Status::Success);
        assert_eq!((queue.completion().wr_id, &queue.bytes::<5>(64)), (1, b"hello"));

        let number = opened.number();
        opened.to_error().unwrap();
        opened.destroy().unwrap();
        refuses(
            shared.open_receive_qp(number).map(drop),
            ErrorKind::InvalidInput,
            EINVAL,
            "no receiving queue pair",
        );
        // The domain ends when the last opener closes it, and a new file of this name is another one.
        drop(queue);
        shared.destroy().unwrap();
        let file = File::create(&path).unwrap();
        let not_there = other.open_xrcd_of(&file, XrcOpen::Existing);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(not_there.map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_queue_pair_is_opened_in_its_own_domain_only() {
    on_every_extended_device(|target| {
        let scene = Extended::new(target);
        let other = scene.context.open_xrcd().unwrap();
        for number in [scene.there.number(), scene.here.qp.number(), 0xff_fff0] {
            let refused = other.open_receive_qp(number).map(drop);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput, "{number}");
        }
        let sender = scene.domain.open_receive_qp(scene.here.qp.number()).map(drop);
        assert_eq!(sender.unwrap_err().kind(), ErrorKind::InvalidInput);
        let same = scene.domain.open_receive_qp(scene.there.number()).unwrap();
        assert_eq!(same.query(uverbs::QpAttrMask::STATE).unwrap().dest_qp_num, scene.here.qp.number());
    });
}

#[test]
fn whatever_goes_first_nothing_is_left() {
    on_every_extended_device(|target| {
        // Each of four is dropped at each of four places; an object's parents are destroyed with the last object that needs them.
        for order in 0..24 {
            let Extended { here, there, queues, domain, context } = Extended::new(target);
            let [ExtendedQueue { srq, cq, memory, pd }, second] = queues;
            drop((memory, second));
            let mut parts: Vec<Box<dyn FnOnce()>> = vec![
                Box::new(move || drop(here)),
                Box::new(move || drop(there)),
                Box::new(move || drop(srq)),
                Box::new(move || drop((domain, cq, pd))),
            ];
            let mut rest = order;
            for left in (1..=4).rev() {
                parts.remove(rest % left)();
                rest /= left;
            }
            drop(context);
        }
    });
}

#[test]
fn what_is_in_use_stays() {
    on_every_extended_device(|target| {
        let Extended { here, there, queues, domain, context } = Extended::new(target);
        let [ExtendedQueue { srq, cq, memory, pd }, second] = queues;
        drop((here, second));
        let (domain, error) = domain.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        there.destroy().unwrap();
        let (domain, error) = domain.destroy().unwrap_err();
        assert!(error.to_string().contains("still uses"), "{error}");
        let (cq, error) = cq.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        memory.destroy().unwrap();
        let (pd, error) = pd.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        srq.destroy().unwrap();
        domain.destroy().unwrap();
        cq.destroy().unwrap();
        pd.destroy().unwrap();
        drop(context);
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    on_every_extended_device(|target| {
        let mut scene = Extended::new(target);
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
        let invalid = ErrorKind::InvalidInput;
        refuses(scene.here.qp.post_receive(&[]), invalid, EINVAL, "receives nothing");
        let srq = &scene.queues[0].srq;
        let refused = scene.queues[0].pd.rc(&scene.here.cq).srq(srq).create().map(drop);
        refuses(refused, invalid, EINVAL, "belongs to no queue pair");
        let plain = scene.here.pd.create_srq(4).unwrap();
        let refused = scene.here.pd.xrc_send(&scene.here.cq).srq(&plain).create().map(drop);
        refuses(refused, invalid, EINVAL, "receives nothing");
        for refused in [scene.domain.srq(&pd, &scene.here.cq, 4), scene.domain.srq(&scene.here.pd, &cq, 4)] {
            refuses(refused.create().map(drop), invalid, EINVAL, "another open device");
        }
        refuses(
            scene.domain.srq(&scene.here.pd, &scene.here.cq, 0).create().map(drop),
            invalid,
            EINVAL,
            "0 given, 1 to",
        );
        let answered =
            SendRequest::inline(1, Operation::Read(scene.queues[0].remote(0)).to_srq(1), b"12345678");
        refuses(scene.here.qp.post_send(&[answered]), invalid, EINVAL, "registered memory");
        // Steps need other attributes than those of a reliable connection.
        let mut there = scene.domain.receive_qp().create().unwrap();
        let init = Attributes::to(QpState::Init).port(1).pkey_index(0);
        refuses(there.modify(&init), invalid, EINVAL, "missing: access_flags");
        there.modify(&init.access(AccessFlags::empty())).unwrap();
        let error = there.modify(&Attributes::to(QpState::ReadyToReceive)).unwrap_err();
        let hint = error.hint().unwrap();
        assert!(hint.contains("max_dest_rd_atomic") && hint.contains("min_rnr_timer"), "{hint}");
        let mut here = scene.here.pd.xrc_send(&scene.here.cq).create().unwrap();
        here.modify(&init.access(AccessFlags::empty())).unwrap();
        let error = here.modify(&Attributes::to(QpState::ReadyToReceive).rnr_timer(12)).unwrap_err();
        let hint = error.hint().unwrap();
        assert!(hint.contains("not allowed: min_rnr_timer") && !hint.contains("max_dest"), "{hint}");
        let error = there.modify(&Attributes::to(QpState::ReadyToSend)).unwrap_err();
        assert!(error.hint().unwrap().contains("there is no transition"), "{error}");
    });
}

#[test]
fn a_target_is_ready_to_send_by_two_attributes() {
    on_every_extended_device(|target| {
        let mut scene = Extended::new(target);
        let steps = [
            Attributes::to(QpState::ReadyToSend).send_psn(1).timeout(14),
            Attributes::to(QpState::ReadyToSend).rnr_timer(5).access(ALL),
        ];
        for step in &steps {
            scene.there.modify(step).unwrap();
            assert_eq!(scene.there.state().unwrap(), QpState::ReadyToSend);
        }
        scene.queues[0].post(1);
        let number = scene.queues[0].number();
        assert_eq!(scene.send(Operation::Send, number, b"x"), Status::Success);
        assert_eq!(scene.queues[0].completion().wr_id, 1);
    });
}

#[test]
fn senders_are_drained_and_counted() {
    on_every_extended_device(|target| {
        let context = target.open();
        let domain = context.open_xrcd().unwrap();
        let mut queue = ExtendedQueue::new(&domain);
        let mut there = domain.receive_qp().create().unwrap();
        let mut here = xrc_sender(&context);
        let sent = CompletionCounter::new(WaitObject::None).unwrap();
        here.qp.bind_counter(&sent, Counted::SEND | Counted::WRITE).unwrap();
        let refused = here.qp.bind_counter(&sent, Counted::RECEIVE);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
        connect_extended(&options(&context), &mut here, &mut there);
        queue.post(1);
        let message = Operation::Send.to_srq(queue.number());
        let write = Operation::Write(queue.remote(0)).to_srq(queue.number());
        let requests =
            [SendRequest::inline(1, message, b"x"), SendRequest::inline(2, write, b"y").signaled()];
        here.qp.post_send(&requests).unwrap();
        assert_eq!(here.completion().wr_id, 2);
        assert_eq!(sent.read(), 2);
        // Waits for a receive, until it is drained.
        here.qp.post_send(&[SendRequest::inline(3, message, b"z")]).unwrap();
        let Side { qp, cq, .. } = &mut here;
        let mut ended = Vec::new();
        let limit = std::time::Duration::from_secs(20);
        qp.drain(&mut [cq], limit, |completion| ended.push((completion.wr_id, completion.status))).unwrap();
        assert_eq!(ended, [(3, Status::Flushed)]);
        assert_eq!(queue.completion().wr_id, 1);
    });
}

#[test]
fn two_threads_send_to_two_queues_over_connections_of_one_domain() {
    on_every_extended_device(|target| {
        let rounds = if cfg!(miri) { 3 } else { 300 };
        let context = target.open();
        let domain = context.open_xrcd().unwrap();
        let queues = [(); 2].map(|()| ExtendedQueue::new(&domain));
        let numbers = queues.each_ref().map(ExtendedQueue::number);
        thread::scope(|scope| {
            for mut queue in queues {
                scope.spawn(move || {
                    (1..=4).for_each(|wr_id| queue.post(wr_id));
                    let mut sum = 0_u64;
                    for round in 0..2 * rounds {
                        let got = queue.completion();
                        assert_eq!((got.status, got.len), (Status::Success, 8), "{round}");
                        sum += u64::from_ne_bytes(queue.bytes(64 * got.wr_id as usize));
                        queue.post(got.wr_id);
                    }
                    assert_eq!(sum, rounds * (rounds - 1));
                });
            }
            for _ in 0..2 {
                let (context, domain) = (&context, &domain);
                scope.spawn(move || {
                    let mut there = domain.receive_qp().create().unwrap();
                    let mut here = xrc_sender(context);
                    let options = ConnectionOptions { rnr_timer: 1, ..options(context) };
                    connect_extended(&options, &mut here, &mut there);
                    for round in 0..rounds {
                        for number in numbers {
                            let bytes = round.to_ne_bytes();
                            let message = Operation::Send.to_srq(number);
                            here.qp
                                .post_send(&[SendRequest::inline(round, message, &bytes).signaled()])
                                .unwrap();
                            assert_eq!(here.completion().status, Status::Success);
                        }
                    }
                });
            }
        });
    });
}
