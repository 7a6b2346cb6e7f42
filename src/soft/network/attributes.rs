//! Attributes of queue pairs: for the program, and on iWARP for the device.

use std::net::IpAddr;

use nix::errno::Errno;
use uverbs_abi::types::{AccessFlags, QpAttrMask, mtu, qp_state, qp_type};
use uverbs_abi::write::{AhAttr, GlobalRoute, ModifyQp, QpAttr, QpDest};
use zerocopy::FromZeros;

use super::super::{Hardware, attributes, gids};
use super::state::{Identifier, Link, Phase, State};

const REMOTE: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ);

/// The GID of the device's own address of this family, and its index in the table.
pub(super) fn own_gid(hardware: &Hardware, is_ipv4: bool) -> Result<(u8, [u8; 16]), Errno> {
    let index = u8::from(is_ipv4);
    Ok((index, gids::entry(&hardware.profile, index.into())?.gid))
}

/// The GID of an IP address.
pub(super) fn gid(address: &IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl State {
    /// The route from an identifier's own address to its destination: the index of the own GID, and the other side's.
    fn route(&self, id: &Identifier) -> Result<(u8, [u8; 16]), Errno> {
        let (index, to) = (id.device.ok_or(Errno::EINVAL)?, id.destination.ok_or(Errno::EINVAL)?.ip());
        let device = self.device(index).ok_or(Errno::ENXIO)?;
        let (own_index, own) = own_gid(&device.hardware, to.is_ipv4())?;
        // Messages stay within a device, all of whose addresses have one GID.
        Ok((own_index, if self.at(&to) == Some(index) { own } else { gid(&to) }))
    }

    /// The address of the other side, for packets to it.
    pub(super) fn path(&self, id: &Identifier) -> Result<AhAttr, Errno> {
        let (sgid_index, dgid) = self.route(id)?;
        let grh = GlobalRoute {
            dgid,
            sgid_index,
            hop_limit: 64,
            traffic_class: id.type_of_service,
            ..GlobalRoute::new_zeroed()
        };
        Ok(AhAttr { grh, is_global: 1, port_num: 1, ..AhAttr::new_zeroed() })
    }

    /// `rdma_init_qp_attr`.
    pub(super) fn qp_attributes(&self, id: &Identifier, state: u32) -> Result<QpAttr, Errno> {
        let index = id.device.ok_or(Errno::EINVAL)?;
        if self.is_iwarp(index) {
            return iwarp_attributes(state);
        }
        let has_begun = !matches!(id.phase, Phase::Bound | Phase::AddressResolved | Phase::RouteResolved);
        let peer = id.peer.and_then(|peer| self.identifiers.get(&peer)).map(|peer| peer.link);
        match u8::try_from(state).unwrap_or(u8::MAX) {
            _ if !has_begun => Ok(init(AccessFlags::empty())),
            qp_state::INIT => {
                let may = REMOTE | AccessFlags::REMOTE_ATOMIC;
                Ok(init(if id.link.responder_resources > 0 { may } else { AccessFlags::empty() }))
            }
            qp_state::RTR | qp_state::RTS if id.phase == Phase::Asked => Err(Errno::EINVAL),
            qp_state::RTR => self.receiving(id, peer.ok_or(Errno::EINVAL)?),
            qp_state::RTS => {
                let agreed = peer.ok_or(Errno::EINVAL)?;
                Ok(QpAttr {
                    qp_attr_mask: 0x1_2e01,
                    qp_state: state,
                    timeout: id.ack_timeout.unwrap_or(17),
                    retry_cnt: 7,
                    rnr_retry: agreed.rnr_retries,
                    sq_psn: id.link.psn,
                    max_rd_atomic: agreed.responder_resources,
                    ..QpAttr::new_zeroed()
                })
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn receiving(&self, id: &Identifier, peer: Link) -> Result<QpAttr, Errno> {
        Ok(QpAttr {
            qp_attr_mask: 0x12_9181,
            qp_state: qp_state::RTR.into(),
            path_mtu: mtu::MTU_1024.into(),
            rq_psn: peer.psn,
            dest_qp_num: peer.qp_num,
            ah_attr: self.path(id)?,
            max_dest_rd_atomic: peer.initiator_depth,
            // The longest wait, as the kernel has it.
            min_rnr_timer: 0,
            ..QpAttr::new_zeroed()
        })
    }

    /// Whether the identifier's device has a queue pair with this number.
    pub(super) fn has_queue_pair(&self, id: &Identifier, number: u32) -> bool {
        let device = id.device.and_then(|index| self.device(index));
        device
            .is_some_and(|device| device.hardware.lock().is_some_and(|state| state.qps.contains_key(&number)))
    }

    /// Makes both queue pairs of a connection over iWARP ready, as the kernel does there.
    pub(super) fn join_queue_pairs(&self, one: u32, two: u32) {
        for (id, other) in [(one, two), (two, one)] {
            let both = self.identifiers.get(&id).zip(self.identifiers.get(&other));
            let Some((id, other)) = both else { continue };
            let Some(device) = id.device.and_then(|index| self.device(index)) else { continue };
            let Ok((sgid_index, dgid)) = self.route(id) else { continue };
            let Some(mut state) = device.hardware.lock() else { continue };
            let Some(qp) = state.qps.get_mut(&id.link.qp_num) else { continue };
            let request = ModifyQp {
                dest: QpDest { dgid, sgid_index, is_global: 1, port_num: 1, ..QpDest::new_zeroed() },
                path_mtu: mtu::MTU_1024,
                dest_qp_num: other.link.qp_num,
                rq_psn: other.link.psn,
                sq_psn: id.link.psn,
                qp_access_flags: if qp.attrs.qp_access_flags == 0 {
                    REMOTE.bits()
                } else {
                    qp.attrs.qp_access_flags
                },
                max_rd_atomic: id.link.initiator_depth.max(1),
                max_dest_rd_atomic: id.link.responder_resources.max(1),
                rnr_retry: 7,
                retry_cnt: 7,
                port_num: 1,
                ..ModifyQp::new_zeroed()
            };
            attributes::apply(qp, &request, QpAttrMask::from_bits_retain(0x1f_ffff) - QpAttrMask::STATE);
            for step in [qp_state::RTR, qp_state::RTS] {
                state.set_state(id.link.qp_num, step);
            }
            state.retry_waiting();
        }
    }

    /// The connection of a queue pair over iWARP has ended.
    pub(super) fn end_queue_pair(&self, id: u32) {
        let Some(id) = self.identifiers.get(&id) else { return };
        let device = id.device.and_then(|index| self.device(index));
        if let Some(mut state) = device.as_ref().and_then(|device| device.hardware.lock()) {
            let is_connected = state.qps.get(&id.link.qp_num).is_some_and(|qp| qp.kind == qp_type::RC);
            if is_connected {
                state.set_state(id.link.qp_num, qp_state::ERR);
                state.retry_waiting();
            }
        }
    }
}

fn init(access: AccessFlags) -> QpAttr {
    QpAttr {
        qp_attr_mask: 0x39,
        qp_state: qp_state::INIT.into(),
        qp_access_flags: access.bits(),
        port_num: 1,
        ..QpAttr::new_zeroed()
    }
}

/// `iw_cm_init_qp_attr`.
fn iwarp_attributes(state: u32) -> Result<QpAttr, Errno> {
    let is_first = matches!(u8::try_from(state), Ok(qp_state::INIT | qp_state::RTR));
    if !is_first && state != u32::from(qp_state::RTS) {
        return Err(Errno::EINVAL);
    }
    let mut attributes = QpAttr { qp_state: state, ..QpAttr::new_zeroed() };
    if is_first {
        attributes.qp_attr_mask = 0x29;
        (attributes.qp_access_flags, attributes.port_num) = (REMOTE.bits(), 1);
    } else {
        attributes.qp_attr_mask = 0x20;
        attributes.port_num = 1;
    }
    Ok(attributes)
}
