//! The user half of mana, the driver of Microsoft's cloud: reliable connections.
//!
//! The process allocates the memory of all rings. A queue pair has four of them, of which the responder's sends are the device's own: this
//! side writes the requester's sends, its receives, into which the answers to reads go, and the responder's receives. Requests have sizes
//! in units of 32 bytes and may go on at the beginning of their ring. Doorbells are in one page of each context.
//!
//! Much of what other devices do is done here: the sequence numbers of packets are assigned when a request is posted, and the device
//! reports only that the packet has been acknowledged for which it was asked last. All requests up to that one complete then, and the next
//! one is asked for. When a request fails, the device reports that one, and the others are flushed here.
//!
//! Source: `mana_ib_create_rc_qp`, `mana_ib_create_cq` and `mana_ib_mmap`, hw/mana, Linux 7.3; providers/mana, rdma-core 65.

#[cfg(feature = "raw")]
pub(crate) mod binding;
mod completions;
mod control;
mod doorbell;
mod gdma;
mod plans;
mod receives;
mod sends;
mod side;
mod status;
mod track;

#[cfg(test)]
mod tests;

#[cfg(test)]
use std::sync::Arc;
use std::sync::{Mutex, OnceLock, PoisonError};

use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::write::{ExQueryDevice, ExQueryDeviceResp, QueryDeviceResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

pub(crate) use self::completions::Completions;
use self::doorbell::PAGE;
pub(crate) use self::receives::Receives;
pub(crate) use self::sends::Sends;
use super::seam::Kernel;
use crate::kernel::command::Command;
use crate::kernel::error::Result;
use crate::kernel::mapping::Mapping;

/// The doorbell counts eight rounds of a completion queue in 31 bits.
const MOST_ENTRIES: u32 = 1 << 28;

/// State that the objects of a context share.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The page of doorbells, mapped with the first queue. A doorbell is one store of eight bytes, so one page is sufficient for all
    /// threads.
    page: Mutex<Option<Mapping>>,
    /// The limits of the device, after the first query.
    limits: OnceLock<Limits>,
}

/// What the device reports (`mana_ib_query_device`, hw/mana/main.c, Linux 7.3). The kernel does not check requests against it.
#[derive(Clone, Copy, Debug)]
struct Limits {
    requests: u32,
    pieces: u32,
    entries: u32,
}

impl Limits {
    fn new(base: &QueryDeviceResp) -> Self {
        let entries = base.max_cqe.min(MOST_ENTRIES);
        Self { requests: base.max_qp_wr, pieces: base.max_sge, entries }
    }
}

impl State {
    /// The page of doorbells (`mana_ib_mmap`, hw/mana/main.c, Linux 7.3): its offset is zero, and it has the size of the device's pages.
    fn page(&self, op: &'static str, kernel: &dyn Kernel) -> Result<Mapping> {
        kernel.take(op)?;
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = &*page {
            return Ok(page.clone());
        }
        let new = kernel.map(op, 0, PAGE)?;
        *page = Some(new.clone());
        Ok(new)
    }

    /// The limits of the device. It is queried when they are first needed.
    fn limits(&self, op: &'static str, kernel: &dyn Kernel) -> Result<Limits> {
        kernel.take(op)?;
        if let Some(limits) = self.limits.get() {
            return Ok(*limits);
        }
        // If several threads get here at the same time, each queries the device, and all get the same response.
        let (request, mut response) = (ExQueryDevice::default(), ExQueryDeviceResp::new_zeroed());
        let mut command = Command::write(op, cmd::EX_QUERY_DEVICE);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        kernel.invoke(&mut command)?;
        let limits = Limits::new(&response.base);
        Ok(*self.limits.get_or_init(|| limits))
    }
}
