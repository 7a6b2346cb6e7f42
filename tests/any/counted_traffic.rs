//! Completion counters that are bound to queue pairs: which traffic counts, on every device.

use crate::behaviours::each;
use crate::common::counted::*;
use crate::common::counting::{LONG, values};
use crate::common::*;
use crate::held::hold;
use uverbs::{
    AccessFlags, Completion, CompletionQueue, Counted, ErrorKind, Operation, ProtectionDomain,
    ReceiveRequest, SendRequest, Status,
};

#[test]
fn a_counter_records_how_many_operations_have_completed() {
    hold(each::completion_counters::a_counter_records_how_many_operations_have_completed);
}

#[test]
fn binding_says_which_operations_count() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let [sends, reads, writes, all, none] = [(); 5].map(|()| counter());
        let [receives, remote_writes] = [(); 2].map(|()| counter());
        let (mut one, mut two) = bound(&context, |one, two| {
            one.qp.bind_counter(&sends, Counted::SEND).unwrap();
            one.qp.bind_counter(&reads, Counted::READ).unwrap();
            one.qp.bind_counter(&writes, Counted::WRITE).unwrap();
            one.qp.bind_counter(&all, Counted::SEND | Counted::READ).unwrap();
            one.qp.bind_counter(&all, Counted::WRITE).unwrap();
            one.qp.bind_counter(&none, Counted::RECEIVE).unwrap();
            two.qp.bind_counter(&receives, Counted::RECEIVE).unwrap();
            two.qp.bind_counter(&remote_writes, Counted::REMOTE_WRITE_IMMEDIATE).unwrap();
        });
        (0..3).for_each(|i| two.receive(i, 0..64));
        let remote = two.remote(1024);
        one.send(1, Operation::Send, 0..8);
        one.send(2, Operation::SendImmediate(5), 0..8);
        one.send(3, Operation::Write(remote), 0..8);
        one.send(4, Operation::WriteImmediate(remote, 6), 0..8);
        one.send(5, Operation::Read(remote), 64..72);
        // mana has no atomic operations.
        let atomics = if target.device.driver() == "mana" { 0 } else { 2 };
        if atomics > 0 {
            one.send(6, Operation::FetchAdd { remote, add: 1 }, 64..72);
            one.send(7, Operation::CompareSwap { remote, compare: 1, swap: 2 }, 64..72);
        }
        one.until(&all, 5 + atomics);
        assert_eq!(
            [&sends, &reads, &writes, &all, &none].map(values),
            [(2, 0), (1 + atomics, 0), (2, 0), (5 + atomics, 0), (0, 0)]
        );
        two.until(&receives, 2);
        two.until(&remote_writes, 1);
        assert_eq!([&receives, &remote_writes].map(values), [(2, 0), (1, 0)]);
    });
}

#[test]
fn unsignaled_operations_count_without_a_completion_each() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let [written, read] = [(); 2].map(|()| counter());
        let (mut one, two) = bound(&context, |one, _| {
            one.qp.bind_counter(&written, Counted::WRITE).unwrap();
            one.qp.bind_counter(&read, Counted::READ).unwrap();
        });
        let segments = [one.memory.segment(0..8).unwrap()];
        let request = |wr_id, operation| SendRequest::new(wr_id, operation, &segments);
        let (write, fetch) = (Operation::Write(two.remote(0)), Operation::Read(two.remote(0)));
        for round in 1..=5 {
            let batch = [
                request(1, write),
                request(1, write),
                request(1, fetch),
                request(1, write),
                request(2, write).signaled(),
                request(1, write),
            ];
            one.qp.post_send(&batch).unwrap();
            let mut entries = Vec::new();
            let more = if round == 1 { 0 } else { 1 };
            while written.read() < round * 4 + (round - 1) * more {
                let mut batch = Completion::batch::<4>();
                let found = one.cq.poll(&mut batch);
                entries.extend(batch[..found].iter().map(|completion| completion.wr_id));
                std::thread::yield_now();
            }
            assert_eq!(entries, [2], "one entry in the queue");
            assert_eq!((values(&written), values(&read)), ((round * 5 - 1, 0), (round, 0)));
        }
    });
}

#[test]
fn an_operation_counts_when_its_completion_is_taken() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let [written, again] = [(); 2].map(|()| counter());
        let (mut one, two) = bound(&context, |one, _| {
            one.qp.bind_counter(&written, Counted::WRITE).unwrap();
            one.qp.bind_counter(&again, Counted::WRITE).unwrap();
        });
        one.send(11, Operation::Write(two.remote(0)), 0..8);
        assert_eq!(values(&written), (0, 0), "nobody has looked");
        // The program can take the completion, and it counts once.
        let completion = one.completion();
        assert_eq!((completion.wr_id, completion.status), (11, Status::Success));
        assert_eq!((values(&written), values(&again)), ((1, 0), (1, 0)));
        assert_eq!(one.cq.progress(), 0);
        assert_eq!(values(&written), (1, 0));
    });
}

#[test]
fn failures_go_to_the_error_value_and_leave_the_value_alone() {
    hold(each::completion_counters::failures_go_to_the_error_value_and_leave_the_value_alone);
}

#[test]
fn a_failed_operation_wakes_who_waits() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let written = counter();
        let seen = written.read_err();
        let (mut one, two) = bound(&context, |one, _| one.qp.bind_counter(&written, Counted::WRITE).unwrap());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| written.wait_since(1, seen, LONG));
            one.send(1, Operation::Write(forbidden(&two)), 0..8);
            assert_eq!(one.completion().status, Status::RemoteAccess);
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::OperationFailed);
        });
        assert_eq!(values(&written), (0, 1));
    });
}

#[test]
fn what_is_flushed_goes_to_the_error_value_and_wakes_who_waits() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let [received, sent] = [(); 2].map(|()| counter());
        let seen = received.read_err();
        let (_one, mut two) = bound(&context, |_, two| {
            two.qp.bind_counter(&received, Counted::RECEIVE).unwrap();
            two.qp.bind_counter(&sent, Counted::SEND).unwrap();
        });
        (0..5).for_each(|i| two.receive(i, 0..64));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| received.wait_since(1, seen, LONG));
            two.qp.to_error().unwrap();
            for _ in 0..5 {
                assert_eq!(two.completion().status, Status::Flushed);
            }
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::OperationFailed);
        });
        assert_eq!((values(&received), values(&sent)), ((0, 5), (0, 0)));
    });
}

#[test]
fn failed_sends_and_receives_in_one_queue_are_told_apart() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let [sent, received] = [(); 2].map(|()| counter());
        let (mut one, two) = bound(&context, |one, _| {
            one.qp.bind_counter(&sent, Counted::SEND | Counted::WRITE).unwrap();
            one.qp.bind_counter(&received, Counted::RECEIVE).unwrap();
        });
        (10..14).for_each(|i| one.receive(i, 0..64));
        one.send(1, Operation::Write(forbidden(&two)), 0..8);
        one.send(2, Operation::Write(two.remote(0)), 0..8);
        while values(&sent).1 + values(&received).1 < 6 {
            one.cq.progress();
            std::thread::yield_now();
        }
        assert_eq!((values(&sent), values(&received)), ((0, 2), (0, 4)));
    });
}

#[test]
fn a_drained_queue_pair_has_everything_counted() {
    on_every_connecting_device(|target| {
        if target.device.driver() == "erdma" {
            return skip(
                target,
                "it does not say what became of requests without a completion behind all others",
            );
        }
        let context = target.open();
        let [written, received] = [(); 2].map(|()| counter());
        let (mut one, two) = bound(&context, |one, _| {
            one.qp.bind_counter(&written, Counted::WRITE).unwrap();
            one.qp.bind_counter(&received, Counted::RECEIVE).unwrap();
        });
        (10..13).for_each(|i| one.receive(i, 0..64));
        let (write, segments) = (Operation::Write(two.remote(0)), [one.memory.segment(0..10).unwrap()]);
        let has_inline = one.qp.capacity().inline > 0;
        let request = |wr_id| match has_inline {
            true => SendRequest::inline(wr_id, write, b"unsignaled"),
            false => SendRequest::new(wr_id, write, &segments),
        };
        one.qp.post_send(&[request(1), request(2), request(3).signaled(), request(4), request(5)]).unwrap();
        one.until(&written, 3);
        // No completion has reported the last two yet.
        let mut ended = Vec::new();
        let Side { qp, cq, .. } = &mut one;
        qp.drain(&mut [cq], LONG.unwrap(), |completion| ended.push(completion.wr_id)).unwrap();
        let (value, errors) = values(&written);
        assert_eq!((value + errors, values(&received)), (5, (0, 3)));
        let flushed_sends = ended.iter().filter(|wr_id| **wr_id < 10).count() as u64;
        assert_eq!(errors, flushed_sends, "what the drain caught in flight");
    });
}

#[test]
fn bytes_are_counted_in_place_of_operations() {
    hold(each::completion_counters::bytes_are_counted_in_place_of_operations);
}

#[test]
fn receives_from_a_shared_queue_count_for_the_queue_pair_that_took_them() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let [a, b] = [(); 2].map(|()| counter());
        let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(64).unwrap());
        let mut srq = match pd.create_srq(16) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return skip(target, "no shared queues"),
            other => other.unwrap(),
        };
        let memory = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
        let mut pairs: Vec<_> = [&a, &b]
            .map(|counter| {
                let mut qp = pd.rc(&cq).srq(&srq).create().unwrap();
                qp.bind_counter(counter, Counted::RECEIVE).unwrap();
                let mut other = Side::new(&context, make);
                connect(&context, &mut qp, &mut other.qp);
                (qp, other)
            })
            .into();
        for i in 0..3 {
            srq.post_receive(&[ReceiveRequest::new(i, &[memory.segment(0..64).unwrap()])]).unwrap();
        }
        pairs[0].1.send(1, Operation::Send, 0..8);
        pairs[1].1.send(1, Operation::Send, 0..8);
        pairs[1].1.send(2, Operation::Send, 0..8);
        cq.progress_until(&a, 1, LONG).unwrap();
        cq.progress_until(&b, 2, LONG).unwrap();
        assert_eq!((values(&a), values(&b)), ((1, 0), (2, 0)));
    });
}

#[test]
fn datagrams_count_on_both_sides() {
    on_every_connecting_device_with("datagrams", datagrams, |target| {
        let context = target.open();
        let [sent, received] = [(); 2].map(|()| counter());
        let make = |pd: &ProtectionDomain, cq: &CompletionQueue| pd.ud(cq).create().unwrap();
        let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
        one.qp.bind_counter(&sent, Counted::SEND).unwrap();
        two.qp.bind_counter(&received, Counted::RECEIVE).unwrap();
        let options = options(&context);
        one.qp.activate(&options, 0x1234, 1).unwrap();
        two.qp.activate(&options, 0x1234, 1).unwrap();
        let ah = one.pd.create_ah(&options.route(&two.qp.endpoint(&options, 1).unwrap())).unwrap();
        (0..3).for_each(|i| two.receive(i, 0..256));
        let to = uverbs::Datagram { to: &ah, qp_num: two.qp.number(), qkey: 0x1234, immediate: None };
        (0..3).for_each(|i| one.send(i, to, 0..16));
        one.until(&sent, 3);
        two.until(&received, 3);
        assert_eq!((values(&sent), values(&received)), ((3, 0), (3, 0)));
    });
}
