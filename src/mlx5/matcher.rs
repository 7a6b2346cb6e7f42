//! Flows by matchers: any match and any action that the device has, in the device's layout.

use std::fmt::Debug;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::mlx5::ids::{create_flow_flags, flow, flow_matcher, flow_table_type};

use super::devx::FirmwareObject;
use super::flow::Destination;
use super::header_action::HeaderAction;
use crate::device::context::Context;
use crate::device::object::{self, Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result, limit};
use crate::verbs::qp;

/// The parts of a packet that a flow matches.
const MATCHER: Kind =
    Kind::OfDriver("flow_matcher.destroy", flow_matcher::OBJECT, flow_matcher::method::DESTROY);

/// Maximum number of changes of headers in a request for a flow. The kernel allows fewer
/// (`MLX5_IB_CREATE_FLOW_MAX_FLOW_ACTIONS`, fs.c, Linux 6.1).
const MAX_ACTIONS: usize = 8;

/// The firmware refuses such a flow too.
const NOWHERE: &str = "a flow of packets that come in has a destination, or drops, or passes on";

/// Tables that flows can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowTable {
    /// Packets that come in.
    NicReceive,
    /// Packets that go out.
    NicTransmit,
    /// The embedded switch.
    Fdb,
    /// RDMA packets that come in.
    RdmaReceive,
    /// RDMA packets that go out.
    RdmaTransmit,
}

impl FlowTable {
    pub(super) fn number(self) -> u64 {
        match self {
            Self::NicReceive => flow_table_type::NIC_RX,
            Self::NicTransmit => flow_table_type::NIC_TX,
            Self::Fdb => flow_table_type::FDB,
            Self::RdmaReceive => flow_table_type::RDMA_RX,
            Self::RdmaTransmit => flow_table_type::RDMA_TX,
        }
    }
}

/// What a [`FlowMatcher`] matches.
#[derive(Clone, Copy, Debug)]
pub struct Matching<'a> {
    /// The bits that are compared, as the device's `fte_match_param`; what follows the end is not compared. At most 640 bytes.
    pub mask: &'a [u8],
    /// The parts of the mask that are used, one bit each: 1 outer headers, 2 miscellaneous, 4 inner headers, and so on.
    pub criteria: u8,
    /// Priority, from 0, the first.
    pub priority: u16,
    /// The table.
    pub table: FlowTable,
}

/// The kernel's attributes of a matcher, unchecked.
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug)]
pub struct RawMatching<'a> {
    /// The bits that are compared.
    pub mask: &'a [u8],
    /// The parts of the mask that are used.
    pub criteria: u8,
    /// Priority, from 0.
    pub priority: u16,
    /// One of [`uverbs_abi::mlx5::ids::flow_table_type`].
    pub table: Option<u64>,
    /// Flags of the flow; older than `table`.
    pub flags: Option<u32>,
    /// Port, for the tables of RDMA transport.
    pub port: Option<u32>,
}

/// The parts of a packet that flows match. Flows of one matcher differ in the values.
///
/// Cheap to clone; destroyed when the last clone and the last flow are gone.
#[derive(Clone, Debug)]
#[doc(alias = "mlx5dv_flow_matcher")]
pub struct FlowMatcher {
    object: Arc<Object>,
    /// Packets that come in: a flow has to say where they go.
    is_receiving: bool,
}

impl FlowMatcher {
    /// Creates a matcher. The device sees it with the first flow.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a mask that is empty or too long, and for a table that the kernel does not know;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for devices of other drivers.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_FLOW_MATCHER_CREATE` (fs.c, Linux 6.1).
    #[doc(alias = "mlx5dv_create_flow_matcher")]
    pub fn create(context: &Context, matching: &Matching<'_>) -> Result<Self> {
        let &Matching { mask, criteria, priority, table } = matching;
        let table = Some(table.number());
        let raw = RawMatching { mask, criteria, priority, table, flags: None, port: None };
        Self::make(context, &raw)
    }

    /// Creates a matcher from the kernel's attributes.
    ///
    /// # Errors
    /// As [`FlowMatcher::create`].
    #[cfg(feature = "raw")]
    pub fn create_raw(context: &Context, matching: &RawMatching<'_>) -> Result<Self> {
        Self::make(context, matching)
    }

    fn make(context: &Context, matching: &RawMatching<'_>) -> Result<Self> {
        let is_receiving = match matching.table {
            Some(table) => table == flow_table_type::NIC_RX,
            None => matching.flags.unwrap_or(0) == 0,
        };
        let object = Arc::new(create_matcher(context, "flow_matcher.create", matching)?);
        Ok(Self { object, is_receiving })
    }

    /// The open device to which it belongs.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// Puts a rule in force: `actions` apply to packets whose masked bits are those of `value`.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for two tags, for packets that come in and go nowhere, for objects of another open
    /// device, and for what the kernel refuses, such as an object of the firmware that is no destination or no counter;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for two destinations or two counters, and for what the device lacks;
    /// [`PermissionDenied`](crate::ErrorKind::PermissionDenied) without `CAP_NET_RAW`.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_CREATE_FLOW` (fs.c, Linux 6.1).
    #[doc(alias = "mlx5dv_create_flow")]
    pub fn create_flow(&self, value: &[u8], actions: &[FlowAction<'_>]) -> Result<MatchedFlow> {
        let op = "flow.create";
        let mut parts = Parts::default();
        for action in actions {
            parts.add(op, self.context(), *action)?;
        }
        if self.is_receiving && !parts.has_destination() {
            return Err(Error::refused(op, Errno::EINVAL, NOWHERE));
        }
        let handles: Vec<u32> = parts.changes.iter().map(HeaderAction::handle).collect();
        let flow = send(self.context(), op, &parts.request(value, &self.object, &handles))?;
        let Parts { qp, object, counter, changes, .. } = parts;
        let objects = object.into_iter().chain(counter.map(|(object, _)| object)).collect();
        Ok(MatchedFlow { flow, _matcher: self.clone(), _qp: qp, _objects: objects, _changes: changes })
    }

    /// Destroys the matcher and reports any error.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a clone or a flow exists.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_FLOW_MATCHER_DESTROY` (fs.c, Linux 6.1).
    #[doc(alias = "mlx5dv_destroy_flow_matcher")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let hint = "a clone or a flow of the matcher still exists";
        let only = Arc::get_mut(&mut self.object);
        let only = only.ok_or_else(|| object::shared("flow_matcher.destroy", hint));
        only.and_then(Object::release).map_err(|error| (self, error))
    }
}

/// What happens to the packets of a flow.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[doc(alias = "mlx5dv_flow_action_attr")]
pub enum FlowAction<'a> {
    /// They go to this queue pair.
    ToQueuePair(&'a dyn Destination),
    /// They go to this object of the firmware: a TIR or a flow table.
    ToObject(&'a FirmwareObject),
    /// They are dropped.
    Drop,
    /// They go on as if nothing had matched.
    Pass,
    /// Their completions carry this number, of 24 bits.
    Tag(u32),
    /// They are counted by a counter of the firmware, or by the one at this offset in a bulk of counters.
    Count(&'a FirmwareObject, u32),
    /// Their headers change.
    Change(&'a HeaderAction),
}

/// A rule in force.
///
/// It is destroyed when it is dropped. It keeps its matcher and all that its actions name alive.
#[derive(Debug)]
pub struct MatchedFlow {
    /// Before what it uses.
    flow: Object,
    _matcher: FlowMatcher,
    _qp: Option<Arc<qp::QueuePairCore>>,
    _objects: Vec<FirmwareObject>,
    _changes: Vec<HeaderAction>,
}

impl MatchedFlow {
    /// The kernel's handle.
    #[cfg(feature = "raw")]
    pub fn handle(&self) -> u32 {
        self.flow.id()
    }

    /// Ends the flow and reports any error.
    ///
    /// # Errors
    /// Those of the kernel; the flow is returned with the error.
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.flow.release().map_err(|error| (self, error))
    }
}

/// What the actions of a flow name.
#[derive(Debug, Default)]
struct Parts {
    qp: Option<Arc<qp::QueuePairCore>>,
    object: Option<FirmwareObject>,
    flags: u32,
    tag: Option<u32>,
    counter: Option<(FirmwareObject, u32)>,
    changes: Vec<HeaderAction>,
}

impl Parts {
    fn has_destination(&self) -> bool {
        self.qp.is_some() || self.object.is_some() || self.flags != 0
    }

    fn add(&mut self, op: &'static str, context: &Context, action: FlowAction<'_>) -> Result<()> {
        let refused = |errno, hint| Err(Error::refused(op, errno, hint));
        let is_destination = matches!(
            action,
            FlowAction::ToQueuePair(_) | FlowAction::ToObject(_) | FlowAction::Drop | FlowAction::Pass
        );
        if is_destination && self.has_destination() {
            return refused(Errno::EOPNOTSUPP, "a flow has one destination, or drops, or passes on");
        }
        let other = match action {
            FlowAction::ToQueuePair(qp) => !qp.target().0.object().context().is_same(context),
            FlowAction::ToObject(object) | FlowAction::Count(object, _) => !object.context().is_same(context),
            FlowAction::Change(change) => !change.context().is_same(context),
            _ => false,
        };
        if other {
            return refused(Errno::EINVAL, "an action names an object of another open device");
        }
        match action {
            FlowAction::ToQueuePair(qp) => self.qp = Some(qp.target().0.clone()),
            FlowAction::ToObject(object) => self.object = Some(object.clone()),
            FlowAction::Drop => self.flags = create_flow_flags::DROP,
            FlowAction::Pass => self.flags = create_flow_flags::DEFAULT_MISS,
            FlowAction::Tag(_) if self.tag.is_some() => return refused(Errno::EINVAL, "a flow has one tag"),
            FlowAction::Tag(tag) => self.tag = Some(tag),
            FlowAction::Count(..) if self.counter.is_some() => {
                return refused(Errno::EOPNOTSUPP, "a flow has one counter");
            }
            FlowAction::Count(object, offset) => self.counter = Some((object.clone(), offset)),
            FlowAction::Change(_) if self.changes.len() == MAX_ACTIONS => {
                let hint =
                    limit("changes of headers of a flow", MAX_ACTIONS + 1, format!("at most {MAX_ACTIONS}"));
                return Err(Error::refused(op, Errno::EOPNOTSUPP, hint));
            }
            FlowAction::Change(change) => self.changes.push(change.clone()),
        }
        Ok(())
    }

    fn request<'a>(&self, value: &'a [u8], matcher: &Object, changes: &'a [u32]) -> NewFlow<'a> {
        NewFlow {
            value,
            matcher: matcher.id(),
            qp: self.qp.as_ref().map(|qp| qp.object().id()),
            object: self.object.as_ref().map(|object| object.0.id()),
            flags: self.flags,
            tag: self.tag,
            counter: self.counter.as_ref().map(|(object, offset)| (object.0.id(), *offset)),
            changes,
        }
    }
}

/// The kernel's attributes of a new flow; numbers of objects are handles.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewFlow<'a> {
    pub(super) value: &'a [u8],
    pub(super) matcher: u32,
    pub(super) qp: Option<u32>,
    pub(super) object: Option<u32>,
    /// Of [`create_flow_flags`].
    pub(super) flags: u32,
    pub(super) tag: Option<u32>,
    /// A counter, and an offset in a bulk of them.
    pub(super) counter: Option<(u32, u32)>,
    pub(super) changes: &'a [u32],
}

pub(super) fn send(context: &Context, op: &'static str, new: &NewFlow<'_>) -> Result<Object> {
    use flow::create::{
        ARR_COUNTERS_DEVX, ARR_COUNTERS_DEVX_OFFSET, ARR_FLOW_ACTIONS, DEST_DEVX, DEST_QP, FLAGS, HANDLE,
        MATCH_VALUE, MATCHER, TAG,
    };
    let mut command = Command::new(op, flow::OBJECT, flow::method::CREATE);
    command.new_handle(HANDLE).input(MATCH_VALUE, new.value).handle(MATCHER, new.matcher);
    if let Some((object, offset)) = &new.counter {
        command.input(ARR_COUNTERS_DEVX, object).input(ARR_COUNTERS_DEVX_OFFSET, offset);
    }
    if !new.changes.is_empty() {
        command.input(ARR_FLOW_ACTIONS, new.changes);
    }
    if let Some(tag) = &new.tag {
        command.input(TAG, tag);
    }
    if let Some(qp) = new.qp {
        command.handle(DEST_QP, qp);
    }
    if let Some(object) = new.object {
        command.handle(DEST_DEVX, object);
    }
    if new.flags != 0 {
        command.flags(FLAGS, new.flags);
    }
    context.invoke(&mut command)?;
    Ok(Object::new(context, Kind::Flow, command.new_handle_of(HANDLE)?))
}

pub(super) fn create_matcher(
    context: &Context,
    op: &'static str,
    matching: &RawMatching<'_>,
) -> Result<Object> {
    use flow_matcher::create::{FLOW_FLAGS, FLOW_TYPE, FT_TYPE, HANDLE, IB_PORT, MATCH_CRITERIA, MATCH_MASK};
    let mut command = Command::new(op, flow_matcher::OBJECT, flow_matcher::method::CREATE);
    command
        .new_handle(HANDLE)
        .input(MATCH_MASK, matching.mask)
        // The attribute's element number, zero here, means a normal flow with this priority.
        .input(FLOW_TYPE, &matching.priority)
        .input(MATCH_CRITERIA, &matching.criteria);
    if let Some(table) = matching.table {
        command.value(FT_TYPE, table);
    }
    if let Some(flags) = matching.flags {
        command.flags(FLOW_FLAGS, flags);
    }
    if let Some(port) = &matching.port {
        command.input(IB_PORT, port);
    }
    context.invoke(&mut command)?;
    Ok(Object::new(context, MATCHER, command.new_handle_of(HANDLE)?))
}
