//! Counters of devices and ports, and existing objects, while the device is in use.

use crate::common::*;
use uverbs::ErrorKind;
use uverbs::resources::Owner;
use uverbs::statistics::{CounterMode, Source, Statistic};

/// The identity of counters.
fn keys(rows: &[Statistic]) -> Vec<(Option<u32>, Source, String)> {
    rows.iter().map(|row| (row.port(), row.source(), row.name().to_owned())).collect()
}

#[test]
fn a_reader_has_the_same_counters_each_time_and_they_never_fall() {
    on_every_device(|target| {
        let mut statistics = target.device.statistics().unwrap();
        assert!(statistics.latest().is_empty());
        let first = statistics.read().unwrap().to_vec();
        assert_eq!(statistics.missing(), []);
        if first.is_empty() {
            return skip(target, "the driver has no counters");
        }
        for _ in 0..3 {
            let again = statistics.read().unwrap();
            assert_eq!(keys(&first), keys(again));
            for (before, now) in first.iter().zip(again) {
                assert!(now.raw() >= before.raw() || now.is_gauge(), "{before:?}, {now:?}");
                assert_eq!(now.value(), now.raw() * now.scale());
                assert_eq!(now.growth(before).is_some(), !now.is_gauge() && !now.is_saturated());
            }
        }
        assert_eq!(statistics.latest().len(), first.len());
        // An open device is read like any other.
        let context = target.open();
        assert_eq!(keys(context.device().statistics().unwrap().read().unwrap()), keys(&first));
    });
}

#[test]
fn a_ports_reader_has_what_is_the_ports() {
    on_every_device(|target| {
        let all = target.device.statistics().unwrap().read().unwrap().to_vec();
        let mut of_port = target.device.port_statistics(1).unwrap();
        let wanted: Vec<_> = all.into_iter().filter(|row| row.port() == Some(1)).collect();
        assert_eq!(keys(of_port.read().unwrap()), keys(&wanted));
        for port in [0, target.device.ports() + 1, u32::MAX] {
            refuses(target.device.port_statistics(port), ErrorKind::NotFound, EINVAL, "no port");
            refuses(target.device.queue_pair_counters(port), ErrorKind::NotFound, EINVAL, "no port");
        }
    });
}

#[test]
fn readers_in_two_threads_do_not_meet() {
    on_every_device(|target| {
        let mut mine = target.device.statistics().unwrap();
        let count = mine.read().unwrap().len();
        let mut theirs = target.device.statistics().unwrap();
        std::thread::scope(|scope| {
            // A reader that was created here is used there.
            scope.spawn(move || (0..50).for_each(|_| assert_eq!(theirs.read().unwrap().len(), count)));
            (0..50).for_each(|_| assert_eq!(mine.read().unwrap().len(), count));
        });
    });
}

#[test]
fn objects_are_counted_and_we_own_ours() {
    on_every_device(|target| {
        let mut resources = target.device.resources().unwrap();
        let counted = |resources: &mut uverbs::resources::Resources, kind: &str| {
            let counts = resources.summary().unwrap();
            counts.iter().find(|count| count.kind == kind).expect("each kind is counted").number
        };
        let before = ["pd", "cq", "ctx"].map(|kind| counted(&mut resources, kind));
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let after = ["pd", "cq", "ctx"].map(|kind| counted(&mut resources, kind));
        assert_eq!(after, [before[0] + 1, before[1], before[2] + 1]);
        if target.soft.is_some() {
            for error in [resources.queue_pairs().unwrap_err(), resources.contexts().unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
            }
            return;
        }
        let domains = resources.protection_domains().unwrap();
        assert_eq!(domains.len() as u64, after[0]);
        let mine = domains.iter().filter(|row| row.owner.pid() == Some(std::process::id()));
        let [mine] = &mine.collect::<Vec<_>>()[..] else { panic!("{domains:?}") };
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        // A thread of this process has created it.
        let thread = nix::unistd::gettid().as_raw() as u32;
        let named =
            Owner::Process { pid: std::process::id(), thread, name: Some(comm.trim_end().to_owned()) };
        assert_eq!(mine.owner, named);
        assert!(mine.context.is_some());
        drop(pd);
        drop(context);
        assert_eq!(["pd", "cq", "ctx"].map(|kind| counted(&mut resources, kind)), before);
    });
}

#[test]
fn queue_pairs_are_not_counted_one_by_one_unless_it_is_asked_for() {
    on_every_device(|target| {
        let mut counters = match target.device.queue_pair_counters(1) {
            Err(error) if target.soft.is_some() => return assert_eq!(error.kind(), ErrorKind::Unsupported),
            counters => counters.unwrap(),
        };
        match counters.mode() {
            // The driver has no counters.
            Err(error) if error.kind() == ErrorKind::Unsupported => return,
            mode => assert_eq!(mode.unwrap(), CounterMode::Off),
        }
        assert_eq!(counters.list().unwrap(), []);
        // For a queue pair that does not exist: refused by the first check, and nothing is bound.
        let error = counters.bind(0xff_ffff).unwrap_err();
        assert!([ErrorKind::NotFound, ErrorKind::Unsupported].contains(&error.kind()), "{error}");
        assert!(counters.unbind(0xff_ffff, 1).is_err());
        assert_eq!(counters.mode().unwrap(), CounterMode::Off);
    });
}
