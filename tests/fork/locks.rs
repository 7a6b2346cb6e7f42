//! A fork while threads hold locks: a child waits for none of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use uverbs::command::Command;
use uverbs::transport::{Errno, Watcher};
use uverbs::{CompletionCounter, Counted, FlowRule, Sampler, WaitObject, WaitSet};

use super::*;

/// Holds commands of one kind until they are released.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<Held>, Condvar)>);

#[derive(Debug, Default)]
struct Held {
    op: Option<&'static str>,
    is_there: bool,
}

impl Gate {
    fn hold(&self, op: Option<&'static str>) {
        *self.0.0.lock().unwrap() = Held { op, is_there: false };
        self.0.1.notify_all();
    }

    /// Waits until a command is held.
    fn wait(&self) {
        drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |held| !held.is_there).unwrap());
    }
}

impl Watcher for Gate {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        let mut held = self.0.0.lock().unwrap();
        if held.op == Some(command.op()) {
            held.is_there = true;
            self.0.1.notify_all();
            drop(self.0.1.wait_while(held, |held| held.op.is_some()).unwrap());
        }
        Ok(())
    }
}

/// The first snapshot of a process calibrates the clock, so this is the first test of its process. It takes some ms.
pub(crate) fn measured_clock() {
    let snapshot = || {
        let raw = Raw::new(&uverbs::SoftDevice::default().open().unwrap());
        let counters = packets_and_bytes(&raw.context);
        let _flow = raw.qp.create_flow(&FlowRule::normal(1).count(&counters)).unwrap();
        counters.snapshot().unwrap().read_cached::<2>(Duration::ZERO).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(snapshot);
        for _ in 0..20 {
            if let Some(child) = split() {
                wait_for(child);
            } else {
                in_the_child(snapshot);
            }
        }
    });
}

pub(crate) fn counters() {
    on_every_counting_device(|target| {
        let gate = Gate::default();
        let raw = Raw::new(&target.device.open_with(gate.clone()).unwrap());
        let bound = packets_and_bytes(&raw.context);
        let flow = raw.qp.create_flow(&to(1).count(&bound)).unwrap();
        let (reader, snapshot) = (flow.reader().unwrap(), bound.snapshot().unwrap());
        let mut mine = Some((flow, reader, snapshot, bound.clone()));
        let free = packets_and_bytes(&raw.context);
        // Another bind, and the first.
        for counters in [&bound, &free] {
            gate.hold(Some("flow.create"));
            std::thread::scope(|scope| {
                let rule = to(2).count(counters);
                let qp = &raw.qp;
                scope.spawn(move || drop(qp.create_flow(&rule).unwrap()));
                gate.wait();
                if let Some(child) = split() {
                    wait_for(child);
                } else {
                    in_the_child(|| {
                        for counters in [&bound, &free] {
                            gone(counters.read(&mut [0; 2]));
                            gone(counters.attach(uverbs::Point::Bytes, 1));
                            gone(counters.snapshot());
                        }
                        let (flow, reader, snapshot, bound) = mine.take().unwrap();
                        gone(flow.reader());
                        own(target);
                        drop((reader, snapshot));
                        flow.destroy().map_err(|(_, error)| error).unwrap();
                        drop(bound);
                    });
                }
                gate.hold(None);
            });
        }
    });
}

pub(crate) fn refresh() {
    on_every_counting_device(|target| {
        let gate = Gate::default();
        let raw = Raw::new(&target.device.open_with(gate.clone()).unwrap());
        let counters = packets_and_bytes(&raw.context);
        let flow = raw.qp.create_flow(&FlowRule::normal(1).count(&counters)).unwrap();
        let snapshot = counters.snapshot().unwrap();
        let sampler = Sampler::new(Duration::ZERO);
        sampler.add(&snapshot);
        let mut mine = Some((flow, sampler, counters));
        gate.hold(Some("counters.read"));
        std::thread::scope(|scope| {
            scope.spawn(|| snapshot.refresh().unwrap());
            gate.wait();
            if let Some(child) = split() {
                wait_for(child);
            } else {
                in_the_child(|| {
                    gone(snapshot.refresh());
                    gone(snapshot.read_cached::<2>(Duration::MAX));
                    gone(snapshot.last_error().map_or(Ok(()), Err));
                    let (flow, mut sampler, counters) = mine.take().unwrap();
                    sampler.tick();
                    drop(sampler);
                    flow.destroy().map_err(|(_, error)| error).unwrap();
                    drop(counters);
                });
            }
            gate.hold(None);
        });
    });
}

/// Calls a function repeatedly.
fn until<'a>(ended: &'a AtomicBool, what: impl Fn() + Send + 'a) -> impl FnOnce() + Send + 'a {
    move || {
        while !ended.load(Ordering::Relaxed) {
            what();
        }
    }
}

/// Number of forks while threads are busy.
const FORKS: usize = 100;

pub(crate) fn everything() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
        let counter = CompletionCounter::new(WaitObject::Unspecified).unwrap();
        let mut qp = pd.rc(&cq).create().unwrap();
        qp.bind_counter(&counter, Counted::SEND).unwrap();
        let mut mine = Some(qp);
        let set = WaitSet::new();
        let in_set = CompletionCounter::new(WaitObject::Set(set.clone())).unwrap();
        let sampler = Sampler::new(Duration::ZERO);
        let ended = AtomicBool::new(false);
        let (device, soft) = (&target.device, &target.soft);
        std::thread::scope(|scope| {
            let _end = End(&ended);
            scope.spawn(until(&ended, || drop(device.open().unwrap().alloc_pd().unwrap())));
            scope.spawn(until(&ended, || {
                let mut qp = pd.rc(&cq).create().unwrap();
                qp.bind_counter(&counter, Counted::SEND).unwrap();
            }));
            scope.spawn(until(&ended, || {
                in_set.arm(0).unwrap();
                set.wait(Some(Duration::ZERO)).unwrap_or_default();
                drop((counter.wait(u64::MAX, Some(Duration::ZERO)), sampler.len()));
            }));
            scope.spawn(until(&ended, || match soft {
                Some(soft) => soft.inject(&frame(MAC, 1500)),
                None => std::thread::yield_now(),
            }));
            for _ in 0..FORKS {
                if let Some(child) = split() {
                    wait_for(child);
                } else {
                    in_the_child(|| {
                        own(target);
                        gone(counter.add_err(1));
                        gone(counter.wait(1, None));
                        gone(set.wait(None));
                        assert!(sampler.is_empty());
                        drop(mine.take());
                        gone(context.alloc_pd());
                        gone(in_set.arm(0));
                    });
                }
            }
        });
        let mut mine = mine.unwrap();
        match target.device.driver() {
            // Its driver does not return states.
            "mana" => mine.reset().unwrap(),
            _ => assert_eq!(mine.state().unwrap(), uverbs::QpState::Reset),
        }
    });
}
