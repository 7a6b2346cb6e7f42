//! How packets of a device's addresses travel through this host: the route, neighbours, what an interface is a part of, and this host's name.
//!
//! Source: core/cma.c (`validate_ipv4_net_dev`), sw/rxe/rxe_net.c (`rxe_udp_encap_recv`), Linux 7.3;
//! Documentation/networking/ip-sysctl.rst (`rp_filter`, `arp_ignore`); /proc/net/arp (proc(5)); hosts(5).

use std::net::IpAddr;

use crate::doctor::finding::Finding;
use crate::doctor::seen::Seen;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let mut found = bridges(seen);
    found.extend(routes(seen));
    found.extend(neighbours(seen));
    found.extend(own_name(seen));
    found
}

/// rxe looks for the device of the interface that has received a packet, and that is the bridge. Its own packets do leave.
fn bridges(seen: &Seen) -> Vec<Finding> {
    let machine = &seen.machine;
    let on_sockets = seen.ports().filter(|(device, _)| device.driver == "rxe");
    on_sockets
        .filter_map(|(device, port)| {
            let name = port.interfaces.first()?;
            let bridge = machine.link(&format!("sys/class/net/{name}/master"))?;
            machine.exists(&format!("sys/class/net/{bridge}/bridge")).then(|| {
                let text = format!("{name} is a port of the bridge {bridge}");
                let why =
                    "what arrives is the bridge's, and rxe drops it: it looks for a device of the bridge";
                let (device, number) = (&device.name, port.number);
                let mend =
                    format!("rdma link delete {device}; rdma link add {device} type rxe netdev {bridge}");
                Finding::problem("bridge-port", text, why).mend(mend).on(device).port(number)
            })
        })
        .collect()
}

/// Two interfaces in one network: the first route is taken for both.
fn routes(seen: &Seen) -> Vec<Finding> {
    let finding = |astray: &crate::doctor::seen::Astray| {
        let (interface, address, other) = (&astray.interface, astray.address, &astray.leaves_by);
        let mut text = format!("packets from {address} ({interface}) to its own network leave by {other}");
        if is_strict(seen, interface) || is_strict(seen, other) {
            text.push_str(
                "; rp_filter is strict, and drops what arrives by another interface than the route's",
            );
        }
        let bits = u32::MAX << (32 - astray.bits.clamp(1, 32));
        let network = std::net::Ipv4Addr::from(u32::from(address) & bits);
        let why = "the connection manager refuses a peer whose route is by another interface, without a word, and answers to ARP come from the wrong one";
        let mend = format!(
            "a network for each interface; or a table for each: ip route add {network}/{} dev {interface} table 100; ip rule add from {address} table 100; and sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
            astray.bits
        );
        Finding::warning("route-elsewhere", text, why).mend(mend)
    };
    seen.astray.iter().map(finding).collect()
}

/// The larger of the two values holds.
fn is_strict(seen: &Seen, interface: &str) -> bool {
    let value = |of: &str| seen.machine.number(&format!("proc/sys/net/ipv4/conf/{of}/rp_filter"));
    value(interface).max(value("all")) == Some(1)
}

/// Most addresses that are named.
const NAMED: usize = 8;

/// Addresses that nobody has answered for, which is nothing unusual of hosts that are off.
fn neighbours(seen: &Seen) -> Vec<Finding> {
    let silent = |interface: &str| -> Vec<_> {
        let entries = seen.machine.silent_neighbours().into_iter();
        entries.filter(|(_, of)| of == interface).map(|(address, _)| address.to_string()).collect()
    };
    let finding = |name: String| {
        let mut silent = silent(&name);
        let more = silent.len().saturating_sub(NAMED);
        silent.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!("nobody on {name} answers for {}{more} (ARP)", silent.join(", "));
        let why =
            "a connection to such an address ends with EHOSTUNREACH or a timeout, before RDMA has begun";
        let mend = format!(
            "if it is a peer: is it up, in this network and this VLAN, with this address? ip neigh show dev {name}"
        );
        (!silent.is_empty()).then(|| Finding::note("neighbour-silent", text, why).mend(mend))
    };
    seen.interfaces().into_iter().filter_map(finding).collect()
}

/// Debian and others give a host's own name an address of the loopback interface, which no other host reaches.
fn own_name(seen: &Seen) -> Option<Finding> {
    let machine = &seen.machine;
    let name = machine.text("proc/sys/kernel/hostname").filter(|_| !seen.devices.is_empty())?;
    let hosts = machine.text("etc/hosts")?;
    let of_name = |line: &str| -> Option<IpAddr> {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word == name).then_some(address)
    };
    let addresses: Vec<_> = hosts.lines().filter_map(of_name).collect();
    let is_loopback = !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback);
    let address = addresses.first().filter(|_| is_loopback && name != "localhost")?;
    let name = name.escape_debug();
    let text = format!("this host's name, {name}, is {address} in /etc/hosts");
    let why =
        "a program that looks up its own name listens there, or tells it to peers, which do not reach it";
    let mend = format!(
        "in /etc/hosts, give {name} the address of the RDMA interface; or tell the program an address"
    );
    Some(Finding::note("own-name", text, why).mend(mend))
}
