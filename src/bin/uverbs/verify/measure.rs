//! Times of single calls: the median of many, in ns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;
use uverbs::mlx5::CounterPool;
use uverbs::{Completion, FlowRule, OpenOptions, Operation, Point, ReadCountersFlags, SendRequest, Status};

use super::behaviours::{Ground, Held, Pair, Stopped, joined_pair, same};
use super::private::Private;
use crate::bench::nobody;
use crate::target::Target;

/// Number of samples of each row, and the longest time that they may take.
const SAMPLES: usize = 2000;
const LONGEST: Duration = Duration::from_secs(2);
/// Number of counters that are read in bulk.
const BULK: usize = 64;

/// A row.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Time {
    pub(super) what: &'static str,
    pub(super) median_ns: Option<u64>,
    pub(super) samples: usize,
    /// Why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

/// Samples that are being taken.
struct Samples(Vec<u64>);

impl Samples {
    fn new() -> Self {
        Self(Vec::with_capacity(SAMPLES))
    }

    fn add(&mut self, since: Instant) {
        self.0.push(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    fn time(mut self, what: &'static str) -> Time {
        // The first calls touch memory for the first time.
        let mut kept = self.0.split_off(self.0.len() / 10);
        kept.sort_unstable();
        Time { what, median_ns: kept.get(kept.len() / 2).copied(), samples: kept.len(), why: None }
    }
}

/// Calls something many times.
fn sample(ground: &Ground<'_>, what: &'static str, mut call: impl FnMut() -> Held) -> Held<Time> {
    let (mut samples, started) = (Samples::new(), Instant::now());
    while samples.0.len() < SAMPLES && started.elapsed() < LONGEST {
        ground.go_on()?;
        let since = Instant::now();
        call()?;
        samples.add(since);
    }
    Ok(samples.time(what))
}

/// The names of the rows, for those that cannot be measured.
const OF_COUNTERS: [&str; 4] = [
    "read two counters",
    "read two counters, prepared",
    "read two counters, from the driver's cache",
    "read two counters, from a snapshot",
];
const OF_BULK: &str = "read 64 counters in bulk";
const OF_PAIRS: [&str; 4] = [
    "post a write of 8 bytes",
    "poll one completion",
    "poll an empty queue",
    "write 8 bytes, until it has completed",
];
const OF_MESSAGES: &str = "send 8 bytes, until they are received";

/// All rows. What cannot be measured says why.
pub(super) fn all(target: &Target, ground: &Ground<'_>, flows: bool, private: &Private) -> Vec<Time> {
    let not = |names: &[&'static str], why: &str| -> Vec<Time> {
        let row =
            |what: &&'static str| Time { what, median_ns: None, samples: 0, why: Some(private.hide(why)) };
        names.iter().map(row).collect()
    };
    let or_why = |names: &[&'static str], measured: Held<Vec<Time>>| match measured {
        Ok(times) => times,
        Err(stopped) => not(names, &why(stopped)),
    };
    let mut times =
        or_why(&["read the clock"], sample(ground, "read the clock", || Ok(())).map(|time| vec![time]));
    if flows {
        times.extend(or_why(&OF_COUNTERS, counters(ground)));
        times.extend(or_why(&[OF_BULK], bulk(target, ground)));
    } else {
        times.extend(not(&OF_COUNTERS, "needs --flows"));
        times.extend(not(&[OF_BULK], "needs --flows"));
    }
    times.extend(or_why(&OF_PAIRS, writes(ground)));
    times.extend(or_why(&[OF_MESSAGES], messages(ground).map(|time| vec![time])));
    times
}

fn why(stopped: Stopped) -> String {
    match stopped {
        Stopped::Differs(difference) => difference.to_string(),
        Stopped::Unsupported(error) => error.to_string(),
        Stopped::Skipped(why) => why,
        Stopped::Interrupted => "the run was ended".to_owned(),
    }
}

/// The addresses of the rules here, of which those of the behaviours have others.
const ROW: u8 = 0xfc;
const FIRST: u32 = 0x0100_0000;

fn rule(ground: &Ground<'_>, number: usize) -> FlowRule {
    FlowRule::normal(ground.port).eth(nobody(ROW, FIRST + number as u32))
}

fn counters(ground: &Ground<'_>) -> Held<Vec<Time>> {
    let context = ground.open()?;
    let counters = context.create_counters().map_err(Stopped::Unsupported)?;
    counters.attach(Point::Packets, 0)?;
    counters.attach(Point::Bytes, 1)?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(1)?);
    let qp = pd.raw_packet(&cq).send_depth(1).receive_depth(1).connect(ground.port)?;
    let flow = qp.create_flow(&rule(ground, 0).count(&counters))?;
    let mut values = [0; 2];
    let mut prepared = flow.reader()?;
    let mut cached = flow.reader_with(ReadCountersFlags::PREFER_CACHED)?;
    let snapshot = counters.snapshot()?;
    let hour = Duration::from_secs(3600);
    let [plain, by_reader, by_cache, by_snapshot] = OF_COUNTERS;
    Ok(vec![
        sample(ground, plain, || Ok(counters.read(black_box(&mut values))?))?,
        sample(ground, by_reader, || Ok(_ = black_box(prepared.read()?)))?,
        sample(ground, by_cache, || Ok(_ = black_box(cached.read()?)))?,
        sample(ground, by_snapshot, || Ok(_ = black_box(snapshot.read_cached::<2>(hour)?)))?,
    ])
}

fn bulk(target: &Target, ground: &Ground<'_>) -> Held<Vec<Time>> {
    let context = OpenOptions::new().devx(true).open(&target.device).map_err(Stopped::Unsupported)?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(1)?);
    let pool = CounterPool::new(&context, BULK).map_err(Stopped::Unsupported)?;
    let qp = pd.raw_packet(&cq).send_depth(1).receive_depth(1).connect(ground.port)?;
    let mut flows = Vec::new();
    for number in 0..BULK {
        flows.push(pool.take()?.create_flow(&qp, &rule(ground, number))?);
    }
    let mut reader = pool.reader();
    Ok(vec![sample(ground, OF_BULK, || Ok(_ = black_box(reader.read()?.raw())))?])
}

/// Writes to the memory of the other queue pair.
fn writes(ground: &Ground<'_>) -> Held<Vec<Time>> {
    let Pair { mut one, two, _links } = joined_pair(ground)?;
    let segments = [one.memory.segment(0..8)?];
    let request = [SendRequest::new(1, Operation::Write(two.remote(0)), &segments).signaled()];
    let [mut post, mut poll, mut empty, mut whole] = [(); 4].map(|()| Samples::new());
    let started = Instant::now();
    while post.0.len() < SAMPLES && started.elapsed() < LONGEST {
        let mut batch = Completion::batch::<1>();
        let since = Instant::now();
        black_box(one.cq.poll(&mut batch));
        empty.add(since);
        let begun = Instant::now();
        one.qp.post_send(&request)?;
        post.add(begun);
        loop {
            let since = Instant::now();
            if one.cq.poll(&mut batch) > 0 {
                poll.add(since);
                whole.add(begun);
                break;
            }
            ground.within(begun, "wait for a completion", "none")?;
        }
        same("the status of a write", batch[0].status, Status::Success)?;
    }
    let times = [post, poll, empty, whole].into_iter().zip(OF_PAIRS);
    Ok(times.map(|(samples, what)| samples.time(what)).collect())
}

/// Messages from one queue pair to the other.
fn messages(ground: &Ground<'_>) -> Held<Time> {
    let Pair { mut one, mut two, _links } = joined_pair(ground)?;
    let (mut samples, started) = (Samples::new(), Instant::now());
    while samples.0.len() < SAMPLES && started.elapsed() < LONGEST {
        two.receive(1, 0..8)?;
        let begun = Instant::now();
        one.send(1, Operation::Send, 0..8)?;
        two.ends(ground, 1, Status::Success)?;
        samples.add(begun);
        one.ends(ground, 1, Status::Success)?;
    }
    Ok(samples.time(OF_MESSAGES))
}
