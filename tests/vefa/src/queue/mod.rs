//! Queues: completions, sends in the device's memory, receives in the guest's.

mod cq;
mod qp;
mod receive;
mod work;

pub(crate) use self::cq::{Completion, Cq, Posted};
pub(crate) use self::qp::{Qp, SendRing, state};
pub(crate) use self::receive::{Receive, ReceiveRing};
pub(crate) use self::work::{Operation, Piece, Source, Work, status};
