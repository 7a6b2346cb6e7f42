//! The bodies of the fuzz targets; `tests/soft/fuzz.rs` runs them on stable Rust.
#![allow(dead_code, reason = "each target uses one")]

mod bytes;
#[cfg(feature = "cli")]
pub(crate) mod http_request;
#[cfg(feature = "raw")]
pub(crate) mod packet;
#[cfg(feature = "pcap")]
pub(crate) mod pcap;
pub(crate) mod rule_text;
pub(crate) mod soft_command;
pub(crate) mod steering;
