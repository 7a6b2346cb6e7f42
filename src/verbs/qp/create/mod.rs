//! Creating queue pairs.

#[cfg(feature = "raw")]
pub(crate) mod parts;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::qp::{self, create};
use uverbs_abi::types::{QpCreateFlags, RawPacketCaps, qp_state, qp_type};
use uverbs_abi::write::QpCap;
use zerocopy::{FromZeros, IntoBytes};

use super::send::SendQueue;
use super::{Groups, Markers, QpType, QueuePair, QueuePairCore, RawPacket, Rc, Srd, Uc, Ud, XrcSend};
use crate::completion_counter::Watching;
use crate::device::context::Context;
use crate::device::context::limits::Size;
use crate::device::object::{Kind, Object};
use crate::driver::{Created, DriverQp, QpQueues, QpShape, Sides};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::cq::{self, CompletionQueue};
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::srq::SharedReceiveQueue;
use crate::verbs::work::{Held, Kept, ReceiveQueue, Receiving};
use crate::verbs::wq;

/// The sizes of the queues of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "ibv_qp_cap")]
pub struct Capacity {
    /// Maximum number of outstanding send requests.
    pub sends: u32,
    /// Maximum number of outstanding receive requests; zero with a shared receive queue.
    pub receives: u32,
    /// Maximum number of segments of a send request.
    pub send_segments: u32,
    /// Maximum number of segments of a receive request.
    pub receive_segments: u32,
    /// Maximum bytes of an inline send request.
    pub inline: u32,
    /// Maximum bytes of the header of a large send; zero without large sends.
    pub large_header: u32,
}

/// Builder for a queue pair; see [`ProtectionDomain::rc`] and the methods for other types.
#[derive(Debug)]
#[must_use = "nothing is made before `create` or `connect`"]
#[doc(alias = "ibv_qp_init_attr")]
#[doc(alias = "ibv_qp_init_attr_ex")]
pub struct QueuePairBuilder<'a, T> {
    pd: &'a ProtectionDomain,
    send_cq: &'a Arc<cq::CompletionQueueCore>,
    receive_cq: &'a Arc<cq::CompletionQueueCore>,
    srq: Option<&'a SharedReceiveQueue>,
    wanted: Capacity,
    operations: Option<u64>,
    cookie: u64,
    flags: QpCreateFlags,
    driver: DriverQp,
    kind: PhantomData<T>,
}

/// The parts of a queue pair.
pub(super) struct Made {
    pub(super) sends: SendQueue,
    pub(super) receives: Option<ReceiveQueue>,
    pub(super) capacity: Capacity,
    pub(super) shared: QueuePairCore,
}

impl ProtectionDomain {
    /// Starts a builder for a queue pair for raw Ethernet frames, whose completions go to `cq`.
    #[doc(alias = "ibv_create_qp")]
    pub fn raw_packet<'a>(&'a self, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, RawPacket> {
        QueuePairBuilder::new(self, cq)
    }

    /// Starts a builder for a reliably connected queue pair, whose completions go to `cq`.
    #[doc(alias = "ibv_create_qp")]
    #[doc(alias = "rdma_create_qp")]
    #[doc(alias = "rdma_create_qp_ex")]
    pub fn rc<'a>(&'a self, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Rc> {
        QueuePairBuilder::new(self, cq)
    }

    /// Starts a builder for an unreliably connected queue pair, whose completions go to `cq`.
    #[doc(alias = "ibv_create_qp")]
    pub fn uc<'a>(&'a self, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Uc> {
        QueuePairBuilder::new(self, cq)
    }

    /// Starts a builder for a queue pair that sends over an extended reliable connection, and whose completions go to `cq`. It
    /// receives nothing, so options of receives are ignored.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn xrc_send<'a>(&'a self, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, XrcSend> {
        QueuePairBuilder::new(self, cq)
    }

    /// Starts a builder for a queue pair for datagrams, whose completions go to `cq`.
    #[doc(alias = "ibv_create_qp")]
    pub fn ud<'a>(&'a self, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Ud> {
        QueuePairBuilder::new(self, cq)
    }

    /// Starts a builder for a queue pair for reliable datagrams, whose completions go to `cq`.
    #[doc(alias = "efadv_create_qp_ex")]
    #[doc(alias = "efadv_create_driver_qp")]
    pub fn srd<'a>(&'a self, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Srd> {
        QueuePairBuilder::new(self, cq)
    }
}

impl<'a, T: QpType> QueuePairBuilder<'a, T> {
    fn new(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> Self {
        let wanted = Capacity {
            sends: 64,
            receives: 64,
            send_segments: 1,
            receive_segments: 1,
            inline: 0,
            large_header: 0,
        };
        let (flags, driver) = (QpCreateFlags::empty(), DriverQp::default());
        let cq = cq.shared();
        let (send_cq, receive_cq, srq) = (cq, cq, None);
        let (operations, kind) = (None, PhantomData);
        Self { pd, send_cq, receive_cq, srq, wanted, operations, cookie: 0, flags, driver, kind }
    }

    /// Room for at least `depth` send requests; default 64.
    pub fn send_depth(mut self, depth: u32) -> Self {
        self.wanted.sends = depth;
        self
    }

    /// Room for at least `depth` receive requests; default 64.
    pub fn receive_depth(mut self, depth: u32) -> Self {
        self.wanted.receives = depth;
        self
    }

    /// Up to `segments` segments in each request; default 1.
    pub fn segments(mut self, segments: u32) -> Self {
        self.wanted.send_segments = segments;
        self.wanted.receive_segments = segments;
        self
    }

    /// Up to `bytes` bytes in an inline send request; default 0.
    pub fn inline(mut self, bytes: u32) -> Self {
        self.wanted.inline = bytes;
        self
    }

    /// A separate completion queue for receives.
    pub fn receive_cq(mut self, cq: &'a CompletionQueue) -> Self {
        self.receive_cq = cq.shared();
        self
    }

    /// Takes receives from `srq`; the queue pair has no receive queue of its own.
    pub fn srq(mut self, srq: &'a SharedReceiveQueue) -> Self {
        self.srq = Some(srq);
        self
    }

    /// A number that identifies the queue pair in asynchronous events; default 0.
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }

    /// Changes the options that only a driver has.
    pub(crate) fn with_driver(mut self, change: impl FnOnce(&mut DriverQp)) -> Self {
        change(&mut self.driver);
        self
    }

    /// Creates the queue pair, in the state [`Reset`](super::QpState::Reset).
    ///
    /// # Errors
    /// [`PermissionDenied`](ErrorKind::PermissionDenied) for raw packets without `CAP_NET_RAW`;
    /// [`Unsupported`](ErrorKind::Unsupported) for a type that the device does not support, such as raw packets on rxe, or
    /// reliable datagrams on devices other than efa; [`InvalidInput`](ErrorKind::InvalidInput) for sizes above the device's
    /// limits, or queues of another open device.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QP_CREATE` (uverbs_std_types_qp.c, Linux 6.1).
    #[doc(alias = "ibv_create_qp")]
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create(self) -> Result<QueuePair<T>> {
        let op = "qp.create";
        let Made { sends, receives, capacity, shared } = self.make(T::NUMBER)?;
        let held = Held::new(op, sends.slots())?;
        let receives = receives.map(|queue| Receiving::new(op, queue)).transpose()?;
        let (shared, markers) = (Arc::new(shared), Markers::default());
        let (peer, is_peer_settled, kind) = ([0; 16], false, PhantomData);
        let qp = QueuePair { sends, receives, held, markers, capacity, peer, is_peer_settled, shared, kind };
        Ok(qp)
    }

    /// Creates the queues of a queue pair of one of the kernel's types.
    pub(super) fn make(self, type_: u8) -> Result<Made> {
        let op = "qp.create";
        let context = self.pd.context();
        let srq = self.srq.map(|srq| srq.shared().clone());
        let is_initiator = type_ == qp_type::XRC_INI;
        let cqs = [Some(self.send_cq), Some(self.receive_cq).filter(|_| !is_initiator)];
        let cqs: Vec<_> = cqs.into_iter().flatten().cloned().collect();
        let foreign = |other: &Context| !other.is_same(context);
        if cqs.iter().any(|cq| foreign(cq.context()))
            || srq.as_ref().is_some_and(|srq| foreign(srq.context()))
        {
            let hint = "a completion queue or the shared receive queue belongs to another open device";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        if is_initiator && srq.is_some() {
            let hint = "a queue pair that sends over an extended connection receives nothing, and so from no shared queue";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        if self.srq.is_some_and(|srq| srq.number().is_some()) {
            let hint = "a shared receive queue of a domain of extended connections belongs to no queue pair";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        if self.flags.contains(QpCreateFlags::CVLAN_STRIPPING) {
            context.needs_raw_packet(op, RawPacketCaps::CVLAN_STRIPPING, wq::KEEPS_VLAN)?;
        }
        if self.wanted.large_header > 0 {
            context.most_large_send(op)?;
        }
        let wanted = QpCap {
            max_send_wr: self.wanted.sends,
            max_recv_wr: if is_initiator { 0 } else { self.wanted.receives },
            max_send_sge: self.wanted.send_segments,
            max_recv_sge: if is_initiator { 0 } else { self.wanted.receive_segments },
            max_inline_data: self.wanted.inline,
        };
        let side = srq.as_ref().map(|srq| srq.side());
        let (large_header, driver) = (self.wanted.large_header, self.driver);
        let flags = self.flags;
        let operations = self.operations;
        let shape = QpShape {
            type_,
            cap: wanted,
            operations,
            large_header,
            is_shared: side.is_some(),
            flags,
            driver,
        };
        let has_receives = shape.has_receives();
        let sides = Sides { queues: [self.send_cq.side(), self.receive_cq.side()], shared: side };
        let mut plan = context.driver().plan_qp(op, &shape, sides, context)?;
        let asked = plan.asked(wanted);
        let mut real = QpCap::new_zeroed();
        let mut number = 0_u32;
        let mut command = Command::new(op, qp::OBJECT, qp::method::CREATE);
        command
            .new_handle(create::HANDLE)
            .handle(create::PD_HANDLE, self.pd.id())
            .handle(create::SEND_CQ_HANDLE, self.send_cq.id())
            .input(create::USER_HANDLE, &self.cookie)
            .input(create::CAP, &asked)
            .value(create::TYPE, type_.into())
            .output(create::RESP_CAP, real.as_mut_bytes())
            .output(create::RESP_QP_NUM, number.as_mut_bytes())
            .driver_payload(plan.payload());
        if !is_initiator {
            command.handle(create::RECV_CQ_HANDLE, self.receive_cq.id());
        }
        if !self.flags.is_empty() {
            command.flags(create::FLAGS, self.flags.bits());
        }
        if let Some(srq) = &srq {
            command.handle(create::SRQ_HANDLE, srq.id());
        }
        context.invoke(&mut command).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied if type_ == RawPacket::NUMBER => {
                error.hinted("raw packet queue pairs need CAP_NET_RAW")
            }
            ErrorKind::Unsupported if srq.is_some() => {
                error.hinted("the device has no queue pairs of this type, or none that share their receives")
            }
            ErrorKind::Unsupported => error.hinted("the device has no queue pairs of this type"),
            _ => context.sized(error, &sizes_of(&wanted), if wanted.max_inline_data > 0 {
                let given = wanted.max_inline_data;
                Cow::from(format!("the device does not allow this combination; the limit of inline bytes, of which {given} were given, is not reported"))
            } else {
                Cow::from("the device does not allow this combination of type, queues and flags")
            }),
        })?;
        let object =
            Object::new(context, Kind::Qp, command.new_handle_of(create::HANDLE)?).holding(plan.memory());
        let real = context.driver().granted_pair(&wanted, real);
        let QpQueues { sends, receives, cap: real, known } =
            plan.open(Created { op, number, size: real, kernel: context })?;
        let receives =
            receives.map(|receives| ReceiveQueue::new(context.origin(), receives, real.max_recv_sge));
        let sends = SendQueue::new(context, object.id(), sends, real.max_send_sge, real.max_inline_data);
        let capacity = Capacity {
            sends: real.max_send_wr,
            receives: if has_receives { real.max_recv_wr } else { 0 },
            send_segments: real.max_send_sge,
            receive_segments: if has_receives { real.max_recv_sge } else { 0 },
            inline: real.max_inline_data,
            large_header: self.wanted.large_header,
        };
        let shared = QueuePairCore {
            object,
            _known: known,
            kept: Kept::default(),
            number,
            receives: real.max_recv_wr > 0 || srq.is_some(),
            groups: Groups::default(),
            windows: Watching::default(),
            cqs,
            srq,
            _table: None,
            attached: crate::completion_counter::Attached::default(),
            has_stopped: false.into(),
            entered: qp_state::RESET.into(),
            pd: Some(self.pd.clone()),
            _xrcd: None,
        };
        Ok(Made { sends, receives, capacity, shared })
    }
}

impl QueuePairBuilder<'_, RawPacket> {
    /// The device removes the outer VLAN tag from received frames and reports it in
    /// [`Completion::vlan`](crate::Completion::vlan). [`create`](Self::create) is [`Unsupported`](ErrorKind::Unsupported) on
    /// devices without this feature.
    #[doc(alias = "IBV_QP_CREATE_CVLAN_STRIPPING")]
    pub fn strip_vlan(mut self) -> Self {
        self.flags |= QpCreateFlags::CVLAN_STRIPPING;
        self
    }

    /// Room for large sends with headers of up to `header` bytes; see
    /// [`SendRequest::large_send`](super::SendRequest::large_send). [`create`](Self::create) is
    /// [`Unsupported`](ErrorKind::Unsupported) on devices without this feature.
    ///
    /// ```
    /// # use uverbs::ErrorKind;
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::SoftDevice::default().open()?;
    /// let (pd, cq) = (context.alloc_pd()?, context.create_cq(4)?);
    /// let refused = pd.raw_packet(&cq).large_sends(54).connect(1).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Unsupported); // the soft device does not divide data into frames
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "max_tso_header")]
    pub fn large_sends(mut self, header: u32) -> Self {
        self.wanted.large_header = header;
        self
    }

    /// Creates the queue pair and makes it ready on `port`: RESET, INIT, RTR, RTS.
    ///
    /// # Errors
    /// As [`QueuePairBuilder::create`]; [`InvalidInput`](ErrorKind::InvalidInput) for a port that the device does not have.
    pub fn connect(self, port: u8) -> Result<QueuePair<RawPacket>> {
        let mut qp = self.create()?;
        qp.bring_up(port)?;
        Ok(qp)
    }
}

/// The sizes that were asked for.
fn sizes_of(cap: &QpCap) -> [Size; 4] {
    let size = |what, given, always, most| Size { what, given, least: 0, always, most };
    [
        size("send requests (max_qp_wr)", cap.max_send_wr, 16, |device| device.base.max_qp_wr),
        size("receive requests (max_qp_wr)", cap.max_recv_wr, 16, |device| device.base.max_qp_wr),
        size("segments of a send request (max_sge)", cap.max_send_sge, 1, |device| device.base.max_sge),
        size("segments of a receive request (max_sge)", cap.max_recv_sge, 1, |device| device.base.max_sge),
    ]
}
