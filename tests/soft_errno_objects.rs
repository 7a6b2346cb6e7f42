//! Bad input about objects, and the errno that the kernel gives for it: nothing else may happen.
#![cfg(feature = "soft")]

mod soft;

use nix::libc::{EBUSY, EEXIST, EFAULT, EINVAL, ENOENT, ENOMEM, ENOSPC, EOPNOTSUPP, EPROTONOSUPPORT};
use soft::*;
use uverbs::soft::{RawAttr, RawCommand};
use uverbs_abi::flow as spec_types;
use uverbs_abi::ids::{counters, cq, flow, mr, qp};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::types::{AccessFlags, QpAttrMask, qp_state};
use uverbs_abi::write::{ModifyQp, PostSend, QpCap, RegMr, cmd};
use zerocopy::{FromZeros, IntoBytes};

fn reg_mr(world: &World, change: impl FnOnce(&mut RegMr)) -> RawCommand {
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

fn modify_qp(world: &World, change: impl FnOnce(&mut ModifyQp)) -> RawCommand {
    let mut request = modify(world.qp, qp_state::INIT, QpAttrMask::PORT);
    change(&mut request);
    write(cmd::MODIFY_QP, &request, 0)
}

fn with_cap(world: &World, change: impl FnOnce(&mut QpCap)) -> RawCommand {
    let mut cap = QpCap { max_send_wr: 8, max_recv_wr: 8, ..QpCap::new_zeroed() };
    change(&mut cap);
    replaced(create_qp(world.pd, world.cq), RawAttr::input(qp::create::CAP, cap.as_bytes()))
}

fn of_type(world: &World, type_: u64) -> RawCommand {
    replaced(create_qp(world.pd, world.cq), RawAttr::value(qp::create::TYPE, type_))
}

fn post_send(world: &World, wr_count: u32, wqe_size: u32) -> RawCommand {
    let request = PostSend { qp_handle: world.qp, wr_count, wqe_size, ..PostSend::new_zeroed() };
    write(cmd::POST_SEND, &request, 4)
}

#[test]
fn queues_and_memory() {
    let rows: &[Row] = &[
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
        (
            "a CQ whose ring cannot be told",
            |_| replaced(create_cq(4), RawAttr::bad_address(UHW_OUT, 16)),
            EFAULT,
        ),
        ("a QP of type 5", |w| of_type(w, 5), EINVAL),
        ("a QP of type 2^32", |w| of_type(w, 1 << 32), EINVAL),
        ("an extended reliable connection", |w| of_type(w, 9), EOPNOTSUPP),
        ("a target of extended connections", |w| of_type(w, 10), EINVAL),
        ("a QP in a domain that is not there", |w| create_qp(99, w.cq), ENOENT),
        ("a QP without a domain", |w| without(create_qp(w.pd, w.cq), qp::create::PD_HANDLE), ENOENT),
        ("a QP without a receive CQ", |w| without(create_qp(w.pd, w.cq), qp::create::RECV_CQ_HANDLE), ENOENT),
        (
            "QP flags, bit 0",
            |w| create_qp(w.pd, w.cq).with(RawAttr::input(qp::create::FLAGS, &[1, 0, 0, 0])),
            EINVAL,
        ),
        (
            "check sequences on a reliable connection",
            |w| of_type(w, 2).with(RawAttr::input(qp::create::FLAGS, &[0, 1, 0, 0])),
            EINVAL,
        ),
        (
            "check sequences on raw packets",
            |w| create_qp(w.pd, w.cq).with(RawAttr::input(qp::create::FLAGS, &[0, 1, 0, 0])),
            EOPNOTSUPP,
        ),
        (
            "a QP with too little room for its rings",
            |w| replaced(create_qp(w.pd, w.cq), RawAttr::output(UHW_OUT, 16)),
            EINVAL,
        ),
        ("a driver's request for a QP", |w| create_qp(w.pd, w.cq).with(RawAttr::value(UHW_IN, 0)), EINVAL),
        ("too long a send ring", |w| with_cap(w, |cap| cap.max_send_wr = 1 << 20), EINVAL),
        ("too much inline data", |w| with_cap(w, |cap| cap.max_inline_data = 1 << 20), EINVAL),
        ("a QP without any ring", |w| with_cap(w, |cap| (cap.max_send_wr, cap.max_recv_wr) = (0, 0)), EINVAL),
        (
            "a QP whose number cannot be told",
            |w| replaced(create_qp(w.pd, w.cq), RawAttr::bad_address(qp::create::RESP_QP_NUM, 4)),
            EFAULT,
        ),
        ("destroying a CQ in use", |w| destroy_cq(w.cq), EBUSY),
        ("destroying a QP in use", |w| destroy_qp(w.qp), EBUSY),
        ("destroying a domain in use", |w| destroy_pd(w.pd.into()), EBUSY),
        ("destroying a QP without room for the answer", |w| destroy(qp::OBJECT, 1, w.qp), EINVAL),
        ("destroying a QP with too much room", |w| replaced(destroy_qp(w.qp), RawAttr::output(1, 8)), EINVAL),
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
        ("memory of length zero", |w| reg_mr(w, |r| r.length = 0), EINVAL),
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
    check(&World::new(), rows);
}

#[test]
fn counters_objects() {
    let rows: &[Row] = &[
        ("making one without a handle", |_| without(create_counters(), 0), EINVAL),
        ("reading what no flow has used", |w| read_counters(w.counters, 16), EINVAL),
        (
            "the same with bad flags",
            |w| read_counters(w.counters, 16).with(RawAttr::input(2, &[9, 0, 0, 0])),
            EINVAL,
        ),
        ("reading a QP", |w| read_counters(w.qp, 16), EINVAL),
        ("reading what is not there", |_| read_counters(99, 16), ENOENT),
        ("reading without a buffer", |w| without(read_counters(w.bound, 16), 1), EINVAL),
        ("reading without a handle", |w| without(read_counters(w.bound, 16), 0), EINVAL),
        (
            "reading to where nothing can be written",
            |w| replaced(read_counters(w.bound, 16), RawAttr::bad_address(1, 16)),
            EFAULT,
        ),
        ("reading less than the map", |w| read_counters(w.bound, 15), EINVAL),
        ("reading more than the map", |w| read_counters(w.bound, 77), 0),
        ("destroying one in use", |w| destroy_counters(w.bound), EBUSY),
        ("a second map", |w| counting(w, w.bound).with(map(&PACKETS_AND_BYTES)), EINVAL),
        ("no map", |w| counting(w, w.counters), EINVAL),
        ("two maps", |w| counting(w, w.counters).with(payload([2, 0, 0])), EINVAL),
        (
            "a payload of four bytes",
            |w| counting(w, w.counters).with(RawAttr::input(UHW_IN, &[0; 4])),
            EOPNOTSUPP,
        ),
        (
            "a payload with something behind it",
            |w| counting(w, w.counters).with(payload([0, 1, 0])),
            EOPNOTSUPP,
        ),
        (
            "a payload that promises more than it has",
            |w| counting(w, w.counters).with(RawAttr::value(UHW_IN, 1)),
            EINVAL,
        ),
        ("8192 entries", |w| counting(w, w.counters).with(map(&[(0, 0); 8192])), EINVAL),
        ("description 2", |w| counting(w, w.counters).with(map(&[(2, 0)])), EINVAL),
        ("a map that cannot be read", |w| counting(w, w.counters).with(payload([1, 0, 1])), EFAULT),
        (
            "two COUNT specs",
            |w| create_flow(w.qp, &[count(w.counters), count(w.counters)]).with(map(&PACKETS_AND_BYTES)),
            EINVAL,
        ),
        ("reading it after all that", |w| read_counters(w.counters, 16), EINVAL),
    ];
    check(&World::new(), rows);
}

/// A flow that counts, on an address of its own.
fn counting(world: &World, handle: u32) -> RawCommand {
    create_flow(world.qp, &[eth([2, 0, 0, 0, 0, 9]), count(handle)])
}

/// The three words of a payload: number of maps, address of the entries, number of entries.
fn payload(words: [u64; 3]) -> RawAttr {
    RawAttr::input(UHW_IN, words.as_bytes())
}

fn flow_with(world: &World, change: impl FnOnce(&mut uverbs_abi::flow::CreateFlow)) -> RawCommand {
    let specs = [eth(MAC)];
    let mut header = flow_header(world.qp, &specs);
    change(&mut header);
    flow_command(&header, &specs)
}

#[test]
fn flows() {
    let rows: &[Row] = &[
        ("a comp_mask", |w| flow_with(w, |h| h.comp_mask = 1), EINVAL),
        ("flag 8", |w| flow_with(w, |h| h.flow_attr.flags = 8), EINVAL),
        (
            "DONT_TRAP with ALL_DEFAULT",
            |w| flow_with(w, |h| (h.flow_attr.flags, h.flow_attr.type_) = (2, 1)),
            EINVAL,
        ),
        ("eleven specs", |w| create_flow(w.qp, &vec![eth(MAC); 11]), EINVAL),
        ("specs that are too large", |w| flow_with(w, |h| h.flow_attr.size = 89), EINVAL),
        ("a size without specs", |w| flow_with(w, |h| h.flow_attr.num_of_specs = 0), EINVAL),
        ("a size beyond the request", |w| flow_with(w, |h| h.flow_attr.size = 41), ENOSPC),
        ("reserved bytes", |w| flow_with(w, |h| h.flow_attr.reserved = [0, 1]), EINVAL),
        (
            "a request shorter than its head",
            |_| RawCommand::write(cmd::EX_CREATE_FLOW).with(RawAttr::input(CORE_IN, &[0; 23])),
            ENOSPC,
        ),
        ("no request", |_| RawCommand::write(cmd::EX_CREATE_FLOW), ENOSPC),
        (
            "a request that cannot be read",
            |_| RawCommand::write(cmd::EX_CREATE_FLOW).with(RawAttr::bad_address(CORE_IN, 24)),
            EFAULT,
        ),
        ("something behind the specs", |w| flow_with(w, |h| h.flow_attr.size = 24), EOPNOTSUPP),
        ("port 0", |w| flow_with(w, |h| h.flow_attr.port = 0), EINVAL),
        ("port 2", |w| flow_with(w, |h| h.flow_attr.port = 2), EINVAL),
        ("no such QP", |w| flow_with(w, |h| h.qp_handle = 99), ENOENT),
        ("a CQ for a QP", |w| flow_with(w, |h| h.qp_handle = w.cq), EINVAL),
        ("an empty filter", |w| create_flow(w.qp, &[spec(spec_types::SPEC_ETH, &[])]), EINVAL),
        ("an unknown filter", |w| create_flow(w.qp, &[spec(0x22, &[0; 8])]), EINVAL),
        ("an unknown action", |w| create_flow(w.qp, &[spec(0x1004, &[0; 8])]), EINVAL),
        (
            "a flow action that cannot be",
            |w| create_flow(w.qp, &[spec(spec_types::SPEC_ACTION_HANDLE, &[0; 8])]),
            EINVAL,
        ),
        ("counting with nothing", |w| create_flow(w.qp, &[count(99)]), ENOENT),
        ("counting with a QP", |w| create_flow(w.qp, &[count(w.qp)]), EINVAL),
        (
            "a use that must be given back",
            |w| create_flow(w.qp, &[count(w.bound), spec(0x22, &[0; 8])]),
            EINVAL,
        ),
        (
            "a flow whose handle cannot be told",
            |w| replaced(flow_with(w, |_| ()), RawAttr::bad_address(CORE_OUT, 8)),
            EFAULT,
        ),
        ("priority 16", |w| flow_with(w, |h| h.flow_attr.priority = 16), ENOMEM),
        ("flag bit 0, which mlx5 refuses", |w| flow_with(w, |h| h.flow_attr.flags = 1), EINVAL),
        (
            "EGRESS with MC_DEFAULT",
            |w| flow_with(w, |h| (h.flow_attr.flags, h.flow_attr.type_) = (4, 2)),
            EINVAL,
        ),
        ("type 9", |w| flow_with(w, |h| h.flow_attr.type_ = 9), EOPNOTSUPP),
        (
            "the same match, but dropped",
            |w| create_flow(w.qp, &[eth(MAC), spec(spec_types::SPEC_ACTION_DROP, &[])]),
            EEXIST,
        ),
        (
            "a tag of 25 bits",
            |w| create_flow(w.qp, &[spec(spec_types::SPEC_ACTION_TAG, &[0, 0, 0, 1, 0, 0, 0, 0])]),
            EINVAL,
        ),
        ("destroying a flow that is not there", |_| destroy_flow(99), ENOENT),
        ("destroying a QP as a flow", |w| destroy_flow(w.qp), EINVAL),
    ];
    check(&World::new(), rows);
    // The uses that failed flows took were given back.
    let world = World::new();
    assert!(world.file.invoke(&mut create_flow(world.qp, &[count(world.bound), count(99)])).is_err());
    done(&world.file, destroy_flow(world.flow));
    done(&world.file, destroy_counters(world.bound));
}

#[test]
fn without_counters_and_flows() {
    let device = uverbs::soft::SoftDevice::new(
        uverbs::soft::Profile::default().with_counters(false).with_flows(false),
    );
    let file = device.raw();
    done(&file, get_context());
    assert_eq!(file.invoke(&mut create_counters()), Err(EPROTONOSUPPORT));
    assert_eq!(file.invoke(&mut destroy_flow(0)), Err(EPROTONOSUPPORT));
    assert_eq!(file.invoke(&mut create_flow(0, &[])), Err(EOPNOTSUPP));
    assert_eq!(file.invoke(&mut info(counters::OBJECT.into())), Err(ENOENT));
    assert_eq!(file.invoke(&mut info(flow::OBJECT.into())), Err(ENOENT));
}
