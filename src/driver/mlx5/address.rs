//! Address handles: an address vector, which is part of each datagram's request.
//!
//! Source: `struct mlx5_av`, qp.h, and `create_ib_ah`, ah.c, Linux 6.1; `mlx5_create_ah` of libmlx5, providers/mlx5/verbs.c,
//! rdma-core 65.

use uverbs_abi::mlx5::CreateAhResp;
use uverbs_abi::mlx5::wqe::{EXTENDED_UD_AV, WqeAv};
use uverbs_abi::write::AhAttr;
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::driver::request::Address;
use crate::driver::seam::AhPlan;

/// The bit in [`WqeAv::grh_gid_fl`] for a global address, and the position of the index of the source GID.
const IS_GLOBAL: u32 = 1 << 30;
const GID_INDEX: u32 = 20;
const FLOW_LABEL: u32 = 0xf_ffff;
/// The first of the UDP source ports of RoCE v2, and the bits in which they differ.
const FIRST_PORT: u16 = 0xc000;
const PORT_BITS: u32 = 14;

/// An address handle. On Ethernet the kernel returns the hardware address of the other side; on InfiniBand it leaves the response empty.
pub(super) fn plan_ah(attr: &AhAttr) -> AhPlan {
    AhPlan::new(attr, size_of::<CreateAhResp>(), |attr, answer| {
        let answer: CreateAhResp = zerocopy::transmute!(answer);
        let &AhAttr { grh, dlid, sl, src_path_bits, static_rate, is_global, .. } = attr;
        let is_ethernet = answer.response_length != 0;
        let rate = device_rate(static_rate) << 4;
        let mut av = WqeAv { rmac: answer.dmac, ..WqeAv::new_zeroed() };
        if is_ethernet {
            // Packets always have a global header here; the bit for it must not be set.
            av.stat_rate_sl = rate | (sl & 0x7) << 1;
            av.rlid = source_port(&grh.dgid, grh.flow_label).into();
        } else {
            av.stat_rate_sl = rate | sl & 0xf;
            av.fl_mlid = src_path_bits & 0x7f;
            av.rlid = dlid.into();
        }
        if is_global != 0 {
            let grh_bit = if is_ethernet { 0 } else { IS_GLOBAL };
            av.tclass = grh.traffic_class;
            av.hop_limit = grh.hop_limit;
            av.grh_gid_fl =
                (grh_bit | u32::from(grh.sgid_index) << GID_INDEX | grh.flow_label & FLOW_LABEL).into();
            av.rgid = grh.dgid;
        }
        let [_, _, _, vector @ ..]: [u32; 12] = zerocopy::transmute!(av);
        Address { number: 0, vector }
    })
}

/// The device's number for a rate (`enum ib_rate`, ib_verbs.h), or for the next higher rate that it has; zero if it has none.
fn device_rate(rate: u8) -> u8 {
    match rate {
        2..=10 => rate + 5,
        11 => 11,
        12 => 13,
        13 | 16 => 15,
        15 | 19 => 9,
        20 => 13,
        _ => 0,
    }
}

/// The source port by which switches distinguish flows: from the flow label, as RoCE v2 specifies it (annex A17), or from the address.
fn source_port(gid: &[u8; 16], flow_label: u32) -> u16 {
    let mut label = flow_label & FLOW_LABEL;
    if label == 0 {
        label = gid.as_chunks::<4>().0.iter().fold(0, |sum, word| sum ^ u32::from_be_bytes(*word));
    }
    FIRST_PORT | ((label ^ label >> PORT_BITS) & ((1 << PORT_BITS) - 1)) as u16
}

/// The first block of a datagram's request: the control segment, and the three units of the address.
#[derive(Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Block {
    pub(super) control: [u64; 2],
    pub(super) to: [[u32; 4]; 3],
}

/// The three units of a datagram's address in its request.
#[inline(always)]
pub(super) fn units(address: &Address, qp_num: u32, qkey: u32) -> [[u32; 4]; 3] {
    let [a, b, c, d, e, f, g, h, i] = address.vector;
    [[qkey.to_be(), 0, (qp_num | EXTENDED_UD_AV).to_be(), a], [b, c, d, e], [f, g, h, i]]
}
