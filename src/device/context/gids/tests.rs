//! The order of choice, with prepared tables.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use uverbs_abi::types::{phys_state, port_state};
use uverbs_abi::write::QueryPortResp;

use super::*;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// The link-local address of that Ethernet address.
const OWN: &str = "fe80::5054:ff:fe12:3456";

fn raw(text: &str) -> [u8; 16] {
    match text.parse::<IpAddr>().expect("an address") {
        IpAddr::V4(of) => of.to_ipv6_mapped().octets(),
        IpAddr::V6(of) => of.octets(),
    }
}

fn interface(index: u32, name: &str, addresses: &[&str]) -> NetInterface {
    let addresses = addresses.iter().map(|text| raw(text)).collect();
    NetInterface { index, name: name.to_owned(), is_up: true, has_carrier: true, mac: MAC, addresses }
}

/// A table of a RoCE port: version, address, index of the interface.
fn table(entries: &[(u8, &str, u32)]) -> Vec<Gid> {
    let kind = |version| if version == 1 { GidKind::RoceV1 } else { GidKind::RoceV2 };
    let entry = |(index, (version, text, interface)): (usize, &(u8, &str, u32))| Gid {
        raw: raw(text),
        port: 1,
        index: index as u32,
        kind: kind(*version),
        interface: *interface,
    };
    entries.iter().enumerate().map(entry).collect()
}

fn ip(text: &str, zone: u32) -> Peer {
    Peer::Ip { address: text.parse().expect("an address"), zone }
}

/// Index and rating of each GID, in the order of choice.
fn rated(
    entries: &[(u8, &str, u32)],
    here: &[NetInterface],
    peer: Peer,
    source: Option<&str>,
) -> Vec<(u32, Result<GidReason, GidFault>)> {
    let here = Interfaces::new(here.to_vec());
    let all = rate(&table(entries), Fabric::Other, Some(&here), peer, source.map(raw));
    all.iter().map(|candidate| (candidate.gid.index, candidate.rating)).collect()
}

/// The index that is chosen.
fn chosen(entries: &[(u8, &str, u32)], here: &[NetInterface], peer: Peer) -> Option<u32> {
    rated(entries, here, peer, None).first().filter(|(_, rating)| rating.is_ok()).map(|(index, _)| *index)
}

/// As on a ConnectX with an address of each kind: version 1 comes before version 2.
const CONNECTX: [(u8, &str, u32); 6] =
    [(1, OWN, 2), (2, OWN, 2), (1, "10.0.0.1", 2), (2, "10.0.0.1", 2), (1, "fd00::1", 2), (2, "fd00::1", 2)];

fn eth0() -> NetInterface {
    interface(2, "eth0", &["10.0.0.1", "fd00::1", OWN])
}

#[test]
fn the_second_version_comes_before_the_first() {
    for (peer, index) in [
        (Peer::Unknown, 3),
        (ip("10.0.0.9", 0), 3),
        (ip("fd00::9", 0), 5),
        (ip("fe80::9", 2), 1),
        (Peer::Gid(raw("10.0.0.9")), 3),
        (Peer::Gid(raw("fd00::9")), 5),
        (Peer::Gid(raw("fe80::9")), 1),
        (Peer::Gid([0; 16]), 3),
        // Addresses of this host say nothing about the network.
        (ip("127.0.0.1", 0), 3),
        (ip("::1", 0), 3),
        // An IPv4 address in the form of IPv6.
        (ip("::ffff:10.0.0.9", 0), 3),
    ] {
        assert_eq!(chosen(&CONNECTX, &[eth0()], peer), Some(index), "{peer}");
    }
    // Only version 1 is enabled.
    let old = [(1, OWN, 2), (1, "10.0.0.1", 2)];
    assert_eq!(chosen(&old, &[eth0()], Peer::Unknown), Some(1));
    assert_eq!(chosen(&old, &[eth0()], ip("fe80::9", 2)), Some(0));
}

#[test]
fn without_ipv4_a_global_address_comes_before_a_link_local_one() {
    let table = [(2, OWN, 2), (2, "fd00::2", 2)];
    let here = [interface(2, "eth0", &["fd00::2", OWN])];
    assert_eq!(chosen(&table, &here, Peer::Unknown), Some(1));
    assert_eq!(chosen(&table, &here, ip("fd00::9", 0)), Some(1));
    // The peer's address need not be the one that it uses for RDMA, but its GID is.
    let found = rated(&table, &here, ip("192.0.2.9", 0), None);
    assert_eq!(found[0], (1, Ok(GidReason::OtherFamily)));
    let found = rated(&table, &here, Peer::Gid(raw("192.0.2.9")), None);
    assert_eq!(found, [(1, Err(GidFault::OtherFamily)), (0, Err(GidFault::OtherFamily))]);
    // Nothing else is there.
    assert_eq!(chosen(&table[..1], &here, Peer::Unknown), Some(0));
}

#[test]
fn the_route_to_the_peer_decides_between_interfaces() {
    // A VLAN has the Ethernet address of its interface, so both have the same link-local address.
    let table = [(2, OWN, 2), (2, "10.0.0.1", 2), (2, OWN, 7), (2, "10.1.0.1", 7), (2, "fd01::1", 7)];
    let vlan = interface(7, "eth0.100", &["10.1.0.1", "fd01::1", OWN]);
    let here = [interface(2, "eth0", &["10.0.0.1", OWN]), vlan];
    let first = |peer, source| rated(&table, &here, peer, source)[0];
    assert_eq!(first(ip("10.1.0.9", 0), Some("10.1.0.1")), (3, Ok(GidReason::Route)));
    assert_eq!(first(ip("10.0.0.9", 0), Some("10.0.0.1")), (1, Ok(GidReason::Route)));
    assert_eq!(first(ip("10.5.0.9", 0), Some("172.16.0.1")), (1, Ok(GidReason::Family)));
    // Link-local addresses are told apart by their zone.
    assert_eq!(first(ip("fe80::9", 7), Some(OWN)), (2, Ok(GidReason::Route)));
    assert_eq!(first(ip("fe80::9", 2), Some(OWN)), (0, Ok(GidReason::Route)));
    let all = rated(&table, &here, ip("fe80::9", 7), None);
    assert_eq!(all[0], (2, Ok(GidReason::Family)));
    assert_eq!(*all.last().unwrap(), (0, Err(GidFault::OtherZone)));
    // The zone of an interface that has nothing to do with the port, such as that of the management network.
    let all = rated(&table, &here, ip("fe80::9", 5), None);
    assert_eq!((all[0], all[4].1), ((1, Ok(GidReason::OtherFamily)), Err(GidFault::OtherZone)));
}

#[test]
fn interfaces_of_other_namespaces_are_not_used() {
    let table = [(2, OWN, 2), (2, "192.0.2.1", 2), (2, "10.0.0.2", 9)];
    assert_eq!(
        rated(&table, &[interface(9, "eth0", &["10.0.0.2"])], Peer::Unknown, None),
        [(2, Ok(GidReason::Order)), (1, Err(GidFault::OtherNamespace)), (0, Err(GidFault::OtherNamespace))]
    );
    // Here, another interface has that index.
    let other = NetInterface { mac: [2; 6], ..interface(2, "eth0", &["172.17.0.2", "fe80::7"]) };
    assert_eq!(
        rated(&table[..2], &[other], Peer::Unknown, None),
        [(1, Err(GidFault::NoAddress)), (0, Err(GidFault::NoAddress))]
    );
    assert_eq!(chosen(&table, &[], Peer::Unknown), None);
}

#[test]
fn an_interface_that_is_down_is_not_used() {
    // IPv6 addresses, but not those of IPv4, have left the interface.
    let down = NetInterface { is_up: false, has_carrier: false, ..interface(2, "eth0", &["192.0.2.1"]) };
    let table = [(2, OWN, 2), (2, "192.0.2.1", 2), (1, OWN, 2)];
    let all = rated(&table, &[down], Peer::Unknown, None);
    assert!(all.iter().all(|(_, rating)| *rating == Err(GidFault::InterfaceDown)), "{all:?}");
    let unplugged = NetInterface { has_carrier: false, ..interface(2, "eth0", &["192.0.2.1"]) };
    let table = [(2, "192.0.2.1", 2), (2, "10.0.0.1", 3)];
    assert_eq!(
        rated(&table, &[unplugged, interface(3, "eth1", &["10.0.0.1"])], Peer::Unknown, None),
        [(1, Ok(GidReason::Order)), (0, Err(GidFault::NoCarrier))]
    );
}

/// An interface may generate another link-local address than the default GID, or none.
#[test]
fn a_default_gid_of_the_second_version_needs_its_address() {
    let table = [(1, OWN, 2), (2, OWN, 2)];
    let here = [interface(2, "eth0", &["fe80::1234"])];
    assert_eq!(
        rated(&table, &here, Peer::Unknown, None),
        [(0, Ok(GidReason::Order)), (1, Err(GidFault::NoAddress))]
    );
}

#[test]
fn ports_that_are_not_roce_have_one_address() {
    let mut gids = table(&[(2, "fe80::1", 0), (2, "fe80::2", 0)]);
    gids.iter_mut().for_each(|gid| gid.kind = GidKind::InfiniBand);
    for (fabric, reason) in [
        (Fabric::InfiniBand, GidReason::InfiniBand),
        (Fabric::Iwarp, GidReason::Iwarp),
        (Fabric::Other, GidReason::Own),
    ] {
        for peer in [Peer::Unknown, ip("10.0.0.9", 0), Peer::Gid(raw("fe80::9"))] {
            let first = &rate(&gids, fabric, None, peer, None)[0];
            assert_eq!((first.gid.index, first.rating), (0, Ok(reason)), "{peer}");
        }
    }
    assert_eq!(Fabric::of(node_type::RNIC, link_layer::ETHERNET), Fabric::Iwarp);
    assert_eq!(Fabric::of(node_type::IB_CA, link_layer::INFINIBAND), Fabric::InfiniBand);
    assert_eq!(Fabric::of(node_type::IB_CA, link_layer::ETHERNET), Fabric::Other);
    assert_eq!(Fabric::of(node_type::UNSPECIFIED, link_layer::UNSPECIFIED), Fabric::Other);
}

#[test]
fn without_the_list_of_interfaces_the_order_is_the_same() {
    let all = rate(&table(&CONNECTX), Fabric::Other, None, Peer::Unknown, None);
    assert_eq!((all[0].gid.index, all[0].rating), (3, Ok(GidReason::Order)));
    assert_eq!(all[0].to_string(), format!("GID 3, 10.0.0.1 (RoCE v2, interface 2): {}", GidReason::Order));
    // Entries without an interface need no list.
    let all = rated(&[(2, OWN, 0), (2, "192.0.2.1", 0)], &[], Peer::Unknown, None);
    assert_eq!(all, [(1, Ok(GidReason::Order)), (0, Ok(GidReason::Order))]);
}

#[test]
fn what_a_route_cannot_name_is_not_chosen() {
    let mut gids = table(&[(2, "10.0.0.1", 0), (2, "10.0.0.2", 0), (2, "10.0.0.3", 0)]);
    gids[0].index = 256;
    gids[1].kind = GidKind::Unknown(9);
    let all = rate(&gids, Fabric::Other, None, Peer::Unknown, None);
    let ratings: Vec<_> = all.iter().map(|candidate| (candidate.gid.raw[15], candidate.rating)).collect();
    assert_eq!(
        ratings,
        [(3, Ok(GidReason::Order)), (2, Err(GidFault::UnknownKind)), (1, Err(GidFault::LargeIndex))]
    );
    assert_eq!(
        all[1].to_string(),
        "GID 1, 10.0.0.2 (type 9): cannot be used: a type that this crate does not know"
    );
}

#[test]
fn a_refusal_names_each_gid_and_what_to_do() {
    let refused = |entries: &[(u8, &str, u32)], here: &[NetInterface], peer| {
        let here = Interfaces::new(here.to_vec());
        let all = rate(&table(entries), Fabric::Other, Some(&here), peer, None);
        assert!(all.iter().all(|candidate| candidate.choice().is_none()), "{all:?}");
        refusal("rxe0", 1, peer, &all)
    };
    let far = refused(&[(2, "192.0.2.1", 4)], &[], Peer::Unknown);
    assert_eq!(
        far,
        "no GID of port 1 of rxe0 can be used: GID 0, 192.0.2.1 (RoCE v2, interface 4): its network interface is not in \
         this network namespace; run in the network namespace of the interface, or move the interface to this one"
    );
    let down = NetInterface { is_up: false, ..interface(2, "eth0", &["192.0.2.1"]) };
    let told = refused(&[(2, "192.0.2.1", 2)], &[down], Peer::Unknown);
    assert!(told.ends_with("the interface is down; bring the interface up (ip link set eth0 up)"), "{told}");
    let told = refused(&[(2, "fd00::1", 2)], &[eth0()], Peer::Gid(raw("10.0.0.9")));
    assert!(told.contains("an address of the family of GID 10.0.0.9, or"), "{told}");
    let told = refused(&[(2, OWN, 2)], &[eth0()], ip("fe80::9", 3));
    assert!(told.ends_with("use an interface of the port as the zone of the peer's address"), "{told}");
    let told = refused(&[(2, OWN, 2)], &[interface(2, "eth0", &[])], Peer::Unknown);
    assert!(told.contains("does not have this address"), "{told}");
    assert!(
        told.ends_with("give an interface of the port an IP address in this network namespace"),
        "{told}"
    );
    let told = refused(&[], &[], Peer::Unknown);
    assert!(told.starts_with("port 1 of rxe0 has no GID"), "{told}");
    let many = [(2, "fd00::1", 9); 12];
    assert!(refused(&many, &[], Peer::Unknown).contains("; and 4 more; "));
}

#[test]
fn a_port_that_is_not_active_says_why() {
    let port = |state, phys_state, link_layer| QueryPortResp {
        state,
        phys_state,
        link_layer,
        ..zerocopy::FromZeros::new_zeroed()
    };
    let down = port(port_state::DOWN, phys_state::DISABLED, link_layer::ETHERNET);
    assert_eq!(
        inactive("rxe0", 1, &down, &["dummy0"]).as_deref(),
        Some(
            "port 1 of rxe0 is not active (state DOWN, physical state disabled): its network interface must be up (ip link set dummy0 up), \
             and have a carrier"
        )
    );
    let init = port(port_state::INIT, phys_state::LINK_UP, link_layer::INFINIBAND);
    let told = inactive("mlx5_0", 2, &init, &[]).expect("it is not active");
    assert!(told.contains("state INIT") && told.ends_with("a subnet manager has to configure it"), "{told}");
    for state in [port_state::ACTIVE, port_state::ACTIVE_DEFER] {
        assert_eq!(
            inactive("mlx5_0", 1, &port(state, phys_state::LINK_UP, link_layer::INFINIBAND), &[]),
            None
        );
    }
}

#[test]
fn peers_as_text_and_from_addresses() {
    let zoned = SocketAddrV6::new("fe80::1".parse().expect("an address"), 1, 0, 3);
    assert_eq!(Peer::from(SocketAddr::from(zoned)).to_string(), "fe80::1%3");
    assert_eq!(Peer::from(SocketAddr::from(([192, 0, 2, 7], 1))).to_string(), "192.0.2.7");
    assert_eq!(Peer::from(raw("192.0.2.7")).to_string(), "GID 192.0.2.7");
    assert_eq!(Peer::default().to_string(), "an unknown peer");
}

/// The kernel answers for the addresses of this host without a network.
#[cfg(not(miri))]
#[test]
fn the_source_of_a_route_is_an_address_of_this_host() {
    assert_eq!(ip("127.0.0.1", 0).source(), None);
    assert_eq!(Peer::Unknown.source(), None);
    assert_eq!(Peer::Gid(raw(OWN)).source(), None);
}
