//! Commands for the function as a whole: initialisation, its ports and registers.

use super::{Status, port_counter};
use crate::bits::{Bits, BitsMut, Field};
use crate::device::Device;
use crate::ifc::command::{
    access_register_in, access_register_out, alloc_pd_in, paos_reg, pmtu_reg, ptys_reg, pvlc_reg,
    query_adapter_out, query_adapter_param_block, query_issi_out, query_special_contexts_out,
    query_vport_state_out, set_issi_in,
};
use crate::port::LinkLayer;

/// Does nothing: the device needs no pages of the host, and ignores the driver's version.
pub(super) fn accept(_: &mut Device, _: &[u8], _: &mut [u8]) -> Result<(), Status> {
    Ok(())
}

pub(super) fn disable(device: &mut Device, _: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.drop_objects();
    Ok(())
}

pub(super) fn query_issi(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    output.set(query_issi_out::current_issi, device.issi);
    output.set(query_issi_out::supported_issi_dw0, 0b11_u32);
    Ok(())
}

pub(super) fn set_issi(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let wanted = input.num(set_issi_in::current_issi);
    if wanted > 1 {
        return Err(Status::BadParameter);
    }
    device.issi = wanted;
    Ok(())
}

pub(super) fn query_adapter(_: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let block = output.part_mut(query_adapter_out::query_adapter_struct);
    block.set(query_adapter_param_block::ieee_vendor_id, 0x2c9_u32);
    block.put(query_adapter_param_block::vsd_contd_psid, b"UVERBS_VHCA\0\0\0\0\0");
    Ok(())
}

pub(super) fn query_vport_state(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    output.set(query_vport_state_out::admin_state, 1_u32);
    output.set(query_vport_state_out::state, device.port_is_up);
    Ok(())
}

pub(super) fn query_special_contexts(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    output.set(query_special_contexts_out::resd_lkey, device.mkeys.reserved());
    output.set(query_special_contexts_out::null_mkey, 0_u32);
    Ok(())
}

const PMTU: u32 = 0x5003;
const PVLC: u32 = 0x500f;
const PTYS: u32 = 0x5004;
const PAOS: u32 = 0x5006;
const PFCC: u32 = 0x5007;
const PPCNT: u32 = 0x5008;
const NODE_DESCRIPTION: u32 = 0x6001;
const HOST_ENDIANNESS: u32 = 0x7004;

/// 25 Gb/s on one lane, by the bits of the register PTYS.
const LINK_25G: u32 = 1 << 27;

/// Four lanes of 25 Gb/s, by other bits of the same.
const LINK_4X: u32 = 1 << 2;
const LINK_EDR: u32 = 1 << 5;

/// Registers can be read; writes are accepted and have no effect.
pub(super) fn access_register(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let id = input.num(access_register_in::register_id);
    let wanted = input.part(access_register_in::register_data);
    let is_read = input.num(alloc_pd_in::op_mod) == 1;
    let is_infiniband = device.port.link == LinkLayer::InfiniBand;
    output.put(access_register_out::register_data, wanted);
    let register = output.part_mut(access_register_out::register_data);
    match id {
        PMTU => {
            let mtu = if is_infiniband { 4096_u32 } else { 9978 };
            for field in [pmtu_reg::max_mtu, pmtu_reg::admin_mtu, pmtu_reg::oper_mtu] {
                register.set(field, mtu);
            }
        }
        PTYS if is_read && is_infiniband => {
            use ptys_reg::*;
            for (field, value) in [
                (proto_mask, 1),
                (ib_link_width_capability, LINK_4X),
                (ib_link_width_admin, LINK_4X),
                (ib_link_width_oper, LINK_4X),
                (ib_proto_capability, LINK_EDR),
                (ib_proto_admin, LINK_EDR),
                (ib_proto_oper, LINK_EDR),
            ] {
                register.set(field, value);
            }
        }
        // Virtual lanes 0 to 3, by their code.
        PVLC => {
            for field in [pvlc_reg::vl_hw_cap, pvlc_reg::vl_admin, pvlc_reg::vl_operational] {
                register.set(field, 4_u32);
            }
        }
        PTYS if is_read => {
            for field in [ptys_reg::eth_proto_capability, ptys_reg::eth_proto_admin, ptys_reg::eth_proto_oper]
            {
                register.set(field, LINK_25G);
            }
        }
        PAOS => {
            register.set(paos_reg::admin_status, 1_u32);
            register.set(paos_reg::oper_status, if device.port_is_up { 1_u32 } else { 2 });
        }
        NODE_DESCRIPTION if is_read => {
            let name = b"virtual ConnectX";
            register.put(Field::new(0, 0), name);
        }
        // No flow control.
        PFCC => register.fill(0),
        PPCNT if is_read => port_counter::read_register(&mut device.port_counts.link, register)?,
        PPCNT | PTYS | NODE_DESCRIPTION | HOST_ENDIANNESS => {}
        _ => return Err(Status::BadParameter),
    }
    Ok(())
}
