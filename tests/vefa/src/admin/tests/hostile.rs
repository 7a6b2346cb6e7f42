//! What no driver does. None of it may stop the model.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_command_stops_the_model(opcode in any::<u8>(), flags in any::<u8>(), payload in prop::collection::vec(any::<u8>(), 60)) {
        let mut guest = Guest::new();
        guest.qp(true);
        let mut bytes = [0; 60];
        bytes.put(0, &payload);
        let _ = guest.device.carry_out(&Command { id: 0, opcode, flags, payload: bytes });
    }

    #[test]
    fn nearly_right_commands_do_not_either(
        opcode in prop::sample::select(vec![1_u8, 2, 7, 9, 18, 25, 27, 28]), at in 0_usize..60, value in any::<u64>(),
    ) {
        let mut guest = Guest::new();
        let pair = guest.qp(true);
        let mut payload = match opcode {
            1 => guest.qp_payload(pair.cq, OBJECTS, true, 0),
            _ => [0; 60],
        };
        if opcode == 9 {
            payload.put(0, &guest.cq_payload(OBJECTS, [1 << 5, 8]));
        }
        if opcode == 7 {
            payload.put_u16(0, guest.pd);
            payload.put_u64(36, 5000);
            payload.put_u8(44, 12);
        }
        payload.put_u64(at, value);
        let _ = guest.device.carry_out(&Command { id: 0, opcode, flags: (value & 6) as u8, payload });
    }

    #[test]
    fn no_write_stops_the_model(writes in prop::collection::vec((0_u32..6, 0_u64..0x5000, any::<u32>()), 1..40)) {
        let mut guest = Guest::new();
        let pair = guest.qp(true);
        let page = u64::from(guest.uar) * PAGE;
        for (bar, offset, value) in writes {
            guest.device.write_bar(bar, if bar == 4 { page + offset % 64 } else { offset }, &value.to_le_bytes()).unwrap();
            guest.device.write_bar(bar, u64::MAX - offset, &value.to_le_bytes()).unwrap();
            guest.device.read_bar(bar, offset, &mut [0; 8]);
        }
        guest.ring(pair.doorbells[0], 5);
    }
}

#[test]
fn rings_of_no_size_and_doorbells_of_nobody_are_complained_of() {
    let mut guest = Guest::new();
    for caps in [0, 32, 32 | 3 << 16] {
        guest.set(ADMIN_CAPS, caps);
        guest.set(ADMIN_DOORBELL, 1);
    }
    guest.set(ADMIN_CAPS, 32 | 64 << 16);
    guest.set(ADMIN_DOORBELL, 33);
    guest.ring(8, 1);
    assert_eq!(guest.device.complaints.len(), 5, "{:?}", guest.device.complaints);
    assert_eq!(EMPTY.len(), 64);
}
