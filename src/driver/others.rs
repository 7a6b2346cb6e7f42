//! Devices without a driver here: the soft device, which has parts of several, and those of drivers that this crate does not know.

use std::borrow::Cow;

use nix::errno::Errno;
use uverbs_abi::flow::FlowAttr;
use uverbs_abi::rxe::Mminfo;
use uverbs_abi::write::AhAttr;

use super::seam::{AhPlan, Control, GuardedKeys, Kernel, RefusedBind, SrqChange};
use super::{NO_QUEUES, mlx5, rxe};
use crate::kernel::error::{Error, ErrorKind, Result};

/// The soft device: rxe's rings, and mlx5's counters and extended connections.
#[derive(Debug)]
pub(crate) struct Soft;

impl Control for Soft {
    fn name(&self) -> &'static str {
        "the soft device"
    }

    #[cfg(feature = "raw")]
    fn has_flushes(&self) -> bool {
        true
    }

    fn guarded_keys(&self) -> GuardedKeys {
        GuardedKeys::OfDevice
    }

    fn numbers_domains(&self) -> bool {
        false
    }

    fn plan_ah(&self, op: &'static str, attr: &AhAttr) -> Result<AhPlan> {
        rxe::State.plan_ah(op, attr)
    }

    fn may_resize_cq(&self, _: &'static str, _: u32, _: &dyn Kernel) -> Result<()> {
        Ok(())
    }

    fn plan_srq_change(&self, _: &'static str) -> Result<SrqChange> {
        Ok(SrqChange::Rings(Mminfo::default()))
    }

    fn plan_xrcd(&self, _: &'static str) -> Result<()> {
        Ok(())
    }

    fn granted_entries(&self, asked: u32, told: u32, room: u32) -> u32 {
        room.min(asked.max(told))
    }

    fn granted_shared(&self, asked: u32, told: u32, room: u32) -> u32 {
        room.min(asked.max(told))
    }

    /// In the same way as efa, the only driver that has them.
    fn counts_in_memory(&self) -> bool {
        true
    }

    fn has_flow_counters(&self) -> bool {
        true
    }

    fn refused_bind(&self, error: &Error, priority: u16) -> RefusedBind {
        mlx5::refused_bind(error, priority)
    }

    fn flow_hint(&self, kind: ErrorKind, rule: &FlowAttr) -> Option<Cow<'static, str>> {
        mlx5::priority_hint(kind, rule)
    }

    fn counter_bits(&self, _: &str) -> Option<u8> {
        Some(64)
    }
}

/// A driver whose payloads this crate does not know.
#[derive(Debug)]
pub(crate) struct Other;

fn no_queues<T>(op: &'static str) -> Result<T> {
    Err(Error::refused(op, Errno::EOPNOTSUPP, NO_QUEUES))
}

impl Control for Other {
    fn name(&self) -> &'static str {
        "the driver"
    }

    fn plan_ah(&self, op: &'static str, _: &AhAttr) -> Result<AhPlan> {
        no_queues(op)
    }

    fn may_resize_cq(&self, op: &'static str, _: u32, _: &dyn Kernel) -> Result<()> {
        no_queues(op)
    }

    fn plan_srq_change(&self, op: &'static str) -> Result<SrqChange> {
        no_queues(op)
    }

    fn plan_xrcd(&self, op: &'static str) -> Result<()> {
        no_queues(op)
    }

    fn refused_bind(&self, _: &Error, _: u16) -> RefusedBind {
        RefusedBind::Damaged
    }

    fn flow_hint(&self, _: ErrorKind, _: &FlowAttr) -> Option<Cow<'static, str>> {
        None
    }

    fn binds_queue_pairs(&self) -> Option<bool> {
        None
    }
}
