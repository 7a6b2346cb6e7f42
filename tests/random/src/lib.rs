//! Random programs of the safe API, and their results on different devices; see README.md.

#![allow(missing_docs, reason = "a test")]
#![allow(clippy::unit_arg, reason = "many calls give nothing but success")]

pub mod alone;
pub mod beside;
pub mod card;
pub mod child;
pub mod compare;
pub mod connections;
pub mod differences;
pub mod footprint;
pub mod generate;
pub mod kernel_log;
pub mod language;
pub mod memory;
pub mod play;
pub mod shrink;
pub mod starved;
pub mod threads;
mod verbs;
pub mod world;
