//! Counters of queue pairs: the requests, and the interpretation of the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use uverbs_abi::netlink::{attr, op};
use uverbs_abi::types::{driver_id, qp_type};

use crate::device::netlink::testing::{
    Answer, Asked, INDEX, KERNELS, attribute, captured, nested, put, with_device,
};
use crate::device::resources::Owner;
use crate::device::statistics::tests::{device, hardware, tree};
use crate::device::statistics::{BindBy, CounterMode, QueuePairCounters};
use crate::driver::Driver;
use crate::kernel::error::ErrorKind;

fn counters(
    driver: Driver,
    answers: impl FnMut(&Asked) -> Answer + Send + Sync + 'static,
) -> QueuePairCounters {
    QueuePairCounters::with(with_device(answers), INDEX, 1, driver)
}

fn card() -> Driver {
    Driver::of(driver_id::MLX5)
}

/// Attributes with numbers, one after the other.
fn numbers(attributes: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    attributes.iter().for_each(|(kind, value)| put(&mut bytes, *kind, &value.to_ne_bytes()));
    bytes
}

#[test]
fn requests_are_those_of_iproute2() {
    let head = [(attr::DEV_INDEX, 3), (attr::PORT_INDEX, 1), (attr::STAT_RES, 19)];
    let with = |more: &[(u16, u32)]| numbers(&[&head, more].concat());
    let rule = with(&[(attr::STAT_MODE, 1), (attr::STAT_AUTO_MODE_MASK, 0)]);
    let mut wanted = vec![
        (17, with(&[(attr::STAT_MODE, 2)])),
        (16, with(&[(attr::STAT_MODE, 1), (attr::STAT_AUTO_MODE_MASK, 2)])),
        (16, [rule, attribute(104, &[1])].concat()),
        (16, with(&[(attr::STAT_MODE, 2), (attr::RES_LQPN, 17)])),
        (16, with(&[(attr::STAT_MODE, 2), (attr::RES_LQPN, 18), (attr::STAT_COUNTER_ID, 9)])),
        (18, with(&[(attr::STAT_COUNTER_ID, 9), (attr::RES_LQPN, 18)])),
    ]
    .into_iter();
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = asked.clone();
    let mut counters = counters(card(), move |asked| {
        seen.fetch_add(1, Ordering::Relaxed);
        assert_eq!(wanted.next(), Some((asked.command, asked.attributes.clone())));
        match asked.command {
            op::STAT_GET => Answer::one(&numbers(&[(attr::STAT_MODE, 1), (attr::STAT_AUTO_MODE_MASK, 3)])),
            _ => Answer::one(&numbers(&[(attr::STAT_COUNTER_ID, 9), (attr::RES_LQPN, 17)])),
        }
    });
    let by = BindBy::TYPE | BindBy::PROCESS;
    assert_eq!(counters.mode().expect("a mode"), CounterMode::ByRule { by, with_optional: false });
    counters.bind_by(BindBy::PROCESS).expect("a rule");
    counters.bind_by_with_optional(BindBy::empty()).expect("a rule");
    assert_eq!(counters.bind(17).expect("a counter"), 9);
    counters.bind_to(18, 9).expect("the same");
    counters.unbind(18, 9).expect("no more");
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

#[test]
fn modes_are_told() {
    for (mode, wanted) in [
        (0, CounterMode::Off),
        (1, CounterMode::ByRule { by: BindBy::TYPE, with_optional: true }),
        (2, CounterMode::OneByOne),
        (7, CounterMode::Other(7)),
    ] {
        let body = [
            numbers(&[(attr::STAT_MODE, mode), (attr::STAT_AUTO_MODE_MASK, 1)]),
            attribute(attr::STAT_OPCOUNTER_ENABLED, &[1]),
        ];
        let mut counters = counters(card(), move |_| Answer::one(&body.concat()));
        assert_eq!(counters.mode().expect("a mode"), wanted);
    }
    for kernel in KERNELS {
        for (what, wanted) in [
            ("mode", CounterMode::Off),
            ("mode-auto", CounterMode::ByRule { by: BindBy::TYPE, with_optional: false }),
        ] {
            let mut counters = counters(card(), move |_| Answer::one(&captured(kernel, what)));
            assert_eq!(counters.mode().expect("a mode"), wanted, "{kernel} {what}");
        }
    }
    let mut counters = counters(card(), |_| Answer::one(&[]));
    assert_eq!(counters.mode().unwrap_err().kind(), ErrorKind::Malformed);
}

#[test]
fn bound_counters_are_listed_with_their_queue_pairs() {
    let entry = |port: u32, id: u32, mode: u32, more: &[Vec<u8>]| {
        let pairs =
            [20_u32, 21].map(|number| nested(attr::RES_QP_ENTRY, &[numbers(&[(attr::RES_LQPN, number)])]));
        let head = numbers(&[(attr::PORT_INDEX, port), (attr::STAT_COUNTER_ID, id), (attr::STAT_MODE, mode)]);
        // The head of an answer about a device precedes the table of counters there, and does no harm here.
        let rest = [nested(attr::RES_QP, &pairs), hardware(&[(b"out_of_buffer", 5)])];
        nested(attr::STAT_COUNTER_ENTRY, &[&[head], more, &rest].concat())
    };
    // The kernel returns a thread: this one, which is not the process's first.
    let (mine, thread) = (std::process::id(), nix::unistd::gettid().as_raw() as u32);
    assert_ne!(mine, thread);
    let by_both = [attribute(attr::RES_TYPE, &[qp_type::RC]), numbers(&[(attr::RES_PID, thread)])];
    let messages = vec![
        nested(attr::STAT_COUNTER, &[entry(1, 4, 1, &by_both), entry(2, 5, 2, &[])]),
        nested(attr::STAT_COUNTER, &[entry(1, 6, 2, &[])]),
    ];
    let mut counters = counters(card(), move |asked| {
        assert!(asked.is_list && asked.number(attr::STAT_RES) == Some(19));
        Answer::Told(messages.clone())
    });
    let [first, second] = &counters.list().expect("a list")[..] else { panic!("those of this port") };
    assert_eq!((first.id, &first.queue_pairs[..], first.qp_type), (4, &[20, 21][..], Some(qp_type::RC)));
    let by = BindBy::TYPE | BindBy::PROCESS;
    assert_eq!(first.mode, CounterMode::ByRule { by, with_optional: false });
    let Some(Owner::Process { pid, thread: made_by, name }) = &first.owner else { panic!("an owner") };
    let comm = std::fs::read_to_string("/proc/self/comm").expect("our name");
    assert_eq!((*pid, *made_by, name.as_deref()), (mine, thread, Some(comm.trim_end())));
    assert_eq!((first.counters[0].name(), first.counters[0].value()), ("out_of_buffer", 5));
    assert_eq!(first.counters[0].width().map(|width| width.bits), Some(32));
    assert_eq!((second.id, second.mode, &second.owner), (6, CounterMode::OneByOne, &None));
}

#[test]
fn a_list_that_ends_with_an_errno_is_an_error() {
    let mut counters = counters(card(), |_| Answer::Ended(Errno::EINVAL));
    assert_eq!(counters.list().unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn refusals_say_what_to_do() {
    for (errno, kind, hint) in [
        (Errno::EPERM, ErrorKind::PermissionDenied, "CAP_NET_ADMIN"),
        (Errno::ENOENT, ErrorKind::NotFound, "no such queue pair"),
        (Errno::ENOMEM, ErrorKind::Exhausted, "does not count per queue pair, or has no counter left"),
        (Errno::EINVAL, ErrorKind::InvalidInput, "bound already"),
        (Errno::EOPNOTSUPP, ErrorKind::Unsupported, "no counters of its own of ports"),
    ] {
        let mut counters = counters(Driver::Other, move |_| Answer::Refused(errno));
        let error = counters.bind(17).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(hint), "{error}");
    }
    let mut counters = counters(Driver::Other, |_| Answer::Refused(Errno::EBUSY));
    let error = counters.bind_by(BindBy::TYPE).unwrap_err();
    assert!(error.kind() == ErrorKind::Busy && error.to_string().contains("unbind"), "{error}");
}

#[test]
fn what_would_do_nothing_is_refused() {
    // On rxe the kernel accepts a rule, and counts nothing.
    let mut counters = counters(Driver::of(driver_id::RXE), |_| panic!("nothing is asked"));
    for error in [counters.bind_by(BindBy::TYPE).unwrap_err(), counters.bind(17).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

#[test]
fn without_netlink_there_are_none() {
    let error = device(&tree("none")).queue_pair_counters(1).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("RDMA netlink"), "{error}");
    let device = crate::soft::SoftDevice::default().device();
    assert_eq!(device.queue_pair_counters(1).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(device.queue_pair_counters(2).unwrap_err().kind(), ErrorKind::NotFound);
}
