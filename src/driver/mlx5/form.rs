//! The kinds of queue pairs, by the format of their requests.

use uverbs_abi::types::qp_type;

use crate::driver::request::RequestKind;
use crate::driver::seam::QpShape;

/// The format of the requests of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Frames. The device reads their headers. Large sends have up to `header` bytes of headers; zero if there are no large sends.
    Frames { header: u32 },
    /// Messages to a fixed queue pair: RC and UC.
    Messages,
    /// Messages to a fixed queue pair, each with the number of a shared receive queue at the peer: extended connections.
    Extended,
    /// Datagrams, each with an address.
    Datagrams,
}

impl Form {
    pub(super) fn kind(self) -> RequestKind {
        match self {
            Self::Frames { .. } => RequestKind::Frames,
            Self::Messages => RequestKind::Messages,
            Self::Extended | Self::Datagrams => RequestKind::Addressed,
        }
    }

    /// The form of a queue pair; `None` if this driver does not support it here.
    pub(in crate::driver) fn of(shape: &QpShape) -> Option<Self> {
        match shape.type_ {
            qp_type::RAW_PACKET => Some(Self::Frames { header: shape.large_header }),
            qp_type::UD => Some(Self::Datagrams),
            qp_type::RC | qp_type::UC => Some(Self::Messages),
            qp_type::XRC_INI => Some(Self::Extended),
            _ => None,
        }
    }
}
