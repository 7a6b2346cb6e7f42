//! Datagrams: UD queue pairs.
//!
//! Source: `rxe_get_av`, rxe_av.c; `check_keys` and `rxe_rcv_mcast_pkt`, rxe_recv.c; `execute`, rxe_resp.c; Linux 6.1. A datagram that
//! does not arrive is lost without a report. Two points follow cards: a datagram longer than a packet is LOC_LEN_ERR, where rxe reports
//! success and drops it; and one that does not fit into its receive is LOC_LEN_ERR at the receiver, where rxe has LOC_QP_OP_ERR.

use uverbs_abi::rxe::{Av, NETWORK_TYPE_IPV4, NETWORK_TYPE_IPV6, SendWqe, SockaddrIn, SockaddrIn6, UdWr};
use uverbs_abi::types::{AccessFlags, SendFlags, WcFlags, qp_state, qp_type, wc_status, wr_opcode};
use uverbs_abi::write::Wc;
use zerocopy::{FromBytes, FromZeros};

use super::attributes;
use super::gids::{self, Gid, Route};
use super::pieces;
use super::queue_pairs::Qp;
use super::state::State;
use super::traffic::checksum;

/// The number that means all queue pairs of a multicast group.
const ALL: u32 = 0xff_ffff;
/// Room for a network header before the received data.
pub(super) const GRH: usize = 40;
/// The headers of UDP, InfiniBand (base and datagram), and the checksum after the data.
const HEADERS: usize = 8 + 12 + 8 + 4;

/// A datagram that is being transferred.
pub(super) struct Datagram {
    pub(super) to: u32,
    pub(super) qkey: u32,
    pub(super) route: Route,
    /// The fields of the completion that describe the sender.
    pub(super) wc: Wc,
    /// Header and data.
    pub(super) bytes: Vec<u8>,
    pub(super) solicited: bool,
}

impl State {
    /// Sends a datagram.
    pub(super) fn send_datagram(&mut self, number: u32) -> bool {
        let Some(qp) = self.qps.get(&number) else { return true };
        let wqe = pieces::oldest_send(&qp.sends);
        let datagram = self.datagram(number, qp, &wqe);
        let targets = datagram.as_ref().map(|datagram| self.targets(datagram)).unwrap_or_default();
        // If it moves its own queue pair to the error state, it is flushed with the others.
        let waits = targets.contains(&number) && self.profile.flushes_own_datagram();
        if !waits {
            self.take_send(number);
        }
        let mut psn = 0;
        if let Some(qp) = self.qps.get_mut(&number) {
            psn = qp.attrs.sq_psn;
            qp.attrs.sq_psn = attributes::later(qp.attrs.sq_psn, 1);
        }
        let status = datagram.as_ref().err().copied().unwrap_or(wc_status::SUCCESS);
        if let Ok(datagram) = datagram {
            self.send_datagram_packet(number, psn, &datagram);
            // Keys are checked first (`check_keys`, rxe_recv.c).
            if self.qps.get(&datagram.to).is_some_and(|qp| qp.attrs.qkey == datagram.qkey) {
                self.flush_when_asked(datagram.to, qp_type::UD);
            }
            for target in targets {
                let port = self.qps.get(&target).map_or(0, |qp| qp.port);
                let wc = Wc { port_num: port, ..datagram.wc };
                self.land(target, &datagram.bytes, wc, datagram.solicited);
            }
        }
        if waits {
            if self.qps.get(&number).is_some_and(|qp| qp.state == qp_state::ERR) {
                return true;
            }
            self.take_send(number);
        }
        self.sent(number, &wqe, self.profile.own_status(status));
        true
    }

    /// Reads a request and collects its data. The error is the status with which it ends.
    fn datagram(&self, number: u32, qp: &Qp, wqe: &SendWqe) -> Result<Datagram, u32> {
        let has_imm = wqe.wr.opcode == wr_opcode::SEND_WITH_IMM;
        if !has_imm && wqe.wr.opcode != wr_opcode::SEND {
            return Err(wc_status::LOC_QP_OP_ERR);
        }
        let inline = pieces::inline(qp, wqe)?;
        let local = self.local(qp, wqe, &inline, AccessFlags::empty())?;
        let len = wqe.dma.length as usize;
        // rxe reports success, and drops it (`rxe_requester`, rxe_req.c).
        if len > self.profile.port_mtu as usize {
            return Err(if self.profile.is_rxe() { wc_status::SUCCESS } else { wc_status::LOC_LEN_ERR });
        }
        let ud =
            UdWr::read_from_prefix(&wqe.wr.wr).map(|(ud, _)| ud).map_err(|_| wc_status::LOC_QP_OP_ERR)?;
        let route = self.route(qp, &ud).ok_or(wc_status::LOC_QP_OP_ERR)?;
        let mut bytes = header(&route, on_wire(len, has_imm)).to_vec();
        if !pieces::append(&local, &mut bytes) {
            return Err(wc_status::LOC_PROT_ERR);
        }
        let flags = if has_imm { WcFlags::GRH | WcFlags::WITH_IMM } else { WcFlags::GRH };
        let ex = if has_imm { wqe.wr.ex } else { 0 };
        let is_own = ud.remote_qkey >> 31 == 1 && self.profile.has_own_qkey();
        Ok(Datagram {
            to: ud.remote_qpn,
            qkey: if is_own { qp.attrs.qkey } else { ud.remote_qkey },
            route,
            wc: Wc { ex, src_qp: number, wc_flags: flags.bits(), ..Wc::new_zeroed() },
            bytes,
            solicited: SendFlags::from_bits_retain(wqe.wr.send_flags).contains(SendFlags::SOLICITED),
        })
    }

    /// The route of a datagram: that of an address handle of the same protection domain, or the one in the request.
    fn route(&self, qp: &Qp, ud: &UdWr) -> Option<Route> {
        if ud.ah_num != 0 {
            return self.ahs.get(&ud.ah_num).filter(|ah| ah.pd == qp.pd).map(|ah| ah.route);
        }
        let av = &ud.av;
        Some(Route {
            source: address(av, &av.sgid_addr)?,
            destination: address(av, &av.dgid_addr)?,
            flow_label: av.grh.flow_label,
            traffic_class: av.grh.traffic_class,
            hop_limit: av.grh.hop_limit,
        })
    }

    /// The queue pairs that receive a datagram.
    fn targets(&self, datagram: &Datagram) -> Vec<u32> {
        let takes = |qp: &Qp| qp.kind == qp_type::UD && qp.can_receive() && qp.attrs.qkey == datagram.qkey;
        let destination = &datagram.route.destination;
        let is_group = gids::is_multicast(destination);
        if datagram.to == ALL && is_group {
            let in_group = |qp: &Qp| takes(qp) && qp.groups.iter().any(|(gid, _)| gid == destination);
            return self.qps.iter().filter(|(_, qp)| in_group(qp)).map(|(number, _)| *number).collect();
        }
        let arrives =
            gids::is_own(&self.profile, destination) && self.qps.get(&datagram.to).is_some_and(takes);
        arrives.then_some(datagram.to).into_iter().collect()
    }
}

/// One of the two addresses of a request, as a GID.
fn address(av: &Av, bytes: &[u8]) -> Option<Gid> {
    match av.network_type {
        NETWORK_TYPE_IPV4 => {
            let (address, _) = SockaddrIn::read_from_prefix(bytes).ok()?;
            let [a, b, c, d] = address.sin_addr;
            Some([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
        }
        NETWORK_TYPE_IPV6 => Some(SockaddrIn6::read_from_prefix(bytes).ok()?.0.sin6_addr),
        _ => None,
    }
}

/// Number of bytes after the header of the network layer, for data of this length.
pub(super) fn on_wire(len: usize, has_imm: bool) -> u16 {
    // Data is not longer than a packet.
    (HEADERS + len.next_multiple_of(4) + if has_imm { 4 } else { 0 }) as u16
}

/// The header that the receiver gets: IPv6's, or zeros followed by IPv4's.
pub(super) fn header(route: &Route, payload: u16) -> [u8; GRH] {
    let mut bytes = [0; GRH];
    if gids::is_ipv4(&route.source) {
        let total = (20 + payload).to_be_bytes();
        let head = [0x45, route.traffic_class, total[0], total[1], 0, 0, 0x40, 0, route.hop_limit, 17];
        bytes[20..30].copy_from_slice(&head);
        bytes[32..36].copy_from_slice(&route.source[12..]);
        bytes[36..].copy_from_slice(&route.destination[12..]);
        let checksum = checksum(&bytes[20..]).to_be_bytes();
        bytes[30..32].copy_from_slice(&checksum);
        return bytes;
    }
    let first = 6 << 28 | u32::from(route.traffic_class) << 20 | (route.flow_label & 0xf_ffff);
    bytes[..4].copy_from_slice(&first.to_be_bytes());
    bytes[4..6].copy_from_slice(&payload.to_be_bytes());
    bytes[6] = 17;
    bytes[7] = route.hop_limit;
    bytes[8..24].copy_from_slice(&route.source);
    bytes[24..].copy_from_slice(&route.destination);
    bytes
}
