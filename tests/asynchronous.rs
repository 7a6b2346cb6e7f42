//! Events as futures of tokio, on every device.

mod common;

use std::time::Duration;

use common::*;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, timeout};
use uverbs::{
    AccessFlags, Attributes, Completion, CompletionCounter, ErrorKind, EventKind, Events, FlowRule, QpState,
    ReceiveRequest, Sampler, Status, Subject, WaitHandle, WaitObject,
};

/// The step after which receives can be posted.
fn init() -> Attributes {
    Attributes::to(QpState::Init).port(1).pkey_index(0).access(AccessFlags::empty())
}

/// Runs a future that must end by itself.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(20), future).await.expect("it ends") })
}

#[test]
fn a_task_waits_for_completions() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let channel = context.create_comp_channel().unwrap();
        let mut cq = context.cq(16).channel(&channel).cookie(7).create().unwrap();
        let mut qp = context.alloc_pd().unwrap().rc(&cq).create().unwrap();
        run(async {
            let (events, others) =
                (Events::new(channel.clone()).unwrap(), Events::new(channel.clone()).unwrap());
            for round in 0..3 {
                cq.notify(false).unwrap();
                assert!(timeout(Duration::from_millis(1), events.next()).await.is_err(), "nothing yet");
                qp.modify(&init()).unwrap();
                qp.post_receive(&[ReceiveRequest::new(round, &[])]).unwrap();
                qp.to_error().unwrap();
                assert_eq!(events.next().await.unwrap(), 7);
                let mut batch = Completion::batch::<4>();
                assert_eq!(cq.poll(&mut batch), 1);
                assert_eq!((batch[0].wr_id, batch[0].status), (round, Status::Flushed));
                qp.reset().unwrap();
            }
            assert!(timeout(Duration::from_millis(1), others.next()).await.is_err(), "all have been taken");
        });
    });
}

#[test]
fn a_task_hears_of_a_queue_that_was_too_small() {
    on_every_connecting_device(|target| {
        if target.device.driver() == "erdma" {
            return skip(target, "it is not told how many completions were taken");
        }
        if target.device.driver() == "mana" {
            return skip(
                target,
                "its device ends all receives with one entry, and no queue has less than 64",
            );
        }
        let context = target.open();
        let cq = context.cq(1).cookie(0x77).create().unwrap();
        let mut qp = context.alloc_pd().unwrap().rc(&cq).create().unwrap();
        run(async {
            let events = Events::new(context.clone()).unwrap();
            assert!(timeout(Duration::from_millis(1), events.next()).await.is_err(), "nothing yet");
            qp.modify(&init()).unwrap();
            let requests: Vec<_> = (0..3).map(|wr_id| ReceiveRequest::new(wr_id, &[])).collect();
            qp.post_receive(&requests).unwrap();
            qp.to_error().unwrap();
            let event = events.next().await.unwrap();
            assert_eq!((event.kind, event.subject()), (EventKind::CqError, Subject::CompletionQueue(0x77)));
        });
    });
}

#[test]
fn a_task_samples_beside_others_until_it_is_dropped() {
    on_every_counting_device(|target| {
        let (context, switch) = Switch::open(&target.device);
        let raw = Raw::new(&context);
        let counters = packets_and_bytes(&context);
        let _flow = raw.qp.create_flow(&FlowRule::normal(1).count(&counters)).unwrap();
        let snapshot = counters.snapshot().unwrap();
        run(async {
            for interval in [Duration::ZERO, Duration::from_millis(1)] {
                let mut sampler = Sampler::new(interval);
                sampler.add(&snapshot);
                let before = switch.reads();
                let others = async {
                    while switch.reads() < before + 5 {
                        sleep(Duration::from_millis(1)).await;
                    }
                };
                tokio::select! {
                    never = sampler.run() => match never {},
                    () = others => {}
                }
                let reads = switch.reads();
                sleep(Duration::from_millis(5)).await;
                assert_eq!(switch.reads(), reads, "nobody samples any more");
                assert!(sampler.report().rounds >= 5, "{:?}", sampler.report());
            }
        });
    });
}

#[test]
fn tasks_wait_for_a_counter() {
    let counter = CompletionCounter::new(WaitObject::Unspecified).unwrap();
    run(async {
        assert!(timeout(Duration::from_millis(1), counter.wait_async(1)).await.is_err(), "nothing yet");
        let (first, second, failed) = (counter.wait_async(1), counter.wait_async(2), counter.wait_async(3));
        std::thread::scope(|scope| {
            scope.spawn(|| counter.add(1).unwrap());
            scope.spawn(|| counter.add(1).unwrap());
        });
        first.await.unwrap();
        second.await.unwrap();
        counter.add_err(1).unwrap();
        assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::OperationFailed);
    });
}

#[test]
fn the_file_descriptor_of_a_counter_wakes_a_task() {
    let counter = CompletionCounter::new(WaitObject::FileDescriptor).unwrap();
    let WaitHandle::FileDescriptor(fd) = counter.wait_handle().unwrap() else { panic!("a file") };
    run(async {
        let file = fd.try_clone_to_owned().unwrap();
        #[allow(deprecated, reason = "sound for what owns its descriptor, and older versions have it alone")]
        let file = AsyncFd::with_interest(file, Interest::READABLE).unwrap();
        for round in 1..=3 {
            assert!(!counter.arm(2 * round).unwrap());
            counter.add(1).unwrap();
            assert!(timeout(Duration::from_millis(1), file.readable()).await.is_err(), "below the threshold");
            counter.add(1).unwrap();
            // Until it is signalled again.
            file.readable().await.unwrap().clear_ready();
        }
    });
}

/// Both sides of several connections as tasks of one thread, while a blocking call of another thread uses the same manager.
#[test]
fn tasks_and_threads_share_a_connection_manager() {
    use uverbs::cm::{Closed, SoftNetwork};
    for iwarp in [false, true] {
        let device = uverbs::SoftDevice::new(uverbs::soft::Profile::default().with_iwarp(iwarp));
        let network = SoftNetwork::default();
        network.join(&device, "10.0.0.1".parse().unwrap()).unwrap();
        let (cm, context) = (network.manager().unwrap(), device.device().open().unwrap());
        let queue_pair = || {
            let cq = context.create_cq(8).unwrap();
            context.alloc_pd().unwrap().rc(&cq).create().unwrap()
        };
        let listener = cm.listen("10.0.0.1:7174".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let long = Duration::from_secs(20);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let target = cm.resolve(address).run().within(long).unwrap();
                        let connection =
                            target.connect(queue_pair()).unwrap().establish().within(long).unwrap();
                        drop(connection);
                    }
                });
            }
            run(async {
                let serve = async {
                    for _ in 0..30 {
                        let incoming = listener.next().await.unwrap();
                        let connection = incoming.accept(queue_pair()).unwrap().establish().await.unwrap();
                        assert_eq!(connection.closed().await.unwrap(), Closed::Disconnected);
                    }
                };
                let connect = async {
                    for _ in 0..10 {
                        let target = cm.resolve(address).run().await.unwrap();
                        let mut connection = target.connect(queue_pair()).unwrap().establish().await.unwrap();
                        connection.disconnect().await.unwrap();
                    }
                };
                tokio::join!(serve, connect);
                assert!(timeout(Duration::from_millis(10), listener.next()).await.is_err(), "all are served");
            });
        });
        drop((listener, cm));
        for _ in 0..200 {
            if network.identifiers() > 0 {
                sleep_a_little();
            }
        }
        assert_eq!(network.identifiers(), 0);
    }
}

/// A look-up and its answer as tasks of one thread; a call that is dropped leaves nothing.
#[test]
fn tasks_look_up_and_join_groups() {
    use uverbs::cm::SoftNetwork;
    let device = uverbs::SoftDevice::default();
    let network = SoftNetwork::default();
    network.join(&device, "10.0.0.1".parse().unwrap()).unwrap();
    let (datagrams, context) = (network.manager().unwrap().datagrams(), device.device().open().unwrap());
    let queue_pair = || {
        let cq = context.create_cq(8).unwrap();
        context.alloc_pd().unwrap().ud(&cq).create().unwrap()
    };
    let listener = datagrams.listen("10.0.0.1:7174".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let (mut server, mut client) = (queue_pair(), queue_pair());
    run(async {
        let serve = async {
            for _ in 0..10 {
                listener.next().await.unwrap().accept(&mut server).unwrap().send().unwrap();
            }
            server.number()
        };
        let ask = async {
            let mut found = Vec::new();
            for _ in 0..10 {
                let target = datagrams.resolve(address).run().await.unwrap();
                let service = target.look_up(&mut client).unwrap().run().await.unwrap();
                found.push(service.destination.qp_num());
            }
            found
        };
        let (number, found) = tokio::join!(serve, ask);
        assert_eq!(found, [number; 10]);
        let target = datagrams.resolve(address).run().await.unwrap();
        let unanswered = target.look_up(&mut client).unwrap().run();
        assert!(timeout(Duration::from_millis(10), unanswered).await.is_err());
        let group = datagrams.group("239.1.2.3".parse().unwrap()).run().await.unwrap();
        let member = group.join(&mut client).unwrap().run().await.unwrap();
        assert!(timeout(Duration::from_millis(10), member.lost()).await.is_err());
        member.leave().unwrap();
    });
    drop(listener);
    assert_eq!(network.identifiers(), 0);
}

fn sleep_a_little() {
    std::thread::sleep(Duration::from_millis(5));
}
