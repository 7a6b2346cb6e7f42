//! The other side.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use super::is_link_local;
use super::told::Text;

/// The other side of the traffic for which a GID is chosen.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// Not known yet, as on the side that waits for others.
    #[default]
    Unknown,
    /// An IP address. A loopback address says nothing about the network; it is the same as [`Unknown`](Self::Unknown).
    Ip {
        /// The address.
        address: IpAddr,
        /// The zone of a link-local address: the index of this side's network interface; 0 for none.
        zone: u32,
    },
    /// The GID that the peer uses, in network byte order. Zeros, as in an [`Endpoint`](crate::Endpoint) with only a LID, are the same as
    /// [`Unknown`](Self::Unknown).
    Gid([u8; 16]),
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self::Ip { address, zone: 0 }
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        let zone = match address {
            SocketAddr::V6(of) => of.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        Self::Ip { address: address.ip(), zone }
    }
}

impl From<[u8; 16]> for Peer {
    fn from(gid: [u8; 16]) -> Self {
        Self::Gid(gid)
    }
}

impl Peer {
    /// In the fewest forms: IPv4 addresses as such, and without those that say nothing.
    pub(super) fn canonical(self) -> Self {
        match self {
            Self::Ip { address, .. } if address.to_canonical().is_loopback() => Self::Unknown,
            Self::Ip { address, zone } => Self::Ip { address: address.to_canonical(), zone },
            Self::Gid(gid) if gid == [0; 16] => Self::Unknown,
            other => other,
        }
    }

    /// Its address as a GID.
    pub(super) fn gid(self) -> Option<[u8; 16]> {
        match self {
            Self::Unknown => None,
            Self::Ip { address: IpAddr::V4(of), .. } => Some(of.to_ipv6_mapped().octets()),
            Self::Ip { address: IpAddr::V6(of), .. } => Some(of.octets()),
            Self::Gid(gid) => Some(gid),
        }
    }

    /// The address from which this host sends to the peer. Nothing is sent to find out.
    pub(super) fn source(self) -> Option<[u8; 16]> {
        let (address, zone) = match self.canonical() {
            Self::Ip { address, zone } => (address, zone),
            // RoCE's GIDs are IP addresses. It is not known to whose zone a link-local one belongs.
            Self::Gid(gid) if !is_link_local(&gid) => (Ipv6Addr::from(gid).to_canonical(), 0),
            _ => return None,
        };
        let (any, to): (IpAddr, _) = match address {
            IpAddr::V4(of) => (Ipv4Addr::UNSPECIFIED.into(), SocketAddr::from((of, PORT))),
            IpAddr::V6(of) => (Ipv6Addr::UNSPECIFIED.into(), SocketAddrV6::new(of, PORT, 0, zone).into()),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        Self::from(socket.local_addr().ok()?).gid()
    }
}

/// The UDP port of RoCE v2.
const PORT: u16 = 4791;

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("an unknown peer"),
            Self::Ip { address, zone: 0 } => address.fmt(f),
            Self::Ip { address, zone } => write!(f, "{address}%{zone}"),
            Self::Gid(gid) => write!(f, "GID {}", Text(gid)),
        }
    }
}
