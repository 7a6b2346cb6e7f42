//! What only the soft device can show, and what needs no device.
#![cfg(feature = "soft")]

#[path = "../commands/mod.rs"]
mod commands;
#[path = "../common/mod.rs"]
mod common;

mod captures;
mod connection_tasks;
mod datagrams;
mod discovery;
mod errno;
mod failures;
mod fuzz;
mod gone;
#[cfg(feature = "raw")]
mod imports;
mod life;
mod look_ups;
mod manager_sweep;
mod memory_commands;
mod messages;
mod network;
mod noise;
mod objects;
mod random;
mod rates;
mod rule_text;
mod rule_text_properties;
mod shared;
mod skips;
mod traffic;
mod windows;
mod wire;
