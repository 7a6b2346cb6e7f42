//! How one talks to the kernel: commands, what carries them out, shared memory, event files, errors. It knows no object of verbs.

pub mod command;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod mapping;
pub(crate) mod process;
pub mod transport;
