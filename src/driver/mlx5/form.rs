//! What kinds of queue pair there are, by what their requests begin with.

use uverbs_abi::types::qp_type;

use crate::driver::QpShape;

/// What the requests of a queue pair are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Frames, whose headers the device looks at; large sends have up to so many bytes of these, if there are any.
    Frames { header: u32 },
    /// Messages to a queue pair that is known: RC and UC.
    Messages,
    /// Datagrams, each with an address.
    Datagrams,
}

impl Form {
    /// That of a queue pair; none of one that is not here.
    pub(in crate::driver) fn of(shape: &QpShape) -> Option<Self> {
        match shape.type_ {
            qp_type::RAW_PACKET => Some(Self::Frames { header: shape.large_header }),
            qp_type::UD => (!shape.has_srq).then_some(Self::Datagrams),
            qp_type::RC | qp_type::UC => (!shape.has_srq).then_some(Self::Messages),
            _ => None,
        }
    }
}
