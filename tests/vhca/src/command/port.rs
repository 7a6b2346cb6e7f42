//! Commands for the port: its state and its addresses, and on InfiniBand its partitions.

use super::Status;
use crate::bits::{Bits, BitsMut};
use crate::device::Device;
use crate::ifc::command::{
    hca_vport_context, modify_nic_vport_context_in, modify_nic_vport_field_select, nic_vport_context,
    query_hca_vport_context_out, query_hca_vport_gid_in, query_hca_vport_gid_out, query_hca_vport_pkey_in,
    query_hca_vport_pkey_out, query_nic_vport_context_out, roce_addr_layout, set_roce_address_in,
};
use crate::port::{Gid, LinkLayer};

/// Number of entries of the tables, which the driver derives from sizes of zero.
const ADDRESSES: u32 = 8;
const PARTITIONS: u32 = 128;

/// The index that means the whole table.
const ALL: u32 = 0xffff;

const ACTIVE: u32 = 4;
const DOWN: u32 = 1;
const LINK_UP: u32 = 5;
const POLLING: u32 = 2;

/// The capabilities of a ConnectX port, by the bits of PortInfo.
const PORT_CAPABILITIES: u32 = 0x2259_e848;

/// Number of entries of the table of RoCE addresses.
pub(super) const ROCE_ADDRESSES: u32 = 128;

/// The versions of RoCE: over Ethernet, and over UDP.
const ROCE_V1: u32 = 0;
const ROCE_V2: u32 = 2;

pub(super) fn query_nic_context(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let context = output.part_mut(query_nic_vport_context_out::nic_vport_context);
    // Senders need not put headers into the work request.
    context.set(nic_vport_context::min_wqe_inline_mode, 0_u32);
    context.set(nic_vport_context::roce_en, device.port.roce_enabled);
    // With the Ethernet header, a VLAN tag and the frame check sequence.
    context.set(nic_vport_context::mtu, 1500_u32 + 22);
    let [a, b, c, d, e, f] = device.mac;
    let guid = device.guid();
    context.set(nic_vport_context::node_guid, guid);
    context.set(nic_vport_context::port_guid, guid);
    context.set(nic_vport_context::system_image_guid, guid);
    context.set(nic_vport_context::permanent_address, u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
    Ok(())
}

/// RoCE can be enabled; other changes have no effect.
pub(super) fn modify_nic_context(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let selected = input.part(modify_nic_vport_context_in::field_select);
    if selected.is(modify_nic_vport_field_select::roce_en) {
        let wanted =
            input.part(modify_nic_vport_context_in::nic_vport_context).is(nic_vport_context::roce_en);
        if wanted && device.port.link != LinkLayer::Roce {
            return Err(Status::BadParameter);
        }
        device.port.roce_enabled = wanted;
    }
    Ok(())
}

/// An address of zeros removes an entry.
pub(super) fn set_roce_address(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    use roce_addr_layout::*;
    let index = input.num(set_roce_address_in::roce_address_index);
    if device.port.link != LinkLayer::Roce {
        return Err(Status::BadOpcode);
    }
    if index >= ROCE_ADDRESSES {
        return Err(Status::BadIndex);
    }
    let wanted = input.part(set_roce_address_in::roce_address);
    let mac = wanted.wide(source_mac_47_32) << 32 | wanted.wide(source_mac_31_0);
    let [_, _, mac @ ..] = mac.to_be_bytes();
    let gid = wanted.part(source_l3_address).first_chunk().copied().ok_or(Status::BadInputLength)?;
    let entry = Gid { gid, mac };
    if entry == Gid::default() {
        device.port.gids.remove(&(index as u16));
        return Ok(());
    }
    // There are no tags on the wire, and no frames of the first version: its addresses are taken by a card that claims to have it, but
    // nothing can be sent from them.
    match wanted.num(roce_version) {
        _ if wanted.is(vlan_valid) => Err(Status::BadParameter),
        ROCE_V2 => {
            device.port.gids.insert(index as u16, entry);
            Ok(())
        }
        ROCE_V1 if device.capabilities.has_roce_v1() => {
            device.port.gids.remove(&(index as u16));
            Ok(())
        }
        _ => Err(Status::BadParameter),
    }
}

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

/// There is one partition, the default one.
pub(super) fn query_pkey(_: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let asked = asked(input.num(query_hca_vport_pkey_in::pkey_index), PARTITIONS)?;
    let keys: Vec<_> = asked.flat_map(|index| if index == 0 { [0, 0, 0xff, 0xff] } else { [0; 4] }).collect();
    output.put(query_hca_vport_pkey_out::pkey, &keys);
    Ok(())
}
