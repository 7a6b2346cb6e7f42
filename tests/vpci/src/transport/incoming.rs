//! A connected queue pair as the responder: the requests in the peer's packets are executed.

use uverbs::raw::roce::responder::{Message, Part, Refusal, Step};
use uverbs::raw::roce::{Operation, Packet, Remote, Service};

use super::connection::{Connection, Misfit, scatter};
use super::{Access, AtomicRefused, Host, Piece, Receive, Received, Status};

/// The code of the time after which a peer tries again that found no receive: 0.64 ms.
const UNREADY_TIME: u8 = 12;

/// The message in progress.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// The receive that it uses.
    pub(super) receive: Option<Receive>,
    /// Where the rest of a write goes.
    writing: Remote,
}

/// Whether a packet ends a message with immediate data.
fn is_immediate(operation: Operation) -> bool {
    use Operation::*;
    matches!(operation, SendLastImmediate | SendOnlyImmediate | WriteLastImmediate | WriteOnlyImmediate)
}

fn invalidates(operation: Operation) -> bool {
    matches!(operation, Operation::SendLastInvalidate | Operation::SendOnlyInvalidate)
}

impl Connection {
    pub(super) fn requested(&mut self, packet: &Packet, host: &mut impl Host) {
        let result = match self.responder.arrive(packet, packet.payload.len(), self.settings.mtu) {
            Step::Drop => Ok(()),
            Step::Acknowledge => {
                self.responder.owe();
                Ok(())
            }
            Step::Missing => {
                let response = self.responder.missing(Service::Rc);
                self.respond(response, host);
                Ok(())
            }
            Step::Part(part) => self.take_part(packet, part, host),
            Step::Read { is_new } => self.answer_read(packet, is_new, host),
            Step::Atomic => self.execute(packet, host),
            Step::AtomicAgain(original) => {
                let response = self.responder.result(packet, original);
                self.respond(response, host);
                Ok(())
            }
            Step::Invalid => Err(Refusal::InvalidRequest),
        };
        if let Err(refusal) = result {
            let response = self.responder.refuse(packet, refusal);
            self.respond(response, host);
            if !matches!(refusal, Refusal::NotReady(_)) {
                self.fail();
            }
            return;
        }
        if self.responder.is_owed() {
            let response = self.responder.acknowledgement(Service::Rc);
            self.respond(response, host);
        }
    }

    fn respond(&self, packet: Packet, host: &mut impl Host) {
        host.send(Packet { to: self.settings.to, ..packet });
    }

    fn take_part(&mut self, packet: &Packet, part: Part, host: &mut impl Host) -> Result<(), Refusal> {
        let has_immediate = is_immediate(packet.operation);
        let needs_receive = match part.message {
            Message::Send => part.begins,
            Message::Write => has_immediate,
        };
        if needs_receive && self.incoming.receive.is_none() {
            self.incoming.receive = Some(host.receive().ok_or(Refusal::NotReady(UNREADY_TIME))?);
        }
        match part.message {
            Message::Send => self.fill(packet, part, host)?,
            Message::Write => self.write(packet, part, host)?,
        }
        self.responder.taken(packet, packet.payload.len(), 1);
        if !part.ends {
            return Ok(());
        }
        let invalidated = invalidates(packet.operation).then_some(packet.immediate);
        if let Some(key) = invalidated
            && host.invalidate(key).is_err()
        {
            self.end_receive(Status::RemoteAccess, host);
            return Err(Refusal::Access);
        }
        if let Some(receive) = self.incoming.receive.take() {
            let received = Received {
                len: part.offset + packet.payload.len() as u32,
                is_write: part.message == Message::Write,
                immediate: has_immediate.then_some(packet.immediate),
                invalidated,
                solicited: packet.solicited,
            };
            host.received(receive.token, Status::Success, received);
        }
        Ok(())
    }

    fn end_receive(&mut self, status: Status, host: &mut impl Host) {
        if let Some(receive) = self.incoming.receive.take() {
            host.received(receive.token, status, Received::default());
        }
    }

    fn fill(&mut self, packet: &Packet, part: Part, host: &mut impl Host) -> Result<(), Refusal> {
        let Some(receive) = &self.incoming.receive else { return Err(Refusal::Operation) };
        match scatter(host, &receive.to, part.offset as usize, &packet.payload) {
            Ok(()) => Ok(()),
            Err(Misfit::Length) => {
                self.end_receive(Status::LocalLength, host);
                Err(Refusal::InvalidRequest)
            }
            Err(Misfit::Denied) => {
                self.end_receive(Status::LocalProtection, host);
                Err(Refusal::Operation)
            }
        }
    }

    fn write(&mut self, packet: &Packet, part: Part, host: &mut impl Host) -> Result<(), Refusal> {
        if part.begins {
            let Remote { address, key, len } = packet.remote;
            if len > 0 {
                let piece = Piece { address, len, key };
                host.check(piece, Access::RemoteWrite).map_err(|_| Refusal::Access)?;
            }
            self.incoming.writing = packet.remote;
        }
        let Remote { address, key, len } = self.incoming.writing;
        let count = packet.payload.len() as u32;
        let fits = if part.ends { count == len } else { count < len };
        if !fits {
            return Err(Refusal::InvalidRequest);
        }
        if count > 0 {
            let piece = Piece { address, len: count, key };
            host.write(piece, Access::RemoteWrite, &packet.payload).map_err(|_| Refusal::Access)?;
        }
        let address = address.wrapping_add(count.into());
        self.incoming.writing = Remote { address, key, len: len - count };
        Ok(())
    }

    fn answer_read(&mut self, packet: &Packet, is_new: bool, host: &mut impl Host) -> Result<(), Refusal> {
        let Remote { address, key, len } = packet.remote;
        let mtu = self.settings.mtu;
        let piece = Piece { address, len, key };
        let mut bytes = Vec::new();
        if len > 0 {
            // Checked before memory is allocated for it.
            host.check(piece, Access::RemoteRead).map_err(|_| Refusal::Access)?;
            bytes.resize(len as usize, 0);
            host.read(piece, Access::RemoteRead, &mut bytes).map_err(|_| Refusal::Access)?;
        }
        let count = len.div_ceil(mtu).max(1);
        if is_new {
            self.responder.taken(packet, 0, count);
        }
        for index in 0..count {
            let from = (index * mtu) as usize;
            let to = bytes.len().min(from + mtu as usize);
            let payload = bytes.get(from..to).unwrap_or_default().to_vec();
            let response = Packet { payload, ..self.responder.read_response(packet, index, count) };
            self.respond(response, host);
        }
        Ok(())
    }

    fn execute(&mut self, packet: &Packet, host: &mut impl Host) -> Result<(), Refusal> {
        let is_swap = packet.operation == Operation::CompareSwap;
        let original = host.atomic(&packet.atomic, is_swap).map_err(|refused| match refused {
            AtomicRefused::Denied => Refusal::Access,
            AtomicRefused::Invalid => Refusal::InvalidRequest,
        })?;
        let response = self.responder.executed(packet, original);
        self.respond(response, host);
        Ok(())
    }
}
