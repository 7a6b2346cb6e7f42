//! Commands about a port of InfiniBand: its state, its addresses, its partitions.

use super::Status;
use crate::bits::{Bits, BitsMut};
use crate::device::Device;
use crate::ifc::command::{
    hca_vport_context, query_hca_vport_context_out, query_hca_vport_gid_in, query_hca_vport_gid_out,
    query_hca_vport_pkey_in, query_hca_vport_pkey_out,
};

/// Entries of the tables: what the driver takes from sizes that say zero.
const ADDRESSES: u32 = 8;
const PARTITIONS: u32 = 128;

/// The index that stands for the whole table.
const ALL: u32 = 0xffff;

const ACTIVE: u32 = 4;
const DOWN: u32 = 1;
const LINK_UP: u32 = 5;
const POLLING: u32 = 2;

/// What a ConnectX says it can do at its port, by the bits of PortInfo.
const PORT_CAPABILITIES: u32 = 0x2259_e848;

pub(super) fn query_context(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    use hca_vport_context::*;
    let (state, physical) = if device.port_is_up { (ACTIVE, LINK_UP) } else { (DOWN, POLLING) };
    let guid = device.guid();
    let context = output.part_mut(query_hca_vport_context_out::hca_vport_context);
    for field in [system_image_guid, port_guid, node_guid] {
        context.set(field, guid);
    }
    for (field, value) in [
        (has_smi, 1),
        (port_physical_state, physical),
        (port_state, state),
        (vport_state, state),
        (cap_mask1, PORT_CAPABILITIES),
        (lid, device.port.lid.into()),
        (subnet_timeout, 18),
        (sm_lid, device.port.lid.into()),
    ] {
        context.set(field, value);
    }
    Ok(())
}

/// The entries that an index names.
fn asked(index: u32, entries: u32) -> Result<std::ops::Range<u32>, Status> {
    match index {
        ALL => Ok(0..entries),
        index if index < entries => Ok(index..index + 1),
        _ => Err(Status::BadIndex),
    }
}

pub(super) fn query_gid(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let asked = asked(input.num(query_hca_vport_gid_in::gid_index), ADDRESSES)?;
    output.set(query_hca_vport_gid_out::gids_num, asked.len() as u32);
    let gids: Vec<_> = asked
        .flat_map(|index| device.port.gids.get(&(index as u16)).copied().unwrap_or_default().gid)
        .collect();
    output.put(query_hca_vport_gid_out::gid, &gids);
    Ok(())
}

/// There is one partition, that of everybody.
pub(super) fn query_pkey(_: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let asked = asked(input.num(query_hca_vport_pkey_in::pkey_index), PARTITIONS)?;
    let keys: Vec<_> = asked.flat_map(|index| if index == 0 { [0, 0, 0xff, 0xff] } else { [0; 4] }).collect();
    output.put(query_hca_vport_pkey_out::pkey, &keys);
    Ok(())
}
