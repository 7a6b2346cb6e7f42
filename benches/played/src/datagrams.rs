//! What posting and polling cost on an EFA, through this workspace's crate. `efa.c` does the same through libibverbs, with the same names.
//!
//! A queue pair for reliable datagrams with inline data has wide slots here, because the device has writes, too. Reads and writes have the
//! names of the calls that post them in C.

use std::hint::black_box;
use std::thread::yield_now;

use uverbs::{
    AccessFlags, AddressHandle, Completion, CompletionQueue, ConnectionOptions, Context, Datagram,
    MemoryRegion, ProtectionDomain, QueuePair, Remote, Result, Route, SendRequest, Srd, SrdDatagram,
    SrdOperation, Ud,
};

use crate::rows::{
    DEPTH, HEADER, MANY, MESSAGE, PAIRS, PORT, Pair, QKEY, Rows, measure, poll, receives, sends, settle,
};

const WIDEST: usize = 80;

/// Everything that is measured.
struct Rig {
    own: Pair<Srd>,
    narrow: Pair<Srd>,
    wide: Pair<Srd>,
    datagrams: Pair<Ud>,
    both: (QueuePair<Srd>, CompletionQueue),
    several: (Vec<QueuePair<Srd>>, CompletionQueue, CompletionQueue),
    ah: AddressHandle,
    memory: MemoryRegion,
    _pd: ProtectionDomain,
}

impl Rig {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let memory = pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ)?;
        let options = ConnectionOptions::new(PORT, 0);
        let ah = pd.create_ah(&Route::new(PORT, 0, context.gid(PORT, 0)?.raw))?;
        let cq = || context.create_cq(2 * DEPTH);
        let create = |segments, inline: usize, sent: &CompletionQueue, received: &CompletionQueue| {
            let qp = pd.srd(sent).receive_cq(received).send_depth(DEPTH).receive_depth(DEPTH);
            let mut qp = qp.segments(segments).inline(inline as u32).create()?;
            qp.activate(&options, QKEY, 0)?;
            Ok::<_, uverbs::Error>(qp)
        };
        let pair = |segments, inline| {
            let (sent, received) = (cq()?, cq()?);
            Ok::<_, uverbs::Error>(Pair { qp: create(segments, inline, &sent, &received)?, sent, received })
        };
        let (own, narrow, wide) = (pair(1, MESSAGE)?, pair(2, MESSAGE)?, pair(2, WIDEST)?);
        let (sent, received) = (cq()?, cq()?);
        let qp = pd.ud(&sent).receive_cq(&received).send_depth(DEPTH).receive_depth(DEPTH);
        let mut qp = qp.inline(MESSAGE as u32).create()?;
        qp.activate(&options, QKEY, 0)?;
        let datagrams = Pair { qp, sent, received };
        let common = cq()?;
        let both = (create(1, MESSAGE, &common, &common)?, common);
        let (sent, received) = (cq()?, cq()?);
        let several = (0..PAIRS).map(|_| create(1, MESSAGE, &sent, &received)).collect::<Result<_>>()?;
        let several = (several, sent, received);
        Ok(Self { own, narrow, wide, datagrams, both, several, ah, memory, _pd: pd })
    }

    fn turn(&mut self, rows: &mut Rows) -> Result<()> {
        for count in [1, MANY] {
            self.turn_of(rows, count)?;
            self.turn_pieces(rows, count)?;
            self.turn_datagrams(rows, count)?;
        }
        self.turn_polls(rows)
    }

    fn turn_of(&mut self, rows: &mut Rows, count: usize) -> Result<()> {
        let Self { own, ah, memory, .. } = self;
        let room = [memory.segment(..MESSAGE)?];
        let wide = [memory.segment(1024..1024 + HEADER + WIDEST)?];
        let (bytes, mut batch) = ([1; MESSAGE], Completion::batch::<MANY>());
        let places = black_box(&mut batch[..count]);
        let to = to(ah, &own.qp);
        let receives = receives(count, &wide);
        let receives = black_box(&receives[..]);
        let plain = sends(count, |id| SendRequest::new(id, to(SrdOperation::Send), &room));
        let plain = black_box(&plain[..]);
        rows.measure("post receive", count, || assert!(own.qp.post_receive(receives).is_ok()));
        rows.measure("post send", count, || assert!(own.qp.post_send(plain).is_ok()));
        yield_now();
        rows.measure("poll sent", count, || poll(&mut own.sent, places));
        rows.measure("poll", count, || poll(&mut own.received, places));
        let inline = sends(count, |id| SendRequest::inline(id, to(SrdOperation::Send), &bytes));
        let inline = black_box(&inline[..]);
        rows.measure("", count, || assert!(own.qp.post_receive(receives).is_ok()));
        rows.measure("post send, inline", count, || assert!(own.qp.post_send(inline).is_ok()));
        own.settle();
        let remote = Remote { address: memory.address() + 2048, rkey: memory.rkey() };
        for (operation, post, polled) in [
            (SrdOperation::Read(remote), "wr_rdma_read", "poll read"),
            (SrdOperation::Write(remote), "wr_rdma_write", "poll write"),
        ] {
            let sends = sends(count, |id| SendRequest::new(id, to(operation), &room));
            let sends = black_box(&sends[..]);
            rows.measure(post, count, || assert!(own.qp.post_send(sends).is_ok()));
            yield_now();
            rows.measure(polled, count, || poll(&mut own.sent, places));
        }
        Ok(())
    }

    fn turn_pieces(&mut self, rows: &mut Rows, count: usize) -> Result<()> {
        let Self { narrow, wide, ah, memory, .. } = self;
        let room = [memory.segment(1024..1024 + HEADER + WIDEST)?];
        let receives = receives(count, &room);
        let receives = black_box(&receives[..]);
        let mut exchange = |pair: &mut Pair<Srd>, name, sends: Vec<SendRequest<'_, SrdDatagram<'_>>>| {
            let sends = black_box(&sends[..]);
            rows.measure("", count, || assert!(pair.qp.post_receive(receives).is_ok()));
            rows.measure(name, count, || assert!(pair.qp.post_send(sends).is_ok()));
            pair.settle();
        };
        let pieces = [memory.segment(..16)?, memory.segment(64..112)?];
        let message = to(ah, &narrow.qp)(SrdOperation::Send);
        exchange(narrow, "post send, 2 pieces", sends(count, |id| SendRequest::new(id, message, &pieces)));
        let bytes = [1; WIDEST];
        for (name, len) in [
            ("post send, inline 1", 1),
            ("post send, inline 8", 8),
            ("post send, inline 64", 64),
            ("post send, inline 80", WIDEST),
        ] {
            let pair = if len > MESSAGE { &mut *wide } else { &mut *narrow };
            let message = to(ah, &pair.qp)(SrdOperation::Send);
            exchange(pair, name, sends(count, |id| SendRequest::inline(id, message, &bytes[..len])));
        }
        Ok(())
    }

    fn turn_datagrams(&mut self, rows: &mut Rows, count: usize) -> Result<()> {
        let Self { datagrams, ah, memory, .. } = self;
        let room = [memory.segment(..MESSAGE)?];
        let wide = [memory.segment(1024..1024 + HEADER + WIDEST)?];
        let mut batch = Completion::batch::<MANY>();
        let places = black_box(&mut batch[..count]);
        let receives = receives(count, &wide);
        let datagram = Datagram { to: ah, qp_num: datagrams.qp.number(), qkey: QKEY, immediate: None };
        rows.measure("", count, || assert!(datagrams.qp.post_receive(&receives).is_ok()));
        let sends = sends(count, |id| SendRequest::new(id, datagram, &room));
        let sends = black_box(&sends[..]);
        rows.measure("post datagram", count, || assert!(datagrams.qp.post_send(sends).is_ok()));
        yield_now();
        rows.measure("poll datagram", count, || poll(&mut datagrams.received, places));
        datagrams.settle();
        Ok(())
    }

    fn turn_polls(&mut self, rows: &mut Rows) -> Result<()> {
        let Self { own, both: (qp, common), several: (several, sent, received), ah, memory, .. } = self;
        let room = [memory.segment(..MESSAGE)?];
        let wide = [memory.segment(1024..1024 + HEADER + WIDEST)?];
        let mut batch = Completion::batch::<MANY>();
        let places = black_box(&mut batch[..2]);
        let four = receives(4, &wide);
        let messages = |qp: &QueuePair<Srd>, count| {
            let message = to(ah, qp)(SrdOperation::Send);
            sends(count, |id| SendRequest::new(id, message, &room))
        };
        let two = messages(&own.qp, 2);
        rows.measure("", 2, || assert!(own.qp.post_receive(&four[..2]).is_ok()));
        rows.measure("", 2, || assert!(own.qp.post_send(&two).is_ok()));
        yield_now();
        rows.measure("poll 2", 2, || poll(&mut own.received, places));
        own.settle();
        let requests = messages(qp, 4);
        rows.measure("", 2, || assert!(qp.post_receive(&four[..1]).is_ok()));
        rows.measure("", 2, || assert!(qp.post_send(&requests[..1]).is_ok()));
        yield_now();
        rows.measure("poll 2, a send and a receive", 2, || poll(common, places));
        let remote = Remote { address: memory.address() + 2048, rkey: memory.rkey() };
        let read = to(ah, qp)(SrdOperation::Read(remote));
        let reads = sends(8, |id| SendRequest::new(id, read, &room));
        rows.measure("", MANY, || assert!(qp.post_receive(&four).is_ok()));
        rows.measure("", MANY, || assert!(qp.post_send(&requests).is_ok()));
        rows.measure("", MANY, || assert!(qp.post_send(&reads).is_ok()));
        yield_now();
        let places = black_box(&mut batch[..]);
        rows.measure("poll 16, of several kinds", MANY, || poll(common, places));
        for number in 0..MANY * rows.burst(MANY) {
            let qp = &mut several[number % PAIRS];
            let requests = messages(qp, 1);
            assert!(qp.post_receive(&four[..1]).is_ok() && qp.post_send(&requests).is_ok());
            yield_now();
        }
        rows.measure("poll 16, of queue pairs in turn", MANY, || poll(received, places));
        settle(sent);
        let places = black_box(&mut batch[..1]);
        rows.measure("poll empty", 1, || assert_eq!(own.received.poll(places), 0));
        Ok(())
    }
}

/// Requests to this queue pair.
fn to<'a>(
    to: &'a AddressHandle,
    qp: &QueuePair<Srd>,
) -> impl Fn(SrdOperation) -> SrdDatagram<'a> + Copy + use<'a> {
    let qp_num = qp.number();
    move |operation| SrdDatagram { to, qp_num, qkey: QKEY, operation }
}

pub(crate) fn run(context: &Context) -> Result<()> {
    let mut rig = Rig::new(context)?;
    measure(|rows| rig.turn(rows))
}
