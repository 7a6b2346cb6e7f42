//! The user half of erdma, the driver of Alibaba's elastic RDMA.
//!
//! All queues are in memory of the process. Three pages of doorbells come with the context: of sends, of receives and of completion queues.
//! A doorbell is eight bytes, which are also stored in a record in memory. There are only connected queue pairs, and a receive has one
//! piece of memory.
//!
//! The device may be of RoCE, or of iWARP, whose queue pairs are connected by a connection manager (rdma_cm) in the kernel. This is written for
//! RoCE: a queue pair that the kernel has made ready refuses requests as not ready.
//!
//! Source: erdma_verbs.c, Linux 6.1 to 7.3; providers/erdma, rdma-core 65. The kernel maps the page of completion queues under the offset
//! of that of receives, and the other way round (`alloc_db_resources`, 6.12 and 7.3), which the device has to sort out.

#[cfg(feature = "raw")]
pub(crate) mod binding;
mod completions;
mod control;
mod qp;
mod receives;
mod sends;
mod track;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use uverbs_abi::erdma::AllocCtxResp;
use uverbs_abi::types::{driver_id, qp_type};
use uverbs_abi::write::QpCap;

pub(crate) use self::completions::Completions;
use self::completions::CqPlan;
use self::qp::QpPlan;
pub(crate) use self::receives::Receives;
pub(crate) use self::sends::Sends;
use super::seam::{CqShape, Kernel, Planned, QpQueues, QpShape, Queues, Sides, own};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::{Mapping, Register};

/// Size of a page of doorbells in bytes.
const PAGE: usize = 4096;

/// The hints of what is refused.
const TYPES: &str = "erdma has reliable connections (rc) only";
const SHARED: &str = "erdma has no shared receive queues";
const FLAGS: &str = "erdma's queue pairs have no options except that all sends are signaled";

/// The pages of doorbells.
#[derive(Clone, Debug)]
struct Pages {
    sends: Mapping,
    receives: Mapping,
    completions: Mapping,
}

/// State that the queues of a context share.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Zeros until the context exists.
    context: AllocCtxResp,
    /// The pages, after the first queue was created.
    pages: OnceLock<Pages>,
}

impl State {
    fn pages(&self, op: &'static str, kernel: &dyn Kernel) -> Result<Pages> {
        kernel.take(op)?;
        if let Some(pages) = self.pages.get() {
            return Ok(pages.clone());
        }
        // If several threads get here at the same time, each maps them, and all get the same.
        let [sends, receives, completions] =
            [self.context.sdb, self.context.rdb, self.context.cdb].map(|key| kernel.map(op, key, PAGE));
        let pages = Pages { sends: sends?, receives: receives?, completions: completions? };
        Ok(self.pages.get_or_init(|| pages).clone())
    }
}

/// Eight bytes of a page of doorbells, or of a record.
fn within(op: &'static str, page: &Mapping, at: usize) -> Result<Register> {
    Register::new(page, at).ok_or_else(|| Error::malformed(op, "a doorbell outside of its page"))
}

impl Queues for State {
    const NUMBER: u32 = driver_id::ERDMA;

    type Completions = Completions;
    type Sends = Sends;
    type Receives = Receives;
    type Shared = Receives;

    fn plan_cq(
        &self,
        op: &'static str,
        shape: &CqShape<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<u32, Completions> {
        Ok(Box::new(CqPlan::new(op, shape.entries, self.pages(op, kernel)?)?))
    }

    fn plan_qp(
        &self,
        op: &'static str,
        shape: &QpShape,
        sides: Sides<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<QpCap, QpQueues<Sends, Receives>> {
        shape.only(op, &[qp_type::RC], [TYPES, SHARED, FLAGS])?;
        let pages = self.pages(op, kernel)?;
        let [sends, receives] = sides.queues;
        let sides = [own(op, sends.clone())?, own(op, receives.clone())?];
        let doorbells = [self.context.sdb_type, self.context.sdb_offset];
        Ok(Box::new(QpPlan::new(op, shape, pages, doorbells, sides)?))
    }
}
