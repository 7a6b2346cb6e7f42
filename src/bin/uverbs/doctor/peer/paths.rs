//! Causes of silence that this host can see: the route, a neighbour that does not answer, an address that both hosts have; and how packets are
//! marked.
//!
//! Source: core/cma.c (`cma_resolve_iboe_route`, `iboe_tos_to_sl`) and core/cma_configfs.c, Linux 7.3.

use std::net::IpAddr;

use super::facts::{Entry, Facts};
use super::messages::Seen;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::machine::Machine;
use crate::doctor::routes::{Route, route};

/// The cause of each silent pair, once for each. As with the silence itself, it is a problem only if no pair works: addresses of two networks,
/// which both hosts may well have, are not meant to reach each other.
pub(super) fn causes(machine: &Machine, tried: &[(Entry, Entry, Seen)], is_this_host: bool) -> Vec<Finding> {
    let works = tried.iter().any(|(_, _, seen)| matches!(seen, Seen::Works(_)));
    let mut found: Vec<Finding> = Vec::new();
    for (mine, theirs, seen) in tried {
        let (from, to) = (mine.address.to_canonical(), theirs.address.to_canonical());
        let finding = if mine.address == theirs.address && !is_this_host {
            Some(twice(from))
        } else if matches!(seen, Seen::Fails(_)) && !mine.address.is_unicast_link_local() {
            let interface = mine.interface.as_deref();
            let way = route(from, to);
            interface.and_then(|interface| {
                astray(from, to, interface, way.as_ref()).or_else(|| silent(machine, to, interface))
            })
        } else {
            None
        };
        let severity = if works { Severity::Warning } else { Severity::Problem };
        let finding = finding.map(|finding| Finding { severity, ..finding });
        found.extend(finding.filter(|finding| !found.contains(finding)));
    }
    found
}

fn twice(address: IpAddr) -> Finding {
    let text = format!("this host and the peer both have {address}");
    let why = "neither sends to the other what it takes for its own, and other hosts reach one of them";
    let mend = "give one of them another address; for a link-local one, another hardware address (copied virtual machines have the same)";
    Finding::problem("peer-address-twice", text, why).mend(mend)
}

/// A route by another interface than that of the address, or none.
fn astray(from: IpAddr, to: IpAddr, interface: &str, way: Option<&Route>) -> Option<Finding> {
    let text = match way? {
        Route::Nowhere => format!("no route leads from {from} to {to}"),
        Route::By(other) if other != interface && other != "lo" => {
            format!("packets from {from} ({interface}) to {to} leave by {other}")
        }
        Route::By(_) => return None,
    };
    let why = "the kernel looks for the peer's hardware address along its route, and the connection manager refuses a peer of another interface";
    let mend = format!(
        "ip route add {to} dev {interface}, or via a router of that network; what there is: ip route get {to} from {from}"
    );
    Some(Finding::problem("peer-route", text, why).mend(mend))
}

/// An address for which nobody has answered.
fn silent(machine: &Machine, to: IpAddr, interface: &str) -> Option<Finding> {
    let is_it = |(address, of): &(std::net::Ipv4Addr, String)| IpAddr::V4(*address) == to && of == interface;
    machine.silent_neighbours().iter().any(is_it).then(|| {
        let text = format!("nobody on {interface} answers for {to} (ARP)");
        let why = "the two interfaces are not in one network: no message can be sent";
        let mend = format!("the cable, the switch, the VLAN of both ports; ping -I {interface} {to}");
        Finding::problem("peer-neighbour", text, why).mend(mend)
    })
}

/// How packets are marked on both sides.
pub(super) fn marks(own: &Facts, other: &Facts, tried: &[(Entry, Entry, Seen)]) -> Option<Finding> {
    let why = "switches put the two directions into different classes, of which perhaps one alone is without loss (PFC) or marked (ECN)";
    // The soft device has no part in the kernel's connection manager.
    if [own, other].iter().any(|facts| facts.driver == "soft") {
        return None;
    }
    if let Some((here, there)) = own.tos.zip(other.tos)
        && here != there
    {
        let named = |tos: u8| format!("{tos} (DSCP {})", tos >> 2);
        let text = format!(
            "the connection manager's type of service is {} here, and {} at the peer",
            named(here),
            named(there)
        );
        let mend = "one value for default_roce_tos on both: cma_roce_tos -d DEV -t TOS, or /sys/kernel/config/rdma_cm/DEV/ports/1; what programs set themselves is not seen";
        return Some(Finding::warning("peer-traffic-class", text, why).mend(mend));
    }
    tried.iter().find_map(|(mine, theirs, _)| {
        let (here, there) = mine.priorities.as_ref().zip(theirs.priorities.as_ref())?;
        let named = |map: &String| if map.is_empty() { "none".to_owned() } else { map.clone() };
        let text = format!(
            "the priorities of {} are {} here, and {} at the peer",
            mine.interface.as_deref().unwrap_or("the VLAN"),
            named(here),
            named(there)
        );
        let mend = "one map on both: ip link set VLAN type vlan egress-qos-map 0:0 4:3";
        (here != there).then(|| Finding::warning("peer-traffic-class", text, why).mend(mend))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uverbs::SoftDevice;

    fn entry(address: &str) -> Entry {
        Entry {
            interface: Some("eth0".to_owned()),
            ..Entry::at(1, address.parse().expect("an address"), "RoCE v2")
        }
    }

    fn fails() -> Seen {
        Seen::Fails("nothing came in 3s".to_owned())
    }

    #[test]
    fn an_address_of_both_hosts_is_the_cause_unless_they_are_one() {
        let one = entry("::ffff:192.0.2.1");
        let tried = [(one.clone(), one.clone(), fails()), (one.clone(), one, fails())];
        let machine = Machine::here();
        let found = causes(&machine, &tried, false);
        assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["peer-address-twice"]);
        assert_eq!(found[0].severity, Severity::Problem);
        let works = (entry("2001:db8::1"), entry("2001:db8::2"), Seen::Works(1000));
        let found = causes(&machine, &[tried[0].clone(), works], false);
        assert_eq!(found.iter().map(|finding| finding.severity).collect::<Vec<_>>(), [Severity::Warning]);
        assert!(causes(&machine, &tried, true).iter().all(|finding| finding.check != "peer-address-twice"));
    }

    #[test]
    fn a_route_is_a_cause_if_it_is_by_another_interface_or_there_is_none() {
        let [from, to] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        let of = |way: Option<Route>| astray(from, to, "eth0", way.as_ref()).map(|finding| finding.seen);
        let by = |name: &str| Some(Route::By(name.to_owned()));
        assert_eq!((of(by("eth0")), of(by("lo")), of(None)), (None, None, None));
        assert_eq!(
            of(by("eth1")).expect("a cause"),
            "packets from 192.0.2.1 (eth0) to 192.0.2.2 leave by eth1"
        );
        assert_eq!(of(Some(Route::Nowhere)).expect("a cause"), "no route leads from 192.0.2.1 to 192.0.2.2");
    }

    #[test]
    fn a_neighbour_that_does_not_answer_is_a_cause() {
        let root = std::env::temp_dir().join(format!("uverbs-doctor-paths-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc/net")).expect("a folder");
        let arp = "IP address HW type Flags HW address Mask Device\n192.0.2.2 0x1 0x0 00:00:00:00:00:00 * eth0\n192.0.2.3 0x1 0x2 52:54:00:00:00:01 * eth0\n";
        std::fs::write(root.join("proc/net/arp"), arp).expect("a file");
        let machine = Machine::at(&root);
        let of = |to: [u8; 4], name| silent(&machine, to.into(), name).is_some();
        let found = (of([192, 0, 2, 2], "eth0"), of([192, 0, 2, 2], "eth1"), of([192, 0, 2, 3], "eth0"));
        std::fs::remove_dir_all(&root).expect("it was there");
        assert_eq!(found, (true, false, false));
    }

    #[test]
    fn marks_that_differ() {
        let context = SoftDevice::default().open().expect("it opens");
        let facts = Facts { tos: None, ..Facts::of(&context, 1).expect("a port") };
        let with_tos = |tos| Facts { tos: Some(tos), ..facts.clone() };
        assert_eq!(marks(&with_tos(0), &with_tos(104), &[]), None);
        let own = Facts { driver: "rxe".to_owned(), tos: Some(0), ..facts };
        let with = |tos| Facts { tos, ..own.clone() };
        assert_eq!(marks(&own, &with(Some(0)), &[]), None);
        // What is not known does not differ.
        assert_eq!(marks(&with(None), &with(Some(104)), &[]), None);
        assert_eq!(marks(&with(Some(104)), &with(Some(104)), &[]), None);
        let found = marks(&own, &with(Some(104)), &[]).expect("they differ");
        assert!(found.seen.contains("is 0 (DSCP 0) here, and 104 (DSCP 26) at the peer"), "{}", found.seen);
        let of =
            |map: Option<&str>| Entry { priorities: map.map(str::to_owned), ..entry("::ffff:192.0.2.1") };
        let pair = |mine, theirs| [(of(mine), of(theirs), Seen::Works(1))];
        assert_eq!(marks(&own, &own, &pair(Some("0:3"), None)), None);
        assert_eq!(marks(&own, &own, &pair(Some("0:3"), Some("0:3"))), None);
        let found = marks(&own, &own, &pair(Some("0:3"), Some(""))).expect("they differ");
        assert!(found.seen.contains("of eth0 are 0:3 here, and none at the peer"), "{}", found.seen);
    }
}
