//! Datagrams on the wire.

use uverbs_abi::types::{WcFlags, qp_type};
use uverbs_abi::write::Wc;
use zerocopy::FromZeros;

use super::gid_of;
use crate::roce::{Operation, Packet, Service};
use crate::soft::datagrams::{Datagram, GRH, header, on_wire};
use crate::soft::gids::{self, Gid, Route};
use crate::soft::state::State;

/// The hop limit that a header is said to have: the socket does not show it.
const HOPS: u8 = 64;

impl State {
    /// Sends a datagram whose destination is elsewhere.
    pub(in crate::soft) fn send_datagram_packet(&mut self, number: u32, psn: u32, datagram: &Datagram) {
        let destination = &datagram.route.destination;
        if gids::is_own(&self.profile, destination) || gids::is_multicast(destination) {
            return;
        }
        let Some(wire) = &mut self.wire else { return };
        let has_imm = WcFlags::from_bits_retain(datagram.wc.wc_flags).contains(WcFlags::WITH_IMM);
        let operation = if has_imm { Operation::SendOnlyImmediate } else { Operation::SendOnly };
        let packet = Packet {
            psn,
            qkey: datagram.qkey,
            from: number,
            solicited: datagram.solicited,
            immediate: u32::from_be(datagram.wc.ex),
            ..Packet::new(Service::Ud, operation, datagram.to & 0xff_ffff)
        };
        let data = datagram.bytes.get(GRH..).unwrap_or_default();
        let mut bytes = Vec::with_capacity(packet.size() + data.len() + 8);
        packet.write_headers(data.len(), &mut bytes);
        bytes.extend_from_slice(data);
        wire.send(destination, bytes);
    }

    /// A datagram arrives. False if nobody takes it.
    pub(super) fn arrive_datagram_packet(&mut self, from: &Gid, packet: &Packet, payload: &[u8]) -> bool {
        let Some(wire) = &self.wire else { return false };
        let qp = self.qps.get(&packet.to).filter(|qp| qp.kind == qp_type::UD && qp.can_receive());
        let Some(qp) = qp.filter(|qp| qp.attrs.qkey == packet.qkey) else { return false };
        let route = Route {
            source: *from,
            destination: gid_of(wire.address),
            flow_label: 0,
            traffic_class: 0,
            hop_limit: HOPS,
        };
        let has_imm = packet.operation == Operation::SendOnlyImmediate;
        let flags = if has_imm { WcFlags::GRH | WcFlags::WITH_IMM } else { WcFlags::GRH };
        let wc = Wc {
            ex: packet.immediate.to_be(),
            src_qp: packet.from,
            wc_flags: flags.bits(),
            port_num: qp.port,
            ..Wc::new_zeroed()
        };
        let bytes = [&header(&route, on_wire(payload.len(), has_imm))[..], payload].concat();
        self.land(packet.to, &bytes, wc, packet.solicited);
        true
    }
}
