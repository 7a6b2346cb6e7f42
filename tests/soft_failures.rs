//! Messages that fail: which status, on which side, and what is broken by it.
#![cfg(feature = "soft")]

#[path = "soft/ring.rs"]
#[allow(dead_code, reason = "the other tests' part of it")]
mod ring;
mod soft;
#[path = "soft/verbs.rs"]
mod verbs;

use soft::*;
use uverbs::soft::{Profile, SoftDevice};
use uverbs_abi::rxe::Sge;
use uverbs_abi::types::{
    AccessFlags, QpAttrMask, SendFlags, event_type, qp_state, qp_type, wc_status, wr_opcode,
};
use uverbs_abi::write::{ModifyQp, ReregMr, cmd};
use verbs::*;

const RC: u8 = qp_type::RC;
const OK: u32 = wc_status::SUCCESS;
const FLUSHED: u32 = wc_status::WR_FLUSH_ERR;

/// What is wrong, the request, its status, and what the other side sees: its completion and its event.
type Bad = (&'static str, fn(&Pair) -> Post, u32, Option<u32>, Option<u32>);

fn with_key(pair: &Pair, opcode: u32, key: u32) -> Post {
    Post::new(1, opcode, &[pair.a.piece(0, 8)]).remote(pair.b.address, key)
}

#[test]
fn whatever_fails_breaks_who_is_at_fault_and_flushes_the_rest() {
    use wc_status::{
        LOC_LEN_ERR, LOC_PROT_ERR, LOC_QP_OP_ERR, MW_BIND_ERR, REM_ACCESS_ERR, REM_INV_REQ_ERR, REM_OP_ERR,
    };
    const ACCESS: Option<u32> = Some(event_type::QP_ACCESS_ERR);
    const INVALID: Option<u32> = Some(event_type::QP_REQ_ERR);
    let rows: [Bad; 28] = [
        (
            "a key of nothing",
            |p| Post::new(1, wr_opcode::SEND, &[Sge { lkey: 1, ..p.a.piece(0, 8) }]),
            LOC_PROT_ERR,
            None,
            None,
        ),
        (
            "another file's key",
            |p| Post::new(1, wr_opcode::SEND, &[Sge { lkey: p.b.key, ..p.a.piece(0, 8) }]),
            LOC_PROT_ERR,
            None,
            None,
        ),
        (
            "the end of the region",
            |p| Post::new(1, wr_opcode::SEND, &[p.a.piece(16380, 5)]),
            LOC_PROT_ERR,
            None,
            None,
        ),
        (
            "an address that wraps",
            |p| Post::new(1, wr_opcode::SEND, &[Sge { addr: u64::MAX, ..p.a.piece(0, 8) }]),
            LOC_PROT_ERR,
            None,
            None,
        ),
        ("5 pieces", |p| Post::new(1, wr_opcode::SEND, &[p.a.piece(0, 8); 5]), LOC_QP_OP_ERR, None, None),
        (
            "less memory than said",
            |p| {
                let mut post = Post::new(1, wr_opcode::SEND, &[p.a.piece(0, 8)]);
                (post.wqe.dma.length, post.wqe.dma.resid) = (9, 9);
                post
            },
            LOC_QP_OP_ERR,
            None,
            None,
        ),
        (
            "partly done",
            |p| {
                let mut post = Post::new(1, wr_opcode::SEND, &[p.a.piece(0, 8)]);
                post.wqe.dma.resid = 7;
                post
            },
            LOC_QP_OP_ERR,
            None,
            None,
        ),
        ("too much inside", |_| Post::inline(1, wr_opcode::SEND, &[0; 65]), LOC_LEN_ERR, None, None),
        ("no operation", |_| Post::new(1, 77, &[]), LOC_QP_OP_ERR, None, None),
        (
            "a region that cannot be invalidated",
            |p| Post::new(1, wr_opcode::LOCAL_INV, &[]).extra(p.a.key),
            LOC_QP_OP_ERR,
            None,
            None,
        ),
        ("a memory window", |_| Post::new(1, wr_opcode::BIND_MW, &[]), MW_BIND_ERR, None, None),
        (
            "a read into nothing",
            |p| {
                let piece = Sge { lkey: 1, ..p.a.piece(0, 8) };
                Post::new(1, wr_opcode::RDMA_READ, &[piece]).remote(p.b.address, p.b.key)
            },
            LOC_PROT_ERR,
            None,
            None,
        ),
        (
            "a write with a bad key",
            |p| with_key(p, wr_opcode::RDMA_WRITE, p.b.key ^ 1),
            REM_ACCESS_ERR,
            None,
            ACCESS,
        ),
        (
            "a write with one's own key",
            |p| with_key(p, wr_opcode::RDMA_WRITE, p.a.key),
            REM_ACCESS_ERR,
            None,
            ACCESS,
        ),
        ("a read with a bad key", |p| with_key(p, wr_opcode::RDMA_READ, 0), REM_ACCESS_ERR, None, ACCESS),
        (
            "a write beyond the end",
            |p| with_key(p, wr_opcode::RDMA_WRITE, p.b.key).remote(p.b.address + 16380, p.b.key),
            REM_ACCESS_ERR,
            None,
            ACCESS,
        ),
        (
            "a write before the start",
            |p| with_key(p, wr_opcode::RDMA_WRITE, p.b.key).remote(p.b.address - 1, p.b.key),
            REM_ACCESS_ERR,
            None,
            ACCESS,
        ),
        (
            "a write that wraps",
            |p| with_key(p, wr_opcode::RDMA_WRITE, p.b.key).remote(u64::MAX, p.b.key),
            REM_ACCESS_ERR,
            None,
            ACCESS,
        ),
        (
            "a write to what is to be read",
            |p| {
                let key = p.b.register(4096, AccessFlags::REMOTE_READ | AccessFlags::LOCAL_WRITE);
                with_key(p, wr_opcode::RDMA_WRITE, key)
            },
            REM_ACCESS_ERR,
            None,
            ACCESS,
        ),
        (
            "a read of what is to be written",
            |p| {
                let key = p.b.register(4096, AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE);
                with_key(p, wr_opcode::RDMA_READ, key)
            },
            REM_ACCESS_ERR,
            None,
            ACCESS,
        ),
        (
            "an atomic operation without permission",
            |p| {
                let key = p.b.register(4096, AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE);
                Post::new(1, wr_opcode::ATOMIC_FETCH_AND_ADD, &[p.a.piece(0, 8)]).atomic(
                    p.b.address,
                    key,
                    1,
                    0,
                )
            },
            REM_ACCESS_ERR,
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
            REM_INV_REQ_ERR,
            None,
            INVALID,
        ),
        (
            "immediate data with a bad key",
            |p| with_key(p, wr_opcode::RDMA_WRITE_WITH_IMM, 3),
            REM_ACCESS_ERR,
            Some(REM_ACCESS_ERR),
            None,
        ),
        (
            "a message too long",
            |p| Post::new(1, wr_opcode::SEND, &[p.a.piece(0, 101)]),
            REM_INV_REQ_ERR,
            Some(LOC_LEN_ERR),
            None,
        ),
        (
            "a key that cannot be invalidated",
            |p| Post::new(1, wr_opcode::SEND_WITH_INV, &[p.a.piece(0, 8)]).extra(p.b.key),
            OK,
            Some(REM_INV_REQ_ERR),
            None,
        ),
        (
            "a write that the queue pair forbids",
            |p| {
                forbid(p, AccessFlags::REMOTE_READ);
                with_key(p, wr_opcode::RDMA_WRITE, p.b.key)
            },
            REM_INV_REQ_ERR,
            None,
            INVALID,
        ),
        (
            "a read that the queue pair forbids",
            |p| {
                forbid(p, AccessFlags::REMOTE_WRITE);
                with_key(p, wr_opcode::RDMA_READ, p.b.key)
            },
            REM_INV_REQ_ERR,
            None,
            INVALID,
        ),
        (
            "a receive into nothing",
            |p| {
                assert!(p.qb.receives.map.write(384 + 40 + 12, &[0; 4]));
                Post::new(1, wr_opcode::SEND, &[p.a.piece(0, 8)])
            },
            REM_OP_ERR,
            Some(LOC_PROT_ERR),
            None,
        ),
    ];
    for (name, post, status, there, event) in rows {
        let pair = Pair::new(RC);
        pair.qb.receive(20, &[pair.b.piece(0, 100)]);
        pair.qb.receive(21, &[pair.b.piece(0, 100)]);
        pair.qa.receive(10, &[]);
        // A failure completes though it is not signalled.
        let post = post(&pair).flags(
            SendFlags::empty()
                | if name == "too much inside" { SendFlags::INLINE } else { SendFlags::empty() },
        );
        pair.send(&[post, Post::new(2, wr_opcode::SEND, &[])]);
        let sent = ends(&pair.a.take());
        let received = ends(&pair.b.take());
        if status == OK {
            // The other side was broken behind the sender's back.
            assert_eq!(sent, [(2, wc_status::RETRY_EXC_ERR), (10, FLUSHED)], "{name}");
        } else {
            assert_eq!(sent, [(1, status), (2, FLUSHED), (10, FLUSHED)], "{name}");
        }
        assert_eq!(pair.a.query(&pair.qa).qp_state, qp_state::ERR, "{name}");
        match (there, event) {
            (None, None) => assert_eq!(received, [], "{name}"),
            (Some(status), _) => assert_eq!(received, [(20, status), (21, FLUSHED)], "{name}"),
            (None, Some(_)) => assert_eq!(received, [(20, FLUSHED), (21, FLUSHED)], "{name}"),
        }
        let state = if there.or(event).is_some() { qp_state::ERR } else { qp_state::RTS };
        assert_eq!(pair.b.query(&pair.qb).qp_state, state, "{name}");
        if let Some(event) = event {
            assert_eq!(pair.b.next_event(), (event, 88), "{name}");
        }
    }
}

fn forbid(pair: &Pair, left: AccessFlags) {
    let request = ModifyQp {
        qp_access_flags: left.bits(),
        attr_mask: (QpAttrMask::STATE | QpAttrMask::ACCESS_FLAGS).bits(),
        ..change(RC, pair.qb.handle, 0, qp_state::RTS)
    };
    assert_eq!(pair.b.modify(&request), Ok(()));
}

#[test]
fn nobody_there_is_out_of_retries() {
    type Bad = (&'static str, fn(&Pair));
    let bad: [Bad; 6] = [
        ("not there", |p| drop(done(&p.b.file, destroy_qp(p.qb.handle)))),
        ("not ready", |p| assert_eq!(p.b.modify(&change(RC, p.qb.handle, 0, qp_state::RESET)), Ok(()))),
        ("broken", |p| assert_eq!(p.b.modify(&change(RC, p.qb.handle, 0, qp_state::ERR)), Ok(()))),
        ("at another number", |p| again(p, |m| m.rq_psn = 7)),
        ("connected to somebody else", |p| again(p, |m| m.dest_qp_num = 7)),
        ("on another path", |p| again(p, |m| m.dest = path(LINK_LOCAL, 0))),
    ];
    for (name, bad) in bad {
        let pair = Pair::new(RC);
        bad(&pair);
        pair.send(&[Post::new(1, wr_opcode::SEND, &[]), Post::new(2, wr_opcode::SEND, &[])]);
        assert_eq!(ends(&pair.a.take()), [(1, wc_status::RETRY_EXC_ERR), (2, FLUSHED)], "{name}");
    }
}

/// Connects the second queue pair anew, with one change.
fn again(pair: &Pair, wrong: fn(&mut ModifyQp)) {
    for state in [qp_state::RESET, qp_state::INIT, qp_state::RTR, qp_state::RTS] {
        let mut request = change(RC, pair.qb.handle, pair.qa.number, state);
        wrong(&mut request);
        assert_eq!(pair.b.modify(&request), Ok(()));
    }
}

#[test]
fn a_region_can_become_another_one() {
    let pair = Pair::on(SoftDevice::new(Profile::default().with_moves_regions(true)), RC);
    let (access, address) = (AccessFlags::LOCAL_WRITE, pair.b.address);
    let request = ReregMr { start: address, hca_va: address, length: 64, ..Default::default() };
    let ask = |flags, request: ReregMr| {
        let request = ReregMr { flags, ..request };
        pair.b.file.invoke(&mut write(cmd::REREG_MR, &request, 8))
    };
    // It is the second handle of its file.
    let request = ReregMr { mr_handle: 2, access_flags: access.bits(), ..request };
    assert_eq!(ask(0, request), Err(nix::libc::EINVAL));
    assert_eq!(ask(8, request), Err(nix::libc::EOPNOTSUPP));
    assert_eq!(ask(1, ReregMr { hca_va: address + 1, ..request }), Err(nix::libc::EINVAL));
    assert_eq!(ask(1, ReregMr { length: 1 << 40, ..request }), Err(nix::libc::EFAULT));
    assert_eq!(ask(2, ReregMr { pd_handle: 99, ..request }), Err(nix::libc::ENOENT));
    assert_eq!(ask(4, ReregMr { access_flags: 2, ..request }), Err(nix::libc::EINVAL));
    assert_eq!(ask(4, ReregMr { access_flags: 0x80, ..request }), Err(nix::libc::EOPNOTSUPP));
    // Shorter: a write to its old end is refused.
    assert_eq!(ask(1, request), Ok(()));
    let write_at = |offset| {
        Post::new(1, wr_opcode::RDMA_WRITE, &[pair.a.piece(0, 8)]).remote(address + offset, pair.b.key)
    };
    pair.send(&[write_at(56)]);
    assert_eq!(ends(&pair.a.take()), [(1, OK)]);
    pair.send(&[write_at(57)]);
    assert_eq!(ends(&pair.a.take()), [(1, wc_status::REM_ACCESS_ERR)]);
    // Elsewhere: its old domain is free again.
    let domain = new_pd(&pair.b.file);
    assert_eq!(ask(2 | 4, ReregMr { pd_handle: domain, ..request }), Ok(()));
    let destroy_pd = |handle| destroy(uverbs_abi::ids::pd::OBJECT, 0, handle);
    assert_eq!(pair.b.file.invoke(&mut destroy_pd(domain)), Err(nix::libc::EBUSY));
}
