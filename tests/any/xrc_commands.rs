//! Domains of extended reliable connections, with commands built by hand: bad input and its errno, and objects in use.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use crate::commands::*;
use crate::common::{Answers, Target, on_every_extended_device};
use crate::files;
use nix::libc::{EAGAIN, EBADF, EBUSY, EINVAL, ENOENT, ENOSPC, O_CREAT, O_EXCL};
use uverbs::transport::{RawAttr, RawCommand};
use uverbs_abi::ids::{qp, srq, xrcd};
use uverbs_abi::types::{QpAttrMask, QpCreateFlags, qp_state, qp_type, srq_type};
use uverbs_abi::write::{CreateQpResp, OpenQp, OpenXrcd, QpCap, cmd};
use zerocopy::{FromZeros, IntoBytes};

fn open(fd: RawFd, oflags: i32) -> RawCommand {
    let request = OpenXrcd { response: 0, fd: fd as u32, oflags: oflags as u32 };
    write(cmd::OPEN_XRCD, &request, 4)
}

fn opened(base: &Base) -> u32 {
    answer(&done(&base.file, open(-1, 0)), CORE_OUT)
}

fn close(xrcd: u32) -> RawCommand {
    destroy(xrcd::OBJECT, xrcd::method::DESTROY, xrcd)
}

fn open_qp(xrcd: u32, qpn: u32, qp_type: u8) -> RawCommand {
    let request = OpenQp { pd_handle: xrcd, qpn, qp_type, ..OpenQp::new_zeroed() };
    write(cmd::OPEN_QP, &request, size_of::<CreateQpResp>())
}

fn create_target(xrcd: u32) -> RawCommand {
    use qp::create::*;
    RawCommand::new(qp::OBJECT, qp::method::CREATE)
        .with(RawAttr::handle(HANDLE, 0))
        .with(RawAttr::handle(XRCD_HANDLE, xrcd.into()))
        .with(RawAttr::input(USER_HANDLE, 88_u64.as_bytes()))
        .with(RawAttr::input(CAP, QpCap::new_zeroed().as_bytes()))
        .with(RawAttr::value(TYPE, qp_type::XRC_TGT.into()))
        .with(RawAttr::output(RESP_CAP, size_of::<QpCap>()))
        .with(RawAttr::output(RESP_QP_NUM, 4))
}

/// A new queue pair's handle and number.
fn target_of(base: &Base, xrcd: u32) -> (u32, u32) {
    let made = done(&base.file, create_target(xrcd));
    (made.data(qp::create::HANDLE) as u32, answer(&made, qp::create::RESP_QP_NUM))
}

fn create_srq(pd: u32, cq: u32, xrcd: u32) -> RawCommand {
    use srq::create::*;
    RawCommand::new(srq::OBJECT, srq::method::CREATE)
        .with(RawAttr::handle(HANDLE, 0))
        .with(RawAttr::handle(PD_HANDLE, pd.into()))
        .with(RawAttr::handle(CQ_HANDLE, cq.into()))
        .with(RawAttr::handle(XRCD_HANDLE, xrcd.into()))
        .with(RawAttr::value(TYPE, srq_type::XRC.into()))
        .with(RawAttr::input(USER_HANDLE, 99_u64.as_bytes()))
        .with(RawAttr::input(MAX_WR, 4_u32.as_bytes()))
        .with(RawAttr::input(MAX_SGE, 1_u32.as_bytes()))
        .with(RawAttr::input(LIMIT, 0_u32.as_bytes()))
        .with(RawAttr::output(RESP_MAX_WR, 4))
        .with(RawAttr::output(RESP_MAX_SGE, 4))
        .with(RawAttr::output(RESP_SRQ_NUM, 4))
}

fn base(target: &Target) -> Base {
    files::base(target, qp_type::RC)
}

#[test]
fn what_cannot_be_opened() {
    on_every_extended_device(|target| {
        let mut answers = Answers::of(target);
        let base = base(target);
        let file = File::open("/dev/null").unwrap();
        let fd = file.as_raw_fd();
        let mut is = |what: &str, mut command: RawCommand, expected: i32| {
            answers.is(what, errno(base.file.invoke(&mut command)), Answer(expected));
        };
        is("a domain of a descriptor that is not open", open(1000, O_CREAT), EBADF);
        is("a domain of a negative descriptor", open(-2, O_CREAT), EBADF);
        is("a domain of a file that nobody has open", open(fd, 0), EAGAIN);
        is("the same, but not if somebody has", open(fd, O_EXCL), EAGAIN);
        is("without room for the answer", write(cmd::OPEN_XRCD, &OpenXrcd::new_zeroed(), 0), ENOSPC);
        is("a domain of a file", open(fd, O_CREAT | O_EXCL), 0);
        is("the same again", open(fd, O_CREAT), 0);
        is("the same, which somebody has open", open(fd, O_CREAT | O_EXCL), EINVAL);
        is("only if nobody has it", open(fd, O_EXCL), EINVAL);
        is("a domain of no file, whatever the flags", open(-1, O_EXCL), 0);
        is("closing what is not there", close(99), ENOENT);
        is("closing a protection domain as such", close(base.pd), EINVAL);
        is("the same by the old command", write(cmd::CLOSE_XRCD, &base.pd, 0), EINVAL);
        is("closing one by the old command", write(cmd::CLOSE_XRCD, &4_u32, 0), 0);
        is("closing it again", write(cmd::CLOSE_XRCD, &4_u32, 0), ENOENT);
    });
}

#[test]
fn what_cannot_be_made_in_a_domain() {
    on_every_extended_device(|target| {
        let mut answers = Answers::of(target);
        let base = base(target);
        let domain = opened(&base);
        let (made, number) = target_of(&base, domain);
        let mut is = |what: &str, mut command: RawCommand, expected: i32| {
            answers.is(what, errno(base.file.invoke(&mut command)), Answer(expected));
        };
        let good = || create_target(domain);
        for (what, id, handle) in [
            ("a protection domain", qp::create::PD_HANDLE, base.pd),
            ("a queue for sends", qp::create::SEND_CQ_HANDLE, base.cq),
            ("a queue for receives", qp::create::RECV_CQ_HANDLE, base.cq),
        ] {
            is(&format!("a target with {what}"), good().with(RawAttr::handle(id, handle.into())), EINVAL);
        }
        is("a target without a domain", without(good(), qp::create::XRCD_HANDLE), ENOENT);
        is("a target in a domain that is not there", create_target(99), ENOENT);
        is("a target in a protection domain", create_target(base.pd), EINVAL);
        let flags = QpCreateFlags::SCATTER_FCS.bits();
        is("a target with flags", good().with(RawAttr::input(qp::create::FLAGS, flags.as_bytes())), EINVAL);
        let xrcd = RawAttr::handle(qp::create::XRCD_HANDLE, domain.into());
        for (what, kind) in [("a connection", qp_type::RC), ("an initiator", qp_type::XRC_INI)] {
            let command = create_qp_of(kind, base.pd, base.cq).with(xrcd.clone());
            is(&format!("{what} in a domain"), command, EINVAL);
        }
        let initiator = || create_qp_of(qp_type::XRC_INI, base.pd, base.cq);
        is("an initiator without a protection domain", without(initiator(), qp::create::PD_HANDLE), ENOENT);
        is("an initiator that completes nowhere", without(initiator(), qp::create::SEND_CQ_HANDLE), ENOENT);

        is("opening what is not there", open_qp(domain, 0xff_fff0, qp_type::XRC_TGT), EINVAL);
        is("opening a connection", open_qp(domain, base.qp_num, qp_type::XRC_TGT), EINVAL);
        is("opening it as a connection", open_qp(domain, number, qp_type::RC), EINVAL);
        is("opening it in a domain that is not there", open_qp(99, number, qp_type::XRC_TGT), EINVAL);
        is("opening it in a protection domain", open_qp(base.pd, number, qp_type::XRC_TGT), EINVAL);

        let queue = || create_srq(base.pd, base.cq, domain);
        is("a queue that completes nowhere", without(queue(), srq::create::CQ_HANDLE), ENOENT);
        is("a queue without a domain", without(queue(), srq::create::XRCD_HANDLE), ENOENT);
        is("a queue without a protection domain", without(queue(), srq::create::PD_HANDLE), EINVAL);
        is("a queue in a protection domain", create_srq(base.pd, base.cq, base.pd), EINVAL);
        is(
            "a target on a plain state",
            write(cmd::MODIFY_QP, &modify(made, 9, QpAttrMask::empty()), 0),
            EINVAL,
        );
        let init = modify(made, qp_state::INIT, QpAttrMask::PORT);
        is("a target that lacks attributes", write(cmd::MODIFY_QP, &init, 0), EINVAL);
    });
}

#[test]
fn a_domain_and_a_target_are_there_until_the_last_has_closed_them() {
    on_every_extended_device(|target| {
        let mut answers = Answers::of(target);
        let (one, other) = (base(target), base(target));
        let file = File::open("/dev/null").unwrap();
        let join = open(file.as_raw_fd(), O_CREAT);
        let first: u32 = answer(&done(&one.file, join.clone()), CORE_OUT);
        let second: u32 = answer(&done(&other.file, join), CORE_OUT);
        let (made, number) = target_of(&one, first);
        let CreateQpResp { qp_handle, qpn, .. } =
            answer(&done(&other.file, open_qp(second, number, qp_type::XRC_TGT)), CORE_OUT);
        assert_eq!(qpn, number);
        let mut is = |what: &str, base: &Base, mut command: RawCommand, expected: i32| {
            answers.is(what, errno(base.file.invoke(&mut command)), Answer(expected));
        };
        is("closing the domain of a target", &one, close(first), EBUSY);
        is("closing the domain of a target that was opened", &other, close(second), EBUSY);
        is("destroying the target", &one, destroy_qp(made), 0);
        is("closing its domain, which others have", &one, close(first), 0);
        let init = modify(qp_handle, qp_state::ERR, QpAttrMask::empty());
        is("changing what was opened", &other, write(cmd::MODIFY_QP, &init, 0), EINVAL);
        let reset = modify(qp_handle, qp_state::RESET, QpAttrMask::empty());
        is("resetting what was opened", &other, write(cmd::MODIFY_QP, &reset, 0), 0);
        is("opening it once more", &other, open_qp(second, number, qp_type::XRC_TGT), 0);
        is("closing it", &other, destroy_qp(qp_handle), 0);
        is("opening it again", &other, open_qp(second, number, qp_type::XRC_TGT), 0);
        // The other objects are destroyed with the file, in the required order.
        is("destroying the queue of others", &other, destroy_cq(other.cq), EBUSY);
    });
}

#[test]
fn a_file_that_is_closed_leaves_what_others_have_open() {
    on_every_extended_device(|target| {
        let (one, other) = (base(target), base(target));
        let file = File::open("/dev/null").unwrap();
        let join = open(file.as_raw_fd(), O_CREAT);
        let first: u32 = answer(&done(&one.file, join.clone()), CORE_OUT);
        let second: u32 = answer(&done(&other.file, join), CORE_OUT);
        let (_, number) = target_of(&one, first);
        let opened: CreateQpResp =
            answer(&done(&other.file, open_qp(second, number, qp_type::XRC_TGT)), CORE_OUT);
        drop(one);
        let reset = modify(opened.qp_handle, qp_state::RESET, QpAttrMask::empty());
        done(&other.file, write(cmd::MODIFY_QP, &reset, 0));
        done(&other.file, destroy_qp(opened.qp_handle));
        let mut again = open_qp(second, number, qp_type::XRC_TGT);
        assert_eq!(other.file.invoke(&mut again), Err(EINVAL));
        done(&other.file, close(second));
    });
}
