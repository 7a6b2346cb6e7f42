//! Reliable connections on every device, whatever connects them: sends, writes, reads, shared receives, events and counters.
//! `connected.rs` tests what only some devices support, such as immediate data.

use std::time::Duration;

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use uverbs::{
    Completion, CompletionCounter, Counted, ErrorKind, EventKind, Operation, QpState, Rc, ReceiveRequest,
    Remote, SendRequest, Status, Subject, WaitObject,
};

const LONG: Duration = Duration::from_secs(20);

/// Two sides, and what keeps them connected.
struct Pair {
    one: Side<Rc>,
    two: Side<Rc>,
    manager: Option<Manager>,
}

fn pair(target: &Target) -> Pair {
    let context = target.open();
    let make = |pd: &uverbs::ProtectionDomain, cq: &uverbs::CompletionQueue| {
        pd.rc(cq).send_depth(16).receive_depth(16).inline(64).create().unwrap()
    };
    let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
    let manager = join(&context, &mut one.qp, &mut two.qp);
    Pair { one, two, manager }
}

/// Whether something other than this crate connects the device's queue pairs.
fn is_managed(target: &Target) -> bool {
    target.device.driver() == "siw"
}

/// The next completions, as number and status.
fn ends(side: &mut Side<Rc>, count: usize) -> Vec<(u64, Status)> {
    (0..count).map(|_| side.completion()).map(|end| (end.wr_id, end.status)).collect()
}

#[test]
fn messages_arrive_in_their_order_with_their_numbers() {
    hold(each::connected::messages_arrive_in_their_order_with_their_numbers);
}

#[test]
fn a_message_of_several_pieces_fills_several_pieces() {
    on_every_joining_device(|target| {
        let context = target.open();
        let make = |pd: &uverbs::ProtectionDomain, cq: &uverbs::CompletionQueue| {
            pd.rc(cq).segments(3).create().unwrap()
        };
        let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
        let _manager = join(&context, &mut one.qp, &mut two.qp);
        let room = [0..2, 10..15, 20..100].map(|range| two.memory.segment(range).unwrap());
        two.qp.post_receive(&[ReceiveRequest::new(5, &room)]).unwrap();
        one.memory.write(0, b"several pieces").unwrap();
        let pieces = [0..3, 3..8, 8..14].map(|range| one.memory.segment(range).unwrap());
        one.qp.post_send(&[SendRequest::new(6, Operation::Send, &pieces).signaled()]).unwrap();
        assert_eq!(ends(&mut one, 1), [(6, Status::Success)]);
        assert_eq!(two.completion().len, 14);
        assert_eq!(
            (&two.bytes::<2>(0), &two.bytes::<5>(10), &two.bytes::<7>(20)),
            (b"se", b"veral", b" pieces")
        );
        let many = vec![one.memory.segment(0..1).unwrap(); 4];
        let refused = one.qp.post_send(&[SendRequest::new(1, Operation::Send, &many)]);
        refuses(refused, ErrorKind::InvalidInput, EINVAL, "segments");
    });
}

#[test]
fn inline_bytes_of_each_length_arrive() {
    on_every_joining_device(|target| {
        let Pair { mut one, mut two, manager: _manager } = pair(target);
        for len in 0..=64 {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8 + len as u8).collect();
            two.receive(1, 0..64);
            let request = SendRequest::inline(len as u64, Operation::Send, &bytes).signaled();
            one.qp.post_send(&[request]).unwrap();
            assert_eq!((one.completion().wr_id, two.completion().len as usize), (len as u64, len));
            assert_eq!(two.bytes::<64>(0)[..len], bytes);
            let to = two.remote(1000);
            one.qp.post_send(&[SendRequest::inline(7, Operation::Write(to), &bytes).signaled()]).unwrap();
            assert_eq!(one.completion().status, Status::Success);
            // The data was written before it was read.
            one.send(8, Operation::Read(to), 0..len);
            assert_eq!(ends(&mut one, 1), [(8, Status::Success)]);
            assert_eq!(one.bytes::<64>(0)[..len], bytes);
        }
        let request = SendRequest::inline(1, Operation::Send, &[0; 65]);
        refuses(one.qp.post_send(&[request]), ErrorKind::InvalidInput, EINVAL, "inline bytes");
    });
}

#[test]
fn remote_memory_is_written_and_read_back() {
    hold(each::connected::remote_memory_is_written_and_read_back);
}

/// More requests than slots in the queue, with one completion for many.
#[test]
fn unsignaled_requests_give_their_slots_back() {
    on_every_joining_device(|target| {
        let Pair { mut one, mut two, manager: _manager } = pair(target);
        for round in 0..200_u64 {
            let segments = [one.memory.segment(0..8).unwrap()];
            one.memory.write(0, &round.to_ne_bytes()).unwrap();
            let write = |wr_id| SendRequest::new(wr_id, Operation::Write(two.remote(64)), &segments);
            one.qp.post_send(&[write(1), write(2), write(round).signaled()]).unwrap();
            assert_eq!(ends(&mut one, 1), [(round, Status::Success)]);
            two.receive(round, 0..8);
            one.send(9, Operation::Send, 0..8);
            assert_eq!(ends(&mut one, 1), [(9, Status::Success)]);
            assert_eq!(two.completion().wr_id, round);
            assert_eq!(two.bytes::<8>(0), round.to_ne_bytes());
            // When a send has arrived, everything before it has arrived too.
            assert_eq!(two.bytes::<8>(64), round.to_ne_bytes());
        }
        assert_eq!(one.cq.poll(&mut Completion::batch::<4>()), 0);
    });
}

#[test]
fn a_full_queue_is_refused_and_all_that_was_posted_arrives() {
    hold(each::connected::a_full_queue_is_refused_and_all_that_was_posted_arrives);
}

/// Single receives and batches, with one region and with several.
#[test]
fn receives_hold_their_regions_and_a_batch_that_is_refused_holds_none() {
    on_every_joining_device(|target| {
        let Pair { mut one, mut two, manager: _manager } = pair(target);
        one.memory.write(0, b"received").unwrap();
        let regions = [(); 3].map(|()| two.pd.register(4096, ALL).unwrap());
        let other = two.pd.register(4096, ALL).unwrap();
        for round in 0..9 {
            let rooms = regions.each_ref().map(|region| [region.segment(8..16).unwrap()]);
            let others = [other.segment(0..8).unwrap()];
            let many = vec![others[0]; two.qp.capacity().receive_segments as usize + 1];
            let batches: [&[usize]; 6] = [&[0], &[0, 0, 0], &[0], &[0, 1, 0], &[2, 2], &[1]];
            for batch in batches {
                for last in [&others[..0], &many] {
                    let refused: Vec<_> = [&rooms[0][..], &others, &rooms[0]]
                        .into_iter()
                        .chain(std::iter::repeat_n(last, if last.is_empty() { 1000 } else { 1 }))
                        .map(|room| ReceiveRequest::new(7, room))
                        .collect();
                    assert!(two.qp.post_receive(&refused).is_err());
                }
                let requests: Vec<_> =
                    batch.iter().map(|at| ReceiveRequest::new(*at as u64, &rooms[*at])).collect();
                two.qp.post_receive(&requests).unwrap();
            }
            for at in batches.concat() {
                regions[at].write(8, &[0; 8]).unwrap();
                post(&mut one, round).unwrap();
                assert_eq!(ends(&mut one, 1), [(round, Status::Success)]);
                assert_eq!(ends(&mut two, 1), [(at as u64, Status::Success)], "{round}");
                let mut bytes = [0; 8];
                regions[at].read(8, &mut bytes).unwrap();
                assert_eq!(&bytes, b"received");
            }
        }
        other.destroy().map_err(|(_, error)| error).unwrap();
        // A region cannot be destroyed while receives into it are posted.
        for region in regions {
            let room = [region.segment(..8).unwrap()];
            two.qp.post_receive(&[ReceiveRequest::new(1, &room); 2]).unwrap();
            two.qp.post_receive(&[ReceiveRequest::new(1, &room)]).unwrap();
            assert_eq!(region.destroy().unwrap_err().1.kind(), ErrorKind::Busy);
        }
        for round in 0..9 {
            post(&mut one, round).unwrap();
            assert_eq!(ends(&mut one, 1), [(round, Status::Success)]);
            assert_eq!(ends(&mut two, 1), [(1, Status::Success)]);
        }
    });
}

#[test]
fn what_is_not_allowed_there_fails_and_the_rest_is_flushed() {
    on_every_joining_device(|target| {
        for is_read in [false, true] {
            let Pair { mut one, two, manager } = pair(target);
            let wrong = Remote { rkey: two.memory.rkey() ^ 0xff00, ..two.remote(0) };
            let operation = if is_read { Operation::Read(wrong) } else { Operation::Write(wrong) };
            one.send(1, operation, 0..8);
            let first = one.completion();
            // Without acknowledgements, a write completes when it is sent (`siw_qp_sq_process`, siw_qp_tx.c).
            let is_unknown = is_managed(target) && !is_read;
            assert!(is_unknown || first.status != Status::Success, "{first:?}");
            if let Some(manager) = &manager {
                manager.expect(DISCONNECTED);
            }
            (3..5).for_each(|wr_id| drop(post(&mut one, wr_id)));
            one.qp.to_error().unwrap();
            let mut ended = Vec::new();
            one.qp.drain(&mut [&mut one.cq], LONG, |end| ended.push((end.wr_id, end.status))).unwrap();
            assert!(ended.iter().all(|end| end.1 == Status::Flushed), "{ended:?}");
            one.memory.destroy().map_err(|(_, error)| error).expect("no request has the memory any more");
        }
    });
}

/// Posts a send. Returns whether it was accepted.
fn post(side: &mut Side<Rc>, wr_id: u64) -> uverbs::Result<()> {
    let segments = [side.memory.segment(0..8).unwrap()];
    side.qp.post_send(&[SendRequest::new(wr_id, Operation::Send, &segments).signaled()])
}

#[test]
fn a_queue_pair_that_is_not_connected_sends_nothing_and_says_so() {
    on_every_joining_device(|target| {
        let context = target.open();
        let make = |pd: &uverbs::ProtectionDomain, cq: &uverbs::CompletionQueue| pd.rc(cq).create().unwrap();
        let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
        for _ in 0..100 {
            let error = post(&mut one, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            let names_manager = error.hint().is_some_and(|hint| hint.contains("connection manager"));
            assert_eq!(names_manager, is_managed(target), "{error}");
        }
        if is_managed(target) {
            let error = one.qp.modify(&uverbs::Attributes::to(QpState::ReadyToSend)).unwrap_err();
            assert!(error.hint().is_some_and(|hint| hint.contains("connection manager")), "{error}");
        }
        let _manager = join(&context, &mut one.qp, &mut two.qp);
        two.receive(2, 0..8);
        post(&mut one, 3).unwrap();
        assert_eq!((ends(&mut one, 1), two.completion().wr_id), (vec![(3, Status::Success)], 2));
        assert_eq!(one.cq.poll(&mut Completion::batch::<4>()), 0, "nothing of before was sent");
    });
}

#[test]
fn draining_ends_receives_and_sends() {
    on_every_joining_device(|target| {
        let Pair { mut one, two: _two, manager: _manager } = pair(target);
        (0..16).for_each(|wr_id| one.receive(wr_id, 0..8));
        let mut ended = Vec::new();
        one.qp.drain(&mut [&mut one.cq], LONG, |end| ended.push((end.wr_id, end.status))).unwrap();
        assert_eq!(ended, (0..16).map(|wr_id| (wr_id, Status::Flushed)).collect::<Vec<_>>());
        assert_eq!(one.cq.poll(&mut Completion::batch::<4>()), 0);
        one.qp.drain(&mut [&mut one.cq], LONG, |end| panic!("drained twice: {end:?}")).unwrap();
        one.memory.destroy().map_err(|(_, error)| error).expect("no request has the memory any more");
    });
}

/// The peer ends the connection, and this side continues to post.
#[test]
fn what_is_posted_after_the_connection_is_gone_ends_with_a_drain() {
    on_every_joining_device(|target| {
        let Pair { mut one, mut two, manager } = pair(target);
        (0..4).for_each(|wr_id| one.receive(wr_id, 0..8));
        two.qp.to_error().unwrap();
        if let Some(manager) = &manager {
            manager.expect(DISCONNECTED);
            manager.expect(DISCONNECTED);
        }
        one.receive(4, 0..8);
        let posted = post(&mut one, 10).is_ok();
        let mut ended = Vec::new();
        one.qp.drain(&mut [&mut one.cq], LONG, |end| ended.push((end.wr_id, end.status))).unwrap();
        ended.sort_unstable_by_key(|end| end.0);
        let receives = (0..5).map(|wr_id| (wr_id, Status::Flushed));
        assert_eq!(
            ended.iter().filter(|end| end.0 < 10).copied().collect::<Vec<_>>(),
            receives.collect::<Vec<_>>()
        );
        assert_eq!(ended.len(), 5 + usize::from(posted), "{ended:?}");
    });
}

#[test]
fn completions_are_announced_when_it_was_asked_for() {
    hold(each::queues::completions_are_announced_when_it_was_asked_for);
}

#[test]
fn queue_pairs_take_from_a_shared_queue_which_tells_that_it_runs_dry() {
    on_every_joining_device(|target| {
        const COOKIE: u64 = 0x5151;
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let mut srq = pd.srq(8).limit(3).cookie(COOKIE).create().unwrap();
        assert!(srq.capacity() >= 8 && srq.segments() == 1);
        let make = |pd: &uverbs::ProtectionDomain, cq: &uverbs::CompletionQueue| pd.rc(cq).create().unwrap();
        let mut senders = [(); 2].map(|()| Side::new(&context, make));
        let memory = pd.register(1 << 12, ALL).unwrap();
        let mut receivers = [(); 2].map(|()| {
            let cq = context.create_cq(16).unwrap();
            let qp = pd.rc(&cq).srq(&srq).create().unwrap();
            Side { qp, cq, memory: memory.clone(), pd: pd.clone() }
        });
        let managers: Vec<_> = (senders.iter_mut().zip(&mut receivers))
            .map(|(one, two)| join(&context, &mut one.qp, &mut two.qp))
            .collect();
        let room = |wr_id: u64| [memory.segment(100 * wr_id as usize..100 * wr_id as usize + 100).unwrap()];
        (0..6).for_each(|wr_id| srq.post_receive(&[ReceiveRequest::new(wr_id, &room(wr_id))]).unwrap());
        for round in 0..6_u64 {
            let at = round as usize % 2;
            let (one, two) = (&mut senders[at], &mut receivers[at]);
            one.memory.write(0, &(round * 1000).to_ne_bytes()).unwrap();
            post(one, round).unwrap();
            assert_eq!((ends(one, 1), two.completion().wr_id), (vec![(round, Status::Success)], round));
            assert_eq!(two.bytes::<8>(100 * round as usize), (round * 1000).to_ne_bytes());
        }
        let event = event_about(&context, Subject::SharedReceiveQueue(COOKIE));
        assert_eq!(event, EventKind::SrqLimitReached);
        srq.arm(2).unwrap();
        assert_eq!(srq.query().unwrap().srq_limit, 2);
        let not_here = receivers[0].qp.post_receive(&[ReceiveRequest::new(1, &[])]);
        refuses(not_here, ErrorKind::InvalidInput, EINVAL, "shared receive queue");
        let (srq, error) = srq.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop((receivers, managers));
        srq.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn counters_count_what_completes() {
    on_every_joining_device(|target| {
        let context = target.open();
        let make = |pd: &uverbs::ProtectionDomain, cq: &uverbs::CompletionQueue| pd.rc(cq).create().unwrap();
        let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
        let [sent, written, received] = [(); 3].map(|()| CompletionCounter::new(WaitObject::None).unwrap());
        one.qp.bind_counter(&sent, Counted::SEND).unwrap();
        one.qp.bind_counter(&written, Counted::WRITE | Counted::READ).unwrap();
        two.qp.bind_counter(&received, Counted::RECEIVE).unwrap();
        let manager = join(&context, &mut one.qp, &mut two.qp);
        for round in 1..=10 {
            two.receive(round, 0..8);
            post(&mut one, round).unwrap();
            one.send(1, Operation::Write(two.remote(0)), 0..8);
            one.send(2, Operation::Read(two.remote(0)), 0..8);
            assert!(ends(&mut one, 3).iter().all(|end| end.1 == Status::Success));
            assert_eq!(two.completion().wr_id, round);
            assert_eq!([sent.read(), written.read(), received.read()], [round, 2 * round, round]);
        }
        if is_managed(target) {
            // Without a completion it would never be counted.
            let segments = [one.memory.segment(0..8).unwrap()];
            let quiet = SendRequest::new(3, Operation::Send, &segments);
            refuses(one.qp.post_send(&[quiet]), ErrorKind::InvalidInput, EINVAL, "signaled");
        }
        // A flushed request counts as failed.
        two.receive(20, 0..8);
        two.qp.drain(&mut [&mut two.cq], LONG, |_| ()).unwrap();
        assert_eq!((received.read(), received.read_err()), (10, 1));
        drop(manager);
    });
}

#[test]
fn queue_pairs_are_asked_for_what_they_hold() {
    on_every_joining_device(|target| {
        let Pair { one, two: _two, manager: _manager } = pair(target);
        let answer = one.qp.query(uverbs::abi::types::QpAttrMask::CAP).unwrap();
        assert!(answer.max_send_wr >= 16 && answer.max_recv_wr >= 16 && answer.max_inline_data >= 64);
        match one.qp.state() {
            Ok(state) => assert_eq!(state, QpState::ReadyToSend),
            Err(error) => {
                assert!(is_managed(target) && error.kind() == ErrorKind::Unsupported, "{error}");
                assert!(error.hint().is_some_and(|hint| hint.contains("6.8")), "{error}");
            }
        }
    });
}

/// Requests that some devices do not support: nothing is posted, and the connection continues.
#[test]
fn what_the_device_lacks_is_refused_and_the_connection_goes_on() {
    on_every_joining_device(|target| {
        if !is_managed(target) {
            return;
        }
        let Pair { mut one, mut two, manager: _manager } = pair(target);
        let segments = [one.memory.segment(0..8).unwrap()];
        let to = two.remote(0);
        for operation in [
            Operation::SendImmediate(1),
            Operation::WriteImmediate(to, 2),
            Operation::FetchAdd { remote: to, add: 1 },
            Operation::CompareSwap { remote: to, compare: 1, swap: 2 },
        ] {
            let request = SendRequest::new(1, operation, &segments).signaled();
            refuses(one.qp.post_send(&[request]), ErrorKind::Unsupported, EOPNOTSUPP, "nothing was posted");
        }
        // The kernel would block the queue at these requests.
        let inline =
            SendRequest::inline(1, Operation::SendInvalidate(two.memory.rkey()), b"bytes").signaled();
        refuses(one.qp.post_send(&[inline]), ErrorKind::Unsupported, EOPNOTSUPP, "nothing was posted");
        let fenced = SendRequest::new(1, Operation::Read(to), &segments).signaled().fenced();
        refuses(one.qp.post_send(&[fenced]), ErrorKind::Unsupported, EOPNOTSUPP, "nothing was posted");
        two.receive(5, 0..8);
        post(&mut one, 6).unwrap();
        assert_eq!((ends(&mut one, 1), two.completion().wr_id), (vec![(6, Status::Success)], 5));
        // A send with invalidate invalidates the key.
        let other = two.pd.register(64, ALL).unwrap();
        let key = Remote { address: other.address(), rkey: other.rkey() };
        one.send(7, Operation::Write(key), 0..8);
        two.receive(8, 0..8);
        one.send(9, Operation::SendInvalidate(other.rkey()), 0..8);
        assert_eq!(ends(&mut one, 2), [7, 9].map(|wr_id| (wr_id, Status::Success)));
        assert_eq!(two.completion().wr_id, 8);
        one.send(10, Operation::Read(key), 0..8);
        assert_ne!(one.completion().status, Status::Success, "the key is gone");
        for refused in
            [two.pd.ud(&two.cq).create().map(drop), two.pd.uc(&two.cq).create().map(drop), two.cq.resize(64)]
        {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.hint().is_some_and(|hint| hint.contains("siw")), "{error}");
        }
    });
}

#[test]
fn many_messages_arrive_whole_and_are_counted() {
    hold(each::connected::many_messages_arrive_whole_and_are_counted);
}

#[test]
fn receives_are_taken_from_one_queue() {
    hold(each::shared_receives::receives_are_taken_from_one_queue);
}
