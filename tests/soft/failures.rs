//! Requests in rings that no provider writes, and failures that would need a timer: the status, the side that reports it, and the queue
//! pairs that enter the error state. `failures.rs` in `tests/any` has failures that every device has.

use crate::commands::verbs::*;
use crate::commands::*;
use uverbs::soft::{Profile, SoftDevice};
use uverbs_abi::types::{AccessFlags, SendFlags, qp_state, qp_type, wc_status, wr_opcode};
use uverbs_abi::write::{ModifyQp, ReregMr, cmd};

const RC: u8 = qp_type::RC;
const OK: u32 = wc_status::SUCCESS;
const FLUSHED: u32 = wc_status::WR_FLUSH_ERR;

/// The mistake, the request, its status, and the peer's completion or event.
type Bad = (&'static str, fn(&Pair) -> Post, u32, Option<u32>, Option<u32>);

#[test]
fn whatever_is_malformed_breaks_who_is_at_fault_and_flushes_the_rest() {
    use wc_status::{LOC_LEN_ERR, LOC_PROT_ERR, LOC_QP_OP_ERR, REM_OP_ERR};
    let rows: [Bad; 6] = [
        ("no operation", |_| Post::new(1, 77, &[]), LOC_QP_OP_ERR, None, None),
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
        // A failed request has a completion although it is not signaled.
        let post = post(&pair).flags(
            SendFlags::empty()
                | if name == "too much inside" { SendFlags::INLINE } else { SendFlags::empty() },
        );
        pair.send(&[post, Post::new(2, wr_opcode::SEND, &[])]);
        let sent = ends(&pair.a.take());
        let received = ends(&pair.b.take());
        if status == OK {
            // The peer entered the error state without the sender's knowledge.
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

#[test]
fn a_sender_that_waits_ends_when_the_other_file_is_closed() {
    let Pair { a, b, qa, .. } = {
        let pair = Pair::new(RC);
        pair.send(&[Post::new(1, wr_opcode::SEND, &[])]);
        assert_eq!(ends(&pair.a.take()), []);
        pair
    };
    drop(b);
    assert_eq!(ends(&a.take()), [(1, wc_status::RETRY_EXC_ERR)]);
    drop(qa);
}

/// Connects the second queue pair again, with one change.
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
    // Moved: its old domain is not in use any more.
    let domain = new_pd(&pair.b.file);
    assert_eq!(ask(2 | 4, ReregMr { pd_handle: domain, ..request }), Ok(()));
    let destroy_pd = |handle| destroy(uverbs_abi::ids::pd::OBJECT, 0, handle);
    assert_eq!(pair.b.file.invoke(&mut destroy_pd(domain)), Err(nix::libc::EBUSY));
}
