//! A userspace RDMA verbs driver in pure Rust.
#![deny(unsafe_code)]

#[cfg(feature = "soft")]
pub mod soft;
