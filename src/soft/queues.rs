//! Making and destroying completion queues and queue pairs.
//!
//! Source: uverbs_std_types_cq.c and uverbs_std_types_qp.c; the driver's part as rxe does it (`rxe_create_cq`,
//! `rxe_create_qp`), for RAW_PACKET only; Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::ids::{cq, qp};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::rxe::{CreateCqResp, CreateQpResp, Mminfo, RecvWqe, SendWqe, Sge};
use uverbs_abi::types::{CqFlags, QpCreateFlags, qp_state, qp_type};
use uverbs_abi::write::{DestroyCqResp, DestroyQpResp, QpCap, ReqNotifyCq, Wc};
use zerocopy::{Immutable, IntoBytes};

use super::call::Call;
use super::context::COMP_VECTORS;
use super::table::Kind;
use crate::mapping::Mapping;
use crate::provider::ring::{Consumer, Geometry, Producer};

/// Most bytes that travel inside a send request, as on mlx5.
const MAX_INLINE: u32 = 928;

/// What a completion queue announces next.
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
    /// It was full when a completion came: there will be no more.
    pub(super) overrun: bool,
    /// Queue pairs on it; one that sends and receives on it counts twice.
    pub(super) uses: u32,
}

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) file: u32,
    pub(super) pd: u32,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    pub(super) user_handle: u64,
    pub(super) events: Option<u32>,
    /// One of [`qp_state`].
    pub(super) state: u8,
    pub(super) port: u8,
    pub(super) cap: QpCap,
    pub(super) signal_all: bool,
    pub(super) sends: Consumer,
    pub(super) receives: Consumer,
    pub(super) offsets: [u64; 2],
    /// Flows that deliver to it.
    pub(super) uses: u32,
}

/// Tells the driver's answer; the caller must have room for all of it.
fn driver_answer<T: IntoBytes + Immutable>(call: &mut Call<'_, '_, '_>, answer: &T) -> Result<(), Errno> {
    let found = call.find(UHW_OUT).ok_or(Errno::EINVAL)?;
    call.write(found, 0, answer.as_bytes())
}

fn needs_room<T>(call: &Call<'_, '_, '_>) -> Result<(), Errno> {
    let room = call.find(UHW_OUT).map_or(0, |found| usize::from(found.len));
    if room < size_of::<T>() { Err(Errno::EINVAL) } else { Ok(()) }
}

fn offer(call: &mut Call<'_, '_, '_>, map: Mapping) -> Mminfo {
    // Rings are far smaller than 4 GiB: the profile bounds their slots.
    let size = map.len() as u32;
    Mminfo { offset: call.state.offer(call.file, map), size, pad: 0 }
}

/// The event file that is named, or the file's first.
fn event_file(call: &Call<'_, '_, '_>, id: u16) -> Option<u32> {
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
    if vector >= COMP_VECTORS {
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
    call.copy_to(RESP_CQE, &geometry.capacity().to_ne_bytes())
}

/// `UVERBS_METHOD_CQ_DESTROY`; the queue is gone by now. Nothing tells the device what has been read of an
/// event file, so no event is reported as read.
pub(super) fn destroyed_cq(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    call.copy_to(cq::destroy::RESP, DestroyCqResp::default().as_bytes())
}

/// `ib_uverbs_req_notify_cq`.
pub(super) fn req_notify_cq(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: ReqNotifyCq = call.request()?;
    let id = call.lookup(Kind::Cq, request.cq_handle.into())?.id;
    let cq = call.state.cqs.get_mut(&id).ok_or(Errno::EINVAL)?;
    // The stronger wish stays (`rxe_req_notify_cq`).
    if request.solicited_only == 0 {
        cq.armed = Armed::Next;
    } else if cq.armed == Armed::No {
        cq.armed = Armed::Solicited;
    }
    call.state.flush_late(id);
    Ok(())
}

/// The order of the kernel: what the core asks of every queue pair, then what this device can.
fn check_qp(call: &Call<'_, '_, '_>) -> Result<QpCreateFlags, Errno> {
    use qp::create::{FLAGS, PD_HANDLE, RECV_CQ_HANDLE, SEND_CQ_HANDLE, TYPE};
    // The test keeps this number within its type.
    let kind = call.constant(TYPE, u8::MAX.into())? as u8;
    match kind {
        qp_type::XRC_TGT => {
            let unwanted = [PD_HANDLE, SEND_CQ_HANDLE, RECV_CQ_HANDLE];
            let unwanted = unwanted.iter().any(|id| call.find(*id).is_some());
            // The domain of extended connections that it needs cannot exist here.
            return Err(if unwanted { Errno::EINVAL } else { Errno::ENOENT });
        }
        qp_type::RAW_PACKET
        | qp_type::RC
        | qp_type::UC
        | qp_type::UD
        | qp_type::XRC_INI
        | qp_type::DRIVER => {}
        _ => return Err(Errno::EINVAL),
    }
    call.object(PD_HANDLE)?;
    call.object(SEND_CQ_HANDLE)?;
    if kind != qp_type::XRC_INI {
        call.object(RECV_CQ_HANDLE)?;
    }
    let flags = QpCreateFlags::from_bits_retain(call.flags(FLAGS, QpCreateFlags::all().bits())?);
    // check_creation_flags
    let special = flags - QpCreateFlags::SQ_SIG_ALL;
    let raw_only = QpCreateFlags::SCATTER_FCS | QpCreateFlags::CVLAN_STRIPPING;
    let wrong = match kind {
        qp_type::DRIVER | qp_type::RAW_PACKET => false,
        qp_type::UD => special.intersects(raw_only),
        _ => !special.is_empty(),
    };
    if wrong {
        return Err(Errno::EINVAL);
    }
    needs_room::<CreateQpResp>(call)?;
    // Later kernels than 6.1 look at this.
    if call.find(UHW_IN).is_some_and(|found| found.len > 0) {
        return Err(Errno::EINVAL);
    }
    if !special.is_empty() || call.find(qp::create::SOURCE_QPN).is_some() || kind != qp_type::RAW_PACKET {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(flags)
}

/// `rxe_qp_chk_cap`; and mlx5 refuses a queue pair without any queue.
fn check_cap(call: &Call<'_, '_, '_>, cap: &QpCap) -> Result<(), Errno> {
    let profile = &call.state.profile;
    let too_much = cap.max_send_wr > profile.max_qp_wr
        || cap.max_recv_wr > profile.max_qp_wr
        || cap.max_send_sge > profile.max_sge
        || cap.max_recv_sge > profile.max_sge
        || cap.max_inline_data > MAX_INLINE;
    if too_much || (cap.max_send_wr == 0 && cap.max_recv_wr == 0) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// `UVERBS_METHOD_QP_CREATE`.
pub(super) fn create_qp(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use qp::create::{
        CAP, EVENT_FD, PD_HANDLE, RECV_CQ_HANDLE, RESP_CAP, RESP_QP_NUM, SEND_CQ_HANDLE, USER_HANDLE,
    };
    let mut cap: QpCap = call.value(CAP)?;
    let user_handle = call.value(USER_HANDLE)?;
    let flags = check_qp(call)?;
    check_cap(call, &cap)?;
    if call.state.qps.len() >= call.state.profile.max_qp as usize {
        return Err(Errno::ENOMEM);
    }
    let [pd, send_cq, recv_cq] = [PD_HANDLE, SEND_CQ_HANDLE, RECV_CQ_HANDLE].map(|id| call.object(id));
    let (pd, send_cq, recv_cq) = (pd?.id, send_cq?.id, recv_cq?.id);

    let piece = size_of::<Sge>();
    // Both were checked against small limits.
    let inline =
        (cap.max_send_sge as usize * piece).max(cap.max_inline_data as usize).next_multiple_of(piece);
    let (send_geometry, send_map) = Geometry::create(cap.max_send_wr, size_of::<SendWqe>() + inline)?;
    let recv_size = size_of::<RecvWqe>() + cap.max_recv_sge as usize * piece;
    let (recv_geometry, recv_map) = Geometry::create(cap.max_recv_wr, recv_size)?;
    cap.max_send_wr = send_geometry.capacity();
    cap.max_recv_wr = recv_geometry.capacity();
    cap.max_send_sge = (inline / piece) as u32;
    cap.max_inline_data = inline as u32;

    let sends = Consumer::new(send_map.clone(), send_geometry);
    let receives = Consumer::new(recv_map.clone(), recv_geometry);
    let answer = CreateQpResp { rq_mi: offer(call, recv_map), sq_mi: offer(call, send_map) };
    let number = call.state.number(|state| &state.qps);
    let qp = Qp {
        file: call.file,
        pd,
        send_cq,
        recv_cq,
        user_handle,
        events: event_file(call, EVENT_FD),
        state: qp_state::RESET,
        port: 0,
        cap,
        signal_all: flags.contains(QpCreateFlags::SQ_SIG_ALL),
        sends,
        receives,
        offsets: [answer.rq_mi.offset, answer.sq_mi.offset],
        uses: 0,
    };
    call.state.qps.insert(number, qp);
    call.state.use_by_qp(pd, [send_cq, recv_cq]);
    call.made(number);
    driver_answer(call, &answer)?;
    call.copy_to_or_zero(RESP_CAP, &cap)?;
    call.copy_to(RESP_QP_NUM, &number.to_ne_bytes())
}

/// `UVERBS_METHOD_QP_DESTROY`; the queue pair is gone by now. See [`destroyed_cq`].
pub(super) fn destroyed_qp(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    call.copy_to(qp::destroy::RESP, DestroyQpResp::default().as_bytes())
}
