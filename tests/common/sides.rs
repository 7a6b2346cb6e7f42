//! Two sides that communicate: queue pairs with their own memory and completion queues.

use std::panic::Location;
use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Context, ErrorKind, EventKind, MemoryRegion,
    MemoryWindow, Operation, ProtectionDomain, QpType, QueuePair, Rc, ReceiveRequest, Remote, Result,
    SendRequest, Status, Subject, Ud, WindowType,
};

use super::inline::with_inline;
use super::manager::{self, Manager};
use super::{Target, is_infiniband, on_every_device, skip_at};

/// All access rights of the peer.
pub const ALL: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Runs a behaviour on every device that has connected queue pairs, and an address to connect them; reports the others as skipped.
#[track_caller]
pub fn on_every_connecting_device(behaviour: impl Fn(&Target)) {
    let at = Location::caller();
    on_every_joining_device(|target| {
        if target.device.driver() == "siw" {
            skip_at(at, target, "its queue pairs are connected by others: any/managed.rs has its tests");
        } else {
            behaviour(target);
        }
    });
}

/// Runs a behaviour on those of these devices that also have what `make` makes; reports the others as skipped.
#[track_caller]
pub fn on_every_connecting_device_with<T>(
    what: &str,
    make: impl Fn(&Context) -> Result<T>,
    behaviour: impl Fn(&Target),
) {
    let at = Location::caller();
    on_every_connecting_device(|target| match make(&target.open()) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            skip_at(at, target, &format!("it has no {what}"));
        }
        _ => behaviour(target),
    });
}

/// A queue pair for datagrams.
pub fn datagrams(context: &Context) -> Result<QueuePair<Ud>> {
    context.alloc_pd()?.ud(&context.create_cq(4)?).create()
}

/// The same, including devices whose queue pairs a connection manager connects, as [`join`] does.
#[track_caller]
pub fn on_every_joining_device(behaviour: impl Fn(&Target)) {
    let at = Location::caller();
    let probe = |target: &Target| {
        let context = target.open();
        let cq = context.create_cq(4).unwrap();
        context.alloc_pd().unwrap().rc(&cq).create()?;
        context.gid_table()
    };
    on_every_device(|target| match probe(target) {
        // A virtual ConnectX with an Ethernet port and without a network interface.
        Ok(gids) if gids.is_empty() => skip_at(at, target, "its port has no address"),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            skip_at(at, target, "it has no connected queue pairs");
        }
        other => {
            drop(other.unwrap());
            behaviour(target);
        }
    });
}

/// Runs a behaviour on every device that has extended reliable connections; reports the others as skipped.
#[track_caller]
pub fn on_every_extended_device(behaviour: impl Fn(&Target)) {
    let at = Location::caller();
    let probe = |target: &Target| {
        let context = target.open();
        context.open_xrcd().map(drop)?;
        context.gid_table()
    };
    on_every_device(|target| match probe(target) {
        // As above.
        Ok(gids) if gids.is_empty() => skip_at(at, target, "its port has no address"),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            skip_at(at, target, error.hint().expect("a hint"));
        }
        other => {
            other.unwrap();
            behaviour(target);
        }
    });
}

/// The local identifier of a multicast group, which only InfiniBand has.
pub fn group_lid(context: &Context) -> u16 {
    if is_infiniband(context) { 0xc001 } else { 0 }
}

/// One side: a queue pair with its own memory and completion queue.
pub struct Side<T: QpType> {
    pub qp: QueuePair<T>,
    pub cq: CompletionQueue,
    pub memory: MemoryRegion,
    pub pd: ProtectionDomain,
}

impl<T: QpType> Side<T> {
    pub fn new(
        context: &Context,
        make: impl Fn(&ProtectionDomain, &CompletionQueue) -> QueuePair<T>,
    ) -> Self {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(32).unwrap();
        let qp = make(&pd, &cq);
        let memory = pd.register(1 << 16, ALL).unwrap();
        Self { qp, cq, memory, pd }
    }

    pub fn receive(&mut self, wr_id: u64, range: std::ops::Range<usize>) {
        let segments = [self.memory.segment(range).unwrap()];
        self.qp.post_receive(&[ReceiveRequest::new(wr_id, &segments)]).unwrap();
    }

    pub fn send(&mut self, wr_id: u64, operation: T::Operation<'_>, range: std::ops::Range<usize>) {
        let segments = [self.memory.segment(range).unwrap()];
        self.qp.post_send(&[SendRequest::new(wr_id, operation, &segments).signaled()]).unwrap();
    }

    /// The next completion, which takes time on a device of the kernel.
    #[track_caller]
    pub fn completion(&mut self) -> Completion {
        let start = Instant::now();
        let mut batch = Completion::batch::<1>();
        while self.cq.poll(&mut batch) == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "no completion");
            std::thread::yield_now();
        }
        batch[0]
    }

    pub fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.memory.address() + offset, rkey: self.memory.rkey() }
    }

    pub fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(offset, &mut bytes).unwrap();
        bytes
    }
}

/// Options for a GID that leads back to this device: that of an IPv4 address if there is one.
pub fn options(context: &Context) -> ConnectionOptions {
    options_of(context).unwrap()
}

/// The same for a device that may not answer.
pub fn options_of(context: &Context) -> Result<ConnectionOptions> {
    let gids = context.gid_table()?;
    let of_ipv4 = |raw: &[u8; 16]| raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let gid = gids.iter().find(|gid| of_ipv4(&gid.raw)).unwrap_or(&gids[0]);
    Ok(ConnectionOptions::new(1, gid.index as u8).access(ALL))
}

/// A connection, with room for inline data if the device has any.
pub fn connected(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePair<Rc> {
    with_inline(|bytes| pd.rc(cq).inline(bytes).create()).unwrap()
}

pub fn rc_pair_with(target: &Target, change: impl Fn(&mut ConnectionOptions)) -> (Side<Rc>, Side<Rc>) {
    let context = target.open();
    let (mut one, mut two) = (Side::new(&context, connected), Side::new(&context, connected));
    let mut options = options(&context);
    change(&mut options);
    connect_with(&options, &mut one.qp, &mut two.qp);
    (one, two)
}

pub fn rc_pair(target: &Target) -> (Side<Rc>, Side<Rc>) {
    rc_pair_with(target, |_| {})
}

/// Connects two queue pairs of one device to each other.
pub fn connect(context: &Context, one: &mut QueuePair<Rc>, two: &mut QueuePair<Rc>) {
    connect_with(&options(context), one, two);
}

/// The same on any device; the returned value keeps them connected.
pub fn join(context: &Context, one: &mut QueuePair<Rc>, two: &mut QueuePair<Rc>) -> Option<Manager> {
    if context.device().driver() == "siw" {
        let address = manager::address().expect("UVERBS_TEST_ADDRESS: that of the device's interface");
        Some(Manager::connect(address, one, two))
    } else {
        connect(context, one, two);
        None
    }
}

fn connect_with(options: &ConnectionOptions, one: &mut QueuePair<Rc>, two: &mut QueuePair<Rc>) {
    let (a, b) = (one.endpoint(options, 17).unwrap(), two.endpoint(options, 0xab_cdef).unwrap());
    one.connect(options, &a, &b).unwrap();
    two.connect(options, &b, &a).unwrap();
}

/// Waits up to 20 seconds for an event about this subject; other events are skipped.
#[track_caller]
pub fn event_about(context: &Context, subject: Subject) -> EventKind {
    let start = Instant::now();
    loop {
        match context.next_event().unwrap() {
            Some(event) if event.subject() == subject => return event.kind,
            Some(_) => {}
            None => {
                assert!(start.elapsed() < Duration::from_secs(20), "no event about {subject}");
                std::thread::yield_now();
            }
        }
    }
}

/// Checks that there is no event about this subject.
#[track_caller]
pub fn no_event_about(context: &Context, subject: Subject) {
    while let Some(event) = context.next_event().unwrap() {
        assert_ne!(event.subject(), subject, "{event}");
    }
}

/// The kernel's release, such as "6.1.0-56-amd64".
pub fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release")
}

/// The access rights of a region to which windows are bound.
pub const FOR_WINDOWS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::MW_BIND);

/// A pair whose second side has a window and a region for it.
pub struct Scene {
    pub one: Side<Rc>,
    pub two: Side<Rc>,
    pub region: MemoryRegion,
    pub window: MemoryWindow,
}

impl Scene {
    /// The length of the region.
    pub const LEN: usize = 8192;

    pub fn new(target: &Target, kind: WindowType) -> Self {
        let (one, two) = rc_pair(target);
        let region = two.pd.register(Self::LEN, FOR_WINDOWS).unwrap();
        let window = two.pd.alloc_window(kind).unwrap();
        Self { one, two, region, window }
    }

    /// The status of a write of eight bytes by the peer.
    #[track_caller]
    pub fn write(&mut self, remote: Remote) -> Status {
        self.one.send(1, Operation::Write(remote), 0..8);
        self.one.completion().status
    }
}
