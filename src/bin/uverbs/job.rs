//! The objects that counting needs: a queue pair with room for frames, counters, and a flow that counts into them.

use uverbs::{
    AccessFlags, Completion, CompletionQueue, Context, Counters, Error, Flow, FlowRule, MemoryRegion, Point,
    ProtectionDomain, QueuePair, RawPacket, Reader, ReceiveRequest, Status,
};

use crate::Outcome;
use crate::target::Target;

/// Number of frames that can wait to be processed.
const DEPTH: u32 = 256;
/// Room for each: the largest IP packet with its Ethernet header and VLAN tags.
const SLOT: usize = 66 * 1024;
const PACKETS: u32 = 0;
const BYTES: u32 = 1;

/// The objects that counting needs, in the order of their release.
#[derive(Debug)]
pub(crate) struct Job {
    reader: Reader,
    flow: Flow,
    counters: Counters,
    qp: QueuePair<RawPacket>,
    memory: MemoryRegion,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    /// The device file, closed last.
    context: Context,
    completions: [Completion; 64],
    /// Frames that were received.
    pub(crate) received: u64,
    /// Why no more frames are received.
    pub(crate) broken: Option<Status>,
}

impl Job {
    /// Puts a counting rule in force, and receives the packets that it matches.
    pub(crate) fn start(target: &Target, port: u8, rule: FlowRule) -> Outcome<Self> {
        target.check_port(port)?;
        let context = target.open()?;
        let pd = context.alloc_pd()?;
        let counters = context.create_counters()?;
        counters.attach(Point::Packets, PACKETS)?;
        counters.attach(Point::Bytes, BYTES)?;
        let cq = context.create_cq(DEPTH)?;
        let mut qp = pd.raw_packet(&cq).send_depth(1).receive_depth(DEPTH).connect(port)?;
        let memory = pd.register(DEPTH as usize * SLOT, AccessFlags::LOCAL_WRITE)?;
        post(&mut qp, &memory, 0..u64::from(DEPTH))?;
        let flow = qp.create_flow(&rule.count(&counters))?;
        let reader = flow.reader()?;
        let completions = Completion::batch();
        let (received, broken) = (0, None);
        Ok(Self { reader, flow, counters, qp, memory, cq, pd, context, completions, received, broken })
    }

    /// Takes the frames that were received, and posts as many receives.
    pub(crate) fn drain(&mut self) -> Outcome {
        loop {
            let count = self.cq.poll(&mut self.completions);
            if count == 0 {
                return Ok(());
            }
            let completions = &self.completions[..count];
            // After the first failure the queue pair only flushes. Counting does not need it.
            self.broken = self.broken.or_else(|| completions.iter().find_map(|done| done.ok().err()));
            let done = completions.iter().filter(|done| done.ok().is_ok()).map(|done| done.wr_id);
            self.received += done.clone().count() as u64;
            if self.broken.is_none() {
                post(&mut self.qp, &self.memory, done)?;
            }
        }
    }

    /// Packets and bytes since the start.
    pub(crate) fn read(&mut self) -> Outcome<(u64, u64)> {
        let values = self.reader.read()?;
        let value = |index: u32| values.get(index as usize).copied().unwrap_or(0);
        Ok((value(PACKETS), value(BYTES)))
    }

    /// The state of a port, in InfiniBand's numbers.
    pub(crate) fn port_state(&self, port: u8) -> Outcome<u8> {
        Ok(self.context.query_port(port)?.legacy_resp.state)
    }

    /// Releases everything, children before parents. Every release is attempted; the first error is returned.
    pub(crate) fn release(self) -> uverbs::Result<()> {
        let Self { reader, flow, counters, qp, memory, cq, pd, .. } = self;
        drop(reader);
        let results = [
            told(flow.destroy()),
            told(counters.destroy()),
            told(qp.destroy()),
            told(memory.destroy()),
            told(cq.destroy()),
            told(pd.destroy()),
        ];
        results.into_iter().collect()
    }
}

/// An object that could not be destroyed is dropped, which tries once more.
pub(crate) fn told<T>(result: Result<(), (T, Error)>) -> uverbs::Result<()> {
    result.map_err(|(_, error)| error)
}

/// Posts the slots with these numbers.
fn post(
    qp: &mut QueuePair<RawPacket>,
    memory: &MemoryRegion,
    slots: impl Iterator<Item = u64>,
) -> uverbs::Result<()> {
    let mut segments = Vec::with_capacity(DEPTH as usize);
    for slot in slots {
        let start = slot as usize * SLOT;
        segments.push((slot, memory.segment(start..start + SLOT)?));
    }
    let request = |(wr_id, segment)| ReceiveRequest::new(wr_id, std::slice::from_ref(segment));
    let requests: Vec<_> = segments.iter().map(|(slot, segment)| request((*slot, segment))).collect();
    qp.post_receive(&requests)
}
