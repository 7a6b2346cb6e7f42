//! The devices on which every behaviour is tested: always the soft device, and the one that `UVERBS_TEST_DEVICE` names, if it is set.

#![allow(unreachable_pub, reason = "shared by test binaries")]
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

mod bulk;
mod control;
pub mod counted;
pub mod counting;
mod differences;
mod ends;
mod extended;
mod firmware;
mod footprint;
#[allow(clippy::duplicate_mod, reason = "the test `any` has the behaviours, and it in them")]
#[path = "../../src/bin/uverbs/verify/behaviours/inline.rs"]
mod inline;
mod lacking;
mod manager;
mod packet;
mod parties;
mod raw;
mod sides;
mod skips;
mod switch;
mod wire;

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use uverbs::abi::types::{link_layer, port_state};
use uverbs::soft::Profile;
use uverbs::{
    AccessFlags, Completion, CompletionQueue, Context, Counters, Device, ErrorKind, MemoryRegion, Point,
    ProtectionDomain, QueuePair, RawPacket, ReceiveRequest, SendRequest, SoftDevice,
};

pub use bulk::*;
pub use control::Control;
pub use differences::{Answers, Outcome, Outcomes};
pub use ends::*;
pub use extended::*;
pub use firmware::*;
pub use footprint::{Footprint, resident};
pub use lacking::LACKING;
pub use manager::{DISCONNECTED, Manager, address};
pub use packet::packet;
pub use parties::*;
pub use sides::*;
pub use skips::skipped;
pub use switch::Switch;
pub use wire::*;

/// The destination address of the tests' frames.
pub const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// A device under test.
pub struct Target {
    pub device: Device,
    /// The soft device, if it is one: to inject frames, and to check for remaining objects.
    pub soft: Option<SoftDevice>,
    /// The control line of a virtual device.
    pub control: Option<Control>,
    /// Number of contexts that stay open until the end of the process.
    kept: Cell<usize>,
}

impl Target {
    pub fn soft(profile: Profile) -> Self {
        let soft = SoftDevice::new(profile);
        Self { device: soft.device(), soft: Some(soft), control: None, kept: Cell::new(0) }
    }

    /// A soft device on a wire, which answers as slowly as others. Its queue pairs reach each other over the loopback interface.
    fn on_wire(address: &str, profile: Profile) -> (Self, SoftDevice) {
        let profile = profile.with_strict_checksums(true);
        let soft = SoftDevice::on(address.parse().expect("an address"), profile).expect("the port is free");
        (Self { device: soft.device(), soft: None, control: None, kept: Cell::new(0) }, soft)
    }

    /// Records that the first flow of some counters has failed in a context in such a way that its file stays open.
    pub fn keeps_a_context(&self) {
        self.kept.set(self.kept.get() + 1);
    }

    /// Whether the device with this name can be opened and has its address, which takes the kernel a while.
    pub fn is_ready(&self) -> bool {
        let context = named(self.device.name()).and_then(|device| device.open().ok());
        let is_active = |context: &Context| {
            context.query_port(1).is_ok_and(|port| port.legacy_resp.state == port_state::ACTIVE)
        };
        // On Ethernet the first one is the link-local address.
        let last = |context: &Context| u32::from(!is_infiniband(context));
        context.is_some_and(|context| is_active(&context) && context.gid(1, last(&context)).is_ok())
    }

    /// Whether no device has this name now.
    pub fn is_gone(&self) -> bool {
        named(self.device.name()).is_none()
    }

    /// Opens the device that has this name now.
    pub fn open_again(&self) -> Context {
        named(self.device.name()).expect("it is there").open().expect("the device under test opens")
    }

    /// Waits until what was sent has arrived: on a wire, another thread takes it.
    pub fn settle(&self) {
        if self.device.driver() == "soft" && self.soft.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    pub fn open(&self) -> Context {
        self.device.open().expect("the device under test opens")
    }
}

/// The message that there is no other device is printed once.
static ALONE: Once = Once::new();

/// One behaviour at a time: some remove the device, and each is checked for what it leaves behind.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a behaviour on every available device, and checks that nothing is left behind.
pub fn on_every_device(behaviour: impl Fn(&Target)) {
    on_every_device_and(Profile::default(), behaviour);
}

/// The same with another soft device.
pub fn on_every_device_and(profile: Profile, behaviour: impl Fn(&Target)) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let soft = Target::soft(profile.clone());
    behaviour(&soft);
    let left = soft.soft.as_ref().expect("soft").resources();
    assert!(left.is_empty(), "left behind: {left:?}");
    let Ok(name) = std::env::var("UVERBS_TEST_DEVICE") else {
        return ALONE.call_once(|| skipped("every device but the soft one: UVERBS_TEST_DEVICE names none"));
    };
    if let Some(address) = name.strip_prefix("soft@") {
        let (target, soft) = Target::on_wire(address, profile);
        behaviour(&target);
        assert!(soft.resources().is_empty(), "left behind: {:?}", soft.resources());
        return;
    }
    let mut before = Footprint::of_devices();
    let device = named(&name).expect("it exists");
    let target = Target { device, soft: None, control: Control::open(), kept: Cell::new(0) };
    behaviour(&target);
    target.control.iter().for_each(Control::heal);
    // For each its file, the file of its events, and the page of its doorbells.
    before.descriptors += 2 * target.kept.get();
    before.mappings += target.kept.get();
    assert_eq!(Footprint::of_devices(), before, "left behind");
}

fn named(name: &str) -> Option<Device> {
    uverbs::devices().expect("devices can be listed").named(name).ok().cloned()
}

/// Runs a behaviour on every device with flow counters; reports the others as skipped.
#[track_caller]
pub fn on_every_counting_device(behaviour: impl Fn(&Target)) {
    let at = Location::caller();
    on_every_device(|target| match target.open().create_counters() {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            skip_at(at, target, "it has no flow counters")
        }
        _ if has_infiniband(target) => skip_at(at, target, "a port of InfiniBand has no flows of frames"),
        other => {
            drop(other.expect("counters can be made"));
            behaviour(target);
        }
    });
}

/// Whether its first port is one of InfiniBand.
pub fn has_infiniband(target: &Target) -> bool {
    is_infiniband(&target.open())
}

/// Whether the first port is one of InfiniBand.
pub fn is_infiniband(context: &Context) -> bool {
    context.query_port(1).expect("a port").legacy_resp.link_layer == link_layer::INFINIBAND
}

/// Prints on standard error, where test runners show it, that a test did not run on a device.
#[track_caller]
pub fn skip(target: &Target, why: &str) {
    skip_at(Location::caller(), target, why);
}

/// The same for a test at another place.
pub fn skip_at(at: &Location<'_>, target: &Target, why: &str) {
    skipped(format_args!("on {}: {why} ({at})", target.device.name()));
}

/// A raw packet queue pair with everything that belongs to it.
pub struct Raw {
    pub qp: QueuePair<RawPacket>,
    pub cq: CompletionQueue,
    pub memory: MemoryRegion,
    pub pd: ProtectionDomain,
    pub context: Context,
}

/// Number of bytes for each receive and each send of a [`Raw`].
pub const SLOT: usize = 2048;

impl Raw {
    pub fn new(context: &Context) -> Self {
        let pd = context.alloc_pd().expect("pd");
        let cq = context.create_cq(64).expect("cq");
        let qp = pd.raw_packet(&cq).send_depth(16).receive_depth(16).connect(1).expect("raw packet qp");
        let memory = pd.register(32 * SLOT, AccessFlags::LOCAL_WRITE).expect("memory");
        Self { qp, cq, memory, pd, context: context.clone() }
    }

    /// Posts `count` receives, with their slot as number.
    pub fn post_receives(&mut self, count: usize) {
        for slot in 0..count {
            let segments = [self.memory.segment(slot * SLOT..(slot + 1) * SLOT).expect("inside")];
            let request = ReceiveRequest::new(slot as u64, &segments);
            self.qp.post_receive(&[request]).expect("post receive");
        }
    }

    /// Sends one frame from the last slot.
    pub fn send(&mut self, frame: &[u8]) {
        let at = 31 * SLOT;
        self.memory.write(at, frame).expect("inside");
        let segments = [self.memory.segment(at..at + frame.len()).expect("inside")];
        let request = SendRequest::frame(99, &segments).signaled();
        self.qp.post_send(&[request]).expect("post send");
    }

    /// Waits for this number of completions, which may take a moment.
    #[track_caller]
    pub fn await_completions(&mut self, count: usize) -> Vec<Completion> {
        let (start, mut all) = (std::time::Instant::now(), self.completions());
        while all.len() < count {
            assert!(start.elapsed().as_secs() < 20, "only {} of {count} completions", all.len());
            std::thread::yield_now();
            all.extend(self.completions());
        }
        all
    }

    /// All completions in the queue.
    pub fn completions(&mut self) -> Vec<Completion> {
        let mut batch = Completion::batch::<64>();
        let count = self.cq.poll(&mut batch);
        batch[..count].to_vec()
    }
}

/// Tells other threads to end, also if a test fails.
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counters with packets at 0 and bytes at 1.
pub fn packets_and_bytes(context: &Context) -> Counters {
    let counters = context.create_counters().expect("counters");
    counters.attach(Point::Packets, 0).expect("attach");
    counters.attach(Point::Bytes, 1).expect("attach");
    counters
}

/// The values at 0 and 1.
pub fn read2(counters: &Counters) -> [u64; 2] {
    let mut values = [0; 2];
    counters.read(&mut values).expect("read");
    values
}

/// An Ethernet frame of `len` bytes to `dst`, with an unused Ethertype.
pub fn frame(dst: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 0xee]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Checks kind, errno and a word of the hint.
#[track_caller]
pub fn refuses<T: std::fmt::Debug>(result: uverbs::Result<T>, kind: ErrorKind, errno: i32, hint: &str) {
    let error = result.expect_err("this must be refused");
    assert_eq!((error.kind(), error.errno()), (kind, Some(errno)), "{error}");
    assert!(error.hint().unwrap_or_default().contains(hint), "no word of {hint:?} in: {error}");
}

pub const ENOENT: i32 = 2;
pub const EIO: i32 = 5;
pub const EAGAIN: i32 = 11;
pub const EBUSY: i32 = 16;
pub const EINVAL: i32 = 22;
pub const ENOMEM: i32 = 12;
pub const EEXIST: i32 = 17;
pub const EPROTONOSUPPORT: i32 = 93;
pub const EOPNOTSUPP: i32 = 95;
