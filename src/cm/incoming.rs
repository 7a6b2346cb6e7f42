//! The server's side of a new connection.

use std::net::SocketAddr;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::cm::{Accept as Request, ESTABLISHED, EventResp, Reject};
use uverbs_abi::types::{AccessFlags, qp_state};

use super::connection::{Connection, Ends};
use super::error::{ConnectError, LEFT, check, given_up};
use super::id::Id;
use super::kind::Managed;
use super::parameters::{Parameters, parameters, place};
use super::shared::Shared;
use super::waiting::Waiting;
use crate::device::Device;
use crate::kernel::error::Result;
use crate::kernel::manager::Data;
use crate::verbs::qp::{QueuePair, Rc};

const OP: &str = "cm.accept";

/// A request for a connection, or with [`Ud`](crate::Ud) a look-up: accept or [reject](Self::reject) it. If it is dropped, it is refused at once.
#[derive(Debug)]
#[must_use = "dropping it refuses the request"]
#[doc(alias = "rdma_cm_event")]
pub struct Incoming<T: Managed = Rc> {
    pub(super) id: Id,
    private_data: Vec<u8>,
    asked: T::Asked,
}

impl<T: Managed> Incoming<T> {
    pub(super) fn new(id: Id, event: &EventResp) -> Self {
        let (private_data, asked) = T::asked(event);
        Self { id, private_data, asked }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.id.shared
    }

    /// The data of the program at the other side. On InfiniBand and RoCE it has its maximum length, padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The device over which the request has come, and its port. The queue pair must belong to it.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone.
    pub fn device(&self) -> Result<(Device, u8)> {
        self.id.device(OP)
    }

    /// The own address and that of the other side.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        self.id.addresses(OP)
    }

    /// Refuses the request, with data for the program at the other side.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the data is too long: the request is then refused without data.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, data: &[u8]) -> Result<()> {
        let (_, is_iwarp) = self.id.first_attributes("cm.reject")?;
        let kind = if T::IS_DATAGRAM { Data::Answer } else { Data::Rejection };
        let (private_data, private_data_len) = place("cm.reject", kind, data, is_iwarp)?;
        let request = Reject { id: self.id.id, private_data_len, private_data, ..Reject::default() };
        self.id.request("cm.reject", &request)
    }
}

impl Incoming<Rc> {
    /// Accepts the connection with this queue pair, which must be new. It can then receive: post receives before the connection is
    /// [established](Accept::establish).
    ///
    /// # Errors
    /// Those of [`QueuePair::modify`], and [`Other`](crate::ErrorKind::Other) if the other side has left. The connection is then refused.
    #[doc(alias = "rdma_accept")]
    pub fn accept(self, mut qp: QueuePair<Rc>) -> Result<Accept> {
        let Self { id, private_data, asked: depths } = self;
        let states = [qp_state::INIT, qp_state::RTR, qp_state::RTS];
        let begin = |[first, receive, send]: [_; 3]| {
            Parameters::begin(&first, Some(Box::new([receive, send])), &mut qp)
        };
        let parameters =
            id.attributes_of(OP, states).and_then(begin).map_err(|error| given_up(OP, error, LEFT))?;
        let ends = Ends::new(id, qp, parameters.is_iwarp);
        Ok(Accept { ends, parameters, private_data, depths })
    }
}

/// A connection that is about to be accepted; created by [`Incoming::accept`]. If it is dropped, the connection is refused.
#[derive(Debug)]
#[must_use = "nothing happens before `establish`"]
#[doc(alias = "rdma_conn_param")]
pub struct Accept {
    ends: Box<Ends>,
    parameters: Parameters,
    private_data: Vec<u8>,
    depths: (u8, u8),
}

parameters!(Accept, OP, Data::Reply);

impl Accept {
    /// A handle to say that the queue pair has received a message, while [`establish`](Self::establish) waits.
    pub fn notifier(&self) -> Notifier {
        let Id { shared, uid, id, .. } = &self.ends.link.id;
        Notifier { shared: shared.clone(), uid: *uid, id: *id, is_iwarp: self.parameters.is_iwarp }
    }

    /// Answers the other side, and waits until it has acknowledged.
    ///
    /// # Errors
    /// A [`ConnectError`] if the other side has left, or does not answer, or the device has gone.
    ///
    /// # Kernel
    /// `ACCEPT` (ucma.c and cma.c, Linux 6.1).
    #[doc(alias = "rdma_accept")]
    pub fn establish<'a>(self) -> Waiting<'a, Connection, ConnectError> {
        let shared = self.ends.link.id.shared.clone();
        Waiting::new(&shared, OP, self.run())
    }

    #[allow(clippy::manual_async_fn, reason = "the future of an `async fn` keeps its arguments again")]
    pub(super) fn run(mut self) -> impl Future<Output = Result<Connection, ConnectError>> + Send {
        async move {
            self.answer()?;
            loop {
                let event = self.ends.link.id.event(OP).await?;
                check(OP, &event)?;
                if event.event == ESTABLISHED {
                    return Ok(Connection::new(self.ends, self.private_data));
                }
            }
        }
    }

    /// Makes the queue pair ready, and answers.
    fn answer(&mut self) -> Result<()> {
        let Ends { link, qp } = &mut *self.ends;
        let id = &link.id;
        let conn_param = self.parameters.of(qp, self.depths)?;
        let ready = self.parameters.make_ready(OP, id, qp, Some(&conn_param));
        let request = Request { uid: id.uid, conn_param, id: id.id, ..Request::default() };
        let sent = ready.and_then(|()| id.request(OP, &request));
        sent.map_err(|error| match error.errno().map(Errno::from_raw) {
            Some(Errno::ECONNRESET) => error.hinted("the other side has left"),
            _ => given_up(OP, error, LEFT),
        })
    }
}

/// Tells the manager of a message that has come before the other side's acknowledgement; created by [`Accept::notifier`].
///
/// On InfiniBand and RoCE the acknowledgement is a datagram of its own, which may be lost or late. A message shows as well that the other
/// side has the reply: if a receive completes, or the device reports [`QpEstablished`](crate::EventKind::QpEstablished), while
/// [`establish`](Accept::establish) still waits, [`notify`](Self::notify) ends that wait.
#[derive(Clone, Debug)]
pub struct Notifier {
    shared: Arc<Shared>,
    uid: u64,
    id: u32,
    is_iwarp: bool,
}

impl Notifier {
    /// Establishes the connection if it is not established, and does nothing if it is, or has ended, or on iWARP.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the reply has not been sent, or was refused.
    ///
    /// # Kernel
    /// `NOTIFY` with `IB_EVENT_COMM_EST` (ucma.c and `cm_establish`, cm.c, Linux 6.1).
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self) -> Result<()> {
        match self.is_iwarp {
            true => Ok(()),
            false => self.shared.notify("cm.notify", self.uid, self.id),
        }
    }
}
