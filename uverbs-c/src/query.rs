//! Querying an open device: limits, ports, addresses.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use nix::libc;
use uverbs::abi::types::gid_type;
use uverbs::abi::write::{ExQueryDeviceResp, GidEntry, QueryPortRespEx};
use uverbs::{ErrorKind, Gid};
use zerocopy::{FromZeros, IntoBytes};

use crate::abi::{DeviceAttr, DeviceAttrEx, PortAttr};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP, minus_one, or_null, returned};
use crate::boundary::Places;
use crate::context::Context;
use crate::device::text;

fn device_attr(context: &uverbs::Context, answer: &ExQueryDeviceResp) -> DeviceAttr {
    let base = &answer.base;
    macro_rules! copied {
        ($($field:ident)*) => {
            DeviceAttr {
                fw_ver: text(context.firmware(base.fw_ver).as_bytes()),
                node_guid: base.node_guid.get().to_be(),
                sys_image_guid: base.sys_image_guid.get().to_be(),
                // Some limits are signed in C.
                $($field: base.$field as _,)*
            }
        };
    }
    let mut attr = copied!(
        max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags max_sge
        max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom
        max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw max_raw_ipv6_qp
        max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr
        max_map_per_fmr max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay phys_port_cnt
    );
    if let Some(most) = context.most_sends() {
        attr.max_qp_wr = attr.max_qp_wr.min(most as i32);
    }
    attr
}

fn query_device_all(context: &uverbs::Context) -> Answer<DeviceAttrEx> {
    let (answer, packets) = context.query_with_driver()?;
    let mut attr = DeviceAttrEx::new_zeroed();
    attr.orig_attr = device_attr(context, &answer);
    attr.odp_caps.general_caps = answer.odp_caps.general_caps;
    let odp = answer.odp_caps.per_transport_caps;
    attr.odp_caps.per_transport_caps = [odp.rc_odp_caps, odp.uc_odp_caps, odp.ud_odp_caps];
    attr.completion_timestamp_mask = answer.timestamp_mask;
    attr.hca_core_clock = answer.hca_core_clock;
    attr.device_cap_flags_ex = answer.device_cap_flags_ex;
    attr.rss_caps.supported_qpts = answer.rss_caps.supported_qpts;
    attr.rss_caps.max_rwq_indirection_tables = answer.rss_caps.max_rwq_indirection_tables;
    attr.rss_caps.max_rwq_indirection_table_size = answer.rss_caps.max_rwq_indirection_table_size;
    attr.max_wq_type_rq = answer.max_wq_type_rq;
    attr.raw_packet_caps = answer.raw_packet_caps;
    attr.tm_caps.max_rndv_hdr_size = answer.tm_caps.max_rndv_hdr_size;
    attr.tm_caps.max_num_tags = answer.tm_caps.max_num_tags;
    attr.tm_caps.flags = answer.tm_caps.flags;
    attr.tm_caps.max_ops = answer.tm_caps.max_ops;
    attr.tm_caps.max_sge = answer.tm_caps.max_sge;
    let moderation = answer.cq_moderation_caps;
    attr.cq_mod_caps = [moderation.max_cq_moderation_count, moderation.max_cq_moderation_period];
    attr.max_dm_size = answer.max_dm_size;
    attr.xrc_odp_caps = answer.xrc_odp_caps;
    attr.phys_port_cnt_ex = answer.base.phys_port_cnt.into();
    attr.tso_caps = packets.large_sends;
    attr.rss_caps.rx_hash_fields_mask = packets.hash_fields;
    attr.rss_caps.rx_hash_function = packets.hash_functions;
    let [least, most, types] = packets.send_rates;
    attr.packet_pacing_caps.qp_rate_limit_min = least;
    attr.packet_pacing_caps.qp_rate_limit_max = most;
    attr.packet_pacing_caps.supported_qpts = types;
    Ok(attr)
}

/// On an older kernel the speed is unknown, as on a device that does not report it.
pub(crate) extern "C" fn query_port_speed(
    context: Option<&Context>,
    port: u32,
    speed: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    let query = || {
        let told = context.ok_or(EINVAL)?.context.port_speed(port).map_err(|error| {
            if error.kind() == ErrorKind::Unsupported { EOPNOTSUPP } else { error.into() }
        })?;
        speed.ok_or(EINVAL)?.write(told);
        Ok(())
    };
    returned(query())
}

pub(crate) extern "C" fn query_device(
    context: Option<&Context>,
    attr: Option<&mut MaybeUninit<DeviceAttr>>,
) -> c_int {
    let query = || {
        let (context, attr) = (context.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
        let answer = context.context.query_device()?;
        attr.write(device_attr(&context.context, &answer));
        Ok(())
    };
    returned(query())
}

pub(crate) extern "C" fn query_device_ex(
    context: Option<&Context>,
    input: Option<&u32>,
    mut attr: Places<'_, u8>,
    size: usize,
) -> c_int {
    let mut query = || {
        if input.is_some_and(|comp_mask| *comp_mask != 0) || size < size_of::<DeviceAttr>() {
            return Err(EINVAL);
        }
        let all = query_device_all(&context.ok_or(EINVAL)?.context)?;
        attr.write_prefix(&all, size).ok_or(EINVAL)
    };
    returned(query())
}

fn port_attr(answer: &QueryPortRespEx) -> PortAttr {
    let legacy = &answer.legacy_resp;
    PortAttr {
        state: legacy.state.into(),
        max_mtu: legacy.max_mtu.into(),
        active_mtu: legacy.active_mtu.into(),
        gid_tbl_len: legacy.gid_tbl_len as i32,
        port_cap_flags: legacy.port_cap_flags,
        max_msg_sz: legacy.max_msg_sz,
        bad_pkey_cntr: legacy.bad_pkey_cntr,
        qkey_viol_cntr: legacy.qkey_viol_cntr,
        pkey_tbl_len: legacy.pkey_tbl_len,
        lid: legacy.lid,
        sm_lid: legacy.sm_lid,
        lmc: legacy.lmc,
        max_vl_num: legacy.max_vl_num,
        sm_sl: legacy.sm_sl,
        subnet_timeout: legacy.subnet_timeout,
        init_type_reply: legacy.init_type_reply,
        active_width: legacy.active_width,
        active_speed: legacy.active_speed,
        phys_state: legacy.phys_state,
        link_layer: legacy.link_layer,
        flags: legacy.flags,
        port_cap_flags2: answer.port_cap_flags2,
        active_speed_ex: answer.active_speed_ex,
    }
}

pub(crate) extern "C" fn query_port_sized(
    context: Option<&Context>,
    port: u8,
    mut attr: Places<'_, u8>,
    size: usize,
) -> c_int {
    let mut query = || {
        let answer = context.ok_or(EINVAL)?.context.query_port(port)?;
        attr.write_prefix(&port_attr(&answer), size).ok_or(EINVAL)
    };
    returned(query())
}

/// Size of `ibv_port_attr` in bytes when this was the only call: programs from that time have no more room.
const FIRST_PORT_ATTR: usize = 48;

pub(crate) extern "C" fn query_port(context: Option<&Context>, port: u8, attr: Places<'_, u8>) -> c_int {
    query_port_sized(context, port, attr, FIRST_PORT_ATTR)
}

fn entry(gid: &Gid) -> GidEntry {
    GidEntry {
        gid: gid.raw,
        gid_index: gid.index,
        port_num: gid.port,
        gid_type: gid.kind.number(),
        netdev_ifindex: gid.interface,
    }
}

fn gid(context: Option<&Context>, port: u32, index: u32) -> Answer<GidEntry> {
    let port = u8::try_from(port).map_err(|_| EINVAL)?;
    Ok(entry(&context.ok_or(EINVAL)?.context.gid(port, index)?))
}

/// The entry, all zeros if the table has none: older calls have no concept of empty entries.
fn gid_or_zero(context: Option<&Context>, port: u8, index: c_int) -> Answer<GidEntry> {
    let index = u32::try_from(index).map_err(|_| EINVAL)?;
    match gid(context, port.into(), index) {
        Err(code) if code == Code::new(libc::ENODATA) => Ok(GidEntry::new_zeroed()),
        answer => answer,
    }
}

pub(crate) extern "C" fn query_gid(
    context: Option<&Context>,
    port: u8,
    index: c_int,
    place: Option<&mut MaybeUninit<[u8; 16]>>,
) -> c_int {
    let query = || {
        place.ok_or(EINVAL)?.write(gid_or_zero(context, port, index)?.gid);
        Ok(())
    };
    minus_one(query())
}

/// `enum ibv_gid_type_sysfs`: 1 for RoCE version 2, otherwise 0.
pub(crate) extern "C" fn query_gid_type(
    context: Option<&Context>,
    port: u8,
    index: u32,
    place: Option<&mut MaybeUninit<u32>>,
) -> c_int {
    let query = || {
        let index = c_int::try_from(index).map_err(|_| EINVAL)?;
        let entry = gid_or_zero(context, port, index)?;
        place.ok_or(EINVAL)?.write(u32::from(entry.gid_type == gid_type::ROCE_V2));
        Ok(())
    };
    minus_one(query())
}

pub(crate) extern "C" fn query_gid_ex(
    context: Option<&Context>,
    port: u32,
    index: u32,
    mut place: Places<'_, u8>,
    flags: u32,
    size: usize,
) -> c_int {
    let mut query = || {
        if flags != 0 {
            return Err(EINVAL);
        }
        place.write_prefix(&gid(context, port, index)?, size).ok_or(Code::new(libc::EFAULT))
    };
    returned(query())
}

/// The number of entries, or a negative errno.
pub(crate) extern "C" fn query_gid_table(
    context: Option<&Context>,
    mut places: Places<'_, u8>,
    most: usize,
    flags: u32,
    size: usize,
) -> isize {
    let mut query = || {
        if flags != 0 {
            return Err(EINVAL);
        }
        let table = context.ok_or(EINVAL)?.context.gid_table()?;
        if table.len() > most || size < size_of::<GidEntry>() {
            return Err(EINVAL);
        }
        let room = table.len().checked_mul(size).ok_or(EINVAL)?;
        let bytes = places.get(room);
        if bytes.len() < room {
            return Err(Code::new(libc::EFAULT));
        }
        for (gid, place) in table.iter().zip(bytes.chunks_exact_mut(size)) {
            let known = entry(gid);
            let padded = known.as_bytes().iter().copied().chain(std::iter::repeat(0));
            place.iter_mut().zip(padded).for_each(|(place, byte)| {
                place.write(byte);
            });
        }
        Ok(table.len() as isize)
    };
    query().unwrap_or_else(|code: Code| {
        code.set();
        -(code.get() as isize)
    })
}

fn pkey(context: Option<&Context>, port: u8, index: c_int) -> Answer<u16> {
    let index = u16::try_from(index).map_err(|_| Code::new(libc::ENOENT))?;
    Ok(context.ok_or(EINVAL)?.context.pkey(port, index)?.to_be())
}

pub(crate) extern "C" fn query_pkey(
    context: Option<&Context>,
    port: u8,
    index: c_int,
    place: Option<&mut MaybeUninit<u16>>,
) -> c_int {
    let query = || {
        place.ok_or(EINVAL)?.write(pkey(context, port, index)?);
        Ok(())
    };
    minus_one(query())
}

pub(crate) extern "C" fn get_pkey_index(context: Option<&Context>, port: u8, wanted: u16) -> c_int {
    let mut index = 0;
    while let Some(key) = or_null(pkey(context, port, index)) {
        if key == wanted {
            return index;
        }
        index += 1;
    }
    -1
}
