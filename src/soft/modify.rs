//! The state of queue pairs: changing it and querying it.
//!
//! Source: `modify_qp` and `ib_uverbs_query_qp`, uverbs_cmd.c; for RAW_PACKET `ib_modify_qp_is_ok` and its table,
//! verbs.c, and the operations of `__mlx5_ib_modify_qp`, qp.c; Linux 6.1. For the other types see
//! [`super::attributes`] and [`super::transitions`].

use nix::errno::Errno;
use uverbs_abi::types::{QpAttrMask, qp_state, qp_type};
use uverbs_abi::write::{ExModifyQp, ExModifyQpResp, ModifyQp, QpDest, QueryQp, QueryQpResp};
use zerocopy::FromZeros;

use super::call::Call;
use super::queue_pairs::Qp;
use super::table::Kind;
use super::{PORTS, attributes};

/// `IB_QP_ATTR_STANDARD_BITS`.
const STANDARD: QpAttrMask = QpAttrMask::from_bits_retain((1 << 21) - 1);

/// `ib_uverbs_modify_qp`.
pub(super) fn modify_qp(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: ModifyQp = call.request()?;
    modify(call, &request, STANDARD)
}

/// `ib_uverbs_ex_modify_qp`. A rate limit is accepted and has no effect.
pub(super) fn ex_modify_qp(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: ExModifyQp = call.request()?;
    modify(call, &request.base, STANDARD | QpAttrMask::RATE_LIMIT)?;
    let response_length = call.response_length::<ExModifyQpResp>();
    call.respond(&ExModifyQpResp { response_length, ..ExModifyQpResp::new_zeroed() })
}

fn modify(call: &mut Call<'_, '_, '_>, request: &ModifyQp, known: QpAttrMask) -> Result<(), Errno> {
    let mut mask = QpAttrMask::from_bits_retain(request.attr_mask);
    if !known.contains(mask) {
        return Err(Errno::EOPNOTSUPP);
    }
    let number = call.lookup(Kind::Qp, request.qp_handle.into())?.id;
    let qp = call.state.qps.get(&number).ok_or(Errno::EINVAL)?;
    if qp.kind != qp_type::RAW_PACKET {
        if mask.contains(QpAttrMask::RATE_LIMIT) {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut request = *request;
        let to = attributes::allowed(&call.state.profile, qp, &mut request, &mut mask)?;
        if let Some(qp) = call.state.qps.get_mut(&number) {
            attributes::apply(qp, &request, mask);
        }
        call.state.begin_link(number, mask.contains(QpAttrMask::SQ_PSN), mask.contains(QpAttrMask::RQ_PSN));
        if mask.contains(QpAttrMask::STATE) {
            call.state.set_state(number, to);
        }
        return Ok(());
    }
    let from = qp.state;
    let to = if mask.contains(QpAttrMask::STATE) { request.qp_state } else { from };
    let port_is_bad = mask.contains(QpAttrMask::PORT) && !(1..=PORTS).contains(&request.port_num);
    if port_is_bad || !is_allowed(from, to, mask) {
        return Err(Errno::EINVAL);
    }
    if mask.contains(QpAttrMask::PORT) {
        call.state.set_port(number, request.port_num);
    }
    call.state.set_state(number, to);
    Ok(())
}

/// Whether these attributes are allowed for this change of a raw packet queue pair's state.
fn is_allowed(from: u8, to: u8, mask: QpAttrMask) -> bool {
    let mask = mask - QpAttrMask::STATE;
    match (from, to) {
        (qp_state::RESET, qp_state::INIT) => mask == QpAttrMask::PORT,
        (qp_state::RTR | qp_state::RTS, qp_state::RTS) => QpAttrMask::RATE_LIMIT.contains(mask),
        (_, qp_state::RESET)
        | (qp_state::INIT, qp_state::INIT | qp_state::RTR)
        | (qp_state::INIT | qp_state::RTR | qp_state::RTS | qp_state::SQE | qp_state::ERR, qp_state::ERR) => {
            mask.is_empty()
        }
        _ => false,
    }
}

/// `ib_uverbs_query_qp`.
pub(super) fn query_qp(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: QueryQp = call.request()?;
    let number = call.lookup(Kind::Qp, request.qp_handle.into())?.id;
    call.state.flush_if_broken(number);
    let response = queried(call.state.qps.get(&number).ok_or(Errno::EINVAL)?);
    call.respond(&response)
}

/// Everything about a queue pair, whichever attributes were requested (`rxe_qp_to_attr`, rxe_qp.c).
fn queried(qp: &Qp) -> QueryQpResp {
    let attrs = &qp.attrs;
    let raw = qp.kind == qp_type::RAW_PACKET;
    let path = QpDest { port_num: qp.port, ..QpDest::new_zeroed() };
    QueryQpResp {
        dest: if raw { path } else { attributes::queried(&attrs.dest) },
        max_send_wr: qp.cap.max_send_wr,
        max_recv_wr: qp.cap.max_recv_wr,
        max_send_sge: qp.cap.max_send_sge,
        max_recv_sge: qp.cap.max_recv_sge,
        max_inline_data: qp.cap.max_inline_data,
        qkey: attrs.qkey,
        rq_psn: attrs.rq_psn,
        sq_psn: attrs.sq_psn,
        dest_qp_num: attrs.dest_qp_num,
        qp_access_flags: attrs.qp_access_flags,
        pkey_index: attrs.pkey_index,
        qp_state: qp.state,
        cur_qp_state: qp.state,
        path_mtu: if raw { 0 } else { attrs.path_mtu },
        path_mig_state: attrs.path_mig_state,
        sq_draining: qp.draining.into(),
        max_rd_atomic: attrs.max_rd_atomic,
        max_dest_rd_atomic: attrs.max_dest_rd_atomic,
        min_rnr_timer: attrs.min_rnr_timer,
        port_num: qp.port,
        timeout: attrs.timeout,
        retry_cnt: attrs.retry_cnt,
        rnr_retry: attrs.rnr_retry,
        sq_sig_all: qp.signal_all.into(),
        ..QueryQpResp::new_zeroed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_transitions_of_raw_packets_are_allowed() {
        let mut allowed = Vec::new();
        for from in 0..7 {
            for to in 0..7 {
                if is_allowed(from, to, QpAttrMask::STATE) {
                    allowed.push((from, to));
                }
            }
        }
        let to_reset = (0..7).map(|from| (from, 0));
        let others = [(1, 1), (1, 2), (1, 6), (2, 3), (2, 6), (3, 3), (3, 6), (5, 6), (6, 6)];
        let mut expected: Vec<_> = to_reset.chain(others).collect();
        expected.sort_unstable();
        assert_eq!(allowed, expected);
        assert!(is_allowed(0, 1, QpAttrMask::STATE | QpAttrMask::PORT));
        assert!(!is_allowed(0, 1, QpAttrMask::STATE | QpAttrMask::PORT | QpAttrMask::QKEY));
        assert!(is_allowed(2, 3, QpAttrMask::STATE | QpAttrMask::RATE_LIMIT));
        assert!(!is_allowed(1, 2, QpAttrMask::STATE | QpAttrMask::RATE_LIMIT));
    }
}
