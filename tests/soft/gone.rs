//! A transport that returns errors although the soft device exists: memory must stay valid, and the device must not count as removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use uverbs::command::Command;
use uverbs::transport::Watcher;
use uverbs::{AccessFlags, ErrorKind, FlowRule, Point, ReceiveRequest, SendRequest, SoftDevice};

/// Returns EIO for every destroy, and passes on the other commands.
#[derive(Debug)]
struct Gone;

impl Watcher for Gone {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        if command.op().ends_with(".destroy") { Err(Errno::EIO) } else { Ok(()) }
    }
}

#[test]
fn a_device_that_was_told_nothing_may_write_to_memory_that_was_let_go() {
    let soft = SoftDevice::default();
    let context = soft.device().open_with(Gone).unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).unwrap();
    let mut qp = pd.raw_packet(&cq).connect(1).unwrap();
    let flow = qp.create_flow(&FlowRule::normal(1)).unwrap();
    let region = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
    let segments = [region.segment(0..2048).unwrap()];
    qp.post_receive(&[ReceiveRequest::new(1, &segments)]).unwrap();
    drop((flow, qp, region));
    assert_eq!(soft.resources().memory_regions, 1);
    soft.inject(&[7; 100]);
    drop((pd, cq, context));
    assert!(soft.resources().is_empty());
}

/// Refuses doorbells while this is set.
#[derive(Debug)]
struct Deaf(Arc<AtomicBool>);

impl Watcher for Deaf {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        let refuses = command.op() == "qp.post_send" && self.0.load(Ordering::Relaxed);
        if refuses { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// The device may still be at earlier requests when the kernel refuses a later one (siw does that).
#[test]
fn a_post_that_is_refused_lets_go_of_its_own_memory_only() {
    for count in [1, 2] {
        let (soft, is_deaf) = (SoftDevice::default(), Arc::new(AtomicBool::new(false)));
        let context = soft.device().open_with(Deaf(is_deaf.clone())).unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(8).unwrap());
        let mut qp = pd.raw_packet(&cq).connect(1).unwrap();
        let [first, second] = [(); 2].map(|()| pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap());
        qp.post_send(&[SendRequest::frame(1, &[first.segment(0..100).unwrap()])]).unwrap();
        drop(first);
        is_deaf.store(true, Ordering::Relaxed);
        let segments = [second.segment(0..100).unwrap()];
        let refused = qp.post_send(&vec![SendRequest::frame(2, &segments); count]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(soft.resources().memory_regions, 2, "{count}");
        drop(second);
        assert_eq!(soft.resources().memory_regions, 1, "{count}: nothing needs the second");
    }
}

/// Returns EIO for one kind of command.
#[derive(Debug)]
struct Failing(&'static str);

impl Failing {
    fn refuse(&self, op: &str) -> Result<(), Errno> {
        if op == self.0 { Err(Errno::EIO) } else { Ok(()) }
    }
}

impl Watcher for Failing {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        self.refuse(command.op())
    }

    fn before_map(&self, _: u64, _: usize) -> Result<(), Errno> {
        self.refuse("map")
    }
}

#[test]
fn a_command_that_fails_with_eio_on_a_device_that_is_there_is_not_its_end() {
    for op in [
        "context.create",
        "map",
        "port.query",
        "counters.create",
        "flow.create",
        "counters.read",
        "cq.destroy",
    ] {
        let soft = SoftDevice::default();
        let context = soft.device().open_with(Failing(op));
        let answer = context.and_then(|context| {
            let cq = context.create_cq(8)?;
            context.query_port(1)?;
            let counters = context.create_counters()?;
            counters.attach(Point::Packets, 0)?;
            let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
            let flow = qp.create_flow(&FlowRule::normal(1).count(&counters))?;
            flow.reader()?.read()?;
            drop((flow, qp));
            cq.destroy().map_err(|(_, error)| error)
        });
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Other, Some(5)), "{op}: {error}");
        assert!(error.hint().unwrap().contains("the device is there"), "{error}");
        assert!(op == "map" || error.op() == op, "{error}");
    }
}

#[test]
fn eio_of_a_device_that_has_gone_says_so() {
    let soft = SoftDevice::default();
    let context = soft.open().unwrap();
    let cq = context.create_cq(8).unwrap();
    soft.unplug();
    assert_eq!(context.query_port(1).unwrap_err().kind(), ErrorKind::Disassociated);
    assert_eq!(soft.open().unwrap_err().kind(), ErrorKind::Disassociated);
    cq.destroy().unwrap();
}
