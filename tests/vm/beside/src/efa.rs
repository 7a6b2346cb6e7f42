//! What posting and polling cost on an EFA through this crate. `efa.c` measures the same through C.

use std::hint::black_box;

use uverbs::{
    AccessFlags, Completion, CompletionCounter, CompletionQueue, ConnectionOptions, CounterSource, Datagram,
    QpType, QueuePair, Remote, Route, Segment, SendRequest, SrdDatagram, SrdOperation,
};

use crate::operations::{DEPTH, MANY, PAGE, PORT, open};
use crate::path::{
    HEADER, MESSAGE, POLL, POLL_DATAGRAM, POLL_EMPTY, POLL_READ, POST_DATAGRAM, POST_INLINE, POST_RECEIVE,
    POST_SEND, QKEY, Rows, TURNS, WARM, of, poll_when_there, receives,
};

const POST_DATAGRAM_INLINE: [&str; 2] = ["post datagram, inline", "post datagram 16, inline"];
const POLL_SENT: [&str; 2] = ["poll sent", "poll sent 16"];
const POLL_SENT_DATAGRAM: [&str; 2] = ["poll sent datagram", "poll sent datagram 16"];
/// In C only the extended interface can post these.
const READ: [&str; 2] = ["wr_rdma_read", "wr_rdma_read 16"];

/// A queue pair that sends to itself, and its rows: posting, posting inline, polling receives and polling sends.
struct Side<T: QpType> {
    qp: QueuePair<T>,
    sent: CompletionQueue,
    received: CompletionQueue,
    rows: [[&'static str; 2]; 4],
}

impl<T: QpType> Side<T> {
    /// Sends `many` messages, once from the memory of `room` and once inline.
    fn messages(
        &mut self,
        rows: &mut Rows,
        many: usize,
        operation: T::Operation<'_>,
        room: &[Segment<'_>],
        wide: &[Segment<'_>],
    ) {
        let Self { qp, sent, received, rows: [post, post_inline, poll, poll_sent] } = self;
        let bytes = [7; MESSAGE];
        let ids = 0..many as u64;
        let sends = ids.clone().map(|id| SendRequest::new(id, operation, room).signaled()).collect();
        let inline = ids.map(|id| SendRequest::inline(id, operation, &bytes).signaled()).collect();
        let receives = receives(many, wide);
        for (name, sends) in [(post, sends), (post_inline, inline)] {
            let sends: Vec<_> = sends;
            let (receives, sends) = (black_box(&receives[..]), black_box(&sends[..]));
            rows.count(of(POST_RECEIVE, many), || assert!(qp.post_receive(receives).is_ok()));
            rows.count(of(*name, many), || assert!(qp.post_send(sends).is_ok()));
            poll_when_there(rows, of(*poll_sent, many), sent, many);
            poll_when_there(rows, of(*poll, many), received, many);
        }
    }
}

/// Measures a read of a counter whose values the device writes to memory.
pub(crate) fn counters(device: &str) -> uverbs::Result<()> {
    let counter = CompletionCounter::builder().create_on(&open(device)?)?;
    assert_eq!(counter.source(), CounterSource::DeviceInMemory);
    let counter = black_box(&counter);
    let mut rows = Rows::default();
    for turn in 0..WARM + TURNS {
        rows.is_warm = turn >= WARM;
        // The cost of a read is counted beyond that of returning a number that is already there.
        rows.count("nothing", || {
            black_box(std::ptr::from_ref(counter).addr());
        });
        rows.count("CompletionCounter::read", || {
            black_box(counter.read());
        });
    }
    rows.print();
    Ok(())
}

/// Measures with reliable datagrams, and with UD datagrams.
pub(crate) fn datagrams(device: &str) -> uverbs::Result<()> {
    let context = open(device)?;
    let pd = context.alloc_pd()?;
    let queue = || context.create_cq(DEPTH);
    let options = ConnectionOptions::new(PORT, 0);
    let inline = MESSAGE as u32;
    let (sent, received) = (queue()?, queue()?);
    let qp = pd.srd(&sent).receive_cq(&received).send_depth(DEPTH).receive_depth(DEPTH);
    let rows = [POST_SEND, POST_INLINE, POLL, POLL_SENT];
    let mut reliable = Side { qp: qp.inline(inline).create()?, sent, received, rows };
    let (sent, received) = (queue()?, queue()?);
    let qp = pd.ud(&sent).receive_cq(&received).send_depth(DEPTH).receive_depth(DEPTH);
    let rows = [POST_DATAGRAM, POST_DATAGRAM_INLINE, POLL_DATAGRAM, POLL_SENT_DATAGRAM];
    let mut unreliable = Side { qp: qp.inline(inline).create()?, sent, received, rows };
    reliable.qp.activate(&options, QKEY, 0)?;
    unreliable.qp.activate(&options, QKEY, 0)?;

    let to = pd.create_ah(&Route::new(PORT, 0, context.gid(PORT, 0)?.raw))?;
    let memory = pd.register(PAGE, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ)?;
    let room = [memory.segment(..MESSAGE)?];
    let wide = [memory.segment(PAGE / 4..PAGE / 4 + HEADER + MESSAGE)?];
    let remote = Remote { address: memory.address() + PAGE as u64 / 2, rkey: memory.rkey() };
    let mut rows = Rows::default();
    for turn in 0..WARM + TURNS {
        rows.is_warm = turn >= WARM;
        rows.count("nothing", || ());
        for many in [1, MANY] {
            let qp_num = reliable.qp.number();
            let way = |operation| SrdDatagram { to: &to, qp_num, qkey: QKEY, operation };
            reliable.messages(&mut rows, many, way(SrdOperation::Send), &room, &wide);
            let datagram = Datagram { to: &to, qp_num: unreliable.qp.number(), qkey: QKEY, immediate: None };
            unreliable.messages(&mut rows, many, datagram, &room, &wide);
            let reads: Vec<_> = (0..many as u64)
                .map(|id| SendRequest::new(id, way(SrdOperation::Read(remote)), &room).signaled())
                .collect();
            let reads = black_box(&reads[..]);
            rows.count(of(READ, many), || assert!(reliable.qp.post_send(reads).is_ok()));
            poll_when_there(&mut rows, of(POLL_READ, many), &mut reliable.sent, many);
        }
        let mut batch = Completion::batch::<1>();
        let places = black_box(&mut batch[..]);
        rows.count(POLL_EMPTY, || assert_eq!(reliable.received.poll(places), 0));
    }
    rows.print();
    Ok(())
}
