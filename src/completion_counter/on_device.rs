//! Making completion counters of the hardware.

use nix::errno::Errno;
use uverbs_abi::ids::device::{self, query_comp_cntr_caps};
use uverbs_abi::types::CompCntrOps;
use zerocopy::IntoBytes;

use super::hardware::{Hardware, NONE_HERE};
use super::state::State;
use super::wait_object::Signal;
use super::{CompletionCounter, CompletionCounterBuilder, Counted, CounterEvents, WaitObject};
use crate::device::context::Context;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};

/// What the completion counters of a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_comp_cntr_caps")]
pub struct CompletionCounterCaps {
    /// Most counters.
    pub max_counters: u32,
    /// Highest value of a counter.
    pub max_value: u64,
    /// Operations that they can count.
    pub operations: Counted,
}

impl Context {
    /// What the device's own completion counters can do (Linux 7.3).
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) when there are none.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_COMP_CNTR_CAPS` (uverbs_std_types_device.c, Linux 7.3).
    #[doc(alias = "ibv_query_comp_cntr_caps")]
    pub fn completion_counter_caps(&self) -> Result<CompletionCounterCaps> {
        use query_comp_cntr_caps::{MAX_COUNTERS, MAX_VALUE, SUPPORTED_QP_ATTACH_OPS};
        let (mut max_counters, mut max_value, mut operations) = (0_u32, 0_u64, 0_u32);
        let mut command =
            Command::new("completion_counter.caps", device::OBJECT, device::method::QUERY_COMP_CNTR_CAPS);
        command
            .output(MAX_COUNTERS, max_counters.as_mut_bytes())
            .output(MAX_VALUE, max_value.as_mut_bytes())
            .output(SUPPORTED_QP_ATTACH_OPS, operations.as_mut_bytes());
        self.invoke(&mut command).map_err(|error| error.hinted_if(ErrorKind::Unsupported, NONE_HERE))?;
        let operations = Counted::from_bits_truncate(operations & CompCntrOps::all().bits());
        Ok(CompletionCounterCaps { max_counters, max_value, operations })
    }
}

impl CompletionCounterBuilder {
    /// Makes a counter of the device's (Linux 7.3). It counts without anybody who takes completions, and also what the other side
    /// reads and writes here.
    ///
    /// Where its values live, [`CompletionCounter::source`] tells. In memory that the device writes they are read without a system
    /// call; else each read asks the kernel, and when that cannot answer, the device being gone, [`CompletionCounter::read`] tells what
    /// it told last. Adding and setting are commands, which are sent again while they meet those of another thread. The two values are
    /// not updated together, and begin again at zero behind the device's highest value.
    ///
    /// Nothing is signalled, so waiting is looking again. With [`WaitObject::Yield`] a wait looks all the time, and gives the
    /// processor to others in between. With [`WaitObject::Unspecified`] it does so for 50 microseconds, and sleeps then: 10
    /// microseconds, and twice as long each time, 1 millisecond at most; so it notices the threshold that much later. Ten times a second the kernel is asked whether the device is still there: a wait ends
    /// with [`Disassociated`](ErrorKind::Disassociated) when it has gone.
    ///
    /// A counter that is attached to a queue pair stays attached until that is destroyed: there is no detaching.
    ///
    /// ```
    /// use uverbs::soft::{Profile, SoftDevice};
    /// use uverbs::{CompletionCounter, WaitObject};
    /// # fn main() -> uverbs::Result<()> {
    /// let context = SoftDevice::new(Profile::default().with_completion_counters(4)).open()?;
    /// let counter = CompletionCounter::builder().wait_object(WaitObject::Yield).create_on(&context)?;
    /// counter.add(2)?;
    /// counter.wait(2, None)?;
    /// assert_eq!(counter.read(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) when the kernel or the device has no such counters, for bytes, and for a
    /// wait object that is signalled; [`Exhausted`](ErrorKind::Exhausted) when there are no more;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for flags other than 0.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_COMP_CNTR_CREATE` (uverbs_std_types_comp_cntr.c, Linux 7.3).
    #[doc(alias = "ibv_create_comp_cntr")]
    pub fn create_on(self, context: &Context) -> Result<CompletionCounter> {
        let op = "completion_counter.create";
        self.check_flags(op)?;
        let refused = |hint| Err(Error::refused(op, Errno::EOPNOTSUPP, hint));
        if self.events != CounterEvents::Completions {
            return refused("hardware counters count completions only");
        }
        let signal = match self.wait_object {
            WaitObject::None => Signal::None,
            WaitObject::Unspecified => Signal::Unspecified,
            WaitObject::Yield => Signal::Yield,
            _ => {
                return refused(
                    "hardware counters signal nothing: wait by Yield or Unspecified, or not at all",
                );
            }
        };
        let mut state = State::new(signal, false, self.cookie);
        state.hardware = Some(Hardware::create(op, context)?);
        Ok(CompletionCounter::of(state))
    }
}
