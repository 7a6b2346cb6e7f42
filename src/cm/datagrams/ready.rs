//! How a queue pair is made ready for datagrams.

use nix::errno::Errno;
use uverbs_abi::types::QpAttrMask;

use super::super::id::Id;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::qp::{Attributes, QpState, QueuePair, Ud};

/// Makes a new queue pair ready, with the port and the queue key of the kernel; checks one that is ready already.
pub(super) fn make_ready(op: &'static str, id: &Id, qp: &mut QueuePair<Ud>) -> Result<()> {
    if !id.is_of(op, qp.shared().object().context().device())? {
        let hint = "the queue pair belongs to another device than the one that the manager has found";
        return Err(Error::refused(op, Errno::EINVAL, hint));
    }
    let (attributes, is_iwarp) = id.first_attributes(op)?;
    if is_iwarp {
        return Err(Error::refused(op, Errno::EOPNOTSUPP, "iWARP has connections only, and no datagrams"));
    }
    let known = QpAttrMask::STATE | QpAttrMask::PORT | QpAttrMask::QKEY;
    let own = qp.query(known)?;
    match QpState::from_number(own.qp_state) {
        Some(QpState::Reset) => {
            qp.modify(&Attributes::of_manager(&attributes))?;
            // The kernel's attributes for these states are again those of the first one, which cannot be changed with them.
            qp.modify(&Attributes::to(QpState::ReadyToReceive))?;
            qp.modify(&Attributes::to(QpState::ReadyToSend).send_psn(0))
        }
        Some(QpState::ReadyToSend) if own.qkey != attributes.qkey => {
            let (has, wants) = (own.qkey, attributes.qkey);
            let hint =
                format!("the queue pair has the queue key {has:#x}; the connection manager's is {wants:#x}");
            Err(Error::refused(op, Errno::EINVAL, hint))
        }
        Some(QpState::ReadyToSend) if own.port_num != attributes.port_num => {
            let (has, wants) = (own.port_num, attributes.port_num);
            Err(Error::refused(
                op,
                Errno::EINVAL,
                format!("the queue pair is at port {has}, not at port {wants}"),
            ))
        }
        Some(QpState::ReadyToSend) => Ok(()),
        _ => Err(Error::refused(op, Errno::EINVAL, "the queue pair must be new, or ready to send")),
    }
    .map_err(|error| error.hinted_if(ErrorKind::InvalidInput, "the queue pair must be new, or ready to send"))
}
