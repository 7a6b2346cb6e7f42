//! Extended reliable connections, used as a program in C uses them, on the soft device: rxe does not support them.

use std::mem::MaybeUninit;
use std::sync::Arc;

use uverbs::abi::types::{AccessFlags, QpAttrMask, mtu, qp_state, srq_type, wc_status, wr_opcode};
use uverbs::abi::write::{AhAttr, Wc};
use uverbs::raw::Sge;
use uverbs::raw::provider::Rxe;
use uverbs::{MemoryRegion, SoftDevice};
use zerocopy::FromZeros;

use super::*;
use crate::abi::{QpAttr, QpInitAttr, QpOpenAttr, RecvWr, SendWr, SrqInitAttrEx, XrcdInitAttr};
use crate::boundary::{Given, Handed, Places};
use crate::context::{Context, close_device, open_device};
use crate::cq::{Cq, create_cq, destroy_cq, poll_cq};
use crate::device::Device;
use crate::pd::{Pd, alloc_pd, dealloc_pd};
use crate::post::post_send;
use crate::qp::{create_qp, create_qp_ex, destroy_qp, modify_qp, open_qp, query_qp};
use crate::receive::{post_recv, post_srq_recv};
use crate::srq::{create_srq_ex, destroy_srq, get_srq_num};
use crate::xrcd::{Xrcd, close_xrcd, open_xrcd};

const CREATE: i32 = nix::libc::O_CREAT;
const BOTH: u32 = 3;

pub(crate) fn errno() -> i32 {
    nix::errno::Errno::last_raw()
}

fn xrcd(context: &Context, comp_mask: u32, fd: i32, oflags: i32) -> Option<Box<Xrcd>> {
    open_xrcd(Some(context), Some(&XrcdInitAttr { comp_mask, fd, oflags }))
}

fn wanted_srq(pd: &Pd, xrcd: &Xrcd, cq: &Cq) -> SrqInitAttrEx {
    let mut attr = SrqInitAttrEx::new_zeroed();
    (attr.attr.max_wr, attr.attr.max_sge) = (8, 1);
    (attr.comp_mask, attr.srq_type) = (0xf, srq_type::XRC);
    (attr.pd, attr.xrcd, attr.cq) = (Pointer::to(pd), Pointer::to(xrcd), Pointer::to(cq));
    attr
}

fn wanted_target(xrcd: &Xrcd) -> QpInitAttrEx {
    let mut init = QpInitAttrEx::new_zeroed();
    (init.qp_type, init.comp_mask, init.xrcd) = (qp_type::XRC_TGT.into(), 2, Pointer::to(xrcd));
    init
}

fn wanted_initiator(pd: &Pd, cq: &Cq) -> QpInitAttrEx {
    let mut init = QpInitAttrEx::new_zeroed();
    (init.qp_type, init.comp_mask) = (qp_type::XRC_INI.into(), 1 | 1 << 6);
    (init.pd, init.send_cq, init.send_ops_flags) =
        (Pointer::to(pd), Pointer::to(cq), WRITE | SEND_IMM | SEND);
    (init.cap.max_send_wr, init.cap.max_send_sge, init.cap.max_inline_data) = (8, 1, 64);
    (init.cap.max_recv_wr, init.cap.max_recv_sge) = (9, 9);
    init
}

fn to_init(qp: &Qp) {
    let mut attr = QpAttr::new_zeroed();
    (attr.qp_state, attr.port_num) = (qp_state::INIT.into(), 1);
    attr.qp_access_flags = (AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ).bits();
    let mask = QpAttrMask::STATE | QpAttrMask::PORT | QpAttrMask::PKEY_INDEX | QpAttrMask::ACCESS_FLAGS;
    assert_eq!(modify_qp(Some(qp), Some(&attr), mask.bits() as c_int), 0);
}

fn to_receive(qp: &Qp, peer: u32, gid: [u8; 16], more: QpAttrMask) {
    use QpAttrMask as A;
    let mut attr = QpAttr::new_zeroed();
    (attr.qp_state, attr.path_mtu, attr.dest_qp_num) = (qp_state::RTR.into(), mtu::MTU_1024.into(), peer);
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr = AhAttr { is_global: 1, port_num: 1, ..AhAttr::new_zeroed() };
    attr.ah_attr.grh.dgid = gid;
    let mask = A::STATE | A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN | more;
    assert_eq!(modify_qp(Some(qp), Some(&attr), mask.bits() as c_int), 0);
}

fn to_send(qp: &Qp) {
    use QpAttrMask as A;
    let mut attr = QpAttr::new_zeroed();
    (attr.qp_state, attr.timeout, attr.rnr_retry, attr.max_rd_atomic) = (qp_state::RTS.into(), 14, 7, 1);
    let mask = A::STATE | A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::SQ_PSN | A::MAX_QP_RD_ATOMIC;
    assert_eq!(modify_qp(Some(qp), Some(&attr), mask.bits() as c_int), 0);
}

fn state(qp: &Qp) -> u32 {
    let (mut attr, mut init) =
        (MaybeUninit::new(QpAttr::new_zeroed()), MaybeUninit::new(QpInitAttr::new_zeroed()));
    assert_eq!(query_qp(Some(qp), Some(&mut attr), QpAttrMask::STATE.bits() as c_int, Some(&mut init)), 0);
    qp.c.qp_base.state.get()
}

fn poll(cq: &Cq) -> Option<Wc> {
    let mut wc = [Wc::new_zeroed()];
    let found = poll_cq::<Rxe>(cq, 1, Places::of(&mut wc));
    assert!(found >= 0);
    (found == 1).then(|| wc[0])
}

/// A device, its open context, and the objects that a program creates first.
pub(crate) struct World {
    soft: SoftDevice,
    _device: Arc<Device>,
    context: Pointer,
    pub(crate) pd: Box<Pd>,
    pub(crate) sent: Box<Cq>,
    received: Box<Cq>,
    /// The soft device accepts no addresses of the program: this memory is the library's own.
    memory: MemoryRegion,
}

impl World {
    pub(crate) fn new() -> Self {
        let soft = SoftDevice::default();
        let device = Arc::new(Device::new(soft.device()));
        let pointer = open_device(Pointer::to(&*device));
        let context = pointer.get::<Context>();
        let cq = || create_cq(context, 16, Pointer::NULL, Pointer::NULL, 0).unwrap();
        let pd = alloc_pd(context).unwrap();
        let all = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let memory = pd.pd.get().unwrap().register(4096, all).unwrap();
        Self { soft, _device: device, context: pointer, pd, sent: cq(), received: cq(), memory }
    }

    pub(crate) fn context(&self) -> &Context {
        self.context.get().unwrap()
    }

    pub(crate) fn end(self) {
        self.memory.destroy().unwrap();
        assert_eq!([destroy_cq(Given::of(self.sent)), destroy_cq(Given::of(self.received))], [0; 2]);
        assert_eq!(dealloc_pd(Some(self.pd)), 0);
        assert_eq!(close_device(Handed(self.context)), 0);
        assert!(self.soft.resources().is_empty(), "{:?}", self.soft.resources());
    }

    fn sge(&self, offset: u64, length: u32) -> Sge {
        // Both keys of a region are the same here.
        Sge { addr: self.memory.address() + offset, length, lkey: self.memory.rkey() }
    }
}

#[test]
fn a_program_sends_to_a_queue_by_its_number() {
    let world = World::new();
    let domain = xrcd(world.context(), BOTH, -1, CREATE).unwrap();
    let mut attr = wanted_srq(&world.pd, &domain, &world.received);
    let srq = create_srq_ex(Some(world.context()), Some(&mut attr)).unwrap();
    assert_eq!(get_srq_num(Some(&srq), Some(&mut MaybeUninit::new(0))), 0);
    let number = srq.queue.lock().unwrap().get().unwrap().number().unwrap();
    let there = create_qp_ex(Some(world.context()), Some(&mut wanted_target(&domain))).unwrap();
    let mut init = wanted_initiator(&world.pd, &world.sent);
    let here = create_qp_ex(Some(world.context()), Some(&mut init)).unwrap();
    assert_eq!((init.cap.max_recv_wr, init.cap.max_recv_sge), (0, 0));

    let gid = world.context().context.gid(1, 0).unwrap().raw;
    to_init(&there);
    to_receive(
        &there,
        here.c.qp_base.qp_num,
        gid,
        QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER,
    );
    to_init(&here);
    to_receive(&here, there.c.qp_base.qp_num, gid, QpAttrMask::empty());
    to_send(&here);

    // Two receives, then sends through both interfaces.
    for wr_id in [1, 2] {
        let sge = [world.sge(1024 * wr_id, 64)];
        let mut wr = RecvWr::new_zeroed();
        (wr.wr_id, wr.sg_list, wr.num_sge) = (wr_id, Pointer::to_first(&sge), 1);
        assert_eq!(post_srq_recv::<Rxe>(&srq, Pointer::to(&wr), None), 0);
    }
    let sge = [world.sge(0, 5)];
    let mut wr = SendWr::new_zeroed();
    (wr.wr_id, wr.sg_list, wr.num_sge) = (7, Pointer::to_first(&sge), 1);
    (wr.opcode, wr.send_flags) = (wr_opcode::SEND, SendFlags::SIGNALED.bits());
    wr.qp_type = number.into();
    assert_eq!(post_send::<Rxe>(&here, Pointer::to(&wr), None), 0);

    // The number is set before the data, then after it.
    for (wr_id, first) in [(8, true), (9, false)] {
        here.c.wr_id.set(wr_id);
        here.c.wr_flags.set(SendFlags::SIGNALED.bits());
        wr_start(&here);
        if wr_id == 8 {
            wr_send_imm(&here, 0x55);
        } else {
            wr_rdma_write(&here, world.memory.rkey(), world.sge(3000, 0).addr);
        }
        if first {
            wr_set_xrc_srqn(&here, number);
        }
        wr_set_sge::<Rxe, MESSAGES, SENDS>(&here, sge[0].lkey, sge[0].addr, sge[0].length);
        if !first {
            wr_set_xrc_srqn(&here, number);
        }
        assert_eq!(wr_complete::<Rxe>(&here), 0);
    }
    let ends = [(); 3].map(|()| poll(&world.sent).map(|wc| (wc.wr_id, wc.status)));
    assert_eq!(ends, [7, 8, 9].map(|wr_id| Some((wr_id, wc_status::SUCCESS))));
    let got = [(); 3].map(|()| poll(&world.received).map(|wc| (wc.wr_id, wc.byte_len, wc.ex, wc.qp_num)));
    let qp_num = there.c.qp_base.qp_num;
    assert_eq!(got, [Some((1, 5, 0, qp_num)), Some((2, 5, 0x55, qp_num)), None]);

    assert_eq!(destroy_qp(Given::of(here)), 0);
    assert_eq!(destroy_qp(Given::of(there)), 0);
    assert_eq!(destroy_srq(Given::of(srq)), 0);
    assert_eq!(close_xrcd(Some(domain)), 0);
    world.end();
}

#[test]
fn what_another_driver_writes_of_a_request_is_refused() {
    let world = World::new();
    let mut init = wanted_initiator(&world.pd, &world.sent);
    init.qp_type = qp_type::RC.into();
    init.recv_cq = Pointer::to(&*world.sent);
    let qp = create_qp_ex(Some(world.context()), Some(&mut init)).unwrap();
    let hint = || parts::write(&qp, |queue| Ok(queue.set_hints(1)?));
    // Outside a batch there is nothing to refuse.
    hint();
    wr_start(&qp);
    hint();
    assert_eq!(wr_complete::<Rxe>(&qp), EINVAL.get());
    assert_eq!((destroy_qp(Given::of(qp)), poll(&world.sent)), (0, None));
    world.end();
}

#[test]
fn a_queue_pair_that_was_opened_has_the_states_of_the_other() {
    let world = World::new();
    let file = std::fs::File::open("Cargo.toml").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let refused = |answer: Option<Box<Xrcd>>| answer.is_none().then(errno);
    assert_eq!(refused(xrcd(world.context(), BOTH, fd, 0)), Some(nix::libc::EAGAIN));
    assert_eq!(refused(xrcd(world.context(), 1, fd, CREATE)), Some(nix::libc::EINVAL));
    assert_eq!(refused(xrcd(world.context(), 7, fd, CREATE)), Some(nix::libc::EOPNOTSUPP));
    let domain = xrcd(world.context(), BOTH, fd, CREATE).unwrap();
    let same = xrcd(world.context(), BOTH, fd, 0).unwrap();
    let made = create_qp_ex(Some(world.context()), Some(&mut wanted_target(&domain))).unwrap();
    let mut attr = QpOpenAttr::new_zeroed();
    (attr.comp_mask, attr.qp_num) = (0xb, made.c.qp_base.qp_num);
    (attr.xrcd, attr.qp_type) = (Pointer::to(&*same), qp_type::XRC_TGT.into());
    let opened = open_qp(Some(world.context()), Some(&attr)).unwrap();
    assert_eq!((opened.c.qp_base.qp_num, opened.c.qp_base.state.get()), (attr.qp_num, 7));
    to_init(&opened);
    assert_eq!((state(&made), state(&opened)), (1, 1));
    assert_eq!(destroy_qp(Given::of(made)), 0);
    assert_eq!(close_xrcd(Some(domain)), 0);
    assert_eq!(state(&opened), 1);
    let reset = QpAttr::new_zeroed();
    assert_eq!(modify_qp(Some(&opened), Some(&reset), QpAttrMask::STATE.bits() as c_int), 0);
    assert_eq!(post_send::<Rxe>(&opened, Pointer::NULL, None), nix::libc::EINVAL);

    for (comp_mask, code) in [(0x3, nix::libc::EINVAL), (0x1b, nix::libc::EOPNOTSUPP)] {
        let refused = open_qp(Some(world.context()), Some(&QpOpenAttr { comp_mask, ..attr }));
        assert_eq!(refused.is_none().then(errno), Some(code), "{comp_mask:#x}");
    }
    let of_another_type = QpOpenAttr { qp_type: qp_type::RC.into(), ..attr };
    let refused = open_qp(Some(world.context()), Some(&of_another_type));
    assert_eq!(refused.is_none().then(errno), Some(nix::libc::EINVAL));
    assert_eq!(destroy_qp(Given::of(opened)), 0);
    assert_eq!(close_xrcd(Some(same)), 0);
    world.end();
}

#[test]
fn what_is_missing_is_told_in_the_order_of_libibverbs() {
    let world = World::new();
    let domain = xrcd(world.context(), BOTH, -1, CREATE).unwrap();
    let good = wanted_srq(&world.pd, &domain, &world.received);
    let (invalid, unsupported) = (nix::libc::EINVAL, nix::libc::EOPNOTSUPP);
    for (comp_mask, type_, code) in [
        (0x2f, srq_type::XRC, unsupported),
        (0xd, srq_type::XRC, invalid),
        (0xb, srq_type::XRC, invalid),
        (0x7, srq_type::XRC, invalid),
        (0x1b, srq_type::TM, invalid),
        (0x3, 9, invalid),
    ] {
        let mut attr = SrqInitAttrEx { comp_mask, srq_type: type_, ..good };
        let refused = create_srq_ex(Some(world.context()), Some(&mut attr));
        assert_eq!(refused.is_none().then(errno), Some(code), "{comp_mask:#x} {type_}");
    }
    let mut tags = SrqInitAttrEx { comp_mask: 0x1b, srq_type: srq_type::TM, tm_cap: [4, 4], ..good };
    let refused = create_srq_ex(Some(world.context()), Some(&mut tags));
    assert_eq!(refused.is_none().then(errno), Some(unsupported));
    let mut basic = SrqInitAttrEx { comp_mask: 0xf, srq_type: srq_type::BASIC, ..good };
    let basic = create_srq_ex(Some(world.context()), Some(&mut basic)).unwrap();
    assert_eq!(get_srq_num(Some(&basic), Some(&mut MaybeUninit::new(0))), unsupported);
    assert_eq!(destroy_srq(Given::of(basic)), 0);

    let context = Some(world.context());
    let without = create_qp_ex(context, Some(&mut QpInitAttrEx { comp_mask: 1, ..wanted_target(&domain) }));
    assert_eq!(without.is_none().then(errno), Some(invalid));
    let mut plain = QpInitAttr::new_zeroed();
    plain.qp_type = qp_type::XRC_TGT.into();
    assert_eq!(create_qp(Some(&world.pd), Some(&mut plain)).is_none().then(errno), Some(invalid));
    let mut of_reliable = wanted_initiator(&world.pd, &world.sent);
    (of_reliable.qp_type, of_reliable.comp_mask) = (qp_type::RC.into(), 3);
    assert_eq!(create_qp_ex(context, Some(&mut of_reliable)).is_none().then(errno), Some(unsupported));
    assert_eq!(close_xrcd(Some(domain)), 0);
    world.end();
}

#[test]
fn what_has_no_room_in_a_request_is_answered_as_by_the_library_of_the_driver() {
    let (world, mut bad) = (World::new(), Pointer::NULL);
    let mut init = wanted_initiator(&world.pd, &world.sent);
    let mut qp = create_qp_ex(Some(world.context()), Some(&mut init)).unwrap();
    let sge = [(); 100].map(|()| world.sge(0, 100));
    let (invalid, no_room) = (nix::libc::EINVAL, nix::libc::ENOMEM);
    let inline = SendFlags::INLINE.bits();
    for (pieces, flags, opcode, of_blocks) in [
        (100, 0, wr_opcode::SEND, no_room),
        (1, inline, wr_opcode::RDMA_WRITE, no_room),
        (100, 0, 99, invalid),
        // The queue pair is not ready to send.
        (1, 0, wr_opcode::SEND, invalid),
    ] {
        let mut wr = SendWr::new_zeroed();
        (wr.sg_list, wr.num_sge) = (Pointer::to_first(&sge), pieces);
        (wr.opcode, wr.send_flags) = (opcode, flags);
        for (is_like_libmlx5, code) in [(false, invalid), (true, of_blocks)] {
            qp.is_like_libmlx5 = is_like_libmlx5;
            assert_eq!(post_send::<Rxe>(&qp, Pointer::to(&wr), Some(&mut bad)), code, "{pieces} {opcode}");
        }
    }
    // A queue pair without a receive queue has no room for a receive.
    for (is_like_libmlx5, code) in [(false, invalid), (true, no_room)] {
        qp.is_like_libmlx5 = is_like_libmlx5;
        assert_eq!(post_recv::<Rxe>(&qp, Pointer::to(&RecvWr::new_zeroed()), Some(&mut bad)), code);
    }
    assert_eq!(destroy_qp(Given::of(qp)), 0);
    world.end();
}
