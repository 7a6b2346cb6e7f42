//! Queue pairs.

mod attributes;
mod connect;
mod counting;
pub(crate) mod create;
mod drain;
mod limits;
mod multicast;
mod operation;
mod post;
mod request;
mod rss;
#[cfg_attr(not(feature = "raw"), allow(unreachable_pub, dead_code))]
pub(crate) mod send;
mod state;
mod xrc;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};

use nix::errno::Errno;

pub use self::attributes::Attributes;
pub use self::connect::{ConnectionOptions, Endpoint};
pub use self::create::{Capacity, QueuePairBuilder};
use self::drain::Markers;
pub use self::limits::ConnectionLimits;
use self::multicast::Groups;
pub use self::multicast::{MULTICAST_QP, Membership};
pub use self::operation::{
    Datagram, Frame, Operation, QpType, RawPacket, Rc, Srd, SrdDatagram, SrdOperation, Uc, UcOperation, Ud,
    XrcOperation, XrcSend,
};
pub use self::request::SendRequest;
pub use self::rss::{HashFields, RssBuilder, RssQueuePair};
use self::send::SendQueue;
pub use self::state::QpState;
pub use self::xrc::{XrcReceiveBuilder, XrcReceiveQueuePair};
use crate::completion_counter::{Watch, Watching};
use crate::device::object::{self, Object};
use crate::driver::Known;
pub use crate::driver::request::Remote;
use crate::driver::{rq, sq};
use crate::kernel::error::{Error, Result};
use crate::verbs::cq;
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::srq;
use crate::verbs::work::{Held, Kept, Receiving};
use crate::verbs::wq;
use crate::verbs::xrcd::XrcDomain;

/// A queue pair of type `T`. Created by the methods of [`ProtectionDomain`](crate::ProtectionDomain):
/// [`rc`](crate::ProtectionDomain::rc), [`ud`](crate::ProtectionDomain::ud), [`raw_packet`](crate::ProtectionDomain::raw_packet)
/// and others.
///
/// Posting takes `&mut self`: a queue pair has one poster, so it needs no lock.
#[derive(Debug)]
#[doc(alias = "ibv_qp")]
#[doc(alias = "ibv_qp_ex")]
#[doc(alias = "ibv_qp_to_qp_ex")]
pub struct QueuePair<T: QpType> {
    sends: SendQueue,
    /// `None` if the queue pair uses a shared receive queue, or receives nothing.
    receives: Option<Receiving>,
    /// What the request in each slot of the send ring needs. It is released when the slot is used again, which is after the request's
    /// completion.
    held: Held,
    markers: Markers,
    capacity: Capacity,
    /// The GID of the peer; zeros if it is not known. Keys of the peer's windows are recorded with it.
    peer: [u8; 16],
    /// Whether `peer` was compared with the GIDs of this device, of which the first one is used for all.
    is_peer_settled: bool,
    shared: Arc<QueuePairCore>,
    kind: PhantomData<T>,
}

/// The part of a queue pair that flows, memberships and memory windows share.
#[derive(Debug)]
pub(crate) struct QueuePairCore {
    object: Object,
    /// These two are dropped after the object: its completion queues keep the queue pair in their lists until the object is
    /// destroyed, and the memory of its requests is released after that.
    _known: Option<Known>,
    kept: Kept,
    number: u32,
    /// Whether it can receive frames, into a queue of its own or into another one.
    receives: bool,
    groups: Groups,
    /// The state of the windows that it has bound, as completions report it.
    windows: Watching,
    /// The completion queues of sends and of receives. Only the first one if it receives nothing, and none for a queue pair without
    /// queues.
    cqs: Vec<Arc<cq::CompletionQueueCore>>,
    srq: Option<Arc<srq::SharedReceiveQueueCore>>,
    _table: Option<Arc<wq::IndirectionTableCore>>,
    attached: crate::completion_counter::Attached,
    /// Whether its send queue had stopped when the state was last queried.
    has_stopped: AtomicBool,
    /// The state that this process has requested last, one of [`uverbs_abi::types::qp_state`].
    entered: AtomicU8,
    /// `None` for the receiving queue pair of an extended connection, which belongs to an XRC domain instead.
    pd: Option<ProtectionDomain>,
    _xrcd: Option<XrcDomain>,
}

impl QueuePairCore {
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn pd(&self) -> Option<&ProtectionDomain> {
        self.pd.as_ref()
    }

    /// Watches the completions for a request that is about to be posted and that gives a window this key.
    pub(crate) fn watch(&self, wr_id: u64, key: u32) -> Watch {
        let registry = |at: usize| self.cqs.get(at).map(|cq| cq.registry().clone()).unwrap_or_default();
        let origin = self.object.context().origin();
        self.windows.watch((self.number, origin), || [registry(0), registry(1)], wr_id, key)
    }

    /// The error for posting a receive to a queue pair without a receive queue of its own.
    #[cold]
    pub(crate) fn without_receives(&self, op: &'static str) -> Error {
        let why = || if self.srq.is_some() { srq::not_here(op) } else { xrc::receives_nothing(op) };
        self.object.context().check_origin(op).err().unwrap_or_else(why)
    }

    pub(crate) fn can_receive(&self) -> bool {
        self.receives
    }
}

impl<T: QpType> QueuePair<T> {
    /// The queue pair's number.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// The sizes of the queues.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(crate) fn shared(&self) -> &Arc<QueuePairCore> {
        &self.shared
    }

    /// The rings of sends and of receives, where they are of these drivers.
    ///
    /// # Errors
    /// In a child of `fork`; [`Busy`](crate::ErrorKind::Busy) while completion counters are bound, which count what is posted.
    pub(crate) fn rings_of<S: sq::Stored, R: rq::Stored>(
        &mut self,
        op: &'static str,
    ) -> Result<(Option<&mut S>, Option<&mut R>)> {
        self.shared.object.context().check_origin(op)?;
        if self.sends.bound.is_some() {
            let hint = "completion counters are bound to the queue pair, which count what is posted";
            return Err(Error::refused(op, Errno::EBUSY, hint));
        }
        let receives = self.receives.as_mut().and_then(|receiving| R::of(&mut receiving.queue.receives));
        Ok((self.sends.ring(), receives))
    }

    /// Destroys the queue pair and reports any error. Posted requests are discarded without a completion.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a flow or a membership in a multicast group directs packets to it, or a memory
    /// window of type 2 that it bound exists.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(shared) = Arc::get_mut(&mut self.shared) else {
            let hint = "a flow, a multicast group or a memory window still uses the queue pair";
            return Err((self, object::shared("qp.destroy", hint)));
        };
        shared.object.release().map_err(|error| (self, error))
    }
}

impl<T: QpType> Drop for QueuePair<T> {
    fn drop(&mut self) {
        // A flow or a membership may keep the kernel object, and with it the memory of posted requests.
        let received = self.receives.as_mut().map(Receiving::take_held).unwrap_or_default();
        self.shared.kept.keep([std::mem::take(&mut self.held), received]);
    }
}
