//! Commands to the firmware, its objects, and flows by matchers: `mlx5::devx` and `mlx5::FlowMatcher`, on devices that have DEVX.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::*;
use uverbs::mlx5::devx::{self, Answers, EventChannel, FirmwareObject, Uar, UarKind, Umem, Var};
use uverbs::mlx5::{FlowAction, FlowMatcher, FlowTable, HeaderAction, Matching, Reformat};
use uverbs::{AccessFlags, Completion, Context, ErrorKind, Mapping, SoftDevice};

const QUERY_HCA_CAP: u16 = 0x100;
const CREATE_CQ: u16 = 0x400;
const QUERY_CQ: u16 = 0x402;
const QUERY_QP: u16 = 0x50b;
const ALLOC_PD: u16 = 0x800;
const NOP: u16 = 0x80d;
const QUERY_RQ: u16 = 0x90b;
const ALLOC_FLOW_COUNTER: u16 = 0x939;
const QUERY_FLOW_COUNTER: u16 = 0x93b;
const EREMOTEIO: i32 = 121;

/// A command, and the place for an answer.
fn request(opcode: u16, len: usize, room: usize) -> (Vec<u8>, Vec<u8>) {
    let mut request = vec![0; len];
    request[..2].copy_from_slice(&opcode.to_be_bytes());
    (request, vec![0; room])
}

/// A word of 32 bits at a multiple of four bytes.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Whole pages of memory.
fn pages(len: usize) -> Mapping {
    memmap2::MmapMut::map_anon(len).unwrap().into()
}

/// A counter of the firmware, and its number.
fn counter(context: &Context) -> (FirmwareObject, u32) {
    let (request, mut answer) = request(ALLOC_FLOW_COUNTER, 16, 16);
    let counter = FirmwareObject::create(context, &request, &mut answer).unwrap();
    (counter, word(&answer, 8))
}

/// The command that reads a counter.
fn reading(number: u32) -> (Vec<u8>, Vec<u8>) {
    let (mut request, answer) = request(QUERY_FLOW_COUNTER, 32, 32);
    set_word(&mut request, 28, number);
    (request, answer)
}

/// Packets and bytes.
fn counts(counter: &FirmwareObject, number: u32) -> (u32, u32) {
    let (request, mut answer) = reading(number);
    counter.query(&request, &mut answer).unwrap();
    (word(&answer, 20), word(&answer, 28))
}

#[test]
fn commands_about_no_object_are_passed_on() {
    on_every_bulk_device(|_, _, raw| {
        let (mut general, mut answer) = request(QUERY_HCA_CAP, 16, 16 + 4096);
        general[7] = 1;
        devx::command(&raw.context, &general, &mut answer).unwrap();
        // log_max_uctx, five bits.
        assert_ne!(word(&answer, 16 + 0x460 / 8) >> 24 & 0x1f, 0);
        for (len, room) in [(15, 4112), (16, 15), (0, 4112)] {
            let refused = devx::command(&raw.context, &general[..len], &mut vec![0; room]);
            refuses(refused, ErrorKind::InvalidInput, EINVAL, "at least 16");
        }
        // One that creates an object is not passed on this way.
        let (create, mut answer) = request(ALLOC_PD, 16, 16);
        assert_eq!(
            devx::command(&raw.context, &create, &mut answer).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        // What the firmware lacks: the status is also in the answer, and old content is not.
        let (lacking, _) = request(NOP, 16, 16);
        let mut answer = vec![0xff; 16];
        refuses(
            devx::command(&raw.context, &lacking, &mut answer),
            ErrorKind::Unsupported,
            EOPNOTSUPP,
            "status 0x2",
        );
        assert_eq!(answer[0], 2);
        assert!(devx::event_queue(&raw.context, 0).is_ok());
        assert!(devx::event_queue(&raw.context, 4000).is_err());
    });
}

#[test]
fn an_object_is_read_changed_and_destroyed_by_commands_that_name_it() {
    on_every_bulk_device(|_, _, raw| {
        let (counter, number) = counter(&raw.context);
        assert_eq!(counts(&counter, number), (0, 0));
        let (other, mut answer) = reading(number + 1);
        assert_eq!(counter.query(&other, &mut answer).unwrap_err().kind(), ErrorKind::InvalidInput);
        let (own, mut answer) = reading(number);
        assert_eq!(counter.modify(&own, &mut answer).unwrap_err().kind(), ErrorKind::InvalidInput);
        refuses(counter.query(&own[..16], &mut answer), ErrorKind::InvalidInput, EINVAL, "at least 32");
        let clone = counter.clone();
        let (counter, error) = counter.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop(clone);
        counter.destroy().unwrap();
        // Nothing is created by a command that reads.
        let (query, mut answer) = request(QUERY_CQ, 16, 80);
        let error = FirmwareObject::create(&raw.context, &query, &mut answer).unwrap_err();
        assert_eq!((error.kind(), &answer[..8]), (ErrorKind::InvalidInput, &[0; 8][..]));
    });
}

#[test]
fn queues_of_the_crate_are_read_by_commands() {
    on_every_bulk_device(|_, _, raw| {
        let wrong = request(QUERY_CQ, 16, 272);
        let mut answer = wrong.1.clone();
        // Number zero is not that of the queue.
        assert_eq!(devx::query(&raw.cq, &wrong.0, &mut answer).unwrap_err().kind(), ErrorKind::InvalidInput);
        let found = (1..256).find_map(|number| {
            let (mut query, mut answer) = request(QUERY_CQ, 16, 272);
            set_word(&mut query, 8, number);
            devx::query(&raw.cq, &query, &mut answer).is_ok().then(|| word(&answer, 16 + 12) >> 24)
        });
        // The binary logarithm of its entries, of which one may be kept free.
        let entries = 1 << found.expect("its number");
        let capacity = raw.cq.capacity();
        assert!((capacity..=2 * capacity).contains(&entries), "{entries} for {capacity}");
        let (mut query, mut answer) = request(QUERY_RQ, 16, 272);
        // The highest number is that of no receive queue here.
        set_word(&mut query, 8, 0xff_ffff);
        assert!(devx::query(&raw.qp, &query, &mut answer).is_err());
        let (query, mut answer) = request(QUERY_QP, 16, 272);
        assert!(devx::modify(&raw.qp, &query, &mut answer).is_err());
    });
}

#[test]
fn memory_stays_registered_while_a_queue_is_in_it() {
    on_every_bulk_device(|_, _, raw| {
        let context = &raw.context;
        let memory = pages(8192);
        let umem = Umem::register(context, &memory, AccessFlags::LOCAL_WRITE, Some(4096)).unwrap();
        let uar = Uar::alloc(context, UarKind::NotCached).unwrap();
        assert!(umem.number() != 0 && uar.number() != 0);
        let (mut create, mut answer) = request(CREATE_CQ, 272, 16);
        set_word(&mut create, 16 + 12, 4 << 24 | uar.number());
        set_word(&mut create, 16 + 20, devx::event_queue(context, 0).unwrap());
        set_word(&mut create, 16 + 4, umem.number());
        set_word(&mut create, 16 + 60, 4096);
        set_word(&mut create, 88, umem.number());
        let cq = FirmwareObject::create(context, &create, &mut answer).unwrap();
        let number = word(&answer, 8) & 0xff_ffff;
        let (mut query, mut answer) = request(QUERY_CQ, 16, 272);
        set_word(&mut query, 8, number);
        cq.query(&query, &mut answer).unwrap();
        assert_eq!(word(&answer, 16 + 12), 4 << 24 | uar.number());
        // A doorbell for a queue without completions.
        uar.ring(0x20, [0; 8]).unwrap();
        for offset in [4, 1 << 20] {
            refuses(uar.ring(offset, [0; 8]), ErrorKind::InvalidInput, EINVAL, "no register");
        }
        let (umem, error) = umem.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        refuses(
            FirmwareObject::create(context, &create[..95], &mut [0; 16]),
            ErrorKind::InvalidInput,
            EINVAL,
            "at least 96",
        );
        cq.destroy().unwrap();
        umem.destroy().unwrap();
        uar.destroy().unwrap();
        for (access, sizes) in [(AccessFlags::MW_BIND, None), (AccessFlags::LOCAL_WRITE, Some(0))] {
            assert!(Umem::register(context, &memory, access, sizes).is_err());
        }
        // The memory of what is dropped in the wrong order is leaked, not freed: the queue may still write to it.
        let umem = Umem::register(context, &memory, AccessFlags::LOCAL_WRITE, None).unwrap();
        set_word(&mut create, 16 + 4, umem.number());
        set_word(&mut create, 88, umem.number());
        let uar = Uar::alloc(context, UarKind::NotCached).unwrap();
        set_word(&mut create, 16 + 12, 4 << 24 | uar.number());
        let cq = FirmwareObject::create(context, &create, &mut [0; 16]).unwrap();
        drop(umem);
        assert!(cq.destroy().is_ok());
    });
}

#[test]
fn a_matcher_takes_packets_to_a_queue_pair_and_counts_and_tags_them() {
    on_every_bulk_device(|_, wire, raw| {
        let mut own = Raw::new(&raw.context);
        own.post_receives(8);
        let (counter, number) = counter(&raw.context);
        let mut mask = [0; 192];
        mask[8..14].fill(0xff);
        let matching = Matching { mask: &mask, criteria: 1, priority: 1, table: FlowTable::NicReceive };
        let matcher = FlowMatcher::create(&raw.context, &matching).unwrap();
        let to = |last| {
            let mut value = [0; 192];
            value[8..14].copy_from_slice(&mac(last));
            value
        };
        let actions =
            [FlowAction::ToQueuePair(&own.qp), FlowAction::Count(&counter, 0), FlowAction::Tag(0x1234)];
        let flow = matcher.create_flow(&to(1), &actions).unwrap();
        let drop_flow =
            matcher.create_flow(&to(2), &[FlowAction::Drop, FlowAction::Count(&counter, 0)]).unwrap();
        (0..3).for_each(|_| wire.inject(&frame(mac(1), 60)));
        wire.inject(&frame(mac(2), 100));
        wire.inject(&frame(mac(3), 60));
        assert_eq!(counts(&counter, number), (4, 280));
        let mut completions = Completion::batch::<8>();
        assert_eq!(own.cq.poll(&mut completions), 3);

        let (matcher, error) = matcher.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let (counter, error) = counter.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        flow.destroy().unwrap();
        drop(drop_flow);

        let drop = FlowAction::Drop;
        let count = FlowAction::Count(&counter, 0);
        for (list, errno) in [
            (&[][..], EINVAL),
            (&[count], EINVAL),
            (&[drop, FlowAction::Pass], EOPNOTSUPP),
            (&[FlowAction::ToQueuePair(&own.qp), drop], EOPNOTSUPP),
            (&[drop, count, count], EOPNOTSUPP),
            (&[drop, FlowAction::Tag(1), FlowAction::Tag(1)], EINVAL),
            (&[FlowAction::ToObject(&counter)], EINVAL),
            (&[FlowAction::ToQueuePair(&own.qp), FlowAction::Tag(1 << 24)], EINVAL),
            (&[drop, FlowAction::Count(&counter, 1)], EINVAL),
        ] {
            let error = matcher.create_flow(&to(4), list).unwrap_err();
            assert_eq!(error.errno(), Some(errno), "{error}");
        }
        // What belongs to another open device.
        let elsewhere = uverbs::OpenOptions::new().devx(true).open(raw.context.device()).unwrap();
        let (stranger, _) = self::counter(&elsewhere);
        refuses(
            matcher.create_flow(&to(4), &[drop, FlowAction::Count(&stranger, 0)]),
            ErrorKind::InvalidInput,
            EINVAL,
            "another open device",
        );
        counter.destroy().unwrap();
        matcher.destroy().unwrap();
        for mask in [&[][..], &[0; 4096]] {
            let matching = Matching { mask, ..matching };
            assert!(FlowMatcher::create(&raw.context, &matching).is_err());
        }
        // The virtual card changes no headers; a card may.
        let changes = HeaderAction::modify(&raw.context, &[[0; 8]; 256], FlowTable::NicReceive);
        refuses(changes, ErrorKind::InvalidInput, EINVAL, "1 to 255");
        match HeaderAction::reformat(&raw.context, Reformat::RemoveL2Tunnel, &[], FlowTable::NicReceive) {
            Ok(action) => action.destroy().unwrap(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
    });
}

#[test]
fn answers_arrive_with_their_numbers() {
    on_every_bulk_device(|_, _, raw| {
        let (counter, number) = counter(&raw.context);
        let answers = Answers::new(&raw.context).unwrap();
        let mut answer = [0; 32];
        assert_eq!(answers.next(&mut answer).unwrap(), None);
        let (request, _) = reading(number);
        for number in [7, u64::MAX] {
            counter.start_query(&request, 32, &answers, number).unwrap();
            assert!(answers.wait(Some(Duration::from_secs(20))).unwrap());
            refuses(answers.next(&mut answer[..8]), ErrorKind::InvalidInput, EINVAL, "more than 8 bytes");
            assert_eq!(answers.next(&mut answer).unwrap(), Some((number, 32)));
        }
        for (request, room) in [(&request[..16], 32), (&request[..], 8), (&reading(number + 1).0, 32)] {
            let error = counter.start_query(request, room, &answers, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        let elsewhere = uverbs::OpenOptions::new().devx(true).open(raw.context.device()).unwrap();
        let other = Answers::new(&elsewhere).unwrap();
        assert!(counter.start_query(&request, 32, &other, 1).is_err());
        assert_eq!(answers.next(&mut answer).unwrap(), None);
    });
}

#[test]
fn events_are_subscribed_by_their_numbers() {
    on_every_bulk_device(|_, _, raw| {
        let (counter, _) = counter(&raw.context);
        for has_entries in [true, false] {
            let channel = EventChannel::new(&raw.context, has_entries).unwrap();
            assert_eq!(channel.next().unwrap(), None);
            // The change of a port is an event of the device, and none of an object.
            channel.subscribe(None, &[9], 5).unwrap();
            for events in [&[][..], &[0x99], &[9; 17]] {
                assert_eq!(channel.subscribe(None, events, 5).unwrap_err().kind(), ErrorKind::InvalidInput);
            }
            assert!(channel.subscribe(Some(&counter), &[9], 5).is_err());
            let file = std::fs::File::open("/dev/null").unwrap();
            assert!(channel.subscribe_eventfd(None, 9, file.as_fd()).is_err());
            assert!(!channel.wait(Some(Duration::ZERO)).unwrap());
        }
    });
}

#[test]
fn a_device_without_commands_refuses_them() {
    let context = SoftDevice::default().open().unwrap();
    let (create, mut answer) = request(ALLOC_PD, 16, 16);
    let memory = pages(4096);
    let matching = Matching { mask: &[0; 64], criteria: 1, priority: 0, table: FlowTable::NicReceive };
    let errors = [
        devx::command(&context, &create, &mut answer).unwrap_err(),
        devx::event_queue(&context, 0).unwrap_err(),
        FirmwareObject::create(&context, &create, &mut answer).unwrap_err(),
        Answers::new(&context).unwrap_err(),
        EventChannel::new(&context, true).unwrap_err(),
        Umem::register(&context, &memory, AccessFlags::LOCAL_WRITE, None).unwrap_err(),
        Uar::alloc(&context, UarKind::NotCached).unwrap_err(),
        Var::alloc(&context, false).unwrap_err(),
        FlowMatcher::create(&context, &matching).unwrap_err(),
        HeaderAction::modify(&context, &[[0; 8]], FlowTable::NicReceive).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_ne!(error.errno(), Some(EREMOTEIO));
    }
    // Too short is too short everywhere.
    let short = devx::command(&context, &create[..8], &mut answer);
    refuses(short, ErrorKind::InvalidInput, EINVAL, "at least 16");
}
