//! Devices that are played inside the process that uses them. The library is preloaded (`LD_PRELOAD`) into a program that posts and
//! polls, through stock libibverbs, the drop-in or this workspace's crate:
//!
//! - Paths of sysfs and of device files lead to a small tree (`tree.rs`), and RDMA netlink names the driver (`netlink.rs`).
//! - Commands to the device file are answered here (`command.rs`, `objects.rs`), as far as these programs send them.
//! - Whenever the program waits (`sched_yield`, `usleep`), the device executes what was posted and writes its completions (`mlx5.rs`,
//!   `rxe.rs`, `siw.rs`, `efa.rs`). It moves no data, and between those moments it costs nothing.
//! - `getppid` begins and ends a measurement (`meter.rs`), so that programs in C and in safe Rust are measured by the same code.
//!
//! A request that the device could not execute (another queue pair's number, a wrong counter, no receive) ends the program: a measurement
//! of such requests would mean nothing.
//!
//! `benches/path` runs it. The environment variable `PLAYED` names the directory for the tree, and `PLAYED_DRIVER` the driver of the
//! device.

#![cfg(target_arch = "x86_64")]

mod command;
mod efa;
mod interposed;
mod memory;
mod meter;
mod mlx5;
mod netlink;
mod objects;
mod rxe;
mod siw;
mod tree;

/// Ends the program: it made the device do what no measurement should contain.
fn fail(what: &str) -> ! {
    eprintln!("played: {what}");
    std::process::abort()
}
