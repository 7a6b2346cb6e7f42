//! Receiving queue pairs of extended reliable connections.

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::ids::qp::{self, create};
use uverbs_abi::types::{QpAttrMask, qp_state, qp_type};
use uverbs_abi::write::{CreateQpResp, OpenQp, QpCap, QueryQpResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::{Attributes, ConnectionOptions, Endpoint, Groups, QpState, QueuePairCore};
use crate::completion_counter::Watching;
use crate::device::object::{self, Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::work::Kept;
use crate::verbs::xrcd::XrcDomain;

/// The receiving end of an extended reliable connection; see [`XrcDomain`].
///
/// It has no queues: a message goes to the shared receive queue that its sender names, in the same domain, and completes there.
/// The completion has the number of this queue pair.
///
/// Several processes may open it, by its number; it exists until the last has closed it. Its events go to the process that
/// created it, not to those that opened it.
#[derive(Debug)]
#[doc(alias = "IBV_QPT_XRC_RECV")]
pub struct XrcReceiveQueuePair(Arc<QueuePairCore>);

/// Builder for a receiving queue pair; see [`XrcDomain::receive_qp`].
#[derive(Debug)]
#[must_use = "nothing is made before `create`"]
pub struct XrcReceiveBuilder<'a> {
    domain: &'a XrcDomain,
    cookie: u64,
}

impl XrcDomain {
    /// Starts a builder for a queue pair that receives for the shared receive queues of the domain.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn receive_qp(&self) -> XrcReceiveBuilder<'_> {
        XrcReceiveBuilder { domain: self, cookie: 0 }
    }

    /// Opens a receiving queue pair of the domain that was created elsewhere, by its number.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the domain has no such queue pair.
    ///
    /// # Kernel
    /// `OPEN_QP` through `INVOKE_WRITE` (ib_uverbs_open_qp, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_open_qp")]
    #[doc(alias = "ibv_qp_open_attr")]
    pub fn open_receive_qp(&self, number: u32) -> Result<XrcReceiveQueuePair> {
        self.open_qp(number, qp_type::XRC_TGT)
    }

    fn open_qp(&self, number: u32, type_: u8) -> Result<XrcReceiveQueuePair> {
        let op = "qp.open";
        let domain = OpenQp { pd_handle: self.id(), qpn: number, qp_type: type_, ..OpenQp::new_zeroed() };
        let mut response = CreateQpResp::new_zeroed();
        let mut command = Command::write(op, cmd::OPEN_QP);
        command.input(CORE_IN, &domain).output(CORE_OUT, response.as_mut_bytes());
        self.context().invoke(&mut command).map_err(|error| {
            error.hinted_if(ErrorKind::InvalidInput, "the domain has no receiving queue pair of this number")
        })?;
        Ok(XrcReceiveQueuePair::new(self, response.qp_handle, response.qpn))
    }
}

impl XrcReceiveBuilder<'_> {
    /// A number that identifies the queue pair in asynchronous events; default 0.
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }

    /// Creates the queue pair, in the state [`Reset`](QpState::Reset).
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when the device has no more.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QP_CREATE` of type XRC_TGT (uverbs_std_types_qp.c, Linux 6.1).
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create(self) -> Result<XrcReceiveQueuePair> {
        let op = "qp.create";
        let context = self.domain.context();
        let (wanted, mut cap, mut number) = (QpCap::new_zeroed(), QpCap::new_zeroed(), 0_u32);
        let mut command = Command::new(op, qp::OBJECT, qp::method::CREATE);
        command
            .new_handle(create::HANDLE)
            .handle(create::XRCD_HANDLE, self.domain.id())
            .input(create::USER_HANDLE, &self.cookie)
            .input(create::CAP, &wanted)
            .value(create::TYPE, qp_type::XRC_TGT.into())
            .output(create::RESP_CAP, cap.as_mut_bytes())
            .output(create::RESP_QP_NUM, number.as_mut_bytes());
        context.invoke(&mut command)?;
        Ok(XrcReceiveQueuePair::new(self.domain, command.new_handle_of(create::HANDLE)?, number))
    }
}

impl XrcReceiveQueuePair {
    fn new(domain: &XrcDomain, handle: u32, number: u32) -> Self {
        Self(Arc::new(QueuePairCore {
            object: Object::new(domain.context(), Kind::Qp, handle),
            _known: None,
            kept: Kept::default(),
            number,
            receives: false,
            groups: Groups::default(),
            windows: Watching::default(),
            cqs: Vec::new(),
            srq: None,
            _table: None,
            attached: crate::completion_counter::Attached::default(),
            has_stopped: false.into(),
            entered: qp_state::RESET.into(),
            pd: None,
            _xrcd: Some(domain.clone()),
        }))
    }

    #[cfg(feature = "raw")]
    pub(super) fn into_shared(self) -> Arc<QueuePairCore> {
        self.0
    }

    /// The queue pair's number, with which others can open it.
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// The address of this side, which you send to the other side. `psn` is any number of 24 bits; it is not used, because this
    /// side sends nothing.
    ///
    /// # Errors
    /// As [`QueuePair::endpoint`](super::QueuePair::endpoint).
    pub fn endpoint(&self, options: &ConnectionOptions, psn: u32) -> Result<Endpoint> {
        self.0.endpoint(options, psn)
    }

    /// Connects to a queue pair of type [`XrcSend`](super::XrcSend) at the other side: INIT, RTR. The
    /// [`access`](ConnectionOptions::access) rights of the options apply to memory of the protection domains of the domain's
    /// queues.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that the device does not have, or if the queue pair is not in the
    /// state RESET.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(&mut self, options: &ConnectionOptions, remote: &Endpoint) -> Result<()> {
        self.modify(&options.init().access(options.access))?;
        self.modify(
            &options.receive(remote).incoming_reads(options.accepted_reads()).rnr_timer(options.rnr_timer),
        )
    }

    /// Changes the state, and attributes with it, for every process that has the queue pair open.
    ///
    /// # Errors
    /// As [`QueuePair::modify`](super::QueuePair::modify).
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&mut self, attributes: &Attributes) -> Result<()> {
        self.0.change(qp_type::XRC_TGT, attributes)
    }

    /// The state of the queue pair, as the kernel reports it.
    ///
    /// # Errors
    /// As [`QueuePair::state`](super::QueuePair::state).
    #[doc(alias = "ibv_query_qp")]
    pub fn state(&self) -> Result<QpState> {
        self.0.state()
    }

    /// The attributes of the queue pair that the kernel returns.
    ///
    /// # Errors
    /// Those of the kernel.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self, mask: QpAttrMask) -> Result<QueryQpResp> {
        self.0.query(mask)
    }

    /// Moves the queue pair to [`QpState::Error`]: nothing arrives any more.
    ///
    /// # Errors
    /// Those of the kernel.
    #[doc(alias = "ibv_modify_qp")]
    pub fn to_error(&mut self) -> Result<()> {
        self.modify(&Attributes::to(QpState::Error))
    }

    /// Moves the queue pair to [`QpState::Reset`]: it can be connected again.
    ///
    /// # Errors
    /// Those of the kernel.
    #[doc(alias = "ibv_modify_qp")]
    pub fn reset(&mut self) -> Result<()> {
        self.modify(&Attributes::to(QpState::Reset))
    }

    /// Closes the queue pair and reports any error. The queue pair is destroyed if no other process has it open.
    ///
    /// # Errors
    /// Those of the kernel.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(shared) = Arc::get_mut(&mut self.0) else {
            return Err((self, object::shared("qp.destroy", "the queue pair is still in use")));
        };
        shared.object.release().map_err(|error| (self, error))
    }
}

#[cfg(feature = "raw")]
impl XrcDomain {
    /// Opens a queue pair of the domain that was created elsewhere, by its number, with a type that only the kernel checks; see
    /// [`XrcDomain::open_receive_qp`].
    ///
    /// # Errors
    /// As [`XrcDomain::open_receive_qp`].
    pub fn open_qp_raw(&self, number: u32, type_: u8) -> Result<XrcReceiveQueuePair> {
        self.open_qp(number, type_)
    }
}

/// The error for posting a receive to a queue pair that only sends.
pub(super) fn receives_nothing(op: &'static str) -> Error {
    let hint = "the queue pair sends over an extended connection and receives nothing; nothing was posted";
    Error::refused(op, Errno::EINVAL, hint)
}
