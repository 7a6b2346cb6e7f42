//! Frames and specs for the tests of this folder.

use super::flow_check::{self, Specs};
use nix::errno::Errno;
use uverbs_abi::flow::*;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// A filter spec in the kernel's layout.
pub(super) fn filter<T: IntoBytes + Immutable>(type_: u32, val: T, mask: T) -> Vec<u8> {
    let size = 8 + 2 * size_of::<T>() as u16;
    let head = FlowSpecHdr { type_, size, reserved: 0 };
    [head.as_bytes(), val.as_bytes(), mask.as_bytes()].concat()
}

/// An action with a number: TAG, HANDLE, COUNT.
pub(super) fn with_number(type_: u32, number: u32) -> Vec<u8> {
    let hdr = FlowSpecHdr { type_, size: 16, reserved: 0 };
    FlowSpecActionTag { hdr, tag_id: number, reserved1: 0 }.as_bytes().to_vec()
}

/// The DROP action.
pub(super) fn drop_() -> Vec<u8> {
    FlowSpecHdr { type_: SPEC_ACTION_DROP, size: 8, reserved: 0 }.as_bytes().to_vec()
}

pub(super) fn eth(dst: [u8; 6], mask: [u8; 6]) -> Vec<u8> {
    let side = |dst_mac| FlowEthFilter { dst_mac, ..FlowEthFilter::new_zeroed() };
    filter(SPEC_ETH, side(dst), side(mask))
}

pub(super) fn ether_type(type_: u32, value: u16, mask: u16) -> Vec<u8> {
    let side = |v: u16| FlowEthFilter { ether_type: U16::new(v), ..FlowEthFilter::new_zeroed() };
    filter(type_, side(value), side(mask))
}

pub(super) fn vlan(value: u16, mask: u16) -> Vec<u8> {
    let side = |v: u16| FlowEthFilter { vlan_tag: U16::new(v), ..FlowEthFilter::new_zeroed() };
    filter(SPEC_ETH, side(value), side(mask))
}

pub(super) fn ipv4_dst(type_: u32, dst: u32, mask: u32) -> Vec<u8> {
    let side = |v: u32| FlowIpv4Filter { dst_ip: U32::new(v), ..FlowIpv4Filter::new_zeroed() };
    filter(type_, side(dst), side(mask))
}

pub(super) fn ipv4_proto(value: u8, mask: u8) -> Vec<u8> {
    let side = |proto| FlowIpv4Filter { proto, ..FlowIpv4Filter::new_zeroed() };
    filter(SPEC_IPV4, side(value), side(mask))
}

pub(super) fn ipv6_any() -> Vec<u8> {
    filter(SPEC_IPV6, FlowIpv6Filter::new_zeroed(), FlowIpv6Filter::new_zeroed())
}

pub(super) fn dst_port(type_: u32, port: u16, mask: u16) -> Vec<u8> {
    let side = |v: u16| FlowTcpUdpFilter { dst_port: U16::new(v), src_port: U16::ZERO };
    filter(type_, side(port), side(mask))
}

pub(super) fn word(type_: u32, value: u32, mask: u32) -> Vec<u8> {
    filter(type_, U32::new(value), U32::new(mask))
}

pub(super) fn gre(protocol: u16, key: u32, masks: (u16, u16, u32)) -> Vec<u8> {
    let side = |c_ks: u16, protocol: u16, key: u32| FlowGreFilter {
        c_ks_res0_ver: U16::new(c_ks),
        protocol: U16::new(protocol),
        key: U32::new(key),
    };
    filter(SPEC_GRE, side(0, protocol, key), side(masks.0, masks.1, masks.2))
}

/// A NORMAL rule's header for these specs.
pub(super) fn attr(specs: &[Vec<u8>]) -> FlowAttr {
    FlowAttr {
        size: specs.concat().len() as u16,
        num_of_specs: specs.len() as u8,
        port: 1,
        ..FlowAttr::new_zeroed()
    }
}

/// The specs as the core passes them on; all handles are valid.
pub(super) fn parsed(specs: &[Vec<u8>]) -> Result<Specs, Errno> {
    flow_check::specs(&attr(specs), &specs.concat(), &mut |_, _| Ok(()))
}

pub(super) const UNICAST: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];

/// An Ethernet frame with this payload.
pub(super) fn ethernet(dst: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&dst[..], &[2, 0, 0, 0, 0, 9], &ether_type.to_be_bytes(), payload].concat()
}

/// An IPv4 packet from 10.0.0.9 without options; `fragment` is the word of flags and offset.
pub(super) fn ipv4_fragment(dst: u32, proto: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len() as u16).to_be_bytes();
    let [f, g] = fragment.to_be_bytes();
    let head = [0x45, 0x28, total[0], total[1], 0, 0, f, g, 63, proto, 0, 0, 10, 0, 0, 9];
    [&head[..], &dst.to_be_bytes(), payload].concat()
}

pub(super) fn ipv4(dst: u32, proto: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_fragment(dst, proto, 0x4000, payload)
}

/// An IPv6 packet with traffic class 0x28, flow label 0xabcde, hop limit 62.
pub(super) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let head = [0x62, 0x8a, 0xbc, 0xde, length[0], length[1], next, 62];
    [&head[..], &[0x20; 16], &[0x30; 16], payload].concat()
}

pub(super) fn udp(src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let words = [src, dst, length, 0].map(u16::to_be_bytes);
    [&words.concat()[..], payload].concat()
}

/// TCP: ports, and sixteen more bytes that are not read.
pub(super) fn tcp(src: u16, dst: u16) -> Vec<u8> {
    [&src.to_be_bytes()[..], &dst.to_be_bytes(), &[0; 16]].concat()
}

/// A plain UDP frame to 10.0.0.1.
pub(super) fn udp_frame(dst: [u8; 6], port: u16) -> Vec<u8> {
    ethernet(dst, 0x0800, &ipv4(0x0a00_0001, 17, &udp(1000, port, b"payload")))
}
