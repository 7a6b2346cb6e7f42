//! The queues that a device has, and what is refused before a command is sent.

use super::*;

fn plan(state: &State, shape: &QpShape) -> Result<(CreateQp, QpCap)> {
    let memory = Memory::default();
    memory.put(CQ, 4096);
    memory.put(PAGE, page_size());
    let side = queue(state, &memory).side();
    let mut plan = state.plan_qp("test", shape, Sides { queues: [&side; 2], shared: None }, &memory)?;
    let request = CreateQp::read_from_bytes(plan.payload().0).unwrap();
    Ok((request, plan.asked(shape.cap)))
}

#[test]
fn rings_are_powers_of_two_and_slots_as_wide_as_inline_data_needs() {
    let state = state(|_, _| {});
    for (type_, wanted, rings, requests) in [
        (qp_type::DRIVER, cap(3, 3, 1, 0), [4 * 64, 4 * 16], [4, 4]),
        (qp_type::DRIVER, cap(3, 3, 2, 0), [4 * 64, 8 * 16], [4, 4]),
        (qp_type::DRIVER, cap(16, 0, 1, 1), [16 * 128, 0], [16, 0]),
        (qp_type::UD, cap(16, 0, 1, 32), [16 * 64, 0], [16, 0]),
        (qp_type::UD, cap(16, 0, 1, 33), [16 * 128, 0], [16, 0]),
        (qp_type::UD, cap(0, 5, 1, 0), [0, 8 * 16], [0, 8]),
    ] {
        let (request, cap) = plan(&state, &shape(type_, wanted)).unwrap();
        assert_eq!([request.sq_ring_size, request.rq_ring_size], rings, "{wanted:?}");
        assert_eq!([cap.max_send_wr, cap.max_recv_wr], requests);
    }
}

#[test]
fn what_the_device_says_beside_is_sent() {
    let state = state(|_, _| {});
    let driver = DriverQp { flags: 1, service_level: 3, inline_writes: None };
    let (request, _) = plan(&state, &QpShape { driver, ..shape(qp_type::DRIVER, cap(4, 4, 1, 0)) }).unwrap();
    assert_eq!((request.flags, request.sl, request.driver_qp_type), (1, 3, 0));
}

#[test]
fn more_than_the_device_has_is_refused_with_what_it_has() {
    let state = state(|_, _| {});
    for (wanted, hint) in [
        (cap(2048, 1, 1, 0), "inline data: 2048 given, at most 1024 allowed"),
        (cap(1024, 1, 1, 8), "inline data: 1024 given, at most 512 allowed"),
        (cap(u32::MAX, 1, 1, 0), "4294967295 given, at most 1024 allowed"),
        (cap(1, 1, 1, 81), "81 given, at most 80 allowed"),
        (cap(1, 1 << 16, 1, 0), "segments of all receives together: 65536 given, at most 32768 allowed"),
        (cap(1, u32::MAX, u32::MAX, 0), "segments"),
    ] {
        let refused = plan(&state, &shape(qp_type::DRIVER, wanted)).unwrap_err();
        assert_eq!(refused.kind(), crate::kernel::error::ErrorKind::InvalidInput);
        assert!(refused.to_string().contains(hint), "{refused}");
    }
    for type_ in [qp_type::RC, qp_type::UC, qp_type::RAW_PACKET, qp_type::XRC_INI] {
        let refused = plan(&state, &shape(type_, cap(1, 1, 1, 0))).unwrap_err();
        assert_eq!(refused.kind(), crate::kernel::error::ErrorKind::Unsupported);
    }
}

#[test]
fn a_flag_that_would_make_another_queue_is_refused() {
    let (state, memory) = (state(|_, _| {}), Memory::default());
    for flags in [0, 1, 2, 4, 0x80] {
        let planned = state.plan_cq(
            "test",
            &CqShape { driver: DriverCq { flags, ..DriverCq::default() }, ..cq_shape(4, false) },
            &memory,
        );
        assert_eq!(planned.is_ok(), flags & !2 == 0, "{flags}");
        let flags = u16::from(flags);
        let driver = DriverQp { flags, ..DriverQp::default() };
        let planned = plan(&state, &QpShape { driver, ..shape(qp_type::DRIVER, cap(4, 4, 1, 0)) });
        assert_eq!(planned.is_ok(), flags & !1 == 0, "{flags}");
    }
}

#[test]
fn a_device_without_events_refuses_a_channel_only() {
    let state = state(|_, caps| caps.device_caps = 0);
    let memory = Memory::default();
    assert!(state.plan_cq("test", &cq_shape(4, true), &memory).is_err());
    let mut plan = state.plan_cq("test", &cq_shape(4, false), &memory).unwrap();
    assert_eq!(CreateCq::read_from_bytes(plan.payload().0).unwrap().flags, 0);
}

#[test]
fn an_address_handle_needs_a_gid() {
    let attr = AhAttr { is_global: 1, ..AhAttr::new_zeroed() };
    let mut plan = plan_ah("test", &attr).unwrap();
    plan.payload().1[4..6].copy_from_slice(&[0x34, 0x12]);
    assert_eq!(plan.address().number, 0x1234);
    assert!(plan_ah("test", &AhAttr::new_zeroed()).is_err());
}

#[test]
fn a_completion_queue_is_in_memory_of_the_process_where_the_device_can() {
    let own = Mapping::block(4096).unwrap();
    assert!(own.write(0, &[0xff; 4096]));
    let shape = CqShape { memory: Some(&own), ..cq_shape(33, false) };
    let plan = |shape: &CqShape<'_>, caps: u32| {
        state(|_, told| told.device_caps = caps).plan_cq("test", shape, &Memory::default())
    };
    assert!(plan(&shape, 0x7f).is_err(), "the device cannot");
    let mut made = plan(&shape, 0xff).unwrap();
    assert_eq!((made.asked(33), made.memory().map(Mapping::len)), (64, Some(4096)));
    made.payload().1.fill(0);
    let kernel = &Memory::default();
    let mut queue = made.open(Created { op: "test", number: 0, size: 64, kernel }).unwrap();
    let mut batch = Completion::batch::<1>();
    assert_eq!(queue.poll(&mut batch, || true), 0, "it was cleared");
    assert!(!queue.side().arm_apart(false, false), "it has no doorbell");
    for bad in [
        CqShape { entries: 65, ..shape },
        CqShape { entries: u32::MAX, ..shape },
        CqShape { has_channel: true, ..shape },
    ] {
        assert!(plan(&bad, 0xff).is_err(), "{bad:?}");
    }
}

#[test]
fn slots_are_wide_for_inline_writes_if_that_is_said() {
    let state = state(|_, _| {});
    for (inline_writes, inline, slot) in
        [(None, 0, 64), (None, 8, 128), (Some(false), 8, 64), (Some(false), 33, 128), (Some(true), 0, 128)]
    {
        let driver = DriverQp { inline_writes, ..DriverQp::default() };
        let shape = QpShape { driver, ..shape(qp_type::DRIVER, cap(4, 4, 1, inline)) };
        assert_eq!(plan(&state, &shape).unwrap().0.sq_ring_size, 4 * slot, "{inline_writes:?} {inline}");
    }
    let shape = shape(qp_type::UD, cap(4, 4, 1, 0));
    let flags = QpCreateFlags::CVLAN_STRIPPING | QpCreateFlags::SQ_SIG_ALL;
    let refused = plan(&state, &QpShape { flags, ..shape }).unwrap_err();
    assert_eq!(refused.kind(), crate::kernel::error::ErrorKind::Unsupported);
}

#[test]
fn a_queue_of_sends_has_as_many_as_a_power_of_two() {
    let state = state(|answer, _| answer.max_llq_size = 3 << 12);
    assert_eq!([state.most_in_ring(false), state.most_in_ring(true)], [128, 64]);
    assert_eq!(state.inline(), [32, 80]);
    assert_eq!(State::default().most_in_ring(true), 0);
}

#[test]
fn what_is_granted_is_not_smaller_and_is_accepted_again() {
    let sizes = [0, 1, 2, 3, 5, 63, 64, 65, 170, 511, 512, 513, 1023, 1024, 1025];
    let receives = [0, 1, 3, 100, 10922, 10923, 16384, 16385, 32767, 32768, 32769];
    let devices = [
        state(|_, _| {}),
        state(|answer, _| answer.min_sq_wr = 16),
        state(|_, caps| caps.device_caps &= !uverbs_abi::efa::QUERY_DEVICE_CAPS_RDMA_WRITE),
    ];
    for state in &devices {
        for (type_, inline) in [qp_type::UD, qp_type::DRIVER]
            .into_iter()
            .flat_map(|type_| [0, 8, 32, 33, 80, 81].map(|inline| (type_, inline)))
        {
            let shapes = sizes.into_iter().map(|sends| [sends, 1, 1]);
            let more =
                receives.into_iter().flat_map(|receives| [1, 2, 3].map(|pieces| [1, receives, pieces]));
            for [sends, receives, pieces] in shapes.chain(more) {
                let wanted = cap(sends, receives, pieces, inline);
                let Ok((_, granted)) = plan(state, &shape(type_, wanted)) else { continue };
                let had =
                    [granted.max_send_wr, granted.max_recv_wr, granted.max_recv_sge, granted.max_inline_data];
                let asked = [sends, receives, pieces, inline];
                assert!(
                    had.iter().zip(asked).all(|(had, asked)| *had >= asked),
                    "{granted:?} for {wanted:?}"
                );
                let (_, again) = plan(state, &shape(type_, granted)).expect("what was granted");
                assert_eq!(again, granted);
            }
        }
    }
}
