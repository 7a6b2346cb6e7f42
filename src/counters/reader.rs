//! Reading in a hot loop.

use nix::errno::Errno;
use uverbs_abi::ids::counters::{self, read};
use uverbs_abi::types::ReadCountersFlags;

use super::Counters;
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::flow::Flow;

/// Where the values stand among the command's attributes.
const BUFF: usize = 1;

/// A read of counters prepared once: no allocation and no lock at each [`Reader::read`].
///
/// It keeps its flow alive, so the counters stay bound and no guard is needed: a flow that is dropped
/// is destroyed when its last reader is gone too. One reader is for one thread; make one for each.
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
    command: Command<'static>,
    context: Context,
    _flow: Flow,
}

impl Reader {
    /// Prepares a read of `counters`, which `flow` counts into.
    pub(crate) fn new(counters: &Counters, flow: Flow, flags: ReadCountersFlags) -> Result<Self> {
        let op = "counters.read";
        let needed = counters.needed().ok_or_else(|| Error::malformed(op, "a flow without bound counters"))?;
        let context = counters.context().clone();
        let mut command = Command::new(op, counters::OBJECT, counters::method::READ);
        command
            .for_driver(context.driver_id())
            .handle(read::HANDLE, counters.id())
            .owned_output(read::BUFF, vec![0; needed].into_boxed_slice())
            .flags(read::FLAGS, flags.bits());
        command.sendable()?;
        Ok(Self { command, context, _flow: flow })
    }

    /// Reads all values from the device, up to the highest index that has a point.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) when the device has gone, and those of its firmware.
    #[inline]
    pub fn read(&mut self) -> Result<&[u64]> {
        match self.context.repeat(&mut self.command) {
            Ok(()) if self.command.outputs_are_valid() => Ok(self.command.owned(BUFF)),
            Ok(()) => Err(unwritten()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// The values of the last successful [`Reader::read`]; zeros before the first.
    pub fn values(&self) -> &[u64] {
        self.command.owned(BUFF)
    }
}

#[cold]
fn unwritten() -> Error {
    Error::malformed("counters.read", "the kernel did not write the values")
}

#[cold]
fn failed(errno: Errno) -> Error {
    Error::kernel("counters.read", errno)
}
