//! Counters, and their readers. No read of a child reaches the kernel.

use std::time::{Duration, Instant};

use uverbs::mlx5::{CounterPool, Totals};
use uverbs::{
    FlowRule, HashFields, Point, ReadCountersFlags, Reader, Sampler, SamplerReport, Snapshot, WorkQueueState,
};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A snapshot reports that it belongs to another process.
fn snapshot_says(snapshot: &Snapshot) {
    gone(snapshot.read_cached::<2>(HOUR));
    gone(snapshot.read_cached::<2>(Duration::ZERO));
    gone(snapshot.read_cached_into(HOUR, &mut [0; 2]));
    gone(snapshot.read_at::<2>(0, HOUR));
    gone(snapshot.read_at_into(0, HOUR, &mut [0; 2]));
    gone(snapshot.latest::<2>());
    gone(snapshot.latest_into(&mut [0; 2]));
    gone(snapshot.refresh());
    gone(snapshot.last_error().map_or(Ok(()), Err));
}

pub(crate) fn counters() {
    on_every_counting_device(|target| {
        let raw = Raw::new(&target.open());
        let counters = packets_and_bytes(&raw.context);
        let flow = raw.qp.create_flow(&FlowRule::normal(1).count(&counters)).unwrap();
        let free = packets_and_bytes(&raw.context);
        let mut reader = flow.reader().unwrap();
        reader.read().unwrap();
        let snapshot = counters.snapshot().unwrap();
        let mut sampler = Sampler::new(Duration::ZERO);
        sampler.add(&snapshot);
        sampler.tick();
        let thread = Sampler::new(HOUR).spawn().unwrap();
        thread.add(&snapshot);
        while thread.report().rounds == 0 {
            std::thread::yield_now();
        }

        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                let says = |reader: &mut Reader| {
                    gone(reader.read());
                    gone(counters.read(&mut [0; 2]));
                    gone(counters.read_with(&mut [0; 2], ReadCountersFlags::PREFER_CACHED));
                    gone(counters.snapshot());
                    gone(flow.reader());
                    gone(flow.snapshot());
                    gone(free.attach(Point::Bytes, 1));
                    gone(raw.qp.create_flow(&FlowRule::normal(1).count(&counters)));
                    gone(raw.qp.create_flow(&FlowRule::normal(1).count(&free)));
                    gone(raw.qp.create_flow(&FlowRule::normal(2)));
                    snapshot_says(&snapshot);
                };
                says(&mut reader);
                assert_eq!((sampler.tick().refreshed, sampler.len()), (0, 0));
                sampler.add(&snapshot);
                assert!(!sampler.remove(&snapshot) && sampler.is_empty());
                assert_eq!((thread.report(), thread.remove(&snapshot)), (SamplerReport::default(), false));
                thread.add(&snapshot);
                // Also if the child has opened the device itself.
                let own = own(target);
                says(&mut reader);
                assert_eq!(reader.values().len(), 2);
                drop((thread, sampler, reader));
                flow.destroy().map_err(|(_, error)| error).unwrap();
                let Raw { qp, cq, memory, pd, context } = raw;
                drop((qp, cq, memory, pd));
                gone(context.create_counters());
                drop((free, counters, snapshot, own));
            });
        }
        reader.read().expect("the parent's goes on");
        snapshot.read_cached::<2>(Duration::ZERO).expect("the parent's goes on");
        drop(reader);
        flow.destroy().map_err(|(_, error)| error).expect("the child has not destroyed it");
    });
}

pub(crate) fn spreading() {
    on_every_counting_device(|target| {
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
        let Ok(queue) = pd.work_queue(&cq).create() else {
            return skip(target, "it has no work queues");
        };
        let mut queue = queue;
        queue.modify(WorkQueueState::Ready).unwrap();
        let table = context.create_indirection_table(&[&queue]).unwrap();
        let qp = pd.rss(&table).hash(HashFields::IPV4).create().unwrap();
        let flow = qp.create_flow(&FlowRule::normal(1)).unwrap();

        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                gone(queue.post_receive(&[]));
                gone(queue.modify(WorkQueueState::Error));
                gone(pd.work_queue(&cq).create());
                gone(context.create_indirection_table(&[&queue]));
                gone(pd.rss(&table).create());
                gone(qp.create_flow(&FlowRule::normal(1)));
                flow.destroy().map_err(|(_, error)| error).unwrap();
                qp.destroy().map_err(|(_, error)| error).unwrap();
                table.destroy().map_err(|(_, error)| error).unwrap();
                queue.destroy().map_err(|(_, error)| error).unwrap();
            });
        }
        queue.post_receive(&[]).unwrap();
        flow.destroy().map_err(|(_, error)| error).unwrap();
        qp.destroy().map_err(|(_, error)| error).unwrap();
    });
}

pub(crate) fn pools() {
    on_every_bulk_device(|_, _, raw| {
        let pool = CounterPool::new(&raw.context, 8).unwrap();
        let counter = pool.take().unwrap();
        let flow = counter.create_flow(&raw.qp, &to(1)).unwrap();
        let (mut reader, mut queries) = (pool.reader(), pool.queries().unwrap());
        let snapshot = counter.snapshot();
        snapshot.refresh().unwrap();
        queries.start().unwrap();
        assert!(queries.wait(Some(Duration::from_secs(20))).unwrap());

        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                gone(reader.read().map(drop));
                gone(reader.read_all(std::slice::from_ref(&counter), &mut [Totals::default()]));
                gone(queries.start());
                gone(queries.wait(Some(Duration::ZERO)));
                gone(queries.try_next().map(drop));
                gone(counter.read());
                gone(pool.take());
                gone(CounterPool::new(&raw.context, 8));
                gone(counter.create_flow(&raw.qp, &to(2)));
                snapshot_says(&snapshot);
                snapshot_says(&counter.snapshot());
                assert_eq!(pool.available(), 0);
                drop((reader, queries, snapshot, counter));
                flow.destroy().map_err(|(_, error)| error).unwrap();
                drop(pool);
            });
        }
        assert!(queries.try_next().unwrap().is_some(), "the child has not taken the answer");
        reader.read().unwrap();
        snapshot.refresh().unwrap();
        flow.destroy().map_err(|(_, error)| error).unwrap();
        assert_eq!(counter.read().unwrap(), Totals::default());
    });
}

/// Its duration in seconds.
const RACE: u64 = 5;

pub(crate) fn reads_in_a_loop() {
    on_every_counting_device(|target| {
        let raw = Raw::new(&target.open());
        let counters = packets_and_bytes(&raw.context);
        let rule = FlowRule::normal(1).count(&counters);
        let flow = raw.qp.create_flow(&rule).unwrap();
        let mut reader = flow.reader().unwrap();
        let snapshot = counters.snapshot().unwrap();
        let race = Duration::from_secs(RACE);
        let Some(child) = split() else {
            in_the_child(|| {
                let (begun, mut answered) = (Instant::now(), 0);
                while begun.elapsed() < race {
                    answered += usize::from(reader.read().is_ok());
                    answered += usize::from(counters.read(&mut [0; 2]).is_ok());
                    answered += usize::from(snapshot.refresh().is_ok());
                }
                assert_eq!(answered, 0);
            });
        };
        drop((reader, flow));
        let (begun, mut rounds) = (Instant::now(), 0);
        while begun.elapsed() < race {
            let flow = raw.qp.create_flow(&rule).unwrap();
            counters.read(&mut [0; 2]).unwrap();
            flow.destroy().map_err(|(_, error)| error).unwrap();
            rounds += 1;
        }
        wait_for(child);
        assert!(rounds > 0);
    });
}
