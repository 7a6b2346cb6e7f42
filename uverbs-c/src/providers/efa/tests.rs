//! Callers with older or newer structures.

use uverbs::SoftDevice;
use uverbs::abi::types::qp_type;
use zerocopy::FromZeros;

use super::*;
use crate::abi::{
    CompCntrInitAttr, CqInitAttrEx, ParentDomainInitAttr, QpInitAttr, QpInitAttrEx, TdInitAttr,
};
use crate::answer::EOPNOTSUPP;
use crate::boundary::Given;
use crate::cq_ex;
use crate::domain::{alloc_parent_domain, alloc_td, dealloc_td};
use crate::qp::{create_qp, destroy_qp};
use crate::qp_ex::tests::{World, errno};

#[test]
fn a_structure_is_read_as_far_as_it_goes() {
    let bytes: Vec<u8> = (1..=40).collect();
    let read = |len, least| given::<SqDepthAttr>(Pointer::to_first(&bytes), len, least);
    let attr = read(20, 20).expect("it is long enough");
    assert_eq!((attr.flags, attr.max_inline_data), (u32::from_ne_bytes([9, 10, 11, 12]), 0));
    assert_eq!(read(19, 20).err(), Some(EINVAL), "too short");
    assert_eq!(read(25, 20).err(), Some(EINVAL), "something stands behind what is known");
    assert!(given_prefix::<SqDepthAttr>(Pointer::to_first(&bytes), 40, 20).is_ok());
    let zeros = [0_u8; 40];
    assert!(given::<SqDepthAttr>(Pointer::to_first(&zeros), 40, 20).is_ok());
    assert_eq!(given::<SqDepthAttr>(Pointer::NULL, 24, 20).err(), Some(EINVAL));
}

#[test]
fn a_structure_is_filled_to_its_end_and_no_further() {
    let value = AhAttr { ahn: 0x0201, ..AhAttr::default() };
    for len in [0, 9, 10, 16, 30] {
        let mut bytes = [0xa5_u8; 40];
        let answer = told(Places::of(&mut bytes), len, 10, &value);
        let filled = if len < 10 { 0 } else { len as usize };
        assert_eq!(answer.is_ok(), len >= 10);
        let wanted = (0..40).map(|at| match at {
            8 if filled > 0 => 1,
            9 if filled > 0 => 2,
            _ if at < filled => 0,
            _ => 0xa5,
        });
        assert!(bytes.into_iter().eq(wanted), "{len}: {bytes:x?}");
    }
}

/// Asserts that the call has created nothing. Returns its errno.
fn refused<T>(made: Option<T>) -> i32 {
    assert!(made.is_none());
    errno()
}

#[test]
fn every_call_refuses_a_device_that_is_no_efa_and_one_that_is_not_there() {
    let (lacks, bad) = (EOPNOTSUPP.get(), EINVAL.get());
    let world = World::new();
    let (context, zeros, mut bytes) = (Some(world.context()), [0_u8; 96], [0xa5_u8; 96]);
    let own = Pointer::to_first(&zeros);
    let answers = |context| {
        let answer = query_device(context, Places::of(&mut [0; 96]), 32);
        let depths = [get_max_sq_depth(context, own, 24), get_max_rq_depth(context, own, 16)];
        let cq = refused(create_cq(context, Some(&CqInitAttrEx::new_zeroed()), own, 56));
        let qp = refused(create_qp_ex(context, Some(&mut QpInitAttrEx::new_zeroed()), own, 24));
        let counter = refused(create_comp_cntr(context, Some(&CompCntrInitAttr::new_zeroed()), own, 80));
        [answer, -depths[0], -depths[1], cq, qp, counter]
    };
    assert_eq!((answers(context), answers(None)), ([lacks; 6], [bad; 6]));

    let mut init = QpInitAttr::new_zeroed();
    (init.qp_type, init.cap.max_send_wr, init.cap.max_recv_wr) = (qp_type::DRIVER.into(), 4, 4);
    (init.send_cq, init.recv_cq) = (Pointer::to(&*world.sent), Pointer::to(&*world.sent));
    assert_eq!(refused(create_driver_qp(Some(&world.pd), Some(&mut init), 0)), lacks);
    assert_eq!(refused(create_driver_qp(None, Some(&mut init), 0)), bad);
    assert_eq!(refused(create_qp(Some(&world.pd), Some(&mut init))), lacks);
    init.qp_type = qp_type::RC.into();
    let qp = create_qp(Some(&world.pd), Some(&mut init)).unwrap();
    let [ref mut first, ref mut second] = [[0xa5_u8; 40]; 2];
    assert_eq!(query_qp_wqs(Some(&qp), Places::of(first), Places::of(second), 40), lacks);
    assert_eq!(query_qp_wqs(None, Places::of(first), Places::of(second), 40), bad);
    assert_eq!(query_cq(Some(&world.sent), Places::of(&mut bytes), 32), lacks);
    let nobodys = [query_cq(None, Places::of(&mut bytes), 32), query_ah(None, Places::of(&mut bytes), 16)];
    assert_eq!((nobodys, query_mr(None, Places::of(&mut bytes), 16)), ([bad; 2], bad));
    assert!(bytes.iter().chain(first.iter()).chain(second.iter()).all(|byte| *byte == 0xa5));
    assert!(cq_from_ibv_cq_ex(None).is_null() && qp_from_ibv_qp_ex(None).is_null());

    // Only efa has thread and parent domains.
    assert_eq!(refused(alloc_td(context, Some(&TdInitAttr { comp_mask: 0 }))), lacks);
    let parent = ParentDomainInitAttr { pd: Pointer::to(&*world.pd), ..ParentDomainInitAttr::new_zeroed() };
    assert_eq!(refused(alloc_parent_domain(context, Some(&parent))), lacks);
    let of_parent =
        CqInitAttrEx { cqe: 4, comp_mask: 2, parent_domain: parent.pd, ..FromZeros::new_zeroed() };
    assert_eq!(refused(cq_ex::create_cq_ex(context, Some(&of_parent))), lacks);
    assert_eq!((dealloc_td(None), destroy_qp(Given::of(qp))), (bad, 0));
    world.end();
}

#[test]
fn another_device_is_refused_by_every_question() {
    let context = SoftDevice::default().open().expect("a device");
    assert_eq!(Device::of(&context).err().map(Code::from), Some(EOPNOTSUPP));
    assert_eq!(Device::most_sends(&context, false).err().map(Code::from), Some(EOPNOTSUPP));
    assert_eq!(Ways::of_handle(&context, 0).err().map(Code::from), Some(EOPNOTSUPP));
    assert!(!context.has_parent_domains() && context.most_sends().is_none());
}

#[test]
fn numbers_are_below_zero_for_an_errno() {
    assert_eq!([number(Ok(5)), number(Err(EINVAL)), number(Ok(u32::MAX))], [5, -22, -22]);
}
