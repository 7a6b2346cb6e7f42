//! Datagrams, which only the kernel sends: those of connection managers.

use uverbs::raw::roce::{Operation, Packet, Service};
use vpci::bytes::{Bytes as _, BytesMut as _};
use vpci::transport::Piece;
use vpci::transport::frame::Route;

use super::host::{Needed, region};
use super::qp::{Kind, Qp, kind, state};
use crate::command::local_key;
use crate::device::Device;
use crate::queue::Wqe;
use crate::region::access;

/// Size of the network header before a datagram in its receive.
const HEADER: usize = 40;
const LONGEST: u64 = 4096;
const UDP: u8 = 17;

/// An address (`struct mana_ib_av`), with bytes in reverse order.
fn route_of(av: &[u8], smac: [u8; 6]) -> Route {
    let reversed = |at: usize| {
        let mut gid = av.array::<16>(at);
        gid.reverse();
        gid
    };
    let word = av.u32(40);
    let mut dmac = av.array::<6>(16);
    dmac.reverse();
    let (mut sgid, mut dgid) = (reversed(24), reversed(0));
    if word >> 31 == 0 {
        // Only the four bytes of an IPv4 address are reversed, at the end of the field.
        let v4 = |at: usize| {
            let mut bytes = av.array::<4>(at + 12);
            bytes.reverse();
            let mut gid = [0; 16];
            gid[10..12].fill(0xff);
            gid[12..].copy_from_slice(&bytes);
            gid
        };
        (sgid, dgid) = (v4(24), v4(0));
    }
    Route {
        smac,
        dmac,
        sgid,
        dgid,
        hop_limit: word as u8,
        traffic_class: ((word >> 20) as u8 & 0x3f) << 2,
        udp_source: av.u16(22),
        flow_label: 0,
    }
}

impl Device {
    /// Sends the requests of a datagram queue pair.
    pub(super) fn send_datagrams(&mut self, qp: &mut Qp) {
        loop {
            let wqe = match qp.requests.take(&self.memory) {
                Ok(Some(wqe)) => wqe,
                Ok(None) => return,
                Err(why) => return self.complain(format!("datagram queue {}: {why}", qp.numbers.send)),
            };
            match self.datagram(qp, &wqe) {
                Some((route, packet)) => self.rdma.transit.push_back((route, packet)),
                None => self.complain(format!("datagram queue {}: a request is malformed", qp.numbers.send)),
            }
            let mut data = [0; 12];
            data.put_u32(0, kind::DATAGRAM.into());
            data.put_u32(4, wqe.at);
            self.post_completion(qp.cqs[0], &data, qp.numbers.send, true);
        }
    }

    fn datagram(&self, qp: &Qp, wqe: &Wqe) -> Option<(Route, Packet)> {
        let (av, pieces) = wqe.pieces.split_first().filter(|_| wqe.has_address && wqe.len() <= LONGEST)?;
        let read = |piece: &crate::queue::Piece| {
            let place = Piece { address: piece.address, len: piece.len, key: piece.key };
            let needed = Needed { access: 0, is_remote: false };
            let mut bytes = vec![0; piece.len as usize];
            let region = self.kernel_region(qp, place, needed)?;
            region.read(&self.memory, piece.address, &mut bytes).ok()?;
            Some(bytes)
        };
        let route = route_of(&read(av)?, self.mac);
        let payload: Option<Vec<_>> = pieces.iter().map(read).collect();
        let packet = Packet {
            psn: wqe.oob.u32(0) >> 8,
            qkey: wqe.oob.u32(8),
            from: qp.numbers.receive,
            payload: payload?.concat(),
            ..Packet::new(Service::Ud, Operation::SendOnly, wqe.oob.u32(4) & 0xff_ffff)
        };
        Some((route, packet))
    }

    /// The region of a key of the kernel: of the queue pair's domain, or the one of all memory.
    fn kernel_region(&self, qp: &Qp, piece: Piece, needed: Needed) -> Option<&crate::region::Region> {
        let number = piece.key >> 8;
        let all = self.regions.get(number).filter(|region| region.pages.is_none());
        let is_all = all.filter(|_| piece.key == local_key(number));
        is_all.or_else(|| region(&self.regions, qp.pd, piece, needed))
    }

    /// A datagram arrives.
    pub(super) fn datagram_arrives(&mut self, route: &Route, packet: &Packet) {
        let is_it = |qp: &&Qp| {
            qp.kind != Kind::Connected
                && qp.numbers.receive == packet.to
                && qp.state >= state::RTR
                && qp.state != state::ERROR
                && qp.attributes.qkey == packet.qkey
        };
        let Some(base) = self.rdma.qps.values().find(is_it).map(|qp| qp.numbers.base) else { return };
        self.with_qp(base, |device, qp| device.take_datagram(qp, route, packet));
    }

    fn take_datagram(&mut self, qp: &mut Qp, route: &Route, packet: &Packet) {
        let wqe = match qp.receives.take(&self.memory) {
            Ok(Some(wqe)) => wqe,
            // It is lost.
            Ok(None) => return,
            Err(why) => return self.complain(format!("datagram queue {}: {why}", qp.numbers.receive)),
        };
        let mut bytes = header(route, packet.payload.len()).to_vec();
        bytes.extend(&packet.payload);
        let len = bytes.len();
        let mut rest = &bytes[..];
        for piece in &wqe.pieces {
            let (part, others) = rest.split_at(rest.len().min(piece.len as usize));
            let place = Piece { address: piece.address, len: part.len() as u32, key: piece.key };
            let needed = Needed { access: access::LOCAL_WRITE, is_remote: false };
            let written = self
                .kernel_region(qp, place, needed)
                .is_some_and(|region| region.write(&self.memory, piece.address, part).is_ok());
            if !written {
                self.complain(format!("datagram queue {}: a receive has a bad key", qp.numbers.receive));
            }
            rest = others;
        }
        let mut data = [0; 20];
        data.put_u32(0, kind::DATAGRAM.into());
        data.put_u32(4, len as u32);
        data.put_u32(8, packet.from);
        data.put_u32(16, wqe.at);
        self.post_completion(qp.cqs[1], &data, qp.numbers.receive, false);
    }
}

/// The network header as receivers see it: that of IPv6, or 20 unused bytes and that of IPv4.
fn header(route: &Route, len: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    if route.dgid.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]) {
        let v4 = &mut header[20..];
        (v4[0], v4[1]) = (0x45, route.traffic_class);
        v4.put(2, &(len as u16 + 20).to_be_bytes());
        (v4[8], v4[9]) = (route.hop_limit, UDP);
        v4.put(12, &route.sgid[12..]);
        v4.put(16, &route.dgid[12..]);
        let sum = header_sum(v4);
        v4.put(10, &sum.to_be_bytes());
    } else {
        header[0] = 0x60 | route.traffic_class >> 4;
        header.put(4, &(len as u16).to_be_bytes());
        (header[6], header[7]) = (UDP, route.hop_limit);
        header.put(8, &route.sgid);
        header.put(24, &route.dgid);
    }
    header
}

/// The checksum of an IPv4 header.
fn header_sum(header: &[u8]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let mut sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
