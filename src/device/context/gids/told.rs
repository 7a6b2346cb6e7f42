//! What is told about GIDs and ports: choices, reasons and refusals.

use std::fmt;
use std::net::Ipv6Addr;

use uverbs_abi::types::{link_layer, phys_state, port_state};
use uverbs_abi::write::QueryPortResp;

use super::Peer;
use crate::device::context::query::Gid;
use crate::kernel::error::Result;

/// How many GIDs an error lists.
const LISTED: usize = 8;

/// The GID that was chosen for this side, and why.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidChoice {
    /// Its index, for [`ConnectionOptions::new`](crate::ConnectionOptions::new) and [`Route::new`](crate::Route::new).
    pub index: u8,
    /// The entry of the table.
    pub gid: Gid,
    /// The name of its network interface, if it has one.
    pub interface: Option<String>,
    /// Why it was chosen.
    pub reason: GidReason,
}

impl fmt::Display for GidChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Entry(&self.gid, self.interface.as_deref()), self.reason)
    }
}

/// A GID that could be chosen for this side, or that cannot be used.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidCandidate {
    /// The entry of the table.
    pub gid: Gid,
    /// The name of its network interface, if it has one and the name is known. It may belong to another network namespace.
    pub interface: Option<String>,
    /// Why it could be chosen, or why it cannot be used.
    pub rating: Result<GidReason, GidFault>,
}

impl GidCandidate {
    pub(super) fn choice(&self) -> Option<GidChoice> {
        let reason = self.rating.ok()?;
        let index = u8::try_from(self.gid.index).ok()?;
        Some(GidChoice { index, gid: self.gid, interface: self.interface.clone(), reason })
    }

    /// As an item of a list of those that cannot be used.
    fn listed(&self) -> String {
        let entry = Entry(&self.gid, self.interface.as_deref());
        match &self.rating {
            Ok(reason) => format!("{entry}: {reason}"),
            Err(fault) => format!("{entry}: {fault}"),
        }
    }
}

impl fmt::Display for GidCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", Entry(&self.gid, self.interface.as_deref()))?;
        match &self.rating {
            Ok(reason) => reason.fmt(f),
            Err(fault) => write!(f, "cannot be used: {fault}"),
        }
    }
}

/// Why a GID can be chosen.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidReason {
    /// It is the address from which this host reaches the peer.
    Route,
    /// It has the family of the peer's address.
    Family,
    /// The peer is not known.
    Order,
    /// Its family is not that of the peer's address, at which the peer may have other addresses too.
    OtherFamily,
    /// The port is InfiniBand.
    InfiniBand,
    /// The port is iWARP.
    Iwarp,
    /// The port has addresses of its own kind.
    Own,
}

impl fmt::Display for GidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Route => "the address from which this host reaches the peer",
            Self::Family => "of the family of the peer's address",
            Self::Order => "the first in the order of choice",
            Self::OtherFamily => "no GID has the family of the peer's address",
            Self::InfiniBand => "packets on InfiniBand are delivered by LID, and this is the port's own GID",
            Self::Iwarp => "the connection manager makes iWARP's connections, which need no GID",
            Self::Own => "the first GID of a port that is neither RoCE nor InfiniBand",
        })
    }
}

/// Why a GID cannot be used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidFault {
    /// Its network interface is not in the network namespace of this process.
    OtherNamespace,
    /// The interface with its index does not have its address: the address was never assigned, or the GID belongs to an interface of
    /// another network namespace with the same index.
    NoAddress,
    /// Its network interface is down.
    InterfaceDown,
    /// Its network interface has no carrier.
    NoCarrier,
    /// It has another family than the peer's GID.
    OtherFamily,
    /// It is link-local, and the peer is in another zone.
    OtherZone,
    /// This crate does not know its type.
    UnknownKind,
    /// Its index does not fit into the 8 bits of a route.
    LargeIndex,
}

impl fmt::Display for GidFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherNamespace => "its network interface is not in this network namespace",
            Self::NoAddress => "the interface does not have this address in this network namespace",
            Self::InterfaceDown => "the interface is down",
            Self::NoCarrier => "the interface has no carrier",
            Self::OtherFamily => "the peer's GID is of the other family (IPv4 or IPv6)",
            Self::OtherZone => "link-local, and the peer is in the zone of another interface",
            Self::UnknownKind => "a type that this crate does not know",
            Self::LargeIndex => "its index is larger than 255",
        })
    }
}

/// An entry as text.
struct Entry<'a>(&'a Gid, Option<&'a str>);

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(gid, interface) = self;
        write!(f, "GID {}, {} ({}", gid.index, Text(&gid.raw), gid.kind)?;
        match (interface, gid.interface) {
            (Some(name), _) => write!(f, ", {name})"),
            (None, 0) => f.write_str(")"),
            (None, index) => write!(f, ", interface {index})"),
        }
    }
}

/// A GID as an IP address.
pub(super) struct Text<'a>(pub(super) &'a [u8; 16]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(*self.0).to_canonical().fmt(f)
    }
}

/// Why none can be used, and what to do.
pub(super) fn refusal(device: &str, port: u8, peer: Peer, candidates: &[GidCandidate]) -> String {
    if candidates.is_empty() {
        return format!("port {port} of {device} has no GID: give its network interface an IP address");
    }
    let mut listed: Vec<_> = candidates.iter().take(LISTED).map(GidCandidate::listed).collect();
    match candidates.len().saturating_sub(LISTED) {
        0 => {}
        more => listed.push(format!("and {more} more")),
    }
    let has = |fault| candidates.iter().any(|candidate| candidate.rating == Err(fault));
    let down = candidates.iter().find(|candidate| candidate.rating == Err(GidFault::InterfaceDown));
    let advice = if let Some(name) = down.and_then(|candidate| candidate.interface.as_deref()) {
        format!("bring the interface up (ip link set {name} up)")
    } else if has(GidFault::OtherFamily) {
        format!(
            "give an interface of the port an address of the family of {}, or let the peer use another GID",
            peer.canonical()
        )
    } else if has(GidFault::OtherZone) {
        "use an interface of the port as the zone of the peer's address".to_owned()
    } else if has(GidFault::OtherNamespace) {
        "run in the network namespace of the interface, or move the interface to this one".to_owned()
    } else {
        "give an interface of the port an IP address in this network namespace".to_owned()
    };
    format!("no GID of port {port} of {device} can be used: {}; {advice}", listed.join("; "))
}

/// Why a port carries no messages, if it carries none, and what to do.
pub(super) fn inactive(device: &str, port: u8, attr: &QueryPortResp, nets: &[&str]) -> Option<String> {
    let state = match attr.state {
        port_state::DOWN => "DOWN",
        port_state::INIT => "INIT",
        port_state::ARMED => "ARMED",
        _ => return None,
    };
    let physical = match attr.phys_state {
        phys_state::SLEEP => "sleep",
        phys_state::POLLING => "polling",
        phys_state::DISABLED => "disabled",
        phys_state::PORT_CONFIGURATION_TRAINING => "training",
        phys_state::LINK_UP => "link up",
        phys_state::LINK_ERROR_RECOVERY => "error recovery",
        phys_state::PHY_TEST => "test",
        _ => "unknown",
    };
    let advice = match (attr.link_layer, attr.state) {
        (link_layer::INFINIBAND, port_state::DOWN) => "check its cable and the other end".to_owned(),
        (link_layer::INFINIBAND, _) => "a subnet manager has to configure it".to_owned(),
        _ if nets.is_empty() => "its network interface must be up, and have a carrier".to_owned(),
        _ => {
            let name = nets.join(" or ");
            format!("its network interface must be up (ip link set {name} up), and have a carrier")
        }
    };
    Some(format!(
        "port {port} of {device} is not active (state {state}, physical state {physical}): {advice}"
    ))
}
