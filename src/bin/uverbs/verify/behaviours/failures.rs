//! Requests that fail: the status of each, and what happens to the others.

use uverbs::{AccessFlags, Completion, Operation, QpState, Remote, SendRequest, Status};

use super::ground::LIMIT;
use super::sides::{Pair, rc_pair, rc_pair_with};
use super::{Destroyed, Ground, Held, Stopped, holds, same};

pub(crate) fn a_wrong_key_is_a_remote_access_error_and_the_rest_is_flushed(ground: &Ground<'_>) -> Held {
    let Pair { mut one, two, .. } = rc_pair(ground)?;
    let wrong = Remote { rkey: two.memory.rkey() ^ 0xff00, ..two.remote(0) };
    one.send(1, Operation::Write(wrong), 0..8)?;
    one.ends(ground, 1, Status::RemoteAccess)?;
    one.send(2, Operation::Send, 0..8)?;
    one.receive(3, 0..8)?;
    one.qp.to_error()?;
    let mut rest = [(0, Status::Success); 2];
    for end in &mut rest {
        let completion = one.completion(ground)?;
        *end = (completion.wr_id, completion.status);
    }
    rest.sort_by_key(|(wr_id, _)| *wr_id);
    same("the rest", rest, [(2, Status::Flushed), (3, Status::Flushed)])?;
    same("the state", one.qp.state()?, QpState::Error)
}

pub(crate) fn memory_without_the_right_is_a_remote_access_error(ground: &Ground<'_>) -> Held {
    let Pair { mut one, two, .. } = rc_pair(ground)?;
    let local_only = two.pd.register(64, AccessFlags::LOCAL_WRITE)?;
    let remote = Remote { address: local_only.address(), rkey: local_only.rkey() };
    one.send(1, Operation::Write(remote), 0..8)?;
    one.ends(ground, 1, Status::RemoteAccess).map(drop)
}

pub(crate) fn without_a_receive_the_sender_gives_up_when_it_was_told_to(ground: &Ground<'_>) -> Held {
    if ground.driver() == "erdma" {
        let why = "its driver does not tell the device how often to try again (erdma_verbs.c, Linux 7.3)";
        return Err(Stopped::Skipped(why.to_owned()));
    }
    let Pair { mut one, two: _two, .. } =
        rc_pair_with(ground, |options| (options.rnr_retries, options.rnr_timer) = (0, 1))?;
    one.send(1, Operation::Send, 0..8)?;
    one.ends(ground, 1, Status::RnrRetryExceeded).map(drop)
}

pub(crate) fn a_receive_too_small_is_an_error_on_both_sides(ground: &Ground<'_>) -> Held {
    let Pair { mut one, mut two, .. } = rc_pair(ground)?;
    two.receive(1, 0..4)?;
    one.send(2, Operation::Send, 0..8)?;
    // rxe treats this differently (RESPST_ERR_MALFORMED_WQE, rxe_resp.c, Linux 6.1).
    let (sender, receiver) = match ground.driver() {
        "rxe" => (Status::RemoteOperation, Status::LocalQpOperation),
        // One number for several reasons (`map_cqe_status`, providers/erdma, rdma-core 65).
        "erdma" => (Status::General, Status::General),
        _ => (Status::RemoteInvalidRequest, Status::LocalLength),
    };
    one.ends(ground, 2, sender)?;
    two.ends(ground, 1, receiver).map(drop)
}

pub(crate) fn everything_posted_is_flushed_in_order_and_nothing_comes_later(ground: &Ground<'_>) -> Held {
    let Pair { mut one, mut two, .. } = rc_pair(ground)?;
    // One succeeds, without a completion; the next has no receive and waits for ever.
    two.receive(1, 0..8)?;
    let segments = [one.memory.segment(0..8)?];
    one.qp.post_send(&[SendRequest::new(1, Operation::Send, &segments)])?;
    two.ends(ground, 1, Status::Success)?;
    let request = |wr_id| SendRequest::new(wr_id, Operation::Send, &segments);
    one.qp.post_send(&[request(10), request(11).signaled(), request(12)])?;
    for wr_id in 100..105 {
        one.receive(wr_id, 0..8)?;
    }
    let mut ended = Vec::new();
    let queues = &mut [&mut one.cq];
    one.qp.drain(queues, LIMIT, |completion| ended.push((completion.wr_id, completion.status)))?;
    let flushed = |wr_ids: std::ops::Range<u64>| wr_ids.map(|wr_id| (wr_id, Status::Flushed));
    let only = |range: std::ops::Range<u64>| {
        ended.iter().filter(|(wr_id, _)| range.contains(wr_id)).copied().collect::<Vec<_>>()
    };
    same("the sends", only(10..100), flushed(10..13).collect::<Vec<_>>())?;
    same("the receives", only(100..200), flushed(100..105).collect::<Vec<_>>())?;
    // The first may not have been acknowledged yet; it is not waited for if it was.
    holds("all", ended.len() <= 9, "at most 9", format_args!("{ended:?}"))?;
    same("the state", one.qp.state()?, QpState::Error)?;
    same("more completions", one.cq.poll(&mut Completion::batch::<4>()), 0)?;
    let mut again = 0;
    one.qp.drain(&mut [&mut one.cq], LIMIT, |_| again += 1)?;
    same("completions of a second drain", again, 0)?;
    // No request has the memory any more.
    one.memory.destroy().destroyed()
}
