//! Frames spread over work queues, on every device.

use std::panic::Location;
use std::time::Instant;

use crate::common::*;
use uverbs::abi::write::{ExCreateRwqIndTable, ExCreateWq, ExModifyWq, cmd};
use uverbs::soft::{RawAttr, RawCommand};
use uverbs::transport::Fault;
use uverbs::{
    AccessFlags, Completion, CompletionQueue, Context, ErrorKind, Eth, Flow, FlowRule, HashFields,
    IndirectionTable, MemoryRegion, ProtectionDomain, ReceiveRequest, RssQueuePair, Status, WorkQueue,
    WorkQueueState,
};
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use zerocopy::{FromZeros, IntoBytes};

/// Number of receives posted to each work queue.
const RECEIVES: usize = 8;

/// Work queues with receives posted, and everything that belongs to them.
struct Queues {
    cq: CompletionQueue,
    queues: Vec<WorkQueue>,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    context: Context,
}

impl Queues {
    fn new(context: &Context, count: usize) -> Self {
        let pd = context.alloc_pd().expect("pd");
        let cq = context.create_cq(64).expect("cq");
        let memory = pd.register(count * RECEIVES * SLOT, AccessFlags::LOCAL_WRITE).expect("memory");
        let make = |_| pd.work_queue(&cq).depth(RECEIVES as u32).create().expect("work queue");
        let queues = (0..count).map(make).collect();
        Self { cq, queues, memory, pd, context: context.clone() }
    }

    /// Posts all receives to a queue; their numbers are the indices of their slots.
    fn post(&mut self, queue: usize) {
        for slot in queue * RECEIVES..(queue + 1) * RECEIVES {
            let segments = [self.memory.segment(slot * SLOT..(slot + 1) * SLOT).expect("inside")];
            let request = ReceiveRequest::new(slot as u64, &segments);
            self.queues[queue].post_receive(&[request]).expect("post receive");
        }
    }

    fn all_to(&mut self, state: WorkQueueState) {
        self.queues.iter_mut().for_each(|queue| queue.modify(state).expect("modify"));
    }

    fn table(&self, places: &[usize]) -> IndirectionTable {
        let queues: Vec<_> = places.iter().map(|queue| &self.queues[*queue]).collect();
        self.context.create_indirection_table(&queues).expect("table")
    }

    #[track_caller]
    fn await_completions(&mut self, count: usize) -> Vec<Completion> {
        let (start, mut all) = (Instant::now(), Vec::new());
        while all.len() < count {
            assert!(start.elapsed().as_secs() < 20, "only {} of {count} completions", all.len());
            all.extend(self.completions());
        }
        all
    }

    fn completions(&mut self) -> Vec<Completion> {
        let mut batch = Completion::batch::<64>();
        let count = self.cq.poll(&mut batch);
        batch[..count].to_vec()
    }

    fn received(&self, completion: &Completion) -> Vec<u8> {
        let mut bytes = vec![0; completion.len as usize];
        self.memory.read(completion.wr_id as usize * SLOT, &mut bytes).expect("inside");
        bytes
    }
}

/// Runs a behaviour on every device with work queues to which a test can send frames.
#[track_caller]
fn on_every_spreading_device(behaviour: impl Fn(&Target, &Wire<'_>, &Context)) {
    let at = Location::caller();
    on_every_device(|target| {
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().expect("pd"), context.create_cq(4).expect("cq"));
        match (pd.work_queue(&cq).create(), target.wire()) {
            (Ok(_), Some(wire)) => behaviour(target, &wire, &context),
            (Ok(_), None) => skip_at(at, target, "no frames can be made to arrive"),
            (Err(error), _) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                skip_at(at, target, "it has no work queues");
            }
        }
    });
}

fn tcp(from: &str, to: &str, ports: [u16; 2]) -> Vec<u8> {
    packet([from, to].map(|address| address.parse().expect("an address")), ports, true, b"payload")
}

fn for_mac() -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst(MAC))
}

/// From "Verifying the RSS Hash Calculation": addresses, ports, the hash of the addresses, and that of all.
const V4: [(&str, &str, [u16; 2], u32, u32); 5] = [
    ("66.9.149.187", "161.142.100.80", [2794, 1766], 0x323e_8fc2, 0x51cc_c178),
    ("199.92.111.2", "65.69.140.83", [14230, 4739], 0xd718_262a, 0xc626_b0ea),
    ("24.19.198.95", "12.22.207.184", [12898, 38024], 0xd2d0_a5de, 0x5c2b_394a),
    ("38.27.205.30", "209.142.163.6", [48228, 2217], 0x8298_9176, 0xafc7_327f),
    ("153.39.163.191", "202.188.127.2", [44251, 1303], 0x5d18_09c5, 0x10e8_28a2),
];
const V6: [(&str, &str, [u16; 2], u32, u32); 3] = [
    ("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", [2794, 1766], 0x2cc1_8cd5, 0x4020_7d3d),
    ("3ffe:501:8::260:97ff:fe40:efab", "ff02::1", [14230, 4739], 0x0f0c_461c, 0xdde5_1bbf),
    (
        "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
        "fe80::200:f8ff:fe21:67cf",
        [44251, 38024],
        0x4b61_e985,
        0x02d1_feef,
    ),
];

#[test]
fn frames_go_where_the_toeplitz_hash_says() {
    on_every_spreading_device(|_, wire, context| {
        // Sixteen places, each work queue in four of them.
        let place = |hash: u32| hash as usize % 16 * 5 % 4;
        let places: Vec<_> = (0..16).map(place).collect();
        let fields = HashFields::TCP;
        for (fields, all, known) in [
            (HashFields::IPV4, false, &V4[..]),
            (HashFields::IPV4 | fields, true, &V4),
            (HashFields::IPV6, false, &V6),
            (HashFields::IPV6 | fields, true, &V6),
        ] {
            let mut queues = Queues::new(context, 4);
            (0..4).for_each(|queue| queues.post(queue));
            let table = queues.table(&places);
            let numbers: Vec<_> = queues.queues.iter().map(WorkQueue::number).collect();
            assert!(table.numbers().eq(places.iter().map(|queue| numbers[*queue])));
            let qp = queues.pd.rss(&table).hash(fields).create().unwrap();
            let counters = packets_and_bytes(context);
            let _flow = qp.create_flow(&for_mac().count(&counters)).unwrap();
            queues.all_to(WorkQueueState::Ready);
            let mut bytes = 0;
            for (from, to, ports, of_addresses, of_all) in known {
                let frame = tcp(from, to, *ports);
                wire.inject(&frame);
                bytes += frame.len() as u64;
                let got = queues.await_completions(1)[0];
                let queue = place(if all { *of_all } else { *of_addresses });
                assert_eq!((got.status, got.qp_num), (Status::Success, numbers[queue]), "{from} {fields:?}");
                assert_eq!(got.wr_id as usize / RECEIVES, queue);
                assert_eq!(queues.received(&got), frame);
            }
            assert_eq!(read2(&counters)[..], [known.len() as u64, bytes]);
        }
    });
}

#[test]
fn another_key_is_another_hash() {
    on_every_spreading_device(|_, wire, context| {
        let mut queues = Queues::new(context, 2);
        (0..2).for_each(|queue| queues.post(queue));
        queues.all_to(WorkQueueState::Ready);
        let table = queues.table(&[0, 1]);
        // Only bit 31 of the key is set: the lowest bit of the hash is the first bit of the first address.
        let mut key = [0; 40];
        key[3] = 1;
        let qp = queues.pd.rss(&table).hash(HashFields::SRC_IPV4).key(key).create().unwrap();
        let _flow = qp.create_flow(&for_mac()).unwrap();
        for (from, queue) in [("127.255.255.255", 0), ("128.0.0.0", 1), ("0.0.0.1", 0), ("200.1.2.3", 1)] {
            wire.inject(&tcp(from, "255.0.0.1", [1, 2]));
            let got = queues.await_completions(1)[0];
            assert_eq!(got.qp_num, queues.queues[queue].number(), "{from}");
        }
    });
}

#[test]
fn a_table_of_one_needs_no_hash_and_takes_everything() {
    on_every_spreading_device(|_, wire, context| {
        let mut queues = Queues::new(context, 1);
        queues.post(0);
        queues.all_to(WorkQueueState::Ready);
        let table = queues.table(&[0]);
        let qp = queues.pd.rss(&table).create().unwrap();
        let _flow = qp.create_flow(&for_mac()).unwrap();
        for frame in [frame(MAC, 60), tcp("10.0.0.1", "10.0.0.2", [1, 2])] {
            wire.inject(&frame);
            let got = queues.await_completions(1)[0];
            assert_eq!(queues.received(&got), frame);
        }
    });
}

#[test]
fn a_work_queue_receives_only_while_it_is_ready() {
    on_every_spreading_device(|_, wire, context| {
        let mut queues = Queues::new(context, 1);
        let table = queues.table(&[0]);
        let qp = queues.pd.rss(&table).create().unwrap();
        let _flow = qp.create_flow(&for_mac()).unwrap();
        queues.post(0);
        wire.inject(&frame(MAC, 60));
        assert_eq!(queues.completions(), [], "not ready yet");
        queues.all_to(WorkQueueState::Ready);
        wire.inject(&frame(MAC, 61));
        assert_eq!(queues.await_completions(1)[0].len, 61);
        // Posted receives are flushed in order, and everything else is lost.
        queues.all_to(WorkQueueState::Error);
        let flushed = queues.await_completions(RECEIVES - 1);
        let flushed: Vec<_> = flushed.iter().map(|got| (got.wr_id, got.status)).collect();
        let rest = (1..RECEIVES as u64).map(|wr_id| (wr_id, Status::Flushed));
        assert_eq!(flushed, rest.collect::<Vec<_>>());
        wire.inject(&frame(MAC, 60));
        // After a reset it starts again: what was posted before is discarded.
        queues.all_to(WorkQueueState::Reset);
        queues.post(0);
        queues.all_to(WorkQueueState::Ready);
        wire.inject(&frame(MAC, 62));
        let got = queues.await_completions(1)[0];
        assert_eq!((got.wr_id, got.len, queues.received(&got)), (0, 62, frame(MAC, 62)));
        // A reset without completions: every slot is free again.
        queues.all_to(WorkQueueState::Error);
        queues.all_to(WorkQueueState::Reset);
        queues.post(0);
        assert_eq!(queues.completions(), []);
    });
}

#[test]
fn a_full_queue_says_so_and_goes_round() {
    on_every_spreading_device(|_, wire, context| {
        let mut queues = Queues::new(context, 1);
        queues.all_to(WorkQueueState::Ready);
        let table = queues.table(&[0]);
        let qp = queues.pd.rss(&table).create().unwrap();
        let _flow = qp.create_flow(&for_mac()).unwrap();
        for round in 0..5 {
            queues.post(0);
            let none = queues.queues[0].post_receive(&[ReceiveRequest::new(99, &[])]);
            refuses(none, ErrorKind::Exhausted, ENOMEM, "no room");
            for slot in 0..RECEIVES {
                wire.inject(&frame(MAC, 60 + round));
                let got = queues.await_completions(1)[0];
                assert_eq!((got.wr_id as usize, got.len as usize), (slot, 60 + round));
            }
            // Nothing is posted: the frame is lost.
            wire.inject(&frame(MAC, 60));
            assert_eq!(queues.completions(), []);
        }
        let segments = [(); 2].map(|()| queues.memory.segment(0..60).unwrap());
        let two = queues.queues[0].post_receive(&[ReceiveRequest::new(99, &segments)]);
        refuses(two, ErrorKind::InvalidInput, EINVAL, "allowed; nothing was posted");
    });
}

#[test]
fn what_is_in_use_is_not_destroyed() {
    on_every_spreading_device(|_, _, context| {
        let mut queues = Queues::new(context, 2);
        let table = queues.table(&[0, 1]);
        let qp = queues.pd.rss(&table).hash(HashFields::IPV4).create().unwrap();
        let flow = qp.create_flow(&for_mac()).unwrap();
        let queue = queues.queues.pop().unwrap();
        let (queue, error) = queue.destroy().unwrap_err();
        refuses::<()>(Err(error), ErrorKind::Busy, EBUSY, "table");
        let (table, error) = table.destroy().unwrap_err();
        refuses::<()>(Err(error), ErrorKind::Busy, EBUSY, "queue pair");
        let (qp, error) = qp.destroy().unwrap_err();
        refuses::<()>(Err(error), ErrorKind::Busy, EBUSY, "flow");
        flow.destroy().map_err(|(_, error)| error).unwrap();
        qp.destroy().map_err(|(_, error)| error).unwrap();
        table.destroy().map_err(|(_, error)| error).unwrap();
        queue.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    on_every_spreading_device(|_, wire, context| {
        let make = || -> (Queues, IndirectionTable, RssQueuePair, Flow) {
            let mut queues = Queues::new(context, 2);
            (0..2).for_each(|queue| queues.post(queue));
            queues.all_to(WorkQueueState::Ready);
            let table = queues.table(&[0, 1]);
            let qp = queues.pd.rss(&table).hash(HashFields::IPV4).create().unwrap();
            let flow = qp.create_flow(&for_mac()).unwrap();
            (queues, table, qp, flow)
        };
        // Only the flow is left, and frames still arrive: in memory that still exists.
        let (queues, table, qp, flow) = make();
        drop((queues, table, qp));
        wire.inject(&tcp("10.0.0.1", "10.0.0.2", [1, 2]));
        drop(flow);
        let (queues, table, qp, flow) = make();
        drop((flow, qp, table, queues));
        let (queues, table, qp, flow) = make();
        drop((table, flow, queues, qp));
        let (mut queues, table, qp, flow) = make();
        // One work queue is dropped; the other still gets its frames, and no queue gets those of the first.
        let gone = queues.queues.remove(0);
        drop(gone);
        for (from, to, ports, ..) in V4 {
            wire.inject(&tcp(from, to, ports));
        }
        // The hash of one is odd.
        let number = queues.queues[0].number();
        let got: Vec<_> = queues.await_completions(1).iter().map(|got| got.qp_num).collect();
        assert_eq!((got, queues.completions()), (vec![number], vec![]));
        drop((table, qp, flow));
    });
}

#[test]
fn what_makes_no_sense_is_refused_before_it_is_sent() {
    on_every_spreading_device(|target, _, context| {
        let queues = Queues::new(context, 3);
        let [a, b, c] = [0, 1, 2].map(|queue| &queues.queues[queue]);
        let table = |list: &[&WorkQueue]| context.create_indirection_table(list);
        refuses(table(&[]), ErrorKind::InvalidInput, EINVAL, "power of two");
        refuses(table(&[a, b, c]), ErrorKind::InvalidInput, EINVAL, "power of two");
        refuses(
            table(&[a; 8192 * 2]),
            ErrorKind::InvalidInput,
            EINVAL,
            "16384 given, a power of two up to 8192 allowed",
        );
        let most = context.query_device().unwrap().rss_caps.max_rwq_indirection_table_size as usize;
        table(&vec![a; most]).unwrap();
        refuses(table(&vec![a; 2 * most]), ErrorKind::InvalidInput, EINVAL, "max_rwq_indirection_table_size");

        let two = table(&[a, b]).unwrap();
        let rss = |fields| queues.pd.rss(&two).hash(fields).create();
        let both = HashFields::SRC_IPV4 | HashFields::DST_IPV6;
        refuses(rss(both), ErrorKind::InvalidInput, EINVAL, "IPv4 and IPv6");
        let both = HashFields::SRC_PORT_TCP | HashFields::DST_PORT_UDP;
        refuses(rss(both), ErrorKind::InvalidInput, EINVAL, "TCP and UDP");
        refuses(rss(HashFields::empty()), ErrorKind::InvalidInput, EINVAL, "needs fields");
        rss(HashFields::UDP).unwrap();

        let work_queue = |depth| queues.pd.work_queue(&queues.cq).depth(depth);
        refuses(work_queue(0).create(), ErrorKind::InvalidInput, EINVAL, " given, ");
        refuses(work_queue(u32::MAX).create(), ErrorKind::InvalidInput, EINVAL, " given, ");
        refuses(work_queue(1).segments(1 << 20).create(), ErrorKind::InvalidInput, EINVAL, "segments");
        let larger = work_queue(5).segments(3).create().unwrap();
        assert_eq!((larger.capacity(), larger.segments()), (8, 4));

        let other = target.open();
        let elsewhere = other.create_cq(4).unwrap();
        let foreign = queues.pd.work_queue(&elsewhere).create();
        refuses(foreign, ErrorKind::InvalidInput, EINVAL, "another open device");
        refuses(other.create_indirection_table(&[a]), ErrorKind::InvalidInput, EINVAL, "another open device");
        let foreign = other.alloc_pd().unwrap().rss(&two).hash(HashFields::IPV4).create();
        refuses(foreign, ErrorKind::InvalidInput, EINVAL, "another open device");
    });
}

#[test]
fn every_command_of_a_spreading_queue_pair_may_fail() {
    on_every_spreading_device(|target, _, _| {
        let mut nth = 0;
        loop {
            nth += 1;
            let open = target.device.open_with(Fault::new(nth, EINVAL));
            let result = open.and_then(|context| {
                let (pd, cq) = (context.alloc_pd()?, context.create_cq(4)?);
                let mut queue = pd.work_queue(&cq).create()?;
                let table = context.create_indirection_table(&[&queue])?;
                let qp = pd.rss(&table).create()?;
                queue.modify(WorkQueueState::Ready)?;
                let flow = qp.create_flow(&for_mac())?;
                flow.destroy().map_err(|(_, error)| error)?;
                qp.destroy().map_err(|(_, error)| error)?;
                table.destroy().map_err(|(_, error)| error)?;
                queue.destroy().map_err(|(_, error)| error)
            });
            match result {
                Err(error) => assert_eq!(error.errno(), Some(EINVAL), "{error}"),
                Ok(()) if nth > 20 => break,
                Ok(()) => {}
            }
        }
    });
}

#[test]
fn a_device_without_work_queues_says_so() {
    on_every_device(|target| {
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
        let refused = match pd.work_queue(&cq).create() {
            Ok(_) => return skip(target, "it has them"),
            refused => refused,
        };
        refuses(refused, ErrorKind::Unsupported, EOPNOTSUPP, "work queues");
        let refused = context.create_indirection_table(&[]);
        refuses(refused, ErrorKind::Unsupported, EOPNOTSUPP, "work queues");
        let caps = context.query_device().unwrap();
        assert_eq!((caps.max_wq_type_rq, caps.rss_caps.max_rwq_indirection_table_size), (0, 0));
        // The kernel itself returns this for such a command.
        let file = target.raw();
        let ask = |number, request: &[u8]| {
            let command = RawCommand::write(number).with(RawAttr::input(CORE_IN, request));
            file.invoke(&mut command.with(RawAttr::output(CORE_OUT, 32)))
        };
        let no = Err(EOPNOTSUPP);
        assert_eq!(ask(cmd::EX_CREATE_WQ, ExCreateWq::new_zeroed().as_bytes()), no);
        assert_eq!(ask(cmd::EX_MODIFY_WQ, ExModifyWq::new_zeroed().as_bytes()), no);
        assert_eq!(ask(cmd::EX_CREATE_RWQ_IND_TBL, ExCreateRwqIndTable::new_zeroed().as_bytes()), no);
    });
}
