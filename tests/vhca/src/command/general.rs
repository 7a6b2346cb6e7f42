//! Objects whose kind the command contains: numbers that no queue pair gets, and no others.

use super::Status;
use crate::bits::{Bits, BitsMut};
use crate::device::Device;
use crate::ifc::command::{general_obj_create_param, general_obj_in_cmd_hdr, general_obj_out_cmd_hdr};
use crate::object::{Handle, Kind};

/// `MLX5_OBJ_TYPE_RESERVED_QPN` (mlx5_ifc.h, rdma-core 65), which is also its bit among the capabilities.
const RESERVED_QPN: u32 = 0x2c;

/// Refused if the capabilities say that there are no such objects.
fn kind(device: &Device, input: &[u8]) -> Result<Kind, Status> {
    let wanted = input.num(general_obj_in_cmd_hdr::obj_type);
    let is_there = wanted == RESERVED_QPN && device.capabilities.general_objects() >> wanted & 1 != 0;
    if is_there { Ok(Kind::ReservedQpn) } else { Err(Status::BadParameter) }
}

/// Reserves consecutive numbers.
pub(super) fn create(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let kind = kind(device, input)?;
    let range = general_obj_create_param::log_obj_range.within(general_obj_in_cmd_hdr::op_param);
    let log = input.num(range);
    if log > device.capabilities.log_reserved_qpns() {
        return Err(Status::BadParameter);
    }
    let first = device.objects.create_range(kind, 1 << log, Vec::new())?;
    output.set(general_obj_out_cmd_hdr::obj_id, first);
    Ok(())
}

/// Frees a number with all that were reserved with it.
pub(super) fn destroy(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let kind = kind(device, input)?;
    let first = input.wide(general_obj_in_cmd_hdr::obj_id);
    device.objects.destroy_range(Handle(kind, first)).map(drop)
}
