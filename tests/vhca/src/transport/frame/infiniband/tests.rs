//! The example of the specification, and all packets in both directions.

use proptest::prelude::*;

use super::super::tests::{any_packet, any_route};
use super::*;
use crate::packet::tests::packet as hex;
use uverbs::raw::roce::{Operation, Remote, Service};

/// The sample of section 7.8: a write, without a header of the network layer and without the sum of the link.
const SAMPLE: &str = "7012375c 000e17d2 0a202487 0087b1b3 000dec2a 01710a1c 015d4002 38f27a05 0000000e \
                      bb884d85 fd5cfba4 728bc069 0ed40000 9625b75a";

#[test]
fn the_example_of_the_specification() {
    let route = Route { slid: 0x17d2, dlid: 0x375c, service_level: 1, ..Route::default() };
    let packet = Packet {
        pkey: 0x2487,
        psn: 0x0d_ec2a,
        remote: Remote { address: 0x0171_0a1c_015d_4002, key: 0x38f2_7a05, len: 14 },
        payload: hex("bb884d85 fd5cfba4 728bc069 0ed4"),
        ..Packet::new(Service::Rc, Operation::WriteOnly, 0x87_b1b3)
    };
    assert_eq!(parse(&hex(SAMPLE)), Ok((route, packet.clone())));
    // This device writes another virtual lane, which the checksum leaves out, and the migration bit.
    let mut written = hex(SAMPLE);
    (written[0], written[9]) = (0, 0x60);
    let end = written.len() - SUM;
    let sum = sum(&written[..end]);
    written[end..].copy_from_slice(&sum);
    assert_eq!(build(&route, &packet), written);
}

#[test]
fn what_is_wrong_is_refused() {
    let spoilt = |at: usize, by: u8| {
        let mut frame = hex(SAMPLE);
        frame[at] ^= by;
        parse(&frame).map(|_| ())
    };
    // The virtual lane and the reserved byte may change.
    assert_eq!((spoilt(0, 0xf0), spoilt(12, 1)), (Ok(()), Ok(())));
    // Another version of the link, another transport, another length; and every other byte.
    assert_eq!((spoilt(0, 1), spoilt(1, 2)), (Err(Refused::Other), Err(Refused::Other)));
    assert_eq!(spoilt(5, 1), Err(Refused::Length));
    for at in [1, 2, 3, 6, 7, 8, 9, 10, 11, 13, 20, 40, 54, 55] {
        assert_eq!(spoilt(at, 0x80), Err(Refused::Sum), "byte {at}");
    }
    for len in 0..hex(SAMPLE).len() {
        assert!(parse(&hex(SAMPLE)[..len]).is_err(), "{len}");
    }
}

prop_compose! {
    /// Without the fields that only Ethernet has.
    fn on_infiniband()(
        route in any_route(), lids: [u16; 2], service_level in 0..16_u8, has_grh: bool, flow_label in 0..1_u32 << 20,
    ) -> Route {
        let bare = Route { slid: lids[0], dlid: lids[1], service_level, ..Route::default() };
        if !has_grh {
            return bare;
        }
        let Route { sgid, dgid, traffic_class, hop_limit, .. } = route;
        Route { has_grh, sgid, dgid, traffic_class, flow_label, hop_limit, ..bare }
    }
}

proptest! {
    #[test]
    fn every_packet_comes_back(route in on_infiniband(), packet in any_packet()) {
        let frame = build(&route, &packet);
        prop_assert_eq!(len(&route, &packet), frame.len());
        prop_assert_eq!(parse(&frame), Ok((route, packet)));
    }

    #[test]
    fn spoilt_frames_are_read(
        route in on_infiniband(), packet in any_packet(), spoil: Vec<(prop::sample::Index, u8)>, at: prop::sample::Index,
    ) {
        let mut frame = build(&route, &packet);
        for (at, byte) in spoil {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(at.index(frame.len() + 1));
        drop(parse(&frame));
    }
}
