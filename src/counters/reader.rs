//! Reading in a hot loop.

use std::any::Any;
use std::sync::Arc;

use uverbs_abi::types::ReadCountersFlags;

use super::Counters;
use crate::device::context::Context;
use crate::kernel::command::{CountersRead, READ_OP};
use crate::kernel::error::Result;

/// A read of counters that is prepared once, for loops: [`Reader::read`] does not allocate and takes no lock. Created by
/// [`Flow::reader`](crate::Flow::reader).
///
/// It keeps its flow alive, so the counters stay bound: a dropped flow is destroyed when its last reader is gone too. Use one
/// reader per thread.
///
/// ```
/// # use uverbs::{FlowRule, Point, SoftDevice};
/// # fn main() -> uverbs::Result<()> {
/// # let device = SoftDevice::default();
/// # let context = device.open()?;
/// # let cq = context.create_cq(16)?;
/// # let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
/// # let counters = context.create_counters()?;
/// # counters.attach(Point::Packets, 0)?;
/// let flow = qp.create_flow(&FlowRule::normal(1).count(&counters))?;
/// let mut reader = flow.reader()?;
/// device.inject(&[0; 60]);
/// assert_eq!(reader.read()?, [1]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reader {
    command: CountersRead,
    values: Box<[u64]>,
    context: Context,
    /// The flow that keeps the counters bound.
    _flow: Arc<dyn Any + Send + Sync>,
}

impl Reader {
    /// Prepares a read of `counters`, which `flow` counts into.
    pub(crate) fn new(
        counters: &Counters,
        flow: Arc<dyn Any + Send + Sync>,
        flags: ReadCountersFlags,
    ) -> Result<Self> {
        let context = counters.context().clone();
        context.check_origin(READ_OP)?;
        let kernel = counters.kernel();
        let command = CountersRead::new(context.driver_id(), kernel.object.id(), flags.bits());
        let values = vec![0; kernel.slots.unwrap_or(0)].into_boxed_slice();
        drop(kernel);
        Ok(Self { command, values, context, _flow: flow })
    }

    /// Reads all values from the device, up to the highest index with a point.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone, and in a child of `fork`; errors of its
    /// firmware.
    #[inline]
    #[doc(alias = "ibv_read_counters")]
    pub fn read(&mut self) -> Result<&[u64]> {
        self.context.read_counters(&mut self.command, &mut self.values)?;
        Ok(&self.values)
    }

    /// The values of the last successful [`Reader::read`]; zeros before the first.
    pub fn values(&self) -> &[u64] {
        &self.values
    }
}
