//! What the two sides have, side by side.

use super::facts::{Entry, Facts};
use super::messages::Seen;
use crate::doctor::finding::Finding;
use crate::ping::exchange::Peer;

/// The addresses of the client and the server between which messages could go: those of IPv4 first, and link-local ones last. Both sides have
/// them in this order.
pub(super) fn pairs<'a>(client: &'a Facts, server: &'a Facts) -> Vec<(&'a Entry, &'a Entry)> {
    if !(client.connects && server.connects && client.is_active && server.is_active) {
        return Vec::new();
    }
    let usable = |facts: &'a Facts| facts.gids.iter().filter(|entry| entry.is_usable);
    let fits = |one: &Entry, two: &Entry| {
        let is_local = |entry: &Entry| entry.address.is_unicast_link_local();
        one.kind == two.kind && one.is_ipv4() == two.is_ipv4() && is_local(one) == is_local(two)
    };
    let mut pairs: Vec<_> = usable(client)
        .flat_map(|one| usable(server).filter(move |two| fits(one, two)).map(move |two| (one, two)))
        .collect();
    // Other VLANs are tried only where there is none of this one.
    let same: Vec<_> = pairs.iter().copied().filter(|(one, two)| one.vlan == two.vlan).collect();
    pairs.retain(|(one, two)| {
        one.vlan == two.vlan || !same.iter().any(|(a, b)| a.index == one.index || b.index == two.index)
    });
    pairs.sort_by_key(|(one, two)| {
        (one.address.is_unicast_link_local(), !one.is_ipv4(), one.index, two.index)
    });
    pairs
}

/// That there are more pairs of addresses than were tried.
pub(super) fn untried(count: usize) -> Option<Finding> {
    if count == 0 {
        return None;
    }
    let (plural, were) = if count == 1 { ("", "was") } else { ("s", "were") };
    let text = format!("{count} more pair{plural} of addresses {were} not tried");
    let why = "each pair takes time; those of IPv4 come first, and link-local ones last";
    Some(Finding::note("peer-untried", text, why))
}

/// Who the other side is.
pub(super) fn met(host: &str, peer: &Peer, is_client: bool) -> Finding {
    let (name, address) = (host.escape_debug(), peer.address());
    let text = if is_client {
        format!("{name} has answered at {address}")
    } else {
        format!("{name} has connected, from {address}")
    };
    Finding::note("peer-met", text, "what is said of the peer is of that host")
}

/// Differences of what both say.
pub(super) fn facts(own: &Facts, other: &Facts, pairs: usize) -> Vec<Finding> {
    let mut found = Vec::new();
    if own.link != other.link {
        let text = format!("the port here is {}, and that of the peer {}", own.link, other.link);
        let why = "ports of different kinds do not reach each other without a gateway";
        found.push(
            Finding::problem("peer-link", text, why)
                .mend("use ports of one kind, or change the type of one (mlxconfig LINK_TYPE_P1)"),
        );
    }
    for (facts, where_) in [(own, "here"), (other, "at the peer")] {
        if !facts.is_active {
            let text = format!("the port {where_} is not active");
            let why = "no message leaves it";
            found.push(Finding::problem("peer-port", text, why).mend("uverbs doctor there says why"));
        }
        if !facts.connects {
            let text = format!("queue pairs of {} {where_} are not connected by their numbers", facts.driver);
            let why = "no messages were tried";
            let mend = "uverbs ping --cm (iWARP), uverbs ping --transport srd (EFA)";
            found.push(Finding::note("peer-untried", text, why).mend(mend));
        }
    }
    if own.mtu != other.mtu {
        let mtu = |facts: &Facts| {
            let mtu = facts.gids.iter().find_map(|entry| entry.interface_mtu);
            mtu.map_or_else(String::new, |mtu| format!(" (the interface's MTU is {mtu})"))
        };
        let text = format!(
            "packets of {} bytes here{}, and of {} at the peer{}",
            own.mtu_bytes,
            mtu(own),
            other.mtu_bytes,
            mtu(other)
        );
        let why =
            "a program that takes the size of one side connects, and its messages are lost at the other";
        let mend =
            "give both interfaces, and the switches between, the same MTU: ip link set INTERFACE mtu 9000";
        found.push(Finding::warning("peer-packet-size", text, why).mend(mend));
    }
    if pairs == 0 && own.connects && other.connects && own.is_active && other.is_active {
        let text =
            format!("no address here fits one of the peer: {}; the peer has {}", kinds(own), kinds(other));
        let why = "both ends of a connection need addresses of one version of RoCE, both IPv4 or both IPv6";
        let mend = "give both interfaces addresses of one kind: ip addr add ADDRESS/24 dev INTERFACE; cma_roce_mode for the version";
        found.push(Finding::problem("peer-addresses", text, why).mend(mend));
    }
    found.extend(vlans(own, other));
    found
}

/// The kinds of addresses of a side, each once.
fn kinds(facts: &Facts) -> String {
    let usable = facts.gids.iter().filter(|entry| entry.is_usable);
    let mut kinds: Vec<_> = usable
        .map(|entry| format!("{} over {}", entry.kind, if entry.is_ipv4() { "IPv4" } else { "IPv6" }))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.is_empty() { "none that can be used".to_owned() } else { kinds.join(", ") }
}

/// Addresses on both sides, of which none has the same VLAN there.
fn vlans(own: &Facts, other: &Facts) -> Option<Finding> {
    let of = |facts: &Facts| -> Vec<Option<u16>> {
        let mut all: Vec<_> =
            facts.gids.iter().filter(|entry| entry.is_usable).map(|entry| entry.vlan).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (here, there) = (of(own), of(other));
    if here.is_empty() || there.is_empty() || here.iter().any(|vlan| there.contains(vlan)) {
        return None;
    }
    let named = |all: &[Option<u16>]| {
        let names: Vec<_> =
            all.iter().map(|vlan| vlan.map_or("no VLAN".to_owned(), |vlan| format!("VLAN {vlan}"))).collect();
        names.join(", ")
    };
    let text = format!("addresses here are in {}, and at the peer in {}", named(&here), named(&there));
    let why = "a switch keeps VLANs apart";
    Some(
        Finding::warning("peer-vlan", text, why)
            .mend("use addresses of interfaces in one VLAN on both sides"),
    )
}

/// What became of the messages.
pub(super) fn messages(tried: &[(Entry, Entry, Seen)]) -> Vec<Finding> {
    let works = tried.iter().any(|(_, _, seen)| matches!(seen, Seen::Works(_)));
    let mut found = Vec::new();
    for (mine, theirs, seen) in tried {
        let both = format!("{} to {}", mine.named(), theirs.named());
        found.push(match seen {
            Seen::Works(ns) => {
                let text = format!("{both}: messages arrive, {:.1} µs there and back", *ns as f64 / 1000.0);
                Finding::note("peer-messages", text, "a connection between these addresses works")
                    .mend(format!("perftest: -x {0}; NCCL: NCCL_IB_GID_INDEX={0}; UCX: UCX_IB_GID_INDEX={0}", mine.index))
            }
            Seen::OnlyShort(bytes, why) => {
                let text = format!("{both}: short messages arrive, and packets of {bytes} bytes do not: {why}");
                let mend = "the MTU of a switch or an interface between the hosts is smaller: make it larger, or let programs use smaller packets";
                Finding::problem("peer-large-packets", text, "something between the hosts drops large packets").mend(mend)
            }
            Seen::Fails(why) => {
                let text = format!("{both}: no message arrives: {why}");
                let mend = "let UDP port 4791 through firewalls; look at the route between the addresses (ip route get ADDRESS)";
                let (check, reason) = ("peer-silent", "a program that takes these addresses does not reach the peer");
                let finding = if works { Finding::warning(check, text, reason) } else { Finding::problem(check, text, reason) };
                finding.mend(mend)
            }
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use uverbs::SoftDevice;

    use super::*;

    fn soft() -> Facts {
        Facts::of(&SoftDevice::default().open().expect("it opens"), 1).expect("a port")
    }

    fn checks(found: &[Finding]) -> Vec<&'static str> {
        found.iter().map(|finding| finding.check).collect()
    }

    fn entry(index: u8, address: &str, kind: &str) -> Entry {
        Entry::at(index, address.parse().expect("an address"), kind)
    }

    #[test]
    fn two_sides_that_are_alike_have_no_findings() {
        let facts = soft();
        assert_eq!(checks(&super::facts(&facts, &facts, pairs(&facts, &facts).len())), [""; 0]);
    }

    #[test]
    fn each_difference_is_found() {
        let own = soft();
        let with = |change: fn(&mut Facts)| {
            let mut other = own.clone();
            change(&mut other);
            let count = pairs(&own, &other).len();
            checks(&super::facts(&own, &other, count))
        };
        assert_eq!(with(|other| other.link = "InfiniBand".to_owned()), ["peer-link"]);
        assert_eq!(with(|other| other.is_active = false), ["peer-port"]);
        assert_eq!(with(|other| other.connects = false), ["peer-untried"]);
        assert_eq!(with(|other| other.mtu = 1), ["peer-packet-size"]);
        assert_eq!(with(|other| other.gids.clear()), ["peer-addresses"]);
        assert_eq!(with(|other| other.gids.iter_mut().for_each(|gid| gid.vlan = Some(5))), ["peer-vlan"]);
    }

    #[test]
    fn messages_go_between_addresses_of_one_kind() {
        let mut own = soft();
        own.gids = vec![
            entry(0, "fe80::1", "RoCE v2"),
            entry(1, "::ffff:192.0.2.1", "RoCE v2"),
            entry(2, "2001:db8::1", "RoCE v1"),
        ];
        let mut other = own.clone();
        other.gids.push(Entry { is_usable: false, ..entry(3, "::ffff:192.0.2.2", "RoCE v2") });
        other.gids.push(entry(4, "2001:db8::2", "RoCE v2"));
        let found: Vec<_> = pairs(&own, &other).iter().map(|(one, two)| (one.index, two.index)).collect();
        assert_eq!(found, [(1, 1), (2, 2), (0, 0)]);
    }

    #[test]
    fn addresses_of_other_vlans_are_tried_only_if_there_are_none_of_the_same() {
        let mut own = soft();
        own.gids =
            vec![entry(0, "fe80::1", "RoCE v2"), Entry { vlan: Some(5), ..entry(1, "fe80::1", "RoCE v2") }];
        let indexes = |own: &Facts, other: &Facts| -> Vec<_> {
            pairs(own, other).iter().map(|(one, two)| (one.index, two.index)).collect()
        };
        assert_eq!(indexes(&own, &own), [(0, 0), (1, 1)]);
        let other = Facts { gids: vec![own.gids[1].clone()], ..own.clone() };
        own.gids.truncate(1);
        assert_eq!(indexes(&own, &other), [(0, 1)]);
    }

    #[test]
    fn all_pairs_of_ipv4_come_first_and_those_left_are_counted() {
        let mut own = soft();
        own.gids = (0..5).map(|index| entry(index, &format!("fe80::{index}"), "RoCE v2")).collect();
        own.gids.push(entry(5, "2001:db8::1", "RoCE v2"));
        own.gids.extend((6..8).map(|index| entry(index, &format!("::ffff:192.0.2.{index}"), "RoCE v2")));
        let found: Vec<_> = pairs(&own, &own).iter().map(|(one, two)| (one.index, two.index)).collect();
        assert_eq!(found[..6], [(6, 6), (6, 7), (7, 6), (7, 7), (5, 5), (0, 0)]);
        assert_eq!(found.len(), 30);
        assert_eq!(untried(0), None);
        let note = untried(14).expect("some are left");
        assert_eq!(
            (note.check, note.seen.as_str()),
            ("peer-untried", "14 more pairs of addresses were not tried")
        );
    }

    #[test]
    fn messages_that_do_not_arrive_are_a_problem_unless_others_do() {
        let one = entry(1, "::ffff:192.0.2.1", "RoCE v2");
        let of = |seen: &[Seen]| {
            let tried: Vec<_> = seen.iter().map(|seen| (one.clone(), one.clone(), seen.clone())).collect();
            super::messages(&tried)
                .iter()
                .map(|found| (found.check, found.severity.counted(1)))
                .collect::<Vec<_>>()
        };
        let fails = Seen::Fails("nothing came in 3s".to_owned());
        let short = Seen::OnlyShort(4096, "nothing came in 3s".to_owned());
        let named = |check, severity: &str| (check, severity.to_owned());
        assert_eq!(of(std::slice::from_ref(&fails)), [named("peer-silent", "1 problem")]);
        assert_eq!(
            of(&[fails, Seen::Works(1000)]),
            [named("peer-silent", "1 warning"), named("peer-messages", "1 note")]
        );
        assert_eq!(of(&[short]), [named("peer-large-packets", "1 problem")]);
    }
}
