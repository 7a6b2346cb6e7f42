//! Addresses and ports that are bound (`cma_get_port` and `cma_check_port`, cma.c).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;

use super::state::{Identifier, Phase, State};

/// The first port that is chosen for a program (`ip_local_port_range`).
const FIRST: u16 = 32_768;

/// Whether an address stands for any address: the kernel counts loopback addresses too (`cma_any_addr`).
pub(super) fn is_any(address: &IpAddr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

/// Any address of the family of `address`.
pub(super) fn any_like(address: &IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl State {
    /// Binds an identifier to an address, which is one of a device or any address.
    pub(super) fn bind(&mut self, number: u32, address: SocketAddr) -> Result<(), Errno> {
        // `cma_check_linklocal`.
        if matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0) {
            return Err(Errno::EINVAL);
        }
        let device = match is_any(&address.ip()) {
            true => None,
            false => Some(self.at(&address.ip()).ok_or(Errno::EADDRNOTAVAIL)?),
        };
        let address = match address.port() {
            0 => SocketAddr::new(address.ip(), self.free_port()?),
            _ => address,
        };
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        self.check_port(number, id, &address, id.reuses_address)?;
        let id = self.identifiers.get_mut(&number).ok_or(Errno::ENOENT)?;
        (id.own, id.device, id.phase) = (Some(address), device, Phase::Bound);
        Ok(())
    }

    /// The others of the port space at this port, whether the port is free for an identifier that reuses addresses, or not.
    pub(super) fn check_port(
        &self,
        number: u32,
        id: &Identifier,
        address: &SocketAddr,
        reuses_address: bool,
    ) -> Result<(), Errno> {
        for (other, bound) in &self.identifiers {
            let Some(theirs) = bound.own.filter(|own| own.port() == address.port()) else { continue };
            let is_beside = *other == number || bound.space != id.space || bound.is_server;
            if is_beside || (reuses_address && bound.reuses_address && bound.phase != Phase::Listening) {
                continue;
            }
            let (ours, theirs) = (address.ip(), theirs.ip());
            let families_meet = ours.is_ipv4() == theirs.is_ipv4()
                || (is_any(&ours) && ours.is_ipv6() && !id.only_family)
                || (is_any(&theirs) && theirs.is_ipv6() && !bound.only_family);
            if families_meet && ours != theirs && (is_any(&ours) || is_any(&theirs)) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            if ours == theirs {
                return Err(Errno::EADDRINUSE);
            }
        }
        Ok(())
    }

    /// A port that nobody has.
    fn free_port(&mut self) -> Result<u16, Errno> {
        for _ in 0..=u16::MAX {
            self.last_port = self.last_port.checked_add(1).unwrap_or(FIRST).max(FIRST);
            let port = self.last_port;
            if !self.identifiers.values().any(|id| id.own.is_some_and(|own| own.port() == port)) {
                return Ok(port);
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    /// The listener for a destination.
    pub(super) fn listener(&self, space: u16, to: &SocketAddr) -> Option<u32> {
        let hears = |id: &Identifier| {
            let Some(own) = id.own else { return false };
            let is_family = own.is_ipv4() == to.is_ipv4() || (own.is_ipv6() && !id.only_family);
            let is_here = own.ip() == to.ip() || (is_any(&own.ip()) && is_family);
            id.phase == Phase::Listening && id.space == space && own.port() == to.port() && is_here
        };
        self.identifiers.iter().find(|(_, id)| hears(id)).map(|(number, _)| *number)
    }
}
