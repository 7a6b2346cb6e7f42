//! The attributes that a change of a queue pair's state requires and allows.
//!
//! The same table as `qp_state_table`, which `ib_modify_qp_is_ok` uses (verbs.c, Linux 6.1), for RC, UC, UD and XRC. Raw packet queue
//! pairs have mlx5's own table; see [`super::modify`].

use uverbs_abi::types::{QpAttrMask, qp_state, qp_type};

/// Attributes of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) required: QpAttrMask,
    pub(super) optional: QpAttrMask,
}

const fn mask(parts: &[QpAttrMask]) -> QpAttrMask {
    let mut bits = 0;
    let mut index = 0;
    while index < parts.len() {
        bits |= parts[index].bits();
        index += 1;
    }
    QpAttrMask::from_bits_retain(bits)
}

const NONE: QpAttrMask = QpAttrMask::empty();
const CONNECTED_INIT: QpAttrMask =
    mask(&[QpAttrMask::PKEY_INDEX, QpAttrMask::PORT, QpAttrMask::ACCESS_FLAGS]);
const UD_INIT: QpAttrMask = mask(&[QpAttrMask::PKEY_INDEX, QpAttrMask::PORT, QpAttrMask::QKEY]);
const UC_RTR: QpAttrMask =
    mask(&[QpAttrMask::AV, QpAttrMask::PATH_MTU, QpAttrMask::DEST_QPN, QpAttrMask::RQ_PSN]);
const RC_RTR: QpAttrMask = mask(&[UC_RTR, QpAttrMask::MAX_DEST_RD_ATOMIC, QpAttrMask::MIN_RNR_TIMER]);
const CONNECTED_RTR: QpAttrMask =
    mask(&[QpAttrMask::ALT_PATH, QpAttrMask::ACCESS_FLAGS, QpAttrMask::PKEY_INDEX]);
const UD_RTR: QpAttrMask = mask(&[QpAttrMask::PKEY_INDEX, QpAttrMask::QKEY]);
const RC_RTS: QpAttrMask = mask(&[
    QpAttrMask::TIMEOUT,
    QpAttrMask::RETRY_CNT,
    QpAttrMask::RNR_RETRY,
    QpAttrMask::SQ_PSN,
    QpAttrMask::MAX_QP_RD_ATOMIC,
]);
const UD_SENDING: QpAttrMask = mask(&[QpAttrMask::CUR_STATE, QpAttrMask::QKEY]);
const UC_SENDING: QpAttrMask = mask(&[
    QpAttrMask::CUR_STATE,
    QpAttrMask::ALT_PATH,
    QpAttrMask::ACCESS_FLAGS,
    QpAttrMask::PATH_MIG_STATE,
]);
const RC_SENDING: QpAttrMask = mask(&[UC_SENDING, QpAttrMask::MIN_RNR_TIMER]);
const UC_DRAINED: QpAttrMask = mask(&[
    QpAttrMask::AV,
    QpAttrMask::ALT_PATH,
    QpAttrMask::ACCESS_FLAGS,
    QpAttrMask::PKEY_INDEX,
    QpAttrMask::PATH_MIG_STATE,
]);
const RC_DRAINED: QpAttrMask = mask(&[
    UC_DRAINED,
    QpAttrMask::PORT,
    QpAttrMask::TIMEOUT,
    QpAttrMask::RETRY_CNT,
    QpAttrMask::RNR_RETRY,
    QpAttrMask::MAX_QP_RD_ATOMIC,
    QpAttrMask::MAX_DEST_RD_ATOMIC,
    QpAttrMask::MIN_RNR_TIMER,
]);
const INITIATOR_DRAINED: QpAttrMask = mask(&[
    UC_DRAINED,
    QpAttrMask::PORT,
    QpAttrMask::TIMEOUT,
    QpAttrMask::RETRY_CNT,
    QpAttrMask::RNR_RETRY,
    QpAttrMask::MAX_QP_RD_ATOMIC,
]);
const TARGET_RTS: QpAttrMask = mask(&[QpAttrMask::TIMEOUT, QpAttrMask::SQ_PSN]);
const TARGET_DRAINED: QpAttrMask = mask(&[
    UC_DRAINED,
    QpAttrMask::PORT,
    QpAttrMask::TIMEOUT,
    QpAttrMask::MAX_DEST_RD_ATOMIC,
    QpAttrMask::MIN_RNR_TIMER,
]);
const UC_RECOVER: QpAttrMask = mask(&[QpAttrMask::CUR_STATE, QpAttrMask::ACCESS_FLAGS]);

/// The attributes of a transition of this type of queue pair; none if there is no such transition.
pub(super) fn attributes(kind: u8, from: u8, to: u8) -> Option<Attributes> {
    use qp_state::{ERR, INIT, RESET, RTR, RTS, SQD, SQE};
    if from > ERR {
        return None;
    }
    // In the order of this list, as everywhere below.
    let kinds = [qp_type::RC, qp_type::UC, qp_type::UD, qp_type::XRC_INI, qp_type::XRC_TGT];
    let at = kinds.iter().position(|known| *known == kind)?;
    let by_type = |masks: [QpAttrMask; 5]| masks.get(at).copied();
    let init = [CONNECTED_INIT, CONNECTED_INIT, UD_INIT, CONNECTED_INIT, CONNECTED_INIT];
    let sending = [RC_SENDING, UC_SENDING, UD_SENDING, UC_SENDING, RC_SENDING];
    let (required, optional) = match (from, to) {
        (_, RESET) | (INIT | RTR | RTS | SQD | SQE | ERR, ERR) => (NONE, NONE),
        (RESET, INIT) => (by_type(init)?, NONE),
        (INIT, INIT) => (NONE, by_type(init)?),
        (INIT, RTR) => (
            by_type([RC_RTR, UC_RTR, NONE, UC_RTR, RC_RTR])?,
            by_type([CONNECTED_RTR, CONNECTED_RTR, UD_RTR, CONNECTED_RTR, CONNECTED_RTR])?,
        ),
        (RTR, RTS) => (
            by_type([RC_RTS, QpAttrMask::SQ_PSN, QpAttrMask::SQ_PSN, RC_RTS, TARGET_RTS])?,
            by_type(sending)?,
        ),
        (RTS | SQD, RTS) => (NONE, by_type(sending)?),
        (RTS, SQD) => (NONE, QpAttrMask::EN_SQD_ASYNC_NOTIFY),
        (SQD, SQD) => (NONE, by_type([RC_DRAINED, UC_DRAINED, UD_RTR, INITIATOR_DRAINED, TARGET_DRAINED])?),
        (SQE, RTS) => (NONE, by_type([NONE, UC_RECOVER, UD_SENDING, NONE, NONE])?),
        _ => return None,
    };
    Some(Attributes { required, optional })
}

/// `ib_modify_qp_is_ok`.
pub(super) fn is_allowed(kind: u8, from: u8, to: u8, mask: QpAttrMask) -> bool {
    let may_assume = matches!(from, qp_state::RTR | qp_state::RTS | qp_state::SQD | qp_state::SQE);
    if mask.contains(QpAttrMask::CUR_STATE) && !may_assume {
        return false;
    }
    attributes(kind, from, to).is_some_and(|Attributes { required, optional }| {
        mask.contains(required) && (required | optional | QpAttrMask::STATE).contains(mask)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [u8; 5] = [qp_type::RC, qp_type::UC, qp_type::UD, qp_type::XRC_INI, qp_type::XRC_TGT];

    #[test]
    fn there_are_as_many_transitions_as_in_the_kernel() {
        let count = |kind| {
            let all = (0..8).flat_map(|from| (0..8).map(move |to| (from, to)));
            all.filter(|(from, to)| attributes(kind, *from, *to).is_some()).count()
        };
        // 7 to reset, 6 to error, and 9 others.
        assert_eq!(KINDS.map(count), [22; 5]);
    }

    #[test]
    fn every_missing_and_every_foreign_attribute_is_refused() {
        for (kind, from, to) in KINDS.iter().flat_map(|kind| (0..49).map(move |i| (*kind, i / 7, i % 7))) {
            let Some(Attributes { required, optional }) = attributes(kind, from, to) else {
                assert!(!is_allowed(kind, from, to, QpAttrMask::STATE));
                continue;
            };
            for with in [required, required | optional] {
                assert!(is_allowed(kind, from, to, with | QpAttrMask::STATE), "{kind} {from} {to}");
            }
            for one in (0..26).map(|bit| QpAttrMask::from_bits_retain(1 << bit)) {
                let is_foreign = !(required | optional | QpAttrMask::STATE).contains(one);
                assert_eq!(
                    is_allowed(kind, from, to, required | one),
                    !is_foreign,
                    "{kind} {from} {to} {one:?}"
                );
                if required.contains(one) {
                    assert!(!is_allowed(kind, from, to, (required | optional) - one));
                }
            }
        }
    }

    #[test]
    fn a_state_can_be_assumed_only_where_it_may_change_by_itself() {
        let with = RC_RTS | QpAttrMask::CUR_STATE;
        assert!(is_allowed(qp_type::RC, qp_state::RTR, qp_state::RTS, with));
        assert!(!is_allowed(qp_type::RC, qp_state::INIT, qp_state::RESET, QpAttrMask::CUR_STATE));
    }
}
