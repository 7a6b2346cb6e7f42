//! The owner of an object.

use std::fmt;

use uverbs_abi::netlink::attr;

use crate::device::netlink::{Attributes, number, text};

/// The owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// A process.
    Process {
        /// The process id in the namespace of the caller; the thread's number if `/proc` does not show the process of the thread.
        pid: u32,
        /// The thread that created the object. This is the number that the kernel reports and that iproute2 calls the pid. For a
        /// process with one thread it is the process id.
        thread: u32,
        /// The process's name (`/proc/PID/comm`); none if the process has ended or `/proc` does not show it. A process chooses
        /// its own name, so programs that print names must escape them.
        name: Option<String>,
    },
    /// A part of the kernel, by the name of its module: `ib_core`, `rdma_cm`.
    Kernel(String),
    /// The kernel does not report it: a process or a thread that has ended since it created the object, or one of another
    /// namespace.
    Unknown,
}

impl Owner {
    /// The owner in the attributes of an object (`fill_res_name_pid`, core/nldev.c, and `rdma_restrack_set_name`, core/restrack.c, Linux
    /// 6.1: the task that created the object, which is a thread).
    pub(in crate::device) fn of(attributes: Attributes<'_>) -> Self {
        let mut owner = Self::Unknown;
        for (kind, value) in attributes {
            match kind {
                attr::RES_PID => {
                    if let Some(thread) = number(value) {
                        let pid = process_of(thread).unwrap_or(thread);
                        owner = Self::Process { pid, thread, name: name_of(pid) };
                    }
                }
                attr::RES_KERN_NAME => owner = Self::Kernel(text(value)),
                _ => {}
            }
        }
        owner
    }

    /// The process id, if the owner is a process.
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
            Self::Process { pid, name: Some(name), .. } => write!(f, "{}[{pid}]", name.escape_debug()),
            Self::Process { pid, name: None, .. } => write!(f, "process {pid}"),
            Self::Kernel(name) => write!(f, "[{}]", name.escape_debug()),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// The process of a thread: /proc lists only processes, but has a directory for each thread too.
fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
    let mut lines = status.split(|byte| *byte == b'\n');
    let number = lines.find_map(|line| line.strip_prefix(b"Tgid:"))?;
    str::from_utf8(number).ok()?.trim().parse().ok()
}

fn name_of(pid: u32) -> Option<String> {
    let comm = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned())
}
