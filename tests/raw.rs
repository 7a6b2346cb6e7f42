//! What the layer for bindings has in addition to the safe interface.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use uverbs::abi::flow::{ATTR_ALL_DEFAULT, ATTR_MC_DEFAULT, ATTR_NORMAL, ATTR_SNIFFER, FlowAttr};

use uverbs::abi::types::{QpAttrMask, QpCreateFlags, SendFlags, qp_state, qp_type, wc_opcode, wc_status};
use uverbs::abi::write::{ModifyQp, QpDest};
use uverbs::command::Command;
use uverbs::raw::provider::{Mlx5, Rxe};
use uverbs::raw::{
    Batch, CompletionObject, Data, DriverCq, DriverQp, Extended, FillReceives, FillSends, Holder, Lower,
    LowerReceive, MESSAGES, Opcode, Origin, Place, QueuePair, QueuePairInit, Raised, ReceiveBatch,
    ReceiveQueue, Refused, SendQueue, Sge,
};
use uverbs::transport::Watcher;
use uverbs::{
    AccessFlags, Capacity, CompletionCounter, CompletionQueue, Context, Counted, CounterEvents, Counters,
    ErrorKind, FlowRule, Point, ProtectionDomain, SoftDevice, WaitObject,
};
use zerocopy::FromZeros;

#[test]
fn completions_of_a_queue_pair_can_be_taken_out() {
    let context = SoftDevice::default().open().unwrap();
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(8).unwrap());
    let capacity = Capacity { sends: 1, receives: 4, receive_segments: 1, ..Capacity::default() };
    let (flags, object) = (QpCreateFlags::empty(), cq.object());
    let init = || QueuePairInit {
        type_: qp_type::UD,
        send_cq: &object,
        receive_cq: &object,
        srq: None,
        capacity,
        operations: None,
        cookie: 0,
        flags,
    };
    let mut qps = [pd.create_parts(&init()).unwrap(), pd.create_parts(&init()).unwrap()];
    let modify =
        |(qp, sends, receives): &mut (QueuePair, SendQueue, Option<ReceiveQueue>), qp_state, more| {
            let attr_mask = (QpAttrMask::STATE | more).bits();
            let request = ModifyQp { attr_mask, qp_state, port_num: 1, ..ModifyQp::new_zeroed() };
            qp.modify(&request, Some(sends), receives.as_mut()).unwrap();
        };
    // Flushed in turns, so that the completions that stay and those that are removed alternate.
    for (round, at) in [0, 1, 0, 1].into_iter().enumerate() {
        let qp = &mut qps[at];
        modify(qp, qp_state::INIT, QpAttrMask::PORT | QpAttrMask::PKEY_INDEX | QpAttrMask::QKEY);
        let receives = qp.2.as_mut().unwrap();
        receives.post_one(round as u64, &[Sge { addr: 0x1000, length: 64, lkey: 5 }]).unwrap();
        modify(qp, qp_state::ERR, QpAttrMask::empty());
        modify(qp, qp_state::RESET, QpAttrMask::empty());
    }
    let mut completions = [Extended::default(); 8];
    cq.forget(qps[0].0.number());
    assert_eq!(cq.poll_places(&mut completions), 2);
    assert_eq!([0, 1].map(|at| completions[at].wc.wr_id), [1, 3]);
    assert_eq!([0, 1].map(|at| completions[at].wc.qp_num), [qps[1].0.number(); 2]);
    assert_eq!(cq.poll_places(&mut completions), 0);
}

/// A reliable queue pair that is connected to itself.
fn talking_to_itself(
    context: &Context,
    pd: &ProtectionDomain,
    init: &QueuePairInit<'_>,
) -> (QueuePair, SendQueue, Option<ReceiveQueue>) {
    let (qp, mut sends, mut receives) = pd.create_parts(init).unwrap();
    connect(context, &qp, &mut sends, receives.as_mut());
    (qp, sends, receives)
}

fn connect(
    context: &Context,
    qp: &QueuePair,
    sends: &mut SendQueue,
    mut receives: Option<&mut ReceiveQueue>,
) {
    let dest =
        QpDest { dgid: context.gid(1, 0).unwrap().raw, is_global: 1, port_num: 1, ..QpDest::new_zeroed() };
    type A = QpAttrMask;
    let steps = [
        (qp_state::INIT, A::PORT | A::PKEY_INDEX | A::ACCESS_FLAGS),
        (
            qp_state::RTR,
            A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN | A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER,
        ),
        (qp_state::RTS, A::SQ_PSN | A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC),
    ];
    for (qp_state, mask) in steps {
        let request = ModifyQp {
            attr_mask: (A::STATE | mask).bits(),
            qp_state,
            port_num: 1,
            dest,
            dest_qp_num: qp.number(),
            path_mtu: 3,
            rnr_retry: 7,
            ..ModifyQp::new_zeroed()
        };
        qp.modify(&request, Some(&mut *sends), receives.as_deref_mut()).unwrap();
    }
}

fn enter(qp: &QueuePair, qp_state: u8, sends: &mut SendQueue, receives: Option<&mut ReceiveQueue>) {
    let request = ModifyQp { attr_mask: QpAttrMask::STATE.bits(), qp_state, ..ModifyQp::new_zeroed() };
    qp.modify(&request, Some(sends), receives).unwrap();
}

#[test]
fn a_message_that_was_posted_first_finds_its_receive() {
    let context = SoftDevice::default().open().unwrap();
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(8).unwrap());
    let mut srq = pd.create_srq(4).unwrap();
    for shared in [false, true] {
        let capacity = Capacity { sends: 1, receives: 4, receive_segments: 1, ..Capacity::default() };
        let (flags, object) = (QpCreateFlags::empty(), cq.object());
        let init = || QueuePairInit {
            type_: qp_type::RC,
            send_cq: &object,
            receive_cq: &object,
            srq: shared.then_some(&srq),
            capacity,
            operations: None,
            cookie: 0,
            flags,
        };
        let (_qp, mut sends, mut receives) = talking_to_itself(&context, &pd, &init());
        sends.put(1, SendFlags::SIGNALED, &Opcode::Send, &[]).unwrap();
        sends.publish().unwrap();
        let mut completions = [Extended::default(); 4];
        assert_eq!(cq.poll_places(&mut completions), 0);
        match &mut receives {
            Some(receives) => receives.post_one(2, &[]).unwrap(),
            None => srq.queue_mut().post_one(2, &[]).unwrap(),
        }
        assert_eq!(cq.poll_places(&mut completions), 2, "shared: {shared}");
        let mut wr_ids = [0, 1].map(|at| (completions[at].wc.wr_id, completions[at].wc.status));
        wr_ids.sort_unstable();
        assert_eq!(wr_ids, [(1, wc_status::SUCCESS), (2, wc_status::SUCCESS)]);
    }
}

#[test]
fn a_rule_in_the_kernels_layout_counts_only_where_the_kernel_survives_it() {
    let context = SoftDevice::default().open().unwrap();
    let (counters, other) = (context.create_counters().unwrap(), context.create_counters().unwrap());
    counters.attach(Point::Packets, 0).unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
    let qp = pd.raw_packet(&cq).connect(1).unwrap();
    let ethernet = FlowRule::normal(1).eth(uverbs::Eth::any()).specs().to_vec();
    let count = FlowRule::normal(1).count(&other).specs().to_vec();
    let rule = |type_, parts: &[&[u8]], counters: Option<(&Counters, usize)>| {
        let attr = FlowAttr { type_, port: 1, num_of_specs: parts.len() as u8, ..FlowAttr::new_zeroed() };
        FlowRule::from_kernel(attr, &parts.concat(), counters)
    };
    let at = ethernet.len();
    let refused = |rule: uverbs::Result<FlowRule>, hint: &str| {
        let error = rule.unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidInput, Some(22)), "{error}");
        assert!(error.hint().unwrap().contains(hint), "{error}");
    };
    for type_ in [ATTR_ALL_DEFAULT, ATTR_MC_DEFAULT, ATTR_SNIFFER, 9] {
        refused(rule(type_, &[&count], Some((&counters, 0))), "normal rule");
        refused(rule(type_, &[&ethernet, &count], Some((&counters, at))), "normal rule");
        rule(type_, &[], None).unwrap();
    }
    // A rule that names an object only by its handle would bypass the guard between reads and binds.
    refused(rule(ATTR_NORMAL, &[&count], None), "needs counters");
    refused(rule(ATTR_ALL_DEFAULT, &[&count], None), "needs counters");
    refused(rule(ATTR_NORMAL, &[&count, &count], Some((&counters, 0))), "one counters object");
    refused(rule(ATTR_NORMAL, &[&count, &count], Some((&counters, 16))), "one counters object");
    refused(rule(ATTR_NORMAL, &[&ethernet], Some((&counters, 0))), "no count action");
    refused(rule(ATTR_NORMAL, &[&ethernet, &count], Some((&counters, at + 8))), "no count action");
    // A spec at which the kernel would stop, and what it would read before.
    let mut shorter = count.clone();
    shorter[4] = 7;
    refused(rule(ATTR_NORMAL, &[&shorter, &count], Some((&counters, 16))), "no count action");
    shorter[4] = 8;
    refused(rule(ATTR_NORMAL, &[&ethernet, &shorter[..8]], Some((&counters, at))), "8 given, 16 allowed");

    let flow = qp.create_flow(&rule(ATTR_NORMAL, &[&ethernet, &count], Some((&counters, at))).unwrap());
    drop(flow.unwrap());
    let mut most = vec![0; 880];
    most[864..].copy_from_slice(&count);
    refused(FlowRule::from_kernel(FlowAttr::new_zeroed(), &most, Some((&counters, 864))), "no count action");
}

const CAPACITY: Capacity =
    Capacity { sends: 7, receives: 7, send_segments: 2, receive_segments: 2, inline: 64, large_header: 0 };

/// The properties of a queue pair with one completion queue.
fn init(cq: &CompletionObject) -> QueuePairInit<'_> {
    QueuePairInit {
        type_: qp_type::RC,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        capacity: CAPACITY,
        operations: None,
        cookie: 0,
        flags: QpCreateFlags::empty(),
    }
}

#[test]
fn what_another_driver_has_is_refused() {
    let context = SoftDevice::default().open().unwrap();
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(8).unwrap());
    let flagged = context.cq(8).driver(DriverCq { flags: 1, ..DriverCq::default() }).create();
    assert_eq!(flagged.unwrap_err().kind(), ErrorKind::Unsupported);
    let (object, driver) = (cq.object(), DriverQp { service_level: 1, ..DriverQp::default() });
    let chosen = pd.create_driver_parts(&init(&object), driver);
    assert_eq!(chosen.unwrap_err().kind(), ErrorKind::Unsupported);
    let (_qp, mut sends, receives) = pd.create_parts(&init(&object)).unwrap();
    assert_eq!(sends.set_hints(1), Err(Refused::Lacks));
    sends.begin(1, SendFlags::SIGNALED, &Opcode::Send).unwrap();
    assert_eq!(sends.set_hints(1), Err(Refused::Lacks), "not of a request either");
    let own = [sends.hand_over(), receives.unwrap().hand_over(), cq.hand_over()];
    assert!(own.iter().all(Option::is_none), "{own:?}");
}

/// The numbers and statuses of completions, receives and sends separately.
fn ended(cq: &mut CompletionQueue) -> [Vec<(u64, u32)>; 2] {
    let mut completions = [Extended::default(); 16];
    let count = cq.poll_places(&mut completions);
    let (receives, sends): (Vec<_>, Vec<_>) =
        completions[..count].iter().map(|each| each.wc).partition(|wc| wc.opcode & wc_opcode::RECV != 0);
    [receives, sends].map(|list| list.iter().map(|wc| (wc.wr_id, wc.status)).collect())
}

type NoPieces = std::iter::Empty<Sge>;
type NoBytes = std::iter::Empty<&'static [u8]>;

fn nothing() -> Data<NoPieces, NoBytes> {
    Data::Pieces(std::iter::empty())
}

/// Puts a request, and stops in the next one or after it.
struct Stops {
    within: bool,
}

/// Pieces that stop halfway.
#[derive(Clone)]
struct Pieces(usize);

impl Iterator for Pieces {
    type Item = Sge;

    fn next(&mut self) -> Option<Sge> {
        self.0 = self.0.checked_sub(1).expect("stopped");
        Some(Sge { addr: 1, length: 1, lkey: 1 })
    }
}

impl ExactSizeIterator for Pieces {
    fn len(&self) -> usize {
        2
    }
}

impl FillSends for Stops {
    type Error = Refused;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Refused> {
        batch.put(1, SendFlags::SIGNALED, &Opcode::Send, None, &nothing()).unwrap();
        if self.within {
            let data = Data::<_, NoBytes>::Pieces(Pieces(1));
            batch.put(2, SendFlags::SIGNALED, &Opcode::Send, None, &data).unwrap();
        }
        batch.begin(3, SendFlags::SIGNALED, &Opcode::Send).unwrap();
        panic!("stopped");
    }
}

impl FillReceives for Stops {
    type Answer = ();

    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) {
        batch.put(1, std::iter::empty::<Sge>()).unwrap();
        if self.within {
            batch.put(2, Pieces(1)).unwrap();
        }
        panic!("stopped");
    }

    fn is_kept((): &()) -> bool {
        true
    }
}

#[test]
fn a_batch_that_stops_halfway_goes_out_with_no_other() {
    for (within, is_step, is_counted) in (0..8).map(|at| (at & 1 != 0, at & 2 != 0, at & 4 != 0)) {
        let context = SoftDevice::default().open().unwrap();
        let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
        let sent = CompletionCounter::new(WaitObject::None).unwrap();
        let (qp, mut sends, receives) = pd.create_parts(&init(&cq.object())).unwrap();
        let mut receives = receives.unwrap();
        if is_counted {
            qp.bind_counter(&mut sends, &sent, Counted::SEND).unwrap();
        }
        connect(&context, &qp, &mut sends, Some(&mut receives));
        let stopped = catch_unwind(AssertUnwindSafe(|| receives.post(Stops { within })));
        assert!(stopped.is_err());
        for wr_id in [10, 11] {
            receives.post_one(wr_id, &[]).unwrap();
        }
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            if is_step { sends.step(Stops { within }) } else { sends.batch(Stops { within }) }
        }));
        assert!(stopped.is_err());
        sends.publish().unwrap();
        assert_eq!(ended(&mut cq), [vec![], vec![]]);
        sends.put(4, SendFlags::SIGNALED, &Opcode::Send, &[]).unwrap();
        sends.publish().unwrap();
        assert_eq!(ended(&mut cq), [vec![(10, wc_status::SUCCESS)], vec![(4, wc_status::SUCCESS)]]);
        assert_eq!((sent.read(), sent.read_err()), (u64::from(is_counted), 0));
        // The shortest path does not take back what is filled; but a request that is not filled completely is not seen.
        if !is_counted {
            let here = Origin::here().ask().unwrap();
            let mut step = sends.one::<Rxe, true, MESSAGES>(Some(here)).unwrap();
            step.begin(5, SendFlags::SIGNALED, &Opcode::Send).unwrap();
            let data = Data::<_, NoBytes>::Pieces(Pieces(1));
            let put = || step.put(6, SendFlags::SIGNALED, &Opcode::Send, None, &data);
            assert!(catch_unwind(AssertUnwindSafe(put)).is_err());
            drop(step);
            sends.publish().unwrap();
            assert_eq!(ended(&mut cq), [vec![(11, wc_status::SUCCESS)], vec![(5, wc_status::SUCCESS)]]);
        }
        let here = Origin::here().ask().unwrap();
        assert_eq!(is_counted, sends.one::<Rxe, true, MESSAGES>(Some(here)).is_none());
        assert_eq!(is_counted, sends.several::<Rxe, MESSAGES>(here).is_none());
        assert_eq!(is_counted, sends.short::<Rxe, MESSAGES>(here).is_none());
        assert!(sends.one::<Mlx5, true, MESSAGES>(Some(here)).is_none(), "it is of another driver");
        enter(&qp, qp_state::ERR, &mut sends, Some(&mut receives));
        assert_eq!(ended(&mut cq)[1], []);
    }
}

#[test]
fn the_shortest_way_asks_whose_the_queue_is_and_has_no_room_that_is_not_known() {
    let context = SoftDevice::default().open().unwrap();
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
    let (_qp, mut sends, receives) = talking_to_itself(&context, &pd, &init(&cq.object()));
    receives.unwrap().post_one(10, &[]).unwrap();
    let here = Origin::here().ask().unwrap();
    let mut known = sends.one::<Rxe, false, MESSAGES>(Some(here)).unwrap();
    let refused = known.put(1, SendFlags::SIGNALED, &Opcode::Send, None, &nothing());
    assert_eq!(refused, Err(Refused::Full), "nobody has looked");
    drop(known);
    let put = |sends: &mut SendQueue, wr_id| {
        let mut step = sends.one::<Rxe, true, MESSAGES>(Some(here)).unwrap();
        step.put(wr_id, SendFlags::SIGNALED, &Opcode::Send, None, &nothing()).unwrap();
    };
    put(&mut sends, 2);
    sends.rewind();
    put(&mut sends, 3);
    sends.publish_here::<Rxe>(here).unwrap();
    sends.publish().unwrap();
    assert_eq!(ended(&mut cq), [vec![(10, wc_status::SUCCESS)], vec![(3, wc_status::SUCCESS)]]);
    // A holder that is not held belongs to no queue.
    let holder = Holder::new();
    assert!(holder.ask().is_none());
    holder.hold(Origin::here());
    assert!(holder.ask().is_some_and(|here| sends.one::<Rxe, true, MESSAGES>(Some(here)).is_some()));
    holder.release();
    assert!(holder.ask().is_none());
}

/// Takes completions, and stops at the second.
struct Once(u32);

impl Place for Once {
    fn put(&mut self, _: &impl Raised) {
        assert_eq!(self.0, 0);
    }
}

#[test]
fn no_completion_is_handed_on_twice() {
    let context = SoftDevice::default().open().unwrap();
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
    let (_qp, mut sends, receives) = talking_to_itself(&context, &pd, &init(&cq.object()));
    let mut receives = receives.unwrap();
    let mut send = |wr_id| {
        receives.post_one(wr_id, &[]).unwrap();
        sends.put(wr_id, SendFlags::SIGNALED, &Opcode::Send, &[]).unwrap();
        sends.publish().unwrap();
    };
    send(1);
    let stopped = catch_unwind(AssertUnwindSafe(|| cq.poll_places(&mut [Once(0), Once(1)])));
    assert!(stopped.is_err());
    send(2);
    assert_eq!(ended(&mut cq), [vec![(2, wc_status::SUCCESS)], vec![(2, wc_status::SUCCESS)]]);
}

/// Begins requests, and gives the last one data as often as there is some.
struct Steps<'a>(&'a [u64], &'a [&'a [u8]]);

impl FillSends for Steps<'_> {
    type Error = Refused;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Refused> {
        self.0.iter().try_for_each(|wr_id| batch.begin(*wr_id, SendFlags::SIGNALED, &Opcode::Send))?;
        self.1.iter().try_for_each(|bytes| {
            let data = Data::<NoPieces, _>::Inline(std::iter::once(*bytes));
            batch.set_data(SendFlags::SIGNALED | SendFlags::INLINE, None, &data)
        })
    }
}

#[test]
fn what_is_begun_counts_once_and_only_if_it_is_posted() {
    let context = SoftDevice::default().open().unwrap();
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
    let counter = |events| CompletionCounter::builder().events(events).create().unwrap();
    let (number, bytes) = (counter(CounterEvents::Completions), counter(CounterEvents::Bytes));
    let (qp, mut sends, receives) = pd.create_parts(&init(&cq.object())).unwrap();
    let mut receives = receives.unwrap();
    for counter in [&number, &bytes] {
        qp.bind_counter(&mut sends, counter, Counted::SEND).unwrap();
    }
    connect(&context, &qp, &mut sends, Some(&mut receives));
    let memory = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
    let room = |at: u64| Sge { addr: memory.address() + at, length: 64, lkey: memory.lkey() };
    for wr_id in 0..7 {
        receives.post_one(wr_id, &[room(64 * wr_id)]).unwrap();
    }
    let values = || (number.read(), bytes.read(), number.read_err());
    assert_eq!(sends.step(Steps(&[], &[b"none"])), Err(Refused::NotBegun));
    // Two in one step, the last with data that is set twice, and one that is refused for its data.
    assert_eq!(sends.step(Steps(&[1, 2], &[b"first data", b"data"])), Ok(()));
    sends.publish().unwrap();
    assert_eq!(ended(&mut cq).map(|list| list.len()), [2, 2]);
    assert_eq!(values(), (2, 4, 0));
    let mut text = [0; 5];
    memory.read(64, &mut text).unwrap();
    assert_eq!(text, *b"data\0");
    assert_eq!(sends.step(Steps(&[3, 4], &[&[1; 65]])), Err(Refused::TooLarge));
    sends.rewind();
    sends.publish().unwrap();
    // More than there are slots: those before are kept or discarded as the caller says.
    assert_eq!(sends.batch(Steps(&[5; 8], &[])), Err(Refused::Full));
    sends.rewind();
    assert_eq!(sends.batch(Steps(&[6], &[])), Ok(()));
    // A reset discards what was begun.
    enter(&qp, qp_state::RESET, &mut sends, Some(&mut receives));
    assert_eq!(sends.step(Steps(&[], &[b"late"])), Err(Refused::NotBegun));
    connect(&context, &qp, &mut sends, Some(&mut receives));
    sends.publish().unwrap();
    assert_eq!(ended(&mut cq), [vec![], vec![]]);
    for wr_id in 0..7 {
        receives.post_one(wr_id, &[room(64 * wr_id)]).unwrap();
    }
    assert_eq!(sends.step(Steps(&[7], &[b"seven"])), Ok(()));
    sends.publish().unwrap();
    assert_eq!(ended(&mut cq), [vec![(0, wc_status::SUCCESS)], vec![(7, wc_status::SUCCESS)]]);
    assert_eq!(values(), (3, 9, 0));
}

/// Answers every command with EIO from the time that the device is removed.
#[derive(Debug)]
struct Gone(Arc<AtomicBool>);

impl Watcher for Gone {
    fn before(&self, _: &Command<'_>) -> Result<(), Errno> {
        if self.0.load(Ordering::Relaxed) { Err(Errno::EIO) } else { Ok(()) }
    }
}

/// A refused destroy returns the object. A device that was removed has destroyed its objects, and nothing waits for events that it did
/// not count.
#[test]
fn a_destroy_gives_back_what_is_in_use_and_ends_with_the_device() {
    let has_gone = Arc::new(AtomicBool::new(false));
    let context = SoftDevice::default().device().open_with(Gone(has_gone.clone())).unwrap();
    let pd = context.alloc_pd().unwrap();
    let (cq, srq) = (context.create_cq(8).unwrap(), pd.create_srq(4).unwrap());
    let (qp, ..) = pd.create_parts(&QueuePairInit { srq: Some(&srq), ..init(&cq.object()) }).unwrap();
    let object = cq.object();
    assert_eq!(object.destroy_reporting().unwrap_err().kind(), ErrorKind::Busy);
    let (srq, error) = srq.destroy_reporting().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    qp.destroy().unwrap();
    context.create_cq(8).unwrap().object().destroy_reporting().unwrap();

    let (qp, ..) = pd.create_parts(&QueuePairInit { srq: Some(&srq), ..init(&cq.object()) }).unwrap();
    has_gone.store(true, Ordering::Relaxed);
    assert_eq!(qp.destroy().unwrap(), 0);
    assert_eq!(srq.destroy_reporting().unwrap(), 0);
    assert_eq!(object.destroy_reporting().unwrap().comp_events_reported, 0);
}
