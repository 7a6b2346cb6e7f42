//! What posting and polling cost in user space through this crate: what `path.c` measures through C, counted in the same way.
//!
//! Safe Rust cannot set the trap flag. So `counted.c`, which is preloaded, does it in `getppid`, which nothing else calls here.

use std::hint::black_box;
use std::os::unix::process::parent_id;

use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Eth, FlowRule, Frame, Operation,
    ProtectionDomain, QpType, QueuePair, ReceiveRequest, Segment, SendRequest, SharedReceiveQueue,
};

use crate::operations::{DEPTH, GID_INDEX, MANY, PAGE, PORT, open, settle};

/// The turns before those that are counted: they use every slot of each queue at least once.
pub(crate) const WARM: usize = 32;
pub(crate) const TURNS: usize = 3;
/// A message is of no more than its first bytes. As a frame it is for the address that a flow brings to the queue pair.
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    (frame[0], frame[5], frame[6], frame[11], frame[12], frame[13]) = (2, 1, 2, 1, 0x88, 0xb5);
    frame
};
const MESSAGE: usize = 32;

/// The names of each row, for one request and for several.
const POST_RECEIVE: [&str; 2] = ["post receive", "post receive 16"];
const POST_SEND: [&str; 2] = ["post send", "post send 16"];
const POST_INLINE: [&str; 2] = ["post send, inline", "post send 16, inline"];
const POLL: [&str; 2] = ["poll", "poll 16"];
const POLL_EMPTY: &str = "poll empty";
const POST_SHARED: [&str; 2] = ["post shared receive", "post shared receive 16"];

fn of(names: [&'static str; 2], many: usize) -> &'static str {
    names[usize::from(many > 1)]
}

/// The least instructions of each operation, with the system calls and the calls of the allocator then.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) is_warm: bool,
    rows: Vec<(&'static str, [u32; 3])>,
}

impl Rows {
    #[inline]
    pub(crate) fn count(&mut self, name: &'static str, work: impl FnOnce()) {
        if !self.is_warm {
            return work();
        }
        let begun = parent_id();
        work();
        let counts = [parent_id(), parent_id(), parent_id()];
        assert_eq!(begun, 0, "counted.c is preloaded");
        match self.rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => row.1 = row.1.min(counts),
            None => self.rows.push((name, counts)),
        }
    }

    pub(crate) fn print(&self) {
        let nothing = self.rows[0].1[0];
        for (name, [instructions, calls, allocations]) in &self.rows[1..] {
            println!("{name}: {} {calls} {allocations}", instructions - nothing);
        }
    }
}

/// A queue pair that sends to itself.
struct Loop<'a, T: QpType> {
    qp: QueuePair<T>,
    operation: T::Operation<'a>,
    sent: CompletionQueue,
    received: CompletionQueue,
}

impl<'a, T: QpType> Loop<'a, T> {
    fn sends<'s>(&self, many: usize, room: &'s [Segment<'s>]) -> Vec<SendRequest<'s, T::Operation<'a>>> {
        (0..many as u64).map(|id| SendRequest::new(id, self.operation, room).signaled()).collect()
    }

    /// `many` messages, once from the memory of `room`, once inline.
    fn messages(&mut self, rows: &mut Rows, many: usize, room: &[Segment<'_>], bytes: &[u8]) {
        let sends = self.sends(many, room);
        let Self { qp, operation, sent, received } = self;
        let receives = receives(many, room);
        let inline =
            (0..many as u64).map(|id| SendRequest::inline(id, *operation, bytes).signaled()).collect();
        let mut batch = Completion::batch::<MANY>();
        for (name, sends) in [(POST_SEND, sends), (POST_INLINE, inline)] {
            let (receives, sends) = (black_box(&receives[..]), black_box(&sends[..]));
            rows.count(of(POST_RECEIVE, many), || assert!(qp.post_receive(receives).is_ok()));
            rows.count(of(name, many), || assert!(qp.post_send(sends).is_ok()));
            settle(sent, many);
            let places = black_box(&mut batch[..many]);
            rows.count(of(POLL, many), || assert_eq!(received.poll(places), many));
            assert!(batch[..many].iter().all(|completion| completion.len as usize == bytes.len()));
        }
    }
}

fn receives<'a>(many: usize, room: &'a [Segment<'a>]) -> Vec<ReceiveRequest<'a>> {
    (0..many as u64).map(|id| ReceiveRequest::new(id, room)).collect()
}

/// Measures with messages over a reliable connection.
pub(crate) fn messages(device: &str) -> uverbs::Result<()> {
    let context = open(device)?;
    let pd = context.alloc_pd()?;
    let shared = pd.create_srq(DEPTH)?;
    let connected = |shared: Option<&SharedReceiveQueue>| {
        let (sent, received) = (context.create_cq(DEPTH)?, context.create_cq(DEPTH)?);
        let qp = pd.rc(&sent).receive_cq(&received).send_depth(DEPTH).receive_depth(DEPTH);
        let qp = qp.inline(MESSAGE as u32);
        let mut qp = match shared {
            Some(shared) => qp.srq(shared).create()?,
            None => qp.create()?,
        };
        // A port of InfiniBand may have one address only.
        let index = if context.gid(PORT, GID_INDEX.into()).is_ok() { GID_INDEX } else { 0 };
        let options = ConnectionOptions::new(PORT, index);
        let end = qp.endpoint(&options, 1)?;
        qp.connect(&options, &end, &end)?;
        Ok::<_, uverbs::Error>(Loop { qp, operation: Operation::Send, sent, received })
    };
    let sharing = connected(Some(&shared))?;
    measure(&pd, connected(None)?, &FRAME[..MESSAGE], Some((shared, sharing)))
}

/// Measures with raw Ethernet frames, which the wire has to bring back.
pub(crate) fn frames(device: &str) -> uverbs::Result<()> {
    let context = open(device)?;
    let pd = context.alloc_pd()?;
    let (sent, received) = (context.create_cq(DEPTH)?, context.create_cq(DEPTH)?);
    let qp = pd.raw_packet(&sent).receive_cq(&received).send_depth(DEPTH).receive_depth(DEPTH);
    let qp = qp.inline(FRAME.len() as u32).connect(PORT)?;
    let own = FRAME.first_chunk().expect("an address");
    let _flow = qp.create_flow(&FlowRule::normal(PORT).eth(Eth::any().dst(*own)))?;
    measure(&pd, Loop { qp, operation: Frame::Whole, sent, received }, &FRAME, None)
}

fn measure<T: QpType>(
    pd: &ProtectionDomain,
    mut own: Loop<'_, T>,
    bytes: &[u8],
    mut shared: Option<(SharedReceiveQueue, Loop<'_, T>)>,
) -> uverbs::Result<()> {
    let memory = pd.register(PAGE, AccessFlags::LOCAL_WRITE)?;
    memory.write(0, bytes)?;
    let room = [memory.segment(0..bytes.len())?];
    let mut rows = Rows::default();
    for turn in 0..WARM + TURNS {
        rows.is_warm = turn >= WARM;
        rows.count("nothing", || ());
        for many in [1, MANY] {
            own.messages(&mut rows, many, &room, bytes);
        }
        let mut batch = Completion::batch::<1>();
        let places = black_box(&mut batch[..]);
        rows.count(POLL_EMPTY, || assert_eq!(own.received.poll(places), 0));
        for many in [1, MANY] {
            let Some((queue, sharing)) = &mut shared else { break };
            let requests = receives(many, &room);
            let requests = black_box(&requests[..]);
            rows.count(of(POST_SHARED, many), || assert!(queue.post_receive(requests).is_ok()));
            sharing.qp.post_send(&sharing.sends(many, &room))?;
            settle(&mut sharing.sent, many);
            settle(&mut sharing.received, many);
        }
    }
    rows.print();
    Ok(())
}
