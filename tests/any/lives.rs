//! The life of each object on every device: its handle, when it can be destroyed, and what closing the file leaves.

use crate::commands::*;
use crate::common::{Answers, Target, on_every_device, skip};
use crate::files;
use nix::libc::{EBUSY, EFAULT, EINVAL, ENOENT};
use uverbs::transport::RawAttr;
use uverbs_abi::ids::{ah, cq, mr, pd, qp, srq};
use uverbs_abi::ioctl;
use uverbs_abi::rxe::CreateCqResp;
use uverbs_abi::types::qp_type;
use uverbs_abi::write::{AhAttr, CreateAh, cmd};
use zerocopy::FromZeros;

fn base(target: &Target) -> Base {
    files::base(target, qp_type::RC)
}

/// `None` on a device without addresses: a card without its network interface.
fn new_ah(target: &Target, base: &Base) -> Option<u32> {
    target.open().gid(1, 1).ok()?;
    let mut attr = AhAttr { is_global: 1, port_num: 1, ..AhAttr::new_zeroed() };
    attr.grh.sgid_index = 1;
    attr.grh.dgid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    let request = CreateAh { pd_handle: base.pd, attr, ..CreateAh::new_zeroed() };
    Some(answer(&done(&base.file, write(cmd::CREATE_AH, &request, 4)), CORE_OUT))
}

#[test]
fn handles_are_one_space_from_zero() {
    on_every_device(|target| {
        let base = base(target);
        assert_eq!([base.pd, base.cq, base.qp, base.mr], [0, 1, 2, 3]);
        done(&base.file, destroy_qp(base.qp));
        assert_eq!(new_pd(&base.file), base.qp, "the lowest that is free");
        // A failed command releases its handle immediately.
        assert_eq!(base.file.invoke(&mut create_cq(0)), Err(EINVAL));
        assert_eq!(new_pd(&base.file), 4);
    });
}

#[test]
fn an_object_in_use_is_busy_and_one_that_was_destroyed_is_not_there() {
    on_every_device(|target| {
        let mut answers = Answers::of(target);
        let base = base(target);
        let handle = new_ah(target, &base);
        let destroy_pd = || destroy(pd::OBJECT, pd::method::DESTROY, base.pd);
        let address = handle.map(|handle| {
            ("an address handle", destroy(ah::OBJECT, ah::method::DESTROY, handle), vec![destroy_pd()])
        });
        let in_order = [
            ("a region", destroy(mr::OBJECT, mr::method::DESTROY, base.mr), vec![destroy_pd()]),
            ("a queue pair", destroy_qp(base.qp), vec![destroy_pd(), destroy_cq(base.cq)]),
            ("a completion queue", destroy_cq(base.cq), vec![]),
            ("a protection domain", destroy_pd(), vec![]),
        ];
        for (name, command, busy) in address.into_iter().chain(in_order) {
            for mut command in busy {
                let what = format!("destroying what {name} uses");
                answers.is(&what, errno(base.file.invoke(&mut command)), Answer(EBUSY));
            }
            let again = || errno(base.file.invoke(&mut command.clone()));
            answers.is(&format!("destroying {name}"), again(), Answer(0));
            answers.is(&format!("destroying {name} again"), again(), Answer(ENOENT));
        }
        assert!(base.handles().iter().all(|(object, list)| *object >= 16 || list.is_empty()));
    });
}

#[test]
fn a_handle_is_of_one_kind_and_of_one_file() {
    on_every_device(|target| {
        let mut answers = Answers::of(target);
        let base = base(target);
        let kinds = [
            (pd::OBJECT, destroy(pd::OBJECT, pd::method::DESTROY, 0)),
            (cq::OBJECT, destroy_cq(0)),
            (qp::OBJECT, destroy_qp(0)),
            (mr::OBJECT, destroy(mr::OBJECT, mr::method::DESTROY, 0)),
            (ah::OBJECT, destroy(ah::OBJECT, ah::method::DESTROY, 0)),
            (srq::OBJECT, destroy(srq::OBJECT, srq::method::DESTROY, 0).with(RawAttr::output(1, 4))),
        ];
        let handles =
            [(pd::OBJECT, base.pd), (cq::OBJECT, base.cq), (qp::OBJECT, base.qp), (mr::OBJECT, base.mr)];
        let other = target.raw();
        files::new_context(target, &other);
        for (of, handle) in handles {
            for (kind, command) in &kinds {
                let mut command = changed(command.clone(), 0, |attr| attr.data = handle.into());
                if *kind != of {
                    let what = format!("destroying an object of kind {of} as one of kind {kind}");
                    answers.is(&what, errno(base.file.invoke(&mut command)), Answer(EINVAL));
                }
                let what = format!("destroying another file's object of kind {of} as one of kind {kind}");
                answers.is(&what, errno(other.invoke(&mut command)), Answer(ENOENT));
            }
        }
    });
}

#[test]
fn a_destroy_whose_answer_cannot_be_written_has_destroyed() {
    on_every_device(|target| {
        let base = base(target);
        let mut command = destroy(qp::OBJECT, qp::method::DESTROY, base.qp).with(RawAttr::bad_address(1, 4));
        assert_eq!(base.file.invoke(&mut command), Err(EFAULT));
        assert_eq!(base.file.invoke(&mut destroy_qp(base.qp)), Err(ENOENT));
    });
}

#[test]
fn closing_cleans_up_whatever_depends_on_what() {
    on_every_device(|target| {
        let other = base(target);
        let closed = base(target);
        new_ah(target, &closed);
        drop(closed);
        done(&other.file, destroy_qp(other.qp));
    });
}

#[test]
fn a_ring_is_mapped_by_its_offset_and_outlives_its_queue() {
    on_every_device(|target| {
        if target.device.driver() == "mlx5" {
            return skip(target, "its queues are memory of the process");
        }
        let mut answers = Answers::of(target);
        let base = base(target);
        let made = done(&base.file, create_cq(16));
        let CreateCqResp { mi } = answer(&made, ioctl::UHW_OUT);
        let size = mi.size as usize;
        let map = |offset, len| errno(base.file.map(offset, len).map(drop));
        answers.is("entries of a queue for 16", answer::<u32>(&made, cq::create::RESP_CQE), 31);
        answers.is("mapping beyond the end of a ring", map(mi.offset, size + 4096), Answer(EINVAL));
        answers.is("mapping inside a ring", map(mi.offset + 1, size), Answer(EINVAL));
        answers.is("mapping nothing", map(mi.offset, 0), Answer(EINVAL));
        let ring = base.file.map(mi.offset, size).unwrap();
        answers.is("mapping a ring again", map(mi.offset, size), Answer(EINVAL));
        done(&base.file, destroy_cq(made.data(cq::create::HANDLE) as u32));
        assert!(ring.read(0, &mut [0; 8]));
        answers.is("mapping a ring that is gone", map(mi.offset, size), Answer(EINVAL));
    });
}
