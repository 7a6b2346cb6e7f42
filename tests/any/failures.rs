//! Messages that fail, on every device: the status, the side that reports it, and the queue pairs that enter the error state.

use std::time::{Duration, Instant};

use crate::commands::ring;
use crate::commands::verbs::*;
use crate::commands::{done, write};
use crate::common::{Answers, on_every_device};
use uverbs::Status;
use uverbs_abi::rxe::Sge;
use uverbs_abi::types::{
    AccessFlags, QpAttrMask, SendFlags, event_type, qp_state, qp_type, wc_status, wr_opcode,
};
use uverbs_abi::write::{ModifyQp, Wc, cmd};

type Two = Pair<()>;

/// The mistake, the request, its status, and the peer's completion or event.
type Bad = (&'static str, fn(&Two) -> Post, Status, Option<Status>, Option<u32>);

const ACCESS: Option<u32> = Some(event_type::QP_ACCESS_ERR);
const INVALID: Option<u32> = Some(event_type::QP_REQ_ERR);

fn with_key(pair: &Two, opcode: u32, key: u32) -> Post {
    Post::new(1, opcode, &[pair.a.piece(0, 8)]).remote(pair.b.address, key)
}

fn forbid(pair: &Two, left: AccessFlags) {
    let request = ModifyQp {
        qp_access_flags: left.bits(),
        attr_mask: (QpAttrMask::STATE | QpAttrMask::ACCESS_FLAGS).bits(),
        ..change(qp_type::RC, pair.qb.handle, 0, qp_state::RTS)
    };
    assert_eq!(pair.b.modify(&request), Ok(()));
}

/// Bad local and remote keys, and operations that are not allowed.
const ROWS: &[Bad] = &[
    (
        "a key of nothing",
        |p| Post::new(1, wr_opcode::SEND, &[Sge { lkey: 1, ..p.a.piece(0, 8) }]),
        Status::LocalProtection,
        None,
        None,
    ),
    (
        "another file's key",
        |p| Post::new(1, wr_opcode::SEND, &[Sge { lkey: p.b.key, ..p.a.piece(0, 8) }]),
        Status::LocalProtection,
        None,
        None,
    ),
    (
        "the end of the region",
        |p| Post::new(1, wr_opcode::SEND, &[p.a.piece(16380, 5)]),
        Status::LocalProtection,
        None,
        None,
    ),
    (
        "an address that wraps",
        |p| Post::new(1, wr_opcode::SEND, &[Sge { addr: u64::MAX, ..p.a.piece(0, 8) }]),
        Status::LocalProtection,
        None,
        None,
    ),
    (
        "a region that cannot be invalidated",
        |p| Post::new(1, wr_opcode::LOCAL_INV, &[]).extra(p.a.key),
        Status::LocalQpOperation,
        None,
        None,
    ),
    ("a memory window", |_| Post::new(1, wr_opcode::BIND_MW, &[]), Status::WindowBind, None, None),
    (
        "a read into nothing",
        |p| {
            let piece = Sge { lkey: 1, ..p.a.piece(0, 8) };
            Post::new(1, wr_opcode::RDMA_READ, &[piece]).remote(p.b.address, p.b.key)
        },
        Status::LocalProtection,
        None,
        None,
    ),
    (
        "a write with a bad key",
        |p| with_key(p, wr_opcode::RDMA_WRITE, p.b.key ^ 1),
        Status::RemoteAccess,
        None,
        ACCESS,
    ),
    (
        "a write with one's own key",
        |p| with_key(p, wr_opcode::RDMA_WRITE, p.a.key),
        Status::RemoteAccess,
        None,
        ACCESS,
    ),
    ("a read with a bad key", |p| with_key(p, wr_opcode::RDMA_READ, 0), Status::RemoteAccess, None, ACCESS),
    (
        "a write beyond the end",
        |p| with_key(p, wr_opcode::RDMA_WRITE, p.b.key).remote(p.b.address + 16380, p.b.key),
        Status::RemoteAccess,
        None,
        ACCESS,
    ),
    (
        "a write before the start",
        |p| with_key(p, wr_opcode::RDMA_WRITE, p.b.key).remote(p.b.address - 1, p.b.key),
        Status::RemoteAccess,
        None,
        ACCESS,
    ),
    (
        "a write that wraps",
        |p| with_key(p, wr_opcode::RDMA_WRITE, p.b.key).remote(u64::MAX, p.b.key),
        Status::RemoteAccess,
        None,
        ACCESS,
    ),
    (
        "a write to what is to be read",
        |p| {
            let key = p.b.register(4096, AccessFlags::REMOTE_READ | AccessFlags::LOCAL_WRITE);
            with_key(p, wr_opcode::RDMA_WRITE, key)
        },
        Status::RemoteAccess,
        None,
        ACCESS,
    ),
    (
        "a read of what is to be written",
        |p| {
            let key = p.b.register(4096, AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE);
            with_key(p, wr_opcode::RDMA_READ, key)
        },
        Status::RemoteAccess,
        None,
        ACCESS,
    ),
    (
        "an atomic operation without permission",
        |p| {
            let key = p.b.register(4096, AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE);
            Post::new(1, wr_opcode::ATOMIC_FETCH_AND_ADD, &[p.a.piece(0, 8)]).atomic(p.b.address, key, 1, 0)
        },
        Status::RemoteAccess,
        None,
        ACCESS,
    ),
    (
        "an atomic operation askew",
        |p| {
            Post::new(1, wr_opcode::ATOMIC_FETCH_AND_ADD, &[p.a.piece(0, 8)]).atomic(
                p.b.address + 4,
                p.b.key,
                1,
                0,
            )
        },
        Status::RemoteInvalidRequest,
        None,
        INVALID,
    ),
    (
        "immediate data with a bad key",
        |p| with_key(p, wr_opcode::RDMA_WRITE_WITH_IMM, 3),
        Status::RemoteAccess,
        Some(Status::RemoteAccess),
        None,
    ),
    (
        "a message too long",
        |p| Post::new(1, wr_opcode::SEND, &[p.a.piece(0, 101)]),
        Status::RemoteInvalidRequest,
        Some(Status::LocalLength),
        None,
    ),
    (
        "a key that cannot be invalidated",
        |p| Post::new(1, wr_opcode::SEND_WITH_INV, &[p.a.piece(0, 8)]).extra(p.b.key),
        Status::Success,
        Some(Status::RemoteInvalidRequest),
        None,
    ),
    (
        "a write that the queue pair forbids",
        |p| {
            forbid(p, AccessFlags::REMOTE_READ);
            with_key(p, wr_opcode::RDMA_WRITE, p.b.key)
        },
        Status::RemoteInvalidRequest,
        None,
        INVALID,
    ),
    (
        "a read that the queue pair forbids",
        |p| {
            forbid(p, AccessFlags::REMOTE_WRITE);
            with_key(p, wr_opcode::RDMA_READ, p.b.key)
        },
        Status::RemoteInvalidRequest,
        None,
        INVALID,
    ),
];

/// Waits for this number of completions, or for a limited time: fewer completions are a valid result too.
fn ends_of(side: &Side, count: usize) -> Vec<(u64, Status)> {
    let start = Instant::now();
    let mut all: Vec<Wc> = side.take();
    while all.len() < count && start.elapsed() < Duration::from_secs(3) {
        std::thread::yield_now();
        all.extend(side.take());
    }
    let mut ends: Vec<_> = all.iter().map(|wc| (wc.wr_id, Status::from(wc.status))).collect();
    // Sends and receives are flushed at the same time.
    ends.sort_by_key(|(wr_id, status)| (*status == Status::Flushed, *wr_id));
    ends
}

fn state(side: &Side, qp: &ring::Qp) -> &'static str {
    match side.query(qp).qp_state {
        qp_state::RTS => "RTS",
        qp_state::ERR => "ERR",
        _ => "another state",
    }
}

#[test]
fn whatever_fails_breaks_who_is_at_fault_and_flushes_the_rest() {
    const FLUSHED: Status = Status::Flushed;
    on_every_device(|target| {
        let mut answers = Answers::of(target);
        for (name, post, status, there, event) in ROWS {
            let [a, b] = [(); 2].map(|()| Side::on(target.raw(), 16384));
            let pair = Two::between(qp_type::RC, a, b);
            pair.qb.receive(20, &[pair.b.piece(0, 100)]);
            pair.qb.receive(21, &[pair.b.piece(0, 100)]);
            pair.qa.receive(10, &[]);
            // A failed request has a completion although it is not signaled. Nothing may overtake a read.
            let rest = Post::new(2, wr_opcode::SEND, &[]).flags(SIGNALED | SendFlags::FENCE);
            pair.send(&[post(&pair).flags(SendFlags::empty()), rest]);

            // The peer may enter the error state without the sender's knowledge.
            let (first, rest) = match status {
                Status::Success => ((2, Status::RetryExceeded), vec![(10, FLUSHED)]),
                status => ((1, *status), vec![(2, FLUSHED), (10, FLUSHED)]),
            };
            let (first_there, rest_there) = match (there, event) {
                (None, None) => (None, vec![]),
                (Some(status), _) => (Some((20, *status)), vec![(21, FLUSHED)]),
                (None, Some(_)) => (Some((20, FLUSHED)), vec![(21, FLUSHED)]),
            };
            let (sent, received) =
                (ends_of(&pair.a, 1 + rest.len()), ends_of(&pair.b, 2 * first_there.iter().len()));
            answers.is(&format!("{name}: the sender"), sent.first(), Some(&first));
            answers.is(&format!("{name}: its other requests"), sent.get(1..), Some(&rest[..]));
            answers.is(&format!("{name}: the receiver"), received.first(), first_there.as_ref());
            answers.is(
                &format!("{name}: its other receives"),
                received.get(1..).unwrap_or_default(),
                &rest_there,
            );
            let states = [state(&pair.a, &pair.qa), state(&pair.b, &pair.qb)];
            let state_there = if first_there.is_some() { "ERR" } else { "RTS" };
            answers.is(&format!("{name}: states"), states, ["ERR", state_there]);
            let what = match *event {
                ACCESS => "the event of a remote access error",
                INVALID => "the event of an invalid request",
                _ => name,
            };
            answers.is(what, pair.b.event(), *event);
        }
    });
}

/// Makes one completion more than the queue has room for.
#[test]
fn a_full_completion_queue_says_so_and_nothing_hangs() {
    on_every_device(|target| {
        let mut answers = Answers::of(target);
        let [a, b] = [(); 2].map(|()| Side::on(target.raw(), 4096));
        let mut pair = Two::between(qp_type::RC, a, b);
        let cq = ring::Cq::new(&pair.a.file, 1, None);
        let room = cq.ring.mask() as usize;
        pair.qa = ring::Qp::make(&pair.a.file, create(qp_type::RC, pair.a.pd, cq.handle));
        pair.a.raise(qp_type::RC, &pair.qa, pair.qb.number, qp_state::RTS);
        done(
            &pair.b.file,
            write(cmd::MODIFY_QP, &change(qp_type::RC, pair.qb.handle, 0, qp_state::RESET), 0),
        );
        pair.b.raise(qp_type::RC, &pair.qb, pair.qa.number, qp_state::RTS);
        let posts: Vec<_> =
            (0..=room as u64).map(|wr_id| Post::new(wr_id, wr_opcode::RDMA_WRITE, &[])).collect();
        pair.send(&posts);
        answers.is("a full completion queue: the event", pair.a.event_within(3), Some(event_type::CQ_ERR));
        answers.is("a full completion queue: a second event", pair.a.event(), Some(event_type::QP_FATAL));
        answers.is("a full completion queue: the sender", state(&pair.a, &pair.qa), "ERR");
        // The completions before are not lost.
        let expected: Vec<_> = (0..room as u64).map(|wr_id| (wr_id, wc_status::SUCCESS)).collect();
        assert_eq!(cq.drain(), expected);
        pair.qa.post(&Post::new(99, wr_opcode::RDMA_WRITE, &[]));
        pair.qa.ring_doorbell(&pair.a.file);
        let start = Instant::now();
        let mut later = cq.drain();
        while later.is_empty() && target.soft.is_none() && start.elapsed() < Duration::from_secs(3) {
            std::thread::yield_now();
            later = cq.drain();
        }
        answers.is("a full completion queue: what is sent afterwards", later, vec![]);
    });
}
