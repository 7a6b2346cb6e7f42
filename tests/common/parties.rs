//! Two queue pairs that send each other messages, over any transport, with their own or shared receives.

use std::thread;
use std::time::{Duration, Instant};

use uverbs::{
    AddressHandle, Completion, CompletionQueue, ConnectionOptions, Context, Datagram, Operation,
    ProtectionDomain, QpType, QueuePair, QueuePairBuilder, Rc, ReceiveRequest, Route, SendRequest,
    SharedReceiveQueue, Status, Uc, UcOperation, Ud,
};

use super::{ALL, Side, Target, on_every_connecting_device, options};

const LONG: Duration = Duration::from_secs(20);

/// Request numbers: receives have even ones.
pub const RECEIVE: u64 = 2;
pub const SEND: u64 = 1;
pub const LATE: u64 = 3;

/// The destination of datagrams.
pub struct To {
    pub address: AddressHandle,
    pub qp_num: u32,
}

/// A transport, and how a message is sent over it.
pub trait Carrier: QpType + Sized {
    fn begin<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self>;
    fn connect(context: &Context, one: &mut Party<Self>, two: &mut Party<Self>);
    fn send(qp: &mut QueuePair<Self>, wr_id: u64, to: Option<&To>) -> uverbs::Result<()>;
}

impl Carrier for Rc {
    fn begin<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.rc(cq)
    }

    fn connect(context: &Context, one: &mut Party<Self>, two: &mut Party<Self>) {
        connect_parties(one, two, options(context));
    }

    fn send(qp: &mut QueuePair<Self>, wr_id: u64, _: Option<&To>) -> uverbs::Result<()> {
        qp.post_send(&[SendRequest::inline(wr_id, Operation::Send, b"ping").signaled()])
    }
}

impl Carrier for Uc {
    fn begin<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.uc(cq)
    }

    fn connect(context: &Context, one: &mut Party<Self>, two: &mut Party<Self>) {
        let (options, one, two) = (options(context), &mut one.side.qp, &mut two.side.qp);
        let (here, there) = (one.endpoint(&options, 5).unwrap(), two.endpoint(&options, 6).unwrap());
        one.connect(&options, &here, &there).unwrap();
        two.connect(&options, &there, &here).unwrap();
    }

    fn send(qp: &mut QueuePair<Self>, wr_id: u64, _: Option<&To>) -> uverbs::Result<()> {
        qp.post_send(&[SendRequest::inline(wr_id, UcOperation::Send, b"ping").signaled()])
    }
}

impl Carrier for Ud {
    fn begin<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.ud(cq)
    }

    fn connect(context: &Context, one: &mut Party<Self>, two: &mut Party<Self>) {
        let options = options(context);
        let ends = [&two, &one].map(|party| party.side.qp.endpoint(&options, 0).unwrap());
        for (party, end) in [one, two].into_iter().zip(ends) {
            party.side.qp.activate(&options, 7, 0).unwrap();
            let address = party.side.pd.create_ah(&options.route(&end)).unwrap();
            party.to = Some(To { address, qp_num: end.qp_num });
        }
    }

    fn send(qp: &mut QueuePair<Self>, wr_id: u64, to: Option<&To>) -> uverbs::Result<()> {
        let To { address, qp_num } = to.expect("an address");
        let datagram = Datagram { to: address, qp_num: *qp_num, qkey: 7, immediate: None };
        qp.post_send(&[SendRequest::inline(wr_id, datagram, b"ping").signaled()])
    }
}

/// One of the two.
pub struct Party<T: Carrier> {
    pub side: Side<T>,
    pub srq: Option<SharedReceiveQueue>,
    pub to: Option<To>,
    /// The requests that have completed since the last exchange.
    pub ended: Vec<(u64, Status)>,
}

impl<T: Carrier> Party<T> {
    pub fn receive(&mut self, wr_id: u64) {
        let segments = [self.side.memory.segment(0..256).unwrap()];
        let request = [ReceiveRequest::new(wr_id, &segments)];
        match &mut self.srq {
            Some(srq) => srq.post_receive(&request).unwrap(),
            None => self.side.qp.post_receive(&request).unwrap(),
        }
    }

    pub fn send(&mut self, wr_id: u64) {
        T::send(&mut self.side.qp, wr_id, self.to.as_ref()).unwrap();
    }

    pub fn poll(&mut self) {
        let mut batch = Completion::batch::<4>();
        let found = self.side.cq.poll(&mut batch);
        self.ended.extend(batch[..found].iter().map(|completion| (completion.wr_id, completion.status)));
    }

    pub fn has(&self, wr_id: u64) -> bool {
        self.ended.iter().any(|(ended, _)| *ended == wr_id)
    }

    /// Polls until this request has completed. On the soft device it has always completed before the first poll.
    #[track_caller]
    pub fn until(&mut self, target: &Target, wr_id: u64, what: &dyn std::fmt::Debug) {
        let start = Instant::now();
        self.poll();
        while !self.has(wr_id) {
            let is_over = target.soft.is_some() || start.elapsed() > LONG;
            assert!(!is_over, "request {wr_id} has not ended: {what:?}");
            thread::yield_now();
            self.poll();
        }
    }

    pub fn take(&mut self) -> Vec<(u64, Status)> {
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_by_key(|(wr_id, _)| *wr_id);
        ended
    }
}

/// Connects two queue pairs. The sender soon retries if no receive is posted.
pub fn connect_parties(one: &mut Party<Rc>, two: &mut Party<Rc>, options: ConnectionOptions) {
    let options = ConnectionOptions { rnr_timer: 1, ..options };
    let (one, two) = (&mut one.side.qp, &mut two.side.qp);
    let (here, there) = (one.endpoint(&options, 5).unwrap(), two.endpoint(&options, 6).unwrap());
    one.connect(&options, &here, &there).unwrap();
    two.connect(&options, &there, &here).unwrap();
}

/// A side whose receives are in its queue pair's own queue, or in a shared one.
pub fn party<T: Carrier>(context: &Context, shared: bool) -> Party<T> {
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(32).unwrap());
    let srq = shared.then(|| pd.create_srq(8).unwrap());
    let builder = T::begin(&pd, &cq).inline(64);
    let qp = match &srq {
        Some(srq) => builder.srq(srq).create().unwrap(),
        None => builder.create().unwrap(),
    };
    let memory = pd.register(4096, ALL).unwrap();
    Party { side: Side { qp, cq, memory, pd }, srq, to: None, ended: Vec::new() }
}

pub fn parties<T: Carrier>(context: &Context, shared: bool) -> [Party<T>; 2] {
    let [mut one, mut two] = [(); 2].map(|()| party(context, shared));
    T::connect(context, &mut one, &mut two);
    [one, two]
}

/// Runs a behaviour with own receives, and with shared ones.
pub fn with_each_queue(behaviour: impl Fn(&Target, bool)) {
    on_every_connecting_device(|target| {
        [false, true].into_iter().for_each(|shared| behaviour(target, shared))
    });
}
