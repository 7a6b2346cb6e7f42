//! Completion queues: completions of a queue that is resized.

use std::ops::Range;
use std::time::Duration;

use crate::common::*;
use uverbs::{
    Completion, CompletionQueue, Context, ErrorKind, Eth, FlowRule, Operation, Rc, ReceiveRequest, Status,
};

/// A queue that was resized.
fn resized(context: &Context) -> uverbs::Result<()> {
    context.create_cq(4)?.resize(8)
}

/// Puts completions with these numbers into the queue of `two`.
fn fill(one: &mut Side<Rc>, two: &mut Side<Rc>, numbers: Range<u64>) {
    for number in numbers {
        two.receive(number, 0..8);
        one.send(number, Operation::Send, 0..8);
        // The receiver has its completion before it acknowledges.
        assert_eq!(one.completion().status, Status::Success);
    }
}

/// The numbers of the completions in the queue, up to `count`.
fn take(side: &mut Side<Rc>, count: usize) -> Vec<u64> {
    let mut batch = vec![Completion::default(); count];
    let count = side.cq.poll(&mut batch);
    batch[..count].iter().map(|completion| completion.wr_id).collect()
}

#[test]
fn a_resized_queue_keeps_what_waits_in_it() {
    on_every_connecting_device_with("queues that can be resized", resized, |target| {
        let (mut one, mut two) = rc_pair(target);
        // Wraps around the end of the ring.
        for _ in 0..2 {
            fill(&mut one, &mut two, 0..25);
            assert_eq!(take(&mut two, 100), (0..25).collect::<Vec<_>>());
        }
        fill(&mut one, &mut two, 30..40);
        assert_eq!(take(&mut two, 1), [30]);
        two.cq.resize(100).unwrap();
        assert!(two.cq.capacity() >= 100);
        assert_eq!(take(&mut two, 5), [31, 32, 33, 34, 35]);
        two.cq.resize(4).unwrap();
        assert!((4..100).contains(&two.cq.capacity()));
        assert_eq!(take(&mut two, 4), [36, 37, 38, 39]);
        fill(&mut one, &mut two, 40..43);
        assert_eq!(take(&mut two, 100), [40, 41, 42]);
    });
}

/// The same for frames, on devices whose queue pairs support only those.
#[test]
fn frames_that_wait_in_a_resized_queue_stay_and_later_ones_are_announced() {
    on_every_wire(|_, wire, raw| {
        let channel = raw.context.create_comp_channel().unwrap();
        let mut cq = raw.context.cq(15).channel(&channel).cookie(5).create().unwrap();
        let mut qp = raw.pd.raw_packet(&cq).receive_depth(64).connect(1).unwrap();
        let _flow = qp.create_flow(&FlowRule::normal(1).eth(Eth::any().dst(MAC))).unwrap();
        let segments = [raw.memory.segment(0..SLOT).unwrap()];
        let mut fill = |numbers: Range<u64>| {
            for number in numbers {
                qp.post_receive(&[ReceiveRequest::new(number, &segments)]).unwrap();
                wire.inject(&frame(MAC, 60));
            }
        };
        let take = |cq: &mut CompletionQueue, count: usize| {
            let mut batch = vec![Completion::default(); count];
            let count = cq.poll(&mut batch);
            assert!(batch[..count].iter().all(|completion| completion.len == 60));
            batch[..count].iter().map(|completion| completion.wr_id).collect::<Vec<_>>()
        };
        fill(0..10);
        assert_eq!(take(&mut cq, 100), (0..10).collect::<Vec<_>>());
        fill(10..20);
        assert_eq!(take(&mut cq, 1), [10]);
        cq.resize(100).unwrap();
        assert!(cq.capacity() >= 100);
        fill(20..60);
        assert_eq!(take(&mut cq, 45), (11..56).collect::<Vec<_>>());
        for (entries, hint) in [(0, "0 given"), (1, "in the queue than 1"), (u32::MAX, "4294967295")] {
            refuses(cq.resize(entries), ErrorKind::InvalidInput, EINVAL, hint);
        }
        assert!(cq.capacity() >= 100);
        cq.notify(false).unwrap();
        cq.resize(7).unwrap();
        assert!((7..100).contains(&cq.capacity()));
        assert_eq!(take(&mut cq, 100), [56, 57, 58, 59]);
        fill(60..62);
        assert!(channel.wait(Some(Duration::from_secs(20))).unwrap());
        assert_eq!(channel.next_event().unwrap(), Some(5));
        assert_eq!(take(&mut cq, 100), [60, 61]);
        cq.notify(false).unwrap();
        fill(62..63);
        assert!(channel.wait(Some(Duration::from_secs(20))).unwrap());
        assert_eq!((channel.next_event().unwrap(), take(&mut cq, 100)), (Some(5), vec![62]));
    });
}

#[test]
fn a_queue_is_not_resized_below_what_waits_in_it() {
    on_every_connecting_device_with("queues that can be resized", resized, |target| {
        let (mut one, mut two) = rc_pair(target);
        let before = two.cq.capacity();
        fill(&mut one, &mut two, 0..8);
        for (entries, hint) in [(0, "0 given"), (7, "in the queue than 7")] {
            refuses(two.cq.resize(entries), ErrorKind::InvalidInput, EINVAL, hint);
        }
        refuses(two.cq.resize(u32::MAX), ErrorKind::InvalidInput, EINVAL, "");
        assert_eq!(two.cq.capacity(), before);
        assert_eq!(take(&mut two, 100), (0..8).collect::<Vec<_>>());
        two.cq.resize(7).unwrap();
    });
}

#[test]
fn announcements_are_moderated_where_the_driver_can() {
    on_every_device(|target| {
        let context = target.open();
        let cq = context.create_cq(16).unwrap();
        let most = context.query_device().unwrap().cq_moderation_caps;
        if most.max_cq_moderation_count == 0 {
            return refuses(cq.moderate(4, 100), ErrorKind::Unsupported, EOPNOTSUPP, "");
        }
        cq.moderate(4, 100).unwrap();
        cq.moderate(most.max_cq_moderation_count, most.max_cq_moderation_period).unwrap();
        cq.moderate(0, 0).unwrap();
    });
}
