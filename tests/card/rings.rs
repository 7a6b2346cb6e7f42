//! Requests and completions in the device's format: `mlx5::SendRing`, `ReceiveRing` and `CompletionRing`.

use std::time::{Duration, Instant};

use crate::common::*;
use uverbs::mlx5::{CompletionRing, ReceiveRing, SendRing};
use uverbs::{
    AccessFlags, Completion, CompletionCounter, CompletionQueue, Counted, ErrorKind, Eth, FlowRule,
    MemoryRegion, SoftDevice, Status, WaitObject,
};

const NOP: u8 = 0x00;
const SEND: u8 = 0x0a;

/// A control segment that asks for a completion.
fn control(opcode: u8) -> [u8; 16] {
    let mut control = [0; 16];
    (control[3], control[11]) = (opcode, 8);
    control
}

/// A piece of a region.
fn piece(region: &MemoryRegion, at: usize, len: usize) -> [u8; 16] {
    let mut piece = [0; 16];
    piece[..4].copy_from_slice(&(len as u32).to_be_bytes());
    piece[4..8].copy_from_slice(&region.lkey().to_be_bytes());
    piece[8..].copy_from_slice(&(region.address() + at as u64).to_be_bytes());
    piece
}

/// The next completion and its entry, which may take a moment.
#[track_caller]
fn next(cq: &mut CompletionQueue) -> (Completion, [u8; 64]) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(taken) = CompletionRing::of(cq).unwrap().take() {
            return taken;
        }
        assert!(Instant::now() < until, "no completion");
    }
}

#[test]
fn requests_of_the_programs_own_go_between_those_of_the_crate() {
    on_every_bulk_device(|_, wire, raw| {
        let mut raw = Raw::new(&raw.context);
        wire.plug();
        let _flow = raw.qp.create_flow(&FlowRule::normal(1).eth(Eth::any().dst(MAC))).unwrap();
        let frame = packet(["10.1.2.3", "10.4.5.6"].map(|a| a.parse().unwrap()), [7, 9], true, b"direct");
        raw.memory.write(30 * SLOT, &frame).unwrap();

        let mut receives = ReceiveRing::of(&mut raw.qp).unwrap();
        let [places, segments] = receives.places();
        assert!(places >= 16 && segments >= 1 && receives.free() == places);
        let too_many = vec![[0; 16]; segments as usize + 1];
        refuses(receives.put(0, &too_many), ErrorKind::InvalidInput, EINVAL, "of so many bytes");
        for slot in 0..3 {
            receives.put(slot, &[piece(&raw.memory, slot as usize * SLOT, SLOT)]).unwrap();
        }
        assert_eq!(receives.free(), places - 3);
        receives.publish();

        // A request that does nothing, and one that sends: control, Ethernet, memory.
        let mut sends = SendRing::of(&mut raw.qp).unwrap();
        let (blocks, first) = (sends.blocks(), sends.next());
        assert_eq!(sends.free(), blocks);
        for units in [0, 64] {
            refuses(
                sends.put(0, &vec![[0; 16]; units]),
                ErrorKind::InvalidInput,
                EINVAL,
                "nothing was posted",
            );
        }
        sends.put(70, &[control(NOP)]).unwrap();
        sends.put(71, &[control(SEND), [0; 16], piece(&raw.memory, 30 * SLOT, frame.len())]).unwrap();
        assert_eq!((sends.next(), sends.free()), (first.wrapping_add(2), blocks - 2));
        sends.publish();
        raw.send(&frame);
        let mut got: Vec<_> = (0..5).map(|_| next(&mut raw.cq)).collect();
        assert!(got.iter().all(|(completion, _)| completion.status == Status::Success), "{got:?}");
        got.sort_by_key(|(completion, _)| completion.wr_id);
        assert_eq!(
            got.iter().map(|(completion, _)| completion.wr_id).collect::<Vec<_>>(),
            [0, 1, 70, 71, 99]
        );
        for (completion, entry) in &got[..2] {
            assert_eq!(completion.len as usize, frame.len());
            assert_eq!(entry[44..48], (frame.len() as u32).to_be_bytes(), "byte_cnt");
            let mut bytes = vec![0; frame.len()];
            raw.memory.read(completion.wr_id as usize * SLOT, &mut bytes).unwrap();
            assert_eq!(bytes, frame);
        }
        for (at, (_, entry)) in got[2..4].iter().enumerate() {
            assert_eq!(entry[60..62], first.wrapping_add(at as u16).to_be_bytes(), "wqe_counter");
        }
        // The rest of the receives takes a frame that arrives, and the usual poll finds it.
        wire.inject(&frame);
        assert_eq!(raw.await_completions(1)[0].wr_id, 2);

        // What is discarded is not sent, and leaves its place.
        let mut sends = SendRing::of(&mut raw.qp).unwrap();
        sends.put(72, &[control(NOP)]).unwrap();
        sends.discard();
        assert_eq!(sends.free(), blocks);
        while sends.put(73, &[control(NOP)]).is_ok() {}
        refuses(sends.put(73, &[control(NOP)]), ErrorKind::Exhausted, ENOMEM, "poll completions first");
        sends.publish();
        assert!(raw.await_completions(blocks as usize).iter().all(|completion| completion.wr_id == 73));
        assert_eq!(SendRing::of(&mut raw.qp).unwrap().free(), blocks);
    });
}

#[test]
fn memory_that_is_no_longer_registered_is_out_of_reach() {
    on_every_bulk_device(|_, _, raw| {
        let mut raw = Raw::new(&raw.context);
        let region = raw.pd.register(SLOT, AccessFlags::LOCAL_WRITE).unwrap();
        let gone = piece(&region, 0, 60);
        drop(region);
        let mut sends = SendRing::of(&mut raw.qp).unwrap();
        sends.put(1, &[control(SEND), [0; 16], gone]).unwrap();
        sends.publish();
        let (completion, _) = next(&mut raw.cq);
        assert_eq!((completion.wr_id, completion.status), (1, Status::LocalProtection));
    });
}

#[test]
fn rings_are_those_of_a_card_and_of_one_user() {
    let context = SoftDevice::default().open().unwrap();
    let mut soft = Raw::new(&context);
    refuses(SendRing::of(&mut soft.qp).map(drop), ErrorKind::Unsupported, EOPNOTSUPP, "mlx5");
    refuses(ReceiveRing::of(&mut soft.qp).map(drop), ErrorKind::Unsupported, EOPNOTSUPP, "mlx5");
    refuses(CompletionRing::of(&mut soft.cq).map(drop), ErrorKind::Unsupported, EOPNOTSUPP, "mlx5");
    on_every_bulk_device(|_, _, raw| {
        let mut qp = raw.pd.raw_packet(&raw.cq).create().unwrap();
        let counter = CompletionCounter::new(WaitObject::None).unwrap();
        qp.bind_counter(&counter, Counted::SEND).unwrap();
        refuses(SendRing::of(&mut qp).map(drop), ErrorKind::Busy, EBUSY, "completion counters");
    });
}
