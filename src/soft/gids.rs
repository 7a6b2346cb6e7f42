//! The GID table of the port, and routes from one of its GIDs to another.

use nix::errno::Errno;
use uverbs_abi::types::gid_type;
use uverbs_abi::write::GidEntry;

use super::profile::Profile;
use super::{NODE_GUID, PORTS, wire};

/// A global identifier.
pub(super) type Gid = [u8; 16];

/// Entry 0: a link-local address that is made from the node's GUID.
const LINK_LOCAL: Gid = zerocopy::transmute!([0xfe80_0000_0000_0000_u64.to_be(), NODE_GUID.to_be()]);
/// Entry 1: the IPv4 address 192.0.2.1 (TEST-NET-1 of RFC 5737).
const IPV4: Gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
const GIDS: [Gid; 2] = [LINK_LOCAL, IPV4];

/// All entries that contain a GID.
pub(super) fn entries(profile: &Profile) -> impl Iterator<Item = GidEntry> + use<> {
    let own = profile.address.map(wire::gid_of);
    let all = own.into_iter().chain(GIDS.into_iter().filter(move |_| own.is_none()));
    let table = (0..profile.gids).zip(all);
    table.map(|(gid_index, gid)| GidEntry {
        gid,
        gid_index,
        port_num: PORTS.into(),
        gid_type: gid_type::ROCE_V2,
        netdev_ifindex: 0,
    })
}

/// `rdma_get_gid_attr`, cache.c, Linux 6.1: EINVAL outside the table, ENODATA for an empty entry.
pub(super) fn entry(profile: &Profile, index: u32) -> Result<GidEntry, Errno> {
    if index >= profile.gids {
        return Err(Errno::EINVAL);
    }
    entries(profile).find(|entry| entry.gid_index == index).ok_or(Errno::ENODATA)
}

/// Whether packets to this GID arrive at this device.
pub(super) fn is_own(profile: &Profile, gid: &Gid) -> bool {
    entries(profile).any(|entry| entry.gid == *gid)
}

/// Whether a GID is an IPv4 address: its packets then have an IPv4 header.
pub(super) fn is_ipv4(gid: &Gid) -> bool {
    gid[..12] == IPV4[..12]
}

/// Whether a GID is that of a multicast group (`rdma_is_multicast_addr`, ib_addr.h, Linux 6.1).
pub(super) fn is_multicast(gid: &Gid) -> bool {
    gid[0] == 0xff || (is_ipv4(gid) && gid[12] >> 4 == 0xe)
}

/// The first check of `rdma_resolve_ip`, addr.c, Linux 6.1: all packets have headers of one kind. Whether the destination exists is not
/// checked.
pub(super) fn resolve(source: &Gid, destination: &Gid) -> Result<(), Errno> {
    if is_multicast(destination) || is_ipv4(source) == is_ipv4(destination) {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// The route of packets: the data of their network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) source: Gid,
    pub(super) destination: Gid,
    pub(super) flow_label: u32,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_as_long_as_the_profile_says() {
        let count = |gids| entries(&Profile::default().with_gids(gids)).count();
        assert_eq!([0, 1, 2, 16].map(count), [0, 1, 2, 2]);
        let profile = Profile::default().with_gids(3);
        assert_eq!(
            [0, 1, 2, 3].map(|i| entry(&profile, i).err()),
            [None, None, Some(Errno::ENODATA), Some(Errno::EINVAL)]
        );
        assert!(is_own(&profile, &IPV4) && !is_own(&profile, &[0; 16]));
    }

    #[test]
    fn both_ends_of_a_route_are_of_one_kind() {
        let group = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
        assert_eq!(resolve(&IPV4, &IPV4), Ok(()));
        assert_eq!(resolve(&LINK_LOCAL, &[0; 16]), Ok(()));
        assert_eq!(resolve(&LINK_LOCAL, &group), Ok(()));
        assert_eq!(resolve(&IPV4, &[0; 16]), Err(Errno::EINVAL));
        assert_eq!(resolve(&LINK_LOCAL, &IPV4), Err(Errno::EINVAL));
    }

    #[test]
    fn kinds_of_gid() {
        let group = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
        assert!(is_ipv4(&IPV4) && !is_ipv4(&LINK_LOCAL));
        assert!(is_multicast(&group) && is_multicast(&[0xff; 16]));
        assert!(!is_multicast(&IPV4) && !is_multicast(&LINK_LOCAL));
    }
}
