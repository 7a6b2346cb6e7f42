//! Look-ups of queue pairs for datagrams.
//!
//! Source: `cma_resolve_ib_udp`, `cma_ib_req_handler`, `cma_send_sidr_rep`, `cma_sidr_rep_handler`, `cma_set_qkey`, cma.c;
//! `cm_sidr_req_handler`, `cm_send_sidr_rep_locked`, `cm_destroy_id`, cm.c; Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::cm::{ADDR_ERROR, ConnParam, ESTABLISHED, UNREACHABLE, UdParam};
use uverbs_abi::write::QpAttr;
use zerocopy::FromZeros;

use super::setup::data;
use super::state::{Phase, State};
use super::wire::{Message, nothing};
use crate::kernel::manager::Data;

/// The queue key of datagrams (`RDMA_UDP_QKEY`, rdma_cm.h).
const QKEY: u32 = 0x0123_4567;

/// The statuses of an answer (`ib_cm_sidr_status`, ib_cm.h).
const UNSUPPORTED: i32 = 1;
const REFUSED: i32 = 2;

/// The parameters of an event about datagrams, whose data has this length, padded with zeros.
fn with_data(param: UdParam, data: &[u8], room: u8) -> UdParam {
    let mut param = UdParam { private_data_len: room, ..param };
    param.private_data.iter_mut().zip(data).for_each(|(place, byte)| *place = *byte);
    param
}

impl State {
    /// `cma_set_default_qkey`.
    pub(super) fn default_qkey(&mut self, number: u32) -> u32 {
        if let Some(id) = self.identifiers.get_mut(&number) {
            id.qkey = QKEY;
        }
        QKEY
    }

    /// `cma_set_qkey`.
    fn set_qkey(&mut self, number: u32, qkey: u32) -> Result<(), Errno> {
        let id = self.identifiers.get_mut(&number).ok_or(Errno::ENOENT)?;
        if qkey == 0 || (id.qkey != 0 && id.qkey != qkey) {
            return Err(Errno::EINVAL);
        }
        id.qkey = qkey;
        Ok(())
    }

    /// `cma_ib_init_qp_attr`: the same attributes in every state.
    pub(super) fn datagram_attributes(&mut self, number: u32, state: u32) -> Result<QpAttr, Errno> {
        let qkey = self.default_qkey(number);
        Ok(QpAttr { qp_attr_mask: 0x71, qp_state: state, port_num: 1, qkey, ..QpAttr::new_zeroed() })
    }

    /// A client's look-up.
    pub(super) fn look_up(&mut self, number: u32, param: &ConnParam) -> Result<(), Errno> {
        if param.private_data_len > Data::LookUp.room(false) {
            return Err(Errno::EINVAL);
        }
        self.set_phase(number, Phase::Asked);
        self.send(Message::LookUp { from: number, data: data(param) });
        Ok(())
    }

    /// A look-up arrives.
    pub(super) fn arrives(&mut self, from: u32, data: &[u8]) {
        let Some(client) = self.identifiers.get(&from).filter(|client| client.phase == Phase::Asked) else {
            return;
        };
        let space = client.space;
        let (Some(own), Some(to)) = (client.own, client.destination) else { return };
        let refusal = |status| Message::Answer { to: from, status, qp: (0, 0), data: Box::default() };
        let (Some(listener), Some(device)) = (self.listener(space, &to), self.at(&to.ip())) else {
            return self.deliver(refusal(UNSUPPORTED));
        };
        let Some(new) = self.adopt(listener, device, (to, own)) else {
            // Unlike a request for a connection, it is not left to be repeated.
            return self.deliver(refusal(REFUSED));
        };
        for (one, other) in [(new, from), (from, new)] {
            if let Some(one) = self.identifiers.get_mut(&one) {
                one.peer = Some(other);
            }
        }
        self.tell_listener(listener, new, with_data(nothing(), data, Data::LookUp.room(false)));
    }

    /// `rdma_accept` of a look-up.
    pub(super) fn answer_look_up(&mut self, number: u32, uid: u64, param: &ConnParam) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        if id.phase != Phase::Incoming {
            return Err(Errno::EINVAL);
        }
        let (peer, none) = (id.peer, ConnParam::default());
        let param = if param.valid == 0 { &none } else { param };
        let qkey = match param.qkey {
            0 => Ok(self.default_qkey(number)),
            qkey => self.set_qkey(number, qkey).map(|()| qkey),
        };
        let fits = param.private_data_len <= Data::Answer.room(false);
        let Some(qkey) = qkey.ok().filter(|_| fits) else {
            // What could not be accepted is refused.
            let _ = self.refuse_look_up(number, Box::default());
            return Err(Errno::EINVAL);
        };
        if let Some(id) = self.identifiers.get_mut(&number) {
            (id.uid, id.phase) = (uid, Phase::Over);
        }
        if let Some(to) = peer {
            let qp = (param.qp_num & 0xff_ffff, qkey);
            self.send(Message::Answer { to, status: 0, qp, data: data(param) });
        }
        Ok(())
    }

    /// `rdma_reject` of a look-up.
    pub(super) fn refuse_look_up(&mut self, number: u32, data: Box<[u8]>) -> Result<(), Errno> {
        let id = self.identifiers.get(&number).ok_or(Errno::ENOENT)?;
        if id.phase != Phase::Incoming || data.len() > usize::from(Data::Answer.room(false)) {
            return Err(Errno::EINVAL);
        }
        let peer = id.peer;
        self.set_phase(number, Phase::Over);
        if let Some(to) = peer {
            self.send(Message::Answer { to, status: REFUSED, qp: (0, 0), data });
        }
        Ok(())
    }

    /// The answer arrives at the client.
    pub(super) fn answered(&mut self, to: u32, status: i32, (qp_num, qkey): (u32, u32), data: &[u8]) {
        if self.phase(to) != Some(Phase::Asked) {
            return;
        }
        self.over(to);
        let room = Data::Answer.room(false);
        if status != 0 {
            return self.announce(to, UNREACHABLE, status, with_data(nothing(), data, room));
        }
        if let Err(errno) = self.set_qkey(to, qkey) {
            return self.announce(to, ADDR_ERROR, -(errno as i32), with_data(nothing(), data, room));
        }
        let path = self.identifiers.get(&to).map(|id| self.path(id));
        if let Some(Ok(ah_attr)) = path {
            let param = UdParam { qp_num, qkey, ah_attr, ..nothing() };
            self.announce(to, ESTABLISHED, 0, with_data(param, data, room));
        }
    }
}
