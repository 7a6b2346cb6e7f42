//! What the queue pairs of one side share.

use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, Completion, CompletionQueue, Device, MemoryRegion, Operation, ProtectionDomain, QueuePair,
    Rc, ReceiveRequest, SendRequest, Status,
};

use crate::Result;

/// Longest wait for the other side.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Time between two looks at a queue.
const PAUSE: Duration = Duration::from_millis(2);
/// Bytes of a message: those of ucmatose.
pub(crate) const SIZE: usize = 100;

/// The completion queue and the memory of one side.
pub(crate) struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    depth: u32,
}

impl End {
    /// For so many queue pairs, each with so many messages in flight in each direction.
    pub(crate) fn new(device: &Device, queue_pairs: u32, depth: u32) -> Result<Self> {
        let context = device.open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(2 * depth * queue_pairs)?);
        let memory = pd.register(SIZE, AccessFlags::LOCAL_WRITE)?;
        Ok(Self { pd, cq, memory, depth })
    }

    pub(crate) fn queue_pair(&self) -> uverbs::Result<QueuePair<Rc>> {
        self.pd.rc(&self.cq).send_depth(self.depth).receive_depth(self.depth).create()
    }

    pub(crate) fn receive(&self, qp: &mut QueuePair<Rc>, count: u32) -> Result {
        let room = [self.memory.segment(..)?];
        let requests: Vec<_> = (0..count).map(|id| ReceiveRequest::new(id.into(), &room)).collect();
        Ok(qp.post_receive(&requests)?)
    }

    pub(crate) fn send(&self, qp: &mut QueuePair<Rc>, count: u32) -> Result {
        let room = [self.memory.segment(..)?];
        let request = |id: u32| SendRequest::new(id.into(), Operation::Send, &room).signaled();
        let requests: Vec<_> = (0..count).map(request).collect();
        Ok(qp.post_send(&requests)?)
    }

    /// How a request ends, if it does within this time.
    pub(crate) fn status(&mut self, within: Duration) -> Option<Status> {
        let (start, mut batch) = (Instant::now(), Completion::batch::<1>());
        while self.cq.poll(&mut batch) == 0 {
            if start.elapsed() > within {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
        Some(batch[0].status)
    }

    /// Waits until so many requests have completed.
    pub(crate) fn settle(&mut self, mut count: u32) -> Result {
        let (start, mut batch) = (Instant::now(), Completion::batch::<8>());
        while count > 0 {
            let found = self.cq.poll(&mut batch);
            for completion in &batch[..found] {
                if completion.status != Status::Success {
                    return Err(format!("{}, with {count} to come", completion.status).into());
                }
                count -= 1;
            }
            if found == 0 {
                if start.elapsed() > LIMIT {
                    return Err(format!("{count} messages have not come").into());
                }
                // A count of instructions must not depend on how often it has looked.
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}
