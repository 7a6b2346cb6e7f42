//! Shared receive queues and multicast groups.

use crate::commands::ring::{self, Qp};
use crate::commands::verbs::*;
use crate::commands::{CORE_OUT, answer, destroy, destroy_qp, done, write};
use nix::libc::{EBUSY, EFAULT, EINVAL, ENOENT, EOPNOTSUPP};
use uverbs::soft::{RawAttr, RawCommand, SoftDevice};
use uverbs::transport::Mapping;
use uverbs_abi::ids::{pd, qp, srq};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::rxe::{CreateQpResp, CreateSrqResp, Sge};
use uverbs_abi::types::{event_type, qp_state, qp_type, wc_status, wr_opcode};
use uverbs_abi::write::{AttachMcast, ModifySrq, QpCap, QuerySrq, QuerySrqResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

const OK: u32 = wc_status::SUCCESS;

fn create_srq(pd: u32, max_wr: u32, limit: u32) -> RawCommand {
    use srq::create::*;
    RawCommand::new(srq::OBJECT, srq::method::CREATE)
        .with(RawAttr::handle(HANDLE, 0))
        .with(RawAttr::handle(PD_HANDLE, pd.into()))
        .with(RawAttr::value(TYPE, 0))
        .with(RawAttr::input(USER_HANDLE, 99_u64.as_bytes()))
        .with(RawAttr::input(MAX_WR, max_wr.as_bytes()))
        .with(RawAttr::input(MAX_SGE, 2_u32.as_bytes()))
        .with(RawAttr::input(LIMIT, limit.as_bytes()))
        .with(RawAttr::output(RESP_MAX_WR, 4))
        .with(RawAttr::output(RESP_MAX_SGE, 4))
        .with(RawAttr::output(UHW_OUT, size_of::<CreateSrqResp>()))
}

fn destroy_srq(handle: u32) -> RawCommand {
    destroy(srq::OBJECT, srq::method::DESTROY, handle).with(RawAttr::output(srq::destroy::RESP, 4))
}

/// A shared queue, in the form of a queue pair whose receive ring it is.
fn shared(side: &Side, limit: u32) -> (u32, Mapping) {
    let made = done(&side.file, create_srq(side.pd, 15, limit));
    let CreateSrqResp { mi, srq_num, .. } = answer(&made, UHW_OUT);
    assert_ne!(srq_num, 0);
    assert_eq!(answer::<u32>(&made, srq::create::RESP_MAX_WR), 15);
    (made.data(srq::create::HANDLE) as u32, side.file.map(mi.offset, mi.size as usize).unwrap())
}

/// A queue pair that receives from a shared queue, shown with that queue's ring.
fn member(side: &Side, kind: u8, handle: u32, map: &Mapping) -> Qp {
    let command =
        create(kind, side.pd, side.cq.handle).with(RawAttr::handle(qp::create::SRQ_HANDLE, handle.into()));
    let made = done(&side.file, command);
    let CreateQpResp { rq_mi, sq_mi } = answer(&made, UHW_OUT);
    assert_eq!((rq_mi.offset, rq_mi.size), (0, 0));
    let QpCap { max_recv_wr, max_recv_sge, .. } = answer(&made, qp::create::RESP_CAP);
    assert_eq!((max_recv_wr, max_recv_sge), (0, 0));
    Qp {
        handle: made.data(qp::create::HANDLE) as u32,
        number: answer(&made, qp::create::RESP_QP_NUM),
        sends: ring::Ring { map: side.file.map(sq_mi.offset, sq_mi.size as usize).unwrap() },
        receives: ring::Ring { map: map.clone() },
    }
}

fn query(side: &Side, handle: u32) -> QuerySrqResp {
    let request = QuerySrq { srq_handle: handle, ..QuerySrq::new_zeroed() };
    answer(&done(&side.file, write(cmd::QUERY_SRQ, &request, 16)), CORE_OUT)
}

fn set(handle: u32, attr_mask: u32, srq_limit: u32) -> RawCommand {
    let request = ModifySrq { srq_handle: handle, attr_mask, max_wr: 3, srq_limit };
    write(cmd::MODIFY_SRQ, &request, 0).with(RawAttr::input(UHW_IN, &[0; 8]))
}

#[test]
fn two_queue_pairs_share_their_receives() {
    let pair = Pair::unconnected(qp_type::RC, 4096);
    let (handle, map) = shared(&pair.b, 2);
    let first = member(&pair.b, qp_type::RC, handle, &map);
    let second = member(&pair.b, qp_type::UD, handle, &map);
    pair.a.raise(qp_type::RC, &pair.qa, first.number, qp_state::RTS);
    pair.b.raise(qp_type::RC, &first, pair.qa.number, qp_state::RTS);
    pair.b.raise(qp_type::UD, &second, 0, qp_state::RTS);
    for wr_id in 1..=3 {
        first.receive(wr_id, &[pair.b.piece(100 * wr_id as usize, 60)]);
    }
    let (_, ah) = pair.b.ah(IPV4, 1);
    pair.send(&[Post::inline(1, wr_opcode::SEND, b"one")]);
    second.post(&Post::inline(2, wr_opcode::SEND, b"two").to(second.number, ah));
    second.ring_doorbell(&pair.b.file);
    let told: Vec<_> = pair.b.take().iter().map(|wc| (wc.wr_id, wc.status, wc.qp_num)).collect();
    assert_eq!(told, [(1, OK, first.number), (2, OK, second.number), (2, OK, second.number)]);
    assert_eq!((pair.b.look(100, 3), pair.b.look(240, 3)), (b"one".to_vec(), b"two".to_vec()));
    // Fewer than two are left: there is one event.
    assert_eq!(pair.b.next_event(), (event_type::SRQ_LIMIT_REACHED, 99));
    assert_eq!(query(&pair.b, handle).srq_limit, 0);
    pair.send(&[Post::new(3, wr_opcode::SEND, &[]), Post::new(4, wr_opcode::SEND, &[])]);
    assert_eq!(ends(&pair.b.take()), [(3, OK)]);
    // The other one waits; a queue pair in the error state takes no further receive.
    first.receive(5, &[Sge { lkey: 1, ..pair.b.piece(0, 4) }]);
    first.receive(6, &[]);
    pair.b.query(&first);
    assert_eq!(ends(&pair.b.take()), [(5, OK)]);
    assert_eq!(pair.b.modify(&change(qp_type::RC, first.handle, 0, qp_state::ERR)), Ok(()));
    assert_eq!(pair.b.next_event(), (event_type::QP_LAST_WQE_REACHED, 88));
    assert_eq!(pair.b.take().len(), 0);

    assert_eq!(pair.b.file.invoke(&mut destroy_srq(handle)), Err(EBUSY));
    done(&pair.b.file, destroy_qp(first.handle));
    done(&pair.b.file, destroy_qp(second.handle));
    done(&pair.b.file, destroy_srq(handle));
    assert_eq!(pair.device.resources().shared_receive_queues, 0);
}

#[test]
fn an_unreliable_connection_cannot_put_back_what_it_shares() {
    let pair = Pair::unconnected(qp_type::UC, 4096);
    let (handle, map) = shared(&pair.b, 0);
    let qb = member(&pair.b, qp_type::UC, handle, &map);
    pair.a.raise(qp_type::UC, &pair.qa, qb.number, qp_state::RTS);
    pair.b.raise(qp_type::UC, &qb, pair.qa.number, qp_state::RTS);
    qb.receive(1, &[]);
    qb.receive(2, &[]);
    let bad = Post::new(1, wr_opcode::RDMA_WRITE_WITH_IMM, &[pair.a.piece(0, 8)]).remote(pair.b.address, 1);
    pair.send(&[bad, Post::new(2, wr_opcode::SEND, &[])]);
    assert_eq!(ends(&pair.a.take()), [(1, OK), (2, OK)]);
    assert_eq!(ends(&pair.b.take()), [(1, wc_status::REM_ACCESS_ERR), (2, OK)]);
}

#[test]
fn what_a_shared_queue_cannot_be() {
    let device = SoftDevice::default();
    let side = Side::new(&device, 4096);
    let with = |attr: RawAttr| {
        let mut command = create_srq(side.pd, 7, 0);
        command.attrs().retain(|old| old.id != attr.id);
        side.file.invoke(&mut command.with(attr))
    };
    assert_eq!(with(RawAttr::input(srq::create::MAX_WR, &[0; 4])), Err(EINVAL));
    assert_eq!(with(RawAttr::input(srq::create::MAX_WR, &[0xff; 4])), Err(EINVAL));
    assert_eq!(with(RawAttr::input(srq::create::MAX_SGE, &[0xff; 4])), Err(EINVAL));
    assert_eq!(with(RawAttr::output(UHW_OUT, 20)), Err(EINVAL));
    assert_eq!(with(RawAttr::value(srq::create::TYPE, 1)), Err(ENOENT));
    assert_eq!(with(RawAttr::value(srq::create::TYPE, 3)), Err(EINVAL));
    let tags = create_srq(side.pd, 7, 0)
        .with(RawAttr::handle(srq::create::CQ_HANDLE, side.cq.handle.into()))
        .with(RawAttr::input(srq::create::MAX_NUM_TAGS, &[1; 4]));
    let mut tags = tags;
    tags.attrs().iter_mut().filter(|attr| attr.id == srq::create::TYPE).for_each(|attr| attr.data = 2);
    assert_eq!(side.file.invoke(&mut tags), Err(EOPNOTSUPP));
    assert_eq!(device.resources().shared_receive_queues, 0);

    let (handle, _map) = shared(&side, 0);
    let told = query(&side, handle);
    assert_eq!((told.max_wr, told.max_sge, told.srq_limit), (15, 2, 0));
    let modify = |command: RawCommand| side.file.invoke(&mut { command });
    assert_eq!(modify(set(handle, 2, 15)), Ok(()));
    assert_eq!(query(&side, handle).srq_limit, 15);
    assert_eq!(modify(set(handle, 2, 16)), Err(EINVAL));
    // Fewer than the limit; then without a place for the description of the new ring, because this device follows no address.
    assert_eq!(modify(set(handle, 1, 0)), Err(EINVAL));
    assert_eq!(modify(set(handle, 2, 3)), Ok(()));
    assert_eq!(modify(set(handle, 1, 0)), Err(EFAULT));
    assert_eq!(query(&side, handle).max_wr, 15);
    assert_eq!(modify(set(99, 2, 0)), Err(ENOENT));
    let mut bare = set(handle, 2, 0);
    bare.attrs().retain(|attr| attr.id != UHW_IN);
    assert_eq!(modify(bare), Err(EINVAL));
    assert_eq!(modify(destroy(pd::OBJECT, pd::method::DESTROY, side.pd)), Err(EBUSY));
    done(&side.file, write(cmd::DESTROY_SRQ, &[0, 0, handle, 0], 4));
    // The remaining objects are closed in the right order.
    let (handle, map) = shared(&side, 0);
    member(&side, qp_type::UC, handle, &map);
    drop(side);
    assert!(device.resources().is_empty());
}

#[test]
fn a_group_hears_every_datagram() {
    let pair = Pair::new(qp_type::UD);
    let group = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    let join = |number, qp: &Qp, gid| {
        let request = AttachMcast { gid, qp_handle: qp.handle, mlid: 0xc000, reserved: 0 };
        write(number, &request, 0)
    };
    let ask = |side: &Side, command: RawCommand| side.file.invoke(&mut { command });
    assert_eq!(ask(&pair.a, join(cmd::ATTACH_MCAST, &pair.qa, IPV4)), Err(EINVAL));
    for _ in 0..2 {
        assert_eq!(ask(&pair.a, join(cmd::ATTACH_MCAST, &pair.qa, group)), Ok(()));
        assert_eq!(ask(&pair.b, join(cmd::ATTACH_MCAST, &pair.qb, group)), Ok(()));
    }
    let connected = pair.a.qp(qp_type::RC);
    assert_eq!(ask(&pair.a, join(cmd::ATTACH_MCAST, &connected, group)), Err(EINVAL));
    let (_, ah) = pair.a.ah(group, 0);
    pair.qa.receive(10, &[pair.a.piece(0, 40)]);
    pair.qb.receive(20, &[pair.b.piece(0, 40)]);
    pair.send(&[Post::new(1, wr_opcode::SEND, &[]).to(0xff_ffff, ah)]);
    assert_eq!((ends(&pair.a.take()), ends(&pair.b.take())), (vec![(10, OK), (1, OK)], vec![(20, OK)]));
    assert_eq!(pair.b.look(24, 16), group);

    assert_eq!(ask(&pair.b, destroy_qp(pair.qb.handle)), Err(EBUSY));
    assert_eq!(ask(&pair.b, join(cmd::DETACH_MCAST, &pair.qb, group)), Ok(()));
    assert_eq!(ask(&pair.b, join(cmd::DETACH_MCAST, &pair.qb, group)), Err(EINVAL));
    assert_eq!(ask(&pair.b, destroy_qp(pair.qb.handle)), Ok(()));
    // Closing leaves the group.
    let Pair { device, a, b, .. } = pair;
    drop((a, b));
    assert!(device.resources().is_empty());
}
