//! What is granted: not smaller than what was asked for, accepted again, and accepted wherever libmlx5 accepts.

use proptest::prelude::*;

use super::super::SrqPlan;
use super::super::sizes::{ReceiveRing, SendRing};
use super::*;

/// Every form of requests, with the operations that they need room for.
fn forms() -> impl Iterator<Item = (Form, Option<u64>)> {
    let frames = [0, 1, 54, 96, 256].map(|header| (Form::Frames { header }, None));
    // Sends only; writes; atomics; local operations; all.
    let operations = [Some(4), Some(5), Some(0x24), Some(0x104), None];
    let messages = [Form::Messages, Form::Extended].into_iter();
    let messages = messages.flat_map(move |form| operations.map(|operations| (form, operations)));
    frames.into_iter().chain(messages).chain([(Form::Datagrams, None), (Form::Datagrams, Some(4))])
}

/// What libmlx5 grants: sends, and inline bytes. `mlx5_calc_send_wqe` and `mlx5_calc_sq_size`, providers/mlx5/verbs.c, rdma-core 44 and
/// 65, for a device with the limits of [`limits`].
fn stock(form: Form, operations: Option<u64>, cap: &QpCap) -> Option<[u32; 2]> {
    let up = |bytes: u64, to: u64| bytes.div_ceil(to) * to;
    let (transport, all, header) = match form {
        Form::Frames { header } => (32, 0x404, header),
        Form::Datagrams => (48, 0x40c, 0),
        Form::Messages => (0, 0x3ff, 0),
        Form::Extended => (16, 0x3ff, 0),
    };
    let operations = operations.unwrap_or(all);
    let largest = [(0, 16), (0b10011, 32), (0b110_0000, 48), (0b1_1000_0000, 192)];
    let largest = largest.into_iter().filter(|(bits, _)| *bits == 0 || operations & bits != 0);
    let overhead = transport + largest.map(|(_, bytes)| bytes).max()?;
    let inline = match cap.max_inline_data {
        0 => 0,
        bytes => overhead + up(u64::from(bytes) + 4, 16),
    };
    let pieces = overhead + up(header.into(), 16) + 16 * u64::from(cap.max_send_sge);
    let size = up(pieces.max(inline), 64);
    let blocks = (u64::from(cap.max_send_wr) * size / 64).next_power_of_two();
    // Without data there may be no room for the length of inline data, and libmlx5 then grants less than nothing.
    let inline = size.saturating_sub(overhead + 4);
    (pieces.max(inline) <= 1024 && size <= 1024 && blocks <= 32768)
        .then(|| [(blocks * 64 / size) as u32, inline as u32])
}

fn granted(form: Form, operations: Option<u64>, cap: QpCap) -> Result<SendRing, String> {
    SendRing::new(form, &Wanted { cap, operations, flags: 0 }, &limits(1))
}

/// Asks for a send queue, and again for what was granted.
#[track_caller]
fn check(form: Form, operations: Option<u64>, cap: QpCap) {
    let about = format!("{form:?} {operations:x?} {cap:?}");
    let stock = stock(form, operations, &cap);
    let ring = match granted(form, operations, cap) {
        Ok(ring) => ring,
        Err(hint) => {
            assert_eq!(stock, None, "{about}: {hint}");
            let [sends, segments, inline] = [cap.max_send_wr, cap.max_send_sge, cap.max_inline_data]
                .map(|size| hint.contains(&size.to_string()));
            let limit = ["at most 1024 allowed", "sends of this size: "].map(|words| hint.contains(words));
            assert!(
                matches!(limit, [true, false] if segments && inline) || limit[1] && sends,
                "{about}: {hint}"
            );
            return;
        }
    };
    let [sends, inline] = stock.unwrap_or_else(|| panic!("libmlx5 refuses {about}"));
    assert_eq!(ring.requests(), sends, "{about}");
    assert!(ring.requests() >= cap.max_send_wr && ring.inline >= cap.max_inline_data, "{about}: {ring:?}");
    // libmlx5 also grants bytes that no request can have, since the number of its units has six bits.
    let begins = match form {
        Form::Frames { .. } => 2,
        Form::Datagrams => 4,
        Form::Messages => 1,
        Form::Extended => 2,
    };
    let begins = begins + u32::from(operations.is_some_and(|operations| operations & 0b10011 != 0));
    let usable = (63 - begins) * 16 - 4;
    assert_eq!(ring.inline, inline.min(usable).max(cap.max_inline_data), "{about}");
    let again = QpCap { max_send_wr: ring.requests(), max_inline_data: ring.inline, ..cap };
    assert_eq!(granted(form, operations, again), Ok(ring), "{about}: what is granted is accepted");
}

#[test]
#[cfg_attr(miri, ignore = "300,000 shapes would take hours")]
fn sends_of_every_form_are_granted_as_libmlx5_grants_them_and_accepted_again() {
    let inline = (0..1040)
        .step_by(7)
        .chain([1, 4, 12, 13, 800, 812, 813, 828, 829, 940, 941, 956, 957, 972, 988, 1004]);
    let inline = inline.chain([1005, 1008, 1009, 1024, 65535]);
    let inline: Vec<u32> = inline.collect();
    for (form, operations) in forms() {
        for &inline in &inline {
            for segments in [0, 1, 2, 3, 4, 8, 16, 29, 30, 48, 51, 52, 53, 59, 60, 61, 62, 63, 64] {
                for sends in [1, 3, 64, 2047, 2048, 2049, 32768] {
                    check(form, operations, cap(sends, 0, segments, inline));
                }
            }
        }
    }
}

#[test]
fn what_was_reported_is_accepted() {
    let ask =
        |form, operations, inline| granted(form, operations, cap(16, 0, 1, inline)).map(|ring| ring.inline);
    assert_eq!([800, 813, 828].map(|bytes| ask(Form::Messages, None, bytes)), [Ok(828), Ok(828), Ok(828)]);
    assert_eq!(ask(Form::Messages, Some(4), 1004), Ok(1004));
    assert_eq!(ask(Form::Messages, Some(4), 800), Ok(812));
    assert_eq!([800, 956].map(|bytes| ask(Form::Datagrams, None, bytes)), [Ok(828), Ok(956)]);
    assert_eq!([940, 972].map(|bytes| ask(Form::Frames { header: 0 }, None, bytes)), [Ok(972), Ok(972)]);
}

/// As many as are granted where more can be asked for than can be posted.
#[test]
fn all_inline_bytes_that_are_granted_can_be_posted() {
    let frames = Form::Frames { header: 0 };
    // The second number is the mode in which a device wants headers of frames in the request: none, or some.
    for (form, mode, inline) in
        [(Form::Messages, 1, 800), (Form::Datagrams, 1, 900), (frames, 1, 960), (frames, 0, 960)]
    {
        let mut bench = Bench::of(form, mode, &cap(4, 1, 1, inline));
        let bytes = vec![7; bench.cap.max_inline_data as usize];
        let head = (form == frames && mode == 0).then_some([7; 18]);
        let list = [&bytes[..]];
        let request = frame(0, head, inline_data(&list));
        assert!(bench.sends.put(&request).is_ok(), "{form:?} {mode}");
    }
}

fn inline_data<'a>(list: &'a [&'a [u8]]) -> Data<NoPieces, Copied<'a, &'a [u8]>> {
    super::inline(list)
}

#[test]
fn receives_are_granted_as_libmlx5_grants_them_and_accepted_again() {
    for receives in [0, 1, 2, 3, 4, 5, 63, 64, 65, 1000, 16384, 16385, 32767, 32768, 32769, u32::MAX] {
        for segments in (0..=40).chain([64, u32::MAX / 16, u32::MAX]) {
            let stride = u64::from(segments.max(1) * u32::from(segments < 1000)).next_power_of_two() * 16;
            let is_possible = receives == 0 || receives <= 32768 && segments <= 32;
            let ring = match ReceiveRing::new(receives, segments, &limits(1)) {
                Ok(ring) => ring,
                Err(hint) => {
                    assert!(!is_possible, "{receives} {segments}: {hint}");
                    let given = if segments > 32 { segments } else { receives };
                    assert!(hint.contains(&format!(": {given} given, at most ")), "{hint}");
                    continue;
                }
            };
            assert!(is_possible, "{receives} {segments}");
            if receives == 0 {
                assert_eq!((ring.places, ring.segments()), (0, 0));
                continue;
            }
            let places = u64::from(receives.next_power_of_two()).max(64 / stride.min(64));
            assert_eq!((u64::from(ring.places), u64::from(ring.stride)), (places, stride));
            assert!(ring.places >= receives && ring.segments() >= segments);
            assert_eq!(ReceiveRing::new(ring.places, ring.segments(), &limits(1)), Ok(ring));
        }
    }
}

#[test]
fn shared_receives_and_completions_are_accepted_again() {
    for depth in [1, 2, 3, 4, 100, 8191, 8192, 16382, 16383, 16384, 65535, 65536, u32::MAX] {
        for segments in (0..=32).chain([63, 64, u32::MAX - 1, u32::MAX]) {
            let plan = |depth, segments| SrqPlan::new("test", depth, segments, &limits(0), None, || 0);
            match plan(depth, segments) {
                Ok(first) => {
                    let [most, pieces] = first.asked([0; 2]);
                    assert!(depth < 16384 && segments < 32 && most >= depth && pieces >= segments);
                    assert_eq!(plan(most, pieces).unwrap().asked([0; 2]), [most, pieces]);
                }
                Err(error) => {
                    let (given, limit) = if depth > 16383 { (depth, "16383") } else { (segments, "31") };
                    let text = error.to_string();
                    let words = [format!("{limit} allowed"), format!(": {given} given")];
                    assert!(words.iter().all(|words| text.contains(words)), "{text}");
                }
            }
        }
    }
    let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(9), offset: 0 };
    for entries in [1, 2, 3, 4, 255, 256, 257, 65535, 65536] {
        let plan =
            |entries| open(CqPlan::new("test", entries, &limits(0), page.clone()).unwrap(), 0).capacity();
        let granted = plan(entries);
        assert!(granted >= entries && plan(granted) == granted, "{entries}");
    }
}

proptest! {
    /// Any sizes, also on devices with other limits.
    #[test]
    fn whatever_is_granted_is_not_smaller_and_is_accepted_again(
        form in 0..17_usize,
        sends in prop_oneof![0..70_000_u32, any::<u32>()],
        segments in prop_oneof![0..70_u32, any::<u32>()],
        inline in prop_oneof![0..1100_u32, any::<u32>()],
        bits in 6..12_u32,
        blocks in any::<u16>(),
    ) {
        let (form, operations) = forms().nth(form).unwrap();
        let answer = AllocUcontextResp {
            max_sq_desc_sz: 1 << bits,
            max_rq_desc_sz: 1 << (bits - 1),
            max_send_wqebb: blocks.into(),
            max_recv_wr: blocks.into(),
            max_srq_recv_wr: blocks.into(),
            cache_line_size: 64,
            ..AllocUcontextResp::new_zeroed()
        };
        let limits = Limits::new(&answer);
        let plan = |cap| SendRing::new(form, &Wanted { cap, operations, flags: 0 }, &limits);
        if let Ok(ring) = plan(cap(sends, 0, segments, inline)) {
            prop_assert!(ring.requests() >= sends && ring.inline >= inline);
            prop_assert_eq!(plan(cap(ring.requests(), 0, segments, ring.inline)), Ok(ring));
        }
        if let Ok(ring) = ReceiveRing::new(sends, segments, &limits) {
            prop_assert!(ring.places >= sends && (sends == 0 || ring.segments() >= segments));
            prop_assert_eq!(ReceiveRing::new(ring.places, ring.segments(), &limits), Ok(ring));
        }
        if let Ok(plan) = SrqPlan::new("test", sends.min(70_000), segments, &limits, None, || 0) {
            let [most, pieces] = plan.asked([0; 2]);
            prop_assert!(most >= sends && pieces >= segments);
            let again = SrqPlan::new("test", most, pieces, &limits, None, || 0);
            prop_assert_eq!(again.map(|plan| plan.asked([0; 2])).ok(), Some([most, pieces]));
        }
    }
}

#[test]
fn a_queue_pair_of_sends_has_no_room_for_a_change_of_a_key() {
    let bench = Bench::of(Form::Messages, 1, &cap(4, 1, 1, 0));
    let page = Registers { page: bench.registers.clone(), id: Some(9), offset: 0 };
    let wanted = Wanted { cap: cap(4, 1, 1, 0), operations: Some(4), flags: 0 };
    let both = ends([bench.queue.shared(); 2]);
    let plan = QpPlan::new("test", Form::Messages, &wanted, &limits(1), page, both, || 77).unwrap();
    let QpQueues { mut sends, .. } = open(plan, 0x77);
    let mut put = |opcode| sends.put(&Request { opcode, ..frame(0, None, pieces(&[PIECE])) });
    assert!(matches!(put(Opcode::LocalInvalidate(5)), Err(Refused::TooLarge)));
    // It is one block, and the ring has four.
    assert!((0..4).all(|_| put(Opcode::Send).is_ok()));
    assert!(matches!(put(Opcode::Send), Err(Refused::Full)));
}
