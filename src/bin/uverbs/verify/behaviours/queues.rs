//! Completion queues: their sizes, and announcements of completions.

use std::ops::Range;
use std::time::{Duration, Instant};

use uverbs::{Completion, CompletionChannel, ErrorKind, Operation, Status};

use super::ground::ALL;
use super::sides::{Pair, Side, join, make, rc_pair};
use super::{EINVAL, EOPNOTSUPP, Ground, Held, Optional, holds, refused, same};

/// Puts completions with these numbers into the queue of the second side.
fn fill(ground: &Ground<'_>, pair: &mut Pair, numbers: Range<u64>) -> Held {
    for number in numbers {
        pair.two.receive(number, 0..8)?;
        pair.one.send(number, Operation::Send, 0..8)?;
        // The receiver has its completion before it acknowledges.
        pair.one.ends(ground, number, Status::Success)?;
    }
    Ok(())
}

/// The numbers of the completions in the second side's queue, up to `count`.
fn take(pair: &mut Pair, count: usize) -> Vec<u64> {
    let mut batch = vec![Completion::default(); count];
    let count = pair.two.cq.poll(&mut batch);
    batch.iter().take(count).map(|completion| completion.wr_id).collect()
}

pub(crate) fn a_resized_queue_keeps_what_waits_in_it(ground: &Ground<'_>) -> Held {
    let mut pair = rc_pair(ground)?;
    // Wraps around the end of the ring.
    for _ in 0..2 {
        fill(ground, &mut pair, 0..25)?;
        same("take 25", take(&mut pair, 100), (0..25).collect::<Vec<_>>())?;
    }
    fill(ground, &mut pair, 30..40)?;
    same("take one of ten", take(&mut pair, 1), [30])?;
    pair.two.cq.resize(100).optional()?;
    let capacity = pair.two.cq.capacity();
    holds("resize to 100", capacity >= 100, "room for them", capacity)?;
    same("take five", take(&mut pair, 5), [31, 32, 33, 34, 35])?;
    pair.two.cq.resize(4)?;
    let capacity = pair.two.cq.capacity();
    holds("resize to 4", (4..100).contains(&capacity), "4 to 99", capacity)?;
    same("take the rest", take(&mut pair, 4), [36, 37, 38, 39])?;
    fill(ground, &mut pair, 40..43)?;
    same("take later ones", take(&mut pair, 100), [40, 41, 42])
}

pub(crate) fn a_queue_is_not_resized_below_what_waits_in_it(ground: &Ground<'_>) -> Held {
    let mut pair = rc_pair(ground)?;
    // Whether the device can is tried with another queue: this one has the capacity that it was created with.
    pair.two.pd.context().create_cq(16)?.resize(16).optional()?;
    let before = pair.two.cq.capacity();
    fill(ground, &mut pair, 0..8)?;
    for (entries, hint) in [(0, "0 given"), (7, "in the queue than 7"), (u32::MAX, "")] {
        let answer = pair.two.cq.resize(entries);
        refused(&format!("resize to {entries}"), answer, ErrorKind::InvalidInput, EINVAL, hint)?;
    }
    same("the capacity after that", pair.two.cq.capacity(), before)?;
    same("what waits", take(&mut pair, 100), (0..8).collect::<Vec<_>>())?;
    Ok(pair.two.cq.resize(7)?)
}

pub(crate) fn announcements_are_moderated_where_the_driver_can(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let cq = context.create_cq(16).optional()?;
    let most = context.query_device()?.cq_moderation_caps;
    if most.max_cq_moderation_count == 0 {
        // It says so in the attributes and in the answer.
        let answer = cq.moderate(4, 100);
        refused("moderate", answer.clone(), ErrorKind::Unsupported, EOPNOTSUPP, "")?;
        return answer.optional();
    }
    cq.moderate(4, 100)?;
    cq.moderate(most.max_cq_moderation_count, most.max_cq_moderation_period)?;
    Ok(cq.moderate(0, 0)?)
}

/// Waits for an announcement, in slices: a signal ends a wait early.
fn announced(ground: &Ground<'_>, channel: &CompletionChannel) -> Held {
    let start = Instant::now();
    while !channel.wait(Some(Duration::from_millis(100)))? {
        ground.within(start, "wait for an announcement", "none")?;
    }
    Ok(())
}

pub(crate) fn completions_are_announced_when_it_was_asked_for(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let channel = context.create_comp_channel()?;
    let one = Side::new(&context, make)?;
    let pd = context.alloc_pd()?;
    let cq = context.cq(8).channel(&channel).cookie(77).create()?;
    let (qp, memory) = (make(&pd, &cq)?, pd.register(1 << 12, ALL)?);
    let Pair { mut one, mut two, _links } = join(ground, &context, one, Side { qp, cq, memory, pd })?;
    for round in 0..20 {
        two.receive(round, 0..8)?;
        two.cq.notify(false)?;
        one.send(round, Operation::Send, 0..8)?;
        announced(ground, &channel)?;
        same("its cookie", channel.next_event()?, Some(77))?;
        one.ends(ground, round, Status::Success)?;
        two.ends(ground, round, Status::Success)?;
        // It was one event, and no other was requested.
        two.receive(round, 0..8)?;
        one.send(round, Operation::Send, 0..8)?;
        one.ends(ground, round, Status::Success)?;
        two.ends(ground, round, Status::Success)?;
        same("an announcement that nobody asked for", channel.next_event()?, None)?;
    }
    Ok(())
}
