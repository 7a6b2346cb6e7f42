//! What no driver does. None of it may stop the model.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_request_stops_the_model(bytes in prop::collection::vec(any::<u8>(), 128), keeps in any::<bool>()) {
        let mut both = Both::new(true);
        let mut request = if keeps { both.request(bytes[2] % 3, 1, 0, 64) } else { slot(0, 0, 0, 0) };
        request.put(if keeps { usize::from(bytes[0] % 128) } else { 0 }, &bytes[..if keeps { 4 } else { 128 }]);
        request[3] = 0x1c;
        both.receive(1, 100);
        both.post(request);
        both.guest.device.tick(Instant::now());
    }

    #[test]
    fn no_packet_stops_the_model(
        kind in 0_u8..6, words in any::<(u64, u64, u32, u32, u32, u16)>(), len in 0_usize..64, fits in any::<bool>(),
    ) {
        let mut both = Both::new(true);
        both.receive(1, 100);
        both.guest.device.fabric.hold = 64;
        both.post(both.request(1, 1, 0, 64));
        let mut frame = vec![0; 80 + len];
        frame.put_u16(0, 0xefa1);
        frame.put(2, &[kind, kind & 1]);
        frame.put_u16(6, words.5);
        frame.put_u16(8, if fits { both.b.number } else { words.5 });
        frame.put(16, &[9; 16]);
        let gid = both.guest.device.gid;
        frame.put(32, &gid.0);
        frame.put_u64(48, words.0 % 4);
        frame.put_u64(56, words.1);
        frame.put_u32(64, if fits { 0x1234 } else { words.2 });
        frame.put_u32(72, words.3);
        frame.put_u32(76, words.4);
        both.guest.device.frame_arrives(&frame);
        let mut from_itself = Packet::decode(&frame).unwrap();
        from_itself.source = gid;
        both.guest.device.deliver(from_itself);
        both.guest.device.tick(Instant::now() + Duration::from_secs(9));
    }

    #[test]
    fn no_descriptor_stops_the_model(bytes in prop::collection::vec(any::<u8>(), 48)) {
        let mut both = Both::new(true);
        both.receive(1, 100);
        let base = both.guest.device.qps.get(both.b.handle).unwrap().receive.base;
        both.guest.put(base, &bytes);
        both.guest.ring(both.b.doorbells[1], 3);
        both.post(both.request(0, 1, 0, 64));
        both.guest.modify(both.b.handle, 1, 6).unwrap();
    }
}
