//! Shared receive queues: several queue pairs receive from one, and the device's events about it.

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use uverbs::{
    AccessFlags, Completion, CompletionQueue, Context, Datagram, ErrorKind, EventKind, Operation,
    ProtectionDomain, QpAttrMask, QpState, Rc, ReceiveRequest, SendRequest, SharedReceiveQueue, Status,
    Subject, Uc, UcOperation, Ud,
};

const COOKIE: u64 = 0x5150;
const SRQ: Subject = Subject::SharedReceiveQueue(COOKIE);

/// Posts a receive of 100 bytes in a side's memory, at 100 times the request's number.
fn post<T: uverbs::QpType>(
    srq: &mut SharedReceiveQueue,
    side: &Side<T>,
    wr_ids: impl IntoIterator<Item = u64>,
) {
    for wr_id in wr_ids {
        let start = 100 * wr_id as usize;
        let segments = [side.memory.segment(start..start + 100).unwrap()];
        srq.post_receive(&[ReceiveRequest::new(wr_id, &segments)]).unwrap();
    }
}

/// A sender, and a receiver whose receives come from a queue of `depth` requests.
fn pair(context: &Context, depth: u32, limit: u32) -> (Side<Rc>, Side<Rc>, SharedReceiveQueue) {
    let pd = context.alloc_pd().unwrap();
    let srq = pd.srq(depth).limit(limit).cookie(COOKIE).create().unwrap();
    let mut one = Side::new(context, |pd, cq| pd.rc(cq).inline(64).create().unwrap());
    let cq = context.create_cq(32).unwrap();
    let qp = pd.rc(&cq).srq(&srq).cookie(0xabc).create().unwrap();
    let memory = pd.register(1 << 16, ALL).unwrap();
    let mut two = Side { qp, cq, memory, pd };
    connect(context, &mut one.qp, &mut two.qp);
    (one, two, srq)
}

/// Sends a message and waits for the completions of both sides. Returns the receive that was used.
#[track_caller]
fn message(one: &mut Side<Rc>, two: &mut Side<Rc>, text: &[u8]) -> u64 {
    one.qp.post_send(&[SendRequest::inline(1, Operation::Send, text).signaled()]).unwrap();
    assert_eq!(one.completion().status, Status::Success);
    let got = two.completion();
    assert_eq!((got.status, got.len as usize, got.qp_num), (Status::Success, text.len(), two.qp.number()));
    let mut found = vec![0; text.len()];
    two.memory.read(100 * got.wr_id as usize, &mut found).unwrap();
    assert_eq!(found, text);
    got.wr_id
}

#[test]
fn queue_pairs_of_every_type_take_from_one_queue() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (mut one, mut two, mut srq) = pair(&context, 8, 0);
        post(&mut srq, &two, 1..=4);
        assert_eq!(message(&mut one, &mut two, b"from rc"), 1);

        // A queue pair for datagrams, and an unreliable connection to itself.
        let options = options(&context);
        let mut ud = two.pd.ud(&two.cq).srq(&srq).create().unwrap();
        ud.activate(&options, 0x11, 0).unwrap();
        let to = two.pd.create_ah(&options.route(&ud.endpoint(&options, 0).unwrap())).unwrap();
        let datagram = Datagram { to: &to, qp_num: ud.number(), qkey: 0x11, immediate: None };
        let memory = two.memory.clone();
        let segments = [memory.segment(0..4).unwrap()];
        ud.post_send(&[SendRequest::new(9, datagram, &segments)]).unwrap();
        let got = two.completion();
        assert_eq!((got.wr_id, got.len, got.qp_num), (2, 44, ud.number()));

        let mut uc = two.pd.uc(&two.cq).srq(&srq).create().unwrap();
        let own = uc.endpoint(&options, 3).unwrap();
        uc.connect(&options, &own, &own).unwrap();
        uc.post_send(&[SendRequest::new(9, UcOperation::Send, &segments)]).unwrap();
        let got = two.completion();
        assert_eq!((got.wr_id, got.len, got.qp_num), (3, 4, uc.number()));
        assert_eq!(message(&mut one, &mut two, b"rc again"), 4);
    });
}

#[test]
fn the_limit_is_told_once_each_time_it_is_armed() {
    hold(each::shared_receives::the_limit_is_told_once_each_time_it_is_armed);
}

#[test]
fn a_queue_pair_of_a_shared_queue_takes_no_receives() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (mut one, mut two, mut srq) = pair(&context, 8, 0);
        assert_eq!((two.qp.capacity().receives, two.qp.capacity().receive_segments), (0, 0));
        let segments = [two.memory.segment(0..8).unwrap()];
        let requests = [ReceiveRequest::new(5, &segments)];
        refuses(two.qp.post_receive(&requests), ErrorKind::InvalidInput, EINVAL, "shared receive queue");
        post(&mut srq, &two, [6]);
        assert_eq!(message(&mut one, &mut two, b"still there"), 6);
    });
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_posted() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (mut one, mut two, mut srq) = pair(&context, 4, 0);
        let segment = two.memory.segment(0..8).unwrap();
        let many = vec![segment; srq.segments() as usize + 1];
        let too_large = [ReceiveRequest::new(1, &[]), ReceiveRequest::new(2, &many)];
        refuses(srq.post_receive(&too_large), ErrorKind::InvalidInput, EINVAL, "allowed; nothing was posted");
        let segments = [segment];
        let too_many = vec![ReceiveRequest::new(3, &segments); srq.capacity() as usize + 1];
        refuses(srq.post_receive(&too_many), ErrorKind::Exhausted, ENOMEM, "no room");
        let all: Vec<_> =
            (0..srq.capacity()).map(|wr_id| ReceiveRequest::new(wr_id.into(), &segments)).collect();
        srq.post_receive(&all).unwrap();
        refuses(srq.post_receive(&all[..1]), ErrorKind::Exhausted, ENOMEM, "no room");
        one.send(1, Operation::Send, 0..8);
        assert_eq!(two.completion().wr_id, 0, "the first of those that were posted");
    });
}

#[test]
fn wrong_sizes_and_limits_are_refused() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let most = context.query_device().unwrap().base;
        for wrong in [
            pd.srq(0),
            pd.srq(most.max_srq_wr + 1),
            pd.srq(u32::MAX),
            pd.srq(4).segments(most.max_srq_sge + 1),
        ] {
            refuses(wrong.create(), ErrorKind::InvalidInput, EINVAL, "max_srq_");
        }
        let srq = pd.srq(4).segments(2).create().unwrap();
        let told = srq.query().unwrap();
        assert_eq!((told.max_wr, told.max_sge, told.srq_limit), (srq.capacity(), srq.segments(), 0));
        assert!(srq.capacity() >= 4 && srq.segments() >= 2);
        refuses(srq.arm(srq.capacity() + 1), ErrorKind::InvalidInput, EINVAL, "limit");
        srq.arm(srq.capacity()).unwrap();
        refuses(srq.arm(u32::MAX), ErrorKind::InvalidInput, EINVAL, "limit");
        assert_eq!(srq.query().unwrap().srq_limit, srq.capacity());
        srq.destroy().unwrap();
    });
}

/// `mlx5_ib_modify_srq`, srq.c, Linux 6.1.
#[track_caller]
fn has_no_other_size(target: &Target, srq: &mut SharedReceiveQueue) {
    let before = srq.capacity();
    refuses(srq.resize(60), ErrorKind::Unsupported, EINVAL, "cannot resize");
    assert_eq!(srq.capacity(), before);
    skip(target, "mlx5 cannot resize shared receive queues");
}

#[test]
fn a_resized_queue_keeps_what_is_posted_and_its_memory() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (mut one, mut two, mut srq) = pair(&context, 4, 0);
        if target.device.driver() == "mlx5" {
            return has_no_other_size(target, &mut srq);
        }
        // Posted and used before, so that requests do not begin at the start of the ring.
        post(&mut srq, &two, 1..=3);
        assert_eq!(message(&mut one, &mut two, b"before"), 1);
        // Only the request uses this memory.
        let other = two.pd.register(64, ALL).unwrap();
        srq.post_receive(&[ReceiveRequest::new(99, &[other.segment(0..64).unwrap()])]).unwrap();
        drop(other);

        srq.resize(60).unwrap();
        assert!(srq.capacity() >= 60);
        assert_eq!(srq.query().unwrap().max_wr, srq.capacity());
        post(&mut srq, &two, 4..=50);
        assert_eq!(message(&mut one, &mut two, b"moved"), 2);
        assert_eq!(message(&mut one, &mut two, b"moved too"), 3);
        one.send(1, Operation::Send, 0..64);
        let got = two.completion();
        assert_eq!((got.wr_id, got.status, got.len), (99, Status::Success, 64));
        assert_eq!(one.completion().status, Status::Success);
        for wr_id in 4..=40 {
            assert_eq!(message(&mut one, &mut two, b"posted after"), wr_id);
        }
        srq.resize(12).unwrap();
        assert!((12..60).contains(&srq.capacity()));
        for wr_id in 41..=50 {
            assert_eq!(message(&mut one, &mut two, b"and again"), wr_id);
        }
    });
}

#[test]
fn a_refused_resize_changes_nothing() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (mut one, mut two, mut srq) = pair(&context, 20, 0);
        let (before, most) = (srq.capacity(), context.query_device().unwrap().base.max_srq_wr);
        if target.device.driver() == "mlx5" {
            return has_no_other_size(target, &mut srq);
        }
        post(&mut srq, &two, 1..=16);
        let refused = |srq: &mut SharedReceiveQueue, depth, hint: &str| {
            refuses(srq.resize(depth), ErrorKind::InvalidInput, EINVAL, hint);
            assert_eq!((srq.capacity(), srq.query().unwrap().max_wr), (before, before));
        };
        for depth in [0, most + 1] {
            refused(&mut srq, depth, &format!("{depth} given, 1 to {most} allowed"));
        }
        refused(&mut srq, 7, "7 requests are fewer than are posted");
        srq.arm(10).unwrap();
        refused(&mut srq, 9, "9 requests are fewer than are posted, or than the limit");
        for wr_id in 1..=16 {
            assert_eq!(message(&mut one, &mut two, b"as before"), wr_id);
        }
        assert_eq!(event_about(&context, SRQ), EventKind::SrqLimitReached);
    });
}

#[test]
fn a_queue_in_use_is_busy_and_may_be_dropped_first() {
    hold(each::shared_receives::a_queue_in_use_is_busy_and_may_be_dropped_first);
}

#[test]
fn a_queue_of_another_open_device_is_refused() {
    on_every_connecting_device(|target| {
        let (context, other) = (target.open(), target.open());
        let srq = other.alloc_pd().unwrap().create_srq(4).unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
        let made = pd.rc(&cq).srq(&srq).create();
        refuses(made, ErrorKind::InvalidInput, EINVAL, "another open device");
        let foreign = other.create_cq(4).unwrap();
        for builder in [pd.rc(&foreign), pd.rc(&cq).receive_cq(&foreign)] {
            refuses(builder.create(), ErrorKind::InvalidInput, EINVAL, "another open device");
        }
    });
}

#[test]
fn raw_packets_come_to_no_shared_queue() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
        let srq = pd.create_srq(4).unwrap();
        let made = pd.raw_packet(&cq).srq(&srq).create();
        refuses(made, ErrorKind::Unsupported, EOPNOTSUPP, "share their receives");
        srq.destroy().unwrap();
    });
}

#[test]
fn an_overrun_completion_queue_is_told_with_its_cookie() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let cq = context.cq(1).cookie(0xc0).create().unwrap();
        let room = cq.capacity() as usize;
        let make = |pd: &ProtectionDomain, _: &CompletionQueue| pd.ud(&cq).create().unwrap();
        let mut side = Side::<Ud>::new(&context, make);
        let options = options(&context);
        side.qp.activate(&options, 1, 0).unwrap();
        // If a slot is kept free, the ring has one more than that.
        for wr_id in 0..=room + 1 {
            side.receive(wr_id as u64, 0..8);
        }
        side.qp.to_error().unwrap();
        assert_eq!(event_about(&context, Subject::CompletionQueue(0xc0)), EventKind::CqError);
    });
}

#[test]
fn the_last_request_of_a_shared_queue_is_told_where_the_device_tells_it() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (_one, mut two, _srq) = pair(&context, 4, 0);
        two.qp.to_error().unwrap();
        assert_eq!(two.qp.state().unwrap(), QpState::Error);
        if target.device.driver() == "rxe" && kernel().starts_with("6.1.") {
            return skip(target, "rxe of Linux 6.1 does not tell");
        }
        assert_eq!(event_about(&context, Subject::QueuePair(0xabc)), EventKind::QpLastWqeReached);
    });
}

#[test]
fn a_message_without_a_shared_receive_waits_for_one() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (mut one, mut two, mut srq) = pair(&context, 4, 0);
        one.send(1, Operation::Send, 0..8);
        assert_eq!(two.cq.poll(&mut Completion::batch::<4>()), 0);
        post(&mut srq, &two, [2]);
        // Any command makes the soft device look again.
        srq.query().unwrap();
        assert_eq!((two.completion().wr_id, one.completion().status), (2, Status::Success));
    });
}

#[test]
fn a_shared_receive_without_the_right_to_write_breaks_the_one_that_took_it() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (mut one, mut two, mut srq) = pair(&context, 4, 0);
        let read_only = two.pd.register(64, AccessFlags::empty()).unwrap();
        let segments = [read_only.segment(0..64).unwrap()];
        srq.post_receive(&[ReceiveRequest::new(1, &segments)]).unwrap();
        post(&mut srq, &two, [2]);
        one.send(1, Operation::Send, 0..8);
        let (sent, got) = (one.completion().status, two.completion());
        assert!(sent != Status::Success && got.status != Status::Success, "{sent} {got:?}");
        assert_eq!(got.wr_id, 1);
        // rxe posts the completion before it moves the queue pair (`rxe_receiver`, rxe_resp.c, Linux 7.3).
        until("the queue pair is broken", || two.qp.state().unwrap() == QpState::Error);
        assert!(srq.query().is_ok(), "the queue itself is sound");
        let _ = Side::<Uc>::new(&context, |pd, cq| pd.uc(cq).srq(&srq).create().unwrap());
    });
}

#[test]
fn a_queue_is_destroyed_whether_its_events_were_read_or_not() {
    on_every_connecting_device(|target| {
        let context = target.open();
        for read in [true, false] {
            let (mut one, mut two, mut srq) = pair(&context, 4, 4);
            post(&mut srq, &two, [1]);
            message(&mut one, &mut two, b"x");
            if read {
                assert_eq!(event_about(&context, SRQ), EventKind::SrqLimitReached);
            }
            two.qp.destroy().map_err(|(_, error)| error).unwrap();
            srq.destroy().map_err(|(_, error)| error).unwrap();
            // Unread events are discarded with the queue.
            no_event_about(&context, SRQ);
        }
    });
}

/// rxe does not set these fields (`rxe_qp_to_init`, rxe_qp.c, Linux 6.1 to 7.3), so the crate does.
#[test]
fn a_queue_pair_of_a_shared_queue_has_no_receives_of_its_own() {
    on_every_connecting_device(|target| {
        let (one, two, _srq) = pair(&target.open(), 4, 0);
        let is = two.qp.query(QpAttrMask::CAP).unwrap();
        assert_eq!((is.max_recv_wr, is.max_recv_sge), (0, 0));
        assert!(one.qp.query(QpAttrMask::CAP).unwrap().max_recv_wr > 0);
    });
}
