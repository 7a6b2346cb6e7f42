//! The parser and the checksums, with packets in hexadecimal.

use super::*;
use crate::bits::{Bits, Field};
use crate::ifc::steering::{
    fte_match_param as param, fte_match_set_lyr_2_4 as lyr, fte_match_set_misc as misc,
    fte_match_set_misc2 as misc2,
};

/// The bytes of a packet, written in hexadecimal with spaces anywhere.
pub(crate) fn packet(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

pub(crate) const MACS: &str = "020000000001 020000000002 ";
pub(crate) const UDP4: &str =
    "0800 45b80020 00000000 40110000 0a000001 0a000002 1388 1389 000c 0000 01020304";
const TCP6: &str = "86dd 6ab12345 00140640 20010db8000000000000000000000001 20010db8000000000000000000000002 \
                    0050 1f90 00000001 00000002 5112 ffff 0000 0000";

fn value(hex: &str) -> [u8; MATCH_SIZE] {
    match_value(&Headers::parse(&packet(hex), &[VXLAN_PORT]), 0)
}

fn outer(value: &[u8], field: Field) -> u64 {
    value.wide(field.within(param::outer_headers))
}

fn inner(value: &[u8], field: Field) -> u64 {
    value.wide(field.within(param::inner_headers))
}

fn tunnel(value: &[u8], field: Field) -> u64 {
    value.wide(field.within(param::misc_parameters))
}

#[test]
fn ethernet_ipv4_and_udp() {
    let value = value(&(MACS.to_owned() + UDP4));
    assert_eq!(outer(&value, lyr::dmac_47_16) << 16 | outer(&value, lyr::dmac_15_0), 0x0200_0000_0001);
    assert_eq!(outer(&value, lyr::smac_47_16) << 16 | outer(&value, lyr::smac_15_0), 0x0200_0000_0002);
    assert_eq!((outer(&value, lyr::ethertype), outer(&value, lyr::ip_version)), (0x0800, 4));
    assert_eq!((outer(&value, lyr::ip_dscp), outer(&value, lyr::ip_ecn)), (0x2e, 0));
    assert_eq!((outer(&value, lyr::ip_protocol), outer(&value, lyr::ttl_hoplimit)), (17, 64));
    assert_eq!((outer(&value, lyr::udp_sport), outer(&value, lyr::udp_dport)), (5000, 5001));
    assert_eq!((outer(&value, lyr::tcp_dport), outer(&value, lyr::frag)), (0, 0));
    let address = value.part(lyr::dst_ipv4_dst_ipv6.within(param::outer_headers));
    assert_eq!(address, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    assert!(value.part(param::inner_headers).iter().all(|byte| *byte == 0));
}

#[test]
fn ipv6_and_tcp() {
    let value = value(&(MACS.to_owned() + TCP6));
    assert_eq!((outer(&value, lyr::ip_version), outer(&value, lyr::ip_protocol)), (6, 6));
    assert_eq!((outer(&value, lyr::ip_dscp), outer(&value, lyr::ip_ecn)), (0xab >> 2, 3));
    assert_eq!((outer(&value, lyr::tcp_sport), outer(&value, lyr::tcp_dport)), (80, 8080));
    assert_eq!((outer(&value, lyr::tcp_flags), outer(&value, lyr::udp_dport)), (0x112, 0));
    assert_eq!(tunnel(&value, misc::outer_ipv6_flow_label), 0x12345);
}

#[test]
fn headers_of_ipv6_before_the_transport() {
    let options = "86dd 60000000 00180040 00000000000000000000000000000001 00000000000000000000000000000002 \
                   2c00 0104 00000000 1100 0000 00000001 1388 1389 0008 0000";
    let value = value(&(MACS.to_owned() + options));
    assert_eq!((outer(&value, lyr::ip_protocol), outer(&value, lyr::udp_dport)), (17, 5001));
    assert_eq!(outer(&value, lyr::frag), 0, "an atomic fragment is none");
}

#[test]
fn a_later_fragment_has_no_ports() {
    let later = UDP4.replacen("00000000 4011", "00002001 4011", 1);
    let value = value(&(MACS.to_owned() + &later));
    assert_eq!((outer(&value, lyr::frag), outer(&value, lyr::udp_dport)), (1, 0));
    assert_eq!(outer(&value, lyr::ip_protocol), 17);
}

#[test]
fn one_and_two_vlans() {
    let value = value(&format!("{MACS} 88a8 a064 8100 7065 {UDP4}"));
    assert_eq!((outer(&value, lyr::svlan_tag), outer(&value, lyr::cvlan_tag)), (1, 0));
    assert_eq!((outer(&value, lyr::first_prio), outer(&value, lyr::first_vid)), (5, 100));
    assert_eq!(
        (tunnel(&value, misc::outer_second_cvlan_tag), tunnel(&value, misc::outer_second_vid)),
        (1, 101)
    );
    assert_eq!((tunnel(&value, misc::outer_second_prio), tunnel(&value, misc::outer_second_cfi)), (3, 1));
    assert_eq!(outer(&value, lyr::udp_dport), 5001);
}

#[test]
fn vxlan_with_a_packet_inside() {
    let head = "0800 45000000 00000000 40110000 0a000001 0a000002 1388 12b5 0000 0000 08000000 00012300";
    let packet = value(&format!("{MACS} {head} 020000000003 020000000004 8100 0005 {UDP4}"));
    assert_eq!((outer(&packet, lyr::udp_dport), tunnel(&packet, misc::vxlan_vni)), (4789, 0x123));
    assert_eq!((inner(&packet, lyr::dmac_15_0), inner(&packet, lyr::first_vid)), (3, 5));
    assert_eq!(inner(&packet, lyr::udp_dport), 5001);
}

#[test]
fn gre_with_each_of_its_options() {
    let head = "0800 45000000 00000000 402f0000 0a000001 0a000002 b000 0800 0000 0000 00000007 00000001";
    let packet = value(&format!("{MACS} {head} {}", UDP4.trim_start_matches("0800")));
    assert_eq!(tunnel(&packet, misc::gre_protocol), 0x0800);
    let present = [misc::gre_c_present, misc::gre_k_present, misc::gre_s_present];
    assert_eq!(present.map(|field| tunnel(&packet, field)), [1, 1, 1]);
    assert_eq!((tunnel(&packet, misc::gre_key), inner(&packet, lyr::udp_dport)), (7, 5001));
    assert_eq!((inner(&packet, lyr::dmac_47_16), inner(&packet, lyr::ip_version)), (0, 4));
}

#[test]
fn labels_of_mpls_behind_ethernet_udp_and_gre() {
    let label = |value: &[u8], field: Field| value.wide(field.within(param::misc_parameters_2));
    let direct = value(&format!("{MACS} 8847 12345140"));
    assert_eq!(label(&direct, misc2::outer_first_mpls), 0x1234_5140);
    let udp = "0800 45000000 00000000 40110000 0a000001 0a000002 1388 19eb 0000 0000 00001040 00002140";
    let udp = value(&format!("{MACS} {udp} {}", UDP4.trim_start_matches("0800")));
    assert_eq!((label(&udp, misc2::outer_first_mpls_over_udp), inner(&udp, lyr::udp_dport)), (0x1040, 5001));
    let gre = value(&format!("{MACS} 0800 45000000 00000000 402f0000 0a000001 0a000002 0000 8847 00003140"));
    assert_eq!(label(&gre, misc2::outer_first_mpls_over_gre), 0x3140);
}

#[test]
fn every_packet_cut_anywhere_is_parsed() {
    let vxlan = "0800 45000000 00000000 40110000 0a000001 0a000002 1388 12b5 0000 0000 08000000 00012300";
    let gre =
        "0800 45000000 00000000 402f0000 0a000001 0a000002 b000 8847 0000 0000 00000007 00000001 00003040";
    for hex in [UDP4, TCP6, vxlan, gre] {
        let whole = packet(&format!("{MACS} {hex} {MACS} {TCP6}"));
        for len in 0..whole.len() {
            let headers = Headers::parse(&whole[..len], &[VXLAN_PORT]);
            let value = match_value(&headers, 1);
            assert!(value.iter().zip(supported()).all(|(value, can)| value & !can == 0));
            header_flags(&whole[..len], &headers);
            complete(&mut whole[..len].to_vec(), &headers, true, true);
        }
    }
}

#[test]
fn checksums_are_filled_in_and_then_right() {
    for (hex, flags) in [(UDP4, [0x07, 2 << 4 | 2 << 2]), (TCP6, [0x07, 1 << 4 | 1 << 2])] {
        let mut bytes = packet(&format!("{MACS} {hex}"));
        let headers = Headers::parse(&bytes, &[]);
        complete(&mut bytes, &headers, true, true);
        bytes.extend([0xee; 6]); // padding is no part of the sum
        assert_eq!(header_flags(&bytes, &headers), flags);
        bytes[40] ^= 1;
        assert_ne!(header_flags(&bytes, &Headers::parse(&bytes, &[])), flags);
    }
    assert_eq!(header_flags(&packet("ffffffffffff 020000000001 0806"), &Headers::default()), [1, 0]);
}

#[test]
fn the_sum_over_a_packet_leaves_out_ethernet_and_the_pseudo_header() {
    // A packet that a kernel has sent: together with the pseudo header the sum is all ones.
    let mut bytes = packet(
        "525400cafe01 525400123456 0800 4500003c 00004000 400626ba 0a000002 0a000001 \
         4853a6da 9f7e26e3 28c7a1b6 a012fe88 16100000 020405b4 0402080a 16750d5f 7769040a 01030307",
    );
    bytes.extend([0xee; 3]);
    let pseudo = 0x0a00 + 2 + 0x0a00 + 1 + 6 + 40;
    let headers = Headers::parse(&bytes, &[]);
    assert_eq!(u16::from_be_bytes(received_sum(&bytes, &headers)), 0xffff - pseudo);
    assert_eq!(received_sum(&packet("ffffffffffff 020000000001 0806"), &Headers::default()), [0; 2]);
}

#[test]
fn the_frame_check_sequence_is_that_of_ethernet() {
    assert_eq!(fcs(b"123456789"), 0xcbf4_3926_u32.to_le_bytes());
}
