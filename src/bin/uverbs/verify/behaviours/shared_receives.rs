//! Shared receive queues: several queue pairs receive from one, and the device's events about it.

use uverbs::{Context, EventKind, Operation, Rc, ReceiveRequest, SharedReceiveQueue, Status, Subject};

use super::ground::ALL;
use super::sides::{Pair, Side, event_about, join, make, no_event_about};
use super::{Destroyed, Ground, Held, Optional, busy, same, same_bytes};

const COOKIE: u64 = 0x5150;
const SRQ: Subject = Subject::SharedReceiveQueue(COOKIE);

/// Posts a receive of 100 bytes in a side's memory, at 100 times the request's number.
fn post(srq: &mut SharedReceiveQueue, side: &Side<Rc>, wr_ids: impl IntoIterator<Item = u64>) -> Held {
    for wr_id in wr_ids {
        let start = 100 * wr_id as usize;
        srq.post_receive(&[ReceiveRequest::new(wr_id, &[side.memory.segment(start..start + 100)?])])?;
    }
    Ok(())
}

/// A sender, and a receiver whose receives come from a queue of `depth` requests.
fn pair(ground: &Ground<'_>, context: &Context, depth: u32, limit: u32) -> Held<(Pair, SharedReceiveQueue)> {
    let pd = context.alloc_pd()?;
    let srq = pd.srq(depth).limit(limit).cookie(COOKIE).create().optional()?;
    let one = Side::new(context, make)?;
    let cq = context.create_cq(32)?;
    let qp = pd.rc(&cq).srq(&srq).cookie(0xabc).create()?;
    let memory = pd.register(1 << 16, ALL)?;
    Ok((join(ground, context, one, Side { qp, cq, memory, pd })?, srq))
}

/// Sends a message and waits for the completions of both sides. Returns the receive that was used.
fn message(ground: &Ground<'_>, pair: &mut Pair, text: &[u8]) -> Held<u64> {
    let Pair { one, two, .. } = pair;
    one.send_bytes(1, Operation::Send, text)?;
    one.ends(ground, 1, Status::Success)?;
    let got = two.completion(ground)?;
    let expected = (Status::Success, text.len(), two.qp.number());
    same("status, length and queue pair", (got.status, got.len as usize, got.qp_num), expected)?;
    same_bytes("a message", &two.vec(100 * got.wr_id as usize, text.len())?, text)?;
    Ok(got.wr_id)
}

pub(crate) fn receives_are_taken_from_one_queue(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let (mut pair, mut srq) = pair(ground, &context, 8, 0)?;
    post(&mut srq, &pair.two, 1..=4)?;
    for (number, text) in (1..=4).zip([&b"one"[..], b"", b"message three", b"x"]) {
        same("the receive that was taken", message(ground, &mut pair, text)?, number)?;
    }
    Ok(())
}

pub(crate) fn the_limit_is_told_once_each_time_it_is_armed(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    ground.connects()?;
    let (mut pair, mut srq) = pair(ground, &context, 8, 2)?;
    same("the limit", srq.query()?.srq_limit, 2_u32)?;
    post(&mut srq, &pair.two, 1..=5)?;
    for _ in 0..3 {
        message(ground, &mut pair, b"x")?;
    }
    no_event_about(&context, SRQ)?; // two are left, which is not fewer
    message(ground, &mut pair, b"x")?;
    same("the event", event_about(ground, &context, SRQ)?, EventKind::SrqLimitReached)?;
    same("the limit after that", srq.query()?.srq_limit, 0_u32)?;
    message(ground, &mut pair, b"x")?;
    no_event_about(&context, SRQ)?;

    srq.arm(1)?;
    no_event_about(&context, SRQ)?; // nothing was taken since
    post(&mut srq, &pair.two, [6])?;
    message(ground, &mut pair, b"x")?;
    same("the event when armed again", event_about(ground, &context, SRQ)?, EventKind::SrqLimitReached)?;
    srq.arm(4)?;
    srq.arm(0)?;
    post(&mut srq, &pair.two, [7])?;
    message(ground, &mut pair, b"x")?;
    no_event_about(&context, SRQ)
}

pub(crate) fn a_queue_in_use_is_busy_and_may_be_dropped_first(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    ground.connects()?;
    let (Pair { mut one, mut two, .. }, srq) = pair(ground, &context, 4, 0)?;
    let mut srq = busy("destroy a queue that a queue pair uses", srq.destroy())?;
    let other = two.pd.register(64, ALL)?;
    srq.post_receive(&[ReceiveRequest::new(1, &[other.segment(0..64)?])])?;
    drop((other, srq));
    // The posted requests still exist, and so does their memory.
    one.send(1, Operation::Send, 0..64)?;
    two.ends(ground, 1, Status::Success)?;
    let Side { qp, cq, memory, pd } = two;
    drop(pd);
    drop(memory);
    qp.destroy().destroyed()?;
    cq.destroy().destroyed()
}
