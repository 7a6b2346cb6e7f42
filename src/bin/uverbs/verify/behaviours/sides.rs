//! Two sides that communicate: queue pairs of one device, with their own memory and completion queues.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Instant;

use uverbs::cm::{Link, Manager};
use uverbs::{
    Completion, CompletionQueue, ConnectionOptions, Context, ErrorKind, EventKind, MemoryRegion, Operation,
    ProtectionDomain, QpType, QueuePair, Rc, ReceiveRequest, Remote, SendRequest, Status, Subject,
};

use super::ground::{ALL, LIMIT};
use super::inline::with_inline;
use super::{Ground, Held, Optional, Stopped, differs};

/// One side: a queue pair with its own memory and completion queue.
pub(crate) struct Side<T: QpType> {
    pub(crate) qp: QueuePair<T>,
    pub(crate) cq: CompletionQueue,
    pub(crate) memory: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
}

impl<T: QpType> Side<T> {
    pub(crate) fn new(
        context: &Context,
        make: impl FnOnce(&ProtectionDomain, &CompletionQueue) -> uverbs::Result<QueuePair<T>>,
    ) -> Held<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(32).optional()?;
        let qp = make(&pd, &cq).optional()?;
        let memory = pd.register(1 << 16, ALL).optional()?;
        Ok(Self { qp, cq, memory, pd })
    }

    pub(crate) fn receive(&mut self, wr_id: u64, range: Range<usize>) -> Held {
        let segments = [self.memory.segment(range)?];
        Ok(self.qp.post_receive(&[ReceiveRequest::new(wr_id, &segments)])?)
    }

    pub(crate) fn send(&mut self, wr_id: u64, operation: T::Operation<'_>, range: Range<usize>) -> Held {
        let segments = [self.memory.segment(range)?];
        Ok(self.qp.post_send(&[SendRequest::new(wr_id, operation, &segments).signaled()])?)
    }

    /// Sends these bytes inline, or from the beginning of its memory if the queue pair has no room for them.
    pub(crate) fn send_bytes(&mut self, wr_id: u64, operation: T::Operation<'_>, bytes: &[u8]) -> Held {
        if bytes.len() > self.qp.capacity().inline as usize {
            self.memory.write(0, bytes)?;
            return self.send(wr_id, operation, 0..bytes.len());
        }
        Ok(self.qp.post_send(&[SendRequest::inline(wr_id, operation, bytes).signaled()])?)
    }

    /// The next completion, which takes time on a device of the kernel.
    pub(crate) fn completion(&mut self, ground: &Ground<'_>) -> Held<Completion> {
        let start = Instant::now();
        let mut batch = Completion::batch::<1>();
        while self.cq.poll(&mut batch) == 0 {
            ground.within(start, "wait for a completion", "none")?;
        }
        Ok(batch[0])
    }

    /// The next completion must be this one. Returns it.
    pub(crate) fn ends(&mut self, ground: &Ground<'_>, wr_id: u64, status: Status) -> Held<Completion> {
        let completion = self.completion(ground)?;
        super::same("a completion", (completion.wr_id, completion.status), (wr_id, status))?;
        Ok(completion)
    }

    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.memory.address() + offset, rkey: self.memory.rkey() }
    }

    pub(crate) fn bytes<const N: usize>(&self, offset: usize) -> Held<[u8; N]> {
        let mut bytes = [0; N];
        self.memory.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn vec(&self, offset: usize, len: usize) -> Held<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// Two sides that are connected, and what keeps them so.
pub(crate) struct Pair {
    pub(crate) one: Side<Rc>,
    pub(crate) two: Side<Rc>,
    pub(crate) _links: Option<[Link; 2]>,
}

/// A queue pair with room for what behaviours post.
pub(crate) fn make(pd: &ProtectionDomain, cq: &CompletionQueue) -> uverbs::Result<QueuePair<Rc>> {
    with_inline(|bytes| pd.rc(cq).send_depth(16).receive_depth(32).inline(bytes).create())
}

/// A connected pair, on devices whose queue pairs the program itself connects.
pub(crate) fn rc_pair(ground: &Ground<'_>) -> Held<Pair> {
    rc_pair_with(ground, |_| {})
}

/// A pair with other options than those of [`Ground::options`].
pub(crate) fn rc_pair_with(ground: &Ground<'_>, change: impl FnOnce(&mut ConnectionOptions)) -> Held<Pair> {
    rc_pair_of(&ground.open()?, ground, change, |_, _| Ok(()))
}

/// A pair on an open device. `before` is called before the two are connected.
pub(crate) fn rc_pair_of(
    context: &Context,
    ground: &Ground<'_>,
    change: impl FnOnce(&mut ConnectionOptions),
    before: impl FnOnce(&mut Side<Rc>, &mut Side<Rc>) -> Held,
) -> Held<Pair> {
    ground.connects()?;
    let (mut one, mut two) = (Side::new(context, make)?, Side::new(context, make)?);
    before(&mut one, &mut two)?;
    let mut options = ground.options(context)?;
    change(&mut options);
    connect(&options, &mut one.qp, &mut two.qp)?;
    Ok(Pair { one, two, _links: None })
}

/// Connects two queue pairs of one device to each other.
pub(crate) fn connect(options: &ConnectionOptions, one: &mut QueuePair<Rc>, two: &mut QueuePair<Rc>) -> Held {
    let (a, b) = (one.endpoint(options, 17)?, two.endpoint(options, 0xab_cdef)?);
    one.connect(options, &a, &b)?;
    Ok(two.connect(options, &b, &a)?)
}

/// A connected pair on any device: by the connection manager if only that connects the device's queue pairs.
pub(crate) fn joined_pair(ground: &Ground<'_>) -> Held<Pair> {
    let context = ground.open()?;
    join(ground, &context, Side::new(&context, make)?, Side::new(&context, make)?)
}

/// Two sides of any device, connected.
pub(crate) fn join(
    ground: &Ground<'_>,
    context: &Context,
    mut one: Side<Rc>,
    mut two: Side<Rc>,
) -> Held<Pair> {
    if !ground.is_iwarp() {
        connect(&ground.options(context)?, &mut one.qp, &mut two.qp)?;
        return Ok(Pair { one, two, _links: None });
    }
    let skip =
        |why: &str| Stopped::Skipped(format!("only a connection manager connects its queue pairs, {why}"));
    let address = ground.address.ok_or_else(|| skip("and its interface has no address here"))?;
    let manager = Manager::open().map_err(|error| skip(&error.to_string()))?;
    let (a, b) = join_by(&manager, address, one.qp, two.qp)?;
    let one = Side { qp: a.0, cq: one.cq, memory: one.memory, pd: one.pd };
    let two = Side { qp: b.0, cq: two.cq, memory: two.memory, pd: two.pd };
    Ok(Pair { one, two, _links: Some([a.1, b.1]) })
}

type Joined = (QueuePair<Rc>, Link);

/// Connects two queue pairs over an address of the device. The first is the client, which sends first on iWARP.
fn join_by(
    manager: &Manager,
    address: IpAddr,
    one: QueuePair<Rc>,
    two: QueuePair<Rc>,
) -> Held<(Joined, Joined)> {
    let listener = manager.listen(SocketAddr::new(address, 0))?;
    let resolved = manager.resolve(listener.address()?).run().within(LIMIT)?;
    let connect = resolved.connect(one)?;
    let failed = |error: uverbs::cm::ConnectError| Stopped::from(error.error().clone());
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let accept = listener.next().within(LIMIT)?.accept(two)?;
            accept.establish().within(LIMIT).map_err(failed)
        });
        let client = connect.establish().within(LIMIT).map_err(failed);
        let server = server.join().map_err(|_| differs("accept", "a connection", "the thread has ended"))?;
        Ok((client?.into_parts(), server?.into_parts()))
    })
}

/// Waits for an event about this subject; other events are skipped.
pub(crate) fn event_about(ground: &Ground<'_>, context: &Context, subject: Subject) -> Held<EventKind> {
    let start = Instant::now();
    loop {
        match context.next_event()? {
            Some(event) if event.subject() == subject => return Ok(event.kind),
            Some(_) => {}
            None => ground.within(start, &format!("wait for an event about {subject}"), "none")?,
        }
    }
}

/// Ends the behaviour if there is an event about this subject.
pub(crate) fn no_event_about(context: &Context, subject: Subject) -> Held {
    while let Some(event) = context.next_event()? {
        if event.subject() == subject {
            return Err(differs("events", format_args!("none about {subject}"), event));
        }
    }
    Ok(())
}

/// A write to memory of a side with a key that it does not have.
pub(crate) fn forbidden(side: &Side<Rc>) -> Operation {
    Operation::Write(Remote { rkey: side.memory.rkey() ^ 0xff_ff00, ..side.remote(0) })
}

/// Whether an error says that an operation failed that a counter counts.
pub(crate) fn is_failure(result: uverbs::Result<()>) -> Held {
    match result {
        Err(error) if error.kind() == ErrorKind::OperationFailed => Ok(()),
        Err(error) => Err(differs("wait for a counter", "OperationFailed", error)),
        Ok(()) => Err(differs("wait for a counter", "OperationFailed", "success")),
    }
}
