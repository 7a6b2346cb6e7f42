//! Addresses of ports: which one a program should take, and what is missing.
//!
//! Source: core/sysfs.c (`ports/N/gids`, `gid_attrs`) and core/roce_gid_mgmt.c, Linux 6.1 to 7.3. An entry names its interface in every
//! network namespace, also where there is none of that name.

use std::net::{IpAddr, Ipv6Addr};

use crate::doctor::finding::Finding;
use crate::doctor::seen::{Seen, SeenDevice, SeenPort};

/// An entry of the table that is used.
struct Entry {
    index: u32,
    address: Ipv6Addr,
    is_v2: bool,
    interface: Option<String>,
    /// Whether an interface of that name is in this network namespace.
    is_here: bool,
    /// Whether packets can leave from it.
    is_alive: bool,
}

impl Entry {
    fn plain(&self) -> IpAddr {
        self.address.to_ipv4_mapped().map_or(IpAddr::V6(self.address), IpAddr::V4)
    }

    /// What a program should rather take: addresses that reach other networks first, IPv4 before IPv6.
    fn rank(&self) -> (bool, bool, bool, bool, bool, std::cmp::Reverse<u32>) {
        let is_local = self.address.is_unicast_link_local();
        let is_v4 = self.address.to_ipv4_mapped().is_some();
        (self.is_here, self.is_alive, self.is_v2, !is_local, is_v4, std::cmp::Reverse(self.index))
    }
}

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut known: Vec<(Ipv6Addr, String, u32)> = Vec::new();
    for (device, port) in seen.ports() {
        let entries = entries(seen, device, port);
        let on = |finding: Finding| finding.on(&device.name).port(port.number);
        if device.is_roce(&seen.machine, port) {
            found.extend(without_address(seen, &entries).map(on));
            found.extend(over_ethernet(seen, port, &entries).into_iter().map(on));
        }
        for entry in entries.iter().filter(|entry| entry.is_v2) {
            let same =
                known.iter().find(|(address, other, _)| *address == entry.address && *other != device.name);
            if let Some((_, other, index)) = same {
                let text = format!(
                    "{} is the address of two devices: {} (index {}) and {other} (index {index})",
                    entry.plain(),
                    device.name,
                    entry.index
                );
                let why = "a peer cannot tell them apart, and answers may arrive at the other one";
                found.push(on(Finding::warning("address-twice", text, why)
                    .mend("remove one of the devices, or the address from one of the interfaces")));
                break;
            }
        }
        known.extend(entries.iter().map(|entry| (entry.address, device.name.clone(), entry.index)));
    }
    found
}

/// The used entries of a port's table.
fn entries(seen: &Seen, device: &SeenDevice, port: &SeenPort) -> Vec<Entry> {
    let machine = &seen.machine;
    let folder = &port.folder;
    let entry = |index: u32| {
        let address: Ipv6Addr = machine.text(&format!("{folder}/gids/{index}"))?.parse().ok()?;
        let is_v2 = machine.text(&format!("{folder}/gid_attrs/types/{index}")).as_deref() == Some("RoCE v2");
        let interface =
            machine.text(&format!("{folder}/gid_attrs/ndevs/{index}")).filter(|name| !name.is_empty());
        let is_here = interface.as_ref().is_some_and(|name| machine.exists(&format!("sys/class/net/{name}")));
        let plain = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
        let has_it =
            |(name, address): &(String, IpAddr)| Some(name) == interface.as_ref() && *address == plain;
        // Other drivers send without the kernel's routes.
        let is_alive = device.driver != "rxe" || seen.addresses.iter().any(has_it);
        // The second half of an address is zero only in an entry that is not used.
        let is_used = address.octets()[8..] != [0; 8];
        is_used.then_some(Entry { index, address, is_v2, interface, is_here, is_alive })
    };
    let names = machine.names(&format!("{folder}/gids"));
    let mut indexes: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    indexes.sort_unstable();
    indexes.into_iter().filter_map(entry).collect()
}

/// Entries of rxe's table whose address the interface does not have. That of the hardware address is always there (core/roce_gid_mgmt.c), also
/// if IPv6 is disabled, or if the interface has made its link-local address in another way (`addr_gen_mode`).
fn without_address(seen: &Seen, entries: &[Entry]) -> Option<Finding> {
    let (dead, alive): (Vec<_>, Vec<_>) =
        entries.iter().filter(|entry| entry.is_here).partition(|entry| !entry.is_alive);
    let interface = dead.first()?.interface.as_deref()?;
    let named: Vec<_> =
        dead.iter().map(|entry| format!("index {} ({})", entry.index, entry.plain())).collect();
    let text = format!("{interface} does not have the address of {}", named.join(", "));
    let why = "rxe sends by the kernel's routes, so nothing leaves from such an address, which is made of the hardware address";
    let (finding, mut mend) = match alive.is_empty() {
        true => (
            Finding::problem("gid-without-address", text, why),
            format!("ip addr add ADDRESS/24 dev {interface}"),
        ),
        false => (Finding::note("gid-without-address", text, why), "take another index".to_owned()),
    };
    if seen.machine.number(&format!("proc/sys/net/ipv6/conf/{interface}/disable_ipv6")) == Some(1) {
        mend.push_str(&format!("; IPv6 is disabled: sysctl -w net.ipv6.conf.{interface}.disable_ipv6=0"));
    }
    Some(finding.mend(mend))
}

/// A port of RoCE.
fn over_ethernet(seen: &Seen, port: &SeenPort, entries: &[Entry]) -> Vec<Finding> {
    let interface = port.interfaces.first().map_or("INTERFACE", String::as_str);
    let Some(best) = entries.iter().max_by_key(|entry| entry.rank()) else {
        return vec![
            Finding::problem("no-gid", "the port has no address (GID)", "over RoCE a queue pair needs one")
                .mend(format!("give {interface} an IP address and set it up: ip addr add ADDRESS/24 dev {interface}; ip link set {interface} up")),
        ];
    };
    let mut found = Vec::new();
    let foreign = entries.iter().filter(|entry| !entry.is_here).count();
    if foreign > 0 {
        let text = format!(
            "{foreign} of its {} addresses are of interfaces that are not in this network namespace",
            entries.len()
        );
        let why = "programs and connection managers that look for the device of an address of this host do not find it; queue pairs may work (those of rxe do)";
        let mend = "start the program in the namespace of the interface, or move the interface into this one; containers: the host's network";
        let finding = match best.is_here {
            true => Finding::note("foreign-gids", text, why),
            false => Finding::warning("foreign-gids", text, why),
        };
        found.push(finding.mend(mend));
    }
    if !best.is_v2 {
        found.push(
            Finding::warning(
                "only-roce-v1",
                "all addresses are of RoCE v1",
                "its packets do not pass routers, and a peer may know v2 alone",
            )
            .mend("cma_roce_mode, or the firmware's settings"),
        );
    }
    if best.address.is_unicast_link_local() {
        let text = format!("its addresses reach the local link only ({})", best.plain());
        let why =
            "peers behind a router cannot be reached, and programs that look for an IPv4 address find none";
        found.push(
            Finding::warning("link-local-only", text, why)
                .mend(format!("ip addr add ADDRESS/24 dev {interface}")),
        );
    }
    let missing: Vec<_> = seen
        .addresses
        .iter()
        .filter(|(name, _)| port.interfaces.contains(name))
        .filter(|(_, address)| !entries.iter().any(|entry| entry.plain() == *address))
        .map(|(_, address)| address.to_string())
        .collect();
    if !missing.is_empty() {
        let text = format!("{} of {interface} are not in the port's table", missing.join(", "));
        let why = "a program that looks for the device of such an address finds none";
        found.push(
            Finding::warning("address-without-gid", text, why)
                .mend("remove the address and add it again; the table may be full"),
        );
    }
    if best.is_here && !best.is_alive {
        return found;
    }
    let kind = if best.is_v2 { "RoCE v2" } else { "RoCE v1" };
    let text = format!(
        "index {} is the address to take: {}, {kind}, {}",
        best.index,
        best.plain(),
        best.interface.as_deref().unwrap_or("-")
    );
    let why = "a program that is not told takes index 0, which is often another kind of address";
    let mend =
        format!("perftest: -x {0}; NCCL: NCCL_IB_GID_INDEX={0}; UCX: UCX_IB_GID_INDEX={0}", best.index);
    found.push(Finding::note("gid-index", text, why).mend(mend));
    found
}
