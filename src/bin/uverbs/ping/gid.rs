//! This side's GID: the one that `--gid-index` names, or the one that fits the other side.

use std::fmt;
use std::net::Ipv6Addr;

use serde::{Serialize, Serializer};
use uverbs::{Context, Endpoint, ErrorKind, Gid, GidChoice, GidKind, Peer};

use crate::Outcome;
use crate::failure::Failure;
use crate::target::Target;

/// The GID of this side.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) index: u8,
    port: u8,
    gid: Gid,
    interface: Option<String>,
    reason: String,
    is_given: bool,
}

impl Own {
    /// The GID at `given` on `port`, or one for a side that is not known yet.
    pub(super) fn find(target: &Target, context: &Context, port: u8, given: Option<u8>) -> Outcome<Self> {
        let Some(index) = given else {
            return chosen(context, port, Peer::Unknown);
        };
        // Drivers do not agree on the error for an index beyond the table.
        let gid = context.gid(port, index.into()).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::InvalidInput => {
                let name = target.device.name();
                Failure::NotFound(format!("no GID {index} on port {port} of {name}: {error}"))
            }
            _ => error.into(),
        })?;
        let known = context.gid_candidates(port, Peer::Unknown)?;
        let interface = known.into_iter().find(|of| of.gid == gid).and_then(|of| of.interface);
        Ok(Self { index, port, gid, interface, reason: "by --gid-index".to_owned(), is_given: true })
    }

    /// Chooses again, now that the other side is known. `--gid-index` is not changed.
    pub(super) fn fit(&mut self, context: &Context, peer: impl Into<Peer>) -> Outcome {
        if !self.is_given {
            *self = chosen(context, self.port, peer.into())?;
        }
        Ok(())
    }

    /// The address to tell the other side.
    pub(super) fn raw(&self) -> [u8; 16] {
        self.gid.raw
    }

    /// Refuses a side to which the kernel finds no route from this one.
    pub(super) fn check(&self, remote: &Endpoint) -> Outcome {
        let is_ipv4 = |gid| Ipv6Addr::from(gid).to_ipv4_mapped().is_some();
        if self.gid.kind != GidKind::RoceV2 || is_ipv4(self.gid.raw) == is_ipv4(remote.gid) {
            return Ok(());
        }
        let [own, other] = [self.gid.raw, remote.gid].map(|gid| Ipv6Addr::from(gid).to_canonical());
        Err(Failure::Other(format!(
            "the other side's GID is {other}, and this side's is {own}: both must be IPv4, or both IPv6; choose with --gid-index on one side"
        )))
    }
}

fn chosen(context: &Context, port: u8, peer: Peer) -> Outcome<Own> {
    let GidChoice { index, gid, interface, reason, .. } = context.gid_for(port, peer).map_err(|error| {
        let is_about_gids = error.kind() == ErrorKind::NotFound && error.op() == "gid.choose";
        match is_about_gids {
            true => Failure::NotFound(format!("{error}; --gid-index uses one all the same")),
            false => error.into(),
        }
    })?;
    Ok(Own { index, port, gid, interface, reason: reason.to_string(), is_given: false })
}

impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, gid, interface, reason, .. } = self;
        write!(f, "{index}, {} ({}", Ipv6Addr::from(gid.raw).to_canonical(), gid.kind)?;
        if let Some(name) = interface {
            write!(f, ", {name}")?;
        }
        write!(f, "): {reason}")
    }
}

impl Serialize for Own {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            index: u8,
            gid: Ipv6Addr,
            r#type: String,
            interface: Option<&'a str>,
            reason: &'a str,
        }
        let (gid, r#type) = (Ipv6Addr::from(self.gid.raw), self.gid.kind.to_string());
        let (interface, reason) = (self.interface.as_deref(), &*self.reason);
        Fields { index: self.index, gid, r#type, interface, reason }.serialize(serializer)
    }
}
