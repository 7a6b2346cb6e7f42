//! Completion counters of the hardware.
//!
//! The object came with Linux 7.3, where EFA's is the one driver that has it (feature `comp-cntr-uapi`). The device counts by itself, without anybody who takes completions, and also
//! what only it can see. It tells nobody, so waiting is asking again and again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use uverbs_abi::ids::comp_cntr::{self, create, modify, read};
use uverbs_abi::ids::device::{self, query_comp_cntr_caps};
use uverbs_abi::types::{CompCntrOps, comp_cntr_entry, comp_cntr_op};
use zerocopy::IntoBytes;

use super::state::State;
use super::wait_object::Signal;
use super::{CompletionCounter, CompletionCounterBuilder, Counted, CounterEvents, WaitObject};
use crate::device::context::Context;
use crate::device::object::{Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};

const NONE_HERE: &str = "this kernel and device have no completion counters; one made without a context counts on \
                         every device";

/// The kernel's object.
#[derive(Debug)]
pub(super) struct Hardware(Object);

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
    /// What the device's own completion counters can do (feature `comp-cntr-uapi`, an ABI of Linux
    /// 7.3).
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
    /// Makes a counter of the device's (feature `comp-cntr-uapi`, an ABI of Linux 7.3). It counts
    /// without anybody who takes completions, and also what the other side reads and writes here.
    ///
    /// Each call asks the kernel. When that cannot answer, the device being gone, [`CompletionCounter::read`] tells what
    /// it told last; all others give the error. Nothing is signalled, so waiting is asking again.
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
            WaitObject::Unspecified | WaitObject::Yield => Signal::Yield,
            _ => {
                return refused(
                    "hardware counters signal nothing: wait by Yield or Unspecified, or not at all",
                );
            }
        };
        context.driver().completion_counters(op)?;
        let mut command = Command::new(op, comp_cntr::OBJECT, comp_cntr::method::CREATE);
        command.new_handle(create::HANDLE);
        context.invoke(&mut command).map_err(|error| error.hinted_if(ErrorKind::Unsupported, NONE_HERE))?;
        let object = Object::new(context, Kind::CompletionCounter, command.new_handle_of(create::HANDLE)?);
        Ok(CompletionCounter { state: Arc::new(State::new(signal, false, self.cookie).on(Hardware(object))) })
    }
}

impl Hardware {
    pub(super) fn object(&self) -> &Object {
        &self.0
    }

    pub(super) fn release(&mut self) -> Result<()> {
        self.0.release()
    }

    /// `UVERBS_METHOD_COMP_CNTR_READ`.
    pub(super) fn read(&self, entry: u64) -> Result<u64> {
        let mut value = 0_u64;
        let mut command = Command::new("completion_counter.read", comp_cntr::OBJECT, comp_cntr::method::READ);
        command
            .handle(read::HANDLE, self.0.id())
            .value(read::ENTRY, entry)
            .output(read::RESP_VALUE, value.as_mut_bytes());
        self.0.context().invoke(&mut command)?;
        Ok(value)
    }

    /// `UVERBS_METHOD_COMP_CNTR_MODIFY`.
    fn modify(&self, entry: u64, how: u64, operand: u64) -> Result<()> {
        let mut command =
            Command::new("completion_counter.modify", comp_cntr::OBJECT, comp_cntr::method::MODIFY);
        command
            .handle(modify::HANDLE, self.0.id())
            .value(modify::ENTRY, entry)
            .value(modify::OP, how)
            .input(modify::VALUE, &operand);
        self.0.context().invoke(&mut command)
    }

    pub(super) fn add(&self, value: u64) -> Result<()> {
        self.modify(comp_cntr_entry::COMP, comp_cntr_op::INC, value)
    }

    pub(super) fn add_err(&self, value: u64) -> Result<()> {
        self.modify(comp_cntr_entry::ERR, comp_cntr_op::INC, value)
    }

    pub(super) fn set(&self, value: u64) -> Result<()> {
        self.modify(comp_cntr_entry::COMP, comp_cntr_op::SET, value)
    }

    pub(super) fn set_err(&self, value: u64) -> Result<()> {
        self.modify(comp_cntr_entry::ERR, comp_cntr_op::SET, value)
    }
}

/// Hardware counters that a queue pair uses: the kernel lets them go after it.
#[derive(Debug, Default)]
pub(crate) struct Attached(Mutex<Vec<Arc<State>>>);

impl Attached {
    /// The queue pair uses a counter from now on.
    pub(crate) fn add(&self, counter: &CompletionCounter) {
        counter.state.bound.fetch_add(1, Ordering::Relaxed);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(counter.state.clone());
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for state in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            state.bound.fetch_sub(1, Ordering::Release);
        }
    }
}

impl CompletionCounter {
    /// The kernel's object, of a counter of the device's.
    pub(crate) fn object(&self) -> Option<&Object> {
        self.state.hardware().map(Hardware::object)
    }
}
