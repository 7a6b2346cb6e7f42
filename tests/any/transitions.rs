//! Every step of a queue pair from every state to every state, with and without each attribute, on every device.
//!
//! A queue pair enters SQE only by itself, and on rxe never (rxe_qp.c, Linux 6.1): no step from there is tried.

use std::time::{Duration, Instant};

use crate::commands::ring;
use crate::commands::verbs::*;
use crate::commands::{Answer, errno};
use crate::common::{Answers, on_every_device};
use nix::libc::{EINVAL, ENODATA, ENOENT, EOPNOTSUPP};
use uverbs_abi::types::{QpAttrMask, qp_state, qp_type};
use uverbs_abi::write::ModifyQp;

const KINDS: [(u8, &str); 3] = [(qp_type::RC, "RC"), (qp_type::UC, "UC"), (qp_type::UD, "UD")];
const STATES: [(u8, &str); 7] = [
    (qp_state::RESET, "RESET"),
    (qp_state::INIT, "INIT"),
    (qp_state::RTR, "RTR"),
    (qp_state::RTS, "RTS"),
    (qp_state::SQD, "SQD"),
    (qp_state::SQE, "SQE"),
    (qp_state::ERR, "ERR"),
];

/// The attributes that a step requires and allows; `None` if there is no such step (InfiniBand, 10.3.1, and `qp_state_table`, verbs.c,
/// Linux 6.1).
fn step(kind: u8, from: u8, to: u8) -> Option<(QpAttrMask, QpAttrMask)> {
    use QpAttrMask as M;
    use qp_state::{ERR, INIT, RESET, RTR, RTS, SQD, SQE};
    let is_ud = kind == qp_type::UD;
    let only = |wanted: u8, mask: M| if kind == wanted { mask } else { M::empty() };
    let sending = if is_ud {
        M::CUR_STATE | M::QKEY
    } else {
        let rnr = only(qp_type::RC, M::MIN_RNR_TIMER);
        M::CUR_STATE | M::ALT_PATH | M::ACCESS_FLAGS | M::PATH_MIG_STATE | rnr
    };
    let needed = needed(kind, to) - M::STATE;
    let none = M::empty();
    Some(match (from, to) {
        (_, RESET) => (none, none),
        (RESET, INIT) => (needed, none),
        (INIT, INIT) => (none, needed),
        (INIT, RTR) if is_ud => (none, M::PKEY_INDEX | M::QKEY),
        (INIT, RTR) => (needed, M::ALT_PATH | M::ACCESS_FLAGS | M::PKEY_INDEX),
        (RTR, RTS) => (needed, sending),
        (RTS | SQD, RTS) => (none, sending),
        (RTS, SQD) => (none, M::EN_SQD_ASYNC_NOTIFY),
        (SQD, SQD) if is_ud => (none, M::PKEY_INDEX | M::QKEY),
        (SQD, SQD) => {
            let path = M::AV | M::ALT_PATH | M::ACCESS_FLAGS | M::PKEY_INDEX | M::PATH_MIG_STATE;
            let timing = M::PORT | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MIN_RNR_TIMER;
            let depth = M::MAX_QP_RD_ATOMIC | M::MAX_DEST_RD_ATOMIC;
            (none, path | only(qp_type::RC, timing | depth))
        }
        (INIT | RTR | RTS | SQD | SQE | ERR, ERR) => (none, none),
        _ => return None,
    })
}

/// Brings a queue pair from any state to another one, and waits until it has it.
fn bring(side: &Side, kind: u8, qp: &ring::Qp, state: u8) {
    let go = |state: u8, mask: QpAttrMask| {
        let request =
            ModifyQp { attr_mask: (mask | QpAttrMask::STATE).bits(), ..change(kind, qp.handle, 0x77, state) };
        assert_eq!(side.modify(&request), Ok(()), "to {state}");
    };
    // A queue pair that is being drained must not get another command before that ends.
    until_drained(side, qp);
    go(qp_state::RESET, QpAttrMask::empty());
    match state {
        qp_state::RESET => {}
        qp_state::ERR => {
            go(qp_state::INIT, needed(kind, qp_state::INIT));
            go(qp_state::ERR, QpAttrMask::empty());
        }
        _ => side.raise(kind, qp, 0x77, state.min(qp_state::RTS)),
    }
    if state == qp_state::SQD {
        go(qp_state::SQD, QpAttrMask::empty());
        until_drained(side, qp);
    }
}

fn until_drained(side: &Side, qp: &ring::Qp) {
    let start = Instant::now();
    while side.query(qp).sq_draining != 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "still draining");
        std::thread::yield_now();
    }
}

/// A value for every attribute.
fn full(kind: u8, qp: u32, from: u8, to: u8) -> ModifyQp {
    ModifyQp {
        cur_qp_state: from,
        en_sqd_async_notify: 1,
        alt_dest: path(IPV4, 1),
        alt_port_num: 1,
        ..change(kind, qp, 0x77, to)
    }
}

#[test]
fn each_step_takes_the_attributes_that_it_needs_and_those_it_may_have() {
    on_every_device(|target| {
        let side = Side::on(target.raw(), 4096);
        let mut answers = Answers::of(target);
        for (kind, name) in KINDS {
            let qp = side.qp(kind);
            for (from, from_name) in STATES.into_iter().filter(|(from, _)| *from != qp_state::SQE) {
                for (to, to_name) in STATES {
                    let legal = step(kind, from, to);
                    let mut attempt = |mask: QpAttrMask, with: &str, is_good: bool| {
                        if side.query(&qp).qp_state != from || from == qp_state::SQD {
                            bring(&side, kind, &qp, from);
                        }
                        let mask = mask | QpAttrMask::STATE;
                        let request = ModifyQp { attr_mask: mask.bits(), ..full(kind, qp.handle, from, to) };
                        let got = errno(side.modify(&request));
                        let after = side.query(&qp).qp_state;
                        let expected = if is_good { (Answer(0), to) } else { (Answer(EINVAL), from) };
                        let what = format!("{name} from {from_name} to {to_name}{with}");
                        answers.is(&what, (got, after), expected);
                    };
                    let Some((required, optional)) = legal else {
                        attempt(needed(kind, to), "", false);
                        attempt(QpAttrMask::empty(), " with nothing", false);
                        continue;
                    };
                    attempt(required, "", true);
                    for one in required.iter() {
                        attempt(required - one, &format!(" without {one:?}"), false);
                    }
                    for one in (1..21).map(|bit| QpAttrMask::from_bits_retain(1 << bit)) {
                        if !required.contains(one) {
                            // RoCE has no alternate paths, and a path includes its port, which UC must not change (`modify_qp`,
                            // uverbs_cmd.c, Linux 6.1).
                            let is_bad = one == QpAttrMask::ALT_PATH
                                || (one == QpAttrMask::AV && !optional.contains(QpAttrMask::PORT));
                            let is_good = optional.contains(one) && !is_bad;
                            attempt(required | one, &format!(" with {one:?}"), is_good);
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn every_type_comes_up_and_tells_what_it_was_given() {
    on_every_device(|target| {
        let mut answers = Answers::of(target);
        for (kind, name) in KINDS {
            let side = Side::on(target.raw(), 4096);
            let qp = side.qp(kind);
            side.raise(kind, &qp, 0x77, qp_state::RTS);
            let told = side.query(&qp);
            let mut is = |what: &str, got: &[u32], expected: &[u32]| {
                answers.is(&format!("{what} that {name} tells"), got, expected);
            };
            is(
                "state, port and partition key",
                &[told.qp_state.into(), told.port_num.into(), told.pkey_index.into()],
                &[3, 1, 0],
            );
            let depths = [told.max_send_wr, told.max_recv_wr, told.max_send_sge, told.max_recv_sge];
            is("depths", &depths, &[15, 15, 4, 2]);
            is("inline bytes", &[told.max_inline_data, told.sq_sig_all.into()], &[64, 0]);
            is("sequence number", &[told.sq_psn], &[100]);
            if kind == qp_type::UD {
                is("queue key", &[told.qkey], &[QKEY]);
                continue;
            }
            is("peer", &[told.dest_qp_num, told.rq_psn, told.path_mtu.into()], &[0x77, 100, 3]);
            is("rights", &[told.qp_access_flags], &[ALL.bits()]);
            assert_eq!(told.dest.dgid, IPV4, "{name}");
            let dest = told.dest;
            is(
                "path",
                &[dest.sgid_index.into(), dest.is_global.into(), dest.hop_limit.into(), dest.port_num.into()],
                &[1, 1, 64, 1],
            );
            if kind == qp_type::RC {
                // Resources are rounded up to powers of two.
                is("depth of reads", &[told.max_rd_atomic.into(), told.max_dest_rd_atomic.into()], &[4, 4]);
                let times = [told.timeout, told.retry_cnt, told.rnr_retry, told.min_rnr_timer];
                is("retries", &times.map(u32::from), &[14, 7, 7, 12]);
            }
        }
    });
}

#[test]
fn values_out_of_range_are_invalid() {
    type Change = fn(&mut ModifyQp);
    let rows: &[(u8, &str, Change, i32)] = &[
        (1, "port 2", |m| m.port_num = 2, EINVAL),
        (1, "port 0", |m| m.port_num = 0, EINVAL),
        (1, "a partition key that is not there", |m| m.pkey_index = 1000, EINVAL),
        (1, "state 7", |m| m.qp_state = 7, EINVAL),
        (2, "no routing part", |m| m.dest.is_global = 0, EINVAL),
        (2, "a GID beyond the table", |m| m.dest.sgid_index = 255, EINVAL),
        (2, "an empty GID", |m| m.dest.sgid_index = 15, ENODATA),
        (2, "a path on port 2", |m| m.dest.port_num = 2, EINVAL),
        (2, "an MTU of 0", |m| m.path_mtu = 0, EINVAL),
        (2, "an MTU of 6", |m| m.path_mtu = 6, EINVAL),
        (2, "a number of 25 bits", |m| m.dest_qp_num = 1 << 24, EINVAL),
        (2, "too many reads in flight towards it", |m| m.max_dest_rd_atomic = 129, EINVAL),
        (2, "an RNR timer of 32", |m| m.min_rnr_timer = 32, EINVAL),
        (3, "a timeout of 32", |m| m.timeout = 32, EINVAL),
        (3, "8 retries", |m| m.retry_cnt = 8, EINVAL),
        (3, "8 RNR retries", |m| m.rnr_retry = 8, EINVAL),
        (3, "too many reads in flight", |m| m.max_rd_atomic = 129, EINVAL),
        (3, "a rate limit", |m| m.attr_mask |= QpAttrMask::RATE_LIMIT.bits(), EOPNOTSUPP),
        (3, "a bit that means nothing", |m| m.attr_mask |= 1 << 21, EOPNOTSUPP),
        (3, "a state assumed that it is not in", assume_drained, EINVAL),
        (3, "another queue pair", |m| m.qp_handle = 99, ENOENT),
        (3, "an assumed state of 9", |m| (m.cur_qp_state, m.attr_mask) = (9, m.attr_mask | 2), EINVAL),
    ];
    on_every_device(|target| {
        let side = Side::on(target.raw(), 4096);
        let mut answers = Answers::of(target);
        let qp = side.qp(qp_type::RC);
        for (state, name, bad, expected) in rows {
            bring(&side, qp_type::RC, &qp, state - 1);
            let mut request = change(qp_type::RC, qp.handle, 0x77, *state);
            bad(&mut request);
            answers.is(name, errno(side.modify(&request)), Answer(*expected));
        }
        // Sequence numbers are truncated, not refused.
        let qp = side.qp(qp_type::UD);
        side.raise(qp_type::UD, &qp, 0, qp_state::RTR);
        let psn = ModifyQp { sq_psn: 0xff00_0005, ..change(qp_type::UD, qp.handle, 0, qp_state::RTS) };
        assert_eq!(side.modify(&psn), Ok(()));
        assert_eq!(side.query(&qp).sq_psn, 5);
    });
}

/// Names SQD as the current state, from which this step needs no attributes.
fn assume_drained(request: &mut ModifyQp) {
    request.cur_qp_state = qp_state::SQD;
    request.attr_mask = (QpAttrMask::STATE | QpAttrMask::CUR_STATE).bits();
}
