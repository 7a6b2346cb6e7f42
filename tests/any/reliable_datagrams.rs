//! Scalable reliable datagrams, on the device that has them; the others are reported as skipped.

mod held;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use uverbs::{
    AccessFlags, AddressHandle, Completion, CompletionQueue, ConnectionOptions, Context, Counted, ErrorKind,
    MemoryRegion, ProtectionDomain, QueuePair, ReceiveRequest, Remote, Route, SendRequest, Srd, SrdDatagram,
    SrdOperation, Status,
};

const QKEY: u32 = 0x1234_5678;
const LONG: Duration = Duration::from_secs(20);
/// Number of requests of each queue.
const DEPTH: u32 = 16;

/// A queue pair with everything that belongs to it.
struct Party {
    qp: QueuePair<Srd>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
}

impl Party {
    fn new(context: &Context) -> Self {
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64).unwrap());
        let mut qp =
            pd.srd(&cq).send_depth(DEPTH).receive_depth(DEPTH).segments(2).inline(32).create().unwrap();
        qp.activate(&ConnectionOptions::new(1, 0), QKEY, 0).unwrap();
        let remote = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let access = AccessFlags::LOCAL_WRITE | remote;
        // Linux 6.1 has no writes.
        let memory = pd
            .register(8192, access)
            .or_else(|_| pd.register(8192, access - AccessFlags::REMOTE_WRITE))
            .unwrap();
        Self { qp, cq, memory, pd }
    }

    /// The address of a queue pair of the same device.
    fn way(&self) -> AddressHandle {
        let gid = self.pd.context().gid(1, 0).unwrap().raw;
        self.pd.create_ah(&Route::new(1, 0, gid)).unwrap()
    }

    fn receive(&mut self, wr_id: u64, range: std::ops::Range<usize>) {
        let segments = [self.memory.segment(range).unwrap()];
        self.qp.post_receive(&[ReceiveRequest::new(wr_id, &segments)]).unwrap();
    }

    /// This many completions.
    #[track_caller]
    fn completions(&mut self, count: usize) -> Vec<Completion> {
        let (start, mut all) = (Instant::now(), Vec::new());
        while all.len() < count {
            assert!(start.elapsed() < LONG, "only {all:?}");
            let mut batch = Completion::batch::<8>();
            let found = self.cq.poll(&mut batch);
            all.extend_from_slice(&batch[..found]);
        }
        all
    }
}

/// Runs a behaviour on every device that has reliable datagrams.
#[track_caller]
fn on_every_device_with_srd(behaviour: impl Fn(&Target)) {
    let at = std::panic::Location::caller();
    on_every_device(|target| {
        if target.device.driver() == "efa" {
            behaviour(target);
        } else {
            skip_at(at, target, "it has no reliable datagrams");
        }
    });
}

/// A datagram from one party to another.
fn datagram<'a>(to: &'a AddressHandle, other: &Party, operation: SrdOperation) -> SrdDatagram<'a> {
    SrdDatagram { to, qp_num: other.qp.number(), qkey: QKEY, operation }
}

#[test]
fn a_device_without_them_says_so() {
    on_every_device(|target| {
        let context = target.open();
        let (pd, Ok(cq)) = (context.alloc_pd().unwrap(), context.create_cq(4)) else { return };
        if target.device.driver() != "efa" {
            refuses(pd.srd(&cq).create(), ErrorKind::Unsupported, EOPNOTSUPP, "efa");
            let refused = uverbs::efa::Device::of(&context).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            let memory = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
            assert_eq!(uverbs::efa::Ways::of(&memory).unwrap_err().kind(), ErrorKind::Unsupported);
        }
    });
}

#[test]
fn the_device_tells_of_handles_and_regions() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let one = Party::new(&context);
        let [first, second] = [one.way(), one.way()].map(|way| uverbs::efa::handle_number(&way).unwrap());
        // One address handle in the kernel serves a destination in a domain, and its number is one that completions can contain.
        assert!(first == second && first != u16::MAX);
        match uverbs::efa::Ways::of(&one.memory) {
            Ok(ways) => assert_eq!(ways, uverbs::efa::Ways::of(&one.memory).unwrap()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "Linux 6.1 has not that question"),
        }
    });
}

#[test]
fn messages_come_in_whole_with_their_numbers() {
    hold(each::reliable::messages_come_in_whole_with_their_numbers);
}

#[test]
fn many_messages_go_round_the_rings_and_each_completes_once() {
    hold(each::reliable::many_messages_go_round_the_rings_and_each_completes_once);
}

#[test]
fn remote_memory_is_read_and_written() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let caps = uverbs::efa::Device::of(&context).unwrap().caps;
        let (mut one, mut two) = (Party::new(&context), Party::new(&context));
        // The side whose memory is accessed must know the other one's address too.
        let (to, _back) = (one.way(), two.way());
        let remote = Remote { address: two.memory.address(), rkey: two.memory.rkey() };
        two.memory.write(0, &[9; 4096]).unwrap();
        if caps.contains(uverbs::efa::DeviceCaps::RDMA_READ) {
            let segments = [one.memory.segment(0..4096).unwrap()];
            let read = datagram(&to, &two, SrdOperation::Read(remote));
            one.qp.post_send(&[SendRequest::new(1, read, &segments).signaled()]).unwrap();
            let done = one.completions(1)[0];
            assert_eq!((done.wr_id, done.status), (1, Status::Success));
            assert_eq!(done.opcode, uverbs::abi::types::wc_opcode::RDMA_READ);
            let mut bytes = [0; 4096];
            one.memory.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 9));
        }
        let operation = SrdOperation::WriteImmediate(remote, 5);
        one.memory.write(0, &[4; 100]).unwrap();
        let segments = [one.memory.segment(0..100).unwrap()];
        let write = SendRequest::new(2, datagram(&to, &two, operation), &segments).signaled();
        if !two.memory.access().contains(AccessFlags::REMOTE_WRITE) {
            let refused = one.qp.post_send(&[write]);
            return refuses(refused, ErrorKind::Unsupported, EOPNOTSUPP, "no such requests");
        }
        two.receive(3, 8000..8001);
        one.qp.post_send(&[write]).unwrap();
        assert_eq!(one.completions(1)[0].opcode, uverbs::abi::types::wc_opcode::RDMA_WRITE);
        let came = two.completions(1)[0];
        assert_eq!((came.wr_id, came.len, u32::from_be(came.immediate)), (3, 100, 5));
        assert!(!uverbs::efa::is_unsolicited(&came));
        let inline = SendRequest::inline(4, datagram(&to, &two, SrdOperation::Write(remote)), &[6; 32]);
        one.qp.post_send(&[inline.signaled()]).unwrap();
        assert_eq!(one.completions(1)[0].status, Status::Success);
        let mut bytes = [0; 100];
        two.memory.read(0, &mut bytes).unwrap();
        assert_eq!((&bytes[..32], &bytes[32..]), (&[6; 32][..], &[4; 68][..]));
    });
}

#[test]
fn a_write_that_takes_no_receive_is_told_from_others() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let caps = uverbs::efa::Device::of(&context).unwrap().caps;
        let (mut one, mut two) = (Party::new(&context), Party::new(&context));
        let made = two.pd.srd(&two.cq).unsolicited_writes().create();
        if !caps.contains(uverbs::efa::DeviceCaps::UNSOLICITED_WRITE_RECEIVE) {
            // Linux 6.1 does not have this field.
            let kind = made.unwrap_err().kind();
            return assert!(matches!(kind, ErrorKind::Unsupported | ErrorKind::InvalidInput), "{kind:?}");
        }
        two.qp = made.unwrap();
        two.qp.activate(&ConnectionOptions::new(1, 0), QKEY, 0).unwrap();
        let (to, _back) = (one.way(), two.way());
        let remote = Remote { address: two.memory.address(), rkey: two.memory.rkey() };
        let write = datagram(&to, &two, SrdOperation::WriteImmediate(remote, 8));
        let segments = [one.memory.segment(0..100).unwrap()];
        one.qp.post_send(&[SendRequest::new(1, write, &segments).signaled()]).unwrap();
        assert_eq!(one.completions(1)[0].status, Status::Success);
        let came = two.completions(1)[0];
        assert_eq!((came.wr_id, came.len, u32::from_be(came.immediate)), (0, 100, 8));
        assert!(came.is_receive() && uverbs::efa::is_unsolicited(&came));
    });
}

#[test]
fn what_is_refused_leaves_nothing_posted() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let (mut one, mut two) = (Party::new(&context), Party::new(&context));
        let to = one.way();
        let memory = one.memory.clone();
        let segments = [memory.segment(0..8).unwrap()];
        let message = datagram(&to, &two, SrdOperation::Send);
        let unsignaled =
            [SendRequest::new(1, message, &segments).signaled(), SendRequest::new(2, message, &segments)];
        refuses(one.qp.post_send(&unsignaled), ErrorKind::InvalidInput, EINVAL, "signaled");
        two.receive(20, 0..64);
        one.qp.post_send(&unsignaled[..1]).unwrap();
        assert_eq!((one.completions(1)[0].wr_id, two.completions(1)[0].wr_id), (1, 20));
        assert_eq!(one.cq.poll(&mut Completion::batch::<4>()), 0);
        one.qp.reset().unwrap();
        let refused = one.qp.post_send(&unsignaled[..1]);
        refuses(refused, ErrorKind::InvalidInput, EINVAL, "not ready to send");
    });
}

#[test]
fn a_drain_waits_for_everything_and_a_reset_begins_anew() {
    hold(each::reliable::a_drain_waits_for_everything_and_a_reset_begins_anew);
}

#[test]
fn completions_are_announced_once_for_each_time_that_is_asked() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let (mut one, mut two) = (Party::new(&context), Party::new(&context));
        let channel = context.create_comp_channel().unwrap();
        two.cq = context.cq(64).channel(&channel).cookie(0x77).create().unwrap();
        two.qp = two.pd.srd(&two.cq).create().unwrap();
        two.qp.activate(&ConnectionOptions::new(1, 0), QKEY, 0).unwrap();
        let to = one.way();
        let region = one.memory.clone();
        let segments = [region.segment(0..8).unwrap()];
        // The number of events overflows after four.
        for round in 0..10 {
            two.cq.notify(false).unwrap();
            assert!(!channel.wait(Some(Duration::ZERO)).unwrap(), "{round}");
            for wr_id in 0..3 {
                two.receive(wr_id, 0..64);
                let message = datagram(&to, &two, SrdOperation::Send);
                one.qp.post_send(&[SendRequest::new(wr_id, message, &segments).signaled()]).unwrap();
            }
            assert!(channel.wait(Some(LONG)).unwrap(), "{round}");
            assert_eq!(channel.next_event().unwrap(), Some(0x77));
            assert_eq!((two.completions(3).len(), one.completions(3).len()), (3, 3));
            assert_eq!(channel.next_event().unwrap(), None, "{round}");
        }
        refuses(two.cq.notify(true), ErrorKind::Unsupported, EOPNOTSUPP, "solicited");
        refuses(one.cq.notify(false), ErrorKind::Unsupported, EOPNOTSUPP, "channel");
    });
}

#[test]
fn completion_counters_count_what_completes_in_any_order() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let (mut one, mut two) = (Party::new(&context), Party::new(&context));
        let to = one.way();
        let counter = || uverbs::CompletionCounter::new(uverbs::WaitObject::None).unwrap();
        let (sent, came) = (counter(), counter());
        one.qp.reset().unwrap();
        one.qp.bind_counter(&sent, Counted::SEND).unwrap();
        one.qp.activate(&ConnectionOptions::new(1, 0), QKEY, 0).unwrap();
        two.qp.reset().unwrap();
        two.qp.bind_counter(&came, Counted::RECEIVE).unwrap();
        two.qp.activate(&ConnectionOptions::new(1, 0), QKEY, 0).unwrap();
        let segments = [one.memory.segment(0..8).unwrap()];
        let message = datagram(&to, &two, SrdOperation::Send);
        for wr_id in 0..10 {
            two.receive(wr_id, 4096..4200);
            one.qp.post_send(&[SendRequest::new(wr_id, message, &segments).signaled()]).unwrap();
        }
        one.completions(10);
        two.completions(10);
        assert_eq!((sent.read(), came.read()), (10, 10));
    });
}

/// What is in the device's ring cannot be taken back, so nothing of a list gets there before all of it is known to be possible.
#[test]
fn a_list_of_several_pieces_is_posted_once_or_not_at_all() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let (mut one, mut two) = (Party::new(&context), Party::new(&context));
        let to = one.way();
        let [first, second] = [0..8, 16..24].map(|range| one.memory.segment(range).unwrap());
        let (both, three) = ([first, second], [first; 3]);
        let message = datagram(&to, &two, SrdOperation::Send);
        for wr_id in 0..5 {
            two.receive(wr_id, 64..128);
        }
        let of_two = |wr_id| SendRequest::new(wr_id, message, &both).signaled();
        let inline = SendRequest::inline(2, message, &[1; 8]).signaled();
        one.qp.post_send(&[of_two(1), inline]).unwrap();
        let refused = one.qp.post_send(&[of_two(3), SendRequest::new(4, message, &three).signaled()]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        let too_many: Vec<_> = (0..=u64::from(DEPTH)).map(|at| of_two(100 + at)).collect();
        assert_eq!(one.qp.post_send(&too_many).unwrap_err().kind(), ErrorKind::Exhausted);
        one.qp.post_send(&[of_two(5), of_two(6)]).unwrap();
        let sent: BTreeSet<_> = one.completions(4).iter().map(|completion| completion.wr_id).collect();
        assert_eq!(sent, [1, 2, 5, 6].into());
        assert_eq!(two.completions(4).len(), 4);
    });
}

/// The device's counters, if this kernel has them.
fn hardware_counter(context: &Context) -> Option<uverbs::CompletionCounter> {
    let made = uverbs::CompletionCounter::builder()
        .wait_object(uverbs::WaitObject::Unspecified)
        .create_on(context)
        .inspect_err(|error| assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"));
    made.ok()
}

#[test]
fn the_device_counts_without_anybody_who_polls() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let counters: Vec<_> = (0..4).map_while(|_| hardware_counter(&context)).collect();
        let [sends, receives, reads, remote_reads] = &*counters else {
            return skip(target, "the kernel has no completion counters");
        };
        assert_eq!(sends.source(), uverbs::CounterSource::DeviceInMemory);
        let caps = context.completion_counter_caps().unwrap();
        assert!(caps.max_counters >= 4 && caps.operations.contains(Counted::SEND | Counted::REMOTE_READ));
        let (mut one, mut two) = (Party::new(&context), Party::new(&context));
        let (to, _back) = (one.way(), two.way());
        one.qp.bind_counter(sends, Counted::SEND).unwrap();
        one.qp.bind_counter(reads, Counted::READ).unwrap();
        two.qp.bind_counter(receives, Counted::RECEIVE).unwrap();
        two.qp.bind_counter(remote_reads, Counted::REMOTE_READ).unwrap();
        let twice = one.qp.bind_counter(receives, Counted::SEND | Counted::WRITE);
        refuses(twice, ErrorKind::Busy, EBUSY, "some of these operations");
        let remote = Remote { address: two.memory.address(), rkey: two.memory.rkey() };
        let segments = [one.memory.segment(0..8).unwrap()];
        for wr_id in 0..5 {
            two.receive(wr_id, 4096..4200);
            let message = datagram(&to, &two, SrdOperation::Send);
            one.qp.post_send(&[SendRequest::new(wr_id, message, &segments).signaled()]).unwrap();
        }
        let read = datagram(&to, &two, SrdOperation::Read(remote));
        one.qp.post_send(&[SendRequest::new(9, read, &segments).signaled()]).unwrap();
        for (counter, threshold) in [(sends, 5), (receives, 5), (reads, 1), (remote_reads, 1)] {
            counter.wait(threshold, Some(LONG)).unwrap();
            assert_eq!((counter.read(), counter.read_err()), (threshold, 0));
        }
        // No completion was polled so far.
        assert_eq!((one.completions(6).len(), two.completions(5).len()), (6, 5));
        let mut counters = counters.into_iter();
        let (sends, error) = counters.next().unwrap().destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop((one, two));
        assert!(sends.destroy().is_ok() && counters.all(|counter| counter.destroy().is_ok()));
    });
}

#[test]
fn failures_and_changes_by_hand_are_in_the_values() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let (Some(receives), Some(sends)) = (hardware_counter(&context), hardware_counter(&context)) else {
            return skip(target, "the kernel has no completion counters");
        };
        let (mut one, two) = (Party::new(&context), Party::new(&context));
        one.qp.bind_counter(&receives, Counted::RECEIVE).unwrap();
        one.qp.bind_counter(&sends, Counted::SEND).unwrap();
        let to = one.way();
        (0..3).for_each(|wr_id| one.receive(wr_id, 0..64));
        // The peer has no receive.
        let segments = [one.memory.segment(0..8).unwrap()];
        let message = datagram(&to, &two, SrdOperation::Send);
        one.qp.post_send(&[SendRequest::new(9, message, &segments).signaled()]).unwrap();
        assert_eq!(sends.wait_since(1, 0, Some(LONG)).unwrap_err().kind(), ErrorKind::OperationFailed);
        one.qp.to_error().unwrap();
        assert_eq!(receives.wait_since(1, 0, Some(LONG)).unwrap_err().kind(), ErrorKind::OperationFailed);
        let ended = one.completions(4);
        assert!(ended.iter().all(|ended| ended.status != Status::Success), "{ended:?}");
        assert_eq!((receives.read(), receives.read_err(), sends.read_err()), (0, 3, 1));
        receives.set(40).unwrap();
        receives.set_err(0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..50).for_each(|_| receives.add(1).unwrap()));
            }
        });
        receives.wait(140, Some(LONG)).unwrap();
        assert_eq!((receives.read(), receives.read_err()), (140, 0));
    });
}

#[test]
fn completions_are_written_to_memory_of_ones_own() {
    on_every_device(|target| {
        let context = target.open();
        let map = memmap2::MmapMut::map_anon(4096).unwrap();
        let memory = uverbs::Mapping::from(map);
        let made = context.cq(16).in_memory(&memory).create();
        let can = target.device.driver() == "efa"
            && uverbs::efa::Device::of(&context)
                .unwrap()
                .caps
                .contains(uverbs::efa::DeviceCaps::CQ_IN_OWN_MEMORY);
        if !can {
            if context.create_cq(4).is_ok() {
                assert_eq!(made.unwrap_err().kind(), ErrorKind::Unsupported);
            }
            return;
        }
        let (mut one, mut two) = (Party::new(&context), Party::new(&context));
        one.cq = made.unwrap();
        one.qp = one.pd.srd(&one.cq).send_depth(DEPTH).create().unwrap();
        one.qp.activate(&ConnectionOptions::new(1, 0), QKEY, 0).unwrap();
        let to = one.way();
        let region = one.memory.clone();
        let segments = [region.segment(0..8).unwrap()];
        for wr_id in 0..40 {
            two.receive(wr_id, 0..64);
            let message = datagram(&to, &two, SrdOperation::Send);
            one.qp.post_send(&[SendRequest::new(wr_id, message, &segments).signaled()]).unwrap();
            assert_eq!((one.completions(1)[0].wr_id, two.completions(1)[0].wr_id), (wr_id, wr_id));
        }
        refuses(context.cq(1 << 12).in_memory(&memory).create(), ErrorKind::InvalidInput, EINVAL, "bytes");
        let memory = memmap2::MmapMut::try_from(memory).unwrap_err();
        drop(one);
        assert!(memmap2::MmapMut::try_from(memory).is_ok(), "the queue has let go of it");
    });
}
