//! A userspace RDMA verbs driver in pure Rust.
#![deny(unsafe_code)]

pub mod command;
mod error;
mod provider;
#[cfg(feature = "soft")]
pub mod soft;
pub mod transport;

pub use error::{Error, ErrorKind, Result};
