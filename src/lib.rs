//! A userspace RDMA verbs driver in pure Rust.
#![deny(unsafe_code)]
