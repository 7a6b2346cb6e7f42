//! Shared receive queues.
//!
//! Source: uverbs_std_types_srq.c and uverbs_cmd.c; `rxe_create_srq`, `rxe_modify_srq` and rxe_srq.c; `get_srq_wqe`, rxe_resp.c; Linux 6.1.
//! rxe writes the description of a new ring to any address that it is given. This device accesses no addresses: the command must contain
//! the place itself.

use nix::errno::Errno;
use uverbs_abi::ids::srq;
use uverbs_abi::ioctl::UHW_IN;
use uverbs_abi::rxe::{CreateSrqResp, ModifySrqCmd, RecvWqe, Sge};
use uverbs_abi::types::{event_type, srq_type};
use uverbs_abi::write::{DestroySrq, DestroySrqResp, ModifySrq, QuerySrq, QuerySrqResp};
use zerocopy::IntoBytes;

use super::call::Call;
use super::events::About;
use super::pieces::{self, Receive};
use super::queues::{driver_answer, event_file, needs_room, offer};
use super::ring::{Consumer, Producer};
use super::state::State;
use super::table::Kind;
use crate::driver::ring::Geometry;

/// Bits of [`ModifySrq::attr_mask`].
const MAX_WR: u32 = 1 << 0;
const LIMIT: u32 = 1 << 1;

#[derive(Debug)]
pub(super) struct Srq {
    pub(super) file: u32,
    pub(super) pd: u32,
    user_handle: u64,
    pub(super) events: Option<u32>,
    ring: Consumer,
    /// How many receives it is said to have room for. The ring may hold more, but not more than can be asked for is granted.
    granted: u32,
    max_sge: u32,
    /// If there are fewer receives than this, an event is raised once.
    limit: u32,
    pub(super) offset: u64,
    /// Number of queue pairs that receive from it.
    pub(super) uses: u32,
    /// The additional properties of a queue for extended reliable connections.
    pub(super) xrc: Option<Extended>,
}

/// The queue in which receives of extended reliable connections complete, and the domain whose peers may send to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extended {
    pub(super) cq: u32,
    /// The handle of the domain, and the domain's number.
    pub(super) xrcd: u32,
    pub(super) domain: u32,
}

impl Srq {
    /// The oldest receive, if there is one.
    pub(super) fn oldest(&self) -> Option<Receive> {
        pieces::oldest_receive(&self.ring, self.max_sge)
    }
}

/// The core's checks for every queue, then whether its type is supported.
fn check_type(call: &Call<'_, '_, '_>) -> Result<Option<Extended>, Errno> {
    use srq::create::{CQ_HANDLE, MAX_NUM_TAGS, TYPE, XRCD_HANDLE};
    match u32::try_from(call.constant(TYPE, u32::MAX.into())?) {
        Ok(srq_type::BASIC) => Ok(None),
        Ok(srq_type::XRC) => {
            let cq = call.object(CQ_HANDLE)?.id;
            let xrcd = call.object(XRCD_HANDLE)?.id;
            let domain = call.state.xrcds.get(&xrcd).ok_or(Errno::EINVAL)?.domain;
            Ok(Some(Extended { cq, xrcd, domain }))
        }
        Ok(srq_type::TM) => {
            call.object(CQ_HANDLE)?;
            call.value::<u32>(MAX_NUM_TAGS)?;
            Err(Errno::EOPNOTSUPP)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `UVERBS_METHOD_SRQ_CREATE`.
pub(super) fn create(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use srq::create::{EVENT_FD, LIMIT, MAX_SGE, MAX_WR, PD_HANDLE, RESP_MAX_SGE, RESP_MAX_WR};
    use srq::create::{RESP_SRQ_NUM, USER_HANDLE};
    let [max_sge, max_wr, limit] = [MAX_SGE, MAX_WR, LIMIT].map(|id| call.value::<u32>(id));
    let (max_sge, max_wr, limit) = (max_sge?, max_wr?, limit?);
    let user_handle = call.value(USER_HANDLE)?;
    let pd = call.object(PD_HANDLE)?.id;
    let room = needs_room::<CreateSrqResp>(call);
    let xrc = match check_type(call) {
        Err(Errno::EOPNOTSUPP) => return room.and(Err(Errno::EOPNOTSUPP)),
        checked => checked?,
    };
    room?;
    let profile = &call.state.profile;
    if max_wr == 0 || max_wr > profile.max_qp_wr || max_sge > profile.max_sge {
        return Err(Errno::EINVAL);
    }
    if call.state.srqs.len() >= profile.max_qp as usize {
        return Err(Errno::ENOMEM);
    }
    let max_sge = max_sge.max(1);
    let (geometry, map) = Geometry::create(max_wr, slot_size(max_sge))?;
    let ring = Consumer::new(map.clone(), geometry);
    let mi = offer(call, map);
    let id = call.state.number(|state| &state.srqs);
    let events = event_file(call, EVENT_FD);
    let (file, offset) = (call.file, mi.offset);
    let uses = 0;
    let granted = geometry.capacity().min(call.state.profile.max_qp_wr);
    let srq = Srq { file, pd, user_handle, events, ring, granted, max_sge, limit, offset, uses, xrc };
    call.state.srqs.insert(id, srq);
    if let Some(Extended { cq, xrcd, .. }) = xrc {
        call.state.use_xrcd(xrcd);
        if let Some(cq) = call.state.cqs.get_mut(&cq) {
            cq.uses += 1;
        }
    }
    if let Some(pd) = call.state.pds.get_mut(&pd) {
        pd.uses += 1;
    }
    call.made(id);
    driver_answer(call, &CreateSrqResp { mi, srq_num: id, reserved: 0 })?;
    call.copy_to(RESP_MAX_WR, &granted.to_ne_bytes())?;
    call.copy_to(RESP_MAX_SGE, &max_sge.to_ne_bytes())?;
    if xrc.is_some() { call.copy_to(RESP_SRQ_NUM, &id.to_ne_bytes()) } else { Ok(()) }
}

/// `UVERBS_METHOD_SRQ_DESTROY`, after the queue was destroyed. No event is reported as read.
pub(super) fn destroyed(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    call.copy_to(srq::destroy::RESP, DestroySrqResp::default().as_bytes())
}

/// `ib_uverbs_destroy_srq`.
pub(super) fn destroy(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: DestroySrq = call.request()?;
    call.destroy(request.srq_handle, Kind::Srq)?;
    call.respond(&DestroySrqResp::default())
}

/// `ib_uverbs_modify_srq`.
pub(super) fn modify(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: ModifySrq = call.request()?;
    let id = call.lookup(Kind::Srq, request.srq_handle.into())?.id;
    // rxe requires a place for the description of a new ring, even if there will be none.
    let told = call.find(UHW_IN).filter(|found| usize::from(found.len) >= size_of::<ModifySrqCmd>());
    let told = told.ok_or(Errno::EINVAL)?;
    let most = call.state.profile.max_qp_wr;
    let srq = call.state.srqs.get(&id).ok_or(Errno::EINVAL)?;
    let (resize, arm) = (request.attr_mask & MAX_WR != 0, request.attr_mask & LIMIT != 0);
    // `rxe_srq_chk_attr`
    if resize && (request.max_wr == 0 || request.max_wr > most || request.max_wr < srq.limit) {
        return Err(Errno::EINVAL);
    }
    if arm && request.srq_limit > srq.ring.geometry().capacity() {
        return Err(Errno::EINVAL);
    }
    if resize {
        change_ring(call, id, request.max_wr, told.index)?;
    }
    if let Some(srq) = call.state.srqs.get_mut(&id).filter(|_| arm) {
        srq.limit = request.srq_limit;
    }
    Ok(())
}

/// Another ring, with the contents of the old one. Attribute `told` is the place for its description (`rxe_queue_resize`).
fn change_ring(call: &mut Call<'_, '_, '_>, id: u32, max_wr: u32, told: usize) -> Result<(), Errno> {
    call.command.place(told).ok_or(Errno::EFAULT)?;
    let srq = call.state.srqs.get(&id).ok_or(Errno::EINVAL)?;
    let (geometry, map) = Geometry::create(max_wr, slot_size(srq.max_sge))?;
    let waiting = srq.ring.available();
    if waiting > geometry.capacity() {
        return Err(Errno::EINVAL);
    }
    let mi = offer(call, map.clone());
    let (file, srq) = (call.file, call.state.srqs.get_mut(&id).ok_or(Errno::EINVAL)?);
    let mut slots = Producer::new(map.clone(), geometry);
    // Slots of both rings have the same size, and are read and written completely.
    let mut slot = vec![0; geometry.slot_size()];
    for _ in 0..waiting {
        let moved = srq.ring.read(0, &mut slot) && slots.write(0, &slot);
        srq.ring.advance();
        if moved {
            slots.advance();
        }
    }
    slots.publish();
    srq.ring.release();
    (srq.ring, srq.granted) = (Consumer::new(map, geometry), max_wr);
    let old = std::mem::replace(&mut srq.offset, mi.offset);
    call.state.forget(file, &[old]);
    if let Some(place) = call.command.place(told) {
        *place = zerocopy::transmute!(mi);
    }
    Ok(())
}

fn slot_size(max_sge: u32) -> usize {
    size_of::<RecvWqe>() + max_sge as usize * size_of::<Sge>()
}

/// `ib_uverbs_query_srq`.
pub(super) fn query(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: QuerySrq = call.request()?;
    let id = call.lookup(Kind::Srq, request.srq_handle.into())?.id;
    let srq = call.state.srqs.get(&id).ok_or(Errno::EINVAL)?;
    let response =
        QuerySrqResp { max_wr: srq.granted, max_sge: srq.max_sge, srq_limit: srq.limit, reserved: 0 };
    call.respond(&response)
}

impl State {
    /// Finishes the oldest receive of a shared queue.
    pub(super) fn take_shared(&mut self, id: u32) {
        let Some(srq) = self.srqs.get_mut(&id) else { return };
        srq.ring.advance();
        srq.ring.release();
        if srq.ring.available() >= srq.limit {
            return;
        }
        srq.limit = 0;
        if let Some(events) = srq.events.and_then(|events| self.events.get(&events)) {
            events.asynchronous(About::Srq(id), event_type::SRQ_LIMIT_REACHED, srq.user_handle);
        }
    }
}
