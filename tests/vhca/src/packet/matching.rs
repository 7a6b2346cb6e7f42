//! The fields that flows can match in a packet, in the layout of match values.

use super::headers::{Address, Headers, Layer, Transport};
use crate::bits::{BitsMut, Field};
use crate::ifc::steering::{
    fte_match_param as param, fte_match_set_lyr_2_4 as lyr, fte_match_set_misc as misc,
    fte_match_set_misc2 as misc2,
};

/// Size of a match value in bytes.
pub(crate) const MATCH_SIZE: usize = 512;

/// A packet's values of all fields. `sqn` is the queue that sent it; 0 if it arrived from the wire.
pub(crate) fn match_value(headers: &Headers, sqn: u32) -> [u8; MATCH_SIZE] {
    let mut value = [0; MATCH_SIZE];
    fill_layer(&mut value, param::outer_headers, &headers.outer);
    fill_misc(&mut value, headers, sqn);
    if let Some(inner) = &headers.inner {
        fill_layer(&mut value, param::inner_headers, inner);
    }
    let labels = [
        (misc2::outer_first_mpls, headers.outer.mpls),
        (misc2::inner_first_mpls, headers.inner.as_ref().and_then(|inner| inner.mpls)),
        (misc2::outer_first_mpls_over_gre, headers.mpls_over_gre),
        (misc2::outer_first_mpls_over_udp, headers.mpls_over_udp),
    ];
    for (field, label) in labels {
        value.set(field.within(param::misc_parameters_2), u32::from_be_bytes(label.unwrap_or_default()));
    }
    value
}

/// The bits that can be matched: those that [`match_value`] may set.
pub(crate) fn supported() -> [u8; MATCH_SIZE] {
    #[rustfmt::skip]
    const LAYER: &[Field] = &[
        lyr::smac_47_16, lyr::smac_15_0, lyr::ethertype, lyr::dmac_47_16, lyr::dmac_15_0, lyr::first_prio, lyr::first_cfi,
        lyr::first_vid, lyr::ip_protocol, lyr::ip_dscp, lyr::ip_ecn, lyr::cvlan_tag, lyr::svlan_tag, lyr::frag, lyr::ip_version,
        lyr::tcp_flags, lyr::tcp_sport, lyr::tcp_dport, lyr::ipv4_ihl, lyr::ttl_hoplimit, lyr::udp_sport, lyr::udp_dport,
    ];
    #[rustfmt::skip]
    const MISC: &[Field] = &[
        misc::gre_c_present, misc::gre_k_present, misc::gre_s_present, misc::source_sqn, misc::outer_second_prio,
        misc::outer_second_cfi, misc::outer_second_vid, misc::inner_second_prio, misc::inner_second_cfi, misc::inner_second_vid,
        misc::outer_second_cvlan_tag, misc::inner_second_cvlan_tag, misc::outer_second_svlan_tag, misc::inner_second_svlan_tag,
        misc::gre_protocol, misc::gre_key, misc::vxlan_vni, misc::outer_ipv6_flow_label, misc::inner_ipv6_flow_label,
    ];
    #[rustfmt::skip]
    const MISC2: &[Field] = &[
        misc2::outer_first_mpls, misc2::inner_first_mpls, misc2::outer_first_mpls_over_gre, misc2::outer_first_mpls_over_udp,
    ];
    let mut bits = [0; MATCH_SIZE];
    for layer in [param::outer_headers, param::inner_headers] {
        LAYER.iter().for_each(|field| bits.set(field.within(layer), u64::MAX));
        for field in [lyr::src_ipv4_src_ipv6, lyr::dst_ipv4_dst_ipv6] {
            bits.part_mut(field.within(layer)).fill(0xff);
        }
    }
    MISC.iter().for_each(|field| bits.set(field.within(param::misc_parameters), u64::MAX));
    MISC2.iter().for_each(|field| bits.set(field.within(param::misc_parameters_2), u64::MAX));
    bits
}

fn fill_layer(value: &mut [u8], base: Field, layer: &Layer) {
    let mut set = |field: Field, number: u32| value.set(field.within(base), number);
    if let Some([destination, source]) = layer.addresses {
        let high = |mac: [u8; 6]| u32::from_be_bytes([mac[0], mac[1], mac[2], mac[3]]);
        let low = |mac: [u8; 6]| u32::from(u16::from_be_bytes([mac[4], mac[5]]));
        set(lyr::dmac_47_16, high(destination));
        set(lyr::dmac_15_0, low(destination));
        set(lyr::smac_47_16, high(source));
        set(lyr::smac_15_0, low(source));
    }
    set(lyr::ethertype, layer.ethertype.into());
    if let Some(vlan) = layer.vlans.first() {
        set(if vlan.service { lyr::svlan_tag } else { lyr::cvlan_tag }, 1);
        set(lyr::first_prio, u32::from(vlan.tci >> 13));
        set(lyr::first_cfi, u32::from(vlan.tci >> 12 & 1));
        set(lyr::first_vid, u32::from(vlan.tci & 0xfff));
    }
    if let Some(Transport { is_tcp, source, destination, tcp_flags }) = layer.transport {
        let (from, to) =
            if is_tcp { (lyr::tcp_sport, lyr::tcp_dport) } else { (lyr::udp_sport, lyr::udp_dport) };
        set(from, source.into());
        set(to, destination.into());
        set(lyr::tcp_flags, tcp_flags.into());
    }
    let Some(network) = layer.network else { return };
    set(lyr::ip_version, if matches!(network.source, Address::V4(_)) { 4 } else { 6 });
    set(lyr::ip_protocol, network.protocol.into());
    set(lyr::ip_dscp, u32::from(network.class >> 2));
    set(lyr::ip_ecn, u32::from(network.class & 3));
    set(lyr::frag, network.is_fragment.into());
    set(lyr::ipv4_ihl, network.ihl.into());
    set(lyr::ttl_hoplimit, network.ttl.into());
    for (field, address) in
        [(lyr::src_ipv4_src_ipv6, network.source), (lyr::dst_ipv4_dst_ipv6, network.destination)]
    {
        // The four bytes of version 4 are the last of the sixteen.
        let room = value.part_mut(field.within(base));
        let from = room.len() - address.bytes().len();
        room[from..].copy_from_slice(address.bytes());
    }
}

fn fill_misc(value: &mut [u8], headers: &Headers, sqn: u32) {
    let mut set = |field: Field, number: u32| value.set(field.within(param::misc_parameters), number);
    set(misc::source_sqn, sqn);
    let second = |layer: &Layer| layer.vlans.get(1).copied();
    if let Some(vlan) = second(&headers.outer) {
        set(if vlan.service { misc::outer_second_svlan_tag } else { misc::outer_second_cvlan_tag }, 1);
        set(misc::outer_second_prio, u32::from(vlan.tci >> 13));
        set(misc::outer_second_cfi, u32::from(vlan.tci >> 12 & 1));
        set(misc::outer_second_vid, u32::from(vlan.tci & 0xfff));
    }
    if let Some(vlan) = headers.inner.as_ref().and_then(second) {
        set(if vlan.service { misc::inner_second_svlan_tag } else { misc::inner_second_cvlan_tag }, 1);
        set(misc::inner_second_prio, u32::from(vlan.tci >> 13));
        set(misc::inner_second_cfi, u32::from(vlan.tci >> 12 & 1));
        set(misc::inner_second_vid, u32::from(vlan.tci & 0xfff));
    }
    if let Some(gre) = headers.gre {
        set(misc::gre_c_present, u32::from(gre.flags >> 15 & 1));
        set(misc::gre_k_present, u32::from(gre.flags >> 13 & 1));
        set(misc::gre_s_present, u32::from(gre.flags >> 12 & 1));
        set(misc::gre_protocol, gre.protocol.into());
        set(misc::gre_key, gre.key);
    }
    set(misc::vxlan_vni, headers.vxlan.unwrap_or(0));
    let label = |layer: &Layer| layer.network.map_or(0, |network| network.flow_label);
    set(misc::outer_ipv6_flow_label, label(&headers.outer));
    set(misc::inner_ipv6_flow_label, headers.inner.as_ref().map_or(0, label));
}
