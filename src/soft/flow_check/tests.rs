//! The core's answers, most of them recorded from real kernels.

use super::super::testing::*;
use super::*;

const ROOT: Caller = Caller { net_raw: true, ports: 1 };

/// A request with these specs, changed by `edit`.
fn request(specs: &[Vec<u8>], edit: impl FnOnce(&mut CreateFlow)) -> Vec<u8> {
    let mut request = CreateFlow { flow_attr: attr(specs), ..CreateFlow::new_zeroed() };
    edit(&mut request);
    [request.as_bytes(), &specs.concat()].concat()
}

fn parse(bytes: &[u8], number: u8) -> Result<Vec<Spec>, Errno> {
    let attr = FlowAttr { num_of_specs: number, ..FlowAttr::new_zeroed() };
    let parsed = specs(&attr, bytes, &mut |object, handle| match (object, handle) {
        (Object::Counters, 7) => Ok(()),
        (Object::Counters, _) => Err(Errno::ENOENT),
        (Object::FlowAction, _) => Err(Errno::EINVAL),
    })?;
    Ok(parsed.iter().copied().collect())
}

/// A spec of any type with any body, with the given size or its true size.
fn raw(type_: u32, size: Option<u16>, body: &[u8]) -> Vec<u8> {
    let size = size.unwrap_or(8 + body.len() as u16);
    let head = FlowSpecHdr { type_, size, reserved: 0 };
    [head.as_bytes(), body].concat()
}

#[test]
fn header_errors_come_in_the_kernels_order() {
    let specs = [eth(UNICAST, [0xff; 6])];
    type Case = (&'static str, fn(&mut CreateFlow), Result<(), Errno>);
    let cases: [Case; 14] = [
        ("fine", |_| {}, Ok(())),
        ("comp_mask", |r| r.comp_mask = 1, Err(Errno::EINVAL)),
        ("flags 8", |r| r.flow_attr.flags = 8, Err(Errno::EINVAL)),
        ("flags bit 0 is not the core's business", |r| r.flow_attr.flags = 1, Ok(())),
        ("type 9 neither", |r| r.flow_attr.type_ = 9, Ok(())),
        ("priority neither", |r| r.flow_attr.priority = 99, Ok(())),
        (
            "DONT_TRAP with ALL_DEFAULT",
            |r| (r.flow_attr.flags, r.flow_attr.type_) = (2, 1),
            Err(Errno::EINVAL),
        ),
        ("DONT_TRAP with SNIFFER", |r| (r.flow_attr.flags, r.flow_attr.type_) = (2, 3), Ok(())),
        ("11 specs", |r| r.flow_attr.num_of_specs = 11, Err(Errno::EINVAL)),
        ("89 bytes in one spec", |r| r.flow_attr.size = 89, Err(Errno::EINVAL)),
        ("size beyond the request", |r| r.flow_attr.size = 41, Err(Errno::ENOSPC)),
        ("bytes left over", |r| r.flow_attr.size = 24, Err(Errno::EOPNOTSUPP)),
        ("port 0", |r| r.flow_attr.port = 0, Err(Errno::EINVAL)),
        ("port 2 of 1", |r| r.flow_attr.port = 2, Err(Errno::EINVAL)),
    ];
    for (what, edit, expected) in cases {
        let body = request(&specs, edit);
        assert_eq!(header(&body, ROOT).map(|_| ()), expected, "{what}");
    }
    let fine = request(&specs, |_| {});
    assert_eq!(header(&fine[..23], ROOT).map(|_| ()), Err(Errno::ENOSPC));
    let nobody = Caller { net_raw: false, ..ROOT };
    assert_eq!(header(&fine, nobody).map(|_| ()), Err(Errno::EPERM));
    let bad_flags = request(&specs, |r| r.flow_attr.flags = 8);
    assert_eq!(header(&bad_flags, nobody).map(|_| ()), Err(Errno::EPERM));
    let bad_mask = request(&specs, |r| r.comp_mask = 1);
    assert_eq!(header(&bad_mask, nobody).map(|_| ()), Err(Errno::EINVAL));
    let padded = [&fine[..], &[0; 8]].concat();
    assert_eq!(header(&padded, ROOT).map(|(_, specs)| specs.len()), Ok(40));
    let none_but_size = request(&[], |r| r.flow_attr.size = 8);
    assert_eq!(header(&none_but_size, ROOT).map(|_| ()), Err(Errno::EINVAL));
}

#[test]
fn odd_specs_get_the_kernels_errno() {
    let tag = FlowSpecActionTag::new_zeroed();
    let tag = &tag.as_bytes()[8..];
    let mut ipv6_tail = vec![0; 80];
    ipv6_tail[79] = 1;
    let mut label = vec![0; 80];
    label[33] = 0x10;
    let mut long = vec![0; 40];
    long[39] = 1;
    let mut reserved = eth(UNICAST, UNICAST);
    reserved[6] = 1;
    let cases: [(&str, Vec<u8>, Errno); 20] = [
        ("reserved", reserved, Errno::EINVAL),
        ("size 0", raw(SPEC_ETH, Some(0), &[0; 32]), Errno::EINVAL),
        ("size 7", raw(SPEC_ETH, Some(7), &[0; 32]), Errno::EINVAL),
        ("size beyond the rest", raw(SPEC_ETH, Some(41), &[0; 32]), Errno::EINVAL),
        ("empty filter", raw(SPEC_ETH, None, &[]), Errno::EINVAL),
        ("filter of 18 bytes", raw(SPEC_ETH, None, &[0; 36]), Errno::EINVAL),
        ("mask behind the known", raw(SPEC_ETH, None, &long), Errno::EINVAL),
        ("IPV4_EXT", raw(0x32, None, &[0; 24]), Errno::EINVAL),
        ("IB", raw(0x22, None, &[0; 8]), Errno::EINVAL),
        ("unknown bit", raw(0x220, None, &[0; 32]), Errno::EINVAL),
        ("IPV6 mask byte 39", raw(SPEC_IPV6, None, &ipv6_tail), Errno::EINVAL),
        ("flow label of 21 bits", raw(SPEC_IPV6, None, &label), Errno::EINVAL),
        ("VXLAN id of 25 bits", word(SPEC_VXLAN_TUNNEL, 1 << 24, 0), Errno::EINVAL),
        ("inner VXLAN", word(SPEC_VXLAN_TUNNEL | SPEC_INNER, 0, 0), Errno::EINVAL),
        ("TAG of 12 bytes", raw(SPEC_ACTION_TAG, None, &[0; 4]), Errno::EINVAL),
        ("DROP of 16 bytes", raw(SPEC_ACTION_DROP, None, tag), Errno::EINVAL),
        ("inner TAG", raw(SPEC_ACTION_TAG | SPEC_INNER, None, tag), Errno::EINVAL),
        ("HANDLE of 24 bytes", raw(SPEC_ACTION_HANDLE, None, &[0; 16]), Errno::EOPNOTSUPP),
        ("HANDLE of 0 bytes", raw(SPEC_ACTION_HANDLE, Some(0), &[]), Errno::EOPNOTSUPP),
        ("COUNT of nothing", with_number(SPEC_ACTION_COUNT, 8), Errno::ENOENT),
    ];
    for (what, bytes, expected) in cases {
        assert_eq!(parse(&bytes, 1), Err(expected), "{what}");
    }
    let two = [eth(UNICAST, UNICAST), drop_()].concat();
    assert_eq!(parse(&two, 1), Err(Errno::EINVAL), "bytes left");
    assert_eq!(parse(&two, 3), Err(Errno::EINVAL), "a spec missing");
    assert_eq!(parse(&[], 1), Err(Errno::EINVAL), "no spec at all");
    assert_eq!(parse(&[], 0), Ok(vec![]));
}

#[test]
fn short_long_and_odd_filters_are_brought_to_size() {
    let mac = FlowEthFilter { dst_mac: UNICAST, ..FlowEthFilter::new_zeroed() };
    let mask = FlowEthFilter { dst_mac: [0xff; 6], ..mac };
    let full = Spec::Eth(Filter { inner: false, val: mac, mask });
    let short = [&mac.as_bytes()[..8], &mask.as_bytes()[..8]].concat();
    assert_eq!(parse(&raw(SPEC_ETH, None, &short), 1), Ok(vec![full]));
    let long = [mac.as_bytes(), &[0xee; 4], mask.as_bytes(), &[0; 4]].concat();
    assert_eq!(parse(&raw(SPEC_ETH, None, &long), 1), Ok(vec![full]));
    // 17 bytes: two halves of 8, and the next spec at an odd offset.
    let odd = [raw(SPEC_ETH, Some(25), &short), vec![0xee], drop_()].concat();
    assert_eq!(parse(&odd, 2), Ok(vec![full, Spec::Drop]));
}

#[test]
fn each_count_spec_is_looked_up() {
    let specs = [
        with_number(SPEC_ACTION_COUNT, 7),
        with_number(SPEC_ACTION_TAG, 5),
        with_number(SPEC_ACTION_COUNT, 7),
    ];
    let mut looked_up = Vec::new();
    let lookup = &mut |object, handle| {
        looked_up.push((object, handle));
        Ok(())
    };
    let parsed = super::specs(&attr(&specs), &specs.concat(), lookup).expect("valid");
    assert_eq!(looked_up, [(Object::Counters, 7); 2]);
    assert_eq!(parsed.counters().collect::<Vec<_>>(), [7, 7]);
}

#[test]
fn what_only_a_driver_minds_passes() {
    let ten = [eth(UNICAST, UNICAST), ipv6_any(), word(SPEC_MPLS, 0, 0)].concat();
    assert_eq!(parse(&ten, 3).map(|specs| specs.len()), Ok(3));
    let tcp_and_udp = [dst_port(SPEC_TCP, 1, 1), dst_port(SPEC_UDP, 1, 1)].concat();
    assert_eq!(parse(&tcp_and_udp, 2).map(|specs| specs.len()), Ok(2));
    let ten = vec![drop_(); 10].concat();
    assert_eq!(parse(&ten, 10).map(|specs| specs.len()), Ok(10));
}

proptest::proptest! {
    #[test]
    fn any_bytes_get_an_answer(bytes: Vec<u8>, number in 0..=255u8, ports in 0..3u32) {
        let _ = parse(&bytes, number);
        if let Ok((request, bytes)) = header(&bytes, Caller { net_raw: true, ports }) {
            let _ = parse(bytes, request.flow_attr.num_of_specs);
        }
    }
}
