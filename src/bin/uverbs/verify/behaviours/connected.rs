//! Messages, remote memory and datagrams between two queue pairs of one device.

use uverbs::{
    Completion, Datagram, ErrorKind, Operation, ReceiveRequest, SendRequest, Status, Uc, UcOperation, Ud,
    WcFlags,
};

use super::sides::{Pair, Side, joined_pair, rc_pair};
use super::{EINVAL, ENOMEM, Ground, Held, Stopped, holds, refused, same, same_bytes};

/// Bytes that differ from their neighbours, and from those of another message.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed) % 251) as u8).collect()
}

pub(crate) fn messages_arrive_in_their_order_with_their_numbers(ground: &Ground<'_>) -> Held {
    let Pair { mut one, mut two, _links } = joined_pair(ground)?;
    for round in 0..20_u64 {
        let texts = [&b"one"[..], b"", b"message four", b"x"];
        for i in 0..4 {
            let at = 100 * i as usize;
            two.receive(10 * round + i, at..at + 100)?;
        }
        for (i, text) in texts.iter().enumerate() {
            let at = 1000 + 100 * i;
            one.memory.write(at, text)?;
            one.send(round + i as u64, Operation::Send, at..at + text.len())?;
        }
        for (i, text) in texts.iter().enumerate() {
            one.ends(ground, round + i as u64, Status::Success)?;
            let got = two.ends(ground, 10 * round + i as u64, Status::Success)?;
            same("the length of a message", got.len as usize, text.len())?;
            let seen = (got.is_receive(), got.qp_num);
            same("whether it is a receive, and its queue pair", seen, (true, two.qp.number()))?;
            same_bytes("a message", &two.vec(100 * i, text.len())?, text)?;
        }
    }
    Ok(())
}

/// Sizes around those of packets, more messages than any queue has slots, and each byte compared.
pub(crate) fn many_messages_arrive_whole_and_are_counted(ground: &Ground<'_>) -> Held {
    let Pair { mut one, mut two, _links } = joined_pair(ground)?;
    let sizes = [1, 7, 64, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 9000];
    for round in 0..200_u64 {
        ground.go_on()?;
        for (i, size) in sizes.into_iter().enumerate() {
            let number = 100 * round + i as u64;
            let sent = pattern(size, number as usize);
            one.memory.write(0, &sent)?;
            two.receive(number, 20_000..30_000)?;
            one.send(number, Operation::Send, 0..size)?;
            one.ends(ground, number, Status::Success)?;
            let got = two.ends(ground, number, Status::Success)?;
            same("the length of a message", got.len as usize, size)?;
            same("the queue pair of a completion", got.qp_num, two.qp.number())?;
            same_bytes("a message", &two.vec(20_000, size)?, &sent)?;
        }
    }
    Ok(())
}

pub(crate) fn a_message_arrives_with_its_number(ground: &Ground<'_>) -> Held {
    let Pair { mut one, mut two, .. } = rc_pair(ground)?;
    two.receive(5, 0..100)?;
    two.receive(6, 100..200)?;
    one.memory.write(0, b"a message")?;
    one.send(1, Operation::Send, 0..9)?;
    one.send(2, Operation::SendImmediate(0x0102_0304), 0..1)?;
    one.ends(ground, 1, Status::Success)?;
    one.ends(ground, 2, Status::Success)?;
    let first = two.ends(ground, 5, Status::Success)?;
    same("the length of the first", first.len, 9_u32)?;
    same("the first is a receive", first.is_receive(), true)?;
    same("the first has immediate data", first.flags.contains(WcFlags::WITH_IMM), false)?;
    same_bytes("the first", &two.bytes::<9>(0)?, b"a message")?;
    let second = two.ends(ground, 6, Status::Success)?;
    same("the second has immediate data", second.flags.contains(WcFlags::WITH_IMM), true)?;
    same("immediate data", u32::from_be(second.immediate), 0x0102_0304_u32)
}

pub(crate) fn inline_bytes_are_copied_when_they_are_posted(ground: &Ground<'_>) -> Held {
    let Pair { mut one, mut two, .. } = rc_pair(ground)?;
    let mut bytes = *b"inline";
    if bytes.len() > one.qp.capacity().inline as usize {
        return Err(Stopped::Skipped("its queue pairs have no inline data".to_owned()));
    }
    two.receive(1, 0..64)?;
    one.qp.post_send(&[SendRequest::inline(9, Operation::Send, &bytes).signaled()])?;
    bytes.fill(0);
    one.ends(ground, 9, Status::Success)?;
    same("the length", two.ends(ground, 1, Status::Success)?.len, 6_u32)?;
    same_bytes("the message", &two.bytes::<6>(0)?, b"inline")?;
    let long = vec![0; one.qp.capacity().inline as usize + 1];
    let request = SendRequest::inline(1, Operation::Send, &long);
    refused("too many", one.qp.post_send(&[request]), ErrorKind::InvalidInput, EINVAL, "inline bytes")
}

pub(crate) fn remote_memory_is_written_and_read(ground: &Ground<'_>) -> Held {
    let Pair { mut one, mut two, .. } = rc_pair(ground)?;
    let long = pattern(30_000, 0);
    one.memory.write(0, &long)?;
    one.send(1, Operation::Write(two.remote(1000)), 0..long.len())?;
    one.ends(ground, 1, Status::Success)?;
    same_bytes("what was written", &two.vec(1000, long.len())?, &long)?;
    two.receive(7, 0..1)?;
    one.send(2, Operation::WriteImmediate(two.remote(0), 0x55), 10..20)?;
    one.ends(ground, 2, Status::Success)?;
    let noticed = two.ends(ground, 7, Status::Success)?;
    same("immediate data", u32::from_be(noticed.immediate), 0x55_u32)?;
    same_bytes("what was written with it", &two.bytes::<10>(0)?, &one.bytes::<10>(10)?)?;
    one.send(3, Operation::Read(two.remote(1001)), 40_000..50_000)?;
    one.ends(ground, 3, Status::Success)?;
    same_bytes("what was read", &one.vec(40_000, 10_000)?, &long[1..10_001])
}

pub(crate) fn remote_memory_is_written_and_read_back(ground: &Ground<'_>) -> Held {
    let Pair { mut one, two, _links } = joined_pair(ground)?;
    let long = pattern(30_000, 0);
    one.memory.write(0, &long)?;
    for round in 0..20 {
        one.send(1, Operation::Write(two.remote(1000 + round)), 0..long.len())?;
        one.send(2, Operation::Read(two.remote(1001 + round)), 40_000..60_000)?;
        // A read may be overtaken, but not by a request that waits for it.
        let mut both = [(); 2].map(|()| (0, Status::Success));
        for end in &mut both {
            let completion = one.completion(ground)?;
            *end = (completion.wr_id, completion.status);
        }
        both.sort_unstable_by_key(|end| end.0);
        same("a write and a read", both, [(1, Status::Success), (2, Status::Success)])?;
        same_bytes("what was read", &one.vec(40_000, 20_000)?, &long[1..20_001])?;
    }
    Ok(())
}

pub(crate) fn atomic_operations_give_the_old_value(ground: &Ground<'_>) -> Held {
    let Pair { mut one, two, .. } = rc_pair(ground)?;
    two.memory.write(64, &40_u64.to_ne_bytes())?;
    let remote = two.remote(64);
    one.send(1, Operation::FetchAdd { remote, add: 2 }, 0..8)?;
    one.send(2, Operation::CompareSwap { remote, compare: 42, swap: 7 }, 8..16)?;
    one.send(3, Operation::CompareSwap { remote, compare: 42, swap: 8 }, 16..24)?;
    for number in 1..=3 {
        one.ends(ground, number, Status::Success)?;
    }
    for (at, old) in [(0, 40), (8, 42), (16, 7)] {
        same("the old value", u64::from_ne_bytes(one.bytes(at)?), old)?;
    }
    same("the value", u64::from_ne_bytes(two.bytes(64)?), 7_u64)
}

pub(crate) fn requests_complete_in_their_order_and_only_the_signaled(ground: &Ground<'_>) -> Held {
    let Pair { mut one, mut two, .. } = rc_pair(ground)?;
    for number in 0..4 {
        two.receive(number, 0..8)?;
    }
    let segments = [one.memory.segment(0..8)?];
    let request = |wr_id| SendRequest::new(wr_id, Operation::Send, &segments);
    one.qp.post_send(&[request(1), request(2).signaled(), request(3), request(4).signaled()])?;
    one.ends(ground, 2, Status::Success)?;
    one.ends(ground, 4, Status::Success)?;
    for number in 0..4 {
        two.ends(ground, number, Status::Success)?;
    }
    same("more completions", one.cq.poll(&mut Completion::batch::<4>()), 0)
}

pub(crate) fn a_full_queue_is_refused_and_all_that_was_posted_arrives(ground: &Ground<'_>) -> Held {
    let Pair { mut one, mut two, _links } = joined_pair(ground)?;
    let memories = [&one.memory, &two.memory].map(Clone::clone);
    let (segments, room) = ([memories[0].segment(0..8)?], [memories[1].segment(0..8)?]);
    let request = |wr_id| SendRequest::new(wr_id, Operation::Send, &segments).signaled();
    let requests: Vec<_> = (0..1000).map(request).collect();
    let (kind, hint) = (ErrorKind::Exhausted, "nothing was posted");
    refused("post 1000 sends", one.qp.post_send(&requests), kind, ENOMEM, hint)?;
    let receives: Vec<_> = (0..1000).map(|i| ReceiveRequest::new(i, &room)).collect();
    refused("post 1000 receives", two.qp.post_receive(&receives), kind, ENOMEM, hint)?;
    for _ in 0..50 {
        two.qp.post_receive(&receives[..16])?;
        one.qp.post_send(&requests[..16])?;
        for number in 0..16 {
            one.ends(ground, number, Status::Success)?;
            two.ends(ground, number, Status::Success)?;
        }
    }
    Ok(())
}

pub(crate) fn an_unreliable_connection_carries_messages_and_writes(ground: &Ground<'_>) -> Held {
    ground.connects()?;
    let context = ground.open()?;
    let mut one = Side::<Uc>::new(&context, |pd, cq| pd.uc(cq).create())?;
    let mut two = Side::<Uc>::new(&context, |pd, cq| pd.uc(cq).create())?;
    let options = ground.options(&context)?;
    let (a, b) = (one.qp.endpoint(&options, 1)?, two.qp.endpoint(&options, 2)?);
    one.qp.connect(&options, &a, &b)?;
    two.qp.connect(&options, &b, &a)?;
    two.receive(1, 0..16)?;
    two.receive(2, 16..32)?;
    one.memory.write(0, b"unreliable")?;
    one.send(1, UcOperation::Send, 0..10)?;
    one.send(2, UcOperation::WriteImmediate(two.remote(100), 3), 0..10)?;
    for number in [1, 2] {
        one.ends(ground, number, Status::Success)?;
        two.ends(ground, number, Status::Success)?;
    }
    same_bytes("the message", &two.bytes::<10>(0)?, b"unreliable")?;
    same_bytes("what was written", &two.bytes::<10>(100)?, b"unreliable")
}

pub(crate) fn datagrams_come_after_a_routing_header_and_need_the_key(ground: &Ground<'_>) -> Held {
    ground.connects()?;
    if ground.driver() == "efa" {
        // Its driver refuses the rights of a peer that memory has here.
        let why = "this is tried on devices with connected queue pairs; uverbs ping --transport ud tries its datagrams";
        return Err(Stopped::Skipped(why.to_owned()));
    }
    let context = ground.open()?;
    let mut one = Side::<Ud>::new(&context, |pd, cq| pd.ud(cq).create())?;
    let mut two = Side::<Ud>::new(&context, |pd, cq| pd.ud(cq).create())?;
    let options = ground.options(&context)?;
    one.qp.activate(&options, 0x1111_1111, 0)?;
    two.qp.activate(&options, 0x2222_2222, 0)?;
    two.receive(1, 0..1000)?;
    let endpoint = two.qp.endpoint(&options, 0)?;
    let to = one.pd.create_ah(&options.route(&endpoint))?;
    let datagram =
        |qkey, number| Datagram { to: &to, qp_num: endpoint.qp_num, qkey, immediate: Some(number) };
    one.memory.write(0, b"datagram")?;
    one.send(1, datagram(0x3333_3333, 1), 0..8)?;
    one.send(2, datagram(0x2222_2222, 2), 0..8)?;
    one.ends(ground, 1, Status::Success)?;
    one.ends(ground, 2, Status::Success)?;
    let got = two.ends(ground, 1, Status::Success)?;
    // The one with the wrong key is gone.
    same("immediate data", u32::from_be(got.immediate), 2_u32)?;
    same("the length with the header", got.len, 48_u32)?;
    holds("flags", got.flags.contains(WcFlags::GRH), "a routing header", format_args!("{:?}", got.flags))?;
    same_bytes("the datagram", &two.bytes::<8>(40)?, b"datagram")
}
