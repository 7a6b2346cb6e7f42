//! Objects, requests, completions and events: refused in a child, and those of the parent are unchanged.

use std::time::Duration;

use uverbs::{
    AccessFlags, Bind, Completion, CompletionCounter, ConnectionOptions, Counted, Datagram, Operation,
    Prefetch, Progress, QpState, Rc, ReceiveRequest, Route, SendRequest, Status, WaitObject, WaitSet,
    WindowType, XrcOpen,
};

use super::*;

const GROUP: [u8; 16] = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
const NOW: Option<Duration> = Some(Duration::ZERO);

pub(crate) fn connected() {
    // What is made here, other devices do not have together.
    on_every_connecting_device_with("datagrams", datagrams, |target| {
        let (mut one, mut two) = rc_pair(target);
        let context = one.pd.context().clone();
        two.receive(1, 0..8);
        two.receive(2, 8..16);
        one.send(1, Operation::Send, 0..8);
        assert_eq!(one.completion().status, Status::Success);
        let srq = one.pd.create_srq(8).unwrap();
        let channel = context.create_comp_channel().unwrap();
        let announced = context.cq(8).channel(&channel).cookie(7).create().unwrap();
        announced.notify(false).unwrap();
        let mut flushed = one.pd.ud(&announced).create().unwrap();
        flushed.activate(&options(&context), 0x11, 0).unwrap();
        flushed.post_receive(&[ReceiveRequest::new(3, &[])]).unwrap();
        let window = one.pd.alloc_window(WindowType::Two).unwrap();
        let windowed = one.pd.register(64, ALL | AccessFlags::MW_BIND).unwrap();
        // Only devices with on-demand paging have such a region.
        let paged = one.pd.register(64, AccessFlags::LOCAL_WRITE | AccessFlags::ON_DEMAND).ok();
        let mut ud = one.pd.ud(&one.cq).create().unwrap();
        ud.activate(&options(&context), 0x11, 0).unwrap();
        let lid = group_lid(&context);
        let membership = ud.join_multicast(&GROUP, lid).unwrap();
        let gid = context.gid(1, options(&context).gid_index.into()).unwrap();
        let ah = one.pd.create_ah(&Route::new(1, gid.index as u8, gid.raw)).unwrap();

        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                // The context, and objects that are created from it.
                gone(context.alloc_pd());
                gone(context.create_cq(4));
                gone(context.create_comp_channel());
                gone(context.create_counters());
                gone(context.query_device());
                gone(context.query_port(1));
                gone(context.gid(1, 0));
                gone(context.gid_table());
                gone(context.has_flows());
                gone(context.next_event());
                gone(one.pd.register(8, ALL));
                paged.iter().for_each(|region| gone(region.prefetch(.., Prefetch::Read)));
                gone(one.pd.alloc_window(WindowType::One));
                gone(one.pd.create_srq(8));
                gone(one.pd.rc(&one.cq).create());
                gone(one.pd.ud(&one.cq).create());
                gone(one.pd.create_ah(&Route::new(1, 0, gid.raw)));
                // Requests.
                let segments = [one.memory.segment(0..8).unwrap()];
                gone(one.qp.post_send(&[SendRequest::new(9, Operation::Send, &segments)]));
                gone(two.qp.post_receive(&[]));
                let datagram = Datagram { to: &ah, qp_num: 1, qkey: 0x11, immediate: None };
                gone(ud.post_send(&[SendRequest::new(9, datagram, &segments)]));
                let (mut window, mut srq) = (window, srq);
                gone(one.qp.bind(&mut window, Bind::new(9, &windowed, 0..8)));
                gone(srq.post_receive(&[]));
                // Queues and queue pairs.
                gone(one.qp.to_error());
                gone(one.qp.state());
                gone(one.qp.reset());
                gone(one.qp.endpoint(&ConnectionOptions::new(1, 0), 1));
                gone(ud.join_multicast(&GROUP, lid));
                gone(srq.arm(1));
                gone(srq.query());
                gone(srq.resize(16));
                let (cq, mut announced) = (one.cq, announced);
                gone(cq.notify(false));
                gone(cq.moderate(1, 1));
                gone(announced.resize(32));
                assert_eq!(two.cq.poll(&mut Completion::batch::<4>()), 0);
                assert_eq!(two.cq.progress(), 0);
                gone(channel.next_event());
                gone(channel.wait(NOW));
                // Each destroy returns success, and destroys nothing.
                one.qp.destroy().map_err(|(_, error)| error).unwrap();
                membership.leave().map_err(|(_, error)| error).unwrap();
                ud.destroy().map_err(|(_, error)| error).unwrap();
                window.destroy().map_err(|(_, error)| error).unwrap();
                srq.destroy().map_err(|(_, error)| error).unwrap();
                flushed.destroy().map_err(|(_, error)| error).unwrap();
                drop((one.memory, paged, one.pd, two, ah, announced, cq, channel));
                // A device that is opened here belongs to the child, and the parent's still belongs to the parent.
                let own = own(target);
                gone(context.alloc_pd());
                drop((own, context));
            });
        }

        assert_eq!(two.completion().wr_id, 1, "the child has not taken it");
        one.send(2, Operation::Send, 0..8);
        assert_eq!((one.completion().wr_id, two.completion().wr_id), (2, 2));
        assert_eq!(one.qp.state().unwrap(), QpState::ReadyToSend);
        assert_eq!(ud.state().unwrap(), QpState::ReadyToSend);
        flushed.to_error().unwrap();
        assert!(channel.wait(Some(Duration::from_secs(20))).unwrap(), "the child has not taken the event");
        assert_eq!(channel.next_event().unwrap(), Some(7));
        srq.query().unwrap();
        membership.leave().map_err(|(_, error)| error).unwrap();
        window.destroy().map_err(|(_, error)| error).unwrap();
        flushed.destroy().map_err(|(_, error)| error).unwrap();
        srq.destroy().map_err(|(_, error)| error).unwrap();
        announced.destroy().map_err(|(_, error)| error).unwrap();
        drop(ah);
    });
}

pub(crate) fn extended() {
    on_every_extended_device(|target| {
        let Extended { mut here, mut there, queues, domain, context } = Extended::new(target);
        let [mut queue, other] = queues;
        let (number, options) = (queue.number(), options(&context));
        queue.post(1);

        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                gone(context.open_xrcd());
                let file = std::fs::File::open("/dev/null").unwrap();
                gone(context.open_xrcd_of(&file, XrcOpen::Create));
                gone(domain.receive_qp().create());
                gone(domain.open_receive_qp(there.number()));
                gone(domain.srq(&queue.pd, &queue.cq, 4).create());
                gone(here.pd.xrc_send(&here.cq).create());
                let message = SendRequest::inline(9, Operation::Send.to_srq(number), b"child");
                gone(here.qp.post_send(&[message]));
                gone(here.qp.post_receive(&[]));
                gone(queue.srq.post_receive(&[]));
                gone(queue.srq.query());
                gone(there.state());
                gone(there.to_error());
                gone(there.endpoint(&options, 1));
                queue.nothing();
                // Each destroy returns success, and destroys nothing.
                there.destroy().map_err(|(_, error)| error).unwrap();
                here.qp.destroy().map_err(|(_, error)| error).unwrap();
                queue.srq.destroy().map_err(|(_, error)| error).unwrap();
                drop(other);
                domain.destroy().map_err(|(_, error)| error).unwrap();
                drop((own(target), context));
            });
        }

        assert_eq!(there.state().unwrap(), QpState::ReadyToReceive);
        let message = SendRequest::inline(1, Operation::Send.to_srq(number), b"parent").signaled();
        here.qp.post_send(&[message]).unwrap();
        assert_eq!(here.completion().status, Status::Success);
        assert_eq!((queue.completion().wr_id, &queue.bytes::<6>(64)), (1, b"parent"));
        there.destroy().map_err(|(_, error)| error).unwrap();
        drop((queue, other));
        domain.destroy().map_err(|(_, error)| error).unwrap();
    });
}

pub(crate) fn completion_counters() {
    on_every_connecting_device(|target| {
        let (mut one, mut two) = (counted(target), counted(target));
        let set = WaitSet::new();
        let [file, pair] = [WaitObject::FileDescriptor, WaitObject::MutexCondvar]
            .map(|object| CompletionCounter::new(object).unwrap());
        let in_set = CompletionCounter::new(WaitObject::Set(set.clone())).unwrap();
        file.add(3).unwrap();
        file.arm(4).unwrap();
        let context = target.open();
        let channel = context.create_comp_channel().unwrap();
        let cq = context.cq(8).channel(&channel).create().unwrap();
        let progress = Progress::start(cq, drop).unwrap();
        let asked = CompletionCounter::new(WaitObject::Unspecified).unwrap();
        let wait = asked.wait_async(1);

        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                assert_eq!((file.read(), file.read_err()), (3, 0), "what it had");
                for counter in [&file, &pair, &in_set, &one.1] {
                    // The copy, which notifies no waiter.
                    counter.set(8).unwrap();
                    counter.add(1).unwrap();
                    assert_eq!(counter.read(), 9);
                    gone(counter.add_err(1));
                    gone(counter.set_err(9));
                    gone(counter.wait(10, NOW));
                    gone(counter.wait_since(0, 0, NOW));
                    gone(counter.arm(9));
                    gone(counter.wait_handle());
                }
                gone(set.wait(NOW));
                gone(one.0.qp.bind_counter(&file, Counted::RECEIVE));
                gone(one.0.cq.progress_until(&file, 9, NOW));
                drop(wait);
                gone(progress.stop());
                drop((file, pair, in_set, set, one, two));
            });
        }

        drop(wait);
        // The parent's thread was not told to end, and ends now.
        progress.stop().unwrap();
        assert!(file.wait(4, NOW).is_err(), "nobody has added");
        file.add(1).unwrap();
        file.wait(4, NOW).unwrap();
        for (side, counter) in [&mut one, &mut two] {
            assert_eq!((side.cq.progress(), counter.read()), (0, 0));
        }
    });
}

/// A side whose sends are counted.
fn counted(target: &Target) -> (Side<Rc>, CompletionCounter) {
    let mut side = Side::new(&target.open(), |pd, cq| pd.rc(cq).create().unwrap());
    let counter = CompletionCounter::new(WaitObject::Unspecified).unwrap();
    side.qp.bind_counter(&counter, Counted::SEND).unwrap();
    (side, counter)
}
