//! Numbers and layouts that can be derived, or that have a meaning beyond their value.

use uverbs_abi::{flow, ids, ioctl, layout, mlx5, netlink, rxe, siw, types, write};
use zerocopy::{FromBytes, IntoBytes};

/// `_IOWR(type, nr, size)` of asm-generic/ioctl.h.
const fn iowr(kind: u8, number: u8, size: usize) -> u32 {
    (3 << 30) | ((size as u32) << 16) | ((kind as u32) << 8) | number as u32
}

#[test]
fn the_ioctl_number_is_made_of_magic_and_header_size() {
    assert_eq!(ioctl::RDMA_VERBS_IOCTL, iowr(0x1b, 1, size_of::<ioctl::IoctlHdr>()));
}

#[test]
fn a_call_with_the_most_attributes_fits_a_page() {
    let bytes = |n| size_of::<ioctl::IoctlHdr>() + n * size_of::<ioctl::Attr>();
    assert!(bytes(ioctl::MAX_ATTRS) <= 4096);
    assert!(bytes(ioctl::MAX_ATTRS + 1) > 4096);
}

#[test]
fn the_command_table_is_the_golden_one() {
    let mut golden = Vec::new();
    for line in include_str!("golden/commands.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<usize>().expect("a number");
        let extended = if words[0].starts_with("EX_") { write::FLAG_EXTENDED } else { 0 };
        golden.push((words[0], number(1) as u32 | extended, number(2), number(3)));
    }
    let ours: Vec<_> = write::COMMANDS.iter().map(|c| (c.name, c.number, c.request, c.response)).collect();
    assert_eq!(ours, golden);
    assert!(write::COMMANDS.is_sorted_by_key(|command| command.number));
}

#[test]
fn message_types_are_client_and_operation() {
    assert_eq!(netlink::nldev(netlink::op::GET), 0x1401);
    assert_eq!(netlink::nldev(netlink::op::GET_CHARDEV), 0x140f);
}

#[test]
fn the_largest_spec_is_the_ipv6_one() {
    let specs = layout::structs().filter(|layout| layout.c_name.starts_with("ib_uverbs_flow_spec_"));
    let largest = specs.max_by_key(|layout| layout.size).expect("specs");
    assert_eq!((largest.name, largest.size), ("FlowSpecIpv6", flow::MAX_SPEC_SIZE));
}

#[test]
fn a_filter_spec_is_a_header_and_two_equal_halves() {
    for spec in layout::structs().filter(|layout| layout.fields.iter().any(|field| field.name == "mask")) {
        if let [hdr, val, mask] = spec.fields {
            let halves = (hdr.size, val.offset, mask.offset, val.size);
            assert_eq!(halves, (8, 8, 8 + (spec.size - 8) / 2, mask.size), "{}", spec.name);
            // Otherwise the kernel refuses the spec (ib_uverbs_kern_spec_to_ib_spec_filter, uverbs_cmd.c, Linux 6.1).
            assert_eq!(val.size % 4, 0, "{}: a filter is a multiple of four bytes", spec.name);
        }
    }
}

#[test]
fn packet_fields_are_in_network_order_and_header_fields_are_not() {
    let spec = flow::FlowSpecTcpUdp {
        hdr: flow::FlowSpecHdr { type_: flow::SPEC_TCP | flow::SPEC_INNER, size: 16, reserved: 0 },
        val: flow::FlowTcpUdpFilter { dst_port: 443.into(), src_port: 1.into() },
        mask: flow::FlowTcpUdpFilter { dst_port: 0xffff.into(), src_port: 0.into() },
    };
    let expected = [0x40, 1, 0, 0, 16, 0, 0, 0, 0x01, 0xbb, 0, 1, 0xff, 0xff, 0, 0];
    assert_eq!(spec.as_bytes(), expected);
}

#[test]
fn the_parts_of_a_send_request_overlay_its_union() {
    let mut wqe = rxe::SendWqe::default();
    let part = rxe::UdWr { remote_qpn: 0x11, ah_num: 7, ..Default::default() };
    part.write_to_prefix(&mut wqe.wr.wr).expect("it fits");
    assert_eq!(wqe.as_bytes()[24..28], [0x11, 0, 0, 0]);
    assert_eq!(wqe.as_bytes()[36..40], [7, 0, 0, 0]);
    let (rdma, _) = rxe::RdmaWr::read_from_prefix(&wqe.wr.wr).expect("it is smaller");
    assert_eq!(rdma.remote_addr, 0x11);
    assert_eq!(size_of::<rxe::UdWr>(), wqe.wr.wr.len());
    assert_eq!(size_of::<write::AtomicWr>(), write::SendWr::default().wr.len());
}

#[test]
fn an_address_holds_either_family() {
    assert!(size_of::<rxe::SockaddrIn>() <= rxe::Av::default().dgid_addr.len());
    assert_eq!(size_of::<rxe::SockaddrIn6>(), rxe::Av::default().dgid_addr.len());
}

#[test]
fn inline_data_overlays_all_pieces_but_the_first() {
    assert_eq!(siw::MAX_INLINE, (siw::MAX_SGE - 1) * size_of::<siw::Sge>());
    assert_eq!(siw::Sqe::default().sge.len(), siw::MAX_SGE);
}

#[test]
fn the_flow_payload_with_one_map_is_24_bytes() {
    assert_eq!(size_of::<mlx5::CreateFlow>() + size_of::<mlx5::FlowCountersData>(), 24);
}

#[test]
fn mapping_offsets_are_command_and_index_in_pages() {
    assert_eq!(mlx5::mmap_offset(mlx5::MMAP_WC_PAGE, 3, 4096), 0x20_3000);
}

#[test]
fn the_optional_range_is_bits_20_to_29() {
    let optional = types::AccessFlags::OPTIONAL_RANGE;
    assert_eq!(optional.bits(), (20..30).map(|bit| 1 << bit).sum());
    assert!(optional.contains(types::AccessFlags::RELAXED_ORDERING));
    assert!(!optional.intersects(types::AccessFlags::FLUSH_PERSISTENT));
}

#[test]
fn driver_ids_lie_in_the_drivers_range() {
    let driver = [mlx5::ids::uar::OBJECT, mlx5::ids::uar::method::ALLOC, mlx5::ids::uar::alloc::PAGE_ID];
    assert_eq!(driver, [0x1008, 0x1000, 0x1004]);
    assert!(driver.iter().all(|id| id & ioctl::DRIVER_NAMESPACE != 0));
    assert_eq!(mlx5::ids::flow::OBJECT, ids::flow::OBJECT);
}

#[test]
fn no_c_name_has_two_values() {
    let mut names = std::collections::BTreeMap::new();
    for number in layout::numbers().filter(|number| !number.c_name.is_empty()) {
        let before = names.insert(number.c_name, number.value);
        assert!(before.is_none_or(|value| value == number.value), "{}", number.c_name);
    }
    assert!(names.len() > 900, "only {} names", names.len());
}
