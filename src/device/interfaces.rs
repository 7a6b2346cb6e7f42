//! The network interfaces of this process's network namespace.

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// Reads the interfaces. `None` where that is refused, such as in a sandbox without netlink.
pub(super) fn interfaces() -> Option<Interfaces> {
    // The C library asks by netlink, whose socket belongs to the namespace of the thread. `/sys/class/net` has the interfaces of the
    // namespace in which sysfs was mounted.
    Some(Interfaces::from_entries(getifaddrs().ok()?))
}

/// Network interfaces with their addresses.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    list: Vec<NetInterface>,
    /// Addresses with a label that does not begin with the name of an interface.
    labelled: Vec<[u8; 16]>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NetInterface {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) is_up: bool,
    pub(super) has_carrier: bool,
    /// The Ethernet address.
    pub(super) mac: [u8; 6],
    /// The IP addresses, as GIDs.
    pub(super) addresses: Vec<[u8; 16]>,
}

impl Interfaces {
    #[cfg(test)]
    pub(super) fn new(list: Vec<NetInterface>) -> Self {
        Self { list, labelled: Vec::new() }
    }

    fn from_entries(entries: impl Iterator<Item = InterfaceAddress>) -> Self {
        let (links, others): (Vec<_>, Vec<_>) =
            entries.partition(|entry| entry.address.as_ref().is_some_and(|of| of.as_link_addr().is_some()));
        let mut all = Self::default();
        for link in links {
            let Some(of) = link.address.as_ref().and_then(|of| of.as_link_addr()) else { continue };
            all.list.push(NetInterface {
                index: of.ifindex() as u32,
                name: link.interface_name,
                is_up: link.flags.contains(InterfaceFlags::IFF_UP),
                has_carrier: link.flags.contains(InterfaceFlags::IFF_RUNNING),
                mac: of.addr().unwrap_or_default(),
                addresses: Vec::new(),
            });
        }
        for entry in others {
            let Some(address) = entry.address.as_ref() else { continue };
            let v4 = address.as_sockaddr_in().map(|of| of.ip().to_ipv6_mapped());
            let Some(ip) = v4.or_else(|| address.as_sockaddr_in6().map(|of| of.ip())) else { continue };
            // An IPv4 address is listed with its label, which is the interface's name or begins with it: `eth0:1`.
            let label = entry.interface_name;
            let name = label.split(':').next().unwrap_or(&label);
            match all.list.iter_mut().find(|interface| interface.name == name) {
                Some(interface) => interface.addresses.push(ip.octets()),
                None => all.labelled.push(ip.octets()),
            }
        }
        all
    }

    pub(super) fn indexed(&self, index: u32) -> Option<&NetInterface> {
        self.list.iter().find(|interface| interface.index == index)
    }

    /// Whether the interface has this address.
    pub(super) fn has(&self, interface: &NetInterface, address: &[u8; 16]) -> bool {
        interface.addresses.contains(address) || self.labelled.contains(address)
    }
}

impl NetInterface {
    /// The link-local address that is made of the Ethernet address, as the kernel makes the default GIDs of a RoCE port
    /// (`make_default_gid`, cache.c, Linux 6.1).
    pub(super) fn default_gid(&self) -> [u8; 16] {
        let [a, b, c, d, e, f] = self.mac;
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_here() {
        let Some(all) = interfaces() else { return };
        let lo = all.list.iter().find(|interface| interface.name == "lo").expect("every namespace has one");
        assert_eq!(all.indexed(lo.index), Some(lo));
        let mut home = [0; 16];
        home[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
        assert_eq!(all.has(lo, &home), lo.is_up, "{lo:?}");
        assert_eq!(all.indexed(u32::MAX), None);
    }

    #[test]
    fn a_default_gid_is_made_of_the_ethernet_address() {
        let interface = NetInterface { mac: [0x52, 0x54, 0, 0x12, 0x34, 0x56], ..NetInterface::default() };
        let gid = std::net::Ipv6Addr::from(interface.default_gid());
        assert_eq!(gid.to_string(), "fe80::5054:ff:fe12:3456");
    }
}
