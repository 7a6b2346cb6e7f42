//! What posting and polling cost over a connection that the kernel's connection manager has made. `siw.c` measures the same through C.

use std::hint::black_box;

use uverbs::{
    Completion, CompletionQueue, Operation, ProtectionDomain, QueuePair, Rc, Remote, Segment, SendRequest,
    SharedReceiveQueue,
};

use crate::manager::{Manager, address};
use crate::operations::{DEPTH, MANY, PAGE, open, settle};
use crate::path::{
    ACCESS, FRAME, MESSAGE, POLL, POLL_EMPTY, POLL_READ, POLL_SHARED, POLL_WRITE, POST_INLINE, POST_READ,
    POST_RECEIVE, POST_SEND, POST_SHARED, POST_WRITE, Rows, TURNS, WARM, of, poll_when_there, receives,
};

/// Two connected queue pairs. One sends to the other.
struct Pair {
    here: QueuePair<Rc>,
    there: QueuePair<Rc>,
    _connection: Manager,
}

impl Pair {
    fn new(
        pd: &ProtectionDomain,
        [sent, received]: [&CompletionQueue; 2],
        shared: Option<&SharedReceiveQueue>,
    ) -> uverbs::Result<Self> {
        let builder = || {
            let qp = pd.rc(sent).receive_cq(received).send_depth(DEPTH).receive_depth(DEPTH);
            qp.inline(MESSAGE as u32)
        };
        let there = match shared {
            Some(shared) => builder().srq(shared).create()?,
            None => builder().create()?,
        };
        let here = builder().create()?;
        let address = address().expect("UVERBS_TEST_ADDRESS");
        let _connection = Manager::connect(address, &here, &there);
        Ok(Self { here, there, _connection })
    }
}

fn sends<'s>(many: usize, operation: Operation, room: &'s [Segment<'s>]) -> Vec<SendRequest<'s, Operation>> {
    (0..many as u64).map(|id| SendRequest::new(id, operation, room).signaled()).collect()
}

pub(crate) fn messages(device: &str) -> uverbs::Result<()> {
    let context = open(device)?;
    let pd = context.alloc_pd()?;
    let (mut sent, mut received) = (context.create_cq(DEPTH)?, context.create_cq(DEPTH)?);
    let mut queue = pd.create_srq(DEPTH)?;
    let mut own = Pair::new(&pd, [&sent, &received], None)?;
    let mut sharing = Pair::new(&pd, [&sent, &received], Some(&queue))?;
    let memory = pd.register(PAGE, ACCESS)?;
    let room = [memory.segment(..MESSAGE)?];
    let remote = Remote { address: memory.address() + PAGE as u64 / 2, rkey: memory.rkey() };
    let bytes = &FRAME[..MESSAGE];
    let mut rows = Rows::default();
    for turn in 0..WARM + TURNS {
        rows.is_warm = turn >= WARM;
        rows.count("nothing", || ());
        for many in [1, MANY] {
            let requests = receives(many, &room);
            let requests = black_box(&requests[..]);
            let plain = sends(many, Operation::Send, &room);
            let inline: Vec<_> = (0..many as u64)
                .map(|id| SendRequest::inline(id, Operation::Send, bytes).signaled())
                .collect();
            for (name, sends) in [(POST_SEND, plain), (POST_INLINE, inline)] {
                let sends = black_box(&sends[..]);
                rows.count(of(POST_RECEIVE, many), || assert!(own.there.post_receive(requests).is_ok()));
                rows.count(of(name, many), || assert!(own.here.post_send(sends).is_ok()));
                settle(&mut sent, many);
                poll_when_there(&mut rows, of(POLL, many), &mut received, many);
            }
            for (operation, post, poll) in [
                (Operation::Write(remote), POST_WRITE, POLL_WRITE),
                (Operation::Read(remote), POST_READ, POLL_READ),
            ] {
                let sends = sends(many, operation, &room);
                let sends = black_box(&sends[..]);
                rows.count(of(post, many), || assert!(own.here.post_send(sends).is_ok()));
                poll_when_there(&mut rows, of(poll, many), &mut sent, many);
            }
            rows.count(of(POST_SHARED, many), || assert!(queue.post_receive(requests).is_ok()));
            sharing.here.post_send(&sends(many, Operation::Send, &room))?;
            settle(&mut sent, many);
            poll_when_there(&mut rows, of(POLL_SHARED, many), &mut received, many);
        }
        let mut batch = Completion::batch::<1>();
        let places = black_box(&mut batch[..]);
        rows.count(POLL_EMPTY, || assert_eq!(received.poll(places), 0));
    }
    rows.print();
    Ok(())
}
