//! Completion counters: their values, and what counts.

use std::time::Instant;

use uverbs::{CompletionCounter, Counted, CounterEvents, Operation, Rc, SendRequest, Status, WaitObject};

use super::ground::LIMIT;
use super::sides::{Pair, Side, forbidden, is_failure, rc_pair_of};
use super::{Ground, Held, Optional, same};

fn counter() -> Held<CompletionCounter> {
    CompletionCounter::new(WaitObject::Unspecified).optional()
}

/// The value and the error value.
fn values(counter: &CompletionCounter) -> (u64, u64) {
    (counter.read(), counter.read_err())
}

/// Two sides, connected after `bind` was called with them.
fn bound(ground: &Ground<'_>, bind: impl FnOnce(&mut Side<Rc>, &mut Side<Rc>) -> Held) -> Held<Pair> {
    rc_pair_of(&ground.open()?, ground, |_| {}, bind)
}

/// Takes completions until the counter has this value.
fn until(side: &mut Side<Rc>, counter: &CompletionCounter, threshold: u64) -> Held {
    Ok(side.cq.progress_until(counter, threshold, Some(LIMIT))?)
}

pub(crate) fn a_counter_records_how_many_operations_have_completed(ground: &Ground<'_>) -> Held {
    let (sent, received) = (counter()?, counter()?);
    let Pair { mut one, mut two, .. } = bound(ground, |one, two| {
        one.qp.bind_counter(&sent, Counted::SEND).optional()?;
        two.qp.bind_counter(&received, Counted::RECEIVE).optional()
    })?;
    for round in 1..=10 {
        for i in 0..8 {
            two.receive(i, 0..64)?;
        }
        for i in 0..8 {
            one.send(i, Operation::Send, 0..64)?;
        }
        until(&mut one, &sent, round * 8)?;
        until(&mut two, &received, round * 8)?;
        same("sent", values(&sent), (round * 8, 0))?;
        same("received", values(&received), (round * 8, 0))?;
    }
    Ok(())
}

pub(crate) fn failures_go_to_the_error_value_and_leave_the_value_alone(ground: &Ground<'_>) -> Held {
    let (written, read) = (counter()?, counter()?);
    let Pair { mut one, two, .. } = bound(ground, |one, _| {
        one.qp.bind_counter(&written, Counted::WRITE).optional()?;
        one.qp.bind_counter(&read, Counted::READ).optional()
    })?;
    let segments = [one.memory.segment(0..8)?];
    let request = |wr_id, operation| SendRequest::new(wr_id, operation, &segments);
    one.qp.post_send(&[
        request(1, Operation::Write(two.remote(0))),
        request(2, Operation::Read(two.remote(0))),
        request(3, forbidden(&two)),
        request(4, Operation::Write(two.remote(0))).signaled(),
        request(5, Operation::Read(two.remote(0))),
    ])?;
    is_failure(one.cq.progress_until(&written, 5, Some(LIMIT)))?;
    let start = Instant::now();
    while values(&read).1 == 0 {
        one.cq.progress();
        ground.within(start, "wait for a read that is flushed", "none")?;
    }
    // The wrong key, then what is flushed.
    same("writes", values(&written), (1, 2))?;
    same("reads", values(&read), (1, 1))
}

pub(crate) fn bytes_are_counted_in_place_of_operations(ground: &Ground<'_>) -> Held {
    let bytes = || CompletionCounter::builder().events(CounterEvents::Bytes).create().optional();
    let (out, read, received, writes) = (bytes()?, bytes()?, bytes()?, counter()?);
    let Pair { mut one, mut two, .. } = bound(ground, |one, two| {
        one.qp.bind_counter(&out, Counted::SEND | Counted::WRITE).optional()?;
        one.qp.bind_counter(&writes, Counted::WRITE).optional()?;
        one.qp.bind_counter(&read, Counted::READ).optional()?;
        two.qp.bind_counter(&received, Counted::RECEIVE).optional()?;
        two.qp.bind_counter(&received, Counted::REMOTE_WRITE_IMMEDIATE).optional()
    })?;
    for wr_id in 0..2 {
        two.receive(wr_id, 0..4096)?;
    }
    one.send(1, Operation::Send, 0..1000)?;
    one.send(2, Operation::Write(two.remote(0)), 0..20_000)?;
    let seven = [one.memory.segment(0..7)?];
    let write = Operation::Write(two.remote(0));
    one.qp.post_send(&[match one.qp.capacity().inline {
        // The device has no inline data.
        0..7 => SendRequest::new(3, write, &seven),
        _ => SendRequest::inline(3, write, b"seven.."),
    }])?;
    one.send(4, Operation::WriteImmediate(two.remote(0), 1), 0..30)?;
    let remote = two.remote(0);
    one.send(5, Operation::FetchAdd { remote, add: 1 }, 0..8)?;
    one.send(6, Operation::Read(remote), 0..500)?;
    until(&mut one, &read, 508)?;
    until(&mut two, &received, 1030)?;
    let seen = [&out, &read, &received, &writes].map(values);
    same("bytes out, read and received, and writes", seen, [(21_037, 0), (508, 0), (1030, 0), (3, 0)])?;
    one.send(7, forbidden(&two), 0..100)?;
    one.ends(ground, 7, Status::RemoteAccess)?;
    // A failure is one.
    same("what is counted when a write fails", [&out, &writes].map(values), [(21_037, 1), (3, 1)])
}
