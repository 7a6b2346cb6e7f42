//! Completion queues: completions of a queue that is resized.

use std::ops::Range;
use std::time::Duration;

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use uverbs::{Completion, CompletionQueue, ErrorKind, Eth, FlowRule, ReceiveRequest};

#[test]
fn a_resized_queue_keeps_what_waits_in_it() {
    hold(each::queues::a_resized_queue_keeps_what_waits_in_it);
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
    hold(each::queues::a_queue_is_not_resized_below_what_waits_in_it);
}

#[test]
fn announcements_are_moderated_where_the_driver_can() {
    hold(each::queues::announcements_are_moderated_where_the_driver_can);
}
