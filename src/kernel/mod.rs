//! Communication with the kernel: commands, the transports that carry them, shared memory, event files, errors. No object of verbs is
//! defined or used here.

pub mod command;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod manager;
pub(crate) mod mapping;
pub(crate) mod process;
pub mod transport;
