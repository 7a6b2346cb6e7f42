//! Fields that are read from frames of the tests.

use super::super::testing::*;
use super::*;
use proptest::prelude::*;

/// A VXLAN header for network 0x123456.
const VXLAN: [u8; 8] = [8, 0, 0, 0, 0x12, 0x34, 0x56, 0];
/// One label at the bottom of the stack.
const LABEL: [u8; 4] = [0x12, 0x34, 0x51, 0x40];

/// A frame with every kind of tunnel, for tests that cut or corrupt it.
fn nested() -> Vec<Vec<u8>> {
    let inner = ipv4(0xc0a8_0001, 17, &udp(5, 6, b""));
    let bridged = ethernet(GROUP, 0x86dd, &ipv6(6, &tcp(7, 8)));
    let v4 = |proto, payload: &[u8]| ethernet(UNICAST, 0x0800, &ipv4(1, proto, payload));
    let gre = |head: &[u8], payload: &[u8]| v4(47, &[head, payload].concat());
    vec![
        v4(17, &udp(1, 4789, &[&VXLAN[..], &bridged].concat())),
        v4(17, &udp(1, 6635, &[&LABEL[..], &inner].concat())),
        gre(&[0xb0, 0, 0x65, 0x58, 9, 9, 9, 9, 1, 2, 3, 4, 9, 9, 9, 9], &bridged),
        gre(&[0, 0, 0x08, 0], &inner),
        gre(&[0, 0, 0x88, 0x47], &[&LABEL[..], &inner].concat()),
        ethernet(UNICAST, 0x8847, &[&LABEL[..], &ipv6(17, &udp(1, 2, b""))].concat()),
        v4(50, &[0, 0, 1, 0, 0, 0, 0, 2]),
    ]
}

#[test]
fn plain_fields() {
    let tagged = [&[0x20, 0x64, 0x08, 0][..], &ipv4(0x0a00_0001, 6, &tcp(1, 2))].concat();
    let h = Headers::of(&ethernet(UNICAST, 0x8100, &tagged));
    assert_eq!((h.outer.dst_mac, h.outer.src_mac[5]), (UNICAST, 9));
    assert_eq!((h.outer.ether_type.get(), h.outer.vlan_tci.get()), (0x0800, 0x2064));
    assert_eq!((h.outer.c_vlan, h.outer.ip_version, h.outer.proto), (1, 4, 6));
    assert_eq!((h.outer.tos, h.outer.ttl, h.outer.ip_flags), (0x28, 63, 2));
    assert_eq!(h.outer.src_ip[12..], [10, 0, 0, 9]);
    assert_eq!(h.outer.dst_ip[12..], [10, 0, 0, 1]);
    assert_eq!((h.outer.tcp_src.get(), h.outer.tcp_dst.get()), (1, 2));
    assert_eq!(h.outer.udp_dst.get(), 0);
    assert_eq!(h.inner, Headers::none().inner);
}

#[test]
fn a_service_tag_is_no_customer_tag() {
    let tags = [&[0, 1, 0x81, 0, 0, 2, 0x08, 0][..], &ipv4(1, 17, &udp(1, 2, b""))].concat();
    let h = Headers::of(&ethernet(UNICAST, 0x88a8, &tags));
    assert_eq!((h.outer.c_vlan, h.outer.vlan_tci.get()), (0, 1));
    assert_eq!((h.outer.ether_type.get(), h.outer.udp_dst.get()), (0x0800, 2));
    let three = [&[0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3][..], &tags].concat();
    let h = Headers::of(&ethernet(UNICAST, 0x8100, &three));
    assert_eq!((h.outer.ether_type.get(), h.outer.ip_version), (0x8100, 0));
}

#[test]
fn extension_headers_are_passed() {
    let hop = [60, 0, 0, 0, 0, 0, 0, 0];
    let destination = [51, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let authentication = [17, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let chain = [&hop[..], &destination, &authentication, &udp(3, 4, b"")].concat();
    let h = Headers::of(&ethernet(UNICAST, 0x86dd, &ipv6(0, &chain)));
    assert_eq!((h.outer.proto, h.outer.udp_dst.get()), (17, 4));
    assert_eq!((h.outer.tos, h.outer.ttl, h.outer.flow_label.get()), (0x28, 62, 0xabcde));
}

#[test]
fn only_the_first_fragment_has_ports() {
    for (fragment, ports) in [(0x2000, true), (0x2001, false), (0x0001, false), (0, true)] {
        let packet = ipv4_fragment(1, 17, fragment, &udp(1, 2, b""));
        let h = Headers::of(&ethernet(UNICAST, 0x0800, &packet));
        let seen = h.outer.present & in_layer::PORTS != 0;
        assert_eq!((h.outer.proto, seen), (17, ports), "IPv4 {fragment:#x}");
        // The offset is three bits higher, and "more fragments" is the lowest bit.
        let [a, b] = u16::rotate_left(fragment, 3).to_be_bytes();
        let packet = ipv6(44, &[&[17, 0, a, b, 0, 0, 0, 0][..], &udp(1, 2, b"")].concat());
        let h = Headers::of(&ethernet(UNICAST, 0x86dd, &packet));
        let seen = h.outer.present & in_layer::PORTS != 0;
        assert_eq!((h.outer.proto, seen), (17, ports), "IPv6 {fragment:#x}");
    }
    let more = Headers::of(&ethernet(UNICAST, 0x0800, &ipv4_fragment(1, 6, 0x2000, &[])));
    assert_eq!(more.outer.ip_flags, 4);
}

#[test]
fn padding_is_no_header() {
    let mut frame = ethernet(UNICAST, 0x0800, &ipv4(1, 17, b"\0\x01"));
    frame.resize(60, 0xff);
    assert_eq!(Headers::of(&frame).outer.present & in_layer::PORTS, 0);
}

#[test]
fn tunnels_fill_the_inner_layer() {
    let all: Vec<_> = nested().iter().map(|frame| Headers::of(frame)).collect();
    let [vxlan, mpls_udp, bridged, plain, mpls_gre, mpls, esp, ..] = all.as_slice() else {
        panic!("frames are missing")
    };
    assert_eq!((vxlan.vxlan_vni.get(), vxlan.inner.dst_mac), (0x123456, GROUP));
    assert_eq!((vxlan.inner.ip_version, vxlan.inner.tcp_dst.get()), (6, 8));
    assert_eq!((vxlan.outer.ip_version, vxlan.outer.udp_dst.get()), (4, 4789));
    let label = u32::from_be_bytes(LABEL);
    assert_eq!((mpls_udp.mpls_over_udp.get(), mpls_udp.inner.udp_dst.get()), (label, 6));
    assert_eq!((bridged.gre_key.get(), bridged.gre_flags.get()), (0x0102_0304, 0xb000));
    assert_eq!((bridged.gre_protocol.get(), bridged.inner.tcp_src.get()), (0x6558, 7));
    assert_eq!((plain.gre_protocol.get(), plain.inner.ip_version), (0x0800, 4));
    assert_eq!(plain.present, in_tunnel::GRE);
    assert_eq!((mpls_gre.mpls_over_gre.get(), mpls_gre.inner.udp_dst.get()), (label, 6));
    assert_eq!((mpls.outer.mpls.get(), mpls.outer.ip_version), (label, 6));
    assert_eq!((mpls.outer.ether_type.get(), mpls.outer.udp_dst.get()), (0x8847, 2));
    assert_eq!((esp.outer.esp_spi.get(), esp.outer.esp_seq.get()), (256, 2));
}

#[test]
fn unknown_tunnels_are_left_alone() {
    let frame = |proto, payload: &[u8]| Headers::of(&ethernet(UNICAST, 0x0800, &ipv4(1, proto, payload)));
    let inner = ethernet(UNICAST, 0x0800, &ipv4(1, 17, &udp(1, 2, b"")));
    let no_flag = frame(17, &udp(1, 4789, &[&[0; 8], &inner[..]].concat()));
    assert_eq!((no_flag.present, no_flag.inner.present), (0, 0));
    let pptp = frame(47, &[0x20, 1, 0x88, 0x0b, 1, 2, 3, 4]);
    assert_eq!((pptp.gre_flags.get(), pptp.gre_key.get()), (0x2001, 0));
    let endless = ethernet(UNICAST, 0x8847, &[0; 400]);
    assert_eq!(Headers::of(&endless).outer.ip_version, 0);
}

proptest! {
    #[test]
    fn any_bytes_are_read(frame: Vec<u8>) {
        Headers::of(&frame);
    }

    #[test]
    fn spoilt_frames_are_read(which in 0..nested().len(), spoil: Vec<(prop::sample::Index, u8)>) {
        let mut frame = nested().swap_remove(which);
        for (at, byte) in spoil {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        Headers::of(&frame);
    }

    #[test]
    fn a_cut_frame_keeps_what_came_before(which in 0..nested().len(), at: prop::sample::Index) {
        let frame = nested().swap_remove(which);
        let cut = Headers::of(&frame[..at.index(frame.len() + 1)]);
        let whole = Headers::of(&frame);
        // Every field is that of the whole frame, or absent (zero).
        for (cut, whole) in cut.as_bytes().iter().zip(whole.as_bytes()) {
            prop_assert!(cut & !whole == 0);
        }
    }
}

proptest! {
    /// The fields of a mask are read, even if the frame is read only to the mask's depth.
    #[test]
    fn fields_of_a_mask_need_no_more_than_its_depth(
        which in 0..nested().len(), spoil: Vec<(prop::sample::Index, u8)>, at: prop::sample::Index,
        bits in prop::collection::vec((0..size_of::<Headers>(), any::<u8>()), 0..4),
    ) {
        let mut frame = nested().swap_remove(which);
        for (at, byte) in spoil {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(at.index(frame.len() + 1));
        let mut mask = Headers::none();
        for (at, bits) in bits {
            mask.as_mut_bytes()[at] = bits;
        }
        let (whole, mut some) = (Headers::of(&frame), Headers::none());
        some.fill(&frame, Depth::of(&mask));
        for (word, mask) in mask.words().iter().enumerate() {
            prop_assert_eq!(some.as_words()[word] & mask, whole.words()[word] & mask);
        }
    }
}

/// Every single field, so that none can be missed by chance.
#[test]
fn each_field_is_read_when_a_mask_has_it() {
    for frame in nested() {
        let whole = Headers::of(&frame);
        for at in 0..size_of::<Headers>() {
            let mut mask = Headers::none();
            mask.as_mut_bytes()[at] = 0xff;
            let mut some = Headers::none();
            some.fill(&frame, Depth::of(&mask));
            assert_eq!(some.as_bytes()[at], whole.as_bytes()[at], "byte {at}");
        }
    }
}
