//! The context, and queries about device and port.
//!
//! Source: uverbs_std_types_device.c and the queries of uverbs_cmd.c, Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::ids::{self, device};
use uverbs_abi::types::{
    CoreSupport, DeviceCapFlags, RawPacketCaps, link_layer, mtu, phys_state, port_state, speed, width,
};
use uverbs_abi::write::{
    ExQueryDevice, ExQueryDeviceResp, QueryDevice, QueryDeviceResp, QueryPort, QueryPortResp, QueryPortRespEx,
};
use zerocopy::{FromZeros, IntoBytes};

use super::call::Call;
use super::events::Events;
use super::table::Kind;
use super::{PORTS, addresses, attributes, gids, queues};

/// Maximum size of a message in bytes (`RXE_PORT_MAX_MSG_SZ`, rxe_param.h, Linux 6.1).
pub(super) const MAX_MESSAGE: u32 = 8 << 20;
/// Maximum number of multicast groups; nothing here limits them.
const MULTICAST: u32 = 8192;
/// 0.1.0, in the format of mlx5's firmware version.
const FIRMWARE: u64 = 0x0000_0001_0000;

/// `UVERBS_METHOD_GET_CONTEXT`. The driver's request is ignored, as by rxe.
pub(super) fn get_context(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use device::get_context::{CORE_SUPPORT, NUM_COMP_VECTORS};
    call.copy_to_optional(NUM_COMP_VECTORS, &call.state.profile.completion_vectors.to_ne_bytes())?;
    let support = CoreSupport::OPTIONAL_MR_ACCESS.bits();
    call.copy_to_optional(CORE_SUPPORT, &support.to_ne_bytes())?;
    if call.state.gone {
        return Err(Errno::EIO);
    }
    let file = call.state.files.entry(call.file).or_default();
    if file.context {
        return Err(Errno::EINVAL);
    }
    file.context = true;
    Ok(())
}

/// `UVERBS_METHOD_QUERY_CONTEXT`, for a driver without `query_ucontext`.
pub(super) fn query_context(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    call.context()?;
    Err(Errno::EOPNOTSUPP)
}

/// `UVERBS_METHOD_ASYNC_EVENT_ALLOC`: the file was created when its attribute was parsed.
pub(super) fn alloc_async_event(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let made = call.events(ids::async_event::alloc::FD_HANDLE);
    let file = call.state.files.entry(call.file).or_default();
    file.default_events = file.default_events.or(made);
    Ok(())
}

/// `UVERBS_METHOD_INFO_HANDLES`.
pub(super) fn info_handles(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use device::info_handles::{HANDLES_LIST, OBJECT_ID, TOTAL_HANDLES};
    let room = call.find(HANDLES_LIST).map_or(0, |found| usize::from(found.len));
    if room == 0 || !room.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    // The check above keeps this number within its type.
    let object = call.constant(OBJECT_ID, u16::MAX.into())? as u16;
    let profile = &call.state.profile;
    let kind = match object {
        ids::device::OBJECT => None,
        ids::pd::OBJECT => Some(Kind::Pd),
        ids::cq::OBJECT => Some(Kind::Cq),
        ids::qp::OBJECT => Some(Kind::Qp),
        ids::srq::OBJECT => Some(Kind::Srq),
        ids::xrcd::OBJECT if profile.has_xrc() => Some(Kind::Xrcd),
        ids::ah::OBJECT => Some(Kind::Ah),
        ids::mr::OBJECT => Some(Kind::Mr),
        ids::flow::OBJECT if profile.flows => Some(Kind::Flow),
        ids::counters::OBJECT if profile.counters => Some(Kind::Counters),
        ids::comp_cntr::OBJECT if profile.completion_counters > 0 => Some(Kind::CompletionCounter),
        ids::comp_channel::OBJECT | ids::async_event::OBJECT => None,
        u16::MAX => return Err(Errno::ENOMSG),
        _ => return Err(Errno::ENOENT),
    };
    let mut handles = match kind {
        // When the device is removed, the list from which this is read becomes empty.
        _ if call.state.gone => Vec::new(),
        Some(kind) => call.table().list(kind),
        None => event_files(call, object),
    };
    handles.truncate(room / 4);
    call.copy_to(HANDLES_LIST, handles.as_bytes())?;
    call.copy_to(TOTAL_HANDLES, &(handles.len() as u64).to_ne_bytes())
}

/// Event files have their file descriptors as handles.
fn event_files(call: &Call<'_, '_, '_>, object: u16) -> Vec<u32> {
    let kind = match object {
        ids::comp_channel::OBJECT => Events::Completion,
        ids::async_event::OBJECT => Events::Asynchronous,
        _ => return Vec::new(),
    };
    let mine = call.state.events.values().rev();
    let mine = mine.filter(|events| events.file == call.file && events.kind == kind && events.is_open());
    mine.map(|events| events.number as u32).collect()
}

fn is_port(port: u64) -> bool {
    (1..=u64::from(PORTS)).contains(&port)
}

fn port_attributes(call: &Call<'_, '_, '_>) -> QueryPortResp {
    QueryPortResp {
        max_msg_sz: MAX_MESSAGE,
        gid_tbl_len: call.state.profile.gids,
        pkey_tbl_len: attributes::PKEYS,
        state: port_state::ACTIVE,
        max_mtu: mtu::MTU_4096,
        active_mtu: (call.state.profile.port_mtu.ilog2() - 7) as u8,
        max_vl_num: 1,
        active_width: width::WIDTH_4X,
        active_speed: speed::EDR,
        phys_state: phys_state::LINK_UP,
        link_layer: link_layer::ETHERNET,
        flags: 1,
        ..QueryPortResp::new_zeroed()
    }
}

/// `UVERBS_METHOD_QUERY_PORT`.
pub(super) fn query_port(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use device::query_port::{PORT_NUM, RESP};
    call.context()?;
    if !is_port(call.constant(PORT_NUM, u8::MAX.into())?) {
        return Err(Errno::EINVAL);
    }
    let response = QueryPortRespEx { legacy_resp: port_attributes(call), ..QueryPortRespEx::new_zeroed() };
    call.copy_to_or_zero(RESP, &response)
}

/// `ib_uverbs_query_port`.
pub(super) fn write_query_port(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    call.context()?;
    let request: QueryPort = call.request()?;
    if !is_port(request.port_num.into()) {
        return Err(Errno::EINVAL);
    }
    let response = port_attributes(call);
    call.respond(&response)
}

/// `UVERBS_METHOD_QUERY_GID_TABLE`.
pub(super) fn query_gid_table(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use device::query_gid_table::{ENTRY_SIZE, FLAGS, RESP_ENTRIES, RESP_NUM_ENTRIES};
    call.flags(FLAGS, 0)?;
    let size = call.constant(ENTRY_SIZE, u64::MAX)?;
    let found = call.find(RESP_ENTRIES).ok_or(Errno::ENOENT)?;
    let room = u64::from(found.len);
    if size == 0 || !room.is_multiple_of(size) || room == 0 {
        return Err(Errno::EINVAL);
    }
    call.context()?;
    // `size` divides a number of 16 bits, so it is one itself.
    let (size, room) = (size as usize, (room / size) as usize);
    let mut entries = Vec::new();
    let mut count = 0_u64;
    for entry in gids::entries(&call.state.profile) {
        if count >= room as u64 {
            return Err(Errno::EINVAL);
        }
        // Truncated, or filled up with zeros.
        let end = entries.len() + size;
        entries.extend_from_slice(entry.as_bytes().get(..size).unwrap_or(entry.as_bytes()));
        entries.resize(end, 0);
        count += 1;
    }
    call.write(found, 0, &entries)?;
    call.copy_to(RESP_NUM_ENTRIES, &count.to_ne_bytes())
}

/// `UVERBS_METHOD_QUERY_GID_ENTRY`.
pub(super) fn query_gid_entry(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use device::query_gid_entry::{FLAGS, GID_INDEX, PORT, RESP_ENTRY};
    call.flags(FLAGS, 0)?;
    let port = call.constant(PORT, u32::MAX.into())?;
    let index = call.constant(GID_INDEX, u32::MAX.into())?;
    call.context()?;
    if !is_port(port) {
        return Err(Errno::EINVAL);
    }
    // The check keeps this number within its type.
    let entry = gids::entry(&call.state.profile, index as u32)?;
    call.copy_to_or_zero(RESP_ENTRY, &entry)
}

fn limits(call: &Call<'_, '_, '_>) -> QueryDeviceResp {
    let profile = &call.state.profile;
    QueryDeviceResp {
        fw_ver: FIRMWARE,
        node_guid: profile.guid().into(),
        sys_image_guid: profile.guid().into(),
        max_mr_size: u64::MAX,
        page_size_cap: 4096,
        // That of rxe (`RXE_VENDOR_ID`, rxe_param.h, Linux 6.1): programs expect one.
        vendor_id: if profile.address().is_some() { 0xff_ffff } else { 0 },
        max_qp: profile.max_qp,
        max_qp_wr: profile.max_qp_wr,
        device_cap_flags: capabilities(call).bits() as u32,
        max_sge: profile.max_sge,
        max_cq: profile.max_cq,
        max_cqe: profile.max_cqe,
        max_mr: profile.max_mr,
        max_mw: profile.max_mw,
        max_pd: profile.max_pd,
        max_raw_ethy_qp: profile.max_qp,
        max_pkeys: attributes::PKEYS,
        max_qp_rd_atom: attributes::MAX_RD_ATOMIC.into(),
        max_qp_init_rd_atom: attributes::MAX_RD_ATOMIC.into(),
        max_sge_rd: profile.max_sge,
        max_ah: addresses::MAX_AH,
        max_srq: profile.max_qp,
        max_srq_wr: profile.max_qp_wr,
        max_srq_sge: profile.max_sge,
        max_mcast_grp: MULTICAST,
        max_mcast_qp_attach: MULTICAST,
        max_total_mcast_qp_attach: MULTICAST,
        atomic_cap: 1,
        phys_port_cnt: PORTS,
        ..QueryDeviceResp::new_zeroed()
    }
}

fn capabilities(call: &Call<'_, '_, '_>) -> DeviceCapFlags {
    let flows = if call.state.profile.flows {
        DeviceCapFlags::MANAGED_FLOW_STEERING
    } else {
        DeviceCapFlags::empty()
    };
    let windows = if call.state.profile.max_mw > 0 {
        DeviceCapFlags::MEM_WINDOW | DeviceCapFlags::MEM_WINDOW_TYPE_2B
    } else {
        DeviceCapFlags::empty()
    };
    let xrc = if call.state.profile.has_xrc() { DeviceCapFlags::XRC } else { DeviceCapFlags::empty() };
    DeviceCapFlags::SYS_IMAGE_GUID | windows | flows | xrc
}

/// `ib_uverbs_query_device`.
pub(super) fn query_device(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    call.context()?;
    let _: QueryDevice = call.request()?;
    let response = limits(call);
    call.respond(&response)
}

/// `ib_uverbs_ex_query_device`.
pub(super) fn ex_query_device(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    call.context()?;
    let request: ExQueryDevice = call.request()?;
    if request.comp_mask != 0 || request.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let response = ExQueryDeviceResp {
        base: limits(call),
        response_length: call.response_length::<ExQueryDeviceResp>(),
        device_cap_flags_ex: capabilities(call).bits(),
        raw_packet_caps: RawPacketCaps::empty().bits(),
        cq_moderation_caps: queues::moderation(&call.state.profile),
        ..ExQueryDeviceResp::new_zeroed()
    };
    call.respond(&response)
}
