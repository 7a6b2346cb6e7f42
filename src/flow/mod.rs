//! Flows: rules in force.

mod rule;
mod spec;
mod text;

use std::borrow::Cow;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::flow::{CreateFlow, CreateFlowResp, FlowAttr};
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::types::{ReadCountersFlags, qp_type};
use uverbs_abi::write::cmd;
use zerocopy::{FromZeros, IntoBytes};

pub use self::rule::{CatchAll, FlowRule, Normal, RuleType, Sniffer};
pub use self::spec::{
    Esp, Eth, FlowLabel, FlowTag, Gre, InnerSpec, Ipv4, Ipv6, Mpls, MplsLabel, Spec, Tcp, Udp, VlanId, Vni,
    Vxlan,
};
pub use self::text::{AnyRule, RuleError};
use crate::counters::{Counters, Reader, Snapshot};
use crate::device::context::Context;
use crate::device::object::{self, Kind, Object};
use crate::driver::Points;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::qp::{self, QpType, QueuePair, RssQueuePair};

/// A rule in force: matching packets go to its queue pair and are counted by its counters. Created by
/// [`QueuePair::create_flow`](crate::QueuePair::create_flow).
///
/// The flow is destroyed when this handle and every [`Reader`] created from it are gone. It keeps its queue pair and its counters
/// alive.
#[derive(Debug)]
#[doc(alias = "ibv_flow")]
pub struct Flow(Arc<FlowCore>);

#[derive(Debug)]
struct FlowCore {
    object: Object,
    counters: Option<Counters>,
    _qp: Arc<qp::QueuePairCore>,
}

impl FlowCore {
    fn release(&mut self) -> Result<()> {
        let Self { object, counters, .. } = self;
        match counters {
            Some(counters) => counters.unbind(|| object.release()),
            None => object.release(),
        }
    }
}

impl Drop for FlowCore {
    fn drop(&mut self) {
        // A flow that could not be destroyed continues to count until the device file is closed. The destroy is not repeated, because
        // that could run at the same time as a read.
        if self.object.is_live() && self.release().is_err() {
            self.object.abandon();
        }
    }
}

impl<T: QpType> QueuePair<T> {
    /// Puts a rule in force, with this queue pair as destination.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a rule that contradicts itself or that the driver refuses, and for a queue
    /// pair that is neither for raw packets nor UD; [`PermissionDenied`](ErrorKind::PermissionDenied) without `CAP_NET_RAW`;
    /// [`Unsupported`](ErrorKind::Unsupported) on devices without flows, or for a match that the driver does not support;
    /// [`Exhausted`](ErrorKind::Exhausted) if the device has no free counter or no room for the rule. After an error the counters
    /// of the rule are unchanged.
    ///
    /// # Kernel
    /// `CREATE_FLOW` through `INVOKE_WRITE` (ib_uverbs_ex_create_flow, uverbs_cmd.c, Linux 6.1).
    ///
    /// Stay below the device's number of flow counters. If mlx5's driver cannot allocate one for a counters object, its
    /// kernel object is damaged, and the kernel does not survive its end (mlx5_ib_destroy_counters, counters.c, Linux 6.1 to 7.3). After a failure that may be this one, the crate therefore never uses that object again, and
    /// keeps the device file open until the process ends, whatever is dropped. After 1024 such failures in one process on one
    /// device, rules with new counters are refused as [`Exhausted`](ErrorKind::Exhausted). `docs/internals/kernels.md` describes
    /// what happens when the process ends, and what to do.
    #[doc(alias = "ibv_create_flow")]
    pub fn create_flow<K: RuleType>(&self, rule: &FlowRule<K>) -> Result<Flow> {
        self.shared().steer(rule, T::NUMBER)
    }
}

impl RssQueuePair {
    /// Puts a rule in force: matching packets are spread over the work queues of the table.
    ///
    /// # Errors
    /// As [`QueuePair::create_flow`].
    ///
    /// # Kernel
    /// As [`QueuePair::create_flow`].
    #[doc(alias = "ibv_create_flow")]
    pub fn create_flow<K: RuleType>(&self, rule: &FlowRule<K>) -> Result<Flow> {
        self.shared().steer(rule, qp_type::RAW_PACKET)
    }
}

impl qp::QueuePairCore {
    /// Puts a rule in force with this queue pair, which has type `type_`, as the destination.
    fn steer<K: RuleType>(self: &Arc<Self>, rule: &FlowRule<K>, type_: u8) -> Result<Flow> {
        rule.check()?;
        check_destination(self, rule)?;
        let context = self.object().context();
        let object = match rule.counters() {
            Some(counters) => {
                if !counters.context().is_same(context) {
                    let hint = "the counters belong to another open device than the queue pair";
                    return Err(Error::refused("flow.create", Errno::EINVAL, hint));
                }
                let priority = rule.attr().priority;
                counters.bind(priority, |handle, points| {
                    self.send_rule(context, rule, type_, Some((handle, points)))
                })?
            }
            None => self.send_rule(context, rule, type_, None)?,
        };
        let inner = FlowCore { object, counters: rule.counters().cloned(), _qp: self.clone() };
        Ok(Flow(Arc::new(inner)))
    }

    /// Sends the command for a rule. A rule that counts needs the handle of its counters, and their points unless the device
    /// already has them.
    fn send_rule<K: RuleType>(
        &self,
        context: &Context,
        rule: &FlowRule<K>,
        type_: u8,
        counters: Option<(u32, Points<'_>)>,
    ) -> Result<Object> {
        let (qp, handle) = (self.object().id(), counters.map(|(handle, _)| handle));
        let points = counters.map(|(_, points)| points);
        let request = match points {
            Some(Points::UnreadableOfAnyRule) => rule.without_headers().request(qp, handle),
            _ => rule.request(qp, handle),
        };
        let mut response = CreateFlowResp::new_zeroed();
        let mut payload = context.driver().flow_payload(points);
        let mut command = Command::write("flow.create", cmd::EX_CREATE_FLOW);
        command.input(CORE_IN, request.bytes()).output(CORE_OUT, response.as_mut_bytes());
        payload.put(&mut command);
        context.invoke(&mut command).map_err(|error| explain(context, rule.attr(), type_, error))?;
        Ok(Object::new(context, Kind::Flow, response.flow_handle))
    }
}

/// Refuses a rule that delivers packets to a queue pair that cannot receive them: mlx5's driver would use receiver number 0, which
/// it has not created and which may belong to another user (mlx5_ib_create_flow and get_dests, fs.c, Linux 6.1 to 7.3).
pub(crate) fn check_destination<K: RuleType>(qp: &qp::QueuePairCore, rule: &FlowRule<K>) -> Result<()> {
    if qp.can_receive() || !rule.needs_a_receiver() {
        return Ok(());
    }
    let hint =
        "the queue pair has no receive queue; only rules that drop, or match what is sent, can do without";
    Err(Error::refused("flow.create", Errno::EINVAL, hint))
}

/// Adds a hint to the error of a refused rule.
///
/// The kernel checks the port, the queue pair and the driver's limits in this order (ib_uverbs_ex_create_flow, uverbs_cmd.c;
/// mlx5_ib_create_flow, fs.c; Linux 6.1).
pub(crate) fn explain(context: &Context, rule: &FlowAttr, qp: u8, error: Error) -> Error {
    let ports = context.device().ports();
    let hint: Cow<'static, str> = match error.kind() {
        ErrorKind::PermissionDenied if context.is_gone() => return Error::kernel(error.op(), Errno::EIO),
        ErrorKind::PermissionDenied => "flows need CAP_NET_RAW".into(),
        ErrorKind::InvalidInput if error.errno() == Some(Errno::EEXIST as i32) => {
            "a rule with the same match and another action is in force".into()
        }
        ErrorKind::InvalidInput if rule.port == 0 || (ports > 0 && u32::from(rule.port) > ports) => {
            let last = if ports > 0 { format!("1 to {ports}") } else { "from 1 on".into() };
            format!("there is no port {}: the device has {last}", rule.port).into()
        }
        ErrorKind::InvalidInput if ![qp_type::UD, qp_type::RAW_PACKET].contains(&qp) => {
            "flows lead to raw packet and UD queue pairs only".into()
        }
        kind => match (context.driver().flow_hint(kind, rule), kind) {
            (Some(hint), _) => hint,
            (None, ErrorKind::Unsupported) => {
                "the device has no flows, or cannot do what this rule asks for".into()
            }
            (None, ErrorKind::Exhausted) => {
                "the device has no counter or no room for the rule left, or the kernel no memory".into()
            }
            (None, _) => return error,
        },
    };
    error.hinted(hint)
}

impl Context {
    /// Whether the driver supports flows. It creates nothing and needs no capability.
    ///
    /// The result does not include which headers the driver can match; only [`QueuePair::create_flow`] shows that.
    ///
    /// ```
    /// use uverbs::soft::{Profile, SoftDevice};
    /// # fn main() -> uverbs::Result<()> {
    /// assert!(SoftDevice::default().open()?.has_flows()?);
    /// assert!(!SoftDevice::new(Profile::default().with_flows(false)).open()?.has_flows()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Disassociated`](ErrorKind::Disassociated) if the device has gone.
    ///
    /// # Kernel
    /// The kernel refuses a command for which the driver has no function before it checks the request, and a request with a
    /// `comp_mask` in its first check (uverbs_uapi.c and ib_uverbs_ex_create_flow, uverbs_cmd.c, Linux 6.1).
    pub fn has_flows(&self) -> Result<bool> {
        let request = CreateFlow { comp_mask: !0, ..CreateFlow::new_zeroed() };
        let mut response = CreateFlowResp::new_zeroed();
        let mut command = Command::write("flow.create", cmd::EX_CREATE_FLOW);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        match self.invoke(&mut command) {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(true),
            Err(error) => Err(error),
            Ok(()) => Err(Error::malformed("flow.create", "a request that makes no sense was accepted")),
        }
    }
}

impl Flow {
    /// The counters into which the flow counts.
    pub fn counters(&self) -> Option<&Counters> {
        self.0.counters.as_ref()
    }

    /// Prepares a read of the flow's counters for a hot loop.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the flow has no counters.
    pub fn reader(&self) -> Result<Reader> {
        self.reader_with(ReadCountersFlags::empty())
    }

    /// Prepares a read that passes flags to the driver; see [`Counters::read_with`].
    ///
    /// # Errors
    /// As [`Flow::reader`].
    pub fn reader_with(&self, flags: ReadCountersFlags) -> Result<Reader> {
        Reader::new(self.counted()?, self.0.clone(), flags)
    }

    /// The cache of the flow's counters, shared by all flows that count into them: see [`Counters::snapshot`].
    ///
    /// Unlike a [`Reader`], it does not keep the flow alive.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the flow has no counters.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.counted()?.snapshot()
    }

    fn counted(&self) -> Result<&Counters> {
        let none = || {
            Error::refused(
                "counters.read",
                Errno::EINVAL,
                "the flow has no count action: create it from a rule with `count`",
            )
        };
        self.counters().ok_or_else(none)
    }

    /// Ends the flow and reports any error.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a [`Reader`] keeps the flow alive.
    #[doc(alias = "ibv_destroy_flow")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::get_mut(&mut self.0) else {
            return Err((self, object::shared("flow.destroy", "a reader keeps the flow")));
        };
        inner.release().map_err(|error| (self, error))
    }
}

#[cfg(feature = "raw")]
impl Flow {
    /// The kernel's handle.
    pub fn handle(&self) -> u32 {
        self.0.object.id()
    }
}

#[cfg(feature = "raw")]
impl qp::create::parts::QueuePair {
    /// Puts a rule in force, with this queue pair as destination.
    ///
    /// # Errors
    /// As [`QueuePair::create_flow`].
    pub fn create_flow<K: RuleType>(&self, rule: &FlowRule<K>) -> Result<Flow> {
        self.shared().steer(rule, qp_type::RAW_PACKET)
    }
}
