//! Listeners, and the connections that they receive.

use std::net::SocketAddr;

use nix::errno::Errno;

use super::state::{Phase, State};

/// The largest backlog (`max_backlog`, the default of the sysctl in ucma.c).
const MOST: u32 = 1024;

impl State {
    /// `rdma_listen`.
    pub(super) fn listen(&mut self, number: u32, backlog: u32) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        if id.phase == Phase::Idle {
            self.bind(number, SocketAddr::from(([0, 0, 0, 0], 0)))?;
        }
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        if id.phase != Phase::Bound {
            return Err(Errno::EINVAL);
        }
        let own = id.own.ok_or(Errno::EINVAL)?;
        if id.reuses_address {
            // Of several that are bound to one address, none can listen while another exists.
            self.check_port(number, id, &own, false)?;
        }
        let id = self.identifiers.get_mut(&number).ok_or(Errno::ENOENT)?;
        id.backlog = if backlog == 0 || backlog > MOST { MOST } else { backlog };
        id.phase = Phase::Listening;
        Ok(())
    }

    /// Makes an identifier for a request, unless too many of the listener are unread. It has no number of the program's yet.
    pub(super) fn adopt(
        &mut self,
        listener: u32,
        device: u32,
        (own, peer): (SocketAddr, SocketAddr),
    ) -> Option<u32> {
        let of = self.identifiers.get_mut(&listener)?;
        if of.unread >= of.backlog {
            return None;
        }
        of.unread += 1;
        let mut new = Self::new_identifier(of.file, 0, of.space, of.qp_type);
        new.phase = Phase::Incoming;
        (new.own, new.destination) = (Some(own), Some(peer));
        (new.device, new.listener, new.is_server) = (Some(device), Some(listener), true);
        new.type_of_service = of.type_of_service;
        // The program's queue pair is ready before it answers.
        new.link.psn = self.new_psn();
        Some(self.insert(new))
    }
}
