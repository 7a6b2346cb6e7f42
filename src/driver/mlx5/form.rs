//! What kinds of queue pair there are, by what their requests begin with.

use uverbs_abi::types::qp_type;

use crate::driver::QpShape;
use crate::driver::request::RequestKind;

/// What the requests of a queue pair are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Frames, whose headers the device looks at; large sends have up to so many bytes of these, if there are any.
    Frames { header: u32 },
    /// Messages to a queue pair that is known: RC and UC.
    Messages,
    /// The same, each with the number of a shared receive queue there: extended connections.
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

    /// That of a queue pair; none of one that is not here.
    pub(in crate::driver) fn of(shape: &QpShape<'_>) -> Option<Self> {
        match shape.type_ {
            qp_type::RAW_PACKET => Some(Self::Frames { header: shape.large_header }),
            qp_type::UD => Some(Self::Datagrams),
            qp_type::RC | qp_type::UC => Some(Self::Messages),
            qp_type::XRC_INI => Some(Self::Extended),
            _ => None,
        }
    }
}
