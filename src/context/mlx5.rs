//! What the queues of mlx5 need from their context.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use uverbs_abi::mlx5::ids::{uar, uar_alloc_type};
use uverbs_abi::mlx5::{MMAP_NC_PAGE, UAR_SIZE, mmap_offset};
use zerocopy::IntoBytes;

use super::Context;
use crate::command::Command;
use crate::driver::mlx5::{Limits, Registers};
use crate::error::{Error, Result};

/// The largest completion queue that costs so little that nothing need be known of the device before: of 1 MiB, with entries of
/// 64 bytes.
const SMALL_CQ: u32 = (1 << 14) - 1;

/// The state that all queues of a context share.
#[derive(Debug)]
pub(super) struct Mlx5 {
    limits: Limits,
    /// The page to which doorbells are written: made with the first queue, and the kernel's again when the device file
    /// is closed. A doorbell is one store of eight bytes, so one page does for all threads.
    registers: Mutex<Option<Registers>>,
    /// The next number by which completions name a queue pair.
    next_index: AtomicU32,
    /// Most entries of a completion queue; zero before it was asked for.
    max_cqe: AtomicU32,
}

impl Mlx5 {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            registers: Mutex::default(),
            next_index: AtomicU32::new(0),
            max_cqe: AtomicU32::new(0),
        }
    }
}

impl Context {
    /// Limits and registers, if the device is one of mlx5's.
    pub(crate) fn mlx5(&self, op: &'static str) -> Result<Option<(&Limits, Registers)>> {
        let Some(mlx5) = &self.0.mlx5 else { return Ok(None) };
        // Before the lock, which a thread may hold that a child does not have.
        self.0.door.take(op)?;
        let mut registers = mlx5.registers.lock().unwrap_or_else(PoisonError::into_inner);
        let registers = match &*registers {
            Some(registers) => registers.clone(),
            None if mlx5.limits.has_registers => registers.insert(self.static_registers(op)?).clone(),
            None => registers.insert(self.map_registers(op)?).clone(),
        };
        Ok(Some((&mlx5.limits, registers)))
    }

    /// Refuses a completion queue that is larger than the device has. Small ones it has for sure, and nothing is asked.
    pub(crate) fn check_cqe(&self, op: &'static str, entries: u32) -> Result<()> {
        let Some(mlx5) = self.0.mlx5.as_ref().filter(|_| entries > SMALL_CQ) else { return Ok(()) };
        let most = match mlx5.max_cqe.load(Ordering::Relaxed) {
            0 => {
                // Threads that come here together ask each for itself, and all get the same answer.
                let most = self.query_device()?.base.max_cqe;
                mlx5.max_cqe.store(most, Ordering::Relaxed);
                most
            }
            known => known,
        };
        if entries <= most {
            return Ok(());
        }
        Err(Error::refused(
            op,
            Errno::EINVAL,
            format!("the device has completion queues of {most} entries at most"),
        ))
    }

    /// A number for a queue pair of mlx5: 24 bits, not all ones; they come round.
    pub(crate) fn next_index(&self) -> u32 {
        let next = |mlx5: &Mlx5| mlx5.next_index.fetch_add(1, Ordering::Relaxed) % 0xff_ffff;
        self.0.mlx5.as_ref().map_or(0, next)
    }

    /// `UVERBS_HANDLER(MLX5_IB_METHOD_UAR_OBJ_ALLOC)`, main.c, Linux 6.1. Not cached, not write-combining: doorbells are
    /// single stores.
    fn map_registers(&self, op: &'static str) -> Result<Registers> {
        let (mut offset, mut length, mut id) = (0_u64, 0_u32, 0_u32);
        let mut command = Command::new("uar.alloc", uar::OBJECT, uar::method::ALLOC);
        command
            .new_handle(uar::alloc::HANDLE)
            .value(uar::alloc::TYPE, uar_alloc_type::NC)
            .output(uar::alloc::MMAP_OFFSET, offset.as_mut_bytes())
            .output(uar::alloc::MMAP_LENGTH, length.as_mut_bytes())
            .output(uar::alloc::PAGE_ID, id.as_mut_bytes());
        self.invoke(&mut command)?;
        let page = self.map(op, offset, length as usize)?;
        if page.len() < UAR_SIZE {
            return Err(Error::malformed(op, "a page of registers that is none"));
        }
        Ok(Registers { page, id: Some(id) })
    }

    /// The first page of those that the kernel made with the context: there is no other (`uar_mmap`, main.c, and
    /// `alloc_bfreg`, qp.c, Linux 6.1).
    fn static_registers(&self, op: &'static str) -> Result<Registers> {
        let offset = mmap_offset(MMAP_NC_PAGE, 0, UAR_SIZE as u64);
        let page = self.map(op, offset, UAR_SIZE)?;
        Ok(Registers { page, id: None })
    }
}
