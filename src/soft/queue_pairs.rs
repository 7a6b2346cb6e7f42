//! Creating and destroying queue pairs.
//!
//! Source: uverbs_std_types_qp.c; the driver's part is that of rxe (`rxe_create_qp`, `rxe_qp_chk_init`, `rxe_qp_from_init`), also for
//! RAW_PACKET, which rxe does not have; Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::ids::qp;
use uverbs_abi::ioctl::UHW_IN;
use uverbs_abi::rxe::{CreateQpResp, Mminfo, RecvWqe, SendWqe, Sge};
use uverbs_abi::types::{CompCntrOps, QpCreateFlags, mtu, qp_state, qp_type};
use uverbs_abi::write::{DestroyQpResp, ModifyQp, QpCap};
use zerocopy::{FromZeros, IntoBytes};

use super::call::Call;
use super::gids::Gid;
use super::profile::Profile;
use super::queues::{driver_answer, event_file, needs_room, offer};
use super::ring::Consumer;
use super::state::State;
use super::wire::link::Link;
use super::xrc::{self, NONE};
use crate::driver::ring::Geometry;

/// Maximum number of inline bytes of a send request, as on mlx5.
const MAX_INLINE: u32 = 928;

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) file: u32,
    /// One of [`qp_type`].
    pub(super) kind: u8,
    pub(super) pd: u32,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    /// The source of receives, if it is not an own ring.
    pub(super) srq: Option<u32>,
    /// The number of the domain of a target of extended reliable connections.
    pub(super) domain: Option<u32>,
    pub(super) user_handle: u64,
    pub(super) events: Option<u32>,
    /// One of [`qp_state`].
    pub(super) state: u8,
    pub(super) port: u8,
    /// All other attributes, as they were last set. Sequence numbers increase from there.
    pub(super) attrs: ModifyQp,
    /// The multicast groups to which it is attached.
    pub(super) groups: Vec<(Gid, u16)>,
    /// It is being drained, and the oldest request has begun but not ended.
    pub(super) draining: bool,
    /// The position, counted from the oldest request, of one that waits for itself ([`Profile::waits_for_itself`]).
    pub(super) stuck_after: Option<u32>,
    pub(super) cap: QpCap,
    pub(super) signal_all: bool,
    pub(super) sends: Consumer,
    /// `None` if receives come from a shared queue.
    pub(super) receives: Option<Consumer>,
    pub(super) offsets: Vec<u64>,
    /// The attached completion counters, and what each counts.
    pub(super) counters: Vec<(u32, CompCntrOps)>,
    /// Number of flows that deliver to it.
    pub(super) uses: u32,
    /// What it has on the wire, if its device has one.
    pub(super) link: Option<Box<Link>>,
}

impl Qp {
    /// Whether it can receive messages.
    pub(super) fn can_receive(&self) -> bool {
        matches!(self.state, qp_state::RTR | qp_state::RTS | qp_state::SQD | qp_state::SQE)
    }

    /// Whether only its send queue has stopped, and flushes what is posted.
    pub(super) fn has_stopped_sends(&self) -> bool {
        self.state == qp_state::SQE
    }

    /// Number of receives in its own ring.
    pub(super) fn posted(&self) -> u32 {
        self.receives.as_ref().map_or(0, Consumer::available)
    }
}

/// Whether requests of a queue pair of this type are acknowledged.
pub(super) fn is_reliable(kind: u8) -> bool {
    matches!(kind, qp_type::RC | qp_type::XRC_INI)
}

/// In the order of the kernel: the core's checks for every queue pair, then those of this device.
fn check_qp(call: &Call<'_, '_, '_>) -> Result<(u8, QpCreateFlags), Errno> {
    use qp::create::{FLAGS, PD_HANDLE, RECV_CQ_HANDLE, SEND_CQ_HANDLE, SRQ_HANDLE, TYPE, XRCD_HANDLE};
    // The check keeps this number within its type.
    let kind = call.constant(TYPE, u8::MAX.into())? as u8;
    match kind {
        qp_type::XRC_TGT => {
            let unwanted = [PD_HANDLE, SEND_CQ_HANDLE, RECV_CQ_HANDLE];
            if unwanted.iter().any(|id| call.find(*id).is_some()) {
                return Err(Errno::EINVAL);
            }
            call.object(XRCD_HANDLE)?;
        }
        qp_type::RAW_PACKET
        | qp_type::RC
        | qp_type::UC
        | qp_type::UD
        | qp_type::XRC_INI
        | qp_type::DRIVER => {
            let is_shared = kind == qp_type::XRC_INI && call.find(SRQ_HANDLE).is_some();
            if is_shared || call.find(XRCD_HANDLE).is_some() {
                return Err(Errno::EINVAL);
            }
            call.object(PD_HANDLE)?;
            call.object(SEND_CQ_HANDLE)?;
            if kind != qp_type::XRC_INI {
                call.object(RECV_CQ_HANDLE)?;
            }
        }
        _ => return Err(Errno::EINVAL),
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
    if let Ok(srq) = call.object(SRQ_HANDLE) {
        let is_extended = call.state.srqs.get(&srq.id).is_some_and(|srq| srq.xrc.is_some());
        if is_extended != (kind == qp_type::XRC_TGT) {
            return Err(Errno::EINVAL);
        }
    }
    if kind == qp_type::XRC_TGT {
        return if special.is_empty() { Ok((kind, flags)) } else { Err(Errno::EOPNOTSUPP) };
    }
    needs_room::<CreateQpResp>(call)?;
    // Kernels after 6.1 check this.
    if call.find(UHW_IN).is_some_and(|found| found.len > 0) {
        return Err(Errno::EINVAL);
    }
    let has_more = !special.is_empty() || call.find(qp::create::SOURCE_QPN).is_some();
    // mlx5 can receive raw packets from a shared queue. Here the ring distinguishes frames from messages.
    let shared = kind == qp_type::RAW_PACKET && call.find(qp::create::SRQ_HANDLE).is_some();
    let has_none = match kind {
        qp_type::DRIVER => true,
        qp_type::XRC_INI => !call.state.profile.has_xrc(),
        qp_type::RAW_PACKET => !call.state.profile.has_raw_packets(),
        _ => false,
    };
    if has_more || shared || has_none {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok((kind, flags))
}

/// `rxe_qp_chk_cap`; and mlx5 refuses raw packet queue pairs without any queue.
fn check_cap(profile: &Profile, kind: u8, cap: &QpCap, has_srq: bool) -> Result<(), Errno> {
    let receives = cap.max_recv_wr > profile.max_qp_wr || cap.max_recv_sge > profile.max_sge;
    let too_much = cap.max_send_wr > profile.max_qp_wr
        || cap.max_send_sge > profile.max_sge
        || (receives && !has_srq)
        || cap.max_inline_data > MAX_INLINE;
    let nothing = kind == qp_type::RAW_PACKET && cap.max_send_wr == 0 && cap.max_recv_wr == 0;
    if too_much || nothing { Err(Errno::EINVAL) } else { Ok(()) }
}

/// `UVERBS_METHOD_QP_CREATE`.
pub(super) fn create_qp(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use qp::create::{
        CAP, EVENT_FD, PD_HANDLE, RECV_CQ_HANDLE, RESP_CAP, RESP_QP_NUM, SEND_CQ_HANDLE, USER_HANDLE,
    };
    let mut cap: QpCap = call.value(CAP)?;
    let user_handle = call.value(USER_HANDLE)?;
    let (kind, flags) = check_qp(call)?;
    if kind == qp_type::XRC_TGT {
        return xrc::create_target(call, user_handle);
    }
    let is_initiator = kind == qp_type::XRC_INI;
    if is_initiator {
        // It receives nothing.
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    let srq = call.object(qp::create::SRQ_HANDLE).ok().map(|srq| srq.id);
    check_cap(&call.state.profile, kind, &cap, srq.is_some())?;
    if call.state.qps.len() >= call.state.profile.max_qp as usize {
        return Err(Errno::ENOMEM);
    }
    let (pd, send_cq) = (call.object(PD_HANDLE)?.id, call.object(SEND_CQ_HANDLE)?.id);
    let recv_cq = if is_initiator { NONE } else { call.object(RECV_CQ_HANDLE)?.id };

    let piece = size_of::<Sge>();
    // Both were checked against small limits.
    let inline =
        (cap.max_send_sge as usize * piece).max(cap.max_inline_data as usize).next_multiple_of(piece);
    let (geometry, send_map) = Geometry::create(cap.max_send_wr, size_of::<SendWqe>() + inline)?;
    // What a ring holds in addition can be used, but not asked for.
    let Profile { max_qp_wr, max_sge, .. } = call.state.profile;
    cap.max_send_wr = geometry.capacity().min(max_qp_wr);
    cap.max_send_sge = ((inline / piece) as u32).min(max_sge);
    cap.max_inline_data = inline as u32;
    let sends = Consumer::new(send_map.clone(), geometry);
    let (receives, rq_mi) = if srq.is_some() || is_initiator {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        (None, Mminfo::new_zeroed())
    } else {
        let size = size_of::<RecvWqe>() + cap.max_recv_sge as usize * piece;
        let (geometry, map) = Geometry::create(cap.max_recv_wr, size)?;
        cap.max_recv_wr = geometry.capacity().min(max_qp_wr);
        (Some(Consumer::new(map.clone(), geometry)), offer(call, map))
    };
    let answer = CreateQpResp { rq_mi, sq_mi: offer(call, send_map) };
    let mut offsets = vec![answer.sq_mi.offset];
    offsets.extend(receives.is_some().then_some(rq_mi.offset));
    let number = call.state.qp_number();
    let qp = Qp {
        file: call.file,
        kind,
        pd,
        send_cq,
        recv_cq,
        srq,
        domain: None,
        user_handle,
        events: event_file(call, EVENT_FD),
        state: qp_state::RESET,
        port: 0,
        attrs: ModifyQp { path_mtu: mtu::MTU_256, ..ModifyQp::new_zeroed() },
        groups: Vec::new(),
        counters: Vec::new(),
        draining: false,
        stuck_after: None,
        cap,
        signal_all: flags.contains(QpCreateFlags::SQ_SIG_ALL),
        sends,
        receives,
        offsets,
        uses: 0,
        link: None,
    };
    call.state.qps.insert(number, qp);
    call.state.use_by_qp(pd, [send_cq, recv_cq], srq);
    call.made(number);
    driver_answer(call, &answer)?;
    call.copy_to_or_zero(RESP_CAP, &cap)?;
    call.copy_to(RESP_QP_NUM, &number.to_ne_bytes())
}

/// `UVERBS_METHOD_QP_DESTROY`, after the queue pair was destroyed. No event is reported as read.
pub(super) fn destroyed_qp(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    call.copy_to(qp::destroy::RESP, DestroyQpResp::default().as_bytes())
}

impl State {
    /// Counts a new queue pair as a user of these objects.
    fn use_by_qp(&mut self, pd: u32, cqs: [u32; 2], srq: Option<u32>) {
        if let Some(srq) = srq.and_then(|srq| self.srqs.get_mut(&srq)) {
            srq.uses += 1;
        }
        if let Some(pd) = self.pds.get_mut(&pd) {
            pd.uses += 1;
        }
        for cq in cqs {
            if let Some(cq) = self.cqs.get_mut(&cq) {
                cq.uses += 1;
            }
        }
    }
}
