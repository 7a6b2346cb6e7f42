//! The objects that reads need: counters, each with two points and a flow that counts into it.

use std::hint::black_box;
use std::time::Duration;

use uverbs::mlx5::PoolReader;
use uverbs::{
    CompletionQueue, Context, Counters, Eth, Flow, FlowRule, Point, ProtectionDomain, QueuePair, RawPacket,
    ReadCountersFlags, Reader, Sampler, SamplerThread, Snapshot,
};

use super::clock::Monotonic;
use super::mode::Mode;
use super::pace::{Measured, Plan, Watched, measure};
use crate::Outcome;
use crate::job::told;
use crate::target::Target;

/// The addresses of these rules.
const ROW: u8 = 0xfe;
/// Number of points of each counters object.
const POINTS: usize = 2;

/// Matches packets for an address that no host has, so the rule takes no packets from anyone. The device refuses two rules for the same
/// packets that count into different counters, so each row has its own address.
pub(crate) fn nobody(row: u8, number: u32) -> Eth {
    let [a, b, c, d] = number.to_be_bytes();
    Eth::any().dst([0x02, row, a, b, c, d])
}

/// Counters and their flows, in the order of their release.
#[derive(Debug)]
pub(super) struct Rig {
    flows: Vec<Flow>,
    counters: Vec<Counters>,
    qp: QueuePair<RawPacket>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    pub(super) context: Context,
}

impl Rig {
    /// A rig with one counters object.
    pub(super) fn new(target: &Target, port: u8) -> Outcome<Self> {
        target.check_port(port)?;
        let context = target.open()?;
        target.needs_flows(&context)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(1)?;
        let qp = pd.raw_packet(&cq).send_depth(1).receive_depth(1).connect(port)?;
        let mut rig = Self { flows: Vec::new(), counters: Vec::new(), qp, cq, pd, context };
        rig.grow(port, 1)?;
        Ok(rig)
    }

    /// Creates counters objects until there are `count`.
    pub(super) fn grow(&mut self, port: u8, count: u32) -> Outcome {
        for number in self.counters.len() as u32..count {
            let counters = self.context.create_counters()?;
            counters.attach(Point::Packets, 0)?;
            counters.attach(Point::Bytes, 1)?;
            let rule = FlowRule::normal(port).eth(nobody(ROW, number));
            self.flows.push(self.qp.create_flow(&rule.count(&counters))?);
            self.counters.push(counters);
        }
        Ok(())
    }

    /// Prepares one thread's reads of the first `count` counters objects. Bulk counters are created elsewhere.
    pub(super) fn reads(&self, mode: Mode, count: u32, max_age: Duration) -> Outcome<Reads<'_>> {
        let count = count as usize;
        let flows = self.flows.iter().take(count);
        let readers = |flags| flows.map(|flow| flow.reader_with(flags)).collect::<uverbs::Result<_>>();
        Ok(match mode {
            Mode::Prepared => Reads::Prepared(readers(ReadCountersFlags::empty())?),
            Mode::DriverCached => Reads::Prepared(readers(ReadCountersFlags::PREFER_CACHED)?),
            Mode::Snapshot => Reads::Snapshot(self.snapshots(count)?, max_age),
            Mode::Volatile | Mode::Bulk | Mode::All => {
                Reads::Volatile(self.counters.get(..count).unwrap_or_default())
            }
        })
    }

    /// The snapshots of the first `count` counters objects.
    fn snapshots(&self, count: usize) -> uverbs::Result<Vec<Snapshot>> {
        self.counters.iter().take(count).map(Counters::snapshot).collect()
    }

    /// A thread that keeps these snapshots fresh.
    pub(super) fn sampler(&self, count: u32, interval: Duration) -> uverbs::Result<SamplerThread> {
        let sampler = Sampler::new(interval);
        self.snapshots(count as usize)?.iter().for_each(|snapshot| sampler.add(snapshot));
        sampler.spawn()
    }

    /// Releases everything. Every release is attempted; the first error is returned.
    pub(super) fn release(self) -> uverbs::Result<()> {
        let Self { flows, counters, qp, cq, pd, context: _context } = self;
        let flows = flows.into_iter().map(|flow| told(flow.destroy())).collect::<Vec<_>>();
        let counters = counters.into_iter().map(|counters| told(counters.destroy())).collect::<Vec<_>>();
        let rest = [told(qp.destroy()), told(cq.destroy()), told(pd.destroy())];
        flows.into_iter().chain(counters).chain(rest).collect()
    }
}

/// One thread's reads of all counters, one after the other.
#[derive(Debug)]
pub(super) enum Reads<'a> {
    Volatile(&'a [Counters]),
    Prepared(Vec<Reader>),
    /// Values that are younger than this.
    Snapshot(Vec<Snapshot>, Duration),
    Bulk(Vec<PoolReader>),
}

impl Reads<'_> {
    pub(super) fn measure(
        &mut self,
        clock: &Monotonic,
        plan: &Plan,
        watched: &Watched<'_>,
    ) -> Outcome<Measured> {
        match self {
            Self::Volatile(all) => {
                let mut values = [0; POINTS];
                measure(clock, plan, watched, || {
                    for counters in *all {
                        counters.read(black_box(&mut values))?;
                    }
                    Ok(None)
                })
            }
            Self::Prepared(readers) => measure(clock, plan, watched, || {
                for reader in &mut *readers {
                    black_box(reader.read()?);
                }
                Ok(None)
            }),
            Self::Bulk(readers) => measure(clock, plan, watched, || {
                for reader in &mut *readers {
                    black_box(reader.read()?.raw());
                }
                Ok(None)
            }),
            Self::Snapshot(snapshots, max_age) => measure(clock, plan, watched, || {
                let mut oldest = 0;
                for snapshot in &*snapshots {
                    let seen = snapshot.read_cached::<POINTS>(*max_age)?;
                    oldest = oldest.max(black_box(seen).age_ns());
                }
                Ok(Some(oldest))
            }),
        }
    }
}
