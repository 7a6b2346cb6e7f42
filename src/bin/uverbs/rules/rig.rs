//! An open device with counting rules.
//!
//! Rules of one port share a queue pair that receives no packets: a packet that matches is counted and then dropped, unless the rule lets
//! it continue (`dont-trap`). If the device has counters in rows, rules count into these, so that one command reads thousands of them.

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

/// The smallest pool: the firmware allocates rows of at least this length.
const LEAST: usize = 128;

/// An open device, and the objects that its rules share, in the order of their release.
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

/// A rule in force. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Counting(How);

#[derive(Debug)]
enum How {
    /// With a counter in the pool of this number.
    InPool(PoolFlow, usize),
    /// With its own counters, in the order of their release.
    Alone { reader: Reader, _flow: Flow, _counters: Counters },
}

impl Rig {
    /// Opens the device, with DEVX for bulk reads if it has this.
    pub(crate) fn new(target: &Target) -> Outcome<Self> {
        let (context, has_pools) = match target.open_with(OpenOptions::new().devx(true)) {
            Ok(context) => (context, true),
            Err(Failure::Uverbs(error)) if error.kind() == ErrorKind::Unsupported => (target.open()?, false),
            Err(failure) => return Err(failure),
        };
        target.needs_flows(&context)?;
        let (cq, pd) = (context.create_cq(1)?, context.alloc_pd()?);
        Ok(Self { pools: Vec::new(), has_pools, ports: Vec::new(), cq, pd, context })
    }

    /// Puts rules in force: all of them, or none.
    ///
    /// # Errors
    /// The index of the rule that was refused, and the reason.
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

    /// Puts a rule in force. `more` is the number of rules to come, including this one.
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

    /// The index of a port's queue pair, which is created if there is none.
    fn port(&mut self, target: &Target, port: u8) -> Outcome<usize> {
        if let Some(at) = self.ports.iter().position(|(number, _)| *number == port) {
            return Ok(at);
        }
        target.check_port(port)?;
        let qp = self.pd.raw_packet(&self.cq).send_depth(1).receive_depth(1).connect(port)?;
        self.ports.push((port, qp));
        Ok(self.ports.len() - 1)
    }

    /// Puts a rule in force that counts into a pool; `None` if the device does not support that, or not for this rule.
    fn in_pool(&mut self, port: usize, wanted: &Wanted, more: usize) -> Outcome<Option<Counting>> {
        // For most rules, it is known before a counter is taken whether a pool supports them.
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

    /// A pool with a free counter, which is created for `more` rules if there is none; `None` if the device has no such counters.
    fn pool(&mut self, more: usize) -> Outcome<Option<(CounterPool, usize)>> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.counters.available() > 0) {
            return Ok(Some((pool.counters.clone(), pool.number)));
        }
        let mut capacity = more.clamp(LEAST, CounterPool::MAX);
        let counters = loop {
            match CounterPool::new(&self.context, capacity) {
                Ok(counters) => break counters,
                // The device has no row of this length, but may have a shorter one.
                Err(error) if is_too_much(&error) && capacity > LEAST => capacity = (capacity / 2).max(LEAST),
                Err(error) if is_too_much(&error) => {
                    // The existing pools may have free counters again.
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

    /// Reads the counters of rules, in their order: those in pools with one command for each pool.
    pub(crate) fn read<'a>(
        &mut self,
        counting: impl Iterator<Item = &'a mut Counting>,
    ) -> Vec<Outcome<Totals>> {
        let pools: Vec<_> = self.pools.iter_mut().map(|pool| (pool.number, pool.reader.read())).collect();
        counting.map(|counting| counting.read(&pools)).collect()
    }

    /// Frees the pools into which no rule counts any more.
    pub(crate) fn tidy(&mut self) {
        self.pools.retain(|pool| pool.counters.available() < pool.counters.capacity());
    }

    /// The state of a port, in InfiniBand's numbers.
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

/// Whether the device does not have a row of this length, or no such rows at all.
fn is_too_much(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Exhausted)
}
