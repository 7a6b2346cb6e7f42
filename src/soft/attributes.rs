//! Attributes of RC, UC, UD and XRC queue pairs: their allowed values, and the effect of changes.
//!
//! Source: `modify_qp`, uverbs_cmd.c; `_ib_modify_qp`, verbs.c; `rxe_qp_chk_attr` and `rxe_qp_from_attr`, rxe_qp.c. Where rxe does not
//! check a number, mlx5's check (`__mlx5_ib_modify_qp`, qp.c) or the width of the field on the wire applies. All of Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::types::{AccessFlags, QpAttrMask, mtu, qp_state, qp_type};
use uverbs_abi::write::{ModifyQp, QpDest};

use super::gids::{self, Route};
use super::profile::Profile;
use super::queue_pairs::Qp;
use super::{PORTS, transitions};

/// Maximum number of reads and atomic operations in flight (`RXE_MAX_QP_RD_ATOM`, rxe_param.h, Linux 6.1).
pub(super) const MAX_RD_ATOMIC: u8 = 128;
/// Partition keys of the port.
pub(super) const PKEYS: u16 = 1;
/// The range of sequence numbers and of numbers of queue pairs.
const BITS_24: u32 = 0xff_ffff;

fn is_port(port: u8) -> bool {
    (1..=PORTS).contains(&port)
}

fn check(is_good: bool) -> Result<(), Errno> {
    if is_good { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Checks a change. Returns the state that the queue pair enters.
pub(super) fn allowed(
    profile: &Profile,
    qp: &Qp,
    request: &mut ModifyQp,
    mask: &mut QpAttrMask,
) -> Result<u8, Errno> {
    path(profile, qp, request, mask)?;
    if profile.iwarp && mask.contains(QpAttrMask::STATE) && request.qp_state == qp_state::INIT {
        // There are no partition keys.
        request.pkey_index = 0;
        *mask |= QpAttrMask::PKEY_INDEX;
    }
    let has = |attr| mask.contains(attr);
    let below = |state: u8| state <= qp_state::ERR;
    check(!has(QpAttrMask::CUR_STATE) || below(request.cur_qp_state))?;
    check(!has(QpAttrMask::STATE) || below(request.qp_state))?;
    // rxe accepts any state that the command gives as the current one; a card checks it against its own.
    let is_told = has(QpAttrMask::CUR_STATE);
    check(!is_told || profile.is_rxe() || request.cur_qp_state == qp.state)?;
    let from = if is_told { request.cur_qp_state } else { qp.state };
    let to = if has(QpAttrMask::STATE) { request.qp_state } else { from };
    check(transitions::is_allowed(qp.kind, from, to, *mask))?;
    // Sends in progress must end first.
    check(!(has(QpAttrMask::STATE) && qp.draining && to != qp_state::ERR))?;
    numbers(profile, request, *mask)?;
    Ok(to)
}

/// Port and path, which the core checks before anything else.
fn path(profile: &Profile, qp: &Qp, request: &mut ModifyQp, mask: &mut QpAttrMask) -> Result<(), Errno> {
    check(!mask.contains(QpAttrMask::PORT) || is_port(request.port_num))?;
    if mask.contains(QpAttrMask::AV) {
        let port = request.dest.port_num;
        check(is_port(port))?;
        if mask.contains(QpAttrMask::STATE) && request.qp_state == qp_state::RTR {
            check(port == qp.port)?;
        } else if mask.contains(QpAttrMask::PORT) {
            check(port == request.port_num)?;
        } else {
            *mask |= QpAttrMask::PORT;
            request.port_num = port;
        }
        // On RoCE every path has a routing part.
        check(request.dest.is_global != 0)?;
        let source = gids::entry(profile, request.dest.sgid_index.into())?.gid;
        if qp.kind != qp_type::UD {
            gids::resolve(&source, &request.dest.dgid)?;
        }
    }
    // There is no alternate path.
    check(!mask.contains(QpAttrMask::ALT_PATH))
}

fn numbers(profile: &Profile, request: &ModifyQp, mask: QpAttrMask) -> Result<(), Errno> {
    let fits = |attr, number: u32, most: u32| check(!mask.contains(attr) || number <= most);
    let most = MAX_RD_ATOMIC.into();
    fits(QpAttrMask::PATH_MTU, request.path_mtu.into(), mtu::MTU_4096.into())?;
    fits(QpAttrMask::MAX_QP_RD_ATOMIC, request.max_rd_atomic.into(), most)?;
    fits(QpAttrMask::TIMEOUT, request.timeout.into(), 31)?;
    if profile.is_rxe() {
        let access = AccessFlags::from_bits_retain(request.qp_access_flags);
        return check(!mask.contains(QpAttrMask::ACCESS_FLAGS) || profile.knows_access(access));
    }
    check(!mask.contains(QpAttrMask::PATH_MTU) || request.path_mtu >= mtu::MTU_256)?;
    fits(QpAttrMask::PKEY_INDEX, request.pkey_index.into(), (PKEYS - 1).into())?;
    fits(QpAttrMask::MAX_DEST_RD_ATOMIC, request.max_dest_rd_atomic.into(), most)?;
    fits(QpAttrMask::MIN_RNR_TIMER, request.min_rnr_timer.into(), 31)?;
    fits(QpAttrMask::RETRY_CNT, request.retry_cnt.into(), 7)?;
    fits(QpAttrMask::RNR_RETRY, request.rnr_retry.into(), 7)?;
    fits(QpAttrMask::DEST_QPN, request.dest_qp_num, BITS_24)
}

/// Makes the change, except for the state.
pub(super) fn apply(qp: &mut Qp, request: &ModifyQp, mask: QpAttrMask) {
    let attrs = &mut qp.attrs;
    macro_rules! take {
        ($($attr:ident $field:ident;)*) => {
            $(if mask.contains(QpAttrMask::$attr) { attrs.$field = request.$field; })*
        };
    }
    take! {
        EN_SQD_ASYNC_NOTIFY en_sqd_async_notify;
        ACCESS_FLAGS qp_access_flags;
        PKEY_INDEX pkey_index;
        QKEY qkey;
        AV dest;
        PATH_MTU path_mtu;
        TIMEOUT timeout;
        RETRY_CNT retry_cnt;
        RNR_RETRY rnr_retry;
        MIN_RNR_TIMER min_rnr_timer;
        PATH_MIG_STATE path_mig_state;
        DEST_QPN dest_qp_num;
    }
    // Numbers that are too long are truncated, with a warning in the kernel's log.
    if mask.contains(QpAttrMask::RQ_PSN) {
        attrs.rq_psn = request.rq_psn & BITS_24;
    }
    if mask.contains(QpAttrMask::SQ_PSN) {
        attrs.sq_psn = request.sq_psn & BITS_24;
    }
    // Resources are rounded up to powers of two. Zero stays zero, and 256 becomes zero in a field of eight bits.
    let rounded = |number: u8| if number == 0 { 0 } else { number.checked_next_power_of_two().unwrap_or(0) };
    if mask.contains(QpAttrMask::MAX_QP_RD_ATOMIC) {
        attrs.max_rd_atomic = rounded(request.max_rd_atomic);
    }
    if mask.contains(QpAttrMask::MAX_DEST_RD_ATOMIC) {
        attrs.max_dest_rd_atomic = rounded(request.max_dest_rd_atomic);
    }
    if mask.contains(QpAttrMask::PORT) {
        qp.port = request.port_num;
    }
}

/// The path as a query returns it (`rxe_av_to_attr`, rxe_av.c, Linux 6.1): the routing part, without InfiniBand's other fields.
pub(super) fn queried(path: &QpDest) -> QpDest {
    QpDest { reserved: 0, dlid: 0, sl: 0, src_path_bits: 0, static_rate: 0, is_global: 1, ..*path }
}

/// The route on which a connected queue pair sends; `None` before it has a path.
pub(super) fn route(profile: &Profile, path: &QpDest) -> Option<Route> {
    if path.is_global == 0 {
        return None;
    }
    Some(Route {
        source: gids::entry(profile, path.sgid_index.into()).ok()?.gid,
        destination: path.dgid,
        flow_label: path.flow_label,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
    })
}

/// Size of the largest packet in bytes.
pub(super) fn packet_size(path_mtu: u8) -> usize {
    128 << path_mtu.clamp(mtu::MTU_256, mtu::MTU_4096)
}

/// Whether `packets` packets with sequence numbers from `first` on all come before another number (`psn_compare`, rxe_hdr.h, Linux 6.1).
pub(super) fn is_before(first: u32, packets: u32, than: u32) -> bool {
    let ahead = than.wrapping_sub(first) & BITS_24;
    ahead <= BITS_24 / 2 && packets <= ahead
}

/// The sequence number after so many packets.
pub(super) fn later(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) & BITS_24
}
