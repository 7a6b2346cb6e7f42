//! The old commands, which INVOKE_WRITE carries.
//!
//! Source: `UVERBS_HANDLER(UVERBS_METHOD_INVOKE_WRITE)` and `uapi_get_method`, Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::flow::DestroyFlow;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT, WRITE_CMD};
use uverbs_abi::write::cmd::{self, FLAG_EXTENDED, NUMBER_MASK};
use uverbs_abi::write::{
    AllocPd, AllocPdResp, COMMANDS, CreateCompChannel, CreateCompChannelResp, DeallocPd, DeregMr, DestroyCq,
    DestroyCqResp, DestroyQp, DestroyQpResp,
};

use super::call::Call;
use super::events::{EventFile, Events};
use super::state::Pd;
use super::table::Kind;
use super::{
    addresses, context, flows, memory_regions, modify, multicast, queues, send, shared_receives, windows, xrc,
};

/// `UVERBS_METHOD_INVOKE_WRITE`.
pub(super) fn invoke(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    // The check keeps this number within its type.
    let number = call.constant(WRITE_CMD, u32::MAX.into())? as u32;
    if number & !(FLAG_EXTENDED | NUMBER_MASK) != 0 {
        return Err(Errno::EINVAL);
    }
    let profile = &call.state.profile;
    let (flows, moderates, has_windows) = (profile.flows, profile.cq_moderation, profile.max_mw > 0);
    let (changes_regions, has_xrc) = (profile.changes_regions(), profile.has_xrc());
    let run = match number {
        cmd::QUERY_DEVICE => context::query_device,
        cmd::QUERY_PORT => context::write_query_port,
        cmd::ALLOC_PD => alloc_pd,
        cmd::DEALLOC_PD => dealloc_pd,
        cmd::CREATE_AH => addresses::create,
        cmd::DESTROY_AH => addresses::destroy,
        cmd::MODIFY_SRQ => shared_receives::modify,
        cmd::QUERY_SRQ => shared_receives::query,
        cmd::DESTROY_SRQ => shared_receives::destroy,
        cmd::OPEN_XRCD if has_xrc => xrc::open,
        cmd::CLOSE_XRCD if has_xrc => xrc::close,
        cmd::OPEN_QP if has_xrc => xrc::open_qp,
        cmd::ATTACH_MCAST => multicast::attach,
        cmd::DETACH_MCAST => multicast::detach,
        cmd::REG_MR => memory_regions::register,
        cmd::REREG_MR if changes_regions => memory_regions::reregister,
        cmd::DEREG_MR => dereg_mr,
        cmd::ALLOC_MW if has_windows => windows::alloc,
        cmd::DEALLOC_MW if has_windows => windows::dealloc,
        cmd::CREATE_COMP_CHANNEL => create_comp_channel,
        cmd::DESTROY_CQ => destroy_cq,
        cmd::RESIZE_CQ => queues::resize_cq,
        cmd::REQ_NOTIFY_CQ => queues::req_notify_cq,
        cmd::QUERY_QP => modify::query_qp,
        cmd::MODIFY_QP => modify::modify_qp,
        cmd::DESTROY_QP => destroy_qp,
        cmd::POST_SEND => send::post_send,
        cmd::EX_MODIFY_CQ if moderates => queues::moderate,
        cmd::EX_QUERY_DEVICE => context::ex_query_device,
        cmd::EX_MODIFY_QP => modify::ex_modify_qp,
        cmd::EX_CREATE_FLOW if flows => flows::create,
        cmd::EX_DESTROY_FLOW if flows => destroy_flow,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    // Only commands without the extended flag have a minimum size.
    let info = COMMANDS.iter().find(|info| info.number == number && number & FLAG_EXTENDED == 0);
    if let Some(info) = info {
        let room = |id| call.find(id).map_or(0, |found| usize::from(found.len));
        if room(CORE_IN) < info.request || room(CORE_OUT) < info.response {
            return Err(Errno::ENOSPC);
        }
    }
    run(call)
}

/// `ib_uverbs_alloc_pd`.
fn alloc_pd(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let _: AllocPd = call.request()?;
    let pd_handle = call.begin(Kind::Pd)?;
    if call.state.pds.len() >= call.state.profile.max_pd as usize {
        return Err(Errno::ENOMEM);
    }
    let id = call.state.number(|state| &state.pds);
    call.state.pds.insert(id, Pd { uses: 0 });
    call.made(id);
    call.respond(&AllocPdResp { pd_handle })
}

fn dealloc_pd(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: DeallocPd = call.request()?;
    call.destroy(request.pd_handle, Kind::Pd)
}

fn dereg_mr(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: DeregMr = call.request()?;
    call.destroy(request.mr_handle, Kind::Mr)
}

/// `ib_uverbs_ex_destroy_flow`.
fn destroy_flow(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: DestroyFlow = call.request()?;
    if request.comp_mask != 0 {
        return Err(Errno::EINVAL);
    }
    call.destroy(request.flow_handle, Kind::Flow)
}

fn destroy_cq(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: DestroyCq = call.request()?;
    call.destroy(request.cq_handle, Kind::Cq)?;
    call.respond(&DestroyCqResp::default())
}

fn destroy_qp(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: DestroyQp = call.request()?;
    call.destroy(request.qp_handle, Kind::Qp)?;
    call.respond(&DestroyQpResp::default())
}

/// `ib_uverbs_create_comp_channel`.
fn create_comp_channel(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let _: CreateCompChannel = call.request()?;
    call.context()?;
    let (events, reader) = EventFile::new(call.file, Events::Completion)?;
    let fd = events.number as u32;
    let id = call.state.add_events(events);
    call.begin_fd(id, reader);
    call.respond(&CreateCompChannelResp { fd })
}
