//! Actions of flows that change the headers of packets.

use std::sync::Arc;

use uverbs_abi::ids::flow_action as core_action;
use uverbs_abi::mlx5::ids::{flow_action, packet_reformat_type};

use super::matcher::FlowTable;
use crate::device::context::Context;
use crate::device::object::{self, Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};

const OBJECT: Kind = Kind::OfDriver("flow_action.destroy", core_action::OBJECT, core_action::method::DESTROY);

/// Bytes of one change of a field.
const CHANGE: usize = 8;

/// Maximum number of changes: the kernel's driver keeps the number in eight bits (mlx5_ib_create_modify_header, fs.c, Linux 6.1).
const MAX_CHANGES: usize = u8::MAX as usize;

/// How a packet is changed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reformat {
    /// Takes off a tunnel that contains Ethernet.
    RemoveL2Tunnel,
    /// Puts the packet into a tunnel for Ethernet.
    AddL2Tunnel,
    /// Takes off a tunnel that contains IP, and puts an Ethernet header before what was in it.
    RemoveL3Tunnel,
    /// Puts the packet, without its Ethernet header, into a tunnel for IP.
    AddL3Tunnel,
}

/// An action that changes headers, for any number of flows.
///
/// Cheap to clone; destroyed when the last clone and the last flow are gone.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_flow_action")]
pub struct HeaderAction(Arc<Object>);

impl HeaderAction {
    /// An action that sets, adds to or copies fields. Each change has eight bytes in the device's layout
    /// (`set_add_copy_action_in_auto`), and there are at most 255.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for no or too many changes;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device without such actions, or more changes than it has for the table; those
    /// of the firmware.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER` (fs.c, Linux 6.1).
    #[doc(alias = "mlx5dv_create_flow_action_modify_header")]
    pub fn modify(context: &Context, changes: &[[u8; CHANGE]], table: FlowTable) -> Result<Self> {
        modify(context, changes.as_flattened(), table.number())
    }

    /// An action that adds or removes headers. `header` is what is added, from the Ethernet header on; empty if nothing is.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for what the device does not have for the table;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a header that is missing; those of the firmware.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT` (fs.c, Linux 6.1).
    #[doc(alias = "mlx5dv_create_flow_action_packet_reformat")]
    pub fn reformat(context: &Context, kind: Reformat, header: &[u8], table: FlowTable) -> Result<Self> {
        let kind = match kind {
            Reformat::RemoveL2Tunnel => packet_reformat_type::L2_TUNNEL_TO_L2,
            Reformat::AddL2Tunnel => packet_reformat_type::L2_TO_L2_TUNNEL,
            Reformat::RemoveL3Tunnel => packet_reformat_type::L3_TUNNEL_TO_L2,
            Reformat::AddL3Tunnel => packet_reformat_type::L2_TO_L3_TUNNEL,
        };
        reformat(context, kind, header, table.number())
    }

    /// [`HeaderAction::modify`] with the kernel's number of a table.
    ///
    /// # Errors
    /// As [`HeaderAction::modify`].
    #[cfg(feature = "raw")]
    pub fn modify_raw(context: &Context, changes: &[u8], table: u64) -> Result<Self> {
        modify(context, changes, table)
    }

    /// [`HeaderAction::reformat`] with the kernel's numbers.
    ///
    /// # Errors
    /// As [`HeaderAction::reformat`].
    #[cfg(feature = "raw")]
    pub fn reformat_raw(context: &Context, kind: u64, header: &[u8], table: u64) -> Result<Self> {
        reformat(context, kind, header, table)
    }

    pub(super) fn handle(&self) -> u32 {
        self.0.id()
    }

    /// The open device to which it belongs.
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    /// Destroys the action and reports any error.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a clone or a flow has it.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_FLOW_ACTION_DESTROY` (uverbs_std_types_flow_action.c, Linux 6.1).
    #[doc(alias = "ibv_destroy_flow_action")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let hint = "a clone, or a flow with the action, still exists";
        let only = Arc::get_mut(&mut self.0).ok_or_else(|| object::shared("flow_action.destroy", hint));
        only.and_then(Object::release).map_err(|error| (self, error))
    }
}

fn modify(context: &Context, changes: &[u8], table: u64) -> Result<HeaderAction> {
    use flow_action::create_modify_header::{ACTIONS_PRM, FT_TYPE, HANDLE};
    let op = "flow_action.modify_header";
    if changes.len() > MAX_CHANGES * CHANGE {
        let allowed = format!("1 to {MAX_CHANGES}");
        return Err(Error::outside(op, "changes of headers", changes.len() / CHANGE, allowed));
    }
    let mut command = Command::new(op, flow_action::OBJECT, flow_action::method::CREATE_MODIFY_HEADER);
    command.new_handle(HANDLE).input(ACTIONS_PRM, changes).value(FT_TYPE, table);
    context.invoke(&mut command)?;
    made(context, &command, HANDLE)
}

fn reformat(context: &Context, kind: u64, header: &[u8], table: u64) -> Result<HeaderAction> {
    use flow_action::create_packet_reformat::{DATA_BUF, FT_TYPE, HANDLE, TYPE};
    let op = "flow_action.reformat";
    let mut command = Command::new(op, flow_action::OBJECT, flow_action::method::CREATE_PACKET_REFORMAT);
    command.new_handle(HANDLE).value(TYPE, kind).value(FT_TYPE, table);
    if !header.is_empty() {
        command.input(DATA_BUF, header);
    }
    context.invoke(&mut command)?;
    made(context, &command, HANDLE)
}

fn made(context: &Context, command: &Command<'_>, handle: u16) -> Result<HeaderAction> {
    Ok(HeaderAction(Arc::new(Object::new(context, OBJECT, command.new_handle_of(handle)?))))
}
