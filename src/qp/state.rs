//! States of a queue pair, and how it gets from one to another.
//!
//! The device changes the state by itself (to [`QpState::Error`] above all), so the state is no type
//! parameter and is never remembered here: it is asked for.

use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::types::{QpAttrMask, qp_state};
use uverbs_abi::write::{ModifyQp, QueryQp, QueryQpResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::{QpType, QueuePair, RawPacket};
use crate::command::Command;
use crate::error::{Error, ErrorKind, Result};

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_state")]
pub enum QpState {
    /// Just made, or emptied: nothing can be posted.
    Reset,
    /// Receives can be posted; nothing is received yet.
    Init,
    /// Ready to receive.
    ReadyToReceive,
    /// Ready to send.
    ReadyToSend,
    /// The send queue drains.
    SendQueueDrain,
    /// The send queue stopped at an error.
    SendQueueError,
    /// Everything posted completes with [`Status::Flushed`](crate::Status::Flushed).
    Error,
}

impl QpState {
    const ALL: [(Self, u8); 7] = [
        (Self::Reset, qp_state::RESET),
        (Self::Init, qp_state::INIT),
        (Self::ReadyToReceive, qp_state::RTR),
        (Self::ReadyToSend, qp_state::RTS),
        (Self::SendQueueDrain, qp_state::SQD),
        (Self::SendQueueError, qp_state::SQE),
        (Self::Error, qp_state::ERR),
    ];

    fn number(self) -> u8 {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or(qp_state::ERR, |(_, number)| *number)
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == number).map(|(state, _)| *state)
    }
}

impl<T: QpType> QueuePair<T> {
    /// The state that the kernel says the queue pair is in.
    ///
    /// # Errors
    /// Those of the kernel; [`Malformed`](ErrorKind::Malformed) for a state that this crate does not know.
    ///
    /// # Kernel
    /// `QUERY_QP` by `INVOKE_WRITE` (ib_uverbs_query_qp, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_query_qp")]
    pub fn state(&self) -> Result<QpState> {
        let op = "qp.query";
        let object = self.shared.object();
        let request =
            QueryQp { qp_handle: object.id(), attr_mask: QpAttrMask::STATE.bits(), ..QueryQp::new_zeroed() };
        let mut response = QueryQpResp::new_zeroed();
        let mut command = Command::write(op, cmd::QUERY_QP);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        object.context().invoke(&mut command)?;
        QpState::from_number(response.qp_state)
            .ok_or_else(|| Error::malformed(op, format!("state {}", response.qp_state)))
    }

    /// `MODIFY_QP` by `INVOKE_WRITE` (ib_uverbs_modify_qp, uverbs_cmd.c, Linux 6.1).
    fn modify(&self, state: QpState, mask: QpAttrMask, port: u8) -> Result<()> {
        let object = self.shared.object();
        let request = ModifyQp {
            qp_handle: object.id(),
            attr_mask: (QpAttrMask::STATE | mask).bits(),
            qp_state: state.number(),
            port_num: port,
            ..ModifyQp::new_zeroed()
        };
        let mut command = Command::write("qp.modify", cmd::MODIFY_QP);
        command.input(CORE_IN, &request);
        object.context().invoke(&mut command)
    }

    /// Moves the queue pair to [`QpState::Error`]: everything posted completes as flushed.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn to_error(&mut self) -> Result<()> {
        self.modify(QpState::Error, QpAttrMask::empty(), 0)
    }

    /// Moves the queue pair to [`QpState::Reset`]: everything posted is forgotten without completion.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn reset(&mut self) -> Result<()> {
        self.modify(QpState::Reset, QpAttrMask::empty(), 0)
    }
}

impl QueuePair<RawPacket> {
    /// Brings a queue pair up on `port`, from reset to ready to send. A raw packet queue pair takes its port
    /// with the first step and nothing else (mlx5_ib_modify_qp, qp.c, Linux 6.1).
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a port that the device does not have, or from another
    /// state than reset.
    pub fn bring_up(&mut self, port: u8) -> Result<()> {
        self.modify(QpState::Init, QpAttrMask::PORT, port).map_err(|error| {
            error.hinted_if(ErrorKind::InvalidInput, "the queue pair must be in reset, and the port exist")
        })?;
        self.modify(QpState::ReadyToReceive, QpAttrMask::empty(), 0)?;
        self.modify(QpState::ReadyToSend, QpAttrMask::empty(), 0)
    }
}
