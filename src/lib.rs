//! A userspace RDMA verbs driver in pure Rust: it opens `/dev/infiniband/uverbsN` and speaks the Linux kernel's
//! uverbs ABI by ioctl itself, without libibverbs.
//!
//! A [`Device`] comes from [`devices`] or from a [`SoftDevice`], the device that the crate carries for machines
//! without RDMA hardware. Opened, it is a [`Context`], and makes everything else: a [`ProtectionDomain`] with
//! its [`MemoryRegion`]s and [`QueuePair`]s, [`CompletionQueue`]s, and [`Counters`], which a [`Flow`] with a
//! count action counts into.
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
//! Who comes from libibverbs finds each of its names by the search of this documentation, and a guide with examples in the
//! repository's `docs/guide/from-libibverbs.md`.
//!
//! # Ownership
//! Objects are counted references to what the kernel made, and hold their parents: they can be kept in any
//! struct and dropped in any order. Each has a `destroy` for who wants to know how that went; it gives the object
//! back when it is still in use.
//!
//! # Errors
//! Every call says which operation failed, of what [kind](ErrorKind), with the kernel's errno and what to do about
//! it. What a device lacks is [`Unsupported`](ErrorKind::Unsupported); nothing pretends. What would harm the
//! kernel is refused before a command is sent.
//!
//! # Threads
//! Everything is [`Send`] and [`Sync`]. What two threads may do at once takes `&self`; what has
//! one owner, such as polling or posting, takes `&mut self`.
#![deny(unsafe_code)]

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../docs/guide/completion-counters.md")]
struct CompletionCountersPage;

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

mod completion_counter;
mod counters;
mod device;
// What bindings use is public in there, and some of it nobody else needs.
#[cfg_attr(not(feature = "raw"), allow(unreachable_pub, dead_code))]
mod driver;
pub mod efa;
mod flow;
mod kernel;
pub mod mlx5;
#[cfg(feature = "raw")]
pub mod raw;
#[cfg(feature = "soft")]
pub mod soft;
#[cfg(feature = "tokio")]
mod tokio;
mod verbs;

pub use uverbs_abi as abi;
pub use uverbs_abi::types::{AccessFlags, QpAttrMask, ReadCountersFlags, WcFlags};

pub use self::completion_counter::{
    CompletionCounter, CompletionCounterBuilder, CompletionCounterCaps, Counted, CounterEvents,
    CounterSource, Wait, WaitHandle, WaitObject, WaitSet,
};
pub use self::counters::{
    Cached, Counters, Point, Rates, Reader, Sampler, SamplerReport, SamplerThread, Seen, Snapshot, Stamp,
    Tick,
};
pub use self::device::context::{AsyncEvent, Context, EventKind, Gid, GidKind, OpenOptions, Subject};
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
pub use self::tokio::Events;
pub use self::verbs::ah::{AddressHandle, Route};
pub use self::verbs::cq::{CompletionChannel, CompletionQueue, CompletionQueueBuilder};
pub use self::verbs::mr::{MemoryRegion, MemoryRegionBuilder, Segment};
pub use self::verbs::mw::{Bind, Binds, MemoryWindow, WindowType};
pub use self::verbs::pd::ProtectionDomain;
pub use self::verbs::progress::Progress;
pub use self::verbs::qp::{
    Attributes, Capacity, ConnectionOptions, Datagram, Endpoint, Frame, HashFields, MULTICAST_QP, Membership,
    Operation, QpState, QpType, QueuePair, QueuePairBuilder, RawPacket, Rc, Remote, RssBuilder, RssQueuePair,
    SendRequest, Srd, SrdDatagram, SrdOperation, Uc, UcOperation, Ud, XrcOperation, XrcReceiveBuilder,
    XrcReceiveQueuePair, XrcSend,
};
pub use self::verbs::srq::{SharedReceiveQueue, SharedReceiveQueueBuilder};
pub use self::verbs::work::ReceiveRequest;
pub use self::verbs::wq::{IndirectionTable, WorkQueue, WorkQueueBuilder, WorkQueueState};
pub use self::verbs::xrcd::{XrcDomain, XrcOpen};
