//! Each scenario is repeated with its first, second, ... last command failing: an error is returned, nothing panics, and no object is
//! left.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::*;
use uverbs::soft::Profile;
use uverbs::transport::{Fault, Trace, Watched};
use uverbs::{
    AccessFlags, Bind, ConnectionOptions, Context, Datagram, Eth, EventKind, FlowRule, MULTICAST_QP, Mapping,
    Operation, Result, SendRequest, WindowType, XrcOpen,
};

/// Counts trace events without reading them.
struct Calls(Arc<AtomicU64>);

impl Write for Calls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn write_fmt(&mut self, _line: fmt::Arguments<'_>) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `scenario` once with the `nth` command failing. Returns its result, or `None` if it sent fewer commands.
fn once(
    target: &Target,
    (nth, errno): (u64, i32),
    scenario: impl Fn(&Context) -> Result<()>,
) -> Option<Result<()>> {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Calls(calls.clone());
    let open = target.device.open_through(|inner| {
        Box::new(Watched::new(Box::new(Watched::new(inner, Fault::new(nth, errno))), Trace::new(counted)))
    });
    let result = open.and_then(|context| scenario(&context));
    if let Err(error) = &result {
        assert_ne!(error.op(), "", "{error}");
    }
    // Everything is closed now, so no more commands are sent.
    let met = calls.load(Ordering::Relaxed) >= nth;
    assert!(met || result.is_ok(), "no command has failed, and yet: {result:?}");
    met.then_some(result)
}

/// Runs `scenario` with its nth command failing, for every n up to its number of commands, and for every errno of `errnos`.
fn sweep(scenario: impl Fn(&Context, &Target) -> Result<()>) {
    // Miri checks memory, for which the errno does not matter.
    let errnos = if cfg!(miri) { &[EINVAL][..] } else { &[EINVAL, ENOMEM, EIO, EBUSY] };
    for &errno in errnos {
        for nth in 1.. {
            let target = Target::soft(Profile::default());
            let resources = || target.soft.as_ref().unwrap().resources();
            let result = once(&target, (nth, errno), |context| {
                let result = scenario(context, &target);
                // If a destroy fails in a `drop`, the object and its parents are left to the close.
                assert!(result.is_ok() || resources().contexts == 1, "{:?}", resources());
                result
            });
            assert!(resources().is_empty(), "command {nth} failing with {errno} left {:?}", resources());
            if result.is_none() {
                println!("{} commands have failed with {errno}", nth - 1);
                break;
            }
        }
    }
}

/// The same on a real device that counts, whose kernel reports what is left.
fn sweep_real(scenario: impl Fn(&Context, &Target) -> Result<()>) {
    on_every_counting_device(|target| {
        if target.soft.is_some() {
            return;
        }
        for errno in [EINVAL, ENOMEM, EIO, EBUSY] {
            let failing = |nth| {
                let result = once(target, (nth, errno), |context| scenario(context, target))?;
                // The library treats a command that was not even sent as a counter that the firmware may have refused.
                if result.is_err_and(|error| error.op() == "flow.create") {
                    target.keeps_a_context();
                }
                Some(())
            };
            let commands = (1..).take_while(|&nth| failing(nth).is_some()).count();
            println!("{commands} commands have failed with {errno}");
        }
    });
}

#[test]
fn every_command_of_a_counting_flow_may_fail() {
    let scenario = |context: &Context, target: &Target| {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(4)?;
        let qp = pd.raw_packet(&cq).connect(1)?;
        let counters = context.create_counters()?;
        counters.attach(uverbs::Point::Packets, 0)?;
        let flow = qp.create_flow(&FlowRule::normal(1).eth(Eth::any().dst(MAC)).count(&counters))?;
        target.wire().unwrap().inject(&frame(MAC, 60));
        let mut values = [0];
        counters.read(&mut values)?;
        assert_eq!(values, [1]);
        assert_eq!(flow.reader()?.read()?, [1]);
        flow.destroy().map_err(|(_, error)| error)?;
        counters.destroy().map_err(|(_, error)| error)?;
        qp.destroy().map_err(|(_, error)| error)?;
        cq.destroy().map_err(|(_, error)| error)?;
        pd.destroy().map_err(|(_, error)| error)
    };
    sweep(scenario);
    sweep_real(scenario);
}

#[test]
fn every_command_of_two_flows_dropped_in_any_order_may_fail() {
    sweep(|context, _| {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(4)?;
        let qp = pd.raw_packet(&cq).connect(1)?;
        let counters = context.create_counters()?;
        counters.attach(uverbs::Point::Bytes, 0)?;
        let rule = FlowRule::normal(1).count(&counters);
        let one = qp.create_flow(&rule)?;
        let two = qp.create_flow(&rule)?;
        drop((pd, cq, counters));
        drop(one);
        drop(qp);
        drop(two);
        drop(rule);
        Ok(())
    });
}

#[test]
fn every_command_of_a_frame_on_its_way_may_fail() {
    sweep(|context, target| {
        let channel = context.create_comp_channel()?;
        let mut cq = context.cq(8).channel(&channel).create()?;
        let pd = context.alloc_pd()?;
        let mut qp = pd.raw_packet(&cq).connect(1)?;
        let memory = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
        cq.notify(false)?;
        let segments = [memory.segment(0..2048)?];
        qp.post_receive(&[uverbs::ReceiveRequest::new(1, &segments)])?;
        let _flow = qp.create_flow(&FlowRule::normal(1))?;
        target.soft.as_ref().unwrap().inject(&frame(MAC, 60));
        let sent = [memory.segment(0..60)?];
        qp.post_send(&[uverbs::SendRequest::frame(2, &sent).signaled()])?;
        assert_eq!(cq.poll(&mut uverbs::Completion::batch::<8>()), 2);
        assert_eq!(channel.next_event()?, Some(0));
        context.gid_table()?;
        context.query_port(1)?;
        qp.state()?;
        Ok(())
    });
}

#[test]
fn every_command_of_a_shared_queue_a_group_and_a_drain_may_fail() {
    sweep(|context, _| {
        let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(16)?);
        let mut srq = pd.srq(4).limit(1).create()?;
        let memory = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
        let segments = [memory.segment(0..100)?];
        let requests = [uverbs::ReceiveRequest::new(1, &segments)];
        srq.post_receive(&requests)?;
        srq.resize(20)?;
        srq.post_receive(&requests)?;
        srq.arm(2)?;
        assert_eq!(srq.query()?.srq_limit, 2);
        let mut qp = pd.ud(&cq).srq(&srq).create()?;
        qp.activate(&uverbs::ConnectionOptions::new(1, 0), 5, 0)?;
        let group = [0xff; 16];
        let member = qp.join_multicast(&group, 0)?;
        let to = pd.create_ah(&uverbs::Route::new(1, 0, group))?;
        let datagram = Datagram { to: &to, qp_num: MULTICAST_QP, qkey: 5, immediate: None };
        qp.post_send(&[SendRequest::new(2, datagram, &[])])?;
        assert_eq!(context.next_event()?.map(|event| event.kind), Some(EventKind::SrqLimitReached));
        member.leave().map_err(|(_, error)| error)?;
        drop(qp.join_multicast(&group, 0)?);
        let mut ended = Vec::new();
        qp.drain(&mut [&mut cq], std::time::Duration::ZERO, |completion| ended.push(completion.wr_id))?;
        assert_eq!(ended, [1]);
        qp.destroy().map_err(|(_, error)| error)?;
        srq.destroy().map_err(|(_, error)| error)
    });
}

#[test]
fn every_command_of_an_extended_connection_may_fail() {
    sweep(|context, target| {
        let (pd, mut sent, mut received) =
            (context.alloc_pd()?, context.create_cq(4)?, context.create_cq(4)?);
        let file = std::fs::File::open("/dev/null").unwrap();
        let domain = context.open_xrcd_of(&file, XrcOpen::Create)?;
        // As another process would.
        let other = target.device.open()?;
        let same = other.open_xrcd_of(&file, XrcOpen::Existing)?;
        let mut srq = domain.srq(&pd, &received, 4).limit(1).create()?;
        let number = srq.number().unwrap();
        let memory = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
        srq.post_receive(&[uverbs::ReceiveRequest::new(1, &[memory.segment(0..100)?])])?;
        let mut there = domain.receive_qp().create()?;
        let opened = same.open_receive_qp(there.number())?;
        let mut here = pd.xrc_send(&sent).inline(16).create()?;
        let options = ConnectionOptions::new(1, 0);
        let (one, two) = (here.endpoint(&options, 0)?, there.endpoint(&options, 0)?);
        there.connect(&options, &one)?;
        here.connect(&options, &one, &two)?;
        let message = Operation::Send.to_srq(number);
        here.post_send(&[SendRequest::inline(2, message, b"hello").signaled()])?;
        assert_eq!(
            [
                sent.poll(&mut uverbs::Completion::batch::<4>()),
                received.poll(&mut uverbs::Completion::batch::<4>())
            ],
            [1; 2]
        );
        opened.state()?;
        there.destroy().map_err(|(_, error)| error)?;
        opened.destroy().map_err(|(_, error)| error)?;
        srq.destroy().map_err(|(_, error)| error)?;
        here.destroy().map_err(|(_, error)| error)?;
        same.destroy().map_err(|(_, error)| error)?;
        domain.destroy().map_err(|(_, error)| error)
    });
}

/// If the device continues in a new ring that cannot be mapped, posts fail.
#[test]
fn a_queue_that_lost_its_ring_takes_nothing_more() {
    let target = Target::soft(Profile::default());
    // The context's two commands, a domain, a queue and its ring; the sixth resizes, the seventh maps.
    let fault = Fault::new(7, ENOMEM);
    let context = target.device.open_with(fault).unwrap();
    let mut srq = context.alloc_pd().unwrap().create_srq(4).unwrap();
    let error = srq.resize(20).unwrap_err();
    assert_eq!((error.op(), error.kind()), ("srq.resize", uverbs::ErrorKind::Exhausted));
    let error = srq.post_receive(&[uverbs::ReceiveRequest::new(1, &[])]).unwrap_err();
    assert_eq!(error.kind(), uverbs::ErrorKind::Malformed);
    srq.resize(40).unwrap();
    srq.post_receive(&[uverbs::ReceiveRequest::new(1, &[])]).unwrap();
    srq.destroy().unwrap();
}

#[test]
fn every_command_of_a_region_that_changes_may_fail() {
    sweep(|context, _| {
        let (pd, other) = (context.alloc_pd()?, context.alloc_pd()?);
        let memory = Mapping::from(vec![0; 5000].into_boxed_slice());
        let mut region = pd.memory(&memory).range(1..4999).access(AccessFlags::LOCAL_WRITE).register()?;
        let changed = region
            .change_access(AccessFlags::empty())
            .and_then(|()| region.change_domain(&other))
            .and_then(|()| region.change_domain(&pd));
        // The region can be used, whatever failed.
        region.write(4997, b"!")?;
        region.destroy().map_err(|(_, error)| error)?;
        assert_eq!(Box::<[u8]>::try_from(memory).unwrap()[4998], b'!');
        changed
    });
}

#[test]
fn every_command_of_a_bound_window_may_fail() {
    sweep(|context, _| {
        let pd = context.alloc_pd()?;
        let mut cq = context.create_cq(4)?;
        let mut qp = pd.rc(&cq).create()?;
        let options = ConnectionOptions::new(1, 0);
        let me = qp.endpoint(&options, 0)?;
        qp.connect(&options, &me, &me)?;
        let region = pd.register(64, AccessFlags::MW_BIND)?;
        for kind in [WindowType::One, WindowType::Two] {
            let mut window = pd.alloc_window(kind)?;
            let key = window.rkey();
            if let Err(error) = qp.bind(&mut window, Bind::new(1, &region, 0..64)) {
                assert_eq!(window.rkey(), key);
                return Err(error);
            }
            if kind == WindowType::One {
                qp.unbind(&mut window, 2)?;
                assert_eq!(cq.poll(&mut uverbs::Completion::batch::<4>()), 1);
            } else {
                window.release()?;
            }
            qp.bind(&mut window, Bind::new(3, &region, 1..2))?;
            window.destroy().map_err(|(_, error)| error)?;
        }
        Ok(())
    });
}

/// A failed destroy returns the object, and a second attempt succeeds.
#[test]
fn a_destroy_that_failed_can_be_tried_again() {
    let target = Target::soft(Profile::default());
    let context = target.device.open_with(Fault::new(4, EBUSY)).unwrap();
    let pd = context.alloc_pd().unwrap();
    let (pd, error) = pd.destroy().unwrap_err();
    assert_eq!(error.kind(), uverbs::ErrorKind::Busy);
    pd.destroy().unwrap();
    assert_eq!(target.soft.as_ref().unwrap().resources().protection_domains, 0);
}
