//! Offloads for frames: checksums and VLAN tags. On every device.

use std::time::Instant;

use crate::common::*;
use uverbs::abi::types::{RawPacketCaps, wc_opcode};
use uverbs::soft::Profile;
use uverbs::{
    AccessFlags, Completion, CompletionQueue, ErrorKind, Eth, FlowRule, ReceiveRequest, SendRequest, Status,
    WcFlags, WorkQueueState,
};

/// The tag that was removed.
fn vlan_of(completion: &Completion) -> Option<u16> {
    completion.flags.contains(WcFlags::WITH_VLAN).then_some(completion.vlan)
}

fn for_mac() -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst(MAC))
}

/// The sum of RFC 1071, inverted: zero over a part that contains a correct checksum.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 =
        words.map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| (*low).into())).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Whether the checksums of an IPv4 header and of its payload are correct.
fn checksums_of(frame: &[u8]) -> (bool, bool) {
    let (header, transport) = frame[14..].split_at(20);
    let len = (transport.len() as u16).to_be_bytes();
    let pseudo = [&header[12..20], &[0, header[9]], &len].concat();
    (checksum(&[header]) == 0, checksum(&[&pseudo, transport]) == 0)
}

#[test]
fn checksums_are_filled_in_by_devices_that_can() {
    on_every_wire(|target, wire, mut raw| {
        let caps = RawPacketCaps::from_bits_retain(raw.context.query_device().unwrap().raw_packet_caps);
        let frames = [true, false].map(|is_tcp| {
            packet(["10.1.2.3", "10.4.5.6"].map(|a| a.parse().unwrap()), [7, 9], is_tcp, b"odd")
        });
        raw.memory.write(31 * SLOT, &frames[0]).unwrap();
        let segments = [raw.memory.segment(31 * SLOT..31 * SLOT + frames[0].len()).unwrap()];
        let request = SendRequest::frame(1, &segments).checksums().signaled();
        if !caps.contains(RawPacketCaps::IP_CSUM) {
            refuses(raw.qp.post_send(&[request]), ErrorKind::Unsupported, EOPNOTSUPP, "checksums");
            assert_eq!(raw.completions(), [], "nothing was posted");
            return skip(target, "it does not fill in checksums");
        }
        wire.plug();
        let _flow = raw.qp.create_flow(&for_mac()).unwrap();
        raw.post_receives(4);
        for (slot, filled) in [false, true, false, true].into_iter().enumerate() {
            let sent = &frames[slot / 2];
            raw.memory.write(31 * SLOT, sent).unwrap();
            let segments = [raw.memory.segment(31 * SLOT..31 * SLOT + sent.len()).unwrap()];
            let request = SendRequest::frame(99, &segments).signaled();
            raw.qp.post_send(&[if filled { request.checksums() } else { request }]).unwrap();
            let completions = raw.await_completions(2);
            let got = completions.iter().find(|completion| completion.is_receive()).unwrap();
            let mut bytes = vec![0; sent.len()];
            raw.memory.read(slot * SLOT, &mut bytes).unwrap();
            assert_eq!(checksums_of(&bytes), (filled, filled), "slot {slot}");
            assert_eq!(got.flags.contains(WcFlags::IP_CSUM_OK), filled, "slot {slot}");
        }
    });
}

#[test]
fn a_large_send_is_cut_by_devices_that_can_and_every_frame_is_counted() {
    on_every_wire(|target, wire, mut raw| {
        let header = packet(["10.1.2.3", "10.4.5.6"].map(|a| a.parse().unwrap()), [7, 9], true, b"");
        let payload: Vec<_> = (0..1000).map(|i| (i % 251) as u8).collect();
        raw.memory.write(30 * SLOT, &payload).unwrap();
        let segment = |from: usize, to: usize| raw.memory.segment(30 * SLOT + from..30 * SLOT + to).unwrap();
        let (pieces, nothing, last) =
            ([segment(0, 100), segment(100, 1000)], [segment(0, 0)], [segment(SLOT, SLOT + 60)]);
        let large = |header, mss| SendRequest::large_send(7, header, mss, &pieces).checksums().signaled();
        let on_another = [SendRequest::large_send(7, &header, 300, &pieces[..1])];
        let mut cq = raw.context.create_cq(8).unwrap();
        let most = raw.context.query_device_mlx5().unwrap().map_or(0, |driver| driver.tso_caps.max_tso);
        let made = raw.pd.raw_packet(&cq).segments(2).large_sends(header.len() as u32).connect(1);
        if most == 0 {
            refuses(made, ErrorKind::Unsupported, EOPNOTSUPP, "large sends");
            refuses(raw.qp.post_send(&on_another), ErrorKind::Unsupported, EOPNOTSUPP, "large sends");
            return skip(target, "it does not cut large sends");
        }
        let mut qp = made.unwrap();
        assert_eq!((qp.capacity().large_header, raw.qp.capacity().large_header), (54, 0));
        refuses(raw.qp.post_send(&on_another), ErrorKind::InvalidInput, EINVAL, "made for");

        wire.plug();
        let counters = packets_and_bytes(&raw.context);
        let _flow = raw.qp.create_flow(&for_mac().count(&counters)).unwrap();
        let too_long = [&header[..], &[0]].concat();
        let region = raw.pd.register(most as usize + 1, AccessFlags::empty()).unwrap();
        let everything = [region.segment(0..region.len()).unwrap()];
        for (bad, hint) in [
            (large(&header, 0), "0 given, at least 1 allowed"),
            (large(&header[..13], 300), "header"),
            (large(&too_long, 300), "header"),
            (SendRequest::large_send(7, &header, 300, &nothing), "max_tso"),
            (SendRequest::large_send(7, &header, 300, &everything), "max_tso"),
        ] {
            refuses(qp.post_send(&[large(&header, 300), bad]), ErrorKind::InvalidInput, EINVAL, hint);
        }
        assert_eq!((cq.poll(&mut Completion::batch::<8>()), read2(&counters)), (0, [0, 0]));

        let plain = frame(MAC, 60);
        raw.memory.write(31 * SLOT, &plain).unwrap();
        for slot in 0..5 {
            let room = [raw.memory.segment(slot * SLOT..(slot + 1) * SLOT).unwrap()];
            raw.qp.post_receive(&[ReceiveRequest::new(slot as u64, &room)]).unwrap();
        }
        qp.post_send(&[large(&header, 300), SendRequest::frame(8, &last).signaled()]).unwrap();
        let (start, mut batch, mut sent) = (Instant::now(), Completion::batch::<4>(), Vec::new());
        while sent.len() < 2 {
            assert!(start.elapsed().as_secs() < 20, "no completion");
            let count = cq.poll(&mut batch);
            sent.extend(batch[..count].iter().map(|done| (done.wr_id, done.status, done.opcode)));
        }
        assert_eq!(sent, [(7, Status::Success, wc_opcode::TSO), (8, Status::Success, wc_opcode::SEND)]);
        let (start, mut got) = (Instant::now(), Vec::new());
        while got.len() < 5 {
            assert!(start.elapsed().as_secs() < 20, "only {} frames", got.len());
            let count = raw.cq.poll(&mut batch);
            got.extend_from_slice(&batch[..count]);
        }
        assert_eq!(got.iter().map(|c| c.len).collect::<Vec<_>>(), [354, 354, 354, 154, 60]);
        assert_eq!(read2(&counters), [5, 3 * 354 + 154 + 60]);
        for (slot, piece) in payload.chunks(300).enumerate() {
            let mut bytes = vec![0; 54 + piece.len()];
            raw.memory.read(slot * SLOT, &mut bytes).unwrap();
            assert_eq!((&bytes[54..], checksums_of(&bytes)), (piece, (true, true)), "frame {slot}");
            assert_eq!(bytes[38..42], (slot as u32 * 300).to_be_bytes(), "TCP's sequence number");
            assert_eq!(bytes[..14], header[..14]);
        }
        let mut bytes = [0; 60];
        raw.memory.read(4 * SLOT, &mut bytes).unwrap();
        assert_eq!(bytes[..], plain);
    });
}

#[test]
fn vlan_tags_are_taken_off_by_devices_that_can() {
    on_every_wire(|target, wire, raw| {
        let caps = RawPacketCaps::from_bits_retain(raw.context.query_device().unwrap().raw_packet_caps);
        let mut cq = raw.context.create_cq(64).unwrap();
        let made = raw.pd.raw_packet(&cq).strip_vlan().connect(1);
        if !caps.contains(RawPacketCaps::CVLAN_STRIPPING) {
            refuses(made, ErrorKind::Unsupported, EOPNOTSUPP, "VLAN");
            return skip(target, "it leaves VLAN tags where they are");
        }
        let mut qp = made.unwrap();
        let memory = raw.pd.register(4 * SLOT, AccessFlags::LOCAL_WRITE).unwrap();
        let segments = [0, 1].map(|slot| memory.segment(slot * SLOT..(slot + 1) * SLOT).unwrap());
        for (slot, segment) in segments.iter().enumerate() {
            qp.post_receive(&[ReceiveRequest::new(slot as u64, std::slice::from_ref(segment))]).unwrap();
        }
        let flow = qp.create_flow(&for_mac()).unwrap();
        let plain = frame(MAC, 64);
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x61, 0x23]);
        let poll = |cq: &mut CompletionQueue| {
            let (start, mut batch) = (Instant::now(), Completion::batch::<1>());
            while cq.poll(&mut batch) == 0 {
                assert!(start.elapsed().as_secs() < 20, "no completion");
            }
            batch[0]
        };
        for (slot, (sent, vlan)) in [(&tagged, Some(0x6123)), (&plain, None)].into_iter().enumerate() {
            wire.inject(sent);
            let got = poll(&mut cq);
            assert_eq!((got.wr_id, vlan_of(&got), got.len), (slot as u64, vlan, 64));
            let mut bytes = vec![0; 64];
            memory.read(slot * SLOT, &mut bytes).unwrap();
            assert_eq!(bytes, plain);
        }
        drop((flow, qp));
        // A queue pair leaves tags in place unless it was configured to remove them.
        let mut raw = raw;
        let flow = raw.qp.create_flow(&for_mac()).unwrap();
        raw.post_receives(1);
        wire.inject(&tagged);
        let got = raw.await_completions(1)[0];
        assert_eq!((vlan_of(&got), got.len), (None, 68));
        drop(flow);
        // So does a work queue.
        for strips in [false, true] {
            let builder = raw.pd.work_queue(&cq);
            let builder = if strips { builder.strip_vlan() } else { builder };
            let Ok(mut queue) = builder.create() else { return skip(target, "it has no work queues") };
            let table = raw.context.create_indirection_table(&[&queue]).unwrap();
            let spread = raw.pd.rss(&table).create().unwrap();
            let _flow = spread.create_flow(&for_mac()).unwrap();
            queue.modify(WorkQueueState::Ready).unwrap();
            queue.post_receive(&[ReceiveRequest::new(5, &segments[..1])]).unwrap();
            wire.inject(&tagged);
            let got = poll(&mut cq);
            let expected = if strips { (Some(0x6123), 64) } else { (None, 68) };
            assert_eq!((vlan_of(&got), got.len), expected);
        }
    });
}

#[test]
fn capabilities_are_asked_for_once_and_only_when_they_matter() {
    let target = Target::soft(Profile::default());
    let mut raw = Raw::new(&target.open());
    let frame = frame(MAC, 60);
    raw.send(&frame);
    raw.memory.write(0, &frame).unwrap();
    let segments = [raw.memory.segment(0..60).unwrap()];
    for _ in 0..2 {
        let refused = raw
            .qp
            .post_send(&[SendRequest::frame(1, &segments), SendRequest::frame(2, &segments).checksums()]);
        refuses(refused, ErrorKind::Unsupported, EOPNOTSUPP, "checksums");
    }
    assert_eq!(raw.completions().len(), 1, "all of them or none");
}
