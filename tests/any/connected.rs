//! Messages, remote memory and datagrams between two queue pairs of one device.

use crate::common::*;
use uverbs::{
    AccessFlags, Attributes, Bind, Completion, CompletionQueue, ConnectionLimits, Datagram, Endpoint,
    ErrorKind, EventKind, Operation, ProtectionDomain, QpAttrMask, QpState, Rc, ReceiveRequest, Remote,
    Route, SendRequest, Status, Subject, Uc, UcOperation, Ud, WcFlags, WindowType,
};

#[test]
fn a_message_arrives_with_its_number() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = rc_pair(target);
        two.receive(5, 0..100);
        two.receive(6, 100..200);
        one.memory.write(0, b"a message").unwrap();
        one.send(1, Operation::Send, 0..9);
        one.send(2, Operation::SendImmediate(0x0102_0304), 0..1);
        assert_eq!((one.completion().wr_id, one.completion().wr_id), (1, 2));
        let first = two.completion();
        assert_eq!((first.wr_id, first.status, first.len), (5, Status::Success, 9));
        assert!(first.is_receive() && !first.flags.contains(WcFlags::WITH_IMM));
        assert_eq!(&two.bytes::<9>(0), b"a message");
        let second = two.completion();
        assert_eq!((second.wr_id, second.immediate), (6, 0x0102_0304_u32.to_be()));
        assert!(second.flags.contains(WcFlags::WITH_IMM));
    });
}

/// As two programs do that exchange what they have, and as one does that knows nothing of the other.
#[test]
fn both_sides_use_what_both_have() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let own = context.connection_limits(1).unwrap();
        let device = context.query_device().unwrap().base;
        assert_eq!(u32::from(own.incoming_reads), device.max_qp_rd_atom.min(255));
        assert_eq!(own.mtu, context.query_port(1).unwrap().legacy_resp.active_mtu);
        let peer: ConnectionLimits = own.to_string().parse().unwrap();
        assert_eq!(peer, own);
        let most = own.outgoing_reads.min(own.incoming_reads);
        for (peer, reads) in [(peer, most), (ConnectionLimits::UNKNOWN, 1)] {
            let (mut one, two) = rc_pair_with(target, |options| *options = options.agreed(&own, &peer));
            let is = one.qp.query(QpAttrMask::MAX_QP_RD_ATOMIC | QpAttrMask::PATH_MTU).unwrap();
            assert_eq!((is.max_rd_atomic, is.path_mtu), (reads, own.mtu.min(peer.mtu)));
            assert!(is.max_dest_rd_atomic >= own.incoming_reads);
            // More than can be outstanding in the second case.
            two.memory.write(0, &[0x5a; 4096]).unwrap();
            for number in 0..24 {
                let at = 4096 + 64 * number as usize;
                one.send(number, Operation::Read(two.remote(64 * number)), at..at + 64);
            }
            for number in 0..24 {
                let ended = one.completion();
                assert_eq!((ended.wr_id, ended.status), (number, Status::Success));
            }
            assert_eq!(one.bytes::<1536>(4096), [0x5a; 1536]);
        }
    });
}

#[test]
fn inline_bytes_are_copied_when_they_are_posted() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = rc_pair(target);
        if one.qp.capacity().inline == 0 {
            return skip(target, "no inline data");
        }
        two.receive(1, 0..64);
        let mut bytes = *b"inline";
        one.qp.post_send(&[SendRequest::inline(9, Operation::Send, &bytes).signaled()]).unwrap();
        bytes.fill(0);
        assert_eq!((one.completion().wr_id, two.completion().len), (9, 6));
        assert_eq!(&two.bytes::<6>(0), b"inline");
        let long = vec![0; one.qp.capacity().inline as usize + 1];
        let request = SendRequest::inline(1, Operation::Send, &long);
        refuses(one.qp.post_send(&[request]), ErrorKind::InvalidInput, EINVAL, "inline bytes");
    });
}

#[test]
fn remote_memory_is_written_and_read() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = rc_pair(target);
        let long: Vec<u8> = (0..30_000).map(|i| (i % 251) as u8).collect();
        one.memory.write(0, &long).unwrap();
        one.send(1, Operation::Write(two.remote(1000)), 0..long.len());
        assert_eq!(one.completion().status, Status::Success);
        let mut back = vec![0; long.len()];
        two.memory.read(1000, &mut back).unwrap();
        assert!(back == long, "what was written is there");
        two.receive(7, 0..1);
        one.send(2, Operation::WriteImmediate(two.remote(0), 0x55), 10..20);
        assert_eq!(one.completion().wr_id, 2);
        let noticed = two.completion();
        assert_eq!((noticed.wr_id, noticed.immediate), (7, 0x55_u32.to_be()));
        assert_eq!(two.bytes::<10>(0), one.bytes::<10>(10));
        one.send(3, Operation::Read(two.remote(1001)), 40_000..50_000);
        assert_eq!(one.completion().status, Status::Success);
        let mut read = vec![0; 10_000];
        one.memory.read(40_000, &mut read).unwrap();
        assert!(read == long[1..10_001], "what was read is what was written");
    });
}

#[test]
fn atomic_operations_give_the_old_value() {
    on_every_connecting_device(|target| {
        let (mut one, two) = rc_pair(target);
        two.memory.write(64, &40_u64.to_ne_bytes()).unwrap();
        let remote = two.remote(64);
        one.send(1, Operation::FetchAdd { remote, add: 2 }, 0..8);
        one.send(2, Operation::CompareSwap { remote, compare: 42, swap: 7 }, 8..16);
        one.send(3, Operation::CompareSwap { remote, compare: 42, swap: 8 }, 16..24);
        for _ in 0..3 {
            assert_eq!(one.completion().status, Status::Success);
        }
        let old = [0, 8, 16].map(|offset| u64::from_ne_bytes(one.bytes(offset)));
        assert_eq!(old, [40, 42, 7]);
        assert_eq!(u64::from_ne_bytes(two.bytes(64)), 7);
    });
}

#[test]
fn requests_complete_in_their_order_and_only_the_signaled() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = rc_pair(target);
        (0..4).for_each(|i| two.receive(i, 0..8));
        let segments = [one.memory.segment(0..8).unwrap()];
        let request = |wr_id| SendRequest::new(wr_id, Operation::Send, &segments);
        one.qp.post_send(&[request(1), request(2).signaled(), request(3), request(4).signaled()]).unwrap();
        assert_eq!((one.completion().wr_id, one.completion().wr_id), (2, 4));
        assert_eq!((0..4).map(|_| two.completion().wr_id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(one.cq.poll(&mut Completion::batch::<4>()), 0);
    });
}

#[test]
fn a_wrong_key_is_a_remote_access_error_and_the_rest_is_flushed() {
    on_every_connecting_device(|target| {
        let (mut one, two) = rc_pair(target);
        let wrong = Remote { rkey: two.memory.rkey() ^ 0xff00, ..two.remote(0) };
        one.send(1, Operation::Write(wrong), 0..8);
        assert_eq!(one.completion().status, Status::RemoteAccess);
        one.send(2, Operation::Send, 0..8);
        one.receive(3, 0..8);
        one.qp.to_error().unwrap();
        let mut rest = [one.completion(), one.completion()].map(|c| (c.wr_id, c.status));
        rest.sort_by_key(|(wr_id, _)| *wr_id);
        assert_eq!(rest, [(2, Status::Flushed), (3, Status::Flushed)]);
        assert_eq!(one.qp.state().unwrap(), QpState::Error);
    });
}

#[test]
fn memory_without_the_right_is_a_remote_access_error() {
    on_every_connecting_device(|target| {
        let (mut one, two) = rc_pair(target);
        let local_only = two.pd.register(64, AccessFlags::LOCAL_WRITE).unwrap();
        let remote = Remote { address: local_only.address(), rkey: local_only.rkey() };
        one.send(1, Operation::Write(remote), 0..8);
        assert_eq!(one.completion().status, Status::RemoteAccess);
    });
}

#[test]
fn without_a_receive_the_sender_gives_up_when_it_was_told_to() {
    on_every_connecting_device(|target| {
        let (mut one, _two) =
            rc_pair_with(target, |options| (options.rnr_retries, options.rnr_timer) = (0, 1));
        one.send(1, Operation::Send, 0..8);
        assert_eq!(one.completion().status, Status::RnrRetryExceeded);
    });
}

#[test]
fn a_receive_too_small_is_an_error_on_both_sides() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = rc_pair(target);
        two.receive(1, 0..4);
        one.send(2, Operation::Send, 0..8);
        // rxe treats this differently (RESPST_ERR_MALFORMED_WQE, rxe_resp.c, Linux 6.1).
        let expected = match target.device.driver() {
            "rxe" => (Status::RemoteOperation, Status::LocalQpOperation),
            _ => (Status::RemoteInvalidRequest, Status::LocalLength),
        };
        assert_eq!((one.completion().status, two.completion().status), expected);
    });
}

#[test]
fn an_unreliable_connection_carries_messages_and_writes() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let make = |pd: &ProtectionDomain, cq: &CompletionQueue| pd.uc(cq).create().unwrap();
        let (mut one, mut two) = (Side::<Uc>::new(&context, make), Side::<Uc>::new(&context, make));
        let options = options(&context);
        let (a, b) = (one.qp.endpoint(&options, 1).unwrap(), two.qp.endpoint(&options, 2).unwrap());
        one.qp.connect(&options, &a, &b).unwrap();
        two.qp.connect(&options, &b, &a).unwrap();
        two.receive(1, 0..16);
        two.receive(2, 16..32);
        one.memory.write(0, b"unreliable").unwrap();
        one.send(1, UcOperation::Send, 0..10);
        one.send(2, UcOperation::WriteImmediate(two.remote(100), 3), 0..10);
        assert_eq!((one.completion().status, one.completion().status), (Status::Success, Status::Success));
        assert_eq!((two.completion().wr_id, two.completion().wr_id), (1, 2));
        assert_eq!((&two.bytes::<10>(0), &two.bytes::<10>(100)), (b"unreliable", b"unreliable"));
    });
}

#[test]
fn datagrams_come_after_a_routing_header_and_need_the_key() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let make = |pd: &ProtectionDomain, cq: &CompletionQueue| pd.ud(cq).create().unwrap();
        let (mut one, mut two) = (Side::<Ud>::new(&context, make), Side::<Ud>::new(&context, make));
        let options = options(&context);
        one.qp.activate(&options, 0x1111_1111, 0).unwrap();
        two.qp.activate(&options, 0x2222_2222, 0).unwrap();
        two.receive(1, 0..1000);
        let endpoint = two.qp.endpoint(&options, 0).unwrap();
        let to = one.pd.create_ah(&options.route(&endpoint)).unwrap();
        let datagram =
            |qkey, number| Datagram { to: &to, qp_num: endpoint.qp_num, qkey, immediate: Some(number) };
        one.memory.write(0, b"datagram").unwrap();
        one.send(1, datagram(0x3333_3333, 1), 0..8);
        one.send(2, datagram(0x2222_2222, 2), 0..8);
        assert_eq!((one.completion().status, one.completion().status), (Status::Success, Status::Success));
        let got = two.completion();
        assert_eq!(
            (got.wr_id, got.len, got.immediate),
            (1, 48, 2_u32.to_be()),
            "the one with the wrong key is gone"
        );
        assert!(got.flags.contains(WcFlags::GRH));
        assert_eq!(&two.bytes::<8>(40), b"datagram");
    });
}

#[test]
fn a_datagram_is_answered_by_its_header() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let make = |pd: &ProtectionDomain, cq: &CompletionQueue| pd.ud(cq).create().unwrap();
        let (mut one, mut two) = (Side::<Ud>::new(&context, make), Side::<Ud>::new(&context, make));
        let options = options(&context);
        one.qp.activate(&options, 1, 0).unwrap();
        two.qp.activate(&options, 2, 0).unwrap();
        one.receive(1, 0..100);
        two.receive(2, 0..100);
        let endpoint = two.qp.endpoint(&options, 0).unwrap();
        let to = one.pd.create_ah(&options.route(&endpoint)).unwrap();
        let ask = Datagram { to: &to, qp_num: endpoint.qp_num, qkey: 2, immediate: None };
        one.send(3, ask, 200..204);
        assert_eq!(one.completion().wr_id, 3);
        let asked = two.completion();
        assert_eq!((asked.wr_id, asked.source_qp), (2, one.qp.number()));
        let route = Route::back(1, &context.gid_table().unwrap(), &two.bytes(0)).unwrap();
        assert_eq!((route.gid, route.gid_index), (endpoint.gid, options.gid_index));
        // On Ethernet there is none.
        let route = Route { lid: asked.source_lid(), ..route };
        let back = two.pd.create_ah(&route).unwrap();
        two.memory.write(200, b"answer").unwrap();
        two.send(4, Datagram { to: &back, qp_num: asked.source_qp, qkey: 1, immediate: None }, 200..206);
        assert_eq!((two.completion().wr_id, one.completion().wr_id), (4, 1));
        assert_eq!(&one.bytes::<6>(40), b"answer");
    });
}

#[test]
fn a_refused_step_names_what_is_missing_and_what_is_not_allowed() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let make = |pd: &ProtectionDomain, cq: &CompletionQueue| pd.rc(cq).create().unwrap();
        let mut side = Side::<Rc>::new(&context, make);
        let step = |side: &mut Side<Rc>, attributes: Attributes, words: &str| {
            refuses(side.qp.modify(&attributes), ErrorKind::InvalidInput, EINVAL, words);
        };
        step(&mut side, Attributes::to(QpState::Init).port(1), "missing: access_flags, pkey_index");
        step(&mut side, Attributes::to(QpState::ReadyToSend), "no transition from Reset to ReadyToSend");
        let init = Attributes::to(QpState::Init).port(1).pkey_index(0).access(AccessFlags::empty());
        step(&mut side, init.qkey(1), "not allowed: qkey");
        assert_eq!(side.qp.state().unwrap(), QpState::Reset);
        side.qp.modify(&init).unwrap();
        assert_eq!(side.qp.state().unwrap(), QpState::Init);
        step(&mut side, Attributes::to(QpState::ReadyToReceive), "missing: av, path_mtu, rq_psn");
        side.qp.reset().unwrap();
        assert_eq!(side.qp.state().unwrap(), QpState::Reset);
    });
}

#[test]
fn a_queue_pair_with_room_for_nothing_takes_nothing() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let make = |pd: &ProtectionDomain, cq: &CompletionQueue| {
            pd.rc(cq).send_depth(0).receive_depth(0).inline(8).create().unwrap()
        };
        let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
        connect(&context, &mut one.qp, &mut two.qp);
        let received = one.qp.post_receive(&[ReceiveRequest::new(1, &[])]);
        let sent = one.qp.post_send(&[SendRequest::inline(2, Operation::Send, b"too much")]);
        for refused in [received, sent] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Exhausted);
        }
        assert_eq!((one.qp.capacity().sends, one.qp.capacity().receives), (0, 0));
    });
}

#[test]
fn an_address_handle_outlives_its_handle_while_it_is_posted() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let gid = context.gid(1, options(&context).gid_index.into()).unwrap().raw;
        let route = Route::new(1, options(&context).gid_index, gid);
        drop(pd.create_ah(&route).unwrap());
        let address = pd.create_ah(&route).unwrap();
        let (clone, error) = address.clone().destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop(clone);
        address.destroy().map_err(|(_, error)| error).unwrap();
        let wrong = Route { port: 9, ..route };
        assert_eq!(pd.create_ah(&wrong).unwrap_err().errno(), Some(EINVAL));
        pd.destroy().unwrap();
    });
}

#[test]
fn a_refused_request_holds_no_memory_and_one_in_flight_keeps_its_own() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = rc_pair(target);
        let [sent, filled, other] = [(); 3]
            .map(|()| one.pd.register(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ).unwrap());
        sent.write(0, b"in flight").unwrap();
        let (segments, others) = ([sent.segment(0..9).unwrap()], [other.segment(0..9).unwrap()]);
        let many = vec![others[0]; one.qp.capacity().send_segments as usize + 1];
        let send = |segments| SendRequest::new(1, Operation::Send, segments).signaled();
        // Refused halfway, although there is room.
        let refused = one.qp.post_send(&[send(&others), send(&others), send(&many)]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        // No queue pair receives yet.
        let mut count = 0;
        while one.qp.post_send(&[send(&segments)]).is_ok() {
            count += 1;
        }
        for list in [&[send(&others)][..], &[send(&others); 3]] {
            assert_eq!(one.qp.post_send(list).unwrap_err().kind(), ErrorKind::Exhausted);
        }
        // The same for receives, of another queue pair.
        let mut third = one.pd.rc(&one.cq).create().unwrap();
        third
            .modify(&Attributes::to(QpState::Init).port(1).pkey_index(0).access(AccessFlags::empty()))
            .unwrap();
        let room = [filled.segment(0..9).unwrap()];
        let many = vec![others[0]; third.capacity().receive_segments as usize + 1];
        let receive = |segments| ReceiveRequest::new(2, segments);
        assert!(third.post_receive(&[receive(&others), receive(&many)]).is_err());
        while third.post_receive(&[receive(&room)]).is_ok() {}
        assert_eq!(third.post_receive(&[receive(&others)]).unwrap_err().kind(), ErrorKind::Exhausted);

        other.destroy().map_err(|(_, error)| error).unwrap();
        for held in [sent, filled] {
            assert_eq!(held.destroy().unwrap_err().1.kind(), ErrorKind::Busy);
        }
        for wr_id in 0..count {
            two.memory.write(0, &[0; 9]).unwrap();
            two.receive(wr_id, 0..9);
            assert_eq!(
                (two.completion().status, one.completion().status),
                (Status::Success, Status::Success)
            );
            assert_eq!(&two.bytes::<9>(0), b"in flight");
        }
    });
}

#[test]
fn an_endpoint_is_read_as_it_is_written() {
    let endpoint = Endpoint { lid: 0xab, qp_num: 0x12_3456, psn: 1, gid: *b"0123456789abcdef" };
    assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
    for wrong in
        ["", "0000", "0000:000011:37a5f0:0000", "0000:+00011:37a5f0:00000000000000000000ffffc0000201"]
    {
        assert_eq!(wrong.parse::<Endpoint>().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn what_is_refused_when_it_is_posted_needs_nothing() {
    on_every_connecting_device(|target| {
        let Scene { two, region, mut window, .. } = Scene::new(target, WindowType::One);
        let memory = two.pd.register(64, ALL).unwrap();
        let mut fresh = two.pd.rc(&two.cq).create().unwrap();
        {
            let segments = [memory.segment(0..8).unwrap()];
            let request = SendRequest::new(1, Operation::Send, &segments);
            for requests in [vec![request], vec![request; 3], vec![]] {
                let posted = fresh.post_send(&requests);
                if !requests.is_empty() {
                    refuses(posted, ErrorKind::InvalidInput, EINVAL, "not ready");
                }
            }
        }
        memory.destroy().map_err(|(_, error)| error).expect("no request has it");
        let bound = fresh.bind(&mut window, Bind::new(1, &region, 0..8));
        refuses(bound, ErrorKind::InvalidInput, EINVAL, "not ready");
        region.destroy().map_err(|(_, error)| error).expect("no request has it");
    });
}

/// rxe would read the destination of the response from the bytes.
#[test]
fn what_comes_back_needs_registered_memory() {
    on_every_connecting_device(|target| {
        let (mut one, two) = rc_pair(target);
        let remote = two.remote(0);
        let answered = [
            Operation::Read(remote),
            Operation::CompareSwap { remote, compare: 0, swap: 1 },
            Operation::FetchAdd { remote, add: 1 },
        ];
        for operation in answered {
            let whole = SendRequest::inline(1, Operation::Write(remote), &[7; 8]);
            let request = SendRequest::inline(2, operation, &[0; 8]);
            for requests in [&[request][..], &[whole, request], &[request, whole]] {
                refuses(one.qp.post_send(requests), ErrorKind::InvalidInput, EINVAL, "registered memory");
            }
        }
        one.send(3, Operation::Read(remote), 0..8);
        assert_eq!((one.completion().wr_id, one.bytes(0)), (3, [0; 8]), "nothing was posted before");
    });
}

#[test]
fn events_go_with_their_queue_pair() {
    on_every_connecting_device(|target| {
        for waits in [true, false] {
            let context = target.open();
            let mut side = Side::new(&context, |pd, cq| pd.rc(cq).cookie(0xe7).create().unwrap());
            let own = side.qp.endpoint(&options(&context), 0).unwrap();
            side.qp.connect(&options(&context), &own, &own).unwrap();
            let drained = side.qp.modify(&Attributes::to(QpState::SendQueueDrain));
            if target.device.driver() == "mlx5" {
                assert_eq!(drained.unwrap_err().kind(), ErrorKind::InvalidInput);
                return skip(
                    target,
                    "mlx5 has no way to drain a send queue by a state (qp.c, Linux 6.1 and 7.3)",
                );
            }
            drained.unwrap();
            let about = Subject::QueuePair(0xe7);
            if waits {
                assert_eq!(event_about(&context, about), EventKind::SqDrained);
            }
            side.qp.destroy().map_err(|(_, error)| error).unwrap();
            no_event_about(&context, about);
        }
    });
}
