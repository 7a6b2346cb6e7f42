//! Layouts and numbers of the Linux kernel's uverbs ABI.
//!
//! This crate describes the commands of `/dev/infiniband/uverbsN`: the ioctl ([`ioctl`]), the numbers in it ([`ids`]), the request
//! and response structs ([`mod@write`], [`flow`]), the driver payloads ([`mlx5`], [`rxe`], [`siw`], [`efa`], [`erdma`], [`mana`]), values of fields
//! ([`types`]), the netlink messages that find a device ([`netlink`]), and the commands of the connection manager
//! `/dev/infiniband/rdma_cm` ([`cm`]). It makes no system calls. The crate `uverbs` is a userspace driver built on it, which most
//! programs use instead.
//!
//! Every struct is `#[repr(C)]`, contains only integers (big-endian integers where the ABI has them), has no
//! hidden padding, and has its size and field offsets asserted at compile time next to its definition.
//! [`layout`] lists all structs and numbers as data; tests compare these lists with the C headers.
//! [`Default`] sets all bytes to zero, as reserved fields require.
//!
//! Layouts are those of a 64-bit little-endian host, as of Linux 7.3. The documentation of a field or number says if older
//! kernels do not have it.
//!
//! ```
//! use uverbs_abi::{flow, write::AllocPd};
//! use zerocopy::IntoBytes;
//!
//! let spec = flow::FlowSpecTcpUdp {
//!     hdr: flow::FlowSpecHdr { type_: flow::SPEC_UDP, size: 16, reserved: 0 },
//!     val: flow::FlowTcpUdpFilter { dst_port: 4791.into(), ..Default::default() },
//!     mask: flow::FlowTcpUdpFilter { dst_port: 0xffff.into(), ..Default::default() },
//! };
//! assert_eq!(spec.as_bytes()[8..10], [0x12, 0xb7]); // network order, kept by the type
//! assert_eq!(AllocPd::default().as_bytes(), [0; 8]);
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
pub mod layout;

pub mod cm;
pub mod efa;
pub mod erdma;
pub mod flow;
pub mod ids;
pub mod ioctl;
pub mod mana;
pub mod mlx5;
pub mod netlink;
pub mod rxe;
pub mod siw;
pub mod types;
pub mod write;
