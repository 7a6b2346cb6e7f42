//! The counters of the port: by commands, and by the register PPCNT.

use super::Status;
use crate::bits::{Bits, BitsMut, Field};
use crate::counter::Counter;
use crate::device::Device;
use crate::ifc::command::traffic_counter;
use crate::ifc::counter::{
    eth_802_3_cntrs_grp_data_layout as ieee_802_3, eth_2819_cntrs_grp_data_layout as rfc_2819,
    eth_2863_cntrs_grp_data_layout as rfc_2863, eth_extended_cntrs_grp_data_layout as extended,
    ib_port_cntrs_grp_data_layout as infiniband, phys_layer_cntrs, ppcnt_reg, query_cong_statistics_in,
    query_cong_statistics_out, query_vport_counter_in, query_vport_counter_out,
};
use crate::port_counter::{FunctionCounts, LinkCounts};

/// The only port, by the driver's number.
const PORT: u32 = 1;

/// Packets that arrived at this function and left it. There are no other functions, and one port.
pub(super) fn query_function(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    use query_vport_counter_out::*;
    if input.is(query_vport_counter_in::other_vport) || input.num(query_vport_counter_in::port_num) > PORT {
        return Err(Status::BadParameter);
    }
    let function = &mut device.port_counts.function;
    let FunctionCounts { rdma, ethernet } = *function;
    if input.is(query_vport_counter_in::clear) {
        *function = FunctionCounts::default();
    }
    for (field, Counter { packets, octets }) in [
        (received_ib_unicast, rdma.received.unicast),
        (transmitted_ib_unicast, rdma.sent.unicast),
        (received_ib_multicast, rdma.received.multicast),
        (transmitted_ib_multicast, rdma.sent.multicast),
        (received_eth_unicast, ethernet.received.unicast),
        (transmitted_eth_unicast, ethernet.sent.unicast),
        (received_eth_multicast, ethernet.received.multicast),
        (transmitted_eth_multicast, ethernet.sent.multicast),
        (received_eth_broadcast, ethernet.received.broadcast),
        (transmitted_eth_broadcast, ethernet.sent.broadcast),
    ] {
        output.set(traffic_counter::packets.within(field), packets);
        output.set(traffic_counter::octets.within(field), octets);
    }
    Ok(())
}

/// There is no congestion control: of the requested counters, only received marks are counted.
pub(super) fn query_congestion(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    output.set(wide(query_cong_statistics_out::np_ecn_marked_roce_packets_high), device.port_counts.marked);
    if input.is(query_cong_statistics_in::clear) {
        device.port_counts.marked = 0;
    }
    Ok(())
}

/// Groups of the register, by `MLX5_*_COUNTERS_GROUP` in the kernel's `include/linux/mlx5/device.h`.
mod group {
    pub(super) const IEEE_802_3: u32 = 0x0;
    pub(super) const RFC_2863: u32 = 0x1;
    pub(super) const RFC_2819: u32 = 0x2;
    pub(super) const RFC_3635: u32 = 0x3;
    pub(super) const EXTENDED: u32 = 0x5;
    pub(super) const PER_PRIORITY: u32 = 0x10;
    pub(super) const PER_CLASS: u32 = 0x11;
    pub(super) const PHYSICAL: u32 = 0x12;
    pub(super) const PER_CLASS_CONGESTION: u32 = 0x13;
    pub(super) const PHYSICAL_STATISTICAL: u32 = 0x16;
    pub(super) const INFINIBAND: u32 = 0x20;
}

/// A number of 64 bits whose upper half is this field.
const fn wide(high: Field) -> Field {
    Field::new(high.offset, 64)
}

/// A number of the width of its field, which saturates.
fn saturate(output: &mut [u8], field: Field, value: u64) {
    output.set(field, value.min((1 << field.width) - 1));
}

/// Reads a group of the register, whose bytes were copied from the request. For every group, the request to clear resets the counters of
/// the wire.
pub(super) fn read_register(counts: &mut LinkCounts, register: &mut [u8]) -> Result<(), Status> {
    let clear = register.is(ppcnt_reg::clr);
    let group = register.num(ppcnt_reg::grp);
    if register.num(ppcnt_reg::local_port) != PORT {
        return Err(Status::BadParameter);
    }
    let LinkCounts { frames, refused, wrong_sums, downed } = *counts;
    let (received, sent) = (frames.received, frames.sent);
    let set = register.part_mut(ppcnt_reg::counter_set);
    set.fill(0);
    let rows: &[(Field, u64)] = match group {
        group::IEEE_802_3 => &[
            (ieee_802_3::a_frames_transmitted_ok_high, sent.sum().packets),
            (ieee_802_3::a_frames_received_ok_high, received.sum().packets),
            (ieee_802_3::a_octets_transmitted_ok_high, sent.sum().octets),
            (ieee_802_3::a_octets_received_ok_high, received.sum().octets),
            (ieee_802_3::a_multicast_frames_xmitted_ok_high, sent.multicast.packets),
            (ieee_802_3::a_broadcast_frames_xmitted_ok_high, sent.broadcast.packets),
            (ieee_802_3::a_multicast_frames_received_ok_high, received.multicast.packets),
            (ieee_802_3::a_broadcast_frames_received_ok_high, received.broadcast.packets),
        ],
        group::RFC_2863 => &[
            (rfc_2863::if_in_octets_high, received.sum().octets),
            (rfc_2863::if_in_ucast_pkts_high, received.unicast.packets),
            (rfc_2863::if_in_multicast_pkts_high, received.multicast.packets),
            (rfc_2863::if_in_broadcast_pkts_high, received.broadcast.packets),
            (rfc_2863::if_in_errors_high, refused),
            (rfc_2863::if_out_octets_high, sent.sum().octets),
            (rfc_2863::if_out_ucast_pkts_high, sent.unicast.packets),
            (rfc_2863::if_out_multicast_pkts_high, sent.multicast.packets),
            (rfc_2863::if_out_broadcast_pkts_high, sent.broadcast.packets),
        ],
        group::RFC_2819 => &[
            (rfc_2819::ether_stats_octets_high, received.sum().octets),
            (rfc_2819::ether_stats_pkts_high, received.sum().packets),
            (rfc_2819::ether_stats_broadcast_pkts_high, received.broadcast.packets),
            (rfc_2819::ether_stats_multicast_pkts_high, received.multicast.packets),
        ],
        group::EXTENDED => &[(extended::rx_icrc_encapsulated_high, wrong_sums)],
        group::PHYSICAL => {
            saturate(set, phys_layer_cntrs::link_down_events, downed);
            &[]
        }
        group::INFINIBAND => {
            saturate(set, infiniband::link_downed_counter, downed);
            saturate(set, infiniband::port_rcv_errors, refused);
            &[]
        }
        // The counters of these groups are zero.
        group::RFC_3635
        | group::PER_PRIORITY
        | group::PER_CLASS
        | group::PER_CLASS_CONGESTION
        | group::PHYSICAL_STATISTICAL => &[],
        _ => return Err(Status::BadParameter),
    };
    rows.iter().for_each(|(high, value)| set.set(wide(*high), *value));
    if clear {
        *counts = LinkCounts::default();
    }
    Ok(())
}
