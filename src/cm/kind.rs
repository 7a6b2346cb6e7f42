//! The transports that the connection manager sets up, and how their requests differ.

use uverbs_abi::cm::{EventResp, PS_TCP, PS_UDP};
use uverbs_abi::types::qp_type;

use super::error::{parameters, private_data};
use crate::verbs::qp::{QpType, Rc, Ud};

/// A transport that the connection manager sets up: [`Rc`], by connections, and [`Ud`], by look-ups; sealed.
pub trait Managed: QpType + sealed::Kind {}

impl Managed for Rc {}
impl Managed for Ud {}

pub(super) mod sealed {
    use uverbs_abi::cm::EventResp;

    /// What differs between the transports.
    pub trait Kind {
        /// What a request says beside its data.
        type Asked: std::fmt::Debug + Send + Sync;
        /// The port space, and the type of the queue pairs.
        const SPACE: (u16, u8);
        /// Whether it is that of datagrams, which are looked up instead of connected.
        const IS_DATAGRAM: bool;
        /// The data of a request, and what it says beside.
        fn asked(event: &EventResp) -> (Vec<u8>, Self::Asked);
    }
}

impl sealed::Kind for Rc {
    /// The numbers of outstanding reads that this side is asked to execute, and may have itself.
    type Asked = (u8, u8);
    const SPACE: (u16, u8) = (PS_TCP, qp_type::RC);
    const IS_DATAGRAM: bool = false;

    fn asked(event: &EventResp) -> (Vec<u8>, Self::Asked) {
        let asked = parameters(event);
        (private_data(event), (asked.responder_resources, asked.initiator_depth))
    }
}

impl sealed::Kind for Ud {
    type Asked = ();
    const SPACE: (u16, u8) = (PS_UDP, qp_type::UD);
    const IS_DATAGRAM: bool = true;

    fn asked(event: &EventResp) -> (Vec<u8>, Self::Asked) {
        (super::error::datagram_data(event), ())
    }
}
