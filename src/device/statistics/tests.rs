//! Readers with a sysfs tree and netlink answers of the test.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::errno::Errno;
use uverbs_abi::netlink::{attr, op};

use super::kernel::Kernel;
use super::*;
use crate::device::devices_in;
use crate::device::netlink::Exchange;
use crate::device::netlink::testing::{
    Answer, Asked, INDEX, KERNELS, answered, attribute, captured, nested, with_device,
};
use crate::device::tests::Tree;
use crate::kernel::error::ErrorKind;

/// The netlink answer with a port's hardware counters.
pub(super) fn hardware(counters: &[(&[u8], u64)]) -> Vec<u8> {
    let entry = |(name, value): &(&[u8], u64)| {
        let name = [*name, b"\0"].concat();
        nested(
            attr::STAT_HWCOUNTER_ENTRY,
            &[
                attribute(attr::STAT_HWCOUNTER_ENTRY_NAME, &name),
                attribute(attr::STAT_HWCOUNTER_ENTRY_VALUE, &value.to_ne_bytes()),
            ],
        )
    };
    let head = [attribute(attr::DEV_INDEX, &INDEX.to_ne_bytes()), attribute(attr::DEV_NAME, b"rxe0\0")];
    let table = nested(attr::STAT_HWCOUNTERS, &counters.iter().map(entry).collect::<Vec<_>>());
    [head.concat(), table].concat()
}

/// A tree with a port's counters and the driver's.
pub(super) fn tree(name: &str) -> Tree {
    let tree = Tree::rxe(name);
    for (file, value) in [
        ("ports/1/counters/port_rcv_data", "1000\n"),
        ("ports/1/counters/link_downed", "255\n"),
        ("ports/1/counters/unicast_rcv_packets", "3\n"),
        ("ports/1/hw_counters/sent_pkts", "12\n"),
        ("ports/1/hw_counters/lifespan", "12\n"),
        ("hw_counters/completed_cmds", "99\n"),
        ("hw_counters/lifespan", "12\n"),
    ] {
        tree.file(&format!("class/infiniband/rxe0/{file}"), value);
    }
    tree
}

pub(super) fn device(tree: &Tree) -> Device {
    devices_in(&tree.0).expect("a tree").named("rxe0").expect("a device").clone()
}

fn reader(device: &Device, netlink: Option<Exchange>) -> Result<Statistics> {
    let netlink = netlink.map(|exchange| (exchange, INDEX));
    let kernel = Kernel::with(device, netlink, &[1], true)?;
    Ok(Statistics::of(Reader::Kernel(Box::new(kernel))))
}

fn shown(rows: &[Statistic]) -> Vec<(Option<u32>, &str, &str, u64)> {
    rows.iter().map(|row| (row.port(), row.source().as_str(), row.name(), row.value())).collect()
}

const PORT_ROWS: [(Option<u32>, &str, &str, u64); 3] = [
    (Some(1), "counters", "port_rcv_data", 4000),
    (Some(1), "counters", "unicast_rcv_packets", 3),
    (Some(1), "counters", "link_downed", 255),
];

#[test]
fn one_pass_reads_ports_driver_and_device() {
    let tree = tree("pass");
    let netlink = with_device(|asked| match asked.command {
        op::STAT_GET => Answer::one(&hardware(&[(b"sent_pkts", 7), (b"ack_deferred", 1)])),
        _ => Answer::Refused(Errno::EINVAL),
    });
    let mut statistics = reader(&device(&tree), Some(netlink)).expect("a reader");
    assert!(statistics.latest().is_empty());
    let rows = statistics.read().expect("values");
    let mut wanted = PORT_ROWS.to_vec();
    wanted.push((Some(1), "hw_counters", "sent_pkts", 7));
    wanted.push((Some(1), "hw_counters", "ack_deferred", 1));
    wanted.push((None, "hw_counters", "completed_cmds", 99));
    assert_eq!(shown(rows), wanted, "a setting is no counter");
    let [data, _, downed, sent, ..] = rows else { panic!("rows") };
    assert_eq!(
        (data.raw(), data.scale(), data.unit(), data.width().map(|width| width.bits)),
        (1000, 4, Unit::Bytes, Some(64))
    );
    assert!(downed.is_saturated() && !data.is_saturated());
    assert_eq!((sent.unit(), sent.unit().as_str()), (Unit::Packets, "packets"));
    assert!(statistics.missing().is_empty());
}

#[test]
fn without_netlink_all_comes_from_sysfs() {
    let tree = tree("sysfs");
    let mut wanted = PORT_ROWS.to_vec();
    wanted.push((Some(1), "hw_counters", "sent_pkts", 12));
    wanted.push((None, "hw_counters", "completed_cmds", 99));
    let refusals: [fn(&Asked) -> Answer; 6] = [
        |_| Answer::Silence,
        |_| Answer::Send(Errno::EPERM),
        |_| Answer::Refused(Errno::EPERM),
        // Too many for one answer.
        |_| Answer::Refused(Errno::EMSGSIZE),
        |_| Answer::Refused(Errno::EINVAL),
        |_| Answer::Cut(hardware(&[(b"sent_pkts", 7)]), 30),
    ];
    for netlink in [None].into_iter().chain(refusals.map(|refusal| Some(answered(refusal)))) {
        let mut statistics = reader(&device(&tree), netlink).expect("a reader");
        assert_eq!(shown(statistics.read().expect("values")), wanted);
    }
    // Opened as a device that was found in this way.
    let mut statistics = device(&tree).statistics().expect("a reader");
    assert_eq!(shown(statistics.read().expect("values")), wanted);
    // For a port, only the port's counters.
    let mut statistics = device(&tree).port_statistics(1).expect("a reader");
    assert_eq!(statistics.read().expect("values").len(), 4);
}

#[test]
fn without_sysfs_netlink_tells_hardware_counters() {
    let tree = tree("netlink");
    let device = device(&tree);
    drop(tree);
    let netlink = with_device(|_| Answer::one(&hardware(&[(b"sent_pkts", 7)])));
    let mut statistics = reader(&device, Some(netlink)).expect("a reader");
    assert_eq!(shown(statistics.read().expect("values")), [(Some(1), "hw_counters", "sent_pkts", 7)]);
}

#[test]
fn no_counters_no_port_and_no_device_are_told_apart() {
    // The kernel returns EINVAL for all of them.
    let bare = Tree::rxe("bare");
    let known = || with_device(|_| Answer::Refused(Errno::EINVAL));
    let mut statistics = reader(&device(&bare), Some(known())).expect("a device without counters");
    assert_eq!(shown(statistics.read().expect("nothing")), []);
    assert_eq!(statistics.optional(1).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(statistics.optional(2).unwrap_err().kind(), ErrorKind::NotFound);

    let error = reader(&device(&bare), Some(answered(|_| Answer::Refused(Errno::EINVAL)))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disassociated, "{error}");

    let error = device(&bare).port_statistics(2).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::NotFound, Some(Errno::EINVAL as i32)));
    assert_eq!(device(&bare).port_statistics(0).unwrap_err().kind(), ErrorKind::NotFound);

    // Neither source is available.
    let gone = device(&bare);
    drop(bare);
    for netlink in [None, Some(answered(|_| Answer::Silence))] {
        let error = reader(&gone, netlink).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("neither shows the device"), "{error}");
    }
}

#[test]
fn a_device_that_vanishes_between_two_reads_is_gone() {
    // By netlink, for a device without files.
    let tree = Tree::rxe("vanishes");
    let there = Arc::new(AtomicBool::new(true));
    let asked = there.clone();
    let netlink = answered(move |_| match asked.load(Ordering::Relaxed) {
        true => Answer::one(&hardware(&[(b"sent_pkts", 7)])),
        false => Answer::Refused(Errno::EINVAL),
    });
    let mut statistics = reader(&device(&tree), Some(netlink)).expect("a reader");
    assert_eq!(statistics.read().expect("values").len(), 1);
    there.store(false, Ordering::Relaxed);
    let error = statistics.read().unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Disassociated, "statistics.read"));
    drop(tree);

    // In sysfs. A device that gets the same name is another one.
    let first = self::tree("vanishes-files");
    let device = device(&first);
    let mut statistics = reader(&device, None).expect("a reader");
    assert_eq!(statistics.read().expect("values").len(), 5);
    fs::remove_dir_all(&first.0).expect("it is ours");
    assert_eq!(statistics.read().unwrap_err().kind(), ErrorKind::Disassociated);
    let again = self::tree("vanishes-files");
    let rows = statistics.read().expect("the name is there again").len();
    assert_eq!((rows, statistics.missing().len()), (0, 5), "and none of the other's values is shown");
    drop(again);
}

#[test]
fn what_cannot_be_read_is_missing_and_the_rest_is_there() {
    let tree = tree("missing");
    let counters = tree.0.join("class/infiniband/rxe0/ports/1/counters");
    let mut statistics = reader(&device(&tree), None).expect("a reader");
    fs::write(counters.join("unicast_rcv_packets"), "N/A (no PMA)\n").expect("it is ours");
    fs::remove_file(counters.join("link_downed")).expect("it is ours");
    assert_eq!(shown(statistics.read().expect("the rest")).len(), 3);
    // Also if netlink accepts requests and answers none: then nothing shows that the device was removed.
    let silent = Some(answered(|_| Answer::Silence));
    let mut beside = reader(&device(&tree), silent).expect("a reader");
    assert_eq!((beside.read().expect("the rest").len(), beside.missing().len()), (3, 1));
    let missing: Vec<_> =
        statistics.missing().iter().map(|missing| (missing.name.as_deref(), missing.error.kind())).collect();
    assert_eq!(
        missing,
        [(Some("unicast_rcv_packets"), ErrorKind::Malformed), (Some("link_downed"), ErrorKind::NotFound)]
    );
    // They return to their places.
    fs::write(counters.join("unicast_rcv_packets"), "4\n").expect("it is ours");
    fs::write(counters.join("link_downed"), "1\n").expect("it is ours");
    let names: Vec<_> = statistics.read().expect("all").iter().map(Statistic::name).collect();
    assert_eq!(names, ["port_rcv_data", "unicast_rcv_packets", "link_downed", "sent_pkts", "completed_cmds"]);
    assert!(statistics.missing().is_empty());
}

#[test]
fn netlink_that_fails_once_is_missing_once() {
    let tree = Tree::rxe("once");
    let mut times = 0;
    let netlink = with_device(move |asked| {
        times += u32::from(asked.command == op::STAT_GET);
        match times {
            3 => Answer::Refused(Errno::ENOMEM),
            _ => Answer::one(&hardware(&[(b"sent_pkts", 7)])),
        }
    });
    let mut statistics = reader(&device(&tree), Some(netlink)).expect("a reader");
    assert_eq!(statistics.read().expect("values").len(), 1);
    assert_eq!(statistics.read().expect("no values").len(), 0);
    let [missing] = statistics.missing() else { panic!("one") };
    assert_eq!((missing.port, missing.source, &missing.name), (Some(1), Source::Hardware, &None));
    assert_eq!(missing.error.kind(), ErrorKind::Exhausted);
    assert_eq!(statistics.read().expect("values").len(), 1);
}

#[test]
fn names_are_passed_on_whatever_is_in_them() {
    let tree = Tree::rxe("names");
    let netlink = with_device(|_| {
        Answer::one(&hardware(&[(b"a \"b\"\n{c}", 1), (b"", 2), (b"\xff", 3), ("größe".as_bytes(), 4)]))
    });
    let mut statistics = reader(&device(&tree), Some(netlink)).expect("a reader");
    let names: Vec<_> = statistics.read().expect("values").iter().map(Statistic::name).collect();
    assert_eq!(names, ["a \"b\"\n{c}", "", "\u{fffd}", "größe"]);
}

#[test]
fn answers_that_are_cut_anywhere_bring_no_panic() {
    let whole = hardware(&[(b"sent_pkts", 7), (b"rcvd_pkts", 8)]);
    for len in 0..whole.len() {
        let mut found = 0;
        answer::values(&whole[..len], |_, _| found += 1);
        assert!(found < 2, "{len}");
        let body = whole.clone();
        let mut exchange = answered(move |_| Answer::Cut(body.clone(), len + 16));
        let error = exchange.one("test", op::STAT_GET, &[], |_| panic!("it is cut")).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Malformed), "{len}: {error}");
    }
}

#[test]
fn a_list_that_is_cut_short_does_not_keep_the_next_one_from_being_told() {
    let body = hardware(&[(b"sent_pkts", 7)]);
    let mut is_first = true;
    let mut exchange = answered(move |asked| match std::mem::take(&mut is_first) {
        true => Answer::Cut(body.clone(), 30),
        false if asked.is_list => Answer::Told(vec![body.clone(), body.clone()]),
        false => Answer::one(&body),
    });
    let error = exchange.list("test", op::STAT_GET, &[], |_| panic!("it is cut")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    for _ in 0..2 {
        let mut found = 0;
        exchange
            .list("test", op::STAT_GET, &[], |message| answer::values(message, |_, _| found += 1))
            .unwrap();
        assert_eq!(found, 2);
        exchange
            .one("test", op::STAT_GET, &[], |message| answer::values(message, |_, _| found += 1))
            .unwrap();
        assert_eq!(found, 3);
    }
}

#[test]
fn answers_are_those_of_linux() {
    for (kernel, count) in KERNELS.into_iter().zip([15, 17]) {
        let mut found = Vec::new();
        answer::values(&captured(kernel, "stat"), |name, value| {
            found.push((String::from_utf8_lossy(name).into_owned(), value));
        });
        assert_eq!(found.len(), count);
        let value = |wanted: &str| found.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
        // There and back, with two messages each way.
        assert_eq!((value("rdma_sends"), value("rdma_recvs")), (Some(4000), Some(4000)), "{kernel}");
        assert_eq!(value("sent_pkts"), value("rcvd_pkts"));
        let mut optional = 0;
        answer::optional(&captured(kernel, "status"), |_, _, _| optional += 1);
        assert_eq!(optional, 0, "rxe has none");
    }
}

/// The answer to `STAT_GET_STATUS`: the name, and whether the counter is on, if it is optional.
fn status(counters: &[(&str, Option<u8>)]) -> Vec<u8> {
    let entry = |(index, (name, is_on)): (usize, &(&str, Option<u8>))| {
        let mut parts = vec![
            attribute(attr::STAT_HWCOUNTER_ENTRY_NAME, format!("{name}\0").as_bytes()),
            attribute(attr::STAT_HWCOUNTER_INDEX, &(index as u32).to_ne_bytes()),
        ];
        parts.extend(is_on.map(|is_on| attribute(attr::STAT_HWCOUNTER_DYNAMIC, &[is_on])));
        nested(attr::STAT_HWCOUNTER_ENTRY, &parts)
    };
    nested(attr::STAT_HWCOUNTERS, &counters.iter().enumerate().map(entry).collect::<Vec<_>>())
}

#[test]
fn optional_counters_are_listed_switched_and_marked() {
    let tree = Tree::rxe("optional");
    let (set, is_on) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (asked_for, on) = (set.clone(), is_on.clone());
    let netlink = with_device(move |asked| {
        let on = &on;
        match asked.command {
            op::STAT_GET if on.load(Ordering::Relaxed) => {
                Answer::one(&hardware(&[(b"out_of_buffer", 1), (b"rdma_tx_bytes", 2)]))
            }
            op::STAT_GET => Answer::one(&hardware(&[(b"out_of_buffer", 1)])),
            op::STAT_GET_STATUS => {
                let byte = u8::from(on.load(Ordering::Relaxed));
                Answer::one(&status(&[
                    ("out_of_buffer", None),
                    ("cc_rx_ce_pkts", Some(0)),
                    ("rdma_tx_bytes", Some(byte)),
                ]))
            }
            op::STAT_SET => {
                // The table follows the two numbers: a number for each counter that is to be on.
                let table = nested(
                    attr::STAT_HWCOUNTERS,
                    &[attribute(attr::STAT_HWCOUNTER_INDEX, &2_u32.to_ne_bytes())],
                );
                assert_eq!(asked.attributes[16..], table);
                asked_for.fetch_add(1, Ordering::Relaxed);
                on.store(true, Ordering::Relaxed);
                Answer::one(&[])
            }
            _ => Answer::Refused(Errno::EINVAL),
        }
    });
    let mut statistics = reader(&device(&tree), Some(netlink)).expect("a reader");
    let listed: Vec<_> =
        statistics.optional(1).expect("a list").into_iter().map(|found| (found.name, found.is_on)).collect();
    assert_eq!(listed, [("cc_rx_ce_pkts".to_owned(), false), ("rdma_tx_bytes".to_owned(), false)]);
    assert!(!statistics.read().expect("values")[0].is_optional());

    let error = statistics.set_optional(1, &["rdma_tx_bytes", "no\nne"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("called no\\nne; there is cc_rx_ce_pkts, rdma_tx_bytes"), "{error}");
    assert_eq!(set.load(Ordering::Relaxed), 0, "nothing was asked for");

    statistics.set_optional(1, &["rdma_tx_bytes"]).expect("it is switched on");
    let rows = statistics.read().expect("values");
    assert_eq!(rows.iter().map(Statistic::is_optional).collect::<Vec<_>>(), [false, true]);
    assert_eq!(rows[1].unit(), Unit::Bytes);
}

#[test]
fn switching_without_rights_says_which() {
    let tree = Tree::rxe("rights");
    for (errno, kind, hint) in [
        (Errno::EPERM, ErrorKind::PermissionDenied, "CAP_NET_ADMIN"),
        (Errno::EOPNOTSUPP, ErrorKind::Unsupported, "cannot count it"),
    ] {
        let netlink = with_device(move |asked| match asked.command {
            op::STAT_GET_STATUS => Answer::one(&status(&[("a", Some(0))])),
            op::STAT_SET => Answer::Refused(errno),
            _ => Answer::one(&hardware(&[(b"b", 1)])),
        });
        let mut statistics = reader(&device(&tree), Some(netlink)).expect("a reader");
        let error = statistics.set_optional(1, &["a"]).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(hint), "{error}");
    }
    // Without netlink there are none.
    let error =
        reader(&device(&self::tree("rights-files")), None).expect("a reader").optional(1).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("netlink"), "{error}");
}
