//! Completion counters of the hardware.
//!
//! The object came with Linux 7.3, where EFA's is the only driver that has it. The device counts without a poll of completions,
//! also operations of the peer that software cannot count. It writes the values to memory of the process, where they are read
//! without a system call; a driver that does not do so has a command that reads them. The device does not notify waiters, so a wait
//! polls the values. Ten times a second it also checks whether the device still exists, because the values in memory do not show
//! this.
//!
//! The kernel allows one user of a counter at a time to change it, and returns EBUSY to others (`uverbs_try_lock_object`,
//! rdma_core.c, Linux 7.3). A change that gets EBUSY is tried again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uverbs_abi::ids::comp_cntr::{self, create, modify, read};
use uverbs_abi::types::{comp_cntr_entry, comp_cntr_op};
use zerocopy::IntoBytes;

use super::state::State;
use super::{CompletionCounter, Counted};
use crate::device::context::Context;
use crate::device::object::{Kind, Object};
use crate::driver::CounterValues;
use crate::kernel::command::Command;
use crate::kernel::error::{ErrorKind, Result, limit};

pub(super) const NONE_HERE: &str = "this kernel or device has no completion counters; a counter created without a context counts in software on every device";

/// How often a command that gets EBUSY is sent again immediately, and how often in all. The other command ends by itself, but may
/// wait for a slow device: efa's driver gives its device 30 seconds for a command (`ADMIN_CMD_TIMEOUT_US`, efa_com.c).
const AT_ONCE: u32 = 1_000;
const TRIES: u32 = 40_000;
const SLEEP: Duration = Duration::from_millis(1);

/// Sends a command until the kernel does not return EBUSY.
pub(crate) fn insist(send: impl FnMut() -> Result<()>) -> Result<()> {
    insist_by(
        |tries| if tries < AT_ONCE { std::thread::yield_now() } else { std::thread::sleep(SLEEP) },
        send,
    )
}

fn insist_by(pause: impl Fn(u32), mut send: impl FnMut() -> Result<()>) -> Result<()> {
    for tries in 1..TRIES {
        match send() {
            Err(error) if error.kind() == ErrorKind::Busy => pause(tries),
            other => return other,
        }
    }
    send()
}

/// The kernel's object.
#[derive(Debug)]
pub(super) struct Hardware {
    /// Keeps the memory of the values until the kernel has destroyed the object.
    object: Object,
    values: CounterValues,
}

impl Hardware {
    /// A new one, with both values zero.
    ///
    /// `UVERBS_METHOD_COMP_CNTR_CREATE`.
    pub(super) fn create(op: &'static str, context: &Context) -> Result<Self> {
        let plan = context.driver().plan_completion_counter(op)?;
        let mut command = Command::new(op, comp_cntr::OBJECT, comp_cntr::method::CREATE);
        command.new_handle(create::HANDLE);
        plan.put(&mut command);
        context.invoke(&mut command).map_err(|error| error.hinted_if(ErrorKind::Unsupported, NONE_HERE))?;
        let handle = command.new_handle_of(create::HANDLE)?;
        let object = Object::new(context, Kind::CompletionCounter, handle).holding(plan.memory());
        let counter = Self { object, values: plan.open() };
        // The initial value of a device's counter is not specified.
        counter.set(0)?;
        counter.set_err(0)?;
        Ok(counter)
    }

    pub(super) fn object(&self) -> &Object {
        &self.object
    }

    /// Whether the values are read from memory.
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self.values, CounterValues::Memory(_))
    }

    /// One of the values, if it is in memory.
    #[cfg_attr(all(test, uverbs_loom), allow(dead_code, reason = "loom has atomics of its own"))]
    pub(super) fn value(&self, entry: u64) -> Option<&AtomicU64> {
        match &self.values {
            CounterValues::Memory(values) => values.value(entry),
            CounterValues::Kernel => None,
        }
    }

    /// Fails if the device was removed, because the values would no longer change.
    pub(super) fn look(&self) -> Result<()> {
        self.object.context().query(&mut []).map(drop)
    }

    pub(super) fn release(&mut self) -> Result<()> {
        self.object.release()
    }

    /// Reads a value from memory, or by `UVERBS_METHOD_COMP_CNTR_READ`.
    #[inline]
    pub(super) fn read(&self, entry: u64) -> Result<u64> {
        match &self.values {
            CounterValues::Memory(values) => Ok(values.get(entry)),
            CounterValues::Kernel => self.ask(entry),
        }
    }

    fn ask(&self, entry: u64) -> Result<u64> {
        let mut value = 0_u64;
        let mut command = Command::new("completion_counter.read", comp_cntr::OBJECT, comp_cntr::method::READ);
        command
            .handle(read::HANDLE, self.object.id())
            .value(read::ENTRY, entry)
            .output(read::RESP_VALUE, value.as_mut_bytes());
        self.object.context().invoke(&mut command)?;
        Ok(value)
    }

    /// `UVERBS_METHOD_COMP_CNTR_MODIFY`. The kernel treats any other entry as the successes, and any other operation as an
    /// increase (`efa_modify_comp_cntr`, efa_verbs.c, Linux 7.3). The crate passes no other values.
    fn modify(&self, entry: u64, how: u64, operand: u64) -> Result<()> {
        let context = self.object.context();
        let answer = insist(|| {
            let op = "completion_counter.modify";
            let mut command = Command::new(op, comp_cntr::OBJECT, comp_cntr::method::MODIFY);
            command
                .handle(modify::HANDLE, self.object.id())
                .value(modify::ENTRY, entry)
                .value(modify::OP, how)
                .input(modify::VALUE, &operand);
            context.invoke(&mut command)
        });
        answer.map_err(|error| {
            let caps = || context.completion_counter_caps().ok();
            match caps().filter(|_| error.kind() == ErrorKind::InvalidInput) {
                Some(caps) => {
                    let most = format!("a result of at most {}", caps.max_value);
                    error.hinted(limit("value or increase of the counter", operand, most))
                }
                None => error,
            }
        })
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

/// The hardware counters that a queue pair uses, and for which operations. The kernel destroys them only after the queue pair.
#[derive(Debug, Default)]
pub(crate) struct Attached(Mutex<Vec<(Arc<State>, Counted)>>);

impl Attached {
    /// Records that the queue pair uses a counter.
    pub(crate) fn add(&self, counter: &CompletionCounter, counted: Counted) {
        counter.state.bound.fetch_add(1, Ordering::Relaxed);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((counter.state.clone(), counted));
    }

    /// Whether the queue pair has a counter for some of these operations.
    pub(crate) fn has(&self, counted: Counted) -> bool {
        let attached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attached.iter().any(|(_, known)| known.intersects(counted))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for (state, _) in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            state.bound.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(feature = "raw")]
impl CompletionCounter {
    /// The kernel's handle, if this is a hardware counter.
    pub fn handle(&self) -> Option<u32> {
        self.object().map(Object::id)
    }
}

impl CompletionCounter {
    /// The kernel's object, if this is a hardware counter.
    pub(crate) fn object(&self) -> Option<&Object> {
        self.state.hardware.as_ref().map(Hardware::object)
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::kernel::error::Error;

    #[test]
    fn a_command_that_meets_others_is_sent_again_but_not_for_ever() {
        let busy = || Err(Error::kernel("test", Errno::EBUSY));
        let mut left = 3;
        let answer = insist(|| {
            left -= 1;
            if left > 0 { busy() } else { Ok(()) }
        });
        assert_eq!((answer.is_ok(), left), (true, 0));
        let mut tries = 0;
        let answer = insist_by(drop, || {
            tries += 1;
            busy()
        });
        assert_eq!((answer.unwrap_err().kind(), tries), (ErrorKind::Busy, TRIES));
        let refused = insist(|| Err(Error::kernel("test", Errno::EINVAL)));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
