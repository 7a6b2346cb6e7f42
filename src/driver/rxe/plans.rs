//! Objects that are about to be created. The driver creates their rings: it needs no data, and returns where they can be mapped.

use uverbs_abi::rxe::{CreateAhResp, CreateCqResp, CreateQpResp, CreateSrqResp, Mminfo, ResizeCqResp};
use zerocopy::IntoBytes;

use super::{Completions, Receives, Sends};
use crate::driver::request::Address;
use crate::driver::ring::RingDevice;
use crate::driver::seam::Kernel;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// Maps a ring that an earlier command has created and described.
fn map_ring(op: &'static str, info: Mminfo, kernel: &dyn Kernel) -> Result<Mapping> {
    let len = usize::try_from(info.size).map_err(|_| Error::malformed(op, "a ring of no possible size"))?;
    kernel.map(op, info.offset, len)
}

/// A ring of receives, and the device that must be notified of them, if there is one.
pub(in crate::driver) type Receiving = (Receives, Option<Box<dyn RingDevice>>);

/// Maps the ring of a shared receive queue.
pub(in crate::driver) fn map_receives(
    op: &'static str,
    info: Mminfo,
    kernel: &dyn Kernel,
) -> Result<Receiving> {
    Ok((Receives::open(op, map_ring(op, info, kernel)?)?, kernel.ring_device(None)))
}

/// A completion queue.
#[derive(Debug, Default)]
pub(crate) struct CqPlan(CreateCqResp);

impl CqPlan {
    pub(in crate::driver) fn answer(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }

    pub(in crate::driver) fn open(self, op: &'static str, kernel: &dyn Kernel) -> Result<Completions> {
        Completions::open(op, map_ring(op, self.0.mi, kernel)?)
    }
}

impl Completions {
    /// Continues in the ring that the driver creates for `command`.
    pub(in crate::driver) fn resize(
        &mut self,
        op: &'static str,
        kernel: &dyn Kernel,
        command: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut answer = ResizeCqResp::default();
        command(answer.as_mut_bytes())?;
        *self = Self::open(op, map_ring(op, answer.mi, kernel)?)?;
        Ok(())
    }
}

/// A queue pair.
#[derive(Debug, Default)]
pub(crate) struct QpPlan {
    answer: CreateQpResp,
    has_receives: bool,
}

impl QpPlan {
    pub(in crate::driver) fn new(has_receives: bool) -> Self {
        Self { has_receives, ..Self::default() }
    }

    pub(in crate::driver) fn answer(&mut self) -> &mut [u8] {
        self.answer.as_mut_bytes()
    }

    pub(in crate::driver) fn open(
        self,
        op: &'static str,
        number: u32,
        kernel: &dyn Kernel,
    ) -> Result<(Sends, Option<Receiving>)> {
        let sends = map_ring(op, self.answer.sq_mi, kernel)?;
        if !self.has_receives {
            return Ok((Sends::open(op, sends)?, None));
        }
        let [sends, receives] = Mapping::joined(sends, map_ring(op, self.answer.rq_mi, kernel)?);
        let receives = (Receives::open(op, receives)?, kernel.ring_device(Some(number)));
        Ok((Sends::open(op, sends)?, Some(receives)))
    }
}

/// A shared receive queue.
#[derive(Debug, Default)]
pub(crate) struct SrqPlan(CreateSrqResp);

impl SrqPlan {
    pub(in crate::driver) fn answer(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }

    pub(in crate::driver) fn open(self, op: &'static str, kernel: &dyn Kernel) -> Result<Receiving> {
        map_receives(op, self.0.mi, kernel)
    }
}

/// An address handle.
#[derive(Debug, Default)]
pub(crate) struct AhPlan(CreateAhResp);

impl AhPlan {
    pub(in crate::driver) fn answer(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }

    pub(in crate::driver) fn address(&self) -> Address {
        Address { number: self.0.ah_num, ..Address::default() }
    }
}
