//! A userspace RDMA verbs driver in pure Rust. It opens `/dev/infiniband/uverbsN` and sends the Linux kernel's uverbs commands
//! itself, by ioctl, without libibverbs.
//!
//! Start with a [`Device`], from [`devices`] or from a [`SoftDevice`], which is a device inside the process for machines without
//! RDMA hardware. [`Device::open`] returns a [`Context`], which creates everything else: a [`ProtectionDomain`] with its
//! [`MemoryRegion`]s and [`QueuePair`]s, [`CompletionQueue`]s, and [`Counters`] for a [`Flow`].
//!
//! ```
//! use uverbs::{Eth, FlowRule, Point, SoftDevice};
//!
//! # fn main() -> uverbs::Result<()> {
//! let device = SoftDevice::default(); // or uverbs::devices()?.named("mlx5_0")?
//! let context = device.open()?;
//! let cq = context.create_cq(64)?;
//! let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
//!
//! let counters = context.create_counters()?;
//! counters.attach(Point::Packets, 0)?;
//! counters.attach(Point::Bytes, 1)?;
//! let rule = FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 0, 0, 1])).count(&counters);
//! let flow = qp.create_flow(&rule)?;
//!
//! device.inject(&[&[2, 0, 0, 0, 0, 1][..], &[0; 54]].concat());
//!
//! let mut values = [0; 2];
//! counters.read(&mut values)?;
//! assert_eq!(values, [1, 60]);
//! assert_eq!(flow.reader()?.read()?, [1, 60]); // prepared once, for hot loops
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start
//!
//! | you want | start with |
//! | --- | --- |
//! | flow counters | [`Context::create_counters`], [`QueuePair::create_flow`], [`Reader`], [`Snapshot`], [`mlx5::CounterPool`] |
//! | messages and remote memory | [`ProtectionDomain::rc`], [`QueuePair::connect`], [`SendRequest`], [`CompletionQueue::poll`] |
//! | connections, also over iWARP | [`cm::Manager`], [`cm::Messages`] |
//! | datagrams | [`ProtectionDomain::ud`], [`AddressHandle`], [`Datagram`]; on EFA [`ProtectionDomain::srd`] |
//! | raw Ethernet frames | [`ProtectionDomain::raw_packet`], [`FlowRule`] |
//! | counters of completed operations | [`CompletionCounter`], [`QueuePair::bind_counter`] |
//! | counters of a device and its ports | [`statistics`], [`Device::statistics`] |
//! | existing objects and their owners | [`resources`], [`Device::resources`] |
//! | tests without hardware | [`SoftDevice`], [`transport`] |
//! | RDMA between ordinary processes | [`SoftDevice::on`] |
//!
//! If you know libibverbs or libfabric's counters, search this documentation for a name such as `ibv_post_send` or
//! `fi_cntr_wait`. `docs/guide/` in the repository has a first program, and the porting guide `from-libibverbs.md` with examples.
//!
//! # Ownership
//! Objects are reference-counted handles of kernel objects, and keep their parents alive: you can store them in any struct and
//! drop them in any order. To learn whether the kernel destroyed an object, call its `destroy`, which returns the object if it is
//! still in use.
//!
//! # Errors
//! An [`Error`] contains the operation that failed, its [kind](ErrorKind), the kernel's errno and a hint. A feature that the
//! device does not have is [`Unsupported`](ErrorKind::Unsupported). A call that would crash the kernel is refused before a
//! command is sent.
//!
//! # Threads
//! All types are [`Send`] and [`Sync`]. Calls that several threads may make at the same time take `&self`; calls with one owner,
//! such as polling and posting, take `&mut self`.
#![deny(unsafe_code)]

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../docs/guide/completion-counters.md")]
struct CompletionCountersPage;

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../docs/guide/connections.md")]
struct ConnectionsPage;

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../docs/guide/from-librdmacm.md")]
struct FromLibrdmacm;

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../docs/guide/first-program.md")]
struct FirstProgram;

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../docs/guide/from-libibverbs.md")]
struct FromLibibverbs;

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../docs/guide/from-rust-crates.md")]
struct FromRustCrates;

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../docs/guide/statistics.md")]
struct StatisticsPage;

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../docs/guide/without-hardware.md")]
struct WithoutHardwarePage;

pub mod cm;
mod completion_counter;
mod counters;
mod device;
// Public for bindings; some of it has no other user.
#[cfg_attr(not(feature = "raw"), allow(unreachable_pub, dead_code))]
mod driver;
pub mod efa;
mod flow;
mod kernel;
pub mod mlx5;
#[cfg(feature = "raw")]
pub mod raw;
// Public for the virtual ConnectX of the tests.
#[cfg(any(feature = "raw", feature = "soft"))]
#[cfg_attr(not(feature = "raw"), allow(unreachable_pub, dead_code))]
mod roce;
#[cfg(feature = "soft")]
pub mod soft;
#[cfg(feature = "tokio")]
mod tokio;
mod verbs;

pub use uverbs_abi as abi;
pub use uverbs_abi::types::{AccessFlags, QpAttrMask, ReadCountersFlags, WcFlags};

pub use self::completion_counter::{
    Canceller, CompletionCounter, CompletionCounterBuilder, CompletionCounterCaps, Counted, CounterEvents,
    CounterSource, Wait, WaitHandle, WaitObject, WaitSet,
};
pub use self::counters::{
    Cached, Counters, Point, Rates, Reader, Sampler, SamplerReport, SamplerThread, Seen, Snapshot, Stamp,
    Tick,
};
pub use self::device::context::{
    AsyncEvent, Context, EventKind, Gid, GidCandidate, GidChoice, GidFault, GidKind, GidReason, OpenOptions,
    Peer, Subject,
};
pub use self::device::{Device, Devices, Guid, Interface, devices, devices_in, resources, statistics};
pub use self::driver::completion::{Completion, Status};
pub use self::flow::{
    AnyRule, CatchAll, Esp, Eth, Flow, FlowLabel, FlowRule, FlowTag, Gre, InnerSpec, Ipv4, Ipv6, Mpls,
    MplsLabel, Normal, RuleError, RuleType, Sniffer, Spec, Tcp, Udp, VlanId, Vni, Vxlan,
};
pub use self::kernel::error::{Error, ErrorKind, Result};
pub use self::kernel::mapping::Mapping;
pub use self::kernel::{command, transport};
#[cfg(feature = "soft")]
pub use self::soft::SoftDevice;
#[cfg(feature = "tokio")]
pub use self::tokio::{Events, RequestError, Requests};
pub use self::verbs::ah::{AddressHandle, Route};
pub use self::verbs::cq::{CompletionChannel, CompletionQueue, CompletionQueueBuilder};
pub use self::verbs::mr::{MemoryRegion, MemoryRegionBuilder, Prefetch, Segment};
pub use self::verbs::mw::{Bind, Binds, MemoryWindow, WindowType};
pub use self::verbs::pd::ProtectionDomain;
pub use self::verbs::progress::Progress;
pub use self::verbs::qp::{
    Attributes, Capacity, ConnectionLimits, ConnectionOptions, Datagram, Endpoint, Frame, HashFields,
    MULTICAST_QP, Membership, Operation, QpState, QpType, QueuePair, QueuePairBuilder, RawPacket, Rc, Remote,
    RssBuilder, RssQueuePair, SendRequest, Srd, SrdDatagram, SrdOperation, Uc, UcOperation, Ud, XrcOperation,
    XrcReceiveBuilder, XrcReceiveQueuePair, XrcSend,
};
pub use self::verbs::srq::{SharedReceiveQueue, SharedReceiveQueueBuilder};
pub use self::verbs::work::ReceiveRequest;
pub use self::verbs::wq::{IndirectionTable, WorkQueue, WorkQueueBuilder, WorkQueueState};
pub use self::verbs::xrcd::{XrcDomain, XrcOpen};
