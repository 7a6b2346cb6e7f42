//! From an address to a connection, and its end.

use std::net::SocketAddr;

use nix::errno::Errno;
use uverbs_abi::cm::{
    ADDR_ERROR, ADDR_RESOLVED, ConnParam, DISCONNECTED, ESTABLISHED, REJECTED, ROUTE_RESOLVED, UdParam,
};

use uverbs_abi::types::qp_type;

use super::ports::is_any;
use super::state::{Link, Phase, State};
use super::wire::{BY_THE_PROGRAM, Message};
use crate::kernel::manager::Data;

/// A client has left while its request waited (`IB_CM_REJ_TIMEOUT`).
const GIVEN_UP: i32 = 4;

pub(super) fn data(param: &ConnParam) -> Box<[u8]> {
    param.private_data[..usize::from(param.private_data_len)].into()
}

const RESET: i32 = -(Errno::ECONNRESET as i32);

impl State {
    /// `rdma_resolve_addr`.
    pub(super) fn resolve_address(
        &mut self,
        number: u32,
        source: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        if id.phase == Phase::Idle {
            if source.is_some_and(|source| source.is_ipv4() != to.is_ipv4()) {
                return Err(Errno::EINVAL);
            }
            let any = SocketAddr::new(super::ports::any_like(&to.ip()), 0);
            self.bind(number, source.unwrap_or(any))?;
        }
        let id = self.identifiers.get_mut(&number).ok_or(Errno::ENOENT)?;
        if id.phase != Phase::Bound {
            return Err(Errno::EINVAL);
        }
        let own = id.own.ok_or(Errno::EINVAL)?;
        if own.is_ipv4() != to.is_ipv4() {
            return Err(Errno::EINVAL);
        }
        id.destination = Some(to);
        if to.ip().is_multicast() {
            return self.resolve_group(number, own, to.ip());
        }
        if self.at(&to.ip()).is_none() {
            let timed_out = -(Errno::ETIMEDOUT as i32);
            self.announce(number, ADDR_ERROR, timed_out, UdParam::default());
            return Ok(());
        }
        // On one host, the way to an address begins there.
        let from = if is_any(&own.ip()) { to.ip() } else { own.ip() };
        self.resolved(number, SocketAddr::new(from, own.port()));
        Ok(())
    }

    /// Packets of an identifier leave through this address, and its device.
    pub(super) fn resolved(&mut self, number: u32, own: SocketAddr) {
        let device = self.at(&own.ip());
        if let Some(id) = self.identifiers.get_mut(&number) {
            (id.own, id.device) = (Some(own), device);
            id.phase = Phase::AddressResolved;
        }
        self.announce(number, ADDR_RESOLVED, 0, UdParam::default());
    }

    /// `rdma_resolve_route`.
    pub(super) fn resolve_route(&mut self, number: u32, timeout: u32) -> Result<(), Errno> {
        let id = self.identifiers.get_mut(&number).ok_or(Errno::ENOENT)?;
        if timeout == 0 || id.phase != Phase::AddressResolved {
            return Err(Errno::EINVAL);
        }
        id.phase = Phase::RouteResolved;
        self.announce(number, ROUTE_RESOLVED, 0, UdParam::default());
        Ok(())
    }

    /// The number of the first packet of a queue pair, which the kernel chooses at random.
    pub(super) fn new_psn(&mut self) -> u32 {
        self.last_psn = (self.last_psn + 0x1001) & 0xff_ffff;
        self.last_psn
    }

    fn link(psn: u32, param: &ConnParam) -> Link {
        Link {
            qp_num: param.qp_num & 0xff_ffff,
            psn,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            retries: param.retry_count,
            rnr_retries: param.rnr_retry_count,
        }
    }

    /// `rdma_connect`.
    pub(super) fn connect(&mut self, number: u32, param: &ConnParam) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        let device = id.device.ok_or(Errno::EINVAL)?;
        if id.phase != Phase::RouteResolved {
            return Err(Errno::EINVAL);
        }
        if self.is_iwarp(device) {
            return self.connect_stream(number, param);
        }
        if id.qp_type == qp_type::UD {
            return self.look_up(number, param);
        }
        if param.private_data_len > Data::Request.room(false) {
            return Err(Errno::EINVAL);
        }
        let link = Self::link(self.new_psn(), param);
        if let Some(id) = self.identifiers.get_mut(&number) {
            (id.link, id.phase) = (link, Phase::Asked);
        }
        self.send(Message::Request { from: number, data: data(param) });
        Ok(())
    }

    /// `iw_cm_connect` and `siw_connect`, which connects before it returns.
    fn connect_stream(&mut self, number: u32, param: &ConnParam) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        let (Some(own), Some(to)) = (id.own, id.destination) else { return Err(Errno::EINVAL) };
        if !self.has_queue_pair(id, param.qp_num) {
            return Err(Errno::EINVAL);
        }
        let listener = self.listener(id.space, &to).ok_or(Errno::ECONNREFUSED)?;
        let device = self.at(&to.ip()).ok_or(Errno::EHOSTUNREACH)?;
        let link = Self::link(self.new_psn(), param);
        if let Some(id) = self.identifiers.get_mut(&number) {
            (id.link, id.phase) = (link, Phase::Asked);
        }
        let fits = param.private_data_len <= Data::Request.room(true);
        let Some(new) = fits.then(|| self.adopt(listener, device, (to, own))).flatten() else {
            self.set_phase(number, Phase::Over);
            self.announce(number, REJECTED, RESET, UdParam::default());
            return Ok(());
        };
        self.meet(number, new);
        self.tell_listener(listener, new, Self::plain(link, &data(param)));
        Ok(())
    }

    fn meet(&mut self, client: u32, server: u32) {
        for (one, other) in [(client, server), (server, client)] {
            if let Some(one) = self.identifiers.get_mut(&one) {
                one.peer = Some(other);
            }
        }
    }

    /// `rdma_accept`, of a request or of a reply.
    pub(super) fn accept(&mut self, number: u32, uid: u64, param: &ConnParam) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        let is_iwarp = id.device.is_some_and(|device| self.is_iwarp(device));
        if id.qp_type == qp_type::UD && !is_iwarp {
            return self.answer_look_up(number, uid, param);
        }
        match (id.phase, id.peer) {
            (Phase::Answered, Some(peer)) if !is_iwarp => {
                self.set_phase(number, Phase::Established);
                self.send(Message::Acknowledgement { to: peer });
                Ok(())
            }
            (Phase::Incoming, peer) if param.valid != 0 => {
                self.answer(number, uid, param, peer, is_iwarp).inspect_err(|_| {
                    // What could not be accepted is rejected.
                    let _ = self.reject(number, BY_THE_PROGRAM, Box::default());
                })
            }
            // The client has left: its stream is closed.
            (Phase::Over, None) if is_iwarp && id.is_server && !id.is_removed => Err(Errno::ECONNRESET),
            _ => Err(Errno::EINVAL),
        }
    }

    fn answer(
        &mut self,
        number: u32,
        uid: u64,
        param: &ConnParam,
        peer: Option<u32>,
        is_iwarp: bool,
    ) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        let fits = param.private_data_len <= Data::Reply.room(is_iwarp);
        if !fits || is_iwarp && !self.has_queue_pair(id, param.qp_num) {
            return Err(Errno::EINVAL);
        }
        let link = Self::link(id.link.psn, param);
        if let Some(id) = self.identifiers.get_mut(&number) {
            (id.uid, id.link, id.phase) = (uid, link, Phase::Replied);
        }
        // A client that has left on InfiniBand does not answer.
        let Some(peer) = peer else { return Ok(()) };
        if is_iwarp {
            self.join_queue_pairs(peer, number);
            self.set_phase(peer, Phase::Established);
            self.set_phase(number, Phase::Established);
            self.announce(peer, ESTABLISHED, 0, Self::plain(link, &data(param)));
            self.announce(number, ESTABLISHED, 0, UdParam::default());
        } else {
            self.send(Message::Reply { from: number, to: peer, data: data(param) });
        }
        Ok(())
    }

    /// `rdma_reject`.
    pub(super) fn reject(&mut self, number: u32, reason: i32, data: Box<[u8]>) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        let is_iwarp = id.device.is_some_and(|device| self.is_iwarp(device));
        if id.qp_type == qp_type::UD && !is_iwarp {
            return self.refuse_look_up(number, data);
        }
        if !matches!(id.phase, Phase::Incoming | Phase::Replied) {
            return Err(Errno::EINVAL);
        }
        if !is_iwarp && data.len() > usize::from(Data::Rejection.room(false)) {
            return Err(Errno::EINVAL);
        }
        let peer = id.peer;
        self.set_phase(number, Phase::Over);
        let Some(peer) = peer else { return Ok(()) };
        if is_iwarp {
            self.set_phase(peer, Phase::Over);
            let refused = -(Errno::ECONNRESET as i32);
            self.announce(peer, REJECTED, refused, Self::plain(Link::default(), &data));
        } else {
            self.send(Message::Rejection { to: peer, reason, data });
        }
        Ok(())
    }

    /// `rdma_disconnect`.
    pub(super) fn disconnect(&mut self, number: u32) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        let is_iwarp = self.is_iwarp(id.device.ok_or(Errno::EINVAL)?);
        let peer = id.peer;
        match (id.phase, peer) {
            (Phase::Established, Some(peer)) if is_iwarp => {
                for id in [number, peer] {
                    self.set_phase(id, Phase::Over);
                    self.end_queue_pair(id);
                    self.announce(id, DISCONNECTED, 0, UdParam::default());
                }
                Ok(())
            }
            (Phase::Established, Some(to)) => {
                self.set_phase(number, Phase::Leaving);
                self.send(Message::Disconnect { from: number, to });
                Ok(())
            }
            (Phase::Left, Some(to)) => {
                self.set_phase(number, Phase::Over);
                self.send(Message::Disconnected { to });
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// `rdma_destroy_id`. Returns the number of its events that were read.
    pub(super) fn destroy(&mut self, number: u32) -> Option<u32> {
        let id = self.identifiers.get(&number)?;
        let (phase, peer, file, read) = (id.phase, id.peer, id.file, id.events_reported);
        let qp_type = id.qp_type;
        let is_iwarp = id.device.is_some_and(|device| self.is_iwarp(device));
        for unread in self.forget_events(file, number) {
            self.destroy(unread);
        }
        self.memberships.retain(|_, membership| membership.of != number);
        if qp_type == qp_type::UD {
            if phase == Phase::Incoming {
                let _ = self.refuse_look_up(number, Box::default());
            }
        } else if let (true, Some(peer)) = (is_iwarp, peer) {
            self.leave_stream(number, phase, peer);
        } else if let Some(to) = peer {
            let rejection = |reason| Message::Rejection { to, reason, data: Box::default() };
            match phase {
                Phase::Asked => self.send(rejection(GIVEN_UP)),
                Phase::Answered | Phase::Incoming | Phase::Replied => self.send(rejection(BY_THE_PROGRAM)),
                Phase::Established => self.send(Message::Disconnect { from: number, to }),
                Phase::Left => self.send(Message::Disconnected { to }),
                _ => {}
            }
        }
        if let Some(peer) = peer.and_then(|peer| self.identifiers.get_mut(&peer)) {
            peer.peer = None;
        }
        self.identifiers.remove(&number);
        self.forget_messages(number);
        Some(read)
    }

    /// The other side of a stream finds it closed.
    fn leave_stream(&mut self, number: u32, phase: Phase, peer: u32) {
        match phase {
            Phase::Incoming => {
                self.set_phase(peer, Phase::Over);
                self.announce(peer, REJECTED, RESET, UdParam::default());
            }
            Phase::Asked => self.set_phase(peer, Phase::Over),
            Phase::Established => {
                for id in [number, peer] {
                    self.set_phase(id, Phase::Over);
                    self.end_queue_pair(id);
                }
                self.announce(peer, DISCONNECTED, 0, UdParam::default());
            }
            _ => {}
        }
    }
}
