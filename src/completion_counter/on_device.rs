//! Creating completion counters of the hardware.

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

/// The capabilities of a device's completion counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_comp_cntr_caps")]
pub struct CompletionCounterCaps {
    /// Maximum number of counters.
    pub max_counters: u32,
    /// Maximum value of a counter.
    pub max_value: u64,
    /// Operations that they can count.
    pub operations: Counted,
}

impl Context {
    /// The capabilities of the device's completion counters (Linux 7.3).
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the device has none.
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
    /// Creates a hardware counter (Linux 7.3). It counts even if no thread takes completions, and it can count the peer's reads
    /// and writes of this side's memory.
    ///
    /// [`CompletionCounter::source`] returns where its values are stored. If the device writes them to memory, they are read
    /// without a system call. Otherwise each read is a command; if it fails, for example because the device has gone,
    /// [`CompletionCounter::read`] returns its last result. Adding and setting are commands, which are sent again if they collide
    /// with those of another thread. The two values are not updated together, and start again at zero above the device's maximum
    /// value.
    ///
    /// The device signals nothing, so a wait reads the value repeatedly. With [`WaitObject::Yield`] it reads continuously and
    /// yields the processor in between. With [`WaitObject::Unspecified`] it does so for 50 microseconds and then sleeps between
    /// reads: first 10 microseconds, doubling up to 1 millisecond. It detects the threshold with at most this delay. Ten times a
    /// second the wait sends a command to check whether the device still exists; if not, it ends with
    /// [`Disassociated`](ErrorKind::Disassociated).
    ///
    /// A counter that is attached to a queue pair stays attached until the queue pair is destroyed; it cannot be detached.
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
    /// [`Unsupported`](ErrorKind::Unsupported) if the kernel or the device has no such counters, for bytes, and for a wait object
    /// that is signalled; [`Exhausted`](ErrorKind::Exhausted) if the device has no free counter;
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
