//! A userspace RDMA verbs driver in pure Rust.
#![deny(unsafe_code)]

pub mod command;
mod completion;
mod context;
mod counters;
mod cq;
mod device;
mod error;
mod event;
mod flow;
mod mr;
mod object;
mod pd;
mod provider;
mod qp;
#[cfg(feature = "soft")]
pub mod soft;
pub mod transport;

pub use uverbs_abi as abi;
pub use uverbs_abi::types::{AccessFlags, ReadCountersFlags, WcFlags};

pub use self::completion::{Completion, Status};
pub use self::context::{AsyncEvent, Context, Gid, GidKind};
pub use self::counters::{Counters, Point, Reader};
pub use self::cq::{CompletionChannel, CompletionQueue, CompletionQueueBuilder};
pub use self::device::{Device, Devices, Guid, Interface, devices, devices_in};
pub use self::error::{Error, ErrorKind, Result};
pub use self::flow::{
    AnyRule, CatchAll, Esp, Eth, Flow, FlowLabel, FlowRule, FlowTag, Gre, InnerSpec, Ipv4, Ipv6, Mpls,
    MplsLabel, Normal, RuleError, RuleType, Sniffer, Spec, Tcp, Udp, VlanId, Vni, Vxlan,
};
pub use self::mr::{MemoryRegion, Segment};
pub use self::pd::ProtectionDomain;
pub use self::qp::{
    Capacity, QpState, QpType, QueuePair, RawPacket, RawPacketBuilder, ReceiveRequest, SendRequest,
};
#[cfg(feature = "soft")]
pub use self::soft::SoftDevice;
