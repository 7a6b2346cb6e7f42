//! The operations that are measured. `theirs.c` does the same through libibverbs.

use uverbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, ConnectionOptions, Context, Error,
    MemoryRegion, Operation, ProtectionDomain, QueuePair, QueuePairBuilder, Rc, ReceiveRequest, Result,
    Route, SendRequest, Status, WindowType,
};

use crate::meter::Meter;

pub(crate) const MANY: usize = 16;
pub(crate) const DEPTH: u32 = 256;
const INLINE: u32 = 32;
pub(crate) const PORT: u8 = 1;
pub(crate) const GID_INDEX: u8 = 1;
pub(crate) const PAGE: usize = 4096;

pub(crate) fn open(device: &str) -> Result<Context> {
    uverbs::devices()?.named(device)?.open()
}

/// Makes one object for each turn of a batch.
fn make<T>(meter: &mut Meter, name: &'static str, make: impl Fn() -> Result<T>) -> Result<Vec<T>> {
    let mut made = Vec::with_capacity(meter.batch());
    meter.timed(name, || make().map(|object| made.push(object)))?;
    Ok(made)
}

fn sized<T>(builder: QueuePairBuilder<'_, T>) -> QueuePairBuilder<'_, T>
where
    T: uverbs::QpType,
{
    builder.send_depth(DEPTH).receive_depth(DEPTH).inline(INLINE)
}

/// Everything except posting and polling.
pub(crate) fn control(meter: &mut Meter, device: &str) -> Result<()> {
    let contexts = make(meter, "open", || open(device))?;
    let context = &contexts[0];
    meter.timed("query_device", || context.query_device().map(drop))?;
    meter.timed("query_port", || context.query_port(PORT).map(drop))?;

    let pds = make(meter, "create_pd", || context.alloc_pd())?;
    let pd = &pds[0];
    let regions = make(meter, "create_mr", || pd.register(PAGE, AccessFlags::LOCAL_WRITE))?;
    meter.row("destroy_mr", || drop(regions));
    let channels = make(meter, "create_channel", || context.create_comp_channel())?;
    let cqs = make(meter, "create_cq", || context.create_cq(DEPTH))?;
    let options = ConnectionOptions::new(PORT, GID_INDEX);
    let mut qps = make(meter, "create_qp_rc", || sized(pd.rc(&cqs[0])).create())?;
    let ends = qps.iter().map(|qp| qp.endpoint(&options, 1)).collect::<Result<Vec<_>>>()?;
    let mut pairs = qps.iter_mut().zip(&ends);
    meter
        .timed("modify_to_rts", || pairs.next().map_or(Ok(()), |(qp, end)| qp.connect(&options, end, end)))?;
    meter.row("destroy_qp_rc", || drop(qps));
    let qps = make(meter, "create_qp_ud", || sized(pd.ud(&cqs[0])).create())?;
    meter.row("destroy_qp_ud", || drop(qps));
    let queues = make(meter, "create_srq", || pd.create_srq(DEPTH))?;
    meter.row("destroy_srq", || drop(queues));
    let windows = make(meter, "create_mw", || pd.alloc_window(WindowType::Two))?;
    meter.row("destroy_mw", || drop(windows));
    let route = Route::new(PORT, GID_INDEX, ends[0].gid);
    let handles = make(meter, "create_ah", || pd.create_ah(&route))?;
    meter.row("destroy_ah", || drop(handles));
    meter.row("destroy_cq", || drop(cqs));
    meter.row("destroy_channel", || drop(channels));
    meter.row("destroy_pd", || drop(pds));
    meter.row("close", || drop(contexts));
    Ok(())
}

/// A queue pair connected to itself.
#[derive(Debug)]
pub(crate) struct Loop {
    qp: QueuePair<Rc>,
    sent: CompletionQueue,
    received: CompletionQueue,
    idle: CompletionQueue,
    memory: MemoryRegion,
    _channel: CompletionChannel,
    _pd: ProtectionDomain,
}

impl Loop {
    pub(crate) fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let memory = pd.register(PAGE, AccessFlags::LOCAL_WRITE)?;
        let channel = context.create_comp_channel()?;
        let (sent, received) = (context.create_cq(DEPTH)?, context.create_cq(DEPTH)?);
        let idle = context.cq(DEPTH).channel(&channel).create()?;
        let mut qp = sized(pd.rc(&sent)).receive_cq(&received).create()?;
        let options = ConnectionOptions::new(PORT, GID_INDEX);
        let end = qp.endpoint(&options, 1)?;
        qp.connect(&options, &end, &end)?;
        Ok(Self { qp, sent, received, idle, memory, _channel: channel, _pd: pd })
    }

    /// Sends messages, `many` with each call.
    fn messages(&mut self, meter: &mut Meter, many: usize, names: [&'static str; 3]) -> Result<()> {
        let [receive, send, poll] = names;
        let Self { qp, sent, received, memory, .. } = self;
        let room = [memory.segment(0..INLINE as usize)?];
        let bytes = [0; INLINE as usize];
        let receives: Vec<_> = (0..many as u64).map(|id| ReceiveRequest::new(id, &room)).collect();
        let request = |id| SendRequest::inline(id, Operation::Send, &bytes).signaled();
        let sends: Vec<_> = (0..many as u64).map(request).collect();
        meter.timed(receive, || qp.post_receive(&receives))?;
        meter.timed(send, || qp.post_send(&sends))?;
        settle(sent, many * meter.batch());
        let mut batch = Completion::batch::<MANY>();
        meter.timed(poll, || {
            assert_eq!(received.poll(&mut batch[..many]), many);
            Ok::<_, Error>(())
        })?;
        assert_eq!(batch[0].status, Status::Success);
        Ok(())
    }

    /// Posting and polling.
    pub(crate) fn data(&mut self, meter: &mut Meter) -> Result<()> {
        self.messages(meter, 1, ["post_receive", "post_send", "poll"])?;
        self.messages(meter, MANY, ["post_receive_16", "post_send_16", "poll_16"])?;
        let mut batch = Completion::batch::<1>();
        meter.timed("poll_empty", || {
            assert_eq!(self.idle.poll(&mut batch), 0);
            Ok::<_, Error>(())
        })?;
        meter.timed("notify", || self.idle.notify(false))
    }
}

/// Waits until everything that was sent is acknowledged, so that everything has been received too.
pub(crate) fn settle(sent: &mut CompletionQueue, mut count: usize) {
    let mut batch = Completion::batch::<MANY>();
    while count > 0 {
        let taken = sent.poll(&mut batch);
        assert!(batch[..taken].iter().all(|completion| completion.status == Status::Success), "a send");
        count -= taken;
        if taken == 0 {
            std::thread::yield_now();
        }
    }
}
