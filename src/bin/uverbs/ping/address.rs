//! What one side must know about the other end of a connection.

use std::fmt;
use std::net::Ipv6Addr;

use serde::{Serialize, Serializer};
use uverbs::Endpoint;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The end of the queue pair that receives.
    pub(super) endpoint: Endpoint,
    /// Only for an extended connection.
    pub(super) extended: Option<Extended>,
}

/// The other numbers of one end of an extended connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extended {
    /// The queue pair that sends.
    pub(super) sender: u32,
    /// The shared receive queue to which messages are sent.
    pub(super) srq: u32,
}

impl Address {
    /// The queue pair that sends.
    pub(super) fn sender(&self) -> Endpoint {
        Endpoint { qp_num: self.extended.map_or(self.endpoint.qp_num, |of| of.sender), ..self.endpoint }
    }

    /// Reads the text form of an address.
    pub(super) fn read(text: &str) -> Option<Self> {
        if let Ok(endpoint) = text.parse() {
            return Some(Self { endpoint, extended: None });
        }
        let [lid, receiver, sender, psn, srq, gid] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
        let endpoint = |number| format!("{lid}:{number}:{psn}:{gid}").parse::<Endpoint>().ok();
        // Both are numbers of six digits.
        let extended = Extended { sender: endpoint(sender)?.qp_num, srq: endpoint(srq)?.qp_num };
        Some(Self { endpoint: endpoint(receiver)?, extended: Some(extended) })
    }

    /// The text form that the pingpong programs use.
    pub(super) fn written(&self) -> String {
        let Endpoint { lid, qp_num, psn, gid } = self.endpoint;
        let Some(Extended { sender, srq }) = self.extended else { return self.endpoint.to_string() };
        let gid = u128::from_be_bytes(gid);
        format!("{lid:04x}:{qp_num:06x}:{sender:06x}:{psn:06x}:{srq:06x}:{gid:032x}")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { lid, qp_num, psn, gid } = self.endpoint;
        write!(f, "LID {lid:#06x}, QPN {qp_num:#08x}, ")?;
        if let Some(Extended { sender, srq }) = self.extended {
            write!(f, "sender {sender:#08x}, SRQN {srq:#08x}, ")?;
        }
        write!(f, "PSN {psn:#08x}, GID {}", Ipv6Addr::from(gid))
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            lid: u16,
            qp_num: u32,
            psn: u32,
            gid: Ipv6Addr,
            sender_qp_num: Option<u32>,
            srq_num: Option<u32>,
        }
        let Endpoint { lid, qp_num, psn, gid } = self.endpoint;
        let (sender_qp_num, srq_num) = (self.extended.map(|of| of.sender), self.extended.map(|of| of.srq));
        Fields { lid, qp_num, psn, gid: gid.into(), sender_qp_num, srq_num }.serialize(serializer)
    }
}
