//! Unacknowledged messages: datagrams, and unreliable connections.

use crate::commands::verbs::*;
use crate::commands::{done, new_pd, write};
use uverbs_abi::rxe::{Av, NETWORK_TYPE_IPV4, NETWORK_TYPE_IPV6, SockaddrIn, SockaddrIn6, UdWr};
use uverbs_abi::types::{QpAttrMask, qp_state, qp_type, wc_opcode, wc_status, wr_opcode};
use uverbs_abi::write::{ModifyQp, cmd};
use zerocopy::{FromZeros, IntoBytes};

const UD: u8 = qp_type::UD;
const UC: u8 = qp_type::UC;
const GRH: u32 = 1;
const WITH_IMM: u32 = 2;
const OK: u32 = wc_status::SUCCESS;

fn header_checksum(header: &[u8]) -> u32 {
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn a_datagram_arrives_behind_its_network_header() {
    let pair = Pair::new(UD);
    let (_, v4) = pair.a.ah(IPV4, 1);
    let (_, v6) = pair.a.ah(LINK_LOCAL, 0);
    pair.a.fill(0, b"datagram");
    pair.qb.receive(20, &[pair.b.piece(0, 40), pair.b.piece(64, 100)]);
    pair.qb.receive(21, &[pair.b.piece(1000, 48)]);
    pair.send(&[
        Post::new(1, wr_opcode::SEND_WITH_IMM, &[pair.a.piece(0, 8)]).extra(0xabcd).to(pair.qb.number, v4),
        Post::inline(2, wr_opcode::SEND, b"inside!!").to(pair.qb.number, v6),
    ]);
    let (sent, received) = (pair.a.take(), pair.b.take());
    assert_eq!(ends(&sent), [(1, OK), (2, OK)]);
    assert_eq!((sent[0].byte_len, sent[0].wc_flags, sent[1].wc_flags), (8, WITH_IMM, 0));
    assert_eq!(ends(&received), [(20, OK), (21, OK)]);
    let wc = received[0];
    assert_eq!((wc.byte_len, wc.wc_flags, wc.ex, wc.src_qp), (48, GRH | WITH_IMM, 0xabcd, pair.qa.number));
    assert_eq!((wc.opcode, wc.qp_num, wc.port_num), (wc_opcode::RECV, pair.qb.number, 1));
    assert_eq!((received[1].byte_len, received[1].wc_flags, received[1].ex), (48, GRH, 0));

    let header = pair.b.look(0, 40);
    assert_eq!(header[..20], [0; 20]);
    // 20 IPv4, 8 UDP, 12 + 8 + 4 InfiniBand, 8 data, 4 checksum.
    assert_eq!(header[20..24], [0x45, 0x28, 0, 64]);
    assert_eq!((header[28], header[29]), (9, 17));
    assert_eq!(header_checksum(&header[20..]), 0xffff);
    assert_eq!((&header[32..36], &header[36..]), (&[192, 0, 2, 1][..], &[192, 0, 2, 1][..]));
    assert_eq!(pair.b.look(64, 8), *b"datagram");

    let header = pair.b.look(1000, 48);
    assert_eq!(header[..8], [0x62, 0x80, 0, 0, 0, 40, 17, 9]);
    assert_eq!(
        (&header[8..24], &header[24..40], &header[40..]),
        (&LINK_LOCAL[..], &LINK_LOCAL[..], &b"inside!!"[..])
    );
}

#[test]
fn a_request_can_hold_the_whole_address() {
    let pair = Pair::new(UD);
    let send = |av: Av| {
        let ud = UdWr { remote_qpn: pair.qb.number, remote_qkey: QKEY, av, ..UdWr::new_zeroed() };
        let mut post = Post::new(1, wr_opcode::SEND, &[]);
        post.wqe.wr.wr.copy_from_slice(ud.as_bytes());
        pair.send(&[post]);
    };
    let v4 = SockaddrIn { sin_family: 2, sin_addr: [192, 0, 2, 1], ..SockaddrIn::new_zeroed() };
    let v6 = SockaddrIn6 { sin6_family: 10, sin6_addr: LINK_LOCAL, ..SockaddrIn6::new_zeroed() };
    let av = |kind, bytes: &[u8]| {
        let mut av = Av { port_num: 1, network_type: kind, ..Av::new_zeroed() };
        av.sgid_addr[..bytes.len()].copy_from_slice(bytes);
        av.dgid_addr[..bytes.len()].copy_from_slice(bytes);
        av
    };
    pair.qb.receive(20, &[pair.b.piece(0, 40)]);
    pair.qb.receive(21, &[pair.b.piece(0, 40)]);
    send(av(NETWORK_TYPE_IPV4, v4.as_bytes()));
    send(av(NETWORK_TYPE_IPV6, v6.as_bytes()));
    assert_eq!(ends(&pair.a.take()), [(1, OK), (1, OK)]);
    assert_eq!(ends(&pair.b.take()), [(20, OK), (21, OK)]);
    send(av(3, &[]));
    assert_eq!(ends(&pair.a.take()), [(1, wc_status::LOC_QP_OP_ERR)]);
}

#[test]
fn datagrams_get_lost_without_a_word() {
    let pair = Pair::new(UD);
    let (_, there) = pair.a.ah(IPV4, 1);
    let nowhere = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 2];
    let (_, away) = pair.a.ah(nowhere, 1);
    let post = |wr_id, to, ah| Post::new(wr_id, wr_opcode::SEND, &[]).to(to, ah);
    let mut wrong_key = post(1, pair.qb.number, there);
    wrong_key.wqe.wr.wr[4] ^= 1;
    pair.send(&[post(0, pair.qb.number, there)]); // nothing posted
    pair.qb.receive(20, &[pair.b.piece(0, 40)]);
    pair.send(&[wrong_key, post(2, pair.qb.number, away), post(3, 77, there), post(4, 0xff_ffff, there)]);
    assert_eq!(ends(&pair.a.take()), [(0, OK), (1, OK), (2, OK), (3, OK), (4, OK)]);
    assert_eq!(pair.b.take().len(), 0);
    pair.send(&[post(5, pair.qb.number, there)]);
    assert_eq!(ends(&pair.b.take()), [(20, OK)]);
    // A connected queue pair accepts no datagrams.
    let other = Pair::new(qp_type::RC);
    other.qb.receive(1, &[other.b.piece(0, 40)]);
    assert_eq!(pair.b.take().len(), 0);
}

#[test]
fn what_a_datagram_cannot_be() {
    type Bad = (&'static str, fn(&Pair, u32) -> Post, u32);
    let rows: [Bad; 6] = [
        (
            "longer than a packet",
            |p, ah| Post::new(1, wr_opcode::SEND, &[p.a.piece(0, 4097)]).to(p.qb.number, ah),
            wc_status::LOC_LEN_ERR,
        ),
        (
            "a write",
            |p, ah| Post::new(1, wr_opcode::RDMA_WRITE, &[]).to(p.qb.number, ah),
            wc_status::LOC_QP_OP_ERR,
        ),
        (
            "to an address that is not there",
            |p, ah| Post::new(1, wr_opcode::SEND, &[]).to(p.qb.number, ah + 1),
            wc_status::LOC_QP_OP_ERR,
        ),
        (
            "to an address of another domain",
            |p, _| {
                let other = Side { pd: new_pd(&p.a.file), ..Side::new(&p.device, 4096) };
                drop(other);
                let pd = new_pd(&p.a.file);
                let command =
                    create_ah(pd, IPV4, 1).with(uverbs::soft::RawAttr::output(uverbs_abi::ioctl::UHW_OUT, 8));
                let number: u32 =
                    crate::commands::answer(&done(&p.a.file, command), uverbs_abi::ioctl::UHW_OUT);
                Post::new(1, wr_opcode::SEND, &[]).to(p.qb.number, number)
            },
            wc_status::LOC_QP_OP_ERR,
        ),
        (
            "of nothing",
            |p, ah| Post::new(1, wr_opcode::SEND, &[p.a.piece(16384, 1)]).to(p.qb.number, ah),
            wc_status::LOC_PROT_ERR,
        ),
        (
            "of no address",
            |p, _| Post::new(1, wr_opcode::SEND, &[]).to(p.qb.number, 0),
            wc_status::LOC_QP_OP_ERR,
        ),
    ];
    for (name, post, status) in rows {
        let pair = Pair::new(UD);
        let (_, ah) = pair.a.ah(IPV4, 1);
        pair.send(&[post(&pair, ah)]);
        assert_eq!(ends(&pair.a.take()), [(1, status)], "{name}");
        assert_eq!(pair.a.query(&pair.qa).qp_state, qp_state::SQE, "{name}");
    }
    let pair = Pair::new(UD);
    let (handle, ah) = pair.a.ah(IPV4, 1);
    pair.qb.receive(20, &[pair.b.piece(0, 47)]);
    pair.qb.receive(21, &[]);
    pair.send(&[Post::new(1, wr_opcode::SEND, &[pair.a.piece(0, 8)]).to(pair.qb.number, ah)]);
    assert_eq!(ends(&pair.b.take()), [(20, wc_status::LOC_LEN_ERR), (21, wc_status::WR_FLUSH_ERR)]);
    // A destroyed address handle is treated as one that does not exist.
    done(&pair.a.file, write(cmd::DESTROY_AH, &handle, 0));
    pair.send(&[Post::new(2, wr_opcode::SEND, &[]).to(pair.qb.number, ah)]);
    assert_eq!(ends(&pair.a.take()), [(1, OK), (2, wc_status::LOC_QP_OP_ERR)]);
}

#[test]
fn where_nobody_answers_a_failed_send_stops_sends_alone() {
    let too_long = |side: &Side| [side.piece(0, 4097)];
    let nowhere = |side: &Side| [side.piece(16384, 1)];
    for kind in [UD, UC] {
        let pair = Pair::new(kind);
        let (_, to_b) = pair.a.ah(IPV4, 1);
        let (_, to_a) = pair.b.ah(IPV4, 1);
        let send = |wr_id, pieces: &[_], to: (u32, u32)| {
            let post = Post::new(wr_id, wr_opcode::SEND, pieces);
            if kind == UD { post.to(to.0, to.1) } else { post }
        };
        let there = (pair.qb.number, to_b);
        let bad = if kind == UD { too_long(&pair.a) } else { nowhere(&pair.a) };
        let status = if kind == UD { wc_status::LOC_LEN_ERR } else { wc_status::LOC_PROT_ERR };
        pair.qa.receive(10, &[pair.a.piece(0, 48)]);
        pair.send(&[send(1, &bad, there), send(2, &[], there)]);
        pair.send(&[send(3, &[], there)]);
        let flushed = wc_status::WR_FLUSH_ERR;
        assert_eq!(ends(&pair.a.take()), [(1, status), (2, flushed), (3, flushed)], "{kind}");
        assert_eq!(pair.a.query(&pair.qa).qp_state, qp_state::SQE, "{kind}");
        // Messages are still received, and nothing is flushed.
        let back = send(4, &[pair.b.piece(0, 8)], (pair.qa.number, to_a));
        pair.qb.post(&back);
        pair.qb.ring_doorbell(&pair.b.file);
        assert_eq!(ends(&pair.a.take()), [(10, OK)], "{kind}");
        // It starts again.
        let ready = ModifyQp {
            attr_mask: (QpAttrMask::STATE | QpAttrMask::CUR_STATE).bits(),
            cur_qp_state: qp_state::SQE,
            ..change(kind, pair.qa.handle, pair.qb.number, qp_state::RTS)
        };
        assert_eq!(pair.a.modify(&ready), Ok(()), "{kind}");
        pair.b.take();
        pair.qb.receive(20, &[pair.b.piece(0, 48)]);
        pair.send(&[send(5, &[], there)]);
        assert_eq!((ends(&pair.a.take()), ends(&pair.b.take())), (vec![(5, OK)], vec![(20, OK)]), "{kind}");
    }
}

#[test]
fn an_unreliable_connection_sends_and_writes() {
    let pair = Pair::new(UC);
    pair.a.fill(0, b"unreliable");
    let remote = (pair.b.address + 500, pair.b.key);
    pair.qb.receive(20, &[pair.b.piece(0, 100)]);
    pair.qb.receive(21, &[]);
    pair.send(&[
        Post::new(1, wr_opcode::SEND_WITH_IMM, &[pair.a.piece(0, 10)]).extra(3),
        Post::new(2, wr_opcode::RDMA_WRITE, &[pair.a.piece(0, 10)]).remote(remote.0, remote.1),
        Post::new(3, wr_opcode::RDMA_WRITE_WITH_IMM, &[pair.a.piece(2, 3)])
            .remote(remote.0, remote.1)
            .extra(4),
    ]);
    assert_eq!(ends(&pair.a.take()), [(1, OK), (2, OK), (3, OK)]);
    let received = pair.b.take();
    let told: Vec<_> = received.iter().map(|wc| (wc.wr_id, wc.opcode, wc.byte_len, wc.ex)).collect();
    assert_eq!(told, [(20, wc_opcode::RECV, 10, 3), (21, wc_opcode::RECV_RDMA_WITH_IMM, 3, 4)]);
    assert_eq!(pair.b.look(0, 10), *b"unreliable");
    assert_eq!(pair.b.look(500, 10), *b"releliable");
}

#[test]
fn what_an_unreliable_connection_loses_stays_unknown() {
    let pair = Pair::new(UC);
    let write = |key| Post::new(1, wr_opcode::RDMA_WRITE, &[pair.a.piece(0, 8)]).remote(pair.b.address, key);
    pair.send(&[Post::new(0, wr_opcode::SEND, &[])]); // nothing posted
    pair.qb.receive(20, &[pair.b.piece(0, 4)]);
    pair.send(&[write(0)]);
    assert_eq!(ends(&pair.a.take()), [(0, OK), (1, OK)]);
    assert_eq!(pair.b.take().len(), 0);
    // Losing messages does not end the connection.
    pair.send(&[Post::new(3, wr_opcode::SEND, &[pair.a.piece(0, 4)])]);
    assert_eq!(ends(&pair.b.take()), [(20, OK)]);
    // But a bad receive does.
    pair.qb.receive(21, &[uverbs_abi::rxe::Sge { lkey: 1, ..pair.b.piece(0, 4) }]);
    pair.send(&[Post::new(4, wr_opcode::SEND, &[pair.a.piece(0, 4)])]);
    assert_eq!(ends(&pair.b.take()), [(21, wc_status::LOC_PROT_ERR)]);
    assert_eq!(pair.b.query(&pair.qb).qp_state, qp_state::ERR);
    pair.send(&[write(pair.b.key)]);
    assert_eq!(ends(&pair.a.take()), [(3, OK), (4, OK), (1, OK)]);
    // So does a message that is too long for its receive.
    let pair = Pair::new(UC);
    pair.qb.receive(20, &[pair.b.piece(0, 4)]);
    pair.send(&[Post::new(1, wr_opcode::SEND, &[pair.a.piece(0, 5)])]);
    assert_eq!(
        (ends(&pair.a.take()), ends(&pair.b.take())),
        (vec![(1, OK)], vec![(20, wc_status::LOC_LEN_ERR)])
    );
    assert_eq!(pair.b.query(&pair.qb).qp_state, qp_state::ERR);
    // It does not support reads and atomic operations.
    for opcode in [wr_opcode::RDMA_READ, wr_opcode::ATOMIC_FETCH_AND_ADD, wr_opcode::SEND_WITH_INV] {
        let pair = Pair::new(UC);
        pair.send(&[Post::new(1, opcode, &[pair.a.piece(0, 8)])]);
        assert_eq!(ends(&pair.a.take()), [(1, wc_status::LOC_QP_OP_ERR)]);
    }
    let request = ModifyQp { attr_mask: 1, ..change(UC, pair.qa.handle, 0, qp_state::RESET) };
    assert_eq!(pair.a.modify(&request), Ok(()));
}
