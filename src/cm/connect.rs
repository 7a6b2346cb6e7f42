//! The client's side of a new connection.

use std::sync::Arc;

use uverbs_abi::cm::{Accept, CONNECT_RESPONSE, ConnParam, Connect as Request, ESTABLISHED};
use uverbs_abi::types::AccessFlags;

use super::connection::Connection;
use super::error::{ConnectError, check, private_data};
use super::id::Id;
use super::parameters::{Data, Parameters, parameters};
use super::waiting::Waiting;
use crate::kernel::error::Result;
use crate::verbs::qp::{QueuePair, Rc};

const OP: &str = "cm.connect";

/// A connection that is about to be made; created by [`Target::connect`](super::Target::connect).
///
/// It owns the queue pair. Dropping it, or the call that [`establish`](Self::establish) returns, cancels the connection and destroys the
/// queue pair, whose number the other side may know already.
#[derive(Debug)]
#[must_use = "nothing happens before `establish`"]
pub struct Connect {
    id: Id,
    qp: QueuePair<Rc>,
    parameters: Parameters,
}

parameters!(Connect, OP, Data::Request);

impl Connect {
    pub(super) fn new(id: Id, mut qp: QueuePair<Rc>) -> Result<Self> {
        let parameters = Parameters::begin(OP, &id, &mut qp)?;
        Ok(Self { id, qp, parameters })
    }

    /// Asks the other side, and waits for its answer. Without a deadline it waits as long as the program there needs.
    ///
    /// # Errors
    /// A [`ConnectError`]: [`Refused`](crate::ErrorKind::Refused) with the data of the other side, [`TimedOut`](crate::ErrorKind::TimedOut)
    /// if it does not answer, [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone.
    ///
    /// # Kernel
    /// `CONNECT`, and on InfiniBand and RoCE `ACCEPT` to acknowledge the reply (ucma.c and cma.c, Linux 6.1).
    pub fn establish<'a>(self) -> Waiting<'a, Connection, ConnectError> {
        let shared = self.id.shared.clone();
        Waiting::new(&shared, OP, self.run())
    }

    async fn run(mut self) -> Result<Connection, ConnectError> {
        let conn_param = self.parameters.of(&self.qp, (u8::MAX, u8::MAX))?;
        self.parameters.allow(&mut self.qp)?;
        self.ask(Request { conn_param, id: self.id.id, ..Request::default() })?;
        loop {
            let event = self.id.event(OP).await?;
            // Only a request without an answer makes the kernel wait when it is destroyed.
            self.id.may_block(false);
            check(OP, &event)?;
            match event.event {
                CONNECT_RESPONSE => {
                    self.parameters.make_ready(OP, &self.id, &mut self.qp, None)?;
                    let conn_param = ConnParam::default();
                    let (uid, id) = (self.id.uid, self.id.id);
                    self.id.request(OP, &Accept { uid, conn_param, id, ..Accept::default() })?;
                }
                ESTABLISHED => {}
                _ => continue,
            }
            let Self { id, qp, parameters } = self;
            return Ok(Connection::new(id, qp, parameters.is_iwarp, private_data(&event)));
        }
    }

    /// Sends the request. Over iWARP the kernel connects before it returns, so a helper does it.
    fn ask(&self, request: Request) -> Result<()> {
        if !self.parameters.is_iwarp {
            return self.id.request(OP, &request);
        }
        self.id.may_block(true);
        let (uid, id) = (self.id.uid, self.id.id);
        Arc::clone(&self.id.shared).help(move |shared| {
            if let Err(error) = shared.request(OP, &request) {
                shared.report_failure(uid, id, &error);
            }
        })
    }
}
