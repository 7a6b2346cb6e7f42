//! Frames that arrive at a device: the soft device takes them by a call; others get those that they have sent themselves, if the port is
//! looped back.

use std::cell::RefCell;
use std::time::Instant;

use uverbs::{
    AccessFlags, Completion, CompletionQueue, Device, MemoryRegion, QueuePair, RawPacket, SendRequest,
    SoftDevice, Status,
};

use super::behaviours::{Frames, Held, LIMIT, holds, same};

/// The wire of the embedded device.
pub(super) struct Injected(pub(super) SoftDevice);

impl Frames for Injected {
    fn send(&self, frame: &[u8]) -> Held {
        self.0.inject(frame);
        Ok(())
    }
}

/// Longest frame.
const ROOM: usize = 2048;

/// A queue pair that sends frames.
pub(super) struct Own(RefCell<Sender>);

struct Sender {
    qp: QueuePair<RawPacket>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Own {
    pub(super) fn new(device: &Device, port: u8) -> uverbs::Result<Self> {
        let context = device.open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(4)?);
        let qp = pd.raw_packet(&cq).send_depth(4).receive_depth(1).connect(port)?;
        let memory = pd.register(ROOM, AccessFlags::LOCAL_WRITE)?;
        Ok(Self(RefCell::new(Sender { qp, cq, memory })))
    }
}

impl Frames for Own {
    fn send(&self, frame: &[u8]) -> Held {
        let Sender { qp, cq, memory } = &mut *self.0.borrow_mut();
        memory.write(0, frame)?;
        let segments = [memory.segment(0..frame.len())?];
        qp.post_send(&[SendRequest::frame(1, &segments).signaled()])?;
        let (start, mut batch) = (Instant::now(), Completion::batch::<1>());
        while cq.poll(&mut batch) == 0 {
            holds("send a frame", start.elapsed() < LIMIT, "a completion within 20 s", "none")?;
        }
        same("the status of a frame that was sent", batch[0].status, Status::Success)
    }
}
