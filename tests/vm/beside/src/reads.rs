//! What reads of counters cost through this crate. `reads.c` measures the same through C, in the same way.

use std::time::{Duration, Instant};

use uverbs::{Counters, Eth, Flow, FlowRule, Point, QueuePair, RawPacket, Result};

use crate::operations::{PORT, open};
use crate::path::{Rows, TURNS, WARM};

const READ: &str = "read counters";
const PREPARED: &str = "read counters, prepared";
const CACHED: &str = "read counters, cached";

/// Longer than any value here can be old.
const HOUR: Duration = Duration::from_secs(3600);
/// How often each kind of read is timed.
const TIMES: usize = 500;
/// A cached read takes too little time for the clock, so this many reads are one sample.
const BATCH: u32 = 1000;

/// Counters with a flow that counts into them.
struct Rig {
    flow: Flow,
    counters: Counters,
    _qp: QueuePair<RawPacket>,
}

impl Rig {
    fn new(device: &str) -> Result<Self> {
        let context = open(device)?;
        let cq = context.create_cq(1)?;
        let qp = context.alloc_pd()?.raw_packet(&cq).send_depth(1).receive_depth(1).connect(PORT)?;
        let counters = context.create_counters()?;
        counters.attach(Point::Packets, 0)?;
        counters.attach(Point::Bytes, 1)?;
        let rule = FlowRule::normal(PORT).eth(Eth::any().dst([0x02, 0xfe, 0, 0, 0, 0]));
        let flow = qp.create_flow(&rule.count(&counters))?;
        Ok(Self { flow, counters, _qp: qp })
    }
}

/// Counts each kind of read.
pub(crate) fn counts(device: &str) -> Result<()> {
    let Rig { flow, counters, .. } = &Rig::new(device)?;
    let (mut reader, snapshot) = (flow.reader()?, &counters.snapshot()?);
    let mut values = [0; 2];
    let mut rows = Rows::default();
    for turn in 0..WARM + TURNS {
        rows.is_warm = turn >= WARM;
        rows.count("nothing", || ());
        rows.count(READ, || assert!(counters.read(&mut values).is_ok()));
        rows.count(PREPARED, || assert!(reader.read().is_ok()));
        rows.count(CACHED, || assert!(snapshot.read_cached::<2>(HOUR).is_ok()));
    }
    rows.print();
    Ok(())
}

/// Counts everything up to the first values.
pub(crate) fn first(device: &str) -> Result<()> {
    let mut rows = Rows::default();
    rows.is_warm = true;
    rows.count("nothing", || ());
    let (mut rig, mut values) = (None, [0; 2]);
    rows.count("open to first read", || {
        rig = Some(Rig::new(device).and_then(|rig| rig.counters.read(&mut values).map(|()| rig)));
    });
    rows.print();
    rig.map_or(Ok(()), |rig| rig.map(drop))
}

/// Times each kind of read, and prints the median in nanoseconds.
pub(crate) fn times(device: &str) -> Result<()> {
    let Rig { flow, counters, .. } = &Rig::new(device)?;
    let (mut reader, snapshot) = (flow.reader()?, counters.snapshot()?);
    let mut values = [0; 2];
    median(READ, 1, || counters.read(&mut values))?;
    median(PREPARED, 1, || reader.read().map(drop))?;
    median(CACHED, BATCH, || snapshot.read_cached::<2>(HOUR).map(drop))
}

fn median(name: &str, batch: u32, mut read: impl FnMut() -> Result<()>) -> Result<()> {
    let mut spent = [Duration::ZERO; TIMES];
    for spent in &mut spent {
        let begun = Instant::now();
        (0..batch).try_for_each(|_| read())?;
        *spent = begun.elapsed() / batch;
    }
    spent.sort_unstable();
    println!("{name}: {}", spent[TIMES / 2].as_nanos());
    Ok(())
}
