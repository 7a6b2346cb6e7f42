//! Bad input about counters, flows and raw packets, which rxe has none of, and the errno that the kernel and mlx5
//! give for it: nothing else may happen.
#![cfg(feature = "soft")]

mod soft;

use nix::libc::{EBUSY, EEXIST, EFAULT, EINVAL, ENOENT, ENOMEM, ENOSPC, EOPNOTSUPP, EPROTONOSUPPORT};
use soft::*;
use uverbs::soft::{RawAttr, RawCommand};
use uverbs_abi::flow as spec_types;
use uverbs_abi::ids::{counters, flow, qp};
use uverbs_abi::ioctl::UHW_IN;
use uverbs_abi::write::{QpCap, cmd};
use zerocopy::{FromZeros, IntoBytes};

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

#[test]
fn commands_about_them() {
    let rows: &[Row] = &[
        ("254 attributes of which most cannot be read", |_| info(0).with_num_attrs(254), EFAULT),
        ("DESTROY_FLOW with a comp_mask", |w| write(cmd::EX_DESTROY_FLOW, &[1, w.flow], 0), EINVAL),
        ("DESTROY_FLOW of nothing", |_| write(cmd::EX_DESTROY_FLOW, &[0, 99], 0), ENOENT),
        (
            "check sequences on raw packets",
            |w| create_qp(w.pd, w.cq).with(RawAttr::input(qp::create::FLAGS, &[0, 1, 0, 0])),
            EOPNOTSUPP,
        ),
        ("a QP without any ring", |w| with_cap(w, |cap| (cap.max_send_wr, cap.max_recv_wr) = (0, 0)), EINVAL),
        ("destroying a QP in use", |w| destroy_qp(w.qp), EBUSY),
        (
            "a driver's payload where there is none",
            |_| create_counters().with(RawAttr::value(UHW_IN, 0)),
            EPROTONOSUPPORT,
        ),
    ];
    check(&World::new(), rows);
}

#[test]
fn before_there_is_a_context() {
    let file = uverbs::soft::SoftDevice::default().raw();
    for mut command in [create_counters(), create_flow(0, &[])] {
        assert_eq!(file.invoke(&mut command), Err(EINVAL), "{command:?}");
    }
}

fn with_cap(world: &World, change: impl FnOnce(&mut QpCap)) -> RawCommand {
    let mut cap = QpCap { max_send_wr: 8, max_recv_wr: 8, ..QpCap::new_zeroed() };
    change(&mut cap);
    replaced(create_qp(world.pd, world.cq), RawAttr::input(qp::create::CAP, cap.as_bytes()))
}
