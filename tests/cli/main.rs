//! The program `uverbs`, run as a user runs it.

mod bench;
mod children;
mod counts;
mod devices;
mod doctor;
mod ends;
mod export;
#[path = "../common/lacking.rs"]
mod lacking;
mod pages;
mod ping;
mod ping_cm;
mod ping_wire;
mod program;
#[path = "../common/skips.rs"]
mod skips;
mod stat;
mod verify;
mod watch;
