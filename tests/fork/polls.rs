//! Completions that are read in the ring, and a process that forks in the middle of a poll.

use std::mem::offset_of;

use uverbs::abi::write::Wc;
use uverbs::raw::InPlace;
use uverbs::{CompletionCounter, Counted, Operation, WaitObject};

use super::*;

fn wr_id(poll: &InPlace) -> u64 {
    poll.field::<{ offset_of!(Wc, wr_id) }, u64>()
}

pub(crate) fn in_the_middle() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = rc_pair(target);
        (1..=4).for_each(|wr_id| two.receive(wr_id, 0..8));
        for wr_id in 1..=3 {
            one.send(wr_id, Operation::Send, 0..8);
            one.completion();
        }
        let mut poll = in_place(&two.cq).unwrap();
        assert!(!poll.is_closed() && poll.begin() && poll.advance());
        assert_eq!(wr_id(&poll), 2);
        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                // The parent's current completion.
                assert!(poll.is_closed() && !two.cq.is_here());
                assert!(!poll.advance() && !poll.end());
                // A poll of the child.
                let mut poll = in_place(&two.cq).unwrap();
                assert!(poll.is_closed() && !poll.begin() && !poll.advance() && !poll.end());
                assert_eq!(wr_id(&poll), 0);
            });
        }
        assert!(poll.end() && !poll.end() && !poll.advance());
        assert_eq!((wr_id(&poll), two.completion().wr_id), (0, 3), "the child has taken none");

        // The short path is closed as soon as completions are counted.
        let counter = CompletionCounter::new(WaitObject::None).unwrap();
        let mut counted = two.pd.rc(&two.cq).create().unwrap();
        counted.bind_counter(&counter, Counted::RECEIVE).unwrap();
        one.send(4, Operation::Send, 0..8);
        one.completion();
        assert!(poll.is_closed() && !poll.begin() && poll.begin_all());
        assert!(two.cq.count(&poll.extended()) && poll.end_all());
        assert_eq!((counter.read(), wr_id(&poll)), (0, 0), "it was another queue pair's");
    });
}
