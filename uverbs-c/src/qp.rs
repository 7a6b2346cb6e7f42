//! Queue pairs: creating, changing and querying them.

mod open;
mod others;

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;

use uverbs::abi::types::{QpAttrMask, QpCreateFlags, SendFlags, qp_state, qp_type};
use uverbs::abi::write::{AhAttr, GlobalRoute, ModifyQp, QpCap, QpDest};
use uverbs::raw::{DriverQp, Facts, QueuePair, QueuePairInit, ReceiveQueue, RequestKind};
use uverbs::{Capacity, HashFields};
use zerocopy::FromZeros;

pub(crate) use self::open::open_qp;
pub(crate) use self::others::{attach_mcast, detach_mcast, query_qp_data_in_order};
use crate::abi::{self, QpAttr, QpInitAttr, QpInitAttrEx};
use crate::answer::{Answer, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::{Given, Lock, Pointer};
use crate::channel::Acknowledged;
use crate::context::Context;
use crate::cq::Cq;
use crate::domain::{self, Uses};
use crate::owned::{Owned, end_shared};
use crate::pd::Pd;
use crate::post::{self, Post, Sending, post_any};
use crate::providers::QpPart;
use crate::providers::rings::{NoRings, with_rings};
use crate::qp_ex::{self, Setters};
use crate::srq::Srq;
use crate::wq::Table;
use crate::xrcd::Xrcd;

#[repr(C)]
pub(crate) struct Qp {
    pub(crate) c: abi::QpEx,
    /// It has its own lock: the send queue is locked between `wr_start` and `wr_complete`, and this may be queried meanwhile.
    pub(crate) qp: Lock<Owned<QueuePair>>,
    pub(crate) sends: Lock<Sending>,
    pub(crate) receives: Lock<Option<ReceiveQueue>>,
    /// The function that posts its sends.
    pub(crate) post: Post,
    /// The functions that set the data of the operation that was begun last.
    pub(crate) setters: Cell<&'static Setters>,
    /// A request that is too large for the queue is reported as if the queue were full, as libmlx5 does.
    pub(crate) is_like_libmlx5: bool,
    /// The flags that every send request has: whether each has a completion.
    all_flags: u32,
    /// Whether it was created for the extended interface.
    is_extended: bool,
    /// Whether it uses a table of work queues. It then has no states and no own queues.
    is_spread: bool,
    /// Whether each request names its destination: datagrams, including reliable ones.
    is_datagram: bool,
    pub(crate) events: Acknowledged,
    pub(crate) own: QpPart,
    domain: Option<Uses>,
}

impl Qp {
    #[inline]
    pub(crate) fn is_raw_packet(&self) -> bool {
        self.c.qp_base.qp_type == u32::from(qp_type::RAW_PACKET)
    }

    /// Whether each of its requests names a shared receive queue of the peer.
    #[inline]
    pub(crate) fn is_initiator(&self) -> bool {
        self.c.qp_base.qp_type == u32::from(qp_type::XRC_INI)
    }

    #[inline]
    pub(crate) fn is_datagram(&self) -> bool {
        self.is_datagram
    }

    /// The kind of its requests.
    pub(crate) fn kind(&self) -> RequestKind {
        if self.is_raw_packet() {
            RequestKind::Frames
        } else if self.is_datagram() || self.is_initiator() {
            RequestKind::Addressed
        } else {
            RequestKind::Messages
        }
    }

    /// The flags of a request.
    #[inline]
    pub(crate) fn flags(&self, wanted: u32) -> SendFlags {
        SendFlags::from_bits_retain(wanted | self.all_flags)
    }
}

/// `enum ibv_qp_init_attr_mask`.
pub(crate) const HAS_PD: u32 = 1 << 0;
const HAS_XRCD: u32 = 1 << 1;
const HAS_CREATE_FLAGS: u32 = 1 << 2;
const HAS_LARGE: u32 = 1 << 3;
const HAS_TABLE: u32 = 1 << 4;
const HAS_HASH: u32 = 1 << 5;
const HAS_SEND_OPS: u32 = 1 << 6;

/// `IBV_RX_HASH_FUNC_TOEPLITZ`.
const TOEPLITZ: u8 = 1;

/// A queue pair over a table of work queues.
fn make_rss(init: &QpInitAttrEx, driver_flags: u16) -> Answer<Box<Qp>> {
    let hash = &init.rx_hash_conf;
    let raw_packet = u32::from(qp_type::RAW_PACKET);
    let has_flags = init.comp_mask & HAS_CREATE_FLAGS != 0 && init.create_flags != 0;
    if init.comp_mask & !HAS_CREATE_FLAGS != HAS_PD | HAS_TABLE | HAS_HASH
        || has_flags
        || init.qp_type != raw_packet
        || hash.rx_hash_function != TOEPLITZ
    {
        return Err(EOPNOTSUPP);
    }
    let pd = init.pd.get::<Pd>().ok_or(EINVAL)?;
    let table = init.rwq_ind_tbl.get::<Table>().ok_or(EINVAL)?;
    let fields = HashFields::from_bits(hash.rx_hash_fields_mask).ok_or(EOPNOTSUPP)?;
    let key = hash.rx_hash_key.array::<u8>(hash.rx_hash_key_len.into()).ok_or(EINVAL)?;
    let key = <[u8; 40]>::try_from(key).map_err(|_| EINVAL)?;
    let builder = pd.pd.get()?.rss(table.table.get()?).hash(fields).key(key).driver_flags(driver_flags);
    let made = QueuePair::from(builder.create()?);
    Ok(without_queues(empty(pd.c.context, init.pd, init), made))
}

/// A queue pair that was created and has no own queues.
fn without_queues(mut qp: Box<Qp>, made: QueuePair) -> Box<Qp> {
    (qp.c.qp_base.handle, qp.c.qp_base.qp_num) = (made.handle(), made.number());
    qp.qp = Lock::new(Owned::new(made));
    qp
}

/// A receiving queue pair of an extended connection.
fn make_target(context: Option<&Context>, init: &QpInitAttrEx) -> Answer<Box<Qp>> {
    if init.comp_mask & HAS_XRCD == 0 {
        return Err(EINVAL);
    }
    let context = context.ok_or(EINVAL)?;
    context.context.needs_xrc("qp.create")?;
    let xrcd = init.xrcd.get::<Xrcd>().ok_or(EINVAL)?;
    let of_none =
        QpInitAttrEx { send_cq: Pointer::NULL, recv_cq: Pointer::NULL, srq: Pointer::NULL, ..*init };
    // The kernel gets no protection domain, but librdmacm reads the one that it passed.
    let qp = empty(Pointer::to(context), init.pd, &of_none);
    let cookie = Pointer::cookie(&*qp);
    let made = QueuePair::from(xrcd.xrcd.get()?.receive_qp().cookie(cookie).create()?);
    Ok(without_queues(qp, made))
}

/// A queue pair that is not created yet.
fn empty(context: Pointer, pd: Pointer, init: &QpInitAttrEx) -> Box<Qp> {
    let mut qp = Box::new(Qp {
        c: qp_ex::part(context, pd, init),
        qp: Lock::default(),
        sends: Lock::default(),
        receives: Lock::default(),
        post: post_any::<NoRings>,
        setters: Cell::new(Setters::ANY),
        is_like_libmlx5: false,
        all_flags: if init.sq_sig_all != 0 { SendFlags::SIGNALED.bits() } else { 0 },
        is_extended: init.comp_mask & HAS_SEND_OPS != 0,
        is_spread: init.comp_mask & HAS_TABLE != 0,
        is_datagram: [qp_type::UD, qp_type::DRIVER].map(u32::from).contains(&init.qp_type),
        events: Acknowledged::default(),
        own: QpPart::new(Pointer::NULL),
        domain: None,
    });
    qp.own = QpPart::new(Pointer::to(&*qp));
    qp
}

/// Properties that only one driver has.
pub(crate) struct Own {
    pub(crate) driver: DriverQp,
    /// The operations of the extended interface, for a queue pair of the driver's own type.
    pub(crate) operations: Option<u64>,
}

fn make(context: Option<&Context>, init: &mut QpInitAttrEx) -> Answer<Box<Qp>> {
    make_own(context, init, None)
}

/// Creates a queue pair, with the driver's own options if `own` is given.
pub(crate) fn make_own(
    context: Option<&Context>,
    init: &mut QpInitAttrEx,
    own: Option<&Own>,
) -> Answer<Box<Qp>> {
    let is_target = init.qp_type == u32::from(qp_type::XRC_TGT);
    let of_target = if is_target { HAS_XRCD } else { 0 };
    let known = HAS_PD | of_target | HAS_CREATE_FLAGS | HAS_LARGE | HAS_SEND_OPS;
    let has = |bit: u32| init.comp_mask & bit != 0;
    if has(HAS_TABLE) {
        return make_rss(init, own.map_or(0, |own| own.driver.flags));
    }
    let is_extended = has(HAS_SEND_OPS);
    let wanted_flags = if has(HAS_CREATE_FLAGS) { init.create_flags } else { 0 };
    let of_driver = own.and_then(|own| own.operations);
    let supported = of_driver.unwrap_or_else(|| qp_ex::supported(init.qp_type));
    let is_driver = init.qp_type == u32::from(qp_type::DRIVER);
    if init.comp_mask & !known != 0
        || (is_extended && init.send_ops_flags & !supported != 0)
        || is_driver != of_driver.is_some()
    {
        return Err(EOPNOTSUPP);
    }
    if is_target {
        return make_target(context, init);
    }
    let type_ = u8::try_from(init.qp_type).map_err(|_| EOPNOTSUPP)?;
    let is_initiator = type_ == qp_type::XRC_INI;
    let pd = init.pd.get::<Pd>().filter(|_| has(HAS_PD)).ok_or(EINVAL)?;
    if is_extended && qp_ex::lacks(pd.pd.get()?.context(), init.send_ops_flags) {
        return Err(EOPNOTSUPP);
    }
    let send = init.send_cq.get::<Cq>().ok_or(EINVAL)?;
    // A queue pair that only sends does not use the other queue, which need not exist.
    let recv = if is_initiator { send } else { init.recv_cq.get::<Cq>().ok_or(EINVAL)? };
    let srq = init.srq.get::<Srq>();
    let mut qp = empty(pd.c.context, init.pd, init);
    let flags = QpCreateFlags::from_bits(wanted_flags).ok_or(EOPNOTSUPP)?;
    let all = if init.sq_sig_all != 0 { QpCreateFlags::SQ_SIG_ALL } else { QpCreateFlags::empty() };
    let cap = &init.cap;
    let (made, sends, receives) = {
        let queue = srq.map(|srq| srq.queue.lock()).transpose()?;
        let init = QueuePairInit {
            type_,
            send_cq: &send.object,
            receive_cq: &recv.object,
            srq: queue.as_deref().map(Owned::get).transpose()?,
            capacity: Capacity {
                sends: cap.max_send_wr,
                receives: cap.max_recv_wr,
                send_segments: cap.max_send_sge,
                receive_segments: cap.max_recv_sge,
                inline: cap.max_inline_data,
                large_header: if has(HAS_LARGE) { init.max_tso_header.into() } else { 0 },
            },
            operations: is_extended.then_some(init.send_ops_flags),
            cookie: Pointer::cookie(&*qp),
            flags: flags | all,
        };
        let driver = own.map_or_else(DriverQp::default, |own| own.driver);
        pd.pd.get()?.create_driver_parts(&init, driver)?
    };
    let real = made.capacity();
    // With a shared queue there is no own one. librxe keeps the requested sizes; libmlx5 returns zero.
    let context = pd.pd.get()?.context();
    let is_like_libmlx5 = with_rings!(context, R => R::IS_LIKE_LIBMLX5);
    let (max_recv_wr, max_recv_sge) = match srq {
        _ if is_initiator => (0, 0),
        Some(_) if is_like_libmlx5 => (0, 0),
        Some(_) => (init.cap.max_recv_wr, init.cap.max_recv_sge),
        None => (real.receives, real.receive_segments),
    };
    init.cap = QpCap {
        max_send_wr: real.sends,
        max_recv_wr,
        max_send_sge: real.send_segments,
        max_recv_sge,
        max_inline_data: real.inline,
    };
    (qp.c.qp_base.handle, qp.c.qp_base.qp_num) = (made.handle(), made.number());
    (qp.is_like_libmlx5, qp.domain) = (is_like_libmlx5, domain::used(pd));
    with_rings!(context, R => {
        qp.post = post::choose::<R>(&qp, &sends);
        qp_ex::choose::<R>(&mut qp);
    });
    qp.sends = Lock::new(Sending::new(sends));
    qp.qp = Lock::new(Owned::new(made));
    qp.receives = Lock::new(receives);
    Ok(qp)
}

/// From the older structure.
pub(crate) fn make_plain(pd: Option<&Pd>, attr: &mut QpInitAttr, own: Option<&Own>) -> Answer<Box<Qp>> {
    let QpInitAttr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } = *attr;
    let pd = Pointer::to(pd.ok_or(EINVAL)?);
    let zero = QpInitAttrEx::new_zeroed();
    let given = QpInitAttrEx { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, ..zero };
    let mut init = QpInitAttrEx { pd, comp_mask: HAS_PD, ..given };
    // A receiving queue pair of an extended connection is created in another way.
    let qp = make_own(None, &mut init, own)?;
    attr.cap = init.cap;
    Ok(qp)
}

pub(crate) extern "C" fn create_qp(pd: Option<&Pd>, attr: Option<&mut QpInitAttr>) -> Option<Box<Qp>> {
    or_null(attr.ok_or(EINVAL).and_then(|attr| make_plain(pd, attr, None)))
}

pub(crate) extern "C" fn create_qp_ex(
    context: Option<&Context>,
    attr: Option<&mut QpInitAttrEx>,
) -> Option<Box<Qp>> {
    or_null(attr.ok_or(EINVAL).and_then(|attr| make(context, attr)))
}

pub(crate) extern "C" fn qp_to_qp_ex(qp: Option<&Qp>) -> Pointer {
    qp.filter(|qp| qp.is_extended).map_or(Pointer::NULL, Pointer::to)
}

pub(crate) extern "C" fn destroy_qp(qp: Given<Qp>) -> c_int {
    let destroyed = end_shared(qp, |qp| {
        let read = qp.qp.lock()?.destroy(QueuePair::destroy)?;
        qp.events.wait_for(read);
        Ok(())
    });
    returned(destroyed)
}

fn dest(attr: &AhAttr) -> QpDest {
    let GlobalRoute { dgid, flow_label, sgid_index, hop_limit, traffic_class, .. } = attr.grh;
    let AhAttr { dlid, sl, src_path_bits, static_rate, is_global, port_num, .. } = *attr;
    QpDest {
        dgid,
        flow_label,
        dlid,
        reserved: 0,
        sgid_index,
        hop_limit,
        traffic_class,
        sl,
        src_path_bits,
        static_rate,
        is_global,
        port_num,
    }
}

fn ah_attr(dest: &QpDest) -> AhAttr {
    let QpDest { dgid, flow_label, sgid_index, hop_limit, traffic_class, .. } = *dest;
    let QpDest { dlid, sl, src_path_bits, static_rate, is_global, port_num, .. } = *dest;
    let grh = GlobalRoute { dgid, flow_label, sgid_index, hop_limit, traffic_class, reserved: 0 };
    AhAttr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num, reserved: 0 }
}

/// The attributes that the commands of every kernel have; `IBV_QP_RATE_LIMIT` is not among them.
const KNOWN: u32 = QpAttrMask::DEST_QPN.bits() * 2 - 1;

fn modify(qp: Option<&Qp>, attr: Option<&QpAttr>, mask: u32) -> Answer {
    let (qp, attr) = (qp.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    if mask & !KNOWN != 0 {
        return Err(EOPNOTSUPP);
    }
    let request = ModifyQp {
        dest: dest(&attr.ah_attr),
        alt_dest: dest(&attr.alt_ah_attr),
        attr_mask: mask,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: attr.qp_access_flags,
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        qp_state: attr.qp_state as u8,
        cur_qp_state: attr.cur_qp_state as u8,
        path_mtu: attr.path_mtu as u8,
        path_mig_state: attr.path_mig_state as u8,
        en_sqd_async_notify: attr.en_sqd_async_notify,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        ..ModifyQp::new_zeroed()
    };
    let mut sends = qp.sends.lock()?;
    let mut receives = qp.receives.lock()?;
    // A queue pair over a table has no states.
    if qp.is_spread {
        return Err(EOPNOTSUPP);
    }
    // A receiving queue pair of an extended connection has no queue.
    let queue = sends.queue.get_mut().ok();
    let made = qp.qp.lock()?;
    made.get()?.modify(&request, queue, receives.as_mut())?;
    let number = made.get()?.number();
    drop((made, sends, receives));
    if mask & QpAttrMask::STATE.bits() != 0 {
        qp.c.qp_base.state.set(attr.qp_state);
        if request.qp_state == qp_state::RESET {
            for cq in [qp.c.qp_base.send_cq, qp.c.qp_base.recv_cq] {
                cq.get::<Cq>().map_or(Ok(()), |cq| cq.forget(number))?;
            }
        }
    }
    Ok(())
}

pub(crate) extern "C" fn modify_qp(qp: Option<&Qp>, attr: Option<&QpAttr>, mask: c_int) -> c_int {
    returned(modify(qp, attr, mask as u32))
}

/// The attributes that can be queried: those below `IBV_QP_RATE_LIMIT`, with the bits that older headers had.
const ASKED: u32 = (1 << 25) - 1;

fn query(
    qp: Option<&Qp>,
    attr: Option<&mut MaybeUninit<QpAttr>>,
    mask: u32,
    init: Option<&mut MaybeUninit<QpInitAttr>>,
) -> Answer {
    let qp = qp.ok_or(EINVAL)?;
    if mask & !ASKED != 0 {
        return Err(EOPNOTSUPP);
    }
    let (answer, capacity) = {
        if qp.is_spread {
            return Err(EOPNOTSUPP);
        }
        let pair = qp.qp.lock()?;
        let pair = pair.get()?;
        (pair.query(QpAttrMask::from_bits_retain(mask))?, pair.capacity())
    };
    // The kernel's driver may return zero for queues of the process (mlx5_ib_query_qp, qp.c, Linux 6.1): their own sizes are used then.
    let known = |answer: u32, own: u32| if answer == 0 { own } else { answer };
    let cap = QpCap {
        max_send_wr: known(answer.max_send_wr, capacity.sends),
        max_recv_wr: answer.max_recv_wr,
        max_send_sge: known(answer.max_send_sge, capacity.send_segments),
        max_recv_sge: answer.max_recv_sge,
        max_inline_data: known(answer.max_inline_data, capacity.inline),
    };
    let base = &qp.c.qp_base;
    attr.ok_or(EINVAL)?.write(QpAttr {
        qp_state: answer.qp_state.into(),
        cur_qp_state: answer.cur_qp_state.into(),
        path_mtu: answer.path_mtu.into(),
        path_mig_state: answer.path_mig_state.into(),
        qkey: answer.qkey,
        rq_psn: answer.rq_psn,
        sq_psn: answer.sq_psn,
        dest_qp_num: answer.dest_qp_num,
        qp_access_flags: answer.qp_access_flags,
        cap,
        ah_attr: ah_attr(&answer.dest),
        alt_ah_attr: ah_attr(&answer.alt_dest),
        pkey_index: answer.pkey_index,
        alt_pkey_index: answer.alt_pkey_index,
        en_sqd_async_notify: 0,
        sq_draining: answer.sq_draining,
        max_rd_atomic: answer.max_rd_atomic,
        max_dest_rd_atomic: answer.max_dest_rd_atomic,
        min_rnr_timer: answer.min_rnr_timer,
        port_num: answer.port_num,
        timeout: answer.timeout,
        retry_cnt: answer.retry_cnt,
        rnr_retry: answer.rnr_retry,
        alt_port_num: answer.alt_port_num,
        alt_timeout: answer.alt_timeout,
        rate_limit: 0,
        _rest: 0,
    });
    init.ok_or(EINVAL)?.write(QpInitAttr {
        qp_context: base.qp_context,
        send_cq: base.send_cq,
        recv_cq: base.recv_cq,
        srq: base.srq,
        cap,
        qp_type: base.qp_type,
        sq_sig_all: answer.sq_sig_all.into(),
    });
    if mask & QpAttrMask::STATE.bits() != 0 {
        base.state.set(answer.qp_state.into());
    }
    Ok(())
}

pub(crate) extern "C" fn query_qp(
    qp: Option<&Qp>,
    attr: Option<&mut MaybeUninit<QpAttr>>,
    mask: c_int,
    init: Option<&mut MaybeUninit<QpInitAttr>>,
) -> c_int {
    returned(query(qp, attr, mask as u32, init))
}
