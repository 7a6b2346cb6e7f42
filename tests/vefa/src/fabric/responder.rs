//! The responder: incoming packets, and the responses.

use super::{Kind, Packet, SEGMENT};
use crate::bytes::BytesMut as _;
use crate::counter::counted;
use crate::device::Device;
use crate::queue::{Completion, Operation, Receive, state, status};
use crate::region::access;

/// Maximum number of incomplete writes. There are only more if packets are lost; the oldest ones are then discarded.
const ARRIVING: usize = 4096;
/// Number of bytes before a datagram in its receive, where other transports have the global routing header.
const HEADER: usize = 40;

/// A write of which not all parts have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    left: u32,
    status: u8,
}

impl Device {
    /// The queue pair that receives a packet.
    ///
    /// # Errors
    /// The status for the sender.
    fn receiver(&mut self, packet: &Packet) -> Result<u32, u8> {
        let is_datagram = packet.kind == Kind::Datagram;
        let found =
            self.qp_by_number(packet.to).filter(|(_, qp)| qp.is_reliable != is_datagram && qp.receives());
        let (handle, qp) = found.ok_or(status::BAD_DESTINATION)?;
        if qp.qkey != packet.qkey {
            self.statistics.qkey_violations += 1;
            return Err(status::BAD_DESTINATION);
        }
        Ok(handle)
    }

    fn answer(&mut self, packet: &Packet, status: u8) {
        self.send_packet(packet.reply(Kind::Answer, status));
    }

    pub(super) fn datagram_arrives(&mut self, packet: &Packet) {
        let taken =
            self.receiver(packet).and_then(|handle| self.receive(handle, packet, &with_header(packet)));
        if taken == Err(status::NO_RECEIVE) {
            self.statistics.rx_drops += 1;
        }
    }

    pub(super) fn send_arrives(&mut self, packet: &Packet) {
        let result = self.receiver(packet).and_then(|handle| self.receive(handle, packet, &packet.data));
        if result == Err(status::NO_RECEIVE) {
            self.statistics.rx_drops += 1;
        }
        self.answer(packet, result.err().unwrap_or(status::OK));
    }

    /// Takes a receive.
    fn take_receive(&mut self, handle: u32) -> Result<Receive, u8> {
        let most = self.limits.max_wr_recv_sges;
        let Some(qp) = self.qps.get_mut(handle) else { return Err(status::BAD_DESTINATION) };
        match qp.receive.take(&self.memory, most) {
            Ok(receive) => receive.ok_or(status::NO_RECEIVE),
            Err(_) => {
                let number = qp.number;
                self.complain(format!("queue pair {number:#x}: descriptors that are no receive"));
                self.set_qp_state(handle, state::ERROR);
                Err(status::REMOTE_ABORT)
            }
        }
    }

    /// Writes a message to the next receive.
    fn receive(&mut self, handle: u32, packet: &Packet, data: &[u8]) -> Result<(), u8> {
        let receive = self.take_receive(handle)?;
        let (status, result) = match self.fill(handle, &receive, data) {
            Ok(()) => (status::OK, Ok(())),
            // The receive is consumed all the same.
            Err(status::BAD_LENGTH) => (status::BAD_LENGTH, Err(status::REMOTE_LENGTH)),
            Err(status) => (status, Err(status::REMOTE_ABORT)),
        };
        let length = if result.is_ok() { data.len() as u32 } else { 0 };
        self.complete_receive(handle, packet, Some(receive.id), Operation::Send, length, status);
        result
    }

    fn fill(&self, handle: u32, receive: &Receive, mut data: &[u8]) -> Result<(), u8> {
        let pd = self.qps.get(handle).ok_or(status::INTERNAL)?.pd;
        for piece in &receive.pieces {
            let (part, rest) = data.split_at((piece.length as usize).min(data.len()));
            if !part.is_empty() {
                let region =
                    self.local_region(pd, piece.key, piece.address, piece.length.into(), access::LOCAL_WRITE);
                let region = region.ok_or(status::BAD_LOCAL_KEY)?;
                region.write(&self.memory, piece.address, part).map_err(|_| status::BAD_LOCAL_KEY)?;
            }
            data = rest;
        }
        if data.is_empty() { Ok(()) } else { Err(status::BAD_LENGTH) }
    }

    /// Completes a receive, or a write that needs none.
    fn complete_receive(
        &mut self,
        handle: u32,
        packet: &Packet,
        id: Option<u16>,
        operation: Operation,
        length: u32,
        status: u8,
    ) {
        let Some(qp) = self.qps.get(handle) else { return };
        let (cq, pd, number) = (qp.receive_cq, qp.pd, qp.number);
        self.statistics.receive_requests += 1;
        self.statistics.receive_bytes += u64::from(length);
        self.count_event(handle, counted::RECEIVE + u32::from(status != status::OK));
        let completion = Completion::Receive {
            id: id.unwrap_or(0),
            status,
            operation,
            qp: number,
            length,
            address: self.address_of(pd, packet.source),
            source: packet.source,
            source_qp: packet.from,
            immediate: packet.immediate,
            is_unsolicited: id.is_none(),
        };
        self.complete(cq, completion);
    }

    /// Ends all receives of a queue pair.
    pub(crate) fn flush_receives(&mut self, handle: u32) {
        let most = self.limits.max_wr_recv_sges;
        while let Some(qp) = self.qps.get_mut(handle) {
            let (cq, number) = (qp.receive_cq, qp.number);
            let Ok(Some(receive)) = qp.receive.take(&self.memory, most) else { return };
            self.count_event(handle, counted::RECEIVE + 1);
            let completion = Completion::Receive {
                id: receive.id,
                status: status::FLUSHED,
                operation: Operation::Send,
                qp: number,
                length: 0,
                address: None,
                source: Default::default(),
                source_qp: 0,
                immediate: None,
                is_unsolicited: false,
            };
            self.complete(cq, completion);
        }
    }

    /// The target of a read or a write, which must know the sender's address.
    fn target(&mut self, packet: &Packet) -> Result<(u32, u16), u8> {
        let handle = self.receiver(packet)?;
        let pd = self.qps.get(handle).ok_or(status::BAD_DESTINATION)?.pd;
        self.address_of(pd, packet.source).ok_or(status::UNKNOWN_PEER)?;
        Ok((handle, pd))
    }

    pub(super) fn write_arrives(&mut self, packet: &Packet) {
        let result = self.write_part(packet);
        let who = (packet.source, packet.from, packet.id);
        let len = packet.data.len() as u32;
        if self.fabric.arriving.len() >= ARRIVING && !self.fabric.arriving.contains_key(&who) {
            self.fabric.arriving.pop_first();
        }
        let arriving =
            self.fabric.arriving.entry(who).or_insert(Arriving { left: packet.total, status: status::OK });
        arriving.left = arriving.left.saturating_sub(len);
        if let Err(status) = result {
            arriving.status = status;
        }
        if arriving.left > 0 {
            return;
        }
        let status = arriving.status;
        self.fabric.arriving.remove(&who);
        let result = if status == status::OK { self.write_is_whole(packet) } else { Err(status) };
        self.answer(packet, result.err().unwrap_or(status::OK));
    }

    fn write_part(&mut self, packet: &Packet) -> Result<(), u8> {
        let (_, pd) = self.target(packet)?;
        let end = u64::from(packet.offset) + packet.data.len() as u64;
        if packet.total == 0 && end == 0 {
            return Ok(());
        }
        let region =
            self.remote_region(pd, packet.key, packet.address, packet.total.into(), access::REMOTE_WRITE);
        let region = region.filter(|_| end <= packet.total.into()).ok_or(status::REMOTE_ADDRESS)?;
        let at = packet.address + u64::from(packet.offset);
        region.write(&self.memory, at, &packet.data).map_err(|_| status::REMOTE_ADDRESS)
    }

    fn write_is_whole(&mut self, packet: &Packet) -> Result<(), u8> {
        let handle = self.receiver(packet)?;
        if packet.immediate.is_some() {
            let takes_none = self.qps.get(handle).is_some_and(|qp| qp.is_unsolicited);
            let id = if takes_none { None } else { Some(self.take_receive(handle)?.id) };
            self.complete_receive(handle, packet, id, Operation::Write, packet.total, status::OK);
        }
        self.statistics.write_receive_bytes += u64::from(packet.total);
        self.count_event(handle, counted::REMOTE_WRITE);
        Ok(())
    }

    pub(super) fn read_arrives(&mut self, packet: &Packet) {
        match self.read_whole(packet) {
            Ok(data) => {
                self.statistics.read_response_bytes += data.len() as u64;
                let part = |offset: usize, data: &[u8]| Packet {
                    offset: offset as u32,
                    data: data.to_vec(),
                    ..packet.reply(Kind::Part, status::OK)
                };
                if data.is_empty() {
                    self.send_packet(part(0, &[]));
                }
                data.chunks(SEGMENT)
                    .enumerate()
                    .for_each(|(i, data)| self.send_packet(part(i * SEGMENT, data)));
            }
            Err(status) => self.answer(packet, status),
        }
    }

    fn read_whole(&mut self, packet: &Packet) -> Result<Vec<u8>, u8> {
        let (handle, pd) = self.target(packet)?;
        if packet.total > self.limits.max_rdma_size {
            return Err(status::REMOTE_LENGTH);
        }
        let mut data = vec![0; packet.total as usize];
        if packet.total > 0 {
            let region =
                self.remote_region(pd, packet.key, packet.address, packet.total.into(), access::REMOTE_READ);
            let region = region.ok_or(status::REMOTE_ADDRESS)?;
            region.read(&self.memory, packet.address, &mut data).map_err(|_| status::REMOTE_ADDRESS)?;
        }
        self.count_event(handle, counted::REMOTE_READ);
        Ok(data)
    }
}

/// A datagram after the bytes in place of a routing header: source, destination and length.
fn with_header(packet: &Packet) -> Vec<u8> {
    let mut data = vec![0; HEADER + packet.data.len()];
    data.put(0, &[0x60]);
    data.put(4, &(packet.data.len() as u16).to_be_bytes());
    data.put(6, &[0x1b, 0xff]);
    data.put(8, &packet.source.0);
    data.put(24, &packet.destination.0);
    data.put(HEADER, &packet.data);
    data
}
