//! Completions that are read in the ring, and a process that forks in the middle of a poll.

use uverbs::abi::types::wc_status::SUCCESS;
use uverbs::raw::{Cursor, Missed, ProviderKind, Told, Unread};
use uverbs::{CompletionCounter, CompletionQueue, Counted, Operation, WaitObject};

use super::*;

pub(crate) fn in_the_middle() {
    on_every_connecting_device(|target| match target.open().provider() {
        ProviderKind::Rxe => in_the_middle_of(target, |cq| in_place(cq).unwrap()),
        ProviderKind::Mlx5 => in_the_middle_of(target, |_| Unread::default()),
        // Those of other drivers are decoded when they are taken.
        _ => in_the_middle_of(target, |_| Told::default()),
    });
}

fn in_the_middle_of<C: Cursor>(target: &Target, cursor: impl Fn(&CompletionQueue) -> C) {
    let (mut one, mut two) = rc_pair(target);
    (1..=4).for_each(|wr_id| two.receive(wr_id, 0..8));
    for wr_id in 1..=3 {
        one.send(wr_id, Operation::Send, 0..8);
        one.completion();
    }
    let mut poll = cursor(&two.cq);
    let cq = &mut two.cq;
    let first = cq.first_fast(&mut poll).ok().or_else(|| cq.first(&mut poll));
    let second = cq.next_fast(&mut poll).ok().or_else(|| cq.next(&mut poll));
    assert_eq!((first, second), (Some((1, SUCCESS)), Some((2, SUCCESS))));
    if let Some(child) = split() {
        wait_for(child);
    } else {
        in_the_child(|| {
            let cq = &mut two.cq;
            assert!(!cq.is_here());
            // The parent's current completion, and a poll of the child.
            for poll in [&mut poll, &mut cursor(cq)] {
                assert_eq!(
                    (cq.first_fast(poll), cq.next_fast(poll)),
                    (Err(Missed::Other), Err(Missed::Other))
                );
                assert_eq!((cq.first(poll), cq.next(poll), cq.end(poll)), (None, None, false));
            }
        });
    }
    assert!(two.cq.end(&mut poll));
    assert_eq!(two.cq.end(&mut poll), !C::SHOWS_BEGIN);
    assert_eq!(two.completion().wr_id, 3, "the child has taken none");

    // The short path is closed as soon as completions are counted.
    let counter = CompletionCounter::new(WaitObject::None).unwrap();
    let mut counted = two.pd.rc(&two.cq).create().unwrap();
    counted.bind_counter(&counter, Counted::RECEIVE).unwrap();
    one.send(4, Operation::Send, 0..8);
    one.completion();
    assert_eq!(two.cq.first_fast(&mut poll), Err(Missed::Other));
    assert_eq!((two.cq.first(&mut poll), two.cq.end(&mut poll)), (Some((4, SUCCESS)), true));
    assert_eq!(counter.read(), 0, "it was another queue pair's");
}
