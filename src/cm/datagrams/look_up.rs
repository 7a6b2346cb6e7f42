//! The client's side of a look-up.

use uverbs_abi::cm::{ADDR_ERROR, ConnParam, Connect, ESTABLISHED, EventResp, UNREACHABLE};

use super::super::error::{ConnectError, Reason, check, datagram_data, status};
use super::super::id::Id;
use super::super::parameters::place;
use super::super::resolve::Target;
use super::super::waiting::Waiting;
use super::destination::Destination;
use super::ready::make_ready;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::manager::Data;
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::qp::{QueuePair, Ud};

const OP: &str = "cm.look_up";

/// A look-up that is about to be sent; created by [`Target::look_up`](super::super::Target::look_up).
#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct LookUp {
    id: Id,
    pd: ProtectionDomain,
    data: ([u8; 256], u8),
}

/// What a look-up has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Service {
    /// Where datagrams go.
    pub destination: Destination,
    /// The data of the program at the other side. It has its maximum length, padded with zeros.
    pub private_data: Vec<u8>,
}

impl Target<Ud> {
    /// Prepares a look-up. Datagrams will be sent with this queue pair, which belongs to the [device](Self::device). If it is new, it is
    /// made ready with the queue key of the connection manager, so that receives can be posted before the other side can send.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a queue pair of another device, or one that is ready with another queue key; those of
    /// [`QueuePair::modify`].
    #[doc(alias = "rdma_connect")]
    pub fn look_up(self, qp: &mut QueuePair<Ud>) -> Result<LookUp> {
        make_ready(OP, &self.id, qp)?;
        Ok(LookUp { id: self.id, pd: domain(OP, qp)?, data: ([0; 256], 0) })
    }
}

/// The protection domain of a queue pair.
pub(super) fn domain(op: &'static str, qp: &QueuePair<Ud>) -> Result<ProtectionDomain> {
    // Only a queue pair that receives for an extended connection has none.
    qp.shared().pd().cloned().ok_or_else(|| Error::malformed(op, "a queue pair without a protection domain"))
}

impl LookUp {
    /// Data for the program at the other side.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for more than 180 bytes: nothing has been sent then.
    pub fn private_data(mut self, data: &[u8]) -> Result<Self> {
        self.data = place(OP, Data::LookUp, data, false)?;
        Ok(self)
    }

    /// Asks the other side, and waits for its answer. Without a deadline the kernel repeats the look-up for 69 seconds.
    ///
    /// # Errors
    /// A [`ConnectError`]: [`Refused`](ErrorKind::Refused) with the data of the other side, [`TimedOut`](ErrorKind::TimedOut) if it does not
    /// answer, [`Disassociated`](ErrorKind::Disassociated) if the device has gone.
    ///
    /// # Kernel
    /// `CONNECT` (`cma_resolve_ib_udp` and `cma_sidr_rep_handler`, cma.c, Linux 6.1).
    pub fn run<'a>(self) -> Waiting<'a, Service, ConnectError> {
        let shared = self.id.shared.clone();
        Waiting::new(&shared, OP, self.ask())
    }

    async fn ask(self) -> Result<Service, ConnectError> {
        let Self { id, pd, data: (private_data, private_data_len) } = self;
        let conn_param = ConnParam { private_data, private_data_len, valid: 1, ..ConnParam::default() };
        id.request(OP, &Connect { conn_param, id: id.id, ..Connect::default() })?;
        loop {
            let event = id.event(OP).await?;
            check_answer(&event)?;
            if event.event == ESTABLISHED {
                let destination = Destination::of(&pd, &event.param)?;
                return Ok(Service { destination, private_data: datagram_data(&event) });
            }
        }
    }
}

/// The error of an event that ends a look-up; `Ok` for any other event.
fn check_answer(event: &EventResp) -> Result<(), ConnectError> {
    match event.event {
        UNREACHABLE if status(event) > 0 => {
            Err(ConnectError::refused(OP, Reason::of_look_up(status(event)), datagram_data(event)))
        }
        ADDR_ERROR => check(OP, event).map_err(|error| {
            let hint = "the queue pair there has another queue key than that of the connection manager";
            Error::from(error).hinted_if(ErrorKind::InvalidInput, hint).into()
        }),
        _ => check(OP, event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event: u32, status: i32) -> EventResp {
        EventResp { event, status: status as u32, ..EventResp::default() }
    }

    #[test]
    fn an_answer_says_why_it_is_none() {
        let reason = |status| {
            let error = check_answer(&event(UNREACHABLE, status)).expect_err("a refusal");
            (error.kind(), error.rejection().map(|rejection| rejection.reason))
        };
        assert_eq!(reason(1), (ErrorKind::Refused, Some(Reason::NobodyListens)));
        assert_eq!(reason(2), (ErrorKind::Refused, Some(Reason::Program)));
        assert_eq!(reason(4), (ErrorKind::Refused, Some(Reason::Other(4))));
        assert_eq!(reason(-110), (ErrorKind::TimedOut, None));
        let other_key = check_answer(&event(ADDR_ERROR, -22)).expect_err("another key");
        assert_eq!(other_key.kind(), ErrorKind::InvalidInput);
        assert!(other_key.to_string().contains("another queue key"), "{other_key}");
        assert!(check_answer(&event(ESTABLISHED, 0)).is_ok());
    }
}
