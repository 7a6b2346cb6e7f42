//! A drop-in `libibverbs.so.1` on the crate `uverbs`.
//!
//! The layouts, names, versions and return values are those of libibverbs; the library `uverbs` implements the calls. This crate only
//! translates: objects that C identifies by their address (`device` to `flow`), lists of requests (`post`), and the tables of functions
//! that the header's inline code calls (`slots`, `cq_ex`, `qp_ex`). See docs/guide/drop-in.md.
//!
//! A panic does not unwind into the caller: at the end of an `extern "C"` function it ends the process.

#![deny(unsafe_code)]
// The types of parameters are private, and some contain Rust types behind their first bytes: C only has pointers to them.
#![allow(improper_ctypes_definitions)]

#[cfg(target_endian = "big")]
compile_error!("words that C has as unions are read as little-endian processors have them");

mod abi;
mod answer;
mod boundary;
mod buf;
mod channel;
mod comp_cntr;
mod context;
mod convert;
mod counters;
mod cq;
mod cq_ex;
mod device;
mod domain;
mod export;
mod flow;
mod mr;
mod mw;
mod on_wire;
mod owned;
mod pd;
mod post;
mod providers;
mod qp;
mod qp_ex;
mod query;
mod receive;
mod request;
mod slots;
mod srq;
mod sysfs;
mod words;
mod wq;
mod xrcd;
