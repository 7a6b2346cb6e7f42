//! Bad input about objects, and the errno of every device for it: nothing else may change.

use crate::commands::*;
use crate::common::{Answers, Target, on_every_device, on_every_device_and, skip};
use crate::files;
use nix::libc::{EBUSY, EFAULT, EINVAL, ENOENT, ENOSPC, EOPNOTSUPP};
use uverbs::soft::{Profile, RawAttr, RawCommand};
use uverbs_abi::ids::{cq, mr, qp};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::types::{AccessFlags, QpAttrMask, qp_state, qp_type};
use uverbs_abi::write::{ModifyQp, PostSend, QpCap, RegMr, cmd};
use zerocopy::{FromZeros, IntoBytes};

fn reg_mr(world: &Base, change: impl FnOnce(&mut RegMr)) -> RawCommand {
    let (start, _) = world.file.memory(4096).unwrap();
    let mut request = RegMr {
        start,
        hca_va: start,
        length: 4096,
        pd_handle: world.pd,
        access_flags: 1,
        ..RegMr::new_zeroed()
    };
    change(&mut request);
    write(cmd::REG_MR, &request, 12)
}

/// The attributes that bring a queue pair of a connection to INIT.
const INIT: QpAttrMask = QpAttrMask::PORT.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::ACCESS_FLAGS);

fn modify_qp(world: &Base, change: impl FnOnce(&mut ModifyQp)) -> RawCommand {
    let mut request = modify(world.qp, qp_state::INIT, INIT);
    change(&mut request);
    write(cmd::MODIFY_QP, &request, 0)
}

fn with_cap(world: &Base, change: impl FnOnce(&mut QpCap)) -> RawCommand {
    let mut cap = QpCap { max_send_wr: 8, max_recv_wr: 8, ..QpCap::new_zeroed() };
    change(&mut cap);
    replaced(create_qp_of(qp_type::RC, world.pd, world.cq), RawAttr::input(qp::create::CAP, cap.as_bytes()))
}

fn of_type(world: &Base, type_: u64) -> RawCommand {
    replaced(create_qp_of(qp_type::RC, world.pd, world.cq), RawAttr::value(qp::create::TYPE, type_))
}

fn post_send(world: &Base, wr_count: u32, wqe_size: u32) -> RawCommand {
    let request = PostSend { qp_handle: world.qp, wr_count, wqe_size, ..PostSend::new_zeroed() };
    write(cmd::POST_SEND, &request, 4)
}

#[test]
fn queues() {
    let rows: &[Row<Base>] = &[
        ("a CQ of no entries", |_| create_cq(0), EINVAL),
        ("a CQ of 2^30 entries", |_| create_cq(1 << 30), EINVAL),
        (
            "a completion vector too high",
            |_| replaced(create_cq(4), RawAttr::input(cq::create::COMP_VECTOR, &[4, 0, 0, 0])),
            EINVAL,
        ),
        ("unknown CQ flags", |_| create_cq(4).with(RawAttr::input(cq::create::FLAGS, &[4, 0, 0, 0])), EINVAL),
        ("timestamps", |_| create_cq(4).with(RawAttr::input(cq::create::FLAGS, &[1, 0, 0, 0])), EOPNOTSUPP),
        ("a CQ without room for its ring", |_| without(create_cq(4), UHW_OUT), EINVAL),
        (
            "a CQ with too little room for its ring",
            |_| replaced(create_cq(4), RawAttr::output(UHW_OUT, 8)),
            EINVAL,
        ),
        (
            "a CQ whose size cannot be told",
            |_| replaced(create_cq(4), RawAttr::bad_address(cq::create::RESP_CQE, 4)),
            EFAULT,
        ),
        ("a QP of type 5", |w| of_type(w, 5), EINVAL),
        ("a QP of type 2^32", |w| of_type(w, 1 << 32), EINVAL),
        ("an extended reliable connection", |w| of_type(w, 9), EOPNOTSUPP),
        ("a target of extended connections", |w| of_type(w, 10), EINVAL),
        ("a QP in a domain that is not there", |w| create_qp_of(qp_type::RC, 99, w.cq), ENOENT),
        (
            "a QP without a domain",
            |w| without(create_qp_of(qp_type::RC, w.pd, w.cq), qp::create::PD_HANDLE),
            ENOENT,
        ),
        (
            "a QP without a receive CQ",
            |w| without(create_qp_of(qp_type::RC, w.pd, w.cq), qp::create::RECV_CQ_HANDLE),
            ENOENT,
        ),
        (
            "QP flags, bit 0",
            |w| create_qp_of(qp_type::RC, w.pd, w.cq).with(RawAttr::input(qp::create::FLAGS, &[1, 0, 0, 0])),
            EINVAL,
        ),
        (
            "check sequences on a reliable connection",
            |w| of_type(w, 2).with(RawAttr::input(qp::create::FLAGS, &[0, 1, 0, 0])),
            EINVAL,
        ),
        (
            "a QP with too little room for its rings",
            |w| replaced(create_qp_of(qp_type::RC, w.pd, w.cq), RawAttr::output(UHW_OUT, 16)),
            EINVAL,
        ),
        (
            "a driver's request for a QP",
            |w| create_qp_of(qp_type::RC, w.pd, w.cq).with(RawAttr::value(UHW_IN, 0)),
            EINVAL,
        ),
        ("too long a send ring", |w| with_cap(w, |cap| cap.max_send_wr = (1 << 20) + 1), EINVAL),
        ("too much inline data", |w| with_cap(w, |cap| cap.max_inline_data = 1 << 20), EINVAL),
        (
            "a QP whose number cannot be told",
            |w| {
                replaced(
                    create_qp_of(qp_type::RC, w.pd, w.cq),
                    RawAttr::bad_address(qp::create::RESP_QP_NUM, 4),
                )
            },
            EFAULT,
        ),
        (
            "a rate limit by the old command",
            |w| modify_qp(w, |m| m.attr_mask |= QpAttrMask::RATE_LIMIT.bits()),
            EOPNOTSUPP,
        ),
        ("state 9", |w| modify_qp(w, |m| m.qp_state = 9), EINVAL),
        ("to INIT without a port", |w| modify_qp(w, |m| m.attr_mask = QpAttrMask::STATE.bits()), EINVAL),
        ("to INIT with a queue key", |w| modify_qp(w, |m| m.attr_mask |= QpAttrMask::QKEY.bits()), EINVAL),
        ("to INIT on port 9", |w| modify_qp(w, |m| m.port_num = 9), EINVAL),
        ("from RESET to RTS", |w| modify_qp(w, |m| (m.qp_state, m.attr_mask) = (3, 1)), EINVAL),
        ("changing a QP that is not there", |w| modify_qp(w, |m| m.qp_handle = 99), ENOENT),
        ("the doorbell below RTS", |w| post_send(w, 0, 56), EINVAL),
        ("requests too small", |w| post_send(w, 0, 55), EINVAL),
        ("a request that is not there", |w| post_send(w, 1, 56), ENOSPC),
        ("requests beyond counting", |w| post_send(w, u32::MAX, u32::MAX), ENOSPC),
        ("arming what is no CQ", |w| write(cmd::REQ_NOTIFY_CQ, &[w.pd, 0], 0), EINVAL),
    ];
    on_every_device_and(Profile::default().with_xrc(false), |target| {
        if target.device.driver() == "mlx5" {
            return skip(target, "what makes its queues is its driver's own");
        }
        every_row(target, rows);
    });
}

#[test]
fn memory_and_what_is_in_use() {
    let rows: &[Row<Base>] = &[
        ("destroying a CQ in use", |w| destroy_cq(w.cq), EBUSY),
        ("destroying a domain in use", |w| destroy_pd(w.pd.into()), EBUSY),
        ("destroying a QP without room for the answer", |w| destroy(qp::OBJECT, 1, w.qp), EINVAL),
        ("destroying a QP with too much room", |w| replaced(destroy_qp(w.qp), RawAttr::output(1, 8)), EINVAL),
        ("memory with another page offset", |w| reg_mr(w, |r| r.hca_va += 1), EINVAL),
        (
            "remote write without local write",
            |w| reg_mr(w, |r| r.access_flags = AccessFlags::REMOTE_WRITE.bits()),
            EINVAL,
        ),
        ("an unknown access bit", |w| reg_mr(w, |r| r.access_flags |= 1 << 12), EINVAL),
        ("an optional access bit", |w| reg_mr(w, |r| (r.access_flags, r.pd_handle) = (1 << 25, 99)), ENOENT),
        ("paging on demand", |w| reg_mr(w, |r| r.access_flags |= AccessFlags::ON_DEMAND.bits()), EINVAL),
        ("memory that is not there", |w| reg_mr(w, |r| (r.start, r.hca_va) = (4096, 4096)), EFAULT),
        // At the start of a page, including one of 64 KiB: otherwise a kernel also counts the page that contains the address
        // (`ib_umem_num_pages`, ib_umem.h, 7.3).
        (
            "memory of length zero",
            |w| reg_mr(w, |r| (r.start, r.hca_va, r.length) = (r.start & !0xffff, r.start & !0xffff, 0)),
            EINVAL,
        ),
        ("memory around the end", |w| reg_mr(w, |r| r.length = u64::MAX), EINVAL),
        ("memory in no domain", |w| reg_mr(w, |r| r.pd_handle = 99), ENOENT),
        (
            "advice",
            |w| {
                RawCommand::new(mr::OBJECT, mr::method::ADVISE)
                    .with(RawAttr::handle(0, w.pd.into()))
                    .with(RawAttr::value(1, 0))
                    .with(RawAttr::input(2, &[0; 4]))
                    .with(RawAttr::input(3, &[0; 16]))
            },
            EOPNOTSUPP,
        ),
    ];
    on_every_device(|target| every_row(target, rows));
}

fn every_row(target: &Target, rows: &[Row<Base>]) {
    let base = files::base(target, qp_type::RC);
    let mut answers = Answers::of(target);
    send_rows(&base, rows, |what, got, expected| answers.is(what, got, expected));
}
