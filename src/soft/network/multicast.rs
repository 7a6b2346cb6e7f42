//! Memberships in multicast groups.
//!
//! Source: `ucma_process_join` and `ucma_leave_multicast`, ucma.c; `rdma_join_multicast` and `cma_iboe_join_multicast`, cma.c; Linux 6.1.

use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use uverbs_abi::cm::{EventResp, MULTICAST_JOIN, UdParam};
use uverbs_abi::types::qp_type;
use uverbs_abi::write::{AhAttr, GlobalRoute};
use zerocopy::FromZeros;

use super::attributes::{gid, own_gid};
use super::ports::is_any;
use super::state::{Phase, State};
use super::wire::nothing;

/// The number for all queue pairs of a group.
const ALL: u32 = 0xff_ffff;

/// The membership of an identifier in a group.
#[derive(Debug)]
pub(super) struct Membership {
    /// The identifier.
    pub(super) of: u32,
    pub(super) events_reported: u32,
}

impl State {
    /// `rdma_resolve_addr` of a group: its packets leave through the own address, or the first one.
    pub(super) fn resolve_group(&mut self, number: u32, own: SocketAddr, group: IpAddr) -> Result<(), Errno> {
        let from = match is_any(&own.ip()) {
            true => self.first_like(&group).ok_or(Errno::ENETUNREACH)?,
            false => own.ip(),
        };
        self.resolved(number, SocketAddr::new(from, own.port()));
        Ok(())
    }

    /// `rdma_join_multicast`. Any address but that of nobody can be joined.
    pub(super) fn join_group(&mut self, number: u32, uid: u64, group: IpAddr) -> Result<u32, Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        let (file, device) = (id.file, id.device.ok_or(Errno::EINVAL)?);
        if !matches!(id.phase, Phase::Bound | Phase::AddressResolved) || id.qp_type != qp_type::UD {
            return Err(Errno::EINVAL);
        }
        if self.is_iwarp(device) {
            return Err(Errno::ENOSYS);
        }
        match group {
            IpAddr::V4(v4) if v4.octets()[0] == 0 => return Err(Errno::EINVAL),
            IpAddr::V6(v6) if v6.is_unspecified() => return Err(Errno::EINVAL),
            // The kernel's own ENOTSUPP.
            IpAddr::V6(_) => return Err(Errno::EOPNOTSUPP),
            IpAddr::V4(_) => {}
        }
        let qkey = match id.qkey {
            0 => self.default_qkey(number),
            qkey => qkey,
        };
        let hardware = self.device(device).ok_or(Errno::ENXIO)?.hardware;
        let (sgid_index, _) = own_gid(&hardware, true)?;
        let grh = GlobalRoute { dgid: gid(&group), sgid_index, hop_limit: 64, ..GlobalRoute::new_zeroed() };
        let ah_attr = AhAttr { grh, is_global: 1, port_num: 1, ..AhAttr::new_zeroed() };
        let taken = |number: &u32| self.memberships.contains_key(number);
        let membership = (0..).find(|number| !taken(number)).unwrap_or(u32::MAX);
        self.memberships.insert(membership, Membership { of: number, events_reported: 0 });
        let param = UdParam { qp_num: ALL, qkey, ah_attr, ..nothing() };
        let (id, event) = (membership, MULTICAST_JOIN);
        self.push(file, number, EventResp { uid, id, event, param, ..EventResp::default() });
        Ok(membership)
    }

    /// Returns the number of its events that were read.
    pub(super) fn leave_group(&mut self, file: u32, number: u32) -> Result<u32, Errno> {
        let of = self.memberships.get(&number).ok_or(Errno::ENOENT)?.of;
        let id = self.identifiers.get(&of).ok_or(Errno::ENOENT)?;
        match id {
            id if id.file != file => return Err(Errno::EINVAL),
            id if id.is_removed => return Err(Errno::ENXIO),
            _ => {}
        }
        self.forget_membership(file, number);
        Ok(self.memberships.remove(&number).map_or(0, |membership| membership.events_reported))
    }
}
