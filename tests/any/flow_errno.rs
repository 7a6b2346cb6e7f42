//! Bad input about counters and flows, and the errno of the kernel and mlx5 for it; every kind of rule. The soft device and an mlx5 card
//! answer the same.

use crate::commands::*;
use crate::common::{Answers, on_every_counting_device};
use crate::files::counted::Counted;
use nix::libc::{EBUSY, EEXIST, EFAULT, EINVAL, ENOENT, ENOMEM, ENOSPC, EOPNOTSUPP, EPROTONOSUPPORT};
use uverbs::soft::{RawAttr, RawCommand};
use uverbs_abi::flow as spec_types;
use uverbs_abi::ioctl::UHW_IN;
use uverbs_abi::write::cmd;
use zerocopy::IntoBytes;

/// Sends every row to every device that counts, and checks that nothing is left.
fn every_row(rows: &[Row<Counted>]) {
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        let mut answers = Answers::of(target);
        let before = world.handles();
        for (name, command, expected) in rows {
            answers.is(name, world.attempt(command(&world)), Answer(*expected));
            assert_eq!(world.handles(), before, "{name}");
        }
    });
}

#[test]
fn counters_objects() {
    let rows: &[Row<Counted>] = &[
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
    every_row(rows);
}

/// A flow that counts, for an address of its own.
fn counting(world: &Counted, handle: u32) -> RawCommand {
    create_flow(world.qp, &[eth([2, 0, 0, 0, 0, 9]), count(handle)])
}

/// The three words of a payload: number of maps, address of the entries, number of entries.
fn payload(words: [u64; 3]) -> RawAttr {
    RawAttr::input(UHW_IN, words.as_bytes())
}

fn flow_with(world: &Counted, change: impl FnOnce(&mut uverbs_abi::flow::CreateFlow)) -> RawCommand {
    let specs = [eth(MAC)];
    let mut header = flow_header(world.qp, &specs);
    change(&mut header);
    flow_command(&header, &specs)
}

#[test]
fn flows() {
    let rows: &[Row<Counted>] = &[
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
    every_row(rows);
}

#[test]
fn uses_that_a_failed_flow_took_are_given_back() {
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        assert!(world.file.invoke(&mut create_flow(world.qp, &[count(world.bound), count(99)])).is_err());
        done(&world.file, destroy_flow(world.flow));
        done(&world.file, destroy_counters(world.bound));
    });
}

#[test]
fn commands_about_them() {
    let rows: &[Row<Counted>] = &[
        ("DESTROY_FLOW with a comp_mask", |w| write(cmd::EX_DESTROY_FLOW, &[1, w.flow], 0), EINVAL),
        ("DESTROY_FLOW of nothing", |_| write(cmd::EX_DESTROY_FLOW, &[0, 99], 0), ENOENT),
        ("destroying a QP in use", |w| destroy_qp(w.qp), EBUSY),
        (
            "a driver's payload where there is none",
            |_| create_counters().with(RawAttr::value(UHW_IN, 0)),
            EPROTONOSUPPORT,
        ),
    ];
    every_row(rows);
}

/// A header with these bytes at the same offset in value and mask, which have `len` bytes.
fn header(type_: u32, len: usize, at: usize, value: &[u8], mask: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 2 * len];
    body[at..at + value.len()].copy_from_slice(value);
    body[len + at..len + at + mask.len()].copy_from_slice(mask);
    spec(type_, &body)
}

/// An exact match of one field.
fn exact(type_: u32, len: usize, at: usize, value: &[u8]) -> Vec<u8> {
    header(type_, len, at, value, &vec![0xff; value.len()])
}

fn ether_type(number: u16) -> Vec<u8> {
    exact(spec_types::SPEC_ETH, 16, 12, &number.to_be_bytes())
}

fn empty(type_: u32) -> Vec<u8> {
    header(type_, filter_len(type_ & !spec_types::SPEC_INNER), 0, &[], &[])
}

fn filter_len(type_: u32) -> usize {
    match type_ {
        spec_types::SPEC_ETH => 16,
        spec_types::SPEC_IPV4 => 12,
        spec_types::SPEC_IPV6 => 40,
        spec_types::SPEC_ESP | spec_types::SPEC_GRE => 8,
        _ => 4,
    }
}

fn number(type_: u32, number: u32) -> Vec<u8> {
    spec(type_, [number, 0].as_bytes())
}

fn drop_() -> Vec<u8> {
    spec(spec_types::SPEC_ACTION_DROP, &[])
}

#[test]
fn every_field_of_every_header() {
    use spec_types::*;
    // Type, size of the filter in bytes, offset and width of the field, and the errno if all its bits are matched.
    let fields: &[(&str, u32, usize, usize, i32)] = &[
        ("destination", SPEC_ETH, 0, 6, 0),
        ("source", SPEC_ETH, 6, 6, 0),
        ("Ethertype", SPEC_ETH, 12, 2, 0),
        ("VLAN", SPEC_ETH, 14, 2, 0),
        ("source", SPEC_IPV4, 0, 4, 0),
        ("destination", SPEC_IPV4, 4, 4, 0),
        ("protocol", SPEC_IPV4, 8, 1, 0),
        ("type of service", SPEC_IPV4, 9, 1, 0),
        ("time to live", SPEC_IPV4, 10, 1, EOPNOTSUPP),
        ("flags", SPEC_IPV4, 11, 1, EOPNOTSUPP),
        ("source", SPEC_IPV6, 0, 16, 0),
        ("destination", SPEC_IPV6, 16, 16, 0),
        ("next header", SPEC_IPV6, 36, 1, 0),
        ("traffic class", SPEC_IPV6, 37, 1, 0),
        ("hop limit", SPEC_IPV6, 38, 1, EOPNOTSUPP),
        ("reserved byte", SPEC_IPV6, 39, 1, EINVAL),
        ("destination port", SPEC_TCP, 0, 2, 0),
        ("source port", SPEC_TCP, 2, 2, 0),
        ("destination port", SPEC_UDP, 0, 2, 0),
        ("source port", SPEC_UDP, 2, 2, 0),
        ("index", SPEC_ESP, 0, 4, EOPNOTSUPP),
        ("first word", SPEC_GRE, 0, 2, EOPNOTSUPP),
        ("protocol", SPEC_GRE, 2, 2, 0),
        ("key", SPEC_GRE, 4, 4, 0),
        ("label", SPEC_MPLS, 0, 4, 0),
    ];
    on_every_counting_device(|target| {
        let world = Counted::new(target);
        let mut answers = Answers::of(target);
        for &(name, type_, at, width, expected) in fields {
            for inner in [0, SPEC_INNER] {
                let (type_, len) = (type_ | inner, filter_len(type_));
                let mut is = |what: &str, value: &[u8], mask: &[u8], expected| {
                    let command = create_flow(world.qp, &[header(type_, len, at, value, mask)]);
                    let got = world.attempt(command);
                    answers.is(&format!("type {type_:#x}, {name}, {what}"), got, Answer(expected));
                };
                let (ones, zeros, first) = (vec![0xff; width], vec![0; width], [1]);
                is("all bits", &ones, &ones, expected);
                is("all bits, none set", &zeros, &ones, expected);
                is("one bit", &first, &first, expected);
            }
        }
    });
}

#[test]
fn rules_that_make_sense() {
    use spec_types::*;
    let rows: &[Row<Counted>] = &[
        ("no headers", |w| create_flow(w.qp, &[]), 0),
        ("a tag", |w| create_flow(w.qp, &[number(SPEC_ACTION_TAG, 0xff_ffff)]), 0),
        ("a tag of 0", |w| create_flow(w.qp, &[number(SPEC_ACTION_TAG, 0)]), 0),
        ("dropping", |w| create_flow(w.qp, &[drop_()]), 0),
        ("dropping and counting", |w| create_flow(w.qp, &[drop_(), count(w.bound)]), 0),
        ("counting where others count", |w| create_flow(w.qp, &[ether_type(0x88b5), count(w.bound)]), 0),
        ("counting before the header", |w| create_flow(w.qp, &[count(w.bound), ether_type(0x88b5)]), 0),
        ("the same rule again", |w| create_flow(w.qp, &[eth(MAC), count(w.bound)]), 0),
        ("the same rule without counting", |w| create_flow(w.qp, &[eth(MAC)]), 0),
        (
            "Ethernet, IPv4 and UDP",
            |w| create_flow(w.qp, &[ether_type(0x0800), empty(SPEC_IPV4), empty(SPEC_UDP)]),
            0,
        ),
        (
            "Ethernet, IPv6 and TCP",
            |w| create_flow(w.qp, &[ether_type(0x86dd), empty(SPEC_IPV6), empty(SPEC_TCP)]),
            0,
        ),
        (
            "VXLAN and what is inside",
            |w| {
                let vni = exact(SPEC_VXLAN_TUNNEL, 4, 1, &[0, 0, 7]);
                create_flow(w.qp, &[empty(SPEC_IPV4), empty(SPEC_UDP), vni, empty(SPEC_ETH | SPEC_INNER)])
            },
            0,
        ),
        ("GRE", |w| create_flow(w.qp, &[empty(SPEC_IPV4), exact(SPEC_GRE, 8, 4, &[0, 0, 0, 7])]), 0),
        ("MPLS behind GRE", |w| create_flow(w.qp, &[empty(SPEC_GRE), exact(SPEC_MPLS, 4, 0, &[0, 1])]), 0),
        ("MPLS behind UDP", |w| create_flow(w.qp, &[empty(SPEC_UDP), exact(SPEC_MPLS, 4, 0, &[0, 1])]), 0),
        ("ten headers", |w| create_flow(w.qp, &vec![eth(MAC); 10]), 0),
        ("a filter cut short", |w| create_flow(w.qp, &[spec(SPEC_ETH, &[0; 24])]), 0),
        ("a value behind what is known", |w| create_flow(w.qp, &[header(SPEC_ETH, 20, 16, &[1], &[0])]), 0),
        ("priority 15", |w| flow_with(w, |h| h.flow_attr.priority = 15), 0),
        ("DONT_TRAP", |w| flow_with(w, |h| h.flow_attr.flags = 2), 0),
        ("EGRESS", |w| flow_with(w, |h| h.flow_attr.flags = 4), 0),
        ("EGRESS and DONT_TRAP", |w| flow_with(w, |h| h.flow_attr.flags = 6), EOPNOTSUPP),
        ("what no other rule takes", |w| flow_with(w, |h| h.flow_attr.type_ = 1), 0),
        ("multicast that no other rule takes", |w| flow_with(w, |h| h.flow_attr.type_ = 2), 0),
        ("a copy of everything", |w| flow_with(w, |h| h.flow_attr.type_ = 3), 0),
    ];
    every_row(rows);
}

#[test]
fn rules_that_contradict_themselves() {
    use spec_types::*;
    let rows: &[Row<Counted>] = &[
        ("an Ethertype beside IPv4", |w| create_flow(w.qp, &[ether_type(0x0806), empty(SPEC_IPV4)]), EINVAL),
        ("that of IPv6 beside IPv4", |w| create_flow(w.qp, &[empty(SPEC_IPV4), ether_type(0x86dd)]), EINVAL),
        ("that of MPLS beside IPv4", |w| create_flow(w.qp, &[ether_type(0x8847), empty(SPEC_IPV4)]), 0),
        (
            "half an Ethertype beside IPv4",
            |w| create_flow(w.qp, &[header(SPEC_ETH, 16, 12, &[8], &[0xff]), empty(SPEC_IPV4)]),
            EINVAL,
        ),
        (
            "an inner Ethertype beside outer IPv4",
            |w| {
                let inner = exact(SPEC_ETH | SPEC_INNER, 16, 12, &[0x86, 0xdd]);
                create_flow(w.qp, &[empty(SPEC_IPV4), inner])
            },
            0,
        ),
        ("TCP and UDP", |w| create_flow(w.qp, &[empty(SPEC_TCP), empty(SPEC_UDP)]), EINVAL),
        ("TCP twice", |w| create_flow(w.qp, &[empty(SPEC_TCP), empty(SPEC_TCP)]), 0),
        (
            "UDP's protocol and TCP",
            |w| create_flow(w.qp, &[exact(SPEC_IPV4, 12, 8, &[17]), empty(SPEC_TCP)]),
            EINVAL,
        ),
        (
            "TCP's protocol and TCP",
            |w| create_flow(w.qp, &[exact(SPEC_IPV4, 12, 8, &[6]), empty(SPEC_TCP)]),
            0,
        ),
        (
            "half of TCP's protocol and TCP",
            |w| create_flow(w.qp, &[header(SPEC_IPV4, 12, 8, &[6], &[0xf]), empty(SPEC_TCP)]),
            EINVAL,
        ),
        ("a value outside its mask", |w| create_flow(w.qp, &[header(SPEC_ETH, 16, 0, &[3], &[1])]), EINVAL),
        ("two drops", |w| create_flow(w.qp, &[drop_(), drop_()]), 0),
        ("two tags", |w| create_flow(w.qp, &[number(SPEC_ACTION_TAG, 1), number(SPEC_ACTION_TAG, 2)]), 0),
        ("two objects", |w| create_flow(w.qp, &[count(w.bound), count(w.bound)]), EINVAL),
        (
            "the same match, with a tag",
            |w| create_flow(w.qp, &[eth(MAC), number(SPEC_ACTION_TAG, 5)]),
            EEXIST,
        ),
        ("IPv4 and IPv6", |w| create_flow(w.qp, &[empty(SPEC_IPV4), empty(SPEC_IPV6)]), 0),
        ("an inner tag", |w| create_flow(w.qp, &[number(SPEC_ACTION_TAG | SPEC_INNER, 1)]), EINVAL),
        ("an inner VXLAN", |w| create_flow(w.qp, &[empty(SPEC_VXLAN_TUNNEL | SPEC_INNER)]), EINVAL),
        (
            "a VXLAN of 25 bits",
            |w| create_flow(w.qp, &[exact(SPEC_VXLAN_TUNNEL, 4, 0, &[1, 0, 0, 0])]),
            EINVAL,
        ),
        ("a flow label of 21 bits", |w| create_flow(w.qp, &[exact(SPEC_IPV6, 40, 33, &[0x1f])]), EINVAL),
    ];
    every_row(rows);
}

/// Two errors at the same time: the one that is checked first is reported.
#[test]
fn the_order_of_checks() {
    use spec_types::*;
    let rows: &[Row<Counted>] = &[
        (
            "comp_mask before what is behind",
            |w| flow_with(w, |h| (h.comp_mask, h.flow_attr.size) = (1, 24)),
            EINVAL,
        ),
        (
            "flags before bytes that are not there",
            |w| flow_with(w, |h| (h.flow_attr.flags, h.flow_attr.size) = (8, 41)),
            EINVAL,
        ),
        (
            "too few bytes before the port",
            |w| flow_with(w, |h| (h.flow_attr.size, h.flow_attr.port) = (41, 0)),
            ENOSPC,
        ),
        (
            "bytes behind before the port",
            |w| flow_with(w, |h| (h.flow_attr.size, h.flow_attr.port) = (24, 0)),
            EOPNOTSUPP,
        ),
        ("the port before the QP", |w| flow_with(w, |h| (h.flow_attr.port, h.qp_handle) = (2, 99)), EINVAL),
        ("the QP before headers", |_| create_flow(99, &[spec(0x22, &[0; 8])]), ENOENT),
        ("the first of two specs", |w| create_flow(w.qp, &[count(99), spec(0x22, &[0; 8])]), ENOENT),
        ("the other way round", |w| create_flow(w.qp, &[spec(0x22, &[0; 8]), count(99)]), EINVAL),
        (
            "objects before the driver's payload",
            |w| create_flow(w.qp, &[count(99)]).with(RawAttr::input(UHW_IN, &[0; 4])),
            ENOENT,
        ),
        (
            "the driver's payload before the priority",
            |w| flow_with(w, |h| h.flow_attr.priority = 16).with(RawAttr::input(UHW_IN, &[0; 4])),
            EOPNOTSUPP,
        ),
        (
            "the priority before the flags",
            |w| flow_with(w, |h| (h.flow_attr.priority, h.flow_attr.flags) = (16, 1)),
            ENOMEM,
        ),
        (
            "the flags before the type",
            |w| flow_with(w, |h| (h.flow_attr.flags, h.flow_attr.type_) = (1, 9)),
            EINVAL,
        ),
        (
            "the type before a tag of 25 bits",
            |w| {
                let specs = [number(SPEC_ACTION_TAG, 1 << 24)];
                let mut header = flow_header(w.qp, &specs);
                header.flow_attr.type_ = 9;
                flow_command(&header, &specs)
            },
            EOPNOTSUPP,
        ),
        (
            "what cannot be matched before the points",
            |w| create_flow(w.qp, &[empty(SPEC_ESP), count(w.counters)]),
            EOPNOTSUPP,
        ),
        (
            "the points before a value outside its mask",
            |w| {
                create_flow(w.qp, &[header(SPEC_ETH, 16, 0, &[3], &[1]), count(w.bound)]).with(map(&[(2, 0)]))
            },
            EINVAL,
        ),
    ];
    every_row(rows);
}
