//! Messages, remote memory and datagrams between two queue pairs of one device.

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use uverbs::{
    AccessFlags, Attributes, Bind, CompletionQueue, ConnectionLimits, Context, Datagram, Endpoint, ErrorKind,
    EventKind, Operation, ProtectionDomain, QpAttrMask, QpState, Rc, ReceiveRequest, Route, SendRequest,
    Status, Subject, Ud, WindowType,
};

#[test]
fn a_message_arrives_with_its_number() {
    hold(each::connected::a_message_arrives_with_its_number);
}

/// As two programs do that exchange what they have, and as one does that knows nothing of the other.
#[test]
fn both_sides_use_what_both_have() {
    on_every_connecting_device(|target| {
        if target.device.driver() == "erdma" {
            return skip(
                target,
                "its driver keeps neither the number of reads nor the MTU (erdma_verbs.c, Linux 7.3)",
            );
        }
        if target.device.driver() == "mana" {
            return skip(target, "its driver does not return attributes (device.c, Linux 7.3)");
        }
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
    hold(each::connected::inline_bytes_are_copied_when_they_are_posted);
}

#[test]
fn remote_memory_is_written_and_read() {
    hold(each::connected::remote_memory_is_written_and_read);
}

#[test]
fn atomic_operations_give_the_old_value() {
    hold(each::connected::atomic_operations_give_the_old_value);
}

#[test]
fn requests_complete_in_their_order_and_only_the_signaled() {
    hold(each::connected::requests_complete_in_their_order_and_only_the_signaled);
}

#[test]
fn a_wrong_key_is_a_remote_access_error_and_the_rest_is_flushed() {
    hold(each::failures::a_wrong_key_is_a_remote_access_error_and_the_rest_is_flushed);
}

#[test]
fn memory_without_the_right_is_a_remote_access_error() {
    hold(each::failures::memory_without_the_right_is_a_remote_access_error);
}

#[test]
fn without_a_receive_the_sender_gives_up_when_it_was_told_to() {
    hold(each::failures::without_a_receive_the_sender_gives_up_when_it_was_told_to);
}

#[test]
fn a_receive_too_small_is_an_error_on_both_sides() {
    hold(each::failures::a_receive_too_small_is_an_error_on_both_sides);
}

#[test]
fn an_unreliable_connection_carries_messages_and_writes() {
    hold(each::connected::an_unreliable_connection_carries_messages_and_writes);
}

#[test]
fn datagrams_come_after_a_routing_header_and_need_the_key() {
    hold(each::connected::datagrams_come_after_a_routing_header_and_need_the_key);
}

#[test]
fn a_datagram_is_answered_by_its_header() {
    on_every_connecting_device_with("datagrams", datagrams, |target| {
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
        if target.device.driver() == "mana" {
            return skip(
                target,
                "its driver leaves the steps to the device (`mana_ib_modify_qp`, qp.c, Linux 7.3)",
            );
        }
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
        let has_inline = target.device.driver() != "mana";
        let make = |pd: &ProtectionDomain, cq: &CompletionQueue| {
            let builder = pd.rc(cq).send_depth(0).receive_depth(0);
            builder.inline(if has_inline { 8 } else { 0 }).create().unwrap()
        };
        let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
        connect(&context, &mut one.qp, &mut two.qp);
        let received = one.qp.post_receive(&[ReceiveRequest::new(1, &[])]);
        let request = match has_inline {
            true => SendRequest::inline(2, Operation::Send, b"too much"),
            false => SendRequest::new(2, Operation::Send, &[]),
        };
        let sent = one.qp.post_send(&[request]);
        for refused in [received, sent] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Exhausted);
        }
        assert_eq!((one.qp.capacity().sends, one.qp.capacity().receives), (0, 0));
    });
}

#[test]
fn an_address_handle_outlives_its_handle_while_it_is_posted() {
    on_every_connecting_device_with("datagrams", datagrams, |target| {
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
    let make = |context: &Context| context.alloc_pd()?.alloc_window(WindowType::One);
    on_every_connecting_device_with("memory windows", make, |target| {
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
        if one.qp.capacity().inline == 0 {
            return skip(target, "it has no inline data");
        }
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
            if target.device.driver() == "mana" {
                return skip(target, "its device (a model) has no state of a drained queue");
            }
            drained.unwrap();
            if target.device.driver() == "erdma" {
                return skip(target, "its driver has no event for a drained queue (erdma_eq.c, Linux 7.3)");
            }
            let about = Subject::QueuePair(0xe7);
            if waits {
                assert_eq!(event_about(&context, about), EventKind::SqDrained);
            }
            side.qp.destroy().map_err(|(_, error)| error).unwrap();
            no_event_about(&context, about);
        }
    });
}
