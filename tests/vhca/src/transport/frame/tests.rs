//! Frames that a card has sent, whose checksums another implementation has verified; and all packets in both directions.

use proptest::prelude::*;

use super::*;
use crate::packet::tests::packet as hex;
use uverbs::raw::roce::{Atomic, Operation, Remote, Service};

const MACS_AND_IPV4: &str = "021122334456 021122334455 0800 ";
const ACKNOWLEDGEMENT: &str = "45000030 00004000 401126bb 0a000001 0a000002 cc1912b7 001c0000 \
                               1140ffff 00000203 009846fc 1f000001 092c37d5";
const READ: &str = "4500003c 00004000 401126af 0a000001 0a000002 f8d412b7 00280000 \
                    0c40ffff 0000020e 80fb4a18 00005599 15d26000 00010e0e 00004000 a2fdc64f";
const ADD: &str = "45000048 00004000 401126a3 0a000001 0a000002 fcf112b7 00340000 \
                   1440ffff 0000020f 800ef722 0000561d 32da7000 00010f0f 00000000 00000001 00000000 00000000 83976639";
const XRC_ACKNOWLEDGEMENT: &str = "45000030 00004000 401126bb 0a000001 0a000002 da3a12b7 001c0000 \
                                   b140ffff 00000207 000908d9 1f000001 a445830d";

fn mapped(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
}

/// From 10.0.0.1 to 10.0.0.2.
fn route(udp_source: u16) -> Route {
    Route {
        smac: [2, 0x11, 0x22, 0x33, 0x44, 0x55],
        dmac: [2, 0x11, 0x22, 0x33, 0x44, 0x56],
        has_grh: true,
        sgid: mapped(1),
        dgid: mapped(2),
        hop_limit: 64,
        udp_source,
        ..Route::default()
    }
}

/// The captured frames, and their contents.
fn seen() -> Vec<(Vec<u8>, Route, Packet)> {
    use Operation::*;
    let acknowledged = Packet { syndrome: 0x1f, msn: 1, ..Packet::new(Service::Rc, Acknowledge, 0x203) };
    let packets = [
        (ACKNOWLEDGEMENT, 0xcc19, Packet { psn: 0x98_46fc, ..acknowledged.clone() }),
        (
            READ,
            0xf8d4,
            Packet {
                asks: true,
                psn: 0xfb_4a18,
                remote: Remote { address: 0x5599_15d2_6000, key: 0x1_0e0e, len: 0x4000 },
                ..Packet::new(Service::Rc, ReadRequest, 0x20e)
            },
        ),
        (
            ADD,
            0xfcf1,
            Packet {
                asks: true,
                psn: 0x0e_f722,
                atomic: Atomic { address: 0x561d_32da_7000, key: 0x1_0f0f, operand: 1, compare: 0 },
                ..Packet::new(Service::Rc, FetchAdd, 0x20f)
            },
        ),
        (
            XRC_ACKNOWLEDGEMENT,
            0xda3a,
            Packet { service: Service::Xrc, to: 0x207, psn: 0x09_08d9, ..acknowledged },
        ),
    ];
    packets
        .map(|(frame, source, packet)| (hex(&(MACS_AND_IPV4.to_owned() + frame)), route(source), packet))
        .to_vec()
}

#[test]
fn frames_that_were_seen() {
    for (frame, route, packet) in seen() {
        assert_eq!(build(&route, &packet), frame);
        assert_eq!(parse(&frame), Ok((route, packet)));
    }
}

#[test]
fn what_follows_the_packet_belongs_to_ethernet() {
    let (mut frame, route, packet) = seen().remove(0);
    frame.extend([0; 7]);
    assert_eq!(parse(&frame), Ok((route, packet)));
}

#[test]
fn every_byte_counts_but_those_that_change_on_the_way() {
    let (frame, route, packet) = seen().remove(2);
    let ipv6 = Route { sgid: [0x20; 16], dgid: [0x21; 16], flow_label: 0x12345, ..route };
    // Ethernet addresses, UDP's checksum and the reserved byte of the base header. IPv4 has a checksum over its fields that may change;
    // in IPv6 these are traffic class, flow label and hop limit.
    let free_v4 = [&(0..12).collect::<Vec<_>>()[..], &[40, 41, 46]].concat();
    let free_v6 = [&(0..12).collect::<Vec<_>>()[..], &[14, 15, 16, 17, 21, 60, 61, 66]].concat();
    for (frame, free) in [(frame, free_v4), (build(&ipv6, &packet), free_v6)] {
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0x08;
            let is_free = free.contains(&at);
            assert_eq!(parse(&changed).is_ok(), is_free, "byte {at}: {:?}", parse(&changed));
        }
    }
}

/// A frame around any bytes, with a valid checksum.
fn around(transport: &[u8]) -> Vec<u8> {
    let mut frame = hex(&(MACS_AND_IPV4.to_owned() + &ACKNOWLEDGEMENT[..63]));
    frame.truncate(ETHERNET + IPV4_HEADER + UDP_HEADER);
    let udp = (UDP_HEADER + transport.len() + SUM) as u16;
    frame[16..18].copy_from_slice(&(IPV4_HEADER as u16 + udp).to_be_bytes());
    frame[24..26].fill(0);
    let checksum = header_checksum(&frame[ETHERNET..ETHERNET + IPV4_HEADER]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[38..40].copy_from_slice(&udp.to_be_bytes());
    frame.extend(transport);
    if transport.len() < BASE {
        frame.extend([0; SUM]);
    } else {
        frame.extend(sum(&frame[ETHERNET..]));
    }
    frame
}

#[test]
fn bad_packets_are_refused() {
    let of = |transport: &str| parse(&around(&hex(transport))).map(|(_, packet)| packet.operation);
    let base = "ffff 00000203 009846fc";
    assert_eq!(of(&format!("1140 {base} 1f000001")), Ok(Operation::Acknowledge));
    for (transport, why) in [
        ("", Malformed::Short),
        ("1140ffff 00000203 0098", Malformed::Short),
        ("1140ffff 00000203 009846fc", Malformed::Short),
        ("0c40ffff 00000203 009846fc 00000000 00000000 00000000 0000", Malformed::Short),
        // Services 2, 4, 6 and 7 do not exist either, nor do operations 0x15 and 0x18; UC has no reads, UD has whole messages only.
        ("4440ffff 00000203 009846fc", Malformed::Opcode),
        ("8440ffff 00000203 009846fc", Malformed::Opcode),
        ("c440ffff 00000203 009846fc", Malformed::Opcode),
        ("e440ffff 00000203 009846fc", Malformed::Opcode),
        ("1540ffff 00000203 009846fc", Malformed::Opcode),
        ("1840ffff 00000203 009846fc", Malformed::Opcode),
        ("2c40ffff 00000203 009846fc 00000000 00000000 00000000 00000000", Malformed::Opcode),
        ("3740ffff 00000203 009846fc 00000000", Malformed::Opcode),
        ("6040ffff 00000203 009846fc 00000000 00000000", Malformed::Opcode),
        ("0441ffff 00000203 009846fc", Malformed::Version),
        // More padding than data, half a word, data where none is allowed, a part of a message that is not whole words.
        ("0470ffff 00000203 009846fc", Malformed::Data),
        ("0440ffff 00000203 009846fc 0000", Malformed::Data),
        ("1140ffff 00000203 009846fc 1f000001 00000000", Malformed::Data),
        ("0050ffff 00000203 009846fc 00000000", Malformed::Data),
    ] {
        assert_eq!(of(transport), Err(Refused::Malformed(why)), "{transport}");
    }
}

#[test]
fn other_frames_are_not_ours() {
    let (frame, _, packet) = seen().remove(0);
    let spoilt = |at: usize, bytes: &[u8]| {
        let mut frame = frame.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        // It has no other error than the intended one.
        frame[24..26].fill(0);
        let checksum = header_checksum(&frame[ETHERNET..ETHERNET + IPV4_HEADER]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        parse(&frame)
    };
    assert_eq!(spoilt(0, &[]).map(|(_, packet)| packet), Ok(packet));
    for (at, bytes, why) in [
        (12, &[0x08, 0x06][..], Refused::Other),
        // Options, another protocol, a fragment, another port.
        (14, &[0x46], Refused::Other),
        (23, &[6], Refused::Other),
        (20, &[0x20, 0], Refused::Other),
        (20, &[0, 1], Refused::Other),
        (36, &[0x12, 0xb5], Refused::Other),
        (16, &[0, 19], Refused::Length),
        (16, &[0, 27], Refused::Length),
        (16, &[1, 0], Refused::Length),
        (38, &[0, 0x1b], Refused::Length),
        (38, &[0, 0x1d], Refused::Length),
    ] {
        assert_eq!(spoilt(at, bytes), Err(why), "{at}");
    }
    let mut wrong = frame.clone();
    wrong[24] ^= 1;
    assert_eq!(parse(&wrong), Err(Refused::Checksum));
    for len in 0..frame.len() {
        assert!(parse(&frame[..len]).is_err(), "{len}");
    }
}

/// The fields of a packet that are sent, by its opcode.
fn carried(packet: Packet) -> Packet {
    use Operation::*;
    let (service, operation) = (packet.service, packet.operation);
    let bare = Packet {
        solicited: packet.solicited,
        asks: packet.asks,
        pkey: packet.pkey,
        psn: packet.psn,
        ..Packet::new(service, operation, packet.to)
    };
    let (remote, atomic, immediate) = (packet.remote, packet.atomic, packet.immediate);
    let (syndrome, msn) = (packet.syndrome, packet.msn);
    let payload = packet.payload;
    let message = match operation {
        SendFirst | SendMiddle | SendLast | SendOnly | WriteMiddle | WriteLast | ReadMiddle => {
            Packet { payload, ..bare }
        }
        SendLastImmediate | SendOnlyImmediate | WriteLastImmediate | SendLastInvalidate
        | SendOnlyInvalidate => Packet { immediate, payload, ..bare },
        WriteFirst | WriteOnly => Packet { remote, payload, ..bare },
        WriteOnlyImmediate => Packet { remote, immediate, payload, ..bare },
        ReadRequest => Packet { remote, ..bare },
        ReadFirst | ReadLast | ReadOnly => Packet { syndrome, msn, payload, ..bare },
        Acknowledge => Packet { syndrome, msn, ..bare },
        AtomicAcknowledge => Packet { syndrome, msn, original: packet.original, ..bare },
        CompareSwap | FetchAdd => Packet { atomic, ..bare },
    };
    let asks =
        !matches!(operation, ReadFirst | ReadMiddle | ReadLast | ReadOnly | Acknowledge | AtomicAcknowledge);
    match service {
        Service::Ud => Packet { qkey: packet.qkey, from: packet.from, ..message },
        Service::Xrc if asks => Packet { srq: packet.srq, ..message },
        _ => message,
    }
}

fn opcodes() -> Vec<(Service, Operation)> {
    let of = |opcode: u8| {
        let transport = [&[opcode, 0x40][..], &[0; 66]].concat();
        // Data where none is allowed may be an error, but the opcode is valid.
        (0..14).find_map(|words| Packet::from_bytes(&transport[..12 + words * 4]).ok())
    };
    (0..=u8::MAX).filter_map(of).map(|packet| (packet.service, packet.operation)).collect()
}

prop_compose! {
    pub(super) fn any_packet()(
        (service, operation) in prop::sample::select(opcodes()), flags: (bool, bool), pkey: u16, numbers: [u32; 9], wide: [u64; 5], syndrome: u8,
        mut payload in prop::collection::vec(any::<u8>(), 0..70),
    ) -> Packet {
        use Operation::*;
        if matches!(operation, SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadFirst | ReadMiddle) {
            payload.truncate(payload.len() / 4 * 4);
        }
        let [to, psn, srq, qkey, from, key, len, msn, immediate] = numbers;
        let [address, operand, compare, original, other] = wide;
        let low = |number: u32| number & 0xff_ffff;
        carried(Packet {
            solicited: flags.0, asks: flags.1, pkey, psn: low(psn), srq: low(srq), qkey, from: low(from),
            remote: Remote { address, key, len },
            atomic: Atomic { address: other, key: !key, operand, compare },
            syndrome, msn: low(msn), original, immediate, payload,
            ..Packet::new(service, operation, low(to))
        })
    }
}

prop_compose! {
    pub(super) fn any_route()(
        macs: [[u8; 6]; 2], mut gids: [[u8; 16]; 2], is_v4: bool, traffic_class: u8, flow_label in 0..1_u32 << 20, hop_limit: u8, udp_source: u16,
    ) -> Route {
        for gid in &mut gids {
            if is_v4 {
                gid[..12].copy_from_slice(&mapped(0)[..12]);
            } else {
                gid[0] |= 1;
            }
        }
        let flow_label = if is_v4 { 0 } else { flow_label };
        Route {
            smac: macs[0], dmac: macs[1], has_grh: true, sgid: gids[0], dgid: gids[1], traffic_class, flow_label, hop_limit, udp_source,
            ..Route::default()
        }
    }
}

#[test]
fn all_opcodes_are_there() {
    // 23 of RC and of XRC, 12 of UC, 2 of UD.
    assert_eq!(opcodes().len(), 23 + 23 + 12 + 2);
}

proptest! {
    #[test]
    fn every_packet_comes_back(route in any_route(), packet in any_packet()) {
        let frame = build(&route, &packet);
        prop_assert_eq!(len(&route, &packet), frame.len());
        prop_assert_eq!(parse(&frame), Ok((route, packet)));
    }

    #[test]
    fn any_bytes_are_read(frame: Vec<u8>, transport: Vec<u8>) {
        drop((parse(&frame), Packet::from_bytes(&transport)));
        if let Ok((route, packet)) = parse(&around(&transport)) {
            prop_assert_eq!(parse(&build(&route, &packet)), Ok((route, packet)));
        }
    }

    #[test]
    fn spoilt_frames_are_read(
        route in any_route(), packet in any_packet(), spoil: Vec<(prop::sample::Index, u8)>, at: prop::sample::Index,
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
