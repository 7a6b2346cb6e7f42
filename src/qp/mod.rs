//! Queue pairs.

mod attributes;
mod connect;
mod create;
mod operation;
mod post;
mod state;

use std::marker::PhantomData;
use std::sync::Arc;

pub use self::attributes::Attributes;
pub use self::connect::{ConnectionOptions, Endpoint};
pub use self::create::{Capacity, QueuePairBuilder};
pub use self::operation::{Datagram, Frame, Operation, QpType, RawPacket, Rc, Remote, Uc, UcOperation, Ud};
use self::post::Held;
pub use self::post::{ReceiveRequest, SendRequest};
pub use self::state::QpState;
use crate::cq;
use crate::error::{Error, Result};
use crate::object::{self, Object};
use crate::pd::ProtectionDomain;
use crate::provider::rxe::{Receives, Sends};

/// A queue pair of type `T`.
///
/// Posting takes `&mut self`: a queue pair has one poster, and no lock is needed.
#[derive(Debug)]
#[doc(alias = "ibv_qp")]
pub struct QueuePair<T: QpType> {
    sends: Sends,
    receives: Receives,
    shared: Arc<Shared>,
    /// What the request in each slot of the rings needs. It is let go when its slot is used again, which is
    /// after its completion; and after the queue pair, so behind it.
    in_flight: InFlight,
    capacity: Capacity,
    kind: PhantomData<T>,
}

#[derive(Debug, Default)]
struct InFlight {
    sends: Vec<Held>,
    receives: Vec<Held>,
}

/// The part of a queue pair that flows and memory windows share.
#[derive(Debug)]
pub(crate) struct Shared {
    object: Object,
    number: u32,
    pd: ProtectionDomain,
    _cqs: [Arc<cq::Shared>; 2],
}

impl Shared {
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }
}

impl<T: QpType> QueuePair<T> {
    /// The queue pair's number.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// What the queues can hold.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Destroys the queue pair and says how that went. Requests still posted are gone without completion.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a flow still steers packets to it, or a memory window of type 2 that it bound exists.
    #[doc(alias = "ibv_destroy_qp")]
    #[expect(clippy::result_large_err, reason = "the error gives the queue pair back")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(shared) = Arc::get_mut(&mut self.shared) else {
            return Err((
                self,
                object::shared("qp.destroy", "a flow or a memory window still uses the queue pair"),
            ));
        };
        shared.object.release().map_err(|error| (self, error))
    }
}
