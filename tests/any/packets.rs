//! Frames sent and received through the rings.

use std::time::Duration;

use crate::common::*;
use uverbs::transport::Fault;
use uverbs::{Completion, ErrorKind, Eth, FlowRule, FlowTag, QpState, ReceiveRequest, SendRequest, Status};

fn for_mac() -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst(MAC))
}

#[test]
fn a_frame_arrives_whole_and_in_order() {
    on_every_wire(|_, wire, mut raw| {
        let _flow = raw.qp.create_flow(&for_mac()).unwrap();
        raw.post_receives(4);
        let frames: Vec<_> = (0..3).map(|i| frame(MAC, 60 + i * 333)).collect();
        for frame in &frames {
            wire.inject(frame);
        }
        let completions = raw.completions();
        assert_eq!(completions.len(), 3);
        for (slot, (completion, sent)) in completions.iter().zip(&frames).enumerate() {
            assert_eq!(completion.status, Status::Success);
            assert!(completion.is_receive());
            assert_eq!((completion.wr_id, completion.len as usize), (slot as u64, sent.len()));
            assert_eq!(completion.qp_num, raw.qp.number());
            let mut got = vec![0; sent.len()];
            raw.memory.read(slot * SLOT, &mut got).unwrap();
            assert_eq!(&got, sent);
        }
    });
}

#[test]
fn frames_go_from_one_queue_pair_to_another() {
    on_every_wire(|target, wire, mut receiver| {
        wire.plug();
        let counters = packets_and_bytes(&receiver.context);
        let _flow = receiver.qp.create_flow(&for_mac().count(&counters)).unwrap();
        receiver.post_receives(8);
        let mut sender = Raw::new(&target.open());
        for len in [60, 1000, 1514] {
            sender.send(&frame(MAC, len));
        }
        let sent = sender.await_completions(3);
        assert!(sent.iter().all(|c| c.status == Status::Success && !c.is_receive() && c.wr_id == 99));
        assert_eq!(receiver.await_completions(3).iter().map(|c| c.len).collect::<Vec<_>>(), [60, 1000, 1514]);
        assert_eq!(read2(&counters), [3, 60 + 1000 + 1514]);
    });
}

#[test]
fn frames_go_both_ways_by_registers_that_the_kernel_made_with_the_context() {
    on_every_wire(|target, wire, _| {
        // A driver that creates registers as objects gets that command first; a driver without it refuses.
        let Ok(context) = target.device.open_with(Fault::new(1, EINVAL)) else {
            return skip(target, "its driver has no registers, or is asked for a context in one way only");
        };
        let registers = || target.control.as_ref().map(|control| control.commands("ALLOC_UAR"));
        let before = registers();
        let mut raws = [Raw::new(&context), Raw::new(&context)];
        assert_eq!(registers(), before, "no others are made");
        wire.plug();
        let counters = packets_and_bytes(&context);
        for (raw, last) in raws.iter_mut().zip(1..) {
            let _flow = raw.qp.create_flow(&for_mac().count(&counters)).unwrap();
            let channel = context.create_comp_channel().unwrap();
            let mut cq = context.cq(4).channel(&channel).cookie(last).create().unwrap();
            let mut sender = raw.pd.raw_packet(&cq).connect(1).unwrap();
            raw.post_receives(2);
            cq.notify(false).unwrap();
            let segments = [raw.memory.segment(31 * SLOT..31 * SLOT + 100).unwrap()];
            raw.memory.write(31 * SLOT, &frame(MAC, 100)).unwrap();
            sender.post_send(&[SendRequest::frame(last, &segments).signaled()]).unwrap();
            assert!(channel.wait(Some(Duration::from_secs(20))).unwrap());
            assert_eq!(channel.next_event().unwrap(), Some(last));
            let mut sent = Completion::batch::<2>();
            assert_eq!((cq.poll(&mut sent), sent[0].wr_id, sent[0].status), (1, last, Status::Success));
            assert_eq!(raw.await_completions(1)[0].len, 100);
            assert_eq!(read2(&counters), [last, 100 * last]);
        }
    });
}

#[test]
fn a_batch_with_a_frame_too_short_for_the_device_leaves_nothing_posted() {
    on_every_wire(|target, wire, mut raw| {
        wire.plug();
        let counters = packets_and_bytes(&raw.context);
        let _flow = raw.qp.create_flow(&for_mac().count(&counters)).unwrap();
        raw.post_receives(4);
        let frame = frame(MAC, 60);
        raw.memory.write(31 * SLOT, &frame).unwrap();
        let segments = [60, 17].map(|len| [raw.memory.segment(31 * SLOT..31 * SLOT + len).unwrap()]);
        let batch = [1, 2].map(|wr_id| SendRequest::frame(wr_id, &segments[wr_id as usize - 1]).signaled());
        let posted = raw.qp.post_send(&batch);
        if posted.is_ok() {
            raw.await_completions(2);
            return skip(target, "it takes the head of a frame from memory");
        }
        refuses(posted, ErrorKind::InvalidInput, EINVAL, "17 given, at least 18");
        assert_eq!((raw.completions().len(), read2(&counters)), (0, [0, 0]));
        raw.send(&frame);
        let completions = raw.await_completions(2);
        assert!(completions.iter().any(|completion| completion.wr_id == 99));
        assert_eq!(read2(&counters), [1, 60]);
    });
}

#[test]
fn a_batch_of_several_segments_has_one_doorbell() {
    on_every_wire(|target, wire, mut receiver| {
        wire.plug();
        let _flow = receiver.qp.create_flow(&for_mac()).unwrap();
        receiver.post_receives(8);
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(8).unwrap();
        let mut qp = pd.raw_packet(&cq).segments(3).connect(1).unwrap();
        let memory = pd.register(200, uverbs::AccessFlags::empty()).unwrap();
        memory.write(0, &frame(MAC, 200)).unwrap();
        let segments = [
            memory.segment(0..14).unwrap(),
            memory.segment(14..15).unwrap(),
            memory.segment(15..200).unwrap(),
        ];
        let request = |wr_id| SendRequest::frame(wr_id, &segments);
        qp.post_send(&[request(1), request(2), request(3).signaled()]).unwrap();
        let got = receiver.await_completions(3);
        assert_eq!(got.iter().map(|c| c.len).collect::<Vec<_>>(), [200, 200, 200]);
        let mut bytes = [0; 200];
        receiver.memory.read(SLOT, &mut bytes).unwrap();
        assert_eq!(bytes[..], frame(MAC, 200)[..]);
    });
}

#[test]
fn a_frame_without_a_receive_is_counted_but_not_delivered() {
    on_every_wire(|_, wire, mut raw| {
        let counters = packets_and_bytes(&raw.context);
        let _flow = raw.qp.create_flow(&for_mac().count(&counters)).unwrap();
        raw.post_receives(1);
        for _ in 0..3 {
            wire.inject(&frame(MAC, 60));
        }
        assert_eq!(raw.completions().len(), 1);
        assert_eq!(read2(&counters), [3, 180]);
    });
}

#[test]
fn a_dropping_rule_counts_and_delivers_nothing() {
    on_every_wire(|_, wire, mut raw| {
        let counters = packets_and_bytes(&raw.context);
        let _flow = raw.qp.create_flow(&for_mac().count(&counters).drop()).unwrap();
        raw.post_receives(1);
        wire.inject(&frame(MAC, 60));
        assert_eq!(raw.completions().len(), 0);
        assert_eq!(read2(&counters), [1, 60]);
    });
}

#[test]
fn a_tag_comes_with_the_completion() {
    on_every_wire(|_, wire, mut raw| {
        let tag = FlowTag::new(0xabcde).unwrap();
        let _flow = raw.qp.create_flow(&for_mac().tag(tag)).unwrap();
        raw.post_receives(1);
        wire.inject(&frame(MAC, 60));
        assert_eq!(raw.completions()[0].immediate, 0xabcde);
    });
}

#[test]
fn a_receive_too_small_for_its_frame_is_an_error_and_the_rest_is_flushed() {
    on_every_wire(|target, wire, mut raw| {
        let _flow = raw.qp.create_flow(&for_mac()).unwrap();
        let segments = [raw.memory.segment(0..100).unwrap()];
        let request = |wr_id| ReceiveRequest::new(wr_id, &segments);
        raw.qp.post_receive(&[request(1), request(2)]).unwrap();
        wire.inject(&frame(MAC, 101));
        let completions = raw.completions();
        let statuses: Vec<_> = completions.iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(statuses, [(1, Status::LocalLength), (2, Status::Flushed)]);
        assert_eq!(completions[0].ok().unwrap_err().to_string(), "local length error");
        if target.soft.is_some() {
            // Only the receive queue of a card is in the error state then, for which the kernel has no state: it logs a warning and
            // returns EINVAL (sqrq_state_to_qp_state, qp.c, Linux 6.1).
            assert_eq!(raw.qp.state().unwrap(), QpState::Error);
        }
    });
}

#[test]
fn a_queue_pair_in_error_flushes_and_comes_back_after_reset() {
    on_every_wire(|_, wire, mut raw| {
        let _flow = raw.qp.create_flow(&for_mac()).unwrap();
        raw.post_receives(3);
        raw.qp.to_error().unwrap();
        let flushed = raw.await_completions(3);
        assert_eq!(flushed.len(), 3);
        assert!(flushed.iter().all(|c| c.status == Status::Flushed));
        raw.qp.reset().unwrap();
        assert_eq!(raw.qp.state().unwrap(), QpState::Reset);
        raw.qp.bring_up(1).unwrap();
        raw.post_receives(1);
        wire.inject(&frame(MAC, 60));
        assert_eq!(raw.completions()[0].status, Status::Success);
    });
}

#[test]
fn queues_take_no_more_than_they_hold() {
    on_every_wire(|_, _, mut raw| {
        let segments = [raw.memory.segment(0..60).unwrap()];
        let depth = raw.qp.capacity().receives as usize;
        let request = ReceiveRequest::new(1, &segments);
        refuses(
            raw.qp.post_receive(&vec![request; depth + 1]),
            ErrorKind::Exhausted,
            ENOMEM,
            "nothing was posted",
        );
        raw.qp.post_receive(&vec![request; depth]).unwrap();
        refuses(raw.qp.post_receive(&[request]), ErrorKind::Exhausted, ENOMEM, "no room");
        let two = [segments[0], segments[0]];
        let request = SendRequest::frame(1, &two).signaled();
        refuses(
            raw.qp.post_send(&[request]),
            ErrorKind::InvalidInput,
            EINVAL,
            "2 given, at most 1 allowed; nothing was posted",
        );
        assert!(raw.completions().is_empty());
    });
}

#[test]
fn a_send_before_the_queue_pair_is_ready_changes_nothing() {
    on_every_wire(|_, _, mut raw| {
        raw.qp = raw.pd.raw_packet(&raw.cq).create().unwrap();
        let memory = raw.memory.clone();
        let segments = [memory.segment(0..64).unwrap()];
        let request = SendRequest::frame(5, &segments).signaled();
        refuses(raw.qp.post_send(&[request]), ErrorKind::InvalidInput, EINVAL, "not ready to send");
        raw.qp.bring_up(1).unwrap();
        assert!(raw.completions().is_empty());
        raw.qp.post_send(&[request]).unwrap();
        assert_eq!(raw.await_completions(1)[0].wr_id, 5);
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll")]
fn a_channel_announces_the_completion_that_was_asked_for() {
    on_every_wire(|target, wire, _| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let channel = context.create_comp_channel().unwrap();
        let mut cq = context.cq(16).channel(&channel).cookie(0x1234).create().unwrap();
        let mut qp = pd.raw_packet(&cq).connect(1).unwrap();
        let memory = pd.register(4096, uverbs::AccessFlags::LOCAL_WRITE).unwrap();
        let segments = [memory.segment(0..2048).unwrap()];
        let request = ReceiveRequest::new(0, &segments);
        qp.post_receive(&[request, request, request]).unwrap();
        let _flow = qp.create_flow(&for_mac()).unwrap();
        wire.inject(&frame(MAC, 60));
        assert_eq!(channel.next_event().unwrap(), None, "nobody asked");
        cq.notify(false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| wire.inject(&frame(MAC, 60)));
            assert!(channel.wait(Some(Duration::from_secs(10))).unwrap());
        });
        assert_eq!(channel.next_event().unwrap(), Some(0x1234));
        wire.inject(&frame(MAC, 60));
        assert_eq!(channel.next_event().unwrap(), None, "asked for once");
        assert_eq!(cq.poll(&mut uverbs::Completion::batch::<16>()), 3);
    });
}

#[test]
fn posted_memory_outlives_its_handle() {
    on_every_wire(|_, wire, mut raw| {
        let _flow = raw.qp.create_flow(&for_mac()).unwrap();
        let region = raw.pd.register(2048, uverbs::AccessFlags::LOCAL_WRITE).unwrap();
        let segments = [region.segment(0..2048).unwrap()];
        raw.qp.post_receive(&[ReceiveRequest::new(1, &segments)]).unwrap();
        let (region, error) = region.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop(region);
        wire.inject(&frame(MAC, 2000));
        assert_eq!(raw.completions()[0].status, Status::Success);
    });
}
