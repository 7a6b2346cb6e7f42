//! Making queue pairs and address handles, and taking queue pairs through their states.
#![cfg(feature = "soft")]

#[path = "soft/ring.rs"]
#[allow(dead_code, reason = "the other tests' part of it")]
mod ring;
mod soft;
#[path = "soft/verbs.rs"]
mod verbs;

use nix::libc::{EBUSY, EINVAL, ENODATA, ENOENT, EOPNOTSUPP};
use soft::*;
use uverbs::soft::{Profile, RawAttr, SoftDevice};
use uverbs_abi::ids::{ah, device, pd, qp};
use uverbs_abi::ioctl::UHW_OUT;
use uverbs_abi::types::{QpAttrMask, QpCreateFlags, qp_state, qp_type};
use uverbs_abi::write::{GidEntry, ModifyQp, QpCap, cmd};
use verbs::*;
use zerocopy::{FromZeros, IntoBytes};

const KINDS: [u8; 3] = [qp_type::RC, qp_type::UC, qp_type::UD];

#[test]
fn every_type_comes_up_and_tells_what_it_was_given() {
    for kind in KINDS {
        let pair = Pair::new(kind);
        let told = pair.a.query(&pair.qa);
        assert_eq!((told.qp_state, told.port_num, told.pkey_index), (qp_state::RTS, 1, 0));
        assert_eq!((told.max_send_wr, told.max_recv_wr, told.max_send_sge), (15, 15, 4));
        assert_eq!((told.max_recv_sge, told.max_inline_data, told.sq_sig_all), (2, 64, 0));
        assert_eq!(told.sq_psn, 100);
        if kind == qp_type::UD {
            assert_eq!(told.qkey, QKEY);
            continue;
        }
        assert_eq!((told.dest_qp_num, told.rq_psn, told.path_mtu), (pair.qb.number, 100, 3));
        assert_eq!(told.qp_access_flags, ALL.bits());
        assert_eq!((told.dest.dgid, told.dest.sgid_index, told.dest.is_global), (IPV4, 1, 1));
        assert_eq!((told.dest.hop_limit, told.dest.port_num), (64, 1));
        if kind == qp_type::RC {
            // Resources come in powers of two.
            assert_eq!((told.max_rd_atomic, told.max_dest_rd_atomic), (4, 4));
            assert_eq!((told.timeout, told.retry_cnt, told.rnr_retry, told.min_rnr_timer), (14, 7, 7, 12));
        }
    }
}

#[test]
fn each_attribute_that_is_missing_or_foreign_is_invalid() {
    for kind in KINDS {
        let device = SoftDevice::default();
        let side = Side::new(&device, 4096);
        let qp = side.qp(kind);
        for state in qp_state::INIT..=qp_state::RTS {
            let good = change(kind, qp.handle, 0x77, state);
            let all = QpAttrMask::from_bits_retain(good.attr_mask);
            for one in all.iter().filter(|one| *one != QpAttrMask::STATE) {
                let bad = ModifyQp { attr_mask: (all - one).bits(), ..good };
                assert_eq!(side.modify(&bad), Err(EINVAL), "{kind} to {state} without {one:?}");
            }
            for foreign in [QpAttrMask::CAP, QpAttrMask::ALT_PATH, QpAttrMask::EN_SQD_ASYNC_NOTIFY] {
                let bad = ModifyQp { attr_mask: (all | foreign).bits(), ..good };
                assert_eq!(side.modify(&bad), Err(EINVAL), "{kind} to {state} with {foreign:?}");
            }
            for skipped in (state + 1..=qp_state::SQE).filter(|skipped| *skipped != state) {
                let bad = ModifyQp { qp_state: skipped, ..good };
                assert_eq!(side.modify(&bad), Err(EINVAL), "{kind} beyond {state}");
            }
            assert_eq!(side.modify(&good), Ok(()));
            assert_eq!(side.query(&qp).qp_state, state);
        }
        for state in [qp_state::SQD, qp_state::RTS, qp_state::ERR, qp_state::RESET, qp_state::INIT] {
            let mask = if state == qp_state::INIT { needed(kind, state) } else { QpAttrMask::STATE };
            let good = ModifyQp { attr_mask: mask.bits(), ..change(kind, qp.handle, 0, state) };
            assert_eq!(side.modify(&good), Ok(()), "{kind} to {state}");
        }
    }
}

#[test]
fn values_out_of_range_are_invalid() {
    type Change = fn(&mut ModifyQp);
    let rows: [(u8, &str, Change, i32); 22] = [
        (1, "port 2", |m| m.port_num = 2, EINVAL),
        (1, "port 0", |m| m.port_num = 0, EINVAL),
        (1, "a partition key that is not there", |m| m.pkey_index = 1, EINVAL),
        (1, "state 7", |m| m.qp_state = 7, EINVAL),
        (2, "no routing part", |m| m.dest.is_global = 0, EINVAL),
        (2, "a GID beyond the table", |m| m.dest.sgid_index = 16, EINVAL),
        (2, "an empty GID", |m| m.dest.sgid_index = 2, ENODATA),
        (2, "a path on port 2", |m| m.dest.port_num = 2, EINVAL),
        (2, "an MTU of 0", |m| m.path_mtu = 0, EINVAL),
        (2, "an MTU of 6", |m| m.path_mtu = 6, EINVAL),
        (2, "a number of 25 bits", |m| m.dest_qp_num = 1 << 24, EINVAL),
        (2, "too much in flight", |m| m.max_dest_rd_atomic = 129, EINVAL),
        (2, "an RNR timer of 32", |m| m.min_rnr_timer = 32, EINVAL),
        (3, "a timeout of 32", |m| m.timeout = 32, EINVAL),
        (3, "8 retries", |m| m.retry_cnt = 8, EINVAL),
        (3, "8 RNR retries", |m| m.rnr_retry = 8, EINVAL),
        (3, "too much in flight", |m| m.max_rd_atomic = 129, EINVAL),
        (3, "a rate limit", |m| m.attr_mask |= QpAttrMask::RATE_LIMIT.bits(), EOPNOTSUPP),
        (3, "a bit that means nothing", |m| m.attr_mask |= 1 << 21, EOPNOTSUPP),
        (
            3,
            "a state assumed that it is not in",
            |m| {
                m.attr_mask |= QpAttrMask::CUR_STATE.bits();
                m.cur_qp_state = qp_state::SQD;
            },
            EINVAL,
        ),
        (3, "another queue pair", |m| m.qp_handle = 99, ENOENT),
        (3, "an assumed state of 9", |m| (m.cur_qp_state, m.attr_mask) = (9, m.attr_mask | 2), EINVAL),
    ];
    let device = SoftDevice::default();
    let side = Side::new(&device, 4096);
    let qp = side.qp(qp_type::RC);
    for state in qp_state::INIT..=qp_state::RTS {
        let good = change(qp_type::RC, qp.handle, 0x77, state);
        for (_, name, bad, errno) in rows.iter().filter(|row| row.0 == state) {
            let mut request = good;
            bad(&mut request);
            assert_eq!(side.modify(&request), Err(*errno), "{name}");
        }
        assert_eq!(side.modify(&good), Ok(()));
    }
    // Sequence numbers are cut, not refused.
    let psn = ModifyQp { sq_psn: 0xff00_0005, ..change(qp_type::UD, 0, 0, qp_state::RTS) };
    let qp = side.qp(qp_type::UD);
    side.raise(qp_type::UD, &qp, 0, qp_state::RTR);
    assert_eq!(side.modify(&ModifyQp { qp_handle: qp.handle, ..psn }), Ok(()));
    assert_eq!(side.query(&qp).sq_psn, 5);
}

#[test]
fn what_cannot_be_made() {
    let device = SoftDevice::new(Profile::default().with_max_sge(4));
    let side = Side::new(&device, 4096);
    let with = |kind, attr: RawAttr| {
        let mut command = create(kind, side.pd, side.cq.handle);
        command.attrs().retain(|old| old.id != attr.id);
        side.file.invoke(&mut command.with(attr))
    };
    let cap = |change: fn(&mut QpCap)| {
        let mut cap = QpCap::new_zeroed();
        change(&mut cap);
        RawAttr::input(qp::create::CAP, cap.as_bytes())
    };
    let flags = |flags: QpCreateFlags| RawAttr::input(qp::create::FLAGS, flags.bits().as_bytes());
    for kind in KINDS {
        assert_eq!(with(kind, cap(|cap| cap.max_send_wr = 1 << 20)), Err(EINVAL));
        assert_eq!(with(kind, cap(|cap| cap.max_recv_wr = 1 << 20)), Err(EINVAL));
        assert_eq!(with(kind, cap(|cap| cap.max_send_sge = 5)), Err(EINVAL));
        assert_eq!(with(kind, cap(|cap| cap.max_recv_sge = 5)), Err(EINVAL));
        assert_eq!(with(kind, cap(|cap| cap.max_inline_data = 1000)), Err(EINVAL));
        assert_eq!(with(kind, RawAttr::output(UHW_OUT, 16)), Err(EINVAL));
        // Unlike raw packets, they may have no queues at all.
        assert_eq!(with(kind, cap(|_| {})), Ok(()));
        assert_eq!(with(kind, flags(QpCreateFlags::SQ_SIG_ALL)), Ok(()));
        let errno = if kind == qp_type::UD { EOPNOTSUPP } else { EINVAL };
        assert_eq!(with(kind, flags(QpCreateFlags::BLOCK_MULTICAST_LOOPBACK)), Err(errno));
    }
    assert_eq!(with(qp_type::XRC_INI, cap(|_| {})), Err(EOPNOTSUPP));
}

#[test]
fn address_handles_use_their_protection_domain() {
    let soft = SoftDevice::default();
    let side = Side::new(&soft, 4096);
    let new_pd = new_pd(&side.file);
    let bad = |command| side.file.invoke(&mut { command });
    assert_eq!(bad(create_ah(99, IPV4, 0)), Err(ENOENT));
    assert_eq!(bad(create_ah(new_pd, IPV4, 16)), Err(EINVAL));
    assert_eq!(bad(create_ah(new_pd, IPV4, 5)), Err(ENODATA));
    assert_eq!(soft.resources().address_handles, 0);

    // The driver's answer may be left out.
    let made = done(&side.file, create_ah(new_pd, IPV4, 1));
    let first: u32 = answer(&made, CORE_OUT);
    let (second, number) = side.ah(LINK_LOCAL, 0);
    assert_ne!(number, 0);
    assert_eq!(soft.resources().address_handles, 2);
    assert_eq!(bad(destroy(pd::OBJECT, pd::method::DESTROY, new_pd)), Err(EBUSY));
    done(&side.file, destroy(ah::OBJECT, ah::method::DESTROY, first));
    done(&side.file, destroy(pd::OBJECT, pd::method::DESTROY, new_pd));
    done(&side.file, write(cmd::DESTROY_AH, &second, 0));
    assert_eq!(bad(write(cmd::DESTROY_AH, &second, 0)), Err(ENOENT));
    assert_eq!(soft.resources().address_handles, 0);
    drop(side);
    assert!(soft.resources().is_empty());
}

#[test]
fn there_are_two_gids() {
    let soft = SoftDevice::default();
    let side = Side::new(&soft, 4096);
    let entry = |index| {
        let command = uverbs::soft::RawCommand::new(device::OBJECT, device::method::QUERY_GID_ENTRY)
            .with(RawAttr::value(device::query_gid_entry::PORT, 1))
            .with(RawAttr::value(device::query_gid_entry::GID_INDEX, index))
            .with(RawAttr::input(device::query_gid_entry::FLAGS, &[0; 4]))
            .with(RawAttr::output(device::query_gid_entry::RESP_ENTRY, 32));
        answer::<GidEntry>(&done(&side.file, command), device::query_gid_entry::RESP_ENTRY)
    };
    assert_eq!([entry(0).gid, entry(1).gid], [LINK_LOCAL, IPV4]);
    assert_eq!((entry(1).gid_index, entry(1).port_num, entry(1).gid_type), (1, 1, 2));
}
