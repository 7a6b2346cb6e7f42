//! The driver's data for the counters of a flow, and why the driver refuses some flows.
//!
//! Source: `mlx5_ib_create_flow`, fs.c, and `mlx5_ib_flow_counters_set_data`, counters.c, Linux 6.1.

use std::borrow::Cow;

use nix::errno::Errno;
use uverbs_abi::flow::{ATTR_ALL_DEFAULT, ATTR_MC_DEFAULT, FLAG_ALLOW_LOOP_BACK, FlowAttr};
use uverbs_abi::ioctl::UHW_IN;
use uverbs_abi::mlx5::{CreateFlow as Head, FlowCountersData};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::driver::seam::{Points, RefusedBind};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind};

/// The number of point maps that follow, and the one map.
#[repr(C)]
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Payload {
    head: Head,
    map: FlowCountersData,
}

/// Offset of the address of the points in it.
const MAP_ADDRESS: usize = size_of::<Head>();

/// An address at which no process has memory.
const NOWHERE: u64 = !7;

/// The driver's data for a flow. Without counters, it consists of the head alone.
#[derive(Debug)]
pub(crate) struct FlowPayload<'a> {
    payload: Payload,
    points: Option<Points<'a>>,
}

impl<'a> FlowPayload<'a> {
    pub(in crate::driver) fn new(points: Option<Points<'a>>) -> Self {
        let map = match points {
            Some(Points::First(points)) => Some((0, points.len() as u32)),
            Some(Points::Unreadable | Points::UnreadableOfAnyRule) => Some((NOWHERE, 1)),
            Some(Points::Known) | None => None,
        };
        let (counters_data, ncounters) = map.unwrap_or_default();
        let payload = Payload {
            head: Head { ncounters_data: u32::from(map.is_some()), reserved: 0 },
            map: FlowCountersData { counters_data, ncounters, ..FromZeros::new_zeroed() },
        };
        Self { payload, points }
    }

    pub(in crate::driver) fn put<'c>(&'c mut self, command: &mut Command<'c>) {
        match self.points {
            Some(Points::First(points)) => {
                command.nested(UHW_IN, self.payload.as_mut_bytes(), MAP_ADDRESS, points.as_bytes())
            }
            Some(_) => command.input(UHW_IN, &self.payload),
            None => command.input(UHW_IN, &self.payload.head),
        };
    }
}

/// The last priority (`MLX5_IB_FLOW_LAST_PRIO`, mlx5_ib.h). For a higher one, the kernel returns ENOMEM before it checks anything else.
const LAST_PRIORITY: u16 = 15;

/// Before and after it allocates the device's counter, the core or the driver may fail with errnos that firmware never causes
/// (cmd_status_to_err, cmd.c, Linux 6.1 and 7.3). Both they and firmware can cause EINVAL.
pub(in crate::driver) fn refused_bind(error: &Error, priority: u16) -> RefusedBind {
    let never = [
        Errno::EFAULT,
        Errno::EOPNOTSUPP,
        Errno::EPROTONOSUPPORT,
        Errno::EPERM,
        Errno::ENOENT,
        Errno::EEXIST,
        Errno::ENOSPC,
    ];
    let is = |errno: Errno| error.errno() == Some(errno as i32);
    if never.into_iter().any(is) || (is(Errno::ENOMEM) && priority > LAST_PRIORITY) {
        RefusedBind::Harmless
    } else if is(Errno::EINVAL) {
        RefusedBind::AskAgain
    } else {
        RefusedBind::Damaged
    }
}

/// What to do about a priority that does not exist.
pub(in crate::driver) fn priority_hint(kind: ErrorKind, rule: &FlowAttr) -> Option<Cow<'static, str>> {
    (kind == ErrorKind::Exhausted && rule.priority > LAST_PRIORITY).then(|| {
        format!("there is no priority {}: priorities are 0 to {LAST_PRIORITY}", rule.priority).into()
    })
}

/// What to do about a refused rule, if this driver is the reason.
pub(super) fn flow_hint(kind: ErrorKind, rule: &FlowAttr) -> Option<Cow<'static, str>> {
    match kind {
        ErrorKind::InvalidInput if rule.flags & FLAG_ALLOW_LOOP_BACK != 0 => {
            Some("mlx5 refuses rules that allow loop back: leave that out".into())
        }
        // It is not known in advance which kernels have the fault. The response shows that this one has it.
        ErrorKind::InvalidInput if matches!(rule.type_, ATTR_ALL_DEFAULT | ATTR_MC_DEFAULT) => Some(
            "this kernel's mlx5 driver cannot make default rules (Linux 7.2 cannot); take a normal rule \
             for Ethernet addresses with priority 15"
                .into(),
        ),
        _ => priority_hint(kind, rule),
    }
}
