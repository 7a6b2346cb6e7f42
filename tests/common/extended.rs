//! Extended reliable connections: a sender, a receiving queue pair, and queues of its domain.

use std::thread;
use std::time::Instant;

use uverbs::{
    Completion, CompletionQueue, ConnectionOptions, Context, MemoryRegion, Operation, ProtectionDomain,
    ReceiveRequest, Remote, SendRequest, SharedReceiveQueue, Status, XrcDomain, XrcReceiveQueuePair, XrcSend,
};

use super::{ALL, Side, Target, options};

/// A shared receive queue of a domain with memory, and the queue in which its receives complete.
pub struct ExtendedQueue {
    pub srq: SharedReceiveQueue,
    pub cq: CompletionQueue,
    pub memory: MemoryRegion,
    pub pd: ProtectionDomain,
}

pub const QUEUE: u64 = 0x5150;
pub const RECEIVER: u64 = 0x7a7;

impl ExtendedQueue {
    pub fn new(domain: &XrcDomain) -> Self {
        let context = domain.context();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(32).unwrap());
        let srq = domain.srq(&pd, &cq, 8).cookie(QUEUE).create().unwrap();
        let memory = pd.register(4096, ALL).unwrap();
        Self { srq, cq, memory, pd }
    }

    pub fn number(&self) -> u32 {
        self.srq.number().expect("a queue of a domain")
    }

    /// Posts a receive of 64 bytes at 64 times its number.
    pub fn post(&mut self, wr_id: u64) {
        let start = 64 * wr_id as usize;
        let segments = [self.memory.segment(start..start + 64).unwrap()];
        self.srq.post_receive(&[ReceiveRequest::new(wr_id, &segments)]).unwrap();
    }

    #[track_caller]
    pub fn completion(&mut self) -> Completion {
        let start = Instant::now();
        let mut batch = Completion::batch::<1>();
        while self.cq.poll(&mut batch) == 0 {
            assert!(start.elapsed().as_secs() < 20, "no completion");
            thread::yield_now();
        }
        batch[0]
    }

    pub fn nothing(&mut self) {
        assert_eq!(self.cq.poll(&mut Completion::batch::<1>()), 0);
    }

    pub fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.memory.address() + offset, rkey: self.memory.rkey() }
    }

    pub fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(offset, &mut bytes).unwrap();
        bytes
    }
}

pub fn xrc_sender(context: &Context) -> Side<XrcSend> {
    Side::new(context, |pd, cq| pd.xrc_send(cq).inline(64).create().unwrap())
}

pub fn connect_extended(
    options: &ConnectionOptions,
    here: &mut Side<XrcSend>,
    there: &mut XrcReceiveQueuePair,
) {
    let (one, two) = (here.qp.endpoint(options, 17).unwrap(), there.endpoint(options, 9).unwrap());
    there.connect(options, &one).unwrap();
    here.qp.connect(options, &one, &two).unwrap();
}

/// A sender, the receiving queue pair that it is connected to, and a domain with two queues.
pub struct Extended {
    pub here: Side<XrcSend>,
    pub there: XrcReceiveQueuePair,
    pub queues: [ExtendedQueue; 2],
    pub domain: XrcDomain,
    pub context: Context,
}

impl Extended {
    pub fn new(target: &Target) -> Self {
        Self::with(target, |_| {})
    }

    pub fn with(target: &Target, change: impl Fn(&mut ConnectionOptions)) -> Self {
        let context = target.open();
        let domain = context.open_xrcd().unwrap();
        let queues = [(); 2].map(|()| ExtendedQueue::new(&domain));
        let mut there = domain.receive_qp().cookie(RECEIVER).create().unwrap();
        let mut here = xrc_sender(&context);
        let mut options = options(&context);
        change(&mut options);
        connect_extended(&options, &mut here, &mut there);
        Self { here, there, queues, domain, context }
    }

    /// Sends bytes inline, and returns the status.
    #[track_caller]
    pub fn send(&mut self, operation: Operation, srq: u32, bytes: &[u8]) -> Status {
        let request = SendRequest::inline(5, operation.to_srq(srq), bytes).signaled();
        self.here.qp.post_send(&[request]).unwrap();
        self.here.completion().status
    }

    /// The same for an operation that returns eight bytes.
    #[track_caller]
    pub fn fetch(&mut self, operation: Operation, srq: u32) -> (Status, u64) {
        self.here.send(6, operation.to_srq(srq), 0..8);
        let status = self.here.completion().status;
        (status, u64::from_ne_bytes(self.here.bytes(0)))
    }
}
