//! State that the queues of a context share: limits, the page of registers, and numbers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::mlx5::ids::uar_alloc_type;
use uverbs_abi::mlx5::{AllocUcontextResp, MMAP_NC_PAGE, UAR_SIZE, mmap_offset};
use uverbs_abi::types::{driver_id, qp_type};
use uverbs_abi::write::{ExQueryDevice, ExQueryDeviceResp, QpCap, cmd};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

#[cfg(feature = "raw")]
use super::Formats;
use super::shape::Ends;
use super::sizes::Wanted;
use super::{
    Completions, CqPlan, Form, Limits, NO_QUEUES, QpPlan, Receives, Registers, Sends, SharedReceives,
    SrqPlan, UarPage, WqPlan,
};
use crate::driver::seam::{
    CqShape, CqSide, DriverQp, Kernel, Planned, QpQueues, QpShape, Queues, Sides, own,
};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::page::page_size;
use crate::kernel::mapping::source::BlockSource;

/// The largest completion queue that is small enough to be created without checking the device's limit first: 1 MiB, with entries of 64
/// bytes.
const SMALL_CQ: u32 = (1 << 14) - 1;

const NO_MEMORY: &str = "mlx5 has no completion queues in memory of the program";

/// The state that all queues of a context share.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Zeros until the context is created.
    limits: Limits,
    /// The page to which doorbells are written. It is created with the first queue, and freed by the kernel when the device file is
    /// closed. A doorbell is one store of eight bytes, so one page is sufficient for all threads.
    registers: Mutex<Option<Registers>>,
    /// The next number by which completions name a queue pair.
    next_index: AtomicU32,
    /// Maximum number of entries of a completion queue; zero until it is known.
    max_cqe: AtomicU32,
    /// Where the program wants the memory of rings, if it has said so.
    memory: Mutex<BlockSource>,
}

impl State {
    /// The kernel has created the context.
    pub(super) fn read_limits(&mut self, answer: &[u8]) {
        if let Ok((answer, _)) = AllocUcontextResp::read_from_prefix(answer) {
            self.limits = Limits::new(&answer);
        }
    }

    /// The limits, with the source of memory that rings have from now on. Only after the device was taken: in a child the thread that holds the
    /// lock may not exist.
    fn limits(&self) -> Limits {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Limits { memory, ..self.limits.clone() }
    }

    /// Rings that are created from now on are in memory of this source.
    #[cfg(feature = "raw")]
    pub(crate) fn use_memory(&self, source: BlockSource) {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = source;
    }

    #[cfg(feature = "raw")]
    pub(crate) fn formats(&self) -> Formats {
        self.limits.formats
    }

    /// Whether the kernel keeps the parameters of the device's clock in a page.
    pub(crate) fn tells_time(&self) -> bool {
        self.limits.tells_time
    }

    /// Refuses a completion queue that is larger than the device's maximum, before its memory is allocated. Small queues are always
    /// possible and need no query.
    pub(super) fn check_cqe(&self, op: &'static str, entries: u32, kernel: &dyn Kernel) -> Result<()> {
        if entries <= SMALL_CQ {
            return Ok(());
        }
        let most = match self.max_cqe.load(Ordering::Relaxed) {
            0 => {
                // Threads that arrive here together each send the query, and all get the same response.
                let most = most_cqe(kernel)?;
                self.max_cqe.store(most, Ordering::Relaxed);
                most
            }
            known => known,
        };
        if entries <= most {
            return Ok(());
        }
        Err(Error::beyond(op, "entries of a completion queue (max_cqe)", entries, most))
    }

    /// A number for a queue pair: 24 bits, not all ones. Numbers are used again after an overflow.
    fn next_index(&self) -> u32 {
        self.next_index.fetch_add(1, Ordering::Relaxed) % 0xff_ffff
    }

    fn registers(&self, op: &'static str, kernel: &dyn Kernel) -> Result<Registers> {
        // Before the lock, because in a child the thread that holds it may not exist.
        kernel.take(op)?;
        let mut registers = self.registers.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match &*registers {
            Some(registers) => registers.clone(),
            None if self.limits.has_registers => registers.insert(static_registers(op, kernel)?).clone(),
            None => registers.insert(map_registers(op, kernel)?).clone(),
        })
    }
}

impl Queues for State {
    const NUMBER: u32 = driver_id::MLX5;

    type Completions = Completions;
    type Sends = Sends;
    type Receives = Receives;
    type Shared = SharedReceives;

    fn plan_cq(
        &self,
        op: &'static str,
        shape: &CqShape<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<u32, Completions> {
        if shape.memory.is_some() {
            return Err(Error::refused(op, Errno::EOPNOTSUPP, NO_MEMORY));
        }
        kernel.take(op)?;
        self.check_cqe(op, shape.entries, kernel)?;
        let mut limits = self.limits();
        if let Some(size) = shape.driver.entry_size {
            if !matches!(size, 64 | 128) {
                return Err(Error::outside(op, "bytes of a completion", size, "64 or 128"));
            }
            limits.cqe_size = size.into();
        }
        let plan = CqPlan::new(op, shape.entries, &limits, self.registers(op, kernel)?)?;
        Ok(Box::new(plan.with(op, shape.driver)?))
    }

    fn plan_qp(
        &self,
        op: &'static str,
        shape: &QpShape,
        sides: Sides<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<QpCap, QpQueues<Sends, Receives>> {
        let refused = |hint| Err(Error::refused(op, Errno::EOPNOTSUPP, hint));
        let Some(form) = Form::of(shape) else { return refused(NO_QUEUES) };
        if shape.driver != (DriverQp { flags: shape.driver.flags, ..DriverQp::default() }) {
            return refused("of the choices of drivers, mlx5 has flags of queue pairs only");
        }
        if shape.type_ == qp_type::RAW_PACKET && shape.is_shared {
            return refused("raw packet queue pairs do not share their receives");
        }
        let [sends, receives] = sides.queues;
        let (sends, receives) = (own(op, sends.clone())?, own(op, receives.clone())?);
        let shared = sides.shared.map(|shared| own(op, shared.clone())).transpose()?;
        let ends = Ends { queues: [&sends, &receives], shared: shared.as_ref() };
        let (registers, index) = (self.registers(op, kernel)?, || self.next_index());
        let wanted = Wanted { cap: shape.cap, operations: shape.operations, flags: shape.driver.flags };
        Ok(Box::new(QpPlan::new(op, form, &wanted, &self.limits(), registers, ends, index)?))
    }

    fn plan_srq(
        &self,
        op: &'static str,
        [depth, segments]: [u32; 2],
        queue: Option<&Arc<dyn CqSide>>,
        kernel: &dyn Kernel,
    ) -> Planned<[u32; 2], SharedReceives> {
        // Before the lock of the completion queue is taken.
        kernel.take(op)?;
        let queue = queue.map(|queue| own(op, queue.clone())).transpose()?;
        let plan = SrqPlan::new(op, depth, segments, &self.limits(), queue.as_ref(), || self.next_index())?;
        Ok(Box::new(plan))
    }

    fn plan_wq(
        &self,
        op: &'static str,
        [depth, segments]: [u32; 2],
        queue: &Arc<dyn CqSide>,
        kernel: &dyn Kernel,
    ) -> Planned<[u32; 2], Receives> {
        // Before the lock of the completion queue is taken.
        kernel.take(op)?;
        let queue = own(op, queue.clone())?;
        Ok(Box::new(WqPlan::new(op, depth, segments, &self.limits(), &queue, || self.next_index())?))
    }
}

/// Maximum number of entries of a completion queue of the device.
fn most_cqe(kernel: &dyn Kernel) -> Result<u32> {
    let request = ExQueryDevice::default();
    let mut response = ExQueryDeviceResp::new_zeroed();
    let mut command = Command::write("device.query", cmd::EX_QUERY_DEVICE);
    command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
    kernel.invoke(&mut command)?;
    Ok(response.base.max_cqe)
}

/// Allocates and maps a page of registers. It is neither cached nor write-combining, because doorbells are single stores.
fn map_registers(op: &'static str, kernel: &dyn Kernel) -> Result<Registers> {
    let made = UarPage::alloc(kernel, uar_alloc_type::NC)?;
    Ok(Registers { page: made.map(op, kernel)?, id: Some(made.number), offset: made.offset })
}

/// The first of the pages that the kernel created with the context; there is no other (`uar_mmap`, main.c, and `alloc_bfreg`, qp.c, Linux
/// 6.1). The offset is in pages of the system, and a register page is a part of such a page.
fn static_registers(op: &'static str, kernel: &dyn Kernel) -> Result<Registers> {
    let offset = mmap_offset(MMAP_NC_PAGE, 0, page_size() as u64);
    let page = kernel.map(op, offset, UAR_SIZE)?;
    Ok(Registers { page, id: None, offset })
}

#[cfg(test)]
mod tests {
    use uverbs_abi::types::QpCreateFlags;

    use super::super::tests::{Elsewhere, limits, open};
    use super::*;
    use crate::driver::seam::{CompletionRing, DriverCq};
    use crate::kernel::error::ErrorKind;
    use crate::kernel::mapping::Mapping;

    #[test]
    fn no_lock_is_taken_before_the_device() {
        let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
        let queue = open(CqPlan::new("test", 3, &limits(1), page).unwrap(), 0).side();
        let state = State { limits: limits(1), ..State::default() };
        // As if a thread of the parent held the lock at the fork: a child that took it would wait for ever.
        let held = (state.registers.lock().unwrap(), state.memory.lock().unwrap());
        let cap = QpCap { max_send_wr: 1, max_send_sge: 1, ..QpCap::new_zeroed() };
        let driver = DriverQp::default();
        let shape = QpShape {
            type_: qp_type::RAW_PACKET,
            cap,
            operations: None,
            large_header: 0,
            is_shared: false,
            flags: QpCreateFlags::empty(),
            driver,
        };
        let queue_shape =
            CqShape { entries: 4, has_channel: false, memory: None, driver: DriverCq::default() };
        let sides = Sides { queues: [&queue; 2], shared: None };
        let refused = [
            state.plan_cq("test", &queue_shape, &Elsewhere).unwrap_err(),
            state.plan_qp("test", &shape, sides, &Elsewhere).unwrap_err(),
            state.plan_wq("test", [4, 1], &queue, &Elsewhere).unwrap_err(),
            state.plan_srq("test", [4, 1], Some(&queue), &Elsewhere).unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.kind() == ErrorKind::Disassociated), "{refused:?}");
        drop(held);
        assert_eq!(state.next_index(), 0, "no number was given out");
    }
}
