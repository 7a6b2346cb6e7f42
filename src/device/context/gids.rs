//! The choice of this side's GID.

mod peer;
#[cfg(test)]
mod tests;
mod told;

use std::net::Ipv6Addr;

use nix::errno::Errno;
use uverbs_abi::types::{link_layer, node_type};

pub use self::peer::Peer;
pub use self::told::{GidCandidate, GidChoice, GidFault, GidReason};
use self::told::{inactive, refusal};
use super::Context;
use super::query::{Gid, GidKind};
use crate::device::interfaces::{Interfaces, NetInterface, interfaces};
use crate::kernel::error::{Error, Result};

const OP: &str = "gid.choose";

impl Context {
    /// Chooses this side's GID on `port` for traffic with `peer`.
    ///
    /// On RoCE, a GID can be used if its network interface belongs to this process's network namespace, is up, and has the address.
    /// Among these, the order is:
    ///
    /// 1. RoCE v2 before RoCE v1;
    /// 2. the address from which this host reaches the peer; then addresses of the peer's family (IPv4 or IPv6); then others;
    /// 3. global addresses before link-local ones, unless the peer's is link-local;
    /// 4. IPv4 before IPv6, then by index.
    ///
    /// A link-local address only fits a link-local peer in the same zone. The GID of a peer only fits GIDs of its family.
    ///
    /// On other ports it is the first GID: InfiniBand delivers packets by LID within a subnet, iWARP's connections are made by the
    /// connection manager, and a port of EFA has one GID.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if no GID can be used, with each GID and the reason; those of
    /// [`check_port_active`](Self::check_port_active).
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_PORT` and `UVERBS_METHOD_QUERY_GID_TABLE` (uverbs_std_types_device.c, Linux 6.1).
    ///
    /// ```
    /// use uverbs::{ConnectionOptions, Peer, SoftDevice};
    ///
    /// # fn main() -> uverbs::Result<()> {
    /// let context = SoftDevice::default().open()?;
    /// let chosen = context.gid_for(1, Peer::Unknown)?;
    /// assert_eq!(chosen.to_string(), "GID 1, 192.0.2.1 (RoCE v2): the first in the order of choice");
    /// let options = ConnectionOptions::new(1, chosen.index);
    /// # assert_eq!(options.gid_index, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn gid_for(&self, port: u8, peer: impl Into<Peer>) -> Result<GidChoice> {
        let peer = peer.into();
        self.check_port_active(port)?;
        let candidates = self.gid_candidates(port, peer)?;
        candidates.iter().find_map(GidCandidate::choice).ok_or_else(|| {
            let name = self.0.device.name();
            Error::kernel(OP, Errno::EADDRNOTAVAIL).not_found(refusal(name, port, peer, &candidates))
        })
    }

    /// Every GID of `port`, with the reason why [`gid_for`](Self::gid_for) could choose it for traffic with `peer`, or why it cannot be
    /// used. The best is first, and those that cannot be used are last.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a port that the device does not have; others of the kernel.
    ///
    /// # Kernel
    /// As [`gid_for`](Self::gid_for).
    ///
    /// ```
    /// use uverbs::{Peer, SoftDevice};
    ///
    /// # fn main() -> uverbs::Result<()> {
    /// let context = SoftDevice::default().open()?;
    /// for candidate in context.gid_candidates(1, Peer::Unknown)? {
    ///     println!("{candidate}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn gid_candidates(&self, port: u8, peer: impl Into<Peer>) -> Result<Vec<GidCandidate>> {
        let peer = peer.into();
        let attr = self.query_port(port)?.legacy_resp;
        let mut gids = self.gid_table()?;
        gids.retain(|gid| gid.port == u32::from(port));
        let fabric = Fabric::of(self.0.device.node_type(), attr.link_layer);
        // A soft device has no interfaces, and the others need none.
        let has_interfaces = gids.iter().any(|gid| is_roce(gid) && gid.interface != 0);
        let (here, source) = if has_interfaces { (interfaces(), peer.source()) } else { (None, None) };
        let mut candidates = rate(&gids, fabric, here.as_ref(), peer, source);
        for candidate in &mut candidates {
            if candidate.rating == Err(GidFault::OtherNamespace) {
                candidate.interface = self.0.device.interface_of(port, candidate.gid.index);
            }
        }
        Ok(candidates)
    }

    /// Refuses a port that cannot carry messages now, because its link is down or no subnet manager has configured it.
    ///
    /// # Errors
    /// [`Other`](crate::ErrorKind::Other) (`ENETDOWN`) with the state of the port and what to do;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a port that the device does not have.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_PORT` (uverbs_std_types_device.c, Linux 6.1).
    ///
    /// ```
    /// uverbs::SoftDevice::default().open()?.check_port_active(1)?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    pub fn check_port_active(&self, port: u8) -> Result<()> {
        let attr = self.query_port(port)?.legacy_resp;
        let device = &self.0.device;
        let nets: Vec<_> = device.interfaces().iter().filter(|of| of.port == u32::from(port)).collect();
        let nets: Vec<_> = nets.iter().map(|of| of.name.as_str()).collect();
        match inactive(device.name(), port, &attr, &nets) {
            Some(text) => Err(Error::refused("port.check_active", Errno::ENETDOWN, text)),
            None => Ok(()),
        }
    }
}

/// The network to which a port belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fabric {
    InfiniBand,
    Iwarp,
    /// RoCE, or anything else.
    Other,
}

impl Fabric {
    fn of(node: u8, link: u8) -> Self {
        match (node, link) {
            (node_type::RNIC, _) => Self::Iwarp,
            (_, link_layer::INFINIBAND) => Self::InfiniBand,
            _ => Self::Other,
        }
    }
}

fn is_roce(gid: &Gid) -> bool {
    matches!(gid.kind, GidKind::RoceV1 | GidKind::RoceV2)
}

fn is_ipv4(gid: &[u8; 16]) -> bool {
    Ipv6Addr::from(*gid).to_ipv4_mapped().is_some()
}

fn is_link_local(gid: &[u8; 16]) -> bool {
    Ipv6Addr::from(*gid).is_unicast_link_local()
}

/// The GIDs in the order of choice. `here` are the interfaces of this network namespace, if they are known, and `source` is the address
/// from which this host reaches the peer.
fn rate(
    gids: &[Gid],
    fabric: Fabric,
    here: Option<&Interfaces>,
    peer: Peer,
    source: Option<[u8; 16]>,
) -> Vec<GidCandidate> {
    let peer = peer.canonical();
    let mut rated: Vec<_> = gids
        .iter()
        .map(|gid| {
            let interface = here.and_then(|all| all.indexed(gid.interface)).filter(|_| is_roce(gid));
            let rating = match fabric {
                _ if gid.index > u8::MAX.into() => Err(GidFault::LargeIndex),
                Fabric::InfiniBand => Ok(GidReason::InfiniBand),
                Fabric::Iwarp => Ok(GidReason::Iwarp),
                Fabric::Other => match gid.kind {
                    GidKind::InfiniBand => Ok(GidReason::Own),
                    GidKind::Unknown(_) => Err(GidFault::UnknownKind),
                    _ => here
                        .map_or(Ok(()), |all| usable(gid, all, interface))
                        .and_then(|()| fits(gid, peer, source)),
                },
            };
            GidCandidate { gid: *gid, interface: interface.map(|of| of.name.clone()), rating }
        })
        .collect();
    rated.sort_by_key(|candidate| place(candidate, peer));
    rated
}

/// Whether the interface of a RoCE GID can send from its address.
fn usable(gid: &Gid, here: &Interfaces, interface: Option<&NetInterface>) -> Result<(), GidFault> {
    if gid.interface == 0 {
        return Ok(());
    }
    // Another namespace may have an interface with the same index, even with the same name: the addresses tell which it is.
    let interface = interface.ok_or(GidFault::OtherNamespace)?;
    let has_address = here.has(interface, &gid.raw);
    // RoCE v1 does not use the IP stack between link-local addresses (ib_resolve_unicast_gid_dmac, verbs.c, Linux 6.1), so the interface
    // need not have that of the default GID.
    let needs_none = gid.kind == GidKind::RoceV1 && gid.raw == interface.default_gid();
    match interface {
        // IPv6 addresses leave an interface that goes down, so this comes first.
        NetInterface { is_up: false, .. } if has_address || gid.raw == interface.default_gid() => {
            Err(GidFault::InterfaceDown)
        }
        _ if !has_address && !needs_none => Err(GidFault::NoAddress),
        NetInterface { is_up: false, .. } => Err(GidFault::InterfaceDown),
        NetInterface { has_carrier: false, .. } => Err(GidFault::NoCarrier),
        _ => Ok(()),
    }
}

/// How well a GID fits the peer.
fn fits(gid: &Gid, peer: Peer, source: Option<[u8; 16]>) -> Result<GidReason, GidFault> {
    let Some(other) = peer.gid() else { return Ok(GidReason::Order) };
    let zone = match peer {
        Peer::Ip { zone, .. } if is_link_local(&other) => zone,
        _ => 0,
    };
    let is_in_zone = zone == 0 || gid.interface == 0 || gid.interface == zone;
    let is_same_family = is_ipv4(&gid.raw) == is_ipv4(&other);
    match peer {
        // The kernel resolves no route from one family to the other (rdma_resolve_ip, addr.c, Linux 6.1).
        Peer::Gid(_) if !is_same_family => Err(GidFault::OtherFamily),
        _ if is_link_local(&gid.raw) && !is_in_zone => Err(GidFault::OtherZone),
        _ if source == Some(gid.raw) => Ok(GidReason::Route),
        _ if is_same_family && is_in_zone => Ok(GidReason::Family),
        _ => Ok(GidReason::OtherFamily),
    }
}

/// The place of a GID in the order; smaller is better.
fn place(candidate: &GidCandidate, peer: Peer) -> (bool, bool, u8, bool, bool, u32) {
    let gid = &candidate.gid;
    let class = match candidate.rating {
        Ok(GidReason::Route) => 0,
        Ok(GidReason::OtherFamily) => 2,
        _ => 1,
    };
    // A peer's link-local address is reached from such an address.
    let wants_link_local = peer.gid().is_some_and(|other| is_link_local(&other));
    let is_roce = is_roce(gid);
    (
        candidate.rating.is_err(),
        gid.kind == GidKind::RoceV1,
        class,
        is_roce && is_link_local(&gid.raw) != wants_link_local,
        is_roce && !is_ipv4(&gid.raw),
        gid.index,
    )
}
