//! Counters that one command reads: pools of counters, with a flow for each counter.

use uverbs::mlx5::{CounterPool, PoolFlow};
use uverbs::{CompletionQueue, FlowRule, OpenOptions, ProtectionDomain, QueuePair, RawPacket};

use super::rig::{Reads, nobody};
use crate::Outcome;
use crate::job::told;
use crate::target::Target;

/// Addresses of these rules.
const ROW: u8 = 0xfd;

/// Exactly as many counters as requested, on their own open device, in the order in which they are released.
#[derive(Debug)]
pub(super) struct Bulk {
    flows: Vec<PoolFlow>,
    pools: Vec<CounterPool>,
    qp: QueuePair<RawPacket>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl Bulk {
    pub(super) fn new(target: &Target, port: u8, count: u32) -> Outcome<Self> {
        let context = target.open_with(OpenOptions::new().devx(true))?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(1)?;
        let qp = pd.raw_packet(&cq).send_depth(1).receive_depth(1).connect(port)?;
        let mut bulk = Self { flows: Vec::new(), pools: Vec::new(), qp, cq, pd };
        for first in (0..count).step_by(CounterPool::MAX) {
            let capacity = (count - first).min(CounterPool::MAX as u32);
            let pool = CounterPool::new(&context, capacity as usize)?;
            for number in first..first + capacity {
                let rule = FlowRule::normal(port).eth(nobody(ROW, number));
                bulk.flows.push(pool.take()?.create_flow(&bulk.qp, &rule)?);
            }
            bulk.pools.push(pool);
        }
        Ok(bulk)
    }

    /// Prepares one thread's reads.
    pub(super) fn reads(&self) -> Reads<'_> {
        Reads::Bulk(self.pools.iter().map(CounterPool::reader).collect())
    }

    /// Releases everything, even after an error; returns the first error.
    pub(super) fn release(self) -> uverbs::Result<()> {
        let Self { flows, pools, qp, cq, pd } = self;
        let flows: Vec<_> = flows.into_iter().map(|flow| told(flow.destroy())).collect();
        let pools: Vec<_> = pools.into_iter().map(|pool| told(pool.destroy())).collect();
        let rest = [told(qp.destroy()), told(cq.destroy()), told(pd.destroy())];
        flows.into_iter().chain(pools).chain(rest).collect()
    }
}
