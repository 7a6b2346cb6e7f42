//! Queue pairs of all types in parts: the kernel's object, and queues whose requests name memory by address and key.

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_abi::ids::device::invoke_write::CORE_IN;
use uverbs_abi::types::{QpAttrMask, QpCreateFlags, qp_type};
use uverbs_abi::write::{AttachMcast, DestroyQpResp, DetachMcast, ModifyQp, QueryQpResp, cmd};

use super::{Capacity, Made, QueuePairBuilder};
use crate::completion_counter::{CompletionCounter, Counted};
use crate::device::object;
use crate::driver::DriverQp;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::verbs::cq::object::CompletionObject;
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::qp::counting::Bindable;
use crate::verbs::qp::send::{SEND, SendQueue};
use crate::verbs::qp::{QueuePairCore, RawPacket, RssQueuePair, XrcReceiveQueuePair, post};
use crate::verbs::srq::SharedReceiveQueue;
use crate::verbs::work::ReceiveQueue;

/// The parameters of a new queue pair.
#[derive(Debug)]
pub struct QueuePairInit<'a> {
    /// One of [`uverbs_abi::types::qp_type`].
    pub type_: u8,
    /// The completion queue of sends.
    pub send_cq: &'a CompletionObject,
    /// The completion queue of receives, if there are any.
    pub receive_cq: &'a CompletionObject,
    /// The shared receive queue, if the queue pair has no receive queue of its own.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// The minimum sizes of the queues.
    pub capacity: Capacity,
    /// The operations for which send requests need room, as bits of `enum ibv_qp_create_send_ops_flags`; `None` for all. Requests
    /// have room for more data if there are fewer operations, on a device whose requests differ in size (mlx5).
    pub operations: Option<u64>,
    /// The number that asynchronous events contain.
    pub cookie: u64,
    /// The kernel's creation flags.
    pub flags: QpCreateFlags,
}

/// A queue pair without its queues. It keeps its domain and its completion queues alive, as a [`QueuePair`](crate::QueuePair)
/// does.
#[derive(Debug)]
pub struct QueuePair {
    shared: Arc<QueuePairCore>,
    /// One of [`uverbs_abi::types::qp_type`].
    type_: u8,
    capacity: Capacity,
}

impl ProtectionDomain {
    /// Creates a queue pair and its queues. There is no receive queue if the queue pair uses a shared one, or only sends.
    ///
    /// # Errors
    /// As [`QueuePairBuilder::create`].
    pub fn create_parts(
        &self,
        init: &QueuePairInit<'_>,
    ) -> Result<(QueuePair, SendQueue, Option<ReceiveQueue>)> {
        self.create_driver_parts(init, DriverQp::default())
    }

    /// Creates a queue pair and its queues, of a type that only one driver has, or with options that only one driver has. It returns what
    /// [`ProtectionDomain::create_parts`] does.
    ///
    /// # Errors
    /// As [`QueuePairBuilder::create`].
    pub fn create_driver_parts(
        &self,
        init: &QueuePairInit<'_>,
        driver: DriverQp,
    ) -> Result<(QueuePair, SendQueue, Option<ReceiveQueue>)> {
        let QueuePairInit { type_, send_cq, receive_cq, srq, capacity, operations, cookie, flags } = *init;
        let (send_cq, receive_cq) = (send_cq.shared(), receive_cq.shared());
        // The type parameter has no meaning here; the number contains the type.
        let kind = PhantomData::<RawPacket>;
        let wanted = capacity;
        let builder = QueuePairBuilder {
            pd: self,
            send_cq,
            receive_cq,
            srq,
            wanted,
            operations,
            cookie,
            flags,
            driver,
            kind,
        };
        let Made { sends, receives, capacity, shared } = builder.make(type_)?;
        Ok((QueuePair { shared: Arc::new(shared), type_, capacity }, sends, receives))
    }
}

/// A receiving queue pair of an extended connection has no queues.
impl From<XrcReceiveQueuePair> for QueuePair {
    fn from(qp: XrcReceiveQueuePair) -> Self {
        let capacity = Capacity::default();
        Self { shared: qp.into_shared(), type_: qp_type::XRC_TGT, capacity }
    }
}

/// A queue pair on a table of work queues has no queues of its own.
impl From<RssQueuePair> for QueuePair {
    fn from(qp: RssQueuePair) -> Self {
        let capacity = Capacity::default();
        Self { shared: qp.into_shared(), type_: qp_type::RAW_PACKET, capacity }
    }
}

impl QueuePair {
    /// The kernel's handle of the queue pair.
    pub fn handle(&self) -> u32 {
        self.shared.object().id()
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// The sizes of the queues.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Whether the device writes the data of a message in order, in aligned pieces of 128 bytes.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn orders_data(&self) -> Result<bool> {
        self.shared.object().context().orders_data()
    }

    pub(crate) fn shared(&self) -> &Arc<QueuePairCore> {
        &self.shared
    }

    /// Changes attributes according to the request, in which the handle is filled in.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn modify(
        &self,
        request: &ModifyQp,
        mut sends: Option<&mut SendQueue>,
        receives: Option<&mut ReceiveQueue>,
    ) -> Result<()> {
        self.shared.modify(self.type_, request)?;
        if let Some(sends) = &mut sends {
            sends.changed(request);
        }
        if QpAttrMask::from_bits_retain(request.attr_mask).contains(QpAttrMask::STATE) {
            self.entered(request.qp_state, sends, receives);
        }
        Ok(())
    }

    /// The queues get the state that was requested, one of [`uverbs_abi::types::qp_state`].
    pub fn entered(&self, state: u8, sends: Option<&mut SendQueue>, receives: Option<&mut ReceiveQueue>) {
        if let Some(sends) = sends {
            sends.enter(state);
        }
        if let Some(receives) = receives {
            receives.enter(state);
        }
    }

    /// The attributes that the kernel returns.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn query(&self, mask: QpAttrMask) -> Result<QueryQpResp> {
        self.shared.query(mask)
    }

    /// Makes `counter` count operations of the queue pair, until its send queue is dropped.
    ///
    /// # Errors
    /// As [`QueuePair::bind_counter`](crate::QueuePair::bind_counter).
    pub fn bind_counter(
        &self,
        sends: &mut SendQueue,
        counter: &CompletionCounter,
        counted: Counted,
    ) -> Result<()> {
        let slots = sends.logged();
        Bindable { shared: &self.shared, type_: self.type_, slots }.bind(&mut sends.bound, counter, counted)
    }

    /// Joins a multicast group.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn attach_multicast(&self, gid: [u8; 16], mlid: u16) -> Result<()> {
        let object = self.shared.object();
        let request = AttachMcast { gid, qp_handle: object.id(), mlid, reserved: 0 };
        let mut command = Command::write("qp.join_multicast", cmd::ATTACH_MCAST);
        command.input(CORE_IN, &request);
        object.context().invoke(&mut command)
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn detach_multicast(&self, gid: [u8; 16], mlid: u16) -> Result<()> {
        let object = self.shared.object();
        let request = DetachMcast { gid, qp_handle: object.id(), mlid, reserved: 0 };
        let mut command = Command::write("qp.leave_multicast", cmd::DETACH_MCAST);
        command.input(CORE_IN, &request);
        object.context().invoke(&mut command)
    }

    /// Destroys the queue pair and returns how many of its asynchronous events were read.
    ///
    /// # Errors
    /// As [`QueuePair::destroy`](crate::QueuePair::destroy).
    pub fn destroy(mut self) -> Result<u32, (Self, Error)> {
        let Some(shared) = Arc::get_mut(&mut self.shared) else {
            let error = object::shared("qp.destroy", "a flow still uses the queue pair");
            return Err((self, error));
        };
        let answer = shared.object.release_reporting::<DestroyQpResp>();
        answer.map(|answer| answer.events_reported).map_err(|error| (self, error))
    }
}

impl QueuePair {
    /// Refuses a large send that the device or this queue pair does not support. `header` and `bytes` are the lengths of the header
    /// and of the data in bytes; `wants_head` is the result of [`SendQueue::wants_head`].
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a header that is too short or longer than the queue pair was created
    /// for, an `mss` of zero, no data, or more data than the device accepts in one request;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on a device without large sends.
    pub fn check_large(&self, wants_head: bool, header: usize, mss: u16, bytes: u64) -> Result<()> {
        let object = self.shared.object();
        let room = post::LargeRoom { object, wants_head, most: self.capacity.large_header };
        room.check(SEND, header, mss, bytes)
    }
}
