//! What posting and polling cost in user space through this crate. `path.c` measures the same through C, and counts in the same way.
//!
//! Safe Rust cannot set the trap flag. So the preloaded library `counted.c` sets it in `getppid`, which nothing else calls here.

use std::hint::black_box;
use std::os::unix::process::parent_id;
use std::thread::sleep;
use std::time::Duration;

use uverbs::{
    AccessFlags, AddressHandle, Completion, CompletionQueue, ConnectionOptions, Datagram, Eth, FlowRule,
    Frame, Operation, QpType, QueuePair, Rc, ReceiveRequest, Remote, Segment, SendRequest,
    SharedReceiveQueue, Ud,
};

use crate::operations::{DEPTH, GID_INDEX, MANY, PAGE, PORT, open, settle};

/// The turns before those that are counted. They use every slot of each queue at least once.
pub(crate) const WARM: usize = 32;
pub(crate) const TURNS: usize = 3;
/// A message consists of no more than the first bytes of this. A frame has the address for which a flow rule sends frames to the queue
/// pair.
pub(crate) const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    (frame[0], frame[5], frame[6], frame[11], frame[12], frame[13]) = (2, 1, 2, 1, 0x88, 0xb5);
    frame
};
pub(crate) const MESSAGE: usize = 32;
/// The bytes of a global header before a received datagram, and a queue key.
pub(crate) const HEADER: usize = 40;
pub(crate) const QKEY: u32 = 0x11;
/// A time in which everything that was posted certainly completes.
const SURELY: Duration = Duration::from_millis(20);
pub(crate) const ACCESS: AccessFlags =
    AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

/// The names of each row, for one request and for several.
pub(crate) const POST_RECEIVE: [&str; 2] = ["post receive", "post receive 16"];
pub(crate) const POST_SEND: [&str; 2] = ["post send", "post send 16"];
pub(crate) const POST_INLINE: [&str; 2] = ["post send, inline", "post send 16, inline"];
pub(crate) const POLL: [&str; 2] = ["poll", "poll 16"];
pub(crate) const POLL_EMPTY: &str = "poll empty";
pub(crate) const POST_WRITE: [&str; 2] = ["post write", "post write 16"];
pub(crate) const POLL_WRITE: [&str; 2] = ["poll write", "poll write 16"];
pub(crate) const POST_READ: [&str; 2] = ["post read", "post read 16"];
pub(crate) const POLL_READ: [&str; 2] = ["poll read", "poll read 16"];
pub(crate) const POST_DATAGRAM: [&str; 2] = ["post datagram", "post datagram 16"];
pub(crate) const POLL_DATAGRAM: [&str; 2] = ["poll datagram", "poll datagram 16"];
pub(crate) const POST_SHARED: [&str; 2] = ["post shared receive", "post shared receive 16"];
pub(crate) const POLL_SHARED: [&str; 2] = ["poll shared receive", "poll shared receive 16"];

pub(crate) fn of(names: [&'static str; 2], many: usize) -> &'static str {
    names[usize::from(many > 1)]
}

/// The smallest number of instructions of each operation, with the system calls and the allocator calls of that turn.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) is_warm: bool,
    rows: Vec<(&'static str, [u32; 3])>,
}

impl Rows {
    #[inline]
    pub(crate) fn count(&mut self, name: &'static str, work: impl FnOnce()) {
        self.count_if(name, || {
            work();
            true
        });
    }

    /// The same for work that reports whether it counts.
    #[inline]
    fn count_if(&mut self, name: &'static str, work: impl FnOnce() -> bool) {
        if !self.is_warm {
            work();
            return;
        }
        let begun = parent_id();
        let is_counted = work();
        let counts = [parent_id(), parent_id(), parent_id()];
        assert_eq!(begun, 0, "counted.c is preloaded");
        if !is_counted {
            return;
        }
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

/// Polls once for everything that completes. If something has not come by then it is waited for, and the poll does not count.
pub(crate) fn poll_when_there(rows: &mut Rows, name: &'static str, queue: &mut CompletionQueue, many: usize) {
    let mut batch = Completion::batch::<MANY>();
    let places = black_box(&mut batch[..many]);
    if rows.is_warm {
        sleep(SURELY);
    }
    let mut taken = 0;
    rows.count_if(name, || {
        taken = queue.poll(places);
        taken == many
    });
    settle(queue, many - taken);
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

    /// One message and several, and polls that find nothing.
    fn turn(&mut self, rows: &mut Rows, room: &[Segment<'_>], bytes: &[u8]) {
        rows.count("nothing", || ());
        for many in [1, MANY] {
            self.messages(rows, many, room, bytes);
        }
        let mut batch = Completion::batch::<1>();
        let places = black_box(&mut batch[..]);
        rows.count(POLL_EMPTY, || assert_eq!(self.received.poll(places), 0));
    }

    /// Sends `many` messages, once from the memory of `room` and once inline.
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

impl Loop<'_, Rc> {
    /// `many` writes, and as many reads.
    fn remote(&mut self, rows: &mut Rows, many: usize, room: &[Segment<'_>], remote: Remote) {
        let Self { qp, sent, .. } = self;
        for (operation, post, poll) in [
            (Operation::Write(remote), POST_WRITE, POLL_WRITE),
            (Operation::Read(remote), POST_READ, POLL_READ),
        ] {
            let sends: Vec<_> =
                (0..many as u64).map(|id| SendRequest::new(id, operation, room).signaled()).collect();
            let sends = black_box(&sends[..]);
            rows.count(of(post, many), || assert!(qp.post_send(sends).is_ok()));
            poll_when_there(rows, of(poll, many), sent, many);
        }
    }
}

/// A queue pair of datagrams that sends to itself.
struct Datagrams {
    qp: QueuePair<Ud>,
    to: AddressHandle,
    sent: CompletionQueue,
    received: CompletionQueue,
}

impl Datagrams {
    /// Sends `many` datagrams into `wide`, which has room for a header.
    fn messages(&mut self, rows: &mut Rows, many: usize, room: &[Segment<'_>], wide: &[Segment<'_>]) {
        let Self { qp, to, sent, received } = self;
        let datagram = Datagram { to, qp_num: qp.number(), qkey: QKEY, immediate: None };
        let sends: Vec<_> =
            (0..many as u64).map(|id| SendRequest::new(id, datagram, room).signaled()).collect();
        let sends = black_box(&sends[..]);
        assert!(qp.post_receive(&receives(many, wide)).is_ok());
        rows.count(of(POST_DATAGRAM, many), || assert!(qp.post_send(sends).is_ok()));
        settle(sent, many);
        poll_when_there(rows, of(POLL_DATAGRAM, many), received, many);
    }
}

/// What only the lane with messages has: a shared receive queue, a queue pair that uses it, and a queue pair of datagrams.
struct Others<'a> {
    queue: SharedReceiveQueue,
    sharing: Loop<'a, Rc>,
    datagrams: Datagrams,
}

pub(crate) fn receives<'a>(many: usize, room: &'a [Segment<'a>]) -> Vec<ReceiveRequest<'a>> {
    (0..many as u64).map(|id| ReceiveRequest::new(id, room)).collect()
}

/// Measures with messages over a reliable connection, and with datagrams.
pub(crate) fn messages(device: &str) -> uverbs::Result<()> {
    let context = open(device)?;
    let pd = context.alloc_pd()?;
    let queue = pd.create_srq(DEPTH)?;
    // An InfiniBand port may have only one address.
    let index = if context.gid(PORT, GID_INDEX.into()).is_ok() { GID_INDEX } else { 0 };
    let options = ConnectionOptions::new(PORT, index).access(ACCESS);
    let connected = |shared: Option<&SharedReceiveQueue>| {
        let (sent, received) = (context.create_cq(DEPTH)?, context.create_cq(DEPTH)?);
        let qp = pd.rc(&sent).receive_cq(&received).send_depth(DEPTH).receive_depth(DEPTH);
        let qp = qp.inline(MESSAGE as u32);
        let mut qp = match shared {
            Some(shared) => qp.srq(shared).create()?,
            None => qp.create()?,
        };
        let end = qp.endpoint(&options, 1)?;
        qp.connect(&options, &end, &end)?;
        Ok::<_, uverbs::Error>(Loop { qp, operation: Operation::Send, sent, received })
    };
    let datagrams = || {
        let (sent, received) = (context.create_cq(DEPTH)?, context.create_cq(DEPTH)?);
        let qp = pd.ud(&sent).receive_cq(&received).send_depth(DEPTH).receive_depth(DEPTH);
        let mut qp = qp.inline(MESSAGE as u32).create()?;
        let to = pd.create_ah(&options.route(&qp.endpoint(&options, 1)?))?;
        qp.activate(&options, QKEY, 1)?;
        Ok::<_, uverbs::Error>(Datagrams { qp, to, sent, received })
    };
    let mut others = Others { sharing: connected(Some(&queue))?, datagrams: datagrams()?, queue };
    let mut own = connected(None)?;
    let memory = pd.register(PAGE, ACCESS)?;
    let room = [memory.segment(..MESSAGE)?];
    let wide = [memory.segment(PAGE / 4..PAGE / 4 + HEADER + MESSAGE)?];
    let remote = Remote { address: memory.address() + PAGE as u64 / 2, rkey: memory.rkey() };
    let mut rows = Rows::default();
    for turn in 0..WARM + TURNS {
        rows.is_warm = turn >= WARM;
        own.turn(&mut rows, &room, &FRAME[..MESSAGE]);
        for many in [1, MANY] {
            let Others { queue, sharing, datagrams } = &mut others;
            let requests = receives(many, &room);
            let requests = black_box(&requests[..]);
            rows.count(of(POST_SHARED, many), || assert!(queue.post_receive(requests).is_ok()));
            sharing.qp.post_send(&sharing.sends(many, &room))?;
            settle(&mut sharing.sent, many);
            let mut batch = Completion::batch::<MANY>();
            let places = black_box(&mut batch[..many]);
            rows.count(of(POLL_SHARED, many), || assert_eq!(sharing.received.poll(places), many));
            own.remote(&mut rows, many, &room, remote);
            datagrams.messages(&mut rows, many, &room, &wide);
        }
    }
    rows.print();
    Ok(())
}

/// Measures with raw Ethernet frames, which the wire must bring back.
pub(crate) fn frames(device: &str) -> uverbs::Result<()> {
    let context = open(device)?;
    let pd = context.alloc_pd()?;
    let (sent, received) = (context.create_cq(DEPTH)?, context.create_cq(DEPTH)?);
    let qp = pd.raw_packet(&sent).receive_cq(&received).send_depth(DEPTH).receive_depth(DEPTH);
    let qp = qp.inline(FRAME.len() as u32).connect(PORT)?;
    let own = FRAME.first_chunk().expect("an address");
    let _flow = qp.create_flow(&FlowRule::normal(PORT).eth(Eth::any().dst(*own)))?;
    let mut own = Loop { qp, operation: Frame::Whole, sent, received };
    let memory = pd.register(PAGE, AccessFlags::LOCAL_WRITE)?;
    memory.write(0, &FRAME)?;
    let room = [memory.segment(..FRAME.len())?];
    let mut rows = Rows::default();
    for turn in 0..WARM + TURNS {
        rows.is_warm = turn >= WARM;
        own.turn(&mut rows, &room, &FRAME);
    }
    rows.print();
    Ok(())
}
