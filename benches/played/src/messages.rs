//! What posting and polling cost through this workspace's crate, on a device that is played in this process. `messages.c` does the same
//! through libibverbs, with the same names, and says what is measured.

mod datagrams;
mod rows;

use std::hint::black_box;
use std::process::ExitCode;
use std::thread::yield_now;

use uverbs::{
    AccessFlags, AddressHandle, Completion, CompletionQueue, ConnectionOptions, Context, Datagram,
    MemoryRegion, Operation, ProtectionDomain, QueuePair, Rc, Remote, Result, SendRequest,
    SharedReceiveQueue, Ud,
};

use crate::rows::{
    DEPTH, HEADER, MANY, MESSAGE, PAIRS, PORT, Pair, QKEY, Rows, poll, receives, sends, settle,
};

/// The most inline data, on iWARP and elsewhere.
const LARGEST_OF_IWARP: usize = 80;
const LARGEST: usize = 200;
const PIECES: usize = 4;
const ACCESS: AccessFlags =
    AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

/// Everything that is measured.
struct Rig {
    own: Pair,
    wide: Pair,
    sharing: Pair,
    /// iWARP has none.
    datagrams: Option<(Pair<Ud>, AddressHandle)>,
    both: (QueuePair<Rc>, CompletionQueue),
    several: (Vec<QueuePair<Rc>>, CompletionQueue, CompletionQueue),
    shared: SharedReceiveQueue,
    is_iwarp: bool,
    memory: MemoryRegion,
    _pd: ProtectionDomain,
}

impl Rig {
    fn new(context: &Context, is_iwarp: bool) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let memory = pd.register(4096, ACCESS)?;
        let options = ConnectionOptions::new(PORT, 0).access(ACCESS);
        let cq = || context.create_cq(2 * DEPTH);
        let connect = |segments,
                       inline,
                       sent: &CompletionQueue,
                       received: &CompletionQueue,
                       srq: Option<&SharedReceiveQueue>| {
            let qp = pd.rc(sent).receive_cq(received).send_depth(DEPTH).receive_depth(DEPTH);
            let qp = qp.segments(segments).inline(inline);
            let mut qp = match srq {
                Some(srq) => qp.srq(srq).create()?,
                None => qp.create()?,
            };
            let end = qp.endpoint(&options, 1)?;
            qp.connect(&options, &end, &end)?;
            Ok::<_, uverbs::Error>(qp)
        };
        let pair = |segments, inline, srq: Option<&SharedReceiveQueue>| {
            let (sent, received) = (cq()?, cq()?);
            Ok::<_, uverbs::Error>(Pair {
                qp: connect(segments, inline, &sent, &received, srq)?,
                sent,
                received,
            })
        };
        let shared = pd.create_srq(DEPTH)?;
        let datagrams = || {
            let (sent, received) = (cq()?, cq()?);
            let qp = pd.ud(&sent).receive_cq(&received).send_depth(DEPTH).receive_depth(DEPTH);
            let mut qp = qp.inline(MESSAGE as u32).create()?;
            let ah = pd.create_ah(&options.route(&qp.endpoint(&options, 1)?))?;
            qp.activate(&options, QKEY, 1)?;
            Ok::<_, uverbs::Error>((Pair { qp, sent, received }, ah))
        };
        let datagrams = if is_iwarp { None } else { Some(datagrams()?) };
        let common = cq()?;
        let both = (connect(1, MESSAGE as u32, &common, &common, None)?, common);
        let (sent, received) = (cq()?, cq()?);
        let several =
            (0..PAIRS).map(|_| connect(1, MESSAGE as u32, &sent, &received, None)).collect::<Result<_>>()?;
        Ok(Self {
            own: pair(1, MESSAGE as u32, None)?,
            wide: pair(PIECES as u32, if is_iwarp { LARGEST_OF_IWARP } else { LARGEST } as u32, None)?,
            sharing: pair(1, MESSAGE as u32, Some(&shared))?,
            datagrams,
            both,
            several: (several, sent, received),
            shared,
            is_iwarp,
            memory,
            _pd: pd,
        })
    }

    fn turn(&mut self, rows: &mut Rows) -> Result<()> {
        for count in [1, MANY] {
            self.turn_of(rows, count)?;
            self.turn_pieces(rows, count)?;
            self.turn_others(rows, count)?;
        }
        self.turn_polls(rows)
    }

    fn turn_of(&mut self, rows: &mut Rows, count: usize) -> Result<()> {
        let Self { own, memory, .. } = self;
        let (room, bytes) = ([memory.segment(..MESSAGE)?], [1; MESSAGE]);
        let receives = receives(count, &room);
        let receives = black_box(&receives[..]);
        let sends = sends(count, |id| SendRequest::new(id, Operation::Send, &room));
        let sends = black_box(&sends[..]);
        rows.measure("post receive", count, || assert!(own.qp.post_receive(receives).is_ok()));
        rows.measure("post send", count, || assert!(own.qp.post_send(sends).is_ok()));
        yield_now();
        let mut batch = Completion::batch::<MANY>();
        let places = black_box(&mut batch[..count]);
        rows.measure("poll sent", count, || poll(&mut own.sent, places));
        rows.measure("poll", count, || poll(&mut own.received, places));
        let sends = self::sends(count, |id| SendRequest::inline(id, Operation::Send, &bytes));
        let sends = black_box(&sends[..]);
        rows.measure("", count, || assert!(own.qp.post_receive(receives).is_ok()));
        rows.measure("post send, inline", count, || assert!(own.qp.post_send(sends).is_ok()));
        own.settle();
        Ok(())
    }

    fn turn_pieces(&mut self, rows: &mut Rows, count: usize) -> Result<()> {
        let Self { wide, memory, is_iwarp, .. } = self;
        let large = [memory.segment(1024..1536)?];
        let receives = receives(count, &large);
        let receives = black_box(&receives[..]);
        let mut exchange = |rows: &mut Rows, name: &str, sends: Vec<SendRequest<'_, Operation>>| {
            let sends = black_box(&sends[..]);
            rows.measure("", count, || assert!(wide.qp.post_receive(receives).is_ok()));
            rows.measure(name, count, || assert!(wide.qp.post_send(sends).is_ok()));
            wide.settle();
        };
        let piece =
            |number: usize| memory.segment(64 * number..64 * number + if number == 0 { 16 } else { 48 });
        let pieces = [piece(0)?, piece(1)?, piece(2)?, piece(3)?];
        for (name, number) in [("post send, 2 pieces", 2), ("post send, 4 pieces", PIECES)] {
            exchange(rows, name, sends(count, |id| SendRequest::new(id, Operation::Send, &pieces[..number])));
        }
        let bytes = [1; LARGEST];
        for (name, len) in [
            ("post send, inline 1", 1),
            ("post send, inline 8", 8),
            ("post send, inline 64", 64),
            ("post send, inline 80", LARGEST_OF_IWARP),
            ("post send, inline 128", 128),
            ("post send, inline 200", LARGEST),
        ] {
            if if *is_iwarp { len > LARGEST_OF_IWARP } else { len == LARGEST_OF_IWARP } {
                continue;
            }
            exchange(rows, name, sends(count, |id| SendRequest::inline(id, Operation::Send, &bytes[..len])));
        }
        Ok(())
    }

    fn turn_others(&mut self, rows: &mut Rows, count: usize) -> Result<()> {
        let Self { own, sharing, shared, datagrams, memory, .. } = self;
        let room = [memory.segment(..MESSAGE)?];
        let mut batch = Completion::batch::<MANY>();
        let places = black_box(&mut batch[..count]);
        let requests = receives(count, &room);
        let requests = black_box(&requests[..]);
        rows.measure("post shared receive", count, || assert!(shared.post_receive(requests).is_ok()));
        let messages = sends(count, |id| SendRequest::new(id, Operation::Send, &room));
        rows.measure("", count, || assert!(sharing.qp.post_send(&messages).is_ok()));
        yield_now();
        rows.measure("poll shared receive", count, || poll(&mut sharing.received, places));
        sharing.settle();
        let remote = Remote { address: memory.address() + 2048, rkey: memory.rkey() };
        for (operation, post, polled) in [
            (Operation::Write(remote), "post write", "poll write"),
            (Operation::Read(remote), "post read", "poll read"),
        ] {
            let sends = sends(count, |id| SendRequest::new(id, operation, &room));
            let sends = black_box(&sends[..]);
            rows.measure(post, count, || assert!(own.qp.post_send(sends).is_ok()));
            yield_now();
            rows.measure(polled, count, || poll(&mut own.sent, places));
        }
        let Some((datagrams, ah)) = datagrams else { return Ok(()) };
        let datagram = Datagram { to: ah, qp_num: datagrams.qp.number(), qkey: QKEY, immediate: None };
        let wide = [memory.segment(1024..1024 + HEADER + MESSAGE)?];
        let requests = receives(count, &wide);
        rows.measure("", count, || assert!(datagrams.qp.post_receive(&requests).is_ok()));
        let sends = sends(count, |id| SendRequest::new(id, datagram, &room));
        let sends = black_box(&sends[..]);
        rows.measure("post datagram", count, || assert!(datagrams.qp.post_send(sends).is_ok()));
        yield_now();
        rows.measure("poll datagram", count, || poll(&mut datagrams.received, places));
        datagrams.settle();
        Ok(())
    }

    fn turn_polls(&mut self, rows: &mut Rows) -> Result<()> {
        let Self { own, both: (qp, common), several: (several, sent, received), memory, .. } = self;
        let (room, bytes) = ([memory.segment(..MESSAGE)?], [1; MESSAGE]);
        let mut batch = Completion::batch::<MANY>();
        let one = |id| SendRequest::new(id, Operation::Send, &room);
        let two = receives(2, &room);
        rows.measure("", 2, || assert!(own.qp.post_receive(&two).is_ok()));
        let requests = sends(2, one);
        rows.measure("", 2, || assert!(own.qp.post_send(&requests).is_ok()));
        yield_now();
        let places = black_box(&mut batch[..2]);
        rows.measure("poll 2", 2, || poll(&mut own.received, places));
        own.settle();
        rows.measure("", 2, || assert!(qp.post_receive(&two[..1]).is_ok()));
        rows.measure("", 2, || assert!(qp.post_send(&requests[..1]).is_ok()));
        yield_now();
        rows.measure("poll 2, a send and a receive", 2, || poll(common, places));
        let four = receives(4, &room);
        rows.measure("", MANY, || assert!(qp.post_receive(&four).is_ok()));
        let remote = Remote { address: memory.address() + 2048, rkey: memory.rkey() };
        let several_kinds = sends(12, |id| match (id, id % 4) {
            (..8, 0) => SendRequest::new(id, Operation::Send, &room),
            (..8, 1) => SendRequest::inline(id, Operation::Send, &bytes),
            (_, 1 | 3) => SendRequest::new(id, Operation::Read(remote), &room),
            _ => SendRequest::new(id, Operation::Write(remote), &room),
        });
        rows.measure("", MANY, || assert!(qp.post_send(&several_kinds).is_ok()));
        yield_now();
        let places = black_box(&mut batch[..]);
        rows.measure("poll 16, of several kinds", MANY, || poll(common, places));
        for number in 0..MANY * rows.burst(MANY) {
            let qp = &mut several[number % PAIRS];
            assert!(qp.post_receive(&two[..1]).is_ok() && qp.post_send(&requests[..1]).is_ok());
            yield_now();
        }
        rows.measure("poll 16, of queue pairs in turn", MANY, || poll(received, places));
        settle(sent);
        let places = black_box(&mut batch[..1]);
        rows.measure("poll empty", 1, || assert_eq!(own.received.poll(places), 0));
        Ok(())
    }
}

fn run(device: &str) -> Result<()> {
    let context = uverbs::devices()?.named(device)?.open()?;
    let driver = uverbs::devices()?.named(device)?.driver();
    if driver == "efa" {
        return datagrams::run(&context);
    }
    let mut rig = Rig::new(&context, driver == "siw")?;
    rows::measure(|rows| rig.turn(rows))
}

fn main() -> ExitCode {
    let Some(device) = std::env::args().nth(1) else {
        eprintln!("usage: played-messages DEVICE");
        return ExitCode::from(2);
    };
    match run(&device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("played-messages: {error}");
            ExitCode::FAILURE
        }
    }
}
