//! Who has an object.

use std::fmt;

use uverbs_abi::netlink::attr;

use crate::device::netlink::{Attributes, number, text};

/// Who has an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// A process.
    Process {
        /// Its number in the namespace of the process that asks.
        pid: u32,
        /// Its name (`/proc/PID/comm`); none if it has ended meanwhile, or `/proc` does not show it. A process may name itself as it likes: what prints
        /// names has to escape them.
        name: Option<String>,
    },
    /// A part of the kernel, by the name of its module: `ib_core`, `rdma_cm`.
    Kernel(String),
    /// The kernel does not tell: a process that is ending, or one of another namespace.
    Unknown,
}

impl Owner {
    /// The owner out of the attributes of an object (`fill_res_name_pid`, core/nldev.c, Linux 6.1).
    pub(in crate::device) fn of(attributes: Attributes<'_>) -> Self {
        let mut owner = Self::Unknown;
        for (kind, value) in attributes {
            match kind {
                attr::RES_PID => {
                    if let Some(pid) = number(value) {
                        owner = Self::Process { pid, name: name_of(pid) };
                    }
                }
                attr::RES_KERN_NAME => owner = Self::Kernel(text(value)),
                _ => {}
            }
        }
        owner
    }

    /// The process, if it is one.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Process { pid, .. } => Some(*pid),
            Self::Kernel(_) | Self::Unknown => None,
        }
    }
}

/// `ib_send_bw[4711]`, `[ib_core]`, `unknown`; characters that a terminal might take for commands are escaped.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name: Some(name) } => write!(f, "{}[{pid}]", name.escape_debug()),
            Self::Process { pid, name: None } => write!(f, "process {pid}"),
            Self::Kernel(name) => write!(f, "[{}]", name.escape_debug()),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

fn name_of(pid: u32) -> Option<String> {
    let comm = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned())
}
