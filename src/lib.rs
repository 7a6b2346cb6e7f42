//! A userspace RDMA verbs driver in pure Rust.
#![deny(unsafe_code)]

pub mod command;
mod error;
pub mod transport;

pub use error::{Error, ErrorKind, Result};
mod provider;
