//! Many threads on one device.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::common::*;
use nix::errno::Errno;
use uverbs::command::Command;
use uverbs::transport::Watcher;
use uverbs::{ErrorKind, Eth, FlowRule};

/// Watches commands for the one combination that the crate must prevent: a read of counters during the bind of their first flow or the
/// unbind of their last.
#[derive(Debug, Default)]
struct Witness {
    reads: AtomicUsize,
    flows: AtomicUsize,
    window: AtomicBool,
}

impl Witness {
    /// A command begins. If it must run `alone`, no read may be in progress.
    fn begin(&self, command: &Command<'_>, alone: bool) {
        self.window.store(alone, Ordering::SeqCst);
        assert!(!alone || self.reads.load(Ordering::SeqCst) == 0, "a read beside {}", command.op());
    }
}

impl Watcher for Witness {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        match command.op() {
            "counters.read" => {
                self.reads.fetch_add(1, Ordering::SeqCst);
                assert!(!self.window.load(Ordering::SeqCst), "a read beside the first bind or last unbind");
            }
            "flow.create" => self.begin(command, self.flows.load(Ordering::SeqCst) == 0),
            "flow.destroy" => self.begin(command, self.flows.load(Ordering::SeqCst) == 1),
            _ => {}
        }
        Ok(())
    }

    fn after(&self, command: &Command<'_>, answer: Result<(), Errno>) {
        match command.op() {
            "counters.read" => drop(self.reads.fetch_sub(1, Ordering::SeqCst)),
            "flow.create" | "flow.destroy" => {
                self.window.store(false, Ordering::SeqCst);
                match command.op() {
                    _ if answer.is_err() => {}
                    "flow.create" => drop(self.flows.fetch_add(1, Ordering::SeqCst)),
                    _ => drop(self.flows.fetch_sub(1, Ordering::SeqCst)),
                }
            }
            _ => {}
        }
    }
}

#[test]
fn eight_threads_read_while_flows_come_and_go_and_never_beside_the_first_or_last() {
    let rounds = if cfg!(miri) { 5 } else { 300 };
    // A command of a real device takes time, so threads meet only if the race is long enough.
    let seconds =
        std::env::var("UVERBS_TEST_SECONDS").map_or(10, |seconds| seconds.parse().expect("a number"));
    on_every_counting_device(|target| {
        let begun = Instant::now();
        let context = target.device.open_with(Witness::default()).unwrap();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let to = |mac| FlowRule::normal(1).eth(Eth::any().dst(mac)).count(&counters);
        let (rule, other) = (to(MAC), to([2, 0, 0, 0, 0, 2]));
        let done = AtomicBool::new(false);
        let start = Barrier::new(9);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let mut last = [0, 0];
                    while !done.load(Ordering::Relaxed) {
                        let mut values = [0; 2];
                        match counters.read(&mut values) {
                            Ok(()) => {
                                assert!(values >= last, "{values:?} after {last:?}");
                                assert_eq!(values[1], values[0] * 60, "torn");
                                last = values;
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                                std::thread::yield_now();
                            }
                        }
                    }
                });
            }
            start.wait();
            let _end = End(&done);
            let mut round = 0;
            let goes_on = |round| match target.soft {
                Some(_) => round < rounds,
                None => begun.elapsed().as_secs() < seconds,
            };
            while goes_on(round) {
                round += 1;
                let one = raw.qp.create_flow(&rule).unwrap();
                let mut reader = one.reader().unwrap();
                let two = raw.qp.create_flow(&other).unwrap();
                target.wire().iter().for_each(|wire| wire.inject(&frame(MAC, 60)));
                reader.read().unwrap();
                drop((one, two));
                reader.read().unwrap();
            }
            println!("{round} rounds on {}", target.device.name());
        });
    });
}

#[test]
fn each_thread_has_a_reader_of_its_own() {
    on_every_counting_device(|target| {
        let context = target.open();
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let flow = raw.qp.create_flow(&FlowRule::normal(1).count(&counters)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut reader = flow.reader().unwrap();
                scope.spawn(move || {
                    for _ in 0..if cfg!(miri) { 5 } else { 1000 } {
                        reader.read().unwrap();
                    }
                });
            }
            for _ in 0..if cfg!(miri) { 5 } else { 100 } {
                target.wire().iter().for_each(|wire| wire.inject(&frame(MAC, 60)));
            }
        });
    });
}
