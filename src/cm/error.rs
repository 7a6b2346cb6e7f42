//! Why a connection was not made.

use std::fmt;

use nix::errno::Errno;
use uverbs_abi::cm::{
    ADDR_ERROR, CONNECT_ERROR, DEVICE_REMOVAL, DISCONNECTED, EventResp, REJECTED, ROUTE_ERROR, UNREACHABLE,
};

use crate::kernel::error::{Error, ErrorKind, Result};

/// A connection that was not made: the error, and what the peer said if it has refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "rdma_event_str")]
#[doc(alias = "rdma_cm_event")]
pub struct ConnectError {
    error: Error,
    rejection: Option<Rejection>,
}

/// The answer of a peer that has refused a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// The data of the peer's program. On InfiniBand and RoCE it has its maximum length, padded with zeros.
    pub private_data: Vec<u8>,
}

/// Why a peer has refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Nobody listens on this port.
    NobodyListens,
    /// The program at the other side has refused. On iWARP the other reasons are reported as this one.
    Program,
    /// The peer still knows the number of the queue pair from an earlier connection.
    StaleConnection,
    /// Another reason of InfiniBand's (table 112 of the specification; of a look-up, a status of table 119).
    Other(u16),
}

impl Reason {
    /// From the status of an event: a reason of InfiniBand, or on iWARP a negative errno.
    fn of(status: i32) -> Self {
        match status {
            8 => Self::NobodyListens,
            10 => Self::StaleConnection,
            28 => Self::Program,
            _ if status == -(Errno::ECONNREFUSED as i32) => Self::NobodyListens,
            _ if status < 0 => Self::Program,
            _ => Self::Other(status as u16),
        }
    }

    /// From the status of an answer to a look-up (`ib_cm_sidr_status`, ib_cm.h): for others InfiniBand's specification.
    pub(super) fn of_look_up(status: i32) -> Self {
        match status {
            1 => Self::NobodyListens,
            2 => Self::Program,
            _ => Self::Other(status as u16),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NobodyListens => "nobody listens on this port there",
            Self::Program => "the program at the other side has refused",
            Self::StaleConnection => {
                "the other side still knows the number of this queue pair from an earlier connection: create another one"
            }
            Self::Other(_) => "the other side has refused; the rejection says why",
        }
    }
}

impl ConnectError {
    /// The other side has refused.
    pub(super) fn refused(op: &'static str, reason: Reason, private_data: Vec<u8>) -> Self {
        let error = Error::connection_refused(op, reason.words());
        Self { error, rejection: Some(Rejection { reason, private_data }) }
    }

    /// The error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The kind of the error: [`Refused`](ErrorKind::Refused) if the peer has refused.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// The answer of the peer, if it has refused.
    #[doc(alias = "rdma_reject")]
    pub fn rejection(&self) -> Option<&Rejection> {
        self.rejection.as_ref()
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for ConnectError {}

impl From<Error> for ConnectError {
    fn from(error: Error) -> Self {
        Self { error, rejection: None }
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        error.error
    }
}

impl From<ConnectError> for std::io::Error {
    fn from(error: ConnectError) -> Self {
        error.error.into()
    }
}

/// The status of an event, which is a signed number.
pub(super) fn status(event: &EventResp) -> i32 {
    event.status as i32
}

fn errno(event: &EventResp) -> Errno {
    Errno::from_raw(status(event).wrapping_neg())
}

/// The private data of an event about a connection, which is shorter than the struct that all events have.
pub(super) fn private_data(event: &EventResp) -> Vec<u8> {
    let param = parameters(event);
    let len = usize::from(param.private_data_len).min(param.private_data.len());
    param.private_data[..len].to_vec()
}

/// The private data of an event about datagrams.
pub(super) fn datagram_data(event: &EventResp) -> Vec<u8> {
    let len = usize::from(event.param.private_data_len).min(event.param.private_data.len());
    event.param.private_data[..len].to_vec()
}

/// The parameters of an event about a connection.
pub(super) fn parameters(event: &EventResp) -> uverbs_abi::cm::ConnParam {
    use zerocopy::{FromBytes, FromZeros, IntoBytes};
    let bytes = event.param.as_bytes();
    let read = uverbs_abi::cm::ConnParam::read_from_prefix(bytes);
    read.map_or_else(|_| uverbs_abi::cm::ConnParam::new_zeroed(), |(param, _)| param)
}

/// The error of a command of `op` that has nothing of the caller's in it: EINVAL then says that the kernel has given the connection up. An
/// error of the queue pair stays as it is.
pub(super) fn given_up(op: &'static str, error: Error, hint: &'static str) -> Error {
    if error.kind() == ErrorKind::InvalidInput && error.op() == op { error.other(hint) } else { error }
}

/// Why the kernel gives up a connection of which both sides know.
pub(super) const LEFT: &str = "the other side has left meanwhile, or a hardware address has changed";

/// The error of an event that ends the setup of a connection; `Ok` for any other event.
pub(super) fn check(op: &'static str, event: &EventResp) -> Result<(), ConnectError> {
    let error = match event.event {
        ADDR_ERROR => {
            let error = Error::kernel(op, errno(event));
            match errno(event) {
                Errno::ETIMEDOUT => error.hinted("no host has answered for this address"),
                Errno::ENODEV => error.not_found("the interface of this route has no RDMA device"),
                _ => error,
            }
        }
        ROUTE_ERROR => Error::kernel(op, errno(event)).hinted("there is no route to this address"),
        CONNECT_ERROR if matches!(errno(event), Errno::ENODEV | Errno::ENXIO) => Error::device_gone(op),
        CONNECT_ERROR => Error::kernel(op, errno(event)),
        UNREACHABLE => Error::refused(op, Errno::ETIMEDOUT, "the other side does not answer"),
        DEVICE_REMOVAL => Error::device_gone(op),
        DISCONNECTED => Error::refused(op, Errno::ECONNRESET, "the other side has left"),
        REJECTED => {
            let reason = Reason::of(status(event));
            return Err(ConnectError::refused(op, reason, private_data(event)));
        }
        _ => return Ok(()),
    };
    let refused = error.errno() == Some(Errno::ECONNREFUSED as i32);
    if refused {
        return Err(ConnectError::refused(op, Reason::NobodyListens, Vec::new()));
    }
    Err(error.into())
}
