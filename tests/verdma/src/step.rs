//! A step of a queue pair: what it does to the rest of the device.

use std::collections::BTreeMap;
use std::time::Instant;

use uverbs::raw::roce::{Atomic, Packet};
use vpci::Memory;
use vpci::transport::{
    Access, AtomicRefused, Connection, Denied, Host, Piece, Receive, Received, Send, Status,
};

use crate::bytes::Bytes as _;
use crate::cq::{Entry, Queue};
use crate::device::Device;
use crate::qp::{Qp, state};
use crate::region::{ALL_MEMORY, Region, right};
use crate::work::{Body, Source, Sqe, opcode, take_receive};

/// What a queue pair can use, and what results.
pub(crate) struct Step<'a> {
    pub(crate) qp: &'a mut Qp,
    pub(crate) memory: &'a Memory,
    pub(crate) regions: &'a mut BTreeMap<u32, Region>,
    has_atomics: bool,
    pub(crate) packets: Vec<Packet>,
    /// The completion queue, and the completion.
    pub(crate) entries: Vec<(u32, Entry)>,
    complaints: Vec<String>,
}

/// The syndromes of completions, `enum erdma_wc_status`.
fn syndrome(status: Status, queue: Queue) -> u8 {
    match (status, queue) {
        (Status::Success, _) => 0,
        (Status::LocalLength | Status::LocalOperation, Queue::Receive) => 2,
        (Status::LocalProtection | Status::RemoteAccess, Queue::Receive) => 4,
        (Status::LocalOperation | Status::LocalLength, _) => 8,
        (Status::LocalProtection, _) => 11,
        // What the peer refuses.
        (Status::RemoteAccess, _) => 4,
        (Status::RemoteInvalidRequest, _) => 2,
        (Status::Flushed, _) => 15,
        (Status::RetriesExceeded | Status::UnreadyRetriesExceeded, _) => 16,
        (Status::BadResponse | Status::RemoteOperation, _) => 1,
    }
}

impl Step<'_> {
    fn region(&self, piece: Piece, wanted: u8) -> Result<Option<&Region>, Denied> {
        // Queue pairs of the kernel, which have no pages, name all memory, and nobody from afar.
        let remote = right::REMOTE_READ | right::REMOTE_WRITE | right::ATOMIC;
        if piece.key == ALL_MEMORY && self.qp.pages.is_none() && wanted & remote == 0 {
            return Ok(None);
        }
        let found = self
            .regions
            .get(&(piece.key >> 8))
            .filter(|region| region.allows(piece.key, self.qp.pd, wanted, piece.address, piece.len.into()));
        found.map(Some).ok_or(Denied)
    }

    fn right(access: Access) -> u8 {
        match access {
            Access::LocalWrite => right::LOCAL_WRITE,
            Access::RemoteRead => right::REMOTE_READ,
            Access::RemoteWrite => right::REMOTE_WRITE,
        }
    }

    fn read_piece(&self, piece: Piece, right: u8, bytes: &mut [u8]) -> Result<(), Denied> {
        let read = match self.region(piece, right)? {
            Some(region) => region.read(self.memory, piece.address, bytes),
            None => self.memory.read(piece.address, bytes),
        };
        read.map_err(|_| Denied)
    }

    fn write_piece(&self, piece: Piece, right: u8, bytes: &[u8]) -> Result<(), Denied> {
        let written = match self.region(piece, right)? {
            Some(region) => region.write(self.memory, piece.address, bytes),
            None => self.memory.write(piece.address, bytes),
        };
        written.map_err(|_| Denied)
    }

    /// The bytes that a request sends.
    pub(crate) fn gather(&self, source: &Source) -> Result<Vec<u8>, Status> {
        let pieces = match source {
            Source::Bytes(bytes) => return Ok(bytes.clone()),
            Source::Pieces(pieces) => pieces,
        };
        let mut bytes = Vec::new();
        for piece in pieces.iter().filter(|piece| piece.len > 0) {
            // Checked before memory is allocated for it.
            self.region(*piece, right::LOCAL_READ).map_err(|_| Status::LocalProtection)?;
            let from = bytes.len();
            bytes.resize(from + piece.len as usize, 0);
            self.read_piece(*piece, right::LOCAL_READ, &mut bytes[from..])
                .map_err(|_| Status::LocalProtection)?;
        }
        Ok(bytes)
    }

    /// The next request of the send queue.
    pub(crate) fn take(&mut self) -> Option<Sqe> {
        let Qp { number, is_datagram, ref mut sends, .. } = *self.qp;
        let (sqe, wrong) = Sqe::take(sends, self.memory, number, is_datagram)?;
        if let Some(wrong) = wrong {
            self.complaints.push(format!("a request of queue pair {number} with {wrong}"));
        }
        Some(sqe)
    }

    /// Gives requests to the connection, as many as it takes, and sends.
    fn pump(&mut self, connection: &mut Connection, now: Instant) {
        loop {
            let mut is_new = false;
            while self.qp.state == state::READY_TO_SEND
                && connection.has_room()
                && let Some(sqe) = self.take()
            {
                is_new = true;
                let token = sqe.token();
                let data = sqe.body.and_then(|body| {
                    let data = self.gather(&body.source)?;
                    Ok((body, data))
                });
                match data {
                    Ok((Body { operation, answer, .. }, data)) => connection.post(Send {
                        token,
                        work: operation,
                        data,
                        to: answer,
                        solicited: sqe.is_solicited,
                        fence: sqe.is_fenced,
                    }),
                    Err(status) => connection.post_broken(token, status),
                }
            }
            connection.advance(self, now);
            if !is_new {
                return;
            }
        }
    }

    /// Ends all that is in the queues.
    fn flush(&mut self) {
        while let Some(sqe) = self.take() {
            self.sent(sqe.token(), Status::Flushed, 0);
        }
        while let Some(receive) = self.receive() {
            self.received(receive.token, Status::Flushed, Received::default());
        }
    }
}

impl Host for Step<'_> {
    fn send(&mut self, packet: Packet) {
        self.packets.push(packet);
    }

    fn receive(&mut self) -> Option<Receive> {
        let (receive, wrong) = take_receive(&mut self.qp.receives, self.memory, self.qp.number)?;
        if let Some(wrong) = wrong {
            self.complaints.push(format!("queue pair {}: {wrong}", self.qp.number));
        }
        Some(receive)
    }

    fn check(&mut self, piece: Piece, access: Access) -> Result<(), Denied> {
        self.region(piece, Self::right(access)).map(drop)
    }

    fn read(&mut self, piece: Piece, access: Access, bytes: &mut [u8]) -> Result<(), Denied> {
        self.read_piece(piece, Self::right(access), bytes)
    }

    fn write(&mut self, piece: Piece, access: Access, bytes: &[u8]) -> Result<(), Denied> {
        self.write_piece(piece, Self::right(access), bytes)
    }

    fn atomic(&mut self, atomic: &Atomic, is_swap: bool) -> Result<u64, AtomicRefused> {
        if !self.has_atomics || !atomic.address.is_multiple_of(8) {
            return Err(AtomicRefused::Invalid);
        }
        let piece = Piece { address: atomic.address, len: 8, key: atomic.key };
        let mut bytes = [0; 8];
        self.read_piece(piece, right::ATOMIC, &mut bytes).map_err(|_| AtomicRefused::Denied)?;
        let original = bytes.u64(0);
        let new = match is_swap {
            true if original == atomic.compare => atomic.operand,
            true => original,
            false => original.wrapping_add(atomic.operand),
        };
        self.write_piece(piece, right::ATOMIC, &new.to_le_bytes()).map_err(|_| AtomicRefused::Denied)?;
        Ok(original)
    }

    /// Only keys that a work request has made can be invalidated; the driver makes none for programs.
    fn invalidate(&mut self, key: u32) -> Result<(), Denied> {
        let pd = self.qp.pd;
        let region = self.regions.get_mut(&(key >> 8)).filter(|region| region.allows(key, pd, 0, 0, 0));
        region.map(|region| region.is_valid = false).ok_or(Denied)
    }

    fn sent(&mut self, token: u64, status: Status, len: u32) {
        let is_signalled = token >> 24 & 1 == 1;
        if status == Status::Success && !is_signalled {
            return;
        }
        let entry = Entry {
            opcode: (token >> 16) as u8,
            queue: Queue::Send,
            syndrome: syndrome(status, Queue::Send),
            slot: token as u16 as u32,
            words: [self.qp.number, 0, len, 0],
            is_solicited: false,
            info: 0,
        };
        self.entries.push((self.qp.cqs[0], entry));
    }

    fn received(&mut self, token: u64, status: Status, received: Received) {
        let (opcode, word) = match (received.is_write, received.immediate, received.invalidated) {
            // Immediate data is a little-endian number here.
            (true, immediate, _) => (opcode::RECEIVED_WRITE, immediate.unwrap_or(0).swap_bytes()),
            (false, Some(immediate), _) => (opcode::RECEIVED_IMMEDIATE, immediate.swap_bytes()),
            (false, None, Some(key)) => (opcode::RECEIVED_INVALIDATE, key),
            (false, None, None) => (opcode::RECEIVED, 0),
        };
        let entry = Entry {
            opcode,
            queue: Queue::Receive,
            syndrome: syndrome(status, Queue::Receive),
            slot: token as u16 as u32,
            words: [self.qp.number, word, received.len, 0],
            is_solicited: received.solicited,
            info: 0,
        };
        self.entries.push((self.qp.cqs[1], entry));
    }
}

impl Device {
    /// Performs a step of a queue pair, and what results from it.
    pub(crate) fn with_qp(
        &mut self,
        number: u32,
        step: impl FnOnce(&mut Step<'_>, Option<&mut Connection>, Instant),
    ) {
        // It is removed meanwhile. What it sends to itself arrives later.
        let Some(mut qp) = self.qps.remove(&number) else { return };
        let mut connection = qp.connection.take();
        let now = self.network.now();
        let (route, is_datagram) = (qp.path.route(self), qp.is_datagram);
        let mut around = Step {
            qp: &mut qp,
            memory: &self.memory,
            regions: &mut self.regions,
            has_atomics: self.flags & 0x80 != 0,
            packets: Vec::new(),
            entries: Vec::new(),
            complaints: Vec::new(),
        };
        step(&mut around, connection.as_mut(), now);
        if let Some(connection) = &mut connection {
            around.pump(connection, now);
            if connection.has_failed() || around.qp.state == state::ERROR {
                around.qp.state = state::ERROR;
                connection.flush(&mut around);
            }
        }
        if around.qp.state == state::ERROR {
            around.flush();
        }
        let Step { packets, entries, complaints, .. } = around;
        qp.connection = connection;
        if qp.connection.as_ref().is_some_and(|connection| connection.due().is_some()) {
            self.waiting.insert(number);
        } else {
            self.waiting.remove(&number);
        }
        self.qps.insert(number, qp);
        complaints.into_iter().for_each(|what| self.complain(what));
        self.statistics.requests += entries.len() as u64;
        entries.into_iter().for_each(|(cq, entry)| self.complete(cq, entry));
        match route {
            Some(route) => packets.into_iter().for_each(|packet| self.leave(route, packet)),
            // Those of datagrams have left already.
            None if is_datagram || packets.is_empty() => {}
            None => self.complain(format!("queue pair {number} has no address to send from")),
        }
    }

    /// A queue pair goes on: it was changed, or its doorbell was rung.
    pub(crate) fn advance(&mut self, number: u32) {
        if self.qps.get(&number).is_some_and(|qp| qp.is_datagram) {
            self.send_datagrams(number);
        } else {
            self.with_qp(number, |_, _, _| {});
        }
        self.carry();
    }
}
