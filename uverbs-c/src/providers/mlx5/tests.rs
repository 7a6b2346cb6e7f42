//! Bad input, and devices of other drivers.

use std::os::fd::AsRawFd;

use uverbs::SoftDevice;
use zerocopy::FromZeros;

use super::*;
use crate::abi::{CqInitAttrEx, QpInitAttrEx, WqInitAttr};
use crate::boundary::Counted;
use crate::context::import_device;
use crate::qp_ex::tests::{World, errno};

/// A pair of an object and a place for its description, at its position.
fn pairs(at: usize, object: Pointer, out: Pointer) -> Vec<Pointer> {
    let mut pairs = vec![Pointer::NULL; 2 * (at + 1)];
    (pairs[2 * at], pairs[2 * at + 1]) = (object, out);
    pairs
}

#[test]
fn kinds_and_places_that_are_none_are_refused() {
    let (bad, lacks) = (EINVAL.get(), EOPNOTSUPP.get());
    let world = World::new();
    let out = [0xa5_u8; 128];
    let place = Pointer::to_first(&out);
    let pair = pairs(0, Pointer::to(world.context()), place);
    for call in [init_obj, init_obj_0] {
        assert_eq!(call(Pointer::NULL, 1), bad);
        assert_eq!(call(Pointer::to_first(&pair), 0), bad);
        // Device memory, objects of the firmware, and kinds that there are not.
        for kinds in [1 << 4, 1 << 7, 1 << 8, 1 << 63, 1 | 1 << 63] {
            assert_eq!(call(Pointer::to_first(&pair), kinds), lacks, "{kinds:#x}");
        }
        for at in [0, 1, 2, 3, 5, 6] {
            let none = pairs(at, Pointer::NULL, place);
            assert_eq!(call(Pointer::to_first(&none), 1 << at), bad, "no object of kind {at}");
        }
    }
    assert!(out.iter().all(|byte| *byte == 0xa5), "nothing was written");
}

#[test]
fn objects_of_another_driver_are_refused() {
    let lacks = EOPNOTSUPP.get();
    let world = World::new();
    let context = world.context();
    // Each object has its context first.
    let object = [Pointer::to(context)];
    let out = [0_u8; 128];
    for at in [0, 1, 2, 3, 5, 6] {
        let pair = pairs(at, Pointer::to_first(&object), Pointer::to_first(&out));
        assert_eq!(init_obj(Pointer::to_first(&pair), 1 << at), lacks);
    }
    let (cq, mut qp, mut wq) =
        (CqInitAttrEx::new_zeroed(), QpInitAttrEx::new_zeroed(), WqInitAttr::new_zeroed());
    assert!(create_cq(Some(context), Some(&cq), None).is_none() && errno() == lacks);
    assert!(create_qp(Some(context), Some(&mut qp), None).is_none() && errno() == lacks);
    assert!(create_wq(Some(context), Some(&mut wq), None).is_none() && errno() == lacks);
    let bad = EINVAL.get();
    assert!(create_cq(None, Some(&cq), None).is_none() && errno() == bad);
    assert!(create_qp(None, None, None).is_none() && errno() == bad);
    assert!(create_wq(None, None, None).is_none() && errno() == bad);
    assert!(create_dest_qp(None).is_none() && errno() == bad);
    assert_eq!(destroy_action(None), bad);
    assert_eq!((set_context_attr(Some(context), 1, None), set_context_attr(None, 1, None)), (lacks, bad));
}

#[test]
fn only_a_device_of_mlx5_is_opened() {
    let device = std::sync::Arc::new(device::Device::new(SoftDevice::default().device()));
    let handed = Counted::give(device);
    assert!(!is_known(handed.0) && !is_known(Pointer::NULL));
    assert!(!is_supported(handed.0) && !is_supported(Pointer::NULL));
    drop(Counted::take::<device::Device>(handed));
    let attr = ContextAttr { flags: 0, comp_mask: 0 };
    assert!(open_device(Pointer::NULL, Some(&attr)).is_null() && errno() == EOPNOTSUPP.get());
    for attr in [ContextAttr { flags: 1, comp_mask: 0 }, ContextAttr { flags: 0, comp_mask: 1 }] {
        assert!(open_device(Pointer::NULL, Some(&attr)).is_null());
        assert_eq!(errno(), if attr.comp_mask == 0 { EOPNOTSUPP.get() } else { EINVAL.get() });
    }
    assert!(open_device(Pointer::NULL, None).is_null() && errno() == EINVAL.get());
}

#[test]
fn a_file_that_is_none_of_a_device_is_not_imported() {
    assert!(import_device(-1).is_null() && errno() == nix::libc::EBADF);
    let (file, _) = nix::unistd::pipe().expect("a pipe");
    assert!(import_device(file.as_raw_fd()).is_null());
    // A refusal leaves it open.
    assert!(nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_GETFD).is_ok());
}

/// Room for an answer that must stay as it is.
fn room(answer: &mut [u8; 64]) -> Places<'_, u8> {
    *answer = [0xa5; 64];
    Places::of(answer)
}

#[test]
fn commands_to_the_firmware_need_a_device_that_takes_them() {
    let (bad, lacks) = (EINVAL.get(), EOPNOTSUPP.get());
    let world = World::new();
    let context = world.context();
    let request = [0_u8; 32];
    let (from, mut answer) = (Pointer::to_first(&request), [0; 64]);
    for (context, errno) in [(None, bad), (Some(context), lacks)] {
        assert_eq!(general_cmd(context, from, 32, room(&mut answer), 64), errno);
        assert!(obj_create(context, from, 32, room(&mut answer), 64).is_none() && self::errno() == errno);
        assert!(umem_reg(context, from, 32, 0).is_none() && self::errno() == errno);
        assert!(umem_reg_ex(context, None).is_none() && self::errno() == errno);
        assert!(alloc_var(context, 0).is_none() && self::errno() == errno);
        assert!(alloc_uar(context, 1).is_none() && self::errno() == errno);
        assert!(create_cmd_comp(context).is_none() && self::errno() == errno);
        assert!(create_event_channel(context, 0).is_none() && self::errno() == errno);
        assert_eq!(query_eqn(context, 0, Places::of(&mut [0])), errno);
        assert!(pp_alloc(context, 32, from, 0).is_none() && self::errno() == errno);
        assert_eq!(reserved_qpn_alloc(context, Places::of(&mut [0])), errno);
        assert_eq!(reserved_qpn_dealloc(context, 7), errno);
        assert!(create_flow_matcher(context, from).is_none() && self::errno() == errno);
        assert!(create_modify_header(context, 8, from, 0).is_none() && self::errno() == errno);
        assert!(create_packet_reformat(context, 8, from, 0, 0).is_none() && self::errno() == errno);
    }
    assert!(answer.iter().all(|byte| *byte == 0xa5), "nothing was written");
}

#[test]
fn objects_of_the_firmware_that_are_none_are_refused() {
    let bad = EINVAL.get();
    let (request, mut answer) = ([0_u8; 32], [0; 64]);
    let from = Pointer::to_first(&request);
    assert_eq!(obj_query(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(obj_modify(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(obj_destroy(None), bad);
    assert_eq!(cq_query(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(cq_modify(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(qp_query(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(qp_modify(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(srq_query(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(srq_modify(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(wq_query(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(wq_modify(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(ind_tbl_query(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(ind_tbl_modify(None, from, 32, room(&mut answer), 64), bad);
    assert_eq!(query_async(None, from, 32, 64, 1, None), bad);
    assert_eq!(get_cmd_comp(None, room(&mut answer), 64), bad);
    assert_eq!(get_event(None, room(&mut answer), 64), -1);
    assert_eq!(errno(), bad);
    assert_eq!(subscribe(None, None, 2, from, 0), bad);
    assert_eq!(subscribe_fd(None, 0, None, 0), bad);
    assert_eq!(umem_dereg(None), bad);
    assert_eq!(destroy_flow_matcher(None), bad);
    assert_eq!(destroy_flow_action(None), bad);
    assert!(create_flow(None, from, 0, from).is_none() && errno() == bad);
    assert!(create_flow_sized(None, from, 0, from, 24).is_none() && errno() == bad);
    // These return nothing.
    free_uar(None);
    free_var(None);
    pp_free(None);
    destroy_cmd_comp(None);
    destroy_event_channel(None);
    assert!(answer.iter().all(|byte| *byte == 0xa5), "nothing was written");
}

#[test]
fn queues_of_other_drivers_have_no_commands() {
    let lacks = EOPNOTSUPP.get();
    let world = World::new();
    let (request, mut answer) = ([0_u8; 32], [0; 64]);
    let from = Pointer::to_first(&request);
    assert_eq!(cq_query(Some(&world.sent), from, 32, room(&mut answer), 64), lacks);
    assert_eq!(cq_modify(Some(&world.sent), from, 32, room(&mut answer), 64), lacks);
    assert!(answer.iter().all(|byte| *byte == 0xa5), "nothing was written");
}
