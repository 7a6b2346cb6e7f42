//! Received datagrams, with room for a global header before them.

use super::Around;
use super::completion::is_ipv4;
use super::data::scatter;
use super::qp::{Kind as Transport, Qp};
use crate::bits::Bits;
use crate::ifc::context::qpc;
use crate::packet::header_checksum;
use crate::port::LinkLayer;
use crate::queue::{Opcode, Syndrome};
use crate::transport::route::Route;
use uverbs::raw::roce::{Operation as Kind, Packet};

/// Number of bytes before the data.
const HEADER: usize = 40;

impl Qp {
    pub(super) fn receive_datagram(&mut self, route: &Route, packet: &Packet, around: &mut Around<'_>) {
        // Packets of subnet management have no key.
        let wants_key = self.kind != Transport::Management(0);
        if wants_key && packet.qkey != self.context.num(qpc::q_key) {
            return;
        }
        let opcode = match packet.operation {
            Kind::SendOnly => Opcode::Responder,
            Kind::SendOnlyImmediate => Opcode::ResponderImmediate,
            _ => return,
        };
        let Ok(mut receiving) = self.take_receive(packet, around) else { return };
        let room: u64 = receiving.segments.iter().map(|segment| u64::from(segment.len)).sum();
        let filled = HEADER + packet.payload.len();
        let put = if filled as u64 > room {
            Err(Syndrome::Length)
        } else {
            let header = header(route, packet, around.port.link);
            header
                .map_or(Ok(()), |header| scatter(around, receiving.reach, &receiving.segments, 0, &header))
                .and_then(|()| scatter(around, receiving.reach, &receiving.segments, HEADER, &packet.payload))
        };
        receiving.filled = filled;
        self.responder.receiving = Some(receiving);
        match put {
            Ok(()) => self.complete_receive(opcode, false, route, packet, around),
            Err(syndrome) => {
                self.end_receiving(syndrome, around);
                self.enter_error(around);
                self.flush_sends(around);
            }
        }
    }
}

/// The header before a datagram; nothing if it arrived without a header of the network layer.
fn header(route: &Route, packet: &Packet, link: LinkLayer) -> Option<[u8; HEADER]> {
    if !route.has_grh {
        return None;
    }
    let mut header = [0; HEADER];
    let data = packet.payload.len().next_multiple_of(4);
    let immediate = if packet.operation == Kind::SendOnlyImmediate { 4 } else { 0 };
    // Base header, datagram header, and the checksum.
    let transport = 12 + 8 + immediate + data + 4;
    if link != LinkLayer::InfiniBand && is_ipv4(&route.sgid) {
        let ip = &mut header[20..];
        ip[0] = 0x45;
        ip[1] = route.traffic_class;
        ip[2..4].copy_from_slice(&((20 + 8 + transport) as u16).to_be_bytes());
        ip[6] = 0x40;
        ip[8] = route.hop_limit;
        ip[9] = 17;
        ip[12..16].copy_from_slice(&route.sgid[12..]);
        ip[16..20].copy_from_slice(&route.dgid[12..]);
        let checksum = header_checksum(ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        return Some(header);
    }
    let (next, len) = match link {
        LinkLayer::InfiniBand => (0x1b, transport),
        _ => (17, 8 + transport),
    };
    let first = 6 << 28 | u32::from(route.traffic_class) << 20 | route.flow_label;
    header[..4].copy_from_slice(&first.to_be_bytes());
    header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    (header[6], header[7]) = (next, route.hop_limit);
    header[8..24].copy_from_slice(&route.sgid);
    header[24..40].copy_from_slice(&route.dgid);
    Some(header)
}
