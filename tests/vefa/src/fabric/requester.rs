//! The requester: requests in progress, and their results.

use std::time::Instant;

use super::{Gid, Kind, Packet, RETRY, SEGMENT};
use crate::device::Device;
use crate::queue::{Operation, Piece, Source, Work, status};
use crate::region::access;
use crate::statistics::Statistics;

/// This number of retries means any number, as everywhere in verbs.
const FOR_EVER: u8 = 7;

/// A request in progress.
#[derive(Debug)]
pub(super) struct Request {
    handle: u32,
    /// The queue pair's number, because a handle is used again.
    qp: u16,
    pub(super) peer: Gid,
    work: Work,
    retries: u8,
    /// Number of bytes of a read that have not arrived.
    left: u32,
    /// The deadline for the response of another device.
    until: Option<Instant>,
}

impl Device {
    /// Executes a request that was taken from its queue.
    pub(crate) fn launch(&mut self, handle: u32, work: Work) {
        let Some(qp) = self.qps.get(handle) else { return };
        let (number, pd, is_reliable, retries) = (qp.number, qp.pd, qp.is_reliable, qp.rnr_retry);
        let address = self.addresses.get(work.address.into()).filter(|address| address.pd == pd);
        let Some(peer) = address.map(|address| address.gid) else {
            return self.complete_send(handle, &work, status::BAD_ADDRESS_HANDLE);
        };
        let id = self.fabric.next;
        let packets = match self.packets(pd, number, peer, id, &work) {
            Ok(packets) => packets,
            Err(status) => return self.complete_send(handle, &work, status),
        };
        if !is_reliable {
            packets
                .into_iter()
                .for_each(|packet| self.send_packet(Packet { kind: Kind::Datagram, ..packet }));
            return self.complete_send(handle, &work, status::OK);
        }
        self.fabric.next += 1;
        let until = (peer != self.gid).then(|| Instant::now() + self.fabric.patience);
        let left = work.remote.length;
        self.fabric.requests.insert(id, Request { handle, qp: number, peer, work, retries, left, until });
        if let Some(qp) = self.qps.get_mut(handle) {
            qp.send.under_way += 1;
        }
        packets.into_iter().for_each(|packet| self.send_packet(packet));
        // Packets in the pool occupy memory.
        self.run_fabric(false);
    }

    /// The packets of a request.
    ///
    /// # Errors
    /// The status with which it ends if its own memory must not be used in this way.
    fn packets(&self, pd: u16, from: u16, destination: Gid, id: u64, work: &Work) -> Result<Vec<Packet>, u8> {
        let Piece { length: total, key, address } = work.remote;
        let kind = match work.operation {
            Operation::Send => Kind::Send,
            Operation::Read => Kind::Read,
            Operation::Write => Kind::Write,
        };
        let packet = |offset: usize, data: &[u8]| Packet {
            kind,
            source: self.gid,
            destination,
            from,
            to: work.destination_qp,
            id,
            qkey: work.qkey,
            immediate: work.immediate,
            key,
            address,
            total,
            offset: offset as u32,
            status: 0,
            data: data.to_vec(),
        };
        if kind == Kind::Read {
            self.scatter(pd, &work.source, 0, None)?;
            return Ok(vec![packet(0, &[])]);
        }
        let data = self.gather(pd, &work.source)?;
        let is_one = kind == Kind::Send || data.is_empty();
        Ok(if is_one {
            vec![packet(0, &data)]
        } else {
            data.chunks(SEGMENT).enumerate().map(|(i, part)| packet(i * SEGMENT, part)).collect()
        })
    }

    /// The data of a request.
    fn gather(&self, pd: u16, source: &Source) -> Result<Vec<u8>, u8> {
        let pieces = match source {
            Source::Inline(bytes) => return Ok(bytes.clone()),
            Source::Pieces(pieces) => pieces,
        };
        let mut data = Vec::new();
        for piece in pieces.iter().filter(|piece| piece.length > 0) {
            let region = self
                .local_region(pd, piece.key, piece.address, piece.length.into(), 0)
                .ok_or(status::BAD_LOCAL_KEY)?;
            let start = data.len();
            data.resize(start + piece.length as usize, 0);
            region
                .read(&self.memory, piece.address, &mut data[start..])
                .map_err(|_| status::BAD_LOCAL_KEY)?;
        }
        Ok(data)
    }

    /// Writes the data of a read from `offset` on; without data, only checks whether this is allowed.
    fn scatter(&self, pd: u16, source: &Source, offset: u32, data: Option<&[u8]>) -> Result<(), u8> {
        let Source::Pieces(pieces) = source else { return Err(status::BAD_LENGTH) };
        // There is at most one segment.
        let Some(piece) = pieces.first().filter(|piece| piece.length > 0) else { return Ok(()) };
        let region = self
            .local_region(pd, piece.key, piece.address, piece.length.into(), access::LOCAL_WRITE)
            .ok_or(status::BAD_LOCAL_KEY)?;
        let Some(data) = data else { return Ok(()) };
        let end = u64::from(offset) + data.len() as u64;
        if end > piece.length.into() {
            return Err(status::BAD_LENGTH);
        }
        region.write(&self.memory, piece.address + u64::from(offset), data).map_err(|_| status::BAD_LOCAL_KEY)
    }

    /// The request to which a packet belongs, if it comes from the request's destination.
    fn request_of(&mut self, packet: &Packet) -> Option<&mut Request> {
        self.fabric.heard.insert(packet.source);
        let request = self.fabric.requests.get_mut(&packet.id)?;
        (request.peer == packet.source && request.qp == packet.to).then_some(request)
    }

    /// The peer's result of a request.
    pub(super) fn answer_arrives(&mut self, packet: &Packet) {
        let Some(request) = self.request_of(packet) else { return };
        if packet.status == status::NO_RECEIVE && request.retries > 0 {
            if request.retries < FOR_EVER {
                request.retries -= 1;
            }
            self.statistics.retries += 1;
            return self.fabric.again.push((Instant::now() + RETRY, packet.id));
        }
        self.end(packet.id, packet.status);
    }

    /// A part of the data of a read.
    pub(super) fn part_arrives(&mut self, packet: &Packet) {
        let Some(request) = self.request_of(packet) else { return };
        let (source, handle) = (request.work.source.clone(), request.handle);
        let len = packet.data.len() as u32;
        let is_too_much = len > request.left;
        request.left = request.left.saturating_sub(len);
        let is_last = request.left == 0;
        let Some(pd) = self.qps.get(handle).map(|qp| qp.pd) else { return };
        let result = if is_too_much {
            Err(status::BAD_LENGTH)
        } else {
            self.scatter(pd, &source, packet.offset, Some(&packet.data))
        };
        match result {
            Err(status) => self.end(packet.id, status),
            Ok(()) if is_last => self.end(packet.id, status::OK),
            Ok(()) => {}
        }
    }

    fn end(&mut self, id: u64, status: u8) {
        let Some(request) = self.fabric.requests.remove(&id) else { return };
        let Some(qp) = self.qps.get_mut(request.handle).filter(|qp| qp.number == request.qp) else { return };
        qp.send.under_way = qp.send.under_way.saturating_sub(1);
        self.complete_send(request.handle, &request.work, status);
    }

    /// Sends a request again.
    pub(super) fn send_again(&mut self, id: u64) {
        let Some(request) = self.fabric.requests.get_mut(&id) else { return };
        if let Some(until) = &mut request.until {
            *until = Instant::now() + self.fabric.patience;
        }
        let (handle, qp, peer, work) = (request.handle, request.qp, request.peer, request.work.clone());
        let Some(pd) = self.qps.get(handle).map(|qp| qp.pd) else { return };
        match self.packets(pd, qp, peer, id, &work) {
            Ok(packets) => packets.into_iter().for_each(|packet| self.send_packet(packet)),
            Err(status) => self.end(id, status),
        }
    }

    /// No device has the destination address of a packet.
    pub(super) fn nobody_there(&mut self, packet: &Packet) {
        if matches!(packet.kind, Kind::Send | Kind::Write | Kind::Read) {
            self.end(packet.id, status::UNREACHABLE);
        }
    }

    /// Ends requests that have waited for too long.
    pub(super) fn give_up(&mut self, now: Instant) {
        let late = |request: &Request| request.until.is_some_and(|until| until <= now);
        let late: Vec<_> = self
            .fabric
            .requests
            .iter()
            .filter(|(_, request)| late(request))
            .map(|(id, request)| (*id, request.peer))
            .collect();
        for (id, peer) in late {
            self.statistics.timeouts += 1;
            let was_there = self.fabric.heard.contains(&peer);
            self.end(id, if was_there { status::UNRESPONSIVE } else { status::UNREACHABLE });
        }
    }

    fn requests_of(&self, handle: u32) -> Vec<u64> {
        self.fabric
            .requests
            .iter()
            .filter(|(_, request)| request.handle == handle)
            .map(|(id, _)| *id)
            .collect()
    }

    /// Ends the requests of a queue pair, in the order in which they were begun.
    pub(crate) fn flush_requests(&mut self, handle: u32) {
        self.requests_of(handle).into_iter().for_each(|id| self.end(id, status::FLUSHED));
    }

    /// Discards the requests of a queue pair.
    pub(crate) fn forget_requests(&mut self, handle: u32) {
        for id in self.requests_of(handle) {
            self.fabric.requests.remove(&id);
        }
        if let Some(qp) = self.qps.get_mut(handle) {
            qp.send.under_way = 0;
        }
    }
}

impl Statistics {
    /// A request has ended.
    pub(crate) fn ended(&mut self, work: &Work, status: u8) {
        let is_good = status == status::OK;
        let (requests, bytes, errors) = match work.operation {
            Operation::Send => {
                self.send_requests += 1;
                self.send_bytes += if is_good { work.source.len() } else { 0 };
                return;
            }
            Operation::Read => (&mut self.read_requests, &mut self.read_bytes, &mut self.read_errors),
            Operation::Write => (&mut self.write_requests, &mut self.write_bytes, &mut self.write_errors),
        };
        *requests += 1;
        if is_good {
            *bytes += work.source.len();
        } else {
            *errors += 1;
        }
    }
}
