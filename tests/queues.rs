//! Completion queues: what becomes of completions when their queue is resized.
#![cfg(feature = "soft")]

mod common;

use std::ops::Range;

use common::*;
use uverbs::{Completion, ErrorKind, Operation, Rc, Status};

/// Puts completions with these numbers into the queue of `two`.
fn fill(one: &mut Side<Rc>, two: &mut Side<Rc>, numbers: Range<u64>) {
    for number in numbers {
        two.receive(number, 0..8);
        one.send(number, Operation::Send, 0..8);
        // The receiver has completed its part before it acknowledges.
        assert_eq!(one.completion().status, Status::Success);
    }
}

/// The numbers of the completions that wait, up to `count`.
fn take(side: &mut Side<Rc>, count: usize) -> Vec<u64> {
    let mut batch = vec![Completion::default(); count];
    let count = side.cq.poll(&mut batch);
    batch[..count].iter().map(|completion| completion.wr_id).collect()
}

#[test]
fn a_resized_queue_keeps_what_waits_in_it() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = rc_pair(target);
        // Go round the end of the ring.
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

#[test]
fn a_queue_is_not_resized_below_what_waits_in_it() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = rc_pair(target);
        let before = two.cq.capacity();
        fill(&mut one, &mut two, 0..8);
        for entries in [0, 7, u32::MAX] {
            refuses(two.cq.resize(entries), ErrorKind::InvalidInput, EINVAL, "waits in the queue");
        }
        assert_eq!(two.cq.capacity(), before);
        assert_eq!(take(&mut two, 100), (0..8).collect::<Vec<_>>());
        two.cq.resize(7).unwrap();
    });
}
