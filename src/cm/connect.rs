//! The client's side of a new connection.

use std::sync::Arc;

use uverbs_abi::cm::{Accept, CONNECT_RESPONSE, ConnParam, Connect as Request, ESTABLISHED};
use uverbs_abi::types::AccessFlags;
use uverbs_abi::write::QpAttr;

use super::connection::{Connection, Ends};
use super::dispatch::Kind;
use super::error::{ConnectError, LEFT, check, given_up, private_data};
use super::id::Id;
use super::parameters::{Parameters, parameters};
use super::resolve::route;
use super::steps::Step;
use super::waiting::Waiting;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::manager::Data;
use crate::verbs::qp::{QueuePair, Rc};

const OP: &str = "cm.connect";

/// Why the kernel does not send a request.
const MUTE: &str = "the kernel could not send the request: a hardware address has changed since the route was resolved, or the device's own \
    queue pair for connections is in the error state (GSI in `rdma resource show qp`), as that of rxe is after its interface was down";

/// A connection that is about to be made; created by [`Target::connect`](super::Target::connect).
///
/// It owns the queue pair. Dropping it, or the call that [`establish`](Self::establish) returns, cancels the connection and destroys the
/// queue pair, whose number the other side may know already.
#[derive(Debug)]
#[must_use = "nothing happens before `establish`"]
#[doc(alias = "rdma_conn_param")]
pub struct Connect {
    ends: Box<Ends>,
    parameters: Parameters,
}

parameters!(Connect, OP, Data::Request);

impl Connect {
    pub(super) fn new(id: Id, attributes: &QpAttr, mut qp: QueuePair<Rc>) -> Result<Self> {
        let parameters = Parameters::begin(attributes, None, &mut qp)?;
        Ok(Self { ends: Ends::new(id, qp, parameters.is_iwarp), parameters })
    }

    /// Asks the other side, and waits for its answer. Without a deadline it waits as long as the program there needs.
    ///
    /// # Errors
    /// A [`ConnectError`]: [`Refused`](crate::ErrorKind::Refused) with the data of the other side, [`TimedOut`](crate::ErrorKind::TimedOut)
    /// if it does not answer, [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone, and
    /// [`Other`](crate::ErrorKind::Other) if the kernel gives the connection up: the other side has left before the acknowledgement, or a
    /// hardware address has changed.
    ///
    /// # Kernel
    /// `CONNECT`, and on InfiniBand and RoCE `ACCEPT` to acknowledge the reply (ucma.c and cma.c, Linux 6.1).
    #[doc(alias = "rdma_establish")]
    #[doc(alias = "rdma_connect")]
    pub fn establish<'a>(self) -> Waiting<'a, Connection, ConnectError> {
        let shared = self.ends.link.id.shared.clone();
        Waiting::new(&shared, OP, self.run())
    }

    // Not an `async fn`, whose future has room for what it is given twice.
    pub(super) fn run(self) -> impl Future<Output = Result<Connection, ConnectError>> + Send {
        let Self { ends, parameters } = self;
        let mut unanswered = Unanswered(Some(ends));
        async move {
            if let Some(ends) = &mut unanswered.0 {
                parameters.allow(&mut ends.qp)?;
                match parameters.is_iwarp {
                    true => {
                        ends.link.id.shared.read(OP, Kind::Task)?;
                        route(OP, &ends.link.id).await?;
                        connect_in_helper(&ends.link.id, request(&parameters, ends)?)?;
                    }
                    false => connect(&parameters, ends).await?,
                }
            }
            while let Some(ends) = &mut unanswered.0 {
                let id = &ends.link.id;
                let event = match parameters.is_iwarp {
                    true => id.event(OP).await?,
                    false => id.event_before(OP, Step::Ready).await?,
                };
                // Only a request without an answer makes the kernel wait when it is destroyed.
                id.may_block(false);
                check(OP, &event)?;
                match event.event {
                    CONNECT_RESPONSE => {
                        acknowledge(&parameters, ends).map_err(|error| given_up(OP, error, LEFT))?;
                    }
                    ESTABLISHED => {}
                    _ => continue,
                }
                if let Some(ends) = unanswered.0.take() {
                    return Ok(Connection::new(ends, private_data(&event)));
                }
            }
            Err(Error::malformed(OP, "the connection was handed over twice").into())
        }
    }
}

/// The two ends of a client that waits for its answer.
struct Unanswered(Option<Box<Ends>>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        let Some(ends) = self.0.take() else { return };
        let id = &ends.link.id;
        let shared = Arc::clone(&id.shared);
        if !id.blocks() || !shared.is_here() {
            return drop(ends);
        }
        // The kernel waits for the other side before it destroys the identifier, and the queue pair after it. If no thread can be started,
        // this one waits.
        id.may_block(false);
        let _ = shared.help(move |_| drop(ends));
    }
}

fn request(parameters: &Parameters, ends: &Ends) -> Result<Request> {
    let conn_param = parameters.of(&ends.qp, (u8::MAX, u8::MAX))?;
    Ok(Request { conn_param, id: ends.link.id.id, ..Request::default() })
}

/// Sends the request. The route is there in most cases, and its event is read by the same system call; else it is waited for.
async fn connect(parameters: &Parameters, ends: &Ends) -> Result<(), ConnectError> {
    let id = &ends.link.id;
    match id.shared.request_and_read(OP, &request(parameters, ends)?) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            route(OP, id).await?;
            let sent = id.request(OP, &request(parameters, ends)?);
            Ok(sent.map_err(|error| given_up(OP, error, MUTE))?)
        }
        sent => Ok(sent?),
    }
}

/// Answers the reply.
fn acknowledge(parameters: &Parameters, ends: &mut Ends) -> Result<()> {
    let id = &ends.link.id;
    parameters.make_ready(OP, id, &mut ends.qp, None)?;
    let (uid, conn_param) = (id.uid, ConnParam::default());
    id.request(OP, &Accept { uid, conn_param, id: id.id, ..Accept::default() })
}

/// Sends the request over iWARP, where the kernel connects before it returns.
fn connect_in_helper(id: &Id, request: Request) -> Result<()> {
    id.may_block(true);
    let (uid, id, shared) = (id.uid, id.id, Arc::clone(&id.shared));
    shared.help(move |shared| {
        if let Err(error) = shared.request(OP, &request) {
            shared.report_failure(uid, id, &error);
        }
    })
}
