//! Multicast groups: joining, leaving, and which queue pairs receive.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::common::*;
use uverbs::{
    CompletionQueue, Context, Datagram, ErrorKind, MULTICAST_QP, ProtectionDomain, QueuePair, Route, Status,
    Ud, WcFlags,
};

const KEY: u32 = 0x2222_2222;
const GROUP_V4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
const GROUP_V6: [u8; 16] = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];

fn side(context: &Context) -> Side<Ud> {
    let mut side =
        Side::<Ud>::new(context, |pd: &ProtectionDomain, cq: &CompletionQueue| pd.ud(cq).create().unwrap());
    side.qp.activate(&options(context), KEY, 0).unwrap();
    side
}

/// The kernel delivers a datagram to its own host only if a socket is in the group too.
fn listen(target: &Target, context: &Context, group: [u8; 16]) -> Option<UdpSocket> {
    if target.soft.is_some() || is_infiniband(context) {
        return None;
    }
    let gids = context.gid_table().unwrap();
    let of_ipv4 = |raw: &[u8; 16]| raw[..12] == GROUP_V4[..12];
    if of_ipv4(&group) {
        let own = gids.iter().find(|gid| of_ipv4(&gid.raw)).expect("an IPv4 address");
        let [.., a, b, c, d] = own.raw;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket.join_multicast_v4(&Ipv4Addr::from([239, 1, 2, 3]), &Ipv4Addr::new(a, b, c, d)).unwrap();
        return Some(socket);
    }
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    socket.join_multicast_v6(&Ipv6Addr::from(group), gids[0].interface).unwrap();
    Some(socket)
}

/// Sends a datagram to a group.
fn send(from: &mut Side<Ud>, context: &Context, group: [u8; 16], text: &[u8]) {
    let index = match group == GROUP_V4 {
        true => options(context).gid_index,
        false => 0,
    };
    let route = Route { lid: group_lid(context), ..Route::new(1, index, group) };
    let to = from.pd.create_ah(&route).unwrap();
    from.memory.write(0, text).unwrap();
    let datagram = Datagram { to: &to, qp_num: MULTICAST_QP, qkey: KEY, immediate: None };
    from.send(1, datagram, 0..text.len());
    assert_eq!(from.completion().status, Status::Success);
}

#[test]
fn a_group_hears_every_datagram_while_it_is_one() {
    on_every_connecting_device(|target| {
        for group in [GROUP_V4, GROUP_V6] {
            let context = target.open();
            let _socket = listen(target, &context, group);
            let (mut one, mut two, mut three) = (side(&context), side(&context), side(&context));
            let second = two.qp.join_multicast(&group, group_lid(&context)).unwrap();
            let _third = three.qp.join_multicast(&group, group_lid(&context)).unwrap();
            for side in [&mut two, &mut three] {
                side.receive(7, 1000..1100);
                side.receive(8, 2000..2100);
            }
            send(&mut one, &context, group, b"to all");
            for side in [&mut two, &mut three] {
                let got = side.completion();
                assert_eq!((got.wr_id, got.status, got.len), (7, Status::Success, 46));
                assert!(got.flags.contains(WcFlags::GRH));
                assert_eq!(&side.bytes::<6>(1040), b"to all");
            }
            second.leave().map_err(|(_, error)| error).unwrap();
            send(&mut one, &context, group, b"to the rest");
            assert_eq!((three.completion().wr_id, &three.bytes::<11>(2040)), (8, b"to the rest"));
            assert_eq!(two.cq.poll(&mut uverbs::Completion::batch::<4>()), 0, "it has left");
        }
    });
}

#[test]
fn a_group_is_joined_once_and_left_once() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let side = side(&context);
        let member = side.qp.join_multicast(&GROUP_V4, group_lid(&context)).unwrap();
        assert_eq!(member.gid(), GROUP_V4);
        for lid in [group_lid(&context), 0xc000] {
            let again = side.qp.join_multicast(&GROUP_V4, lid);
            refuses(again, ErrorKind::InvalidInput, EEXIST, "in this group already");
        }
        let other = side.qp.join_multicast(&GROUP_V6, group_lid(&context)).unwrap();
        member.leave().map_err(|(_, error)| error).unwrap();
        let member = side.qp.join_multicast(&GROUP_V4, 0xc000).unwrap();
        drop(other);
        drop(side.qp.join_multicast(&GROUP_V6, group_lid(&context)).unwrap());
        member.leave().map_err(|(_, error)| error).unwrap();
        side.qp.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn only_groups_can_be_joined() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let side = side(&context);
        let own = context.gid(1, options(&context).gid_index.into()).unwrap().raw;
        for wrong in [own, [0; 16], [0xfe; 16]] {
            refuses(
                side.qp.join_multicast(&wrong, group_lid(&context)),
                ErrorKind::InvalidInput,
                EINVAL,
                "multicast group",
            );
        }
        // Nothing is left: no group uses the queue pair.
        side.qp.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn a_member_is_busy_and_may_be_dropped_first() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let Side { qp, cq, memory, pd } = side(&context);
        let member = qp.join_multicast(&GROUP_V4, group_lid(&context)).unwrap();
        let (qp, error): (QueuePair<Ud>, _) = qp.destroy().unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Busy, Some(EBUSY)));
        assert!(error.hint().unwrap().contains("multicast"));
        drop((qp, cq, memory));
        let (pd, error) = pd.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop(member);
        pd.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn a_queue_pair_in_reset_may_join() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
        let qp = pd.ud(&cq).create().unwrap();
        let member = qp.join_multicast(&GROUP_V6, group_lid(&context)).unwrap();
        drop(qp);
        member.leave().map_err(|(_, error)| error).unwrap();
        pd.destroy().map_err(|(_, error)| error).unwrap();
    });
}
