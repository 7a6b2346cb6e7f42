//! Behaviours, each written once. A test runs on every device that supports what it needs, and reports the others as skipped.
//!
//! The soft device always exists; `UVERBS_TEST_DEVICE` adds a real one. A lane of `tests/vm` runs the modules that apply to its device.
//! Those that `uverbs verify` has too are in `src/bin/uverbs/verify/behaviours`; here a test of their name calls them (`held.rs`).
//! Behaviours run one at a time everywhere (`on_every_device`), so that what each leaves behind can be detected.
#![cfg(feature = "soft")]

/// Shared with `uverbs verify`.
#[allow(dead_code, unused_imports, reason = "the program uses more")]
#[path = "../../src/bin/uverbs/verify/behaviours/mod.rs"]
mod behaviours;
#[path = "../commands/mod.rs"]
mod commands;
#[path = "../common/mod.rs"]
mod common;

mod cm_messages;
mod completion_counter;
mod connected;
#[cfg(feature = "tokio")]
mod connection_random;
mod connections;
mod counted_packets;
mod counted_queues;
mod counted_traffic;
mod counters;
mod credentials;
mod device;
mod drain;
mod errno;
mod errno_objects;
mod failures;
mod files;
mod flow_errno;
// Requests with any keys, which only bindings can post.
#[cfg(feature = "raw")]
mod grid;
mod held;
mod limits;
mod lives;
mod look_ups;
mod managed;
mod managers;
mod memory;
mod messages;
mod multicast;
mod on_wire;
mod orders;
mod packets;
mod queue_pairs;
mod queues;
mod reliable_datagrams;
#[cfg(feature = "tokio")]
mod requests;
mod rules;
mod sampler;
mod shared_receives;
mod sizes;
mod snapshots;
mod statistics;
mod sweep;
mod threads;
mod too_large;
mod transitions;
mod wait_objects;
mod window_states;
mod windows;
mod without_queues;
mod xrc;
mod xrc_commands;
