//! An open device with rules in force that count.
//!
//! Rules of one port share a queue pair, which takes no packets: what a rule takes is counted and then dropped, unless the rule lets it go on
//! (`dont-trap`). Where the device has counters in rows, rules count into these, so that one command reads thousands of them.

pub(crate) use uverbs::mlx5::Totals;
use uverbs::mlx5::{CounterPool, PoolFlow, PoolReader, Values};
use uverbs::{
    CompletionQueue, Context, Counters, Error, ErrorKind, Flow, OpenOptions, Point, ProtectionDomain,
    QueuePair, RawPacket, Reader,
};

use super::Wanted;
use crate::Outcome;
use crate::failure::Failure;
use crate::target::Target;

/// The smallest pool: the firmware gives counters in rows of this length at least.
const LEAST: usize = 128;

/// An open device, and what its rules share, in the order that it is released in.
#[derive(Debug)]
pub(crate) struct Rig {
    pools: Vec<Pool>,
    /// Whether the device may have counters in rows.
    has_pools: bool,
    ports: Vec<(u8, QueuePair<RawPacket>)>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
}

/// Counters that one command reads.
#[derive(Debug)]
struct Pool {
    reader: PoolReader,
    counters: CounterPool,
    number: usize,
}

/// A rule in force. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Counting(How);

#[derive(Debug)]
enum How {
    /// With a counter in the pool of this number.
    InPool(PoolFlow, usize),
    /// With counters of its own, in the order that they are released in.
    Alone { reader: Reader, _flow: Flow, _counters: Counters },
}

impl Rig {
    /// Opens the device, for bulk reads if it has them.
    pub(crate) fn new(target: &Target) -> Outcome<Self> {
        let (context, has_pools) = match target.open_with(OpenOptions::new().devx(true)) {
            Ok(context) => (context, true),
            Err(Failure::Uverbs(error)) if error.kind() == ErrorKind::Unsupported => (target.open()?, false),
            Err(failure) => return Err(failure),
        };
        let (cq, pd) = (context.create_cq(1)?, context.alloc_pd()?);
        Ok(Self { pools: Vec::new(), has_pools, ports: Vec::new(), cq, pd, context })
    }

    /// Puts rules in force, all of them or none.
    ///
    /// # Errors
    /// The place among them of the one that was refused, and why.
    pub(crate) fn count(
        &mut self,
        target: &Target,
        wanted: &[&Wanted],
    ) -> Result<Vec<Counting>, (usize, Failure)> {
        let mut counting = Vec::with_capacity(wanted.len());
        for (at, rule) in wanted.iter().enumerate() {
            counting.push(self.begin(target, rule, wanted.len() - at).map_err(|failure| (at, failure))?);
        }
        Ok(counting)
    }

    /// Puts a rule in force; `more` are to come, itself included.
    pub(crate) fn begin(&mut self, target: &Target, wanted: &Wanted, more: usize) -> Outcome<Counting> {
        let at = self.port(target, wanted.port)?;
        if let Some(counting) = self.in_pool(at, wanted, more)? {
            return Ok(counting);
        }
        let (_, qp) = &self.ports[at];
        let counters = self.context.create_counters()?;
        counters.attach(Point::Packets, 0)?;
        counters.attach(Point::Bytes, 1)?;
        let flow = qp.create_flow(&wanted.rule.clone().count(&counters))?;
        let reader = flow.reader()?;
        Ok(Counting(How::Alone { reader, _flow: flow, _counters: counters }))
    }

    /// The place of a port's queue pair, which is made if there is none.
    fn port(&mut self, target: &Target, port: u8) -> Outcome<usize> {
        if let Some(at) = self.ports.iter().position(|(number, _)| *number == port) {
            return Ok(at);
        }
        target.check_port(port)?;
        let qp = self.pd.raw_packet(&self.cq).send_depth(1).receive_depth(1).connect(port)?;
        self.ports.push((port, qp));
        Ok(self.ports.len() - 1)
    }

    /// Puts a rule in force that counts into a pool; none if the device cannot do that, or not with this rule.
    fn in_pool(&mut self, port: usize, wanted: &Wanted, more: usize) -> Outcome<Option<Counting>> {
        // What such rules cannot do is known before a counter is taken for them, as far as most rules go.
        if !self.has_pools || wanted.port != 1 || wanted.rule.attr().flags != 0 {
            return Ok(None);
        }
        let Some((pool, number)) = self.pool(more)? else { return Ok(None) };
        let (_, qp) = &self.ports[port];
        match pool.take()?.create_flow(qp, &wanted.rule) {
            Ok(flow) => Ok(Some(Counting(How::InPool(flow, number)))),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A pool that has room, which is made for `more` rules if there is none; none where there are no such counters.
    fn pool(&mut self, more: usize) -> Outcome<Option<(CounterPool, usize)>> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.counters.available() > 0) {
            return Ok(Some((pool.counters.clone(), pool.number)));
        }
        let mut capacity = more.clamp(LEAST, CounterPool::MAX);
        let counters = loop {
            match CounterPool::new(&self.context, capacity) {
                Ok(counters) => break counters,
                // Rows of that length are not to be had; shorter ones may be.
                Err(error) if is_too_much(&error) && capacity > LEAST => capacity = (capacity / 2).max(LEAST),
                Err(error) if is_too_much(&error) => {
                    // Those that are there may have room again.
                    self.has_pools = !self.pools.is_empty();
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        };
        let number = self.pools.iter().map(|pool| pool.number + 1).max().unwrap_or(0);
        self.pools.push(Pool { reader: counters.reader(), counters: counters.clone(), number });
        Ok(Some((counters, number)))
    }

    /// Reads what rules have counted, in their order: those in pools with one command for each pool.
    pub(crate) fn read<'a>(
        &mut self,
        counting: impl Iterator<Item = &'a mut Counting>,
    ) -> Vec<Outcome<Totals>> {
        let pools: Vec<_> = self.pools.iter_mut().map(|pool| (pool.number, pool.reader.read())).collect();
        counting.map(|counting| counting.read(&pools)).collect()
    }

    /// Frees the pools that no rule counts into any more.
    pub(crate) fn tidy(&mut self) {
        self.pools.retain(|pool| pool.counters.available() < pool.counters.capacity());
    }

    /// The state of a port, as InfiniBand numbers them.
    pub(crate) fn port_state(&self, port: u8) -> Outcome<u8> {
        Ok(self.context.query_port(port)?.legacy_resp.state)
    }
}

impl Counting {
    fn read(&mut self, pools: &[(usize, uverbs::Result<Values<'_>>)]) -> Outcome<Totals> {
        match &mut self.0 {
            How::InPool(flow, number) => {
                let read = pools.iter().find_map(|(of, read)| (of == number).then_some(read));
                let values = read.map(|read| read.as_ref().map_err(Clone::clone)).transpose()?;
                let value = values.and_then(|values| values.of(flow.counter()));
                value
                    .ok_or_else(|| Failure::Other("its counter is not among those that were read".to_owned()))
            }
            How::Alone { reader, .. } => {
                let values = reader.read()?;
                let value = |at: usize| values.get(at).copied().unwrap_or(0);
                Ok(Totals { packets: value(0), bytes: value(1) })
            }
        }
    }
}

/// Whether it is the length of the row that the device does not have, or such rows at all.
fn is_too_much(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Exhausted)
}
