//! Checks of how packets travel: routes, bridges, neighbours, names; and limits and addresses that depend on them.

use super::*;
use crate::doctor::seen::Astray;

/// A host whose only device is rxe's, on the same interface.
fn software() -> Tree {
    let mut tree = Tree::healthy();
    tree.seen.devices[0].driver = "rxe".to_owned();
    tree
}

#[test]
fn software_on_a_port_of_a_bridge_receives_nothing() {
    let tree = software();
    symlink("../br0", tree.root.join("sys/class/net/eth0/master")).expect("a link");
    // A bond is no bridge.
    tree.is_silent("bridge-port");
    tree.folder("sys/class/net/br0/bridge");
    assert_eq!(tree.worse(), [("bridge-port", Problem)]);
    let mend = tree.one("bridge-port").mend.expect("a command");
    assert_eq!(mend, "rdma link delete mlx5_0; rdma link add mlx5_0 type rxe netdev br0");
    // A card takes its packets before the bridge does.
    let mut tree = tree;
    tree.seen.devices[0].driver = "mlx5".to_owned();
    tree.is_silent("bridge-port");
}

#[test]
fn packets_that_leave_by_another_interface() {
    let mut tree = Tree::healthy();
    tree.is_silent("route-elsewhere");
    let (interface, leaves_by) = ("eth0".to_owned(), "eth1".to_owned());
    tree.seen.astray = vec![Astray { interface, address: [192, 0, 2, 1].into(), bits: 24, leaves_by }];
    assert_eq!(tree.worse(), [("route-elsewhere", Warning)]);
    let found = tree.one("route-elsewhere");
    assert_eq!(found.seen, "packets from 192.0.2.1 (eth0) to its own network leave by eth1");
    assert!(found.mend.expect("commands").contains("ip route add 192.0.2.0/24 dev eth0 table 100;"));
    // The larger value of both holds, and 2 is loose.
    for (all, own, is_strict) in [("1", "0", true), ("0", "1", true), ("2", "1", false), ("0", "0", false)] {
        tree.file("proc/sys/net/ipv4/conf/all/rp_filter", all);
        tree.file("proc/sys/net/ipv4/conf/eth0/rp_filter", own);
        assert_eq!(
            tree.one("route-elsewhere").seen.contains("rp_filter is strict"),
            is_strict,
            "{all} {own}"
        );
    }
}

#[test]
fn neighbours_that_do_not_answer_are_a_note() {
    let tree = Tree::healthy();
    let line = |address: &str, flags: &str, name: &str| {
        format!("{address}  0x1  {flags}  00:00:00:00:00:00  *  {name}\n")
    };
    let head = "IP address       HW type     Flags       HW address            Mask     Device\n";
    tree.file(
        "proc/net/arp",
        &(head.to_owned() + &line("192.0.2.5", "0x2", "eth0") + &line("192.0.2.6", "0x0", "eth9")),
    );
    tree.is_silent("neighbour-silent");
    tree.file(
        "proc/net/arp",
        &(head.to_owned() + &line("192.0.2.7", "0x0", "eth0") + &line("192.0.2.8", "0x0", "eth0")),
    );
    let found = tree.one("neighbour-silent");
    assert_eq!(found.seen, "nobody on eth0 answers for 192.0.2.7, 192.0.2.8 (ARP)");
    assert_eq!(tree.worse(), []);
    let many: String = (1..=20).map(|host| line(&format!("192.0.2.{host}"), "0x0", "eth0")).collect();
    tree.file("proc/net/arp", &many);
    assert!(tree.one("neighbour-silent").seen.ends_with("192.0.2.8 and 12 more (ARP)"));
}

#[test]
fn the_name_of_this_host_is_an_address_of_the_loopback_interface() {
    let tree = Tree::healthy();
    tree.file("proc/sys/kernel/hostname", "node7\n");
    for (hosts, fires) in [
        ("127.0.0.1 localhost\n127.0.1.1 node7.example node7\n", true),
        ("127.0.0.1 localhost node7 # of the image\n::1 localhost node7\n", true),
        ("127.0.0.1 localhost\n", false),
        ("127.0.1.1 node77\n# 127.0.1.1 node7\n", false),
        ("127.0.1.1 node7\n192.0.2.1 node7\n", false),
    ] {
        tree.file("etc/hosts", hosts);
        match fires {
            true => assert_eq!(tree.one("own-name").severity, Note, "{hosts}"),
            false => tree.is_silent("own-name"),
        }
    }
    assert_eq!(tree.worse(), []);
    // Without a device it does not matter.
    let mut tree = tree;
    tree.file("etc/hosts", "127.0.1.1 node7\n");
    tree.seen.devices.clear();
    tree.is_silent("own-name");
}

#[test]
fn an_address_that_the_interface_does_not_have() {
    let mut tree = software();
    tree.is_silent("gid-without-address");
    // IPv6 is disabled, and the entry of the hardware address is there all the same.
    tree.seen.addresses.retain(|(_, address)| address.is_ipv4());
    let found = tree.one("gid-without-address");
    assert_eq!((found.severity, found.mend.as_deref()), (Note, Some("take another index")));
    assert_eq!(found.seen, "eth0 does not have the address of index 0 (fe80::5054:ff:fe12:3456)");
    assert_eq!(tree.worse(), []);
    tree.seen.addresses.retain(|(name, _)| name == "lo");
    [1, 2].iter().for_each(|index| tree.gone(&format!("sys/class/infiniband/mlx5_0/ports/1/gids/{index}")));
    tree.file("proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1\n");
    let found = tree.one("gid-without-address");
    assert_eq!((found.severity, found.check), (Problem, tree.found()[0].check));
    assert!(found.mend.expect("commands").ends_with("sysctl -w net.ipv6.conf.eth0.disable_ipv6=0"));
    // What cannot be used is not recommended.
    tree.is_silent("gid-index");
    // Cards send without the kernel's routes.
    tree.seen.devices[0].driver = "mlx5".to_owned();
    tree.is_silent("gid-without-address");
}

#[test]
fn an_address_on_a_vlan_alone_is_an_address() {
    let mut tree = Tree::healthy();
    tree.seen.addresses = vec![("eth0.5".to_owned(), "192.0.2.1".parse().expect("an address"))];
    assert_eq!(tree.worse(), [("no-address", Warning)]);
    tree.folder("sys/class/net/eth0.5");
    [1, 2].iter().for_each(|index| tree.port(&format!("gid_attrs/ndevs/{index}"), "eth0.5\n"));
    assert_eq!(tree.worse(), []);
}

#[test]
fn a_limit_of_a_cgroup_above_is_the_cause_of_what_is_refused() {
    let mut tree = Tree::healthy();
    tree.file("proc/self/cgroup", "0::/slice/job\n");
    tree.file("sys/fs/cgroup/slice/job/rdma.max", "mlx5_0 hca_handle=max hca_object=max\n");
    tree.file("sys/fs/cgroup/slice/rdma.max", "mlx5_0 hca_handle=1 hca_object=max\n");
    tree.is_silent("open-refused");
    assert_eq!(tree.one("cgroup-limit").severity, Note);
    tree.file("sys/fs/cgroup/slice/rdma.current", "mlx5_0 hca_handle=1 hca_object=20\n");
    assert_eq!(tree.worse(), [("cgroup-limit", Warning)]);
    tree.seen.devices[0].refused =
        Some((ErrorKind::Exhausted, "context.create: exhausted (EAGAIN)".to_owned()));
    assert_eq!(tree.worse(), [("cgroup-limit", Problem), ("open-refused", Problem)]);
    assert_eq!(tree.one("cgroup-limit").mend.as_deref(), Some("raise it: rdma.max of /slice"));
}

#[test]
fn an_interface_that_is_up_and_has_no_carrier() {
    let tree = Tree::healthy();
    for (state, physical) in [("1: DOWN", "2: Polling"), ("1: DOWN", "3: Disabled")] {
        tree.port("state", state);
        tree.port("phys_state", physical);
        tree.file("sys/class/net/eth0/carrier", "1\n");
        assert!(!tree.one("port-state").mend.expect("a command").contains("carrier"));
        tree.file("sys/class/net/eth0/carrier", "0\n");
        let found = tree.one("port-state").mend.expect("a command");
        assert!(found.starts_with("eth0 is up and has no carrier"), "{found}");
    }
}
