//! Creating, arming and destroying completion queues, and what other queues share with them.
//!
//! Source: uverbs_std_types_cq.c; the driver's part is that of rxe (`rxe_create_cq`); Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::ids::cq;
use uverbs_abi::ioctl::UHW_OUT;
use uverbs_abi::rxe::{CreateCqResp, Mminfo, ResizeCqResp as DriverResize};
use uverbs_abi::types::CqFlags;
use uverbs_abi::write::{
    CqModerationCaps, DestroyCqResp, ExModifyCq, ReqNotifyCq, ResizeCq, ResizeCqResp, Wc,
};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::call::Call;
use super::profile::Profile;
use super::ring::Producer;
use super::table::Kind;
use crate::driver::ring::Geometry;
use crate::kernel::mapping::Mapping;

/// The next completion that a queue announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    No,
    /// Completions of solicited messages, and errors.
    Solicited,
    Next,
}

#[derive(Debug)]
pub(super) struct Cq {
    pub(super) file: u32,
    pub(super) user_handle: u64,
    pub(super) channel: Option<u32>,
    pub(super) events: Option<u32>,
    pub(super) ring: Producer,
    pub(super) offset: u64,
    pub(super) armed: Armed,
    /// It was full when a completion arrived: it accepts no more.
    pub(super) overrun: bool,
    /// Number of queue pairs that complete here; one that sends and receives here counts twice.
    pub(super) uses: u32,
}

/// Writes the driver's response. The caller must have room for all of it.
pub(super) fn driver_answer<T: IntoBytes + Immutable>(
    call: &mut Call<'_, '_, '_>,
    answer: &T,
) -> Result<(), Errno> {
    let found = call.find(UHW_OUT).ok_or(Errno::EINVAL)?;
    call.write(found, 0, answer.as_bytes())
}

pub(super) fn needs_room<T>(call: &Call<'_, '_, '_>) -> Result<(), Errno> {
    let room = call.find(UHW_OUT).map_or(0, |found| usize::from(found.len));
    if room < size_of::<T>() { Err(Errno::EINVAL) } else { Ok(()) }
}

pub(super) fn offer(call: &mut Call<'_, '_, '_>, map: Mapping) -> Mminfo {
    // Rings are far smaller than 4 GiB, because the profile limits their slots.
    let size = map.len() as u32;
    Mminfo { offset: call.state.offer(call.file, map), size, pad: 0 }
}

/// The named event file, or the first one of the file.
pub(super) fn event_file(call: &Call<'_, '_, '_>, id: u16) -> Option<u32> {
    let default = || call.state.files.get(&call.file)?.default_events;
    call.events(id).or_else(default)
}

/// `UVERBS_METHOD_CQ_CREATE`.
pub(super) fn create_cq(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use cq::create::{COMP_CHANNEL, COMP_VECTOR, CQE, EVENT_FD, FLAGS, RESP_CQE, USER_HANDLE};
    let vector: u32 = call.value(COMP_VECTOR)?;
    let cqe: u32 = call.value(CQE)?;
    let user_handle = call.value(USER_HANDLE)?;
    let known = CqFlags::TIMESTAMP_COMPLETION | CqFlags::IGNORE_OVERRUN;
    let flags = call.flags(FLAGS, known.bits())?;
    if vector >= call.state.profile.completion_vectors {
        return Err(Errno::EINVAL);
    }
    if flags != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    needs_room::<CreateCqResp>(call)?;
    if cqe == 0 || cqe > call.state.profile.max_cqe {
        return Err(Errno::EINVAL);
    }
    if call.state.cqs.len() >= call.state.profile.max_cq as usize {
        return Err(Errno::ENOMEM);
    }
    let (geometry, map) = Geometry::create(cqe, size_of::<Wc>())?;
    let ring = Producer::new(map.clone(), geometry);
    let mi = offer(call, map);
    let id = call.state.number(|state| &state.cqs);
    let cq = Cq {
        file: call.file,
        user_handle,
        channel: call.events(COMP_CHANNEL),
        events: event_file(call, EVENT_FD),
        ring,
        offset: mi.offset,
        armed: Armed::No,
        overrun: false,
        uses: 0,
    };
    call.state.cqs.insert(id, cq);
    call.made(id);
    driver_answer(call, &CreateCqResp { mi })?;
    // A ring may hold more than can be asked for.
    let granted = geometry.capacity().min(call.state.profile.max_cqe);
    call.copy_to(RESP_CQE, &granted.to_ne_bytes())
}

/// `UVERBS_METHOD_CQ_DESTROY`, after the queue was destroyed. The device does not know what was read of an event file, so no event is
/// reported as read.
pub(super) fn destroyed_cq(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    call.copy_to(cq::destroy::RESP, DestroyCqResp::default().as_bytes())
}

/// `ib_uverbs_resize_cq`, then `rxe_resize_cq`: completions that are not polled yet are moved to the new ring.
pub(super) fn resize_cq(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: ResizeCq = call.request()?;
    let id = call.lookup(Kind::Cq, request.cq_handle.into())?.id;
    needs_room::<DriverResize>(call)?;
    if request.cqe == 0 || request.cqe > call.state.profile.max_cqe {
        return Err(Errno::EINVAL);
    }
    let (geometry, map) = Geometry::create(request.cqe, size_of::<Wc>())?;
    let cq = call.state.cqs.get_mut(&id).ok_or(Errno::EINVAL)?;
    if request.cqe < cq.ring.waiting() || !cq.ring.move_to(map.clone(), geometry) {
        return Err(Errno::EINVAL);
    }
    let unmapped = cq.offset;
    call.state.forget(call.file, &[unmapped]);
    let mi = offer(call, map);
    if let Some(cq) = call.state.cqs.get_mut(&id) {
        cq.offset = mi.offset;
    }
    driver_answer(call, &DriverResize { mi })?;
    let cqe = geometry.capacity().min(call.state.profile.max_cqe);
    call.respond(&ResizeCqResp { cqe, reserved: 0 })
}

/// `IB_CQ_MODERATE`.
const MODERATE: u32 = 1;

/// Maximum number of completions and microseconds, as on mlx5 (`MLX5_MAX_CQ_COUNT` and `MLX5_MAX_CQ_PERIOD`, device.h).
pub(super) fn moderation(profile: &Profile) -> CqModerationCaps {
    let [max_cq_moderation_count, max_cq_moderation_period] =
        if profile.cq_moderation { [0xffff, 0xfff] } else { [0; 2] };
    CqModerationCaps { max_cq_moderation_count, max_cq_moderation_period, ..CqModerationCaps::new_zeroed() }
}

/// `ib_uverbs_ex_modify_cq`, then `mlx5_ib_modify_cq`. It has no effect: every completion is still announced.
pub(super) fn moderate(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: ExModifyCq = call.request()?;
    if request.attr_mask == 0 || request.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    if request.attr_mask > MODERATE {
        return Err(Errno::EOPNOTSUPP);
    }
    call.lookup(Kind::Cq, request.cq_handle.into())?;
    let most = moderation(&call.state.profile);
    if request.attr.cq_period > most.max_cq_moderation_period { Err(Errno::EINVAL) } else { Ok(()) }
}

/// `ib_uverbs_req_notify_cq`.
pub(super) fn req_notify_cq(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: ReqNotifyCq = call.request()?;
    let id = call.lookup(Kind::Cq, request.cq_handle.into())?.id;
    let cq = call.state.cqs.get_mut(&id).ok_or(Errno::EINVAL)?;
    // The stronger request stays (`rxe_req_notify_cq`).
    if request.solicited_only == 0 {
        cq.armed = Armed::Next;
    } else if cq.armed == Armed::No {
        cq.armed = Armed::Solicited;
    }
    call.state.watch_again();
    call.state.flush_late(id);
    Ok(())
}
