//! Messages between the two sides of a connection: kept, lost or delivered.

use std::collections::VecDeque;
use std::net::IpAddr;

use uverbs_abi::cm::{
    CONNECT_REQUEST, CONNECT_RESPONSE, ConnParam, DISCONNECTED, ESTABLISHED, EventResp, REJECTED,
    TIMEWAIT_EXIT, UNREACHABLE, UdParam,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use nix::errno::Errno;

use super::state::{Identifier, Link, Phase, State};
use crate::kernel::manager::Data;

/// The reasons of a rejection (`ib_cm_rej_reason`, ib_cm.h).
const NOBODY_LISTENS: i32 = 8;
pub(super) const BY_THE_PROGRAM: i32 = 28;

/// A message, to the identifier that it names; a request has none yet.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Request {
        from: u32,
        data: Box<[u8]>,
    },
    Reply {
        from: u32,
        to: u32,
        data: Box<[u8]>,
    },
    Acknowledgement {
        to: u32,
    },
    Rejection {
        to: u32,
        reason: i32,
        data: Box<[u8]>,
    },
    Disconnect {
        from: u32,
        to: u32,
    },
    Disconnected {
        to: u32,
    },
    LookUp {
        from: u32,
        data: Box<[u8]>,
    },
    /// The queue pair and its key if the status is zero.
    Answer {
        to: u32,
        status: i32,
        qp: (u32, u32),
        data: Box<[u8]>,
    },
}

#[derive(Debug, Default)]
pub(super) struct Wire {
    is_held: bool,
    held: VecDeque<Message>,
    to_lose: usize,
    /// Requests for which a listener had no room.
    repeated: VecDeque<Message>,
}

/// The parameters of an event of a connection, whose data has at least this length, padded with zeros.
fn parameters(link: Link, data: &[u8], padded: u8) -> UdParam {
    let mut param = ConnParam {
        qp_num: link.qp_num,
        // The depths are those of the receiver of the event.
        responder_resources: link.initiator_depth,
        initiator_depth: link.responder_resources,
        retry_count: link.retries,
        rnr_retry_count: link.rnr_retries,
        ..ConnParam::default()
    };
    let len = data.len().max(padded.into()).min(param.private_data.len());
    param.private_data.iter_mut().zip(data).for_each(|(place, byte)| *place = *byte);
    param.private_data_len = len.min(255) as u8;
    let bytes = param.as_bytes();
    let mut whole = UdParam::new_zeroed();
    whole.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    whole
}

/// The parameters of an event that has none.
pub(super) fn nothing() -> UdParam {
    UdParam::read_from_bytes(&[0; size_of::<UdParam>()]).unwrap_or_default()
}

impl State {
    pub(super) fn hold(&mut self) {
        self.wire.is_held = true;
    }

    pub(super) fn release(&mut self) {
        self.wire.is_held = false;
        while let Some(message) = self.wire.held.pop_front() {
            self.deliver(message);
        }
    }

    pub(super) fn lose(&mut self, count: usize) {
        self.wire.to_lose = count;
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: Message) {
        if self.wire.to_lose > 0 {
            self.wire.to_lose -= 1;
            return self.no_answer(&message);
        }
        if self.wire.is_held {
            return self.wire.held.push_back(message);
        }
        self.deliver(message);
    }

    /// The sender repeats a lost message until it gives up.
    fn no_answer(&mut self, message: &Message) {
        let timed_out = -(Errno::ETIMEDOUT as i32);
        match message {
            Message::Request { from, .. } | Message::LookUp { from, .. } => {
                self.over(*from);
                self.announce(*from, UNREACHABLE, timed_out, nothing());
            }
            Message::Reply { from, to, .. } => {
                for id in [from, to] {
                    self.over(*id);
                    self.announce(*id, UNREACHABLE, timed_out, nothing());
                }
            }
            Message::Disconnect { from, .. } => {
                self.over(*from);
                self.announce(*from, DISCONNECTED, timed_out, nothing());
                self.announce(*from, TIMEWAIT_EXIT, 0, nothing());
            }
            // Nobody waits for an answer to these. The other side gives up waiting for them.
            Message::Acknowledgement { to } => {
                self.over(*to);
                self.announce(*to, UNREACHABLE, timed_out, nothing());
            }
            Message::Rejection { to, .. } | Message::Answer { to, .. } => {
                self.over(*to);
                self.announce(*to, UNREACHABLE, timed_out, nothing());
            }
            Message::Disconnected { to } => {
                self.over(*to);
                self.announce(*to, DISCONNECTED, timed_out, nothing());
            }
        }
    }

    pub(super) fn phase(&self, id: u32) -> Option<Phase> {
        self.identifiers.get(&id).map(|id| id.phase)
    }

    pub(super) fn set_phase(&mut self, id: u32, phase: Phase) {
        if let Some(id) = self.identifiers.get_mut(&id) {
            id.phase = phase;
        }
    }

    pub(super) fn over(&mut self, id: u32) {
        self.set_phase(id, Phase::Over);
    }

    pub(super) fn deliver(&mut self, message: Message) {
        match message {
            Message::Request { from, data } => self.request(from, data),
            Message::LookUp { from, data } => self.arrives(from, &data),
            Message::Answer { to, status, qp, data } => self.answered(to, status, qp, &data),
            Message::Reply { from, to, data } => {
                if self.phase(to) == Some(Phase::Asked) {
                    self.set_phase(to, Phase::Answered);
                    let link = self.identifiers.get(&from).map(|id| id.link).unwrap_or_default();
                    self.announce(to, CONNECT_RESPONSE, 0, parameters(link, &data, Data::Reply.room(false)));
                }
            }
            Message::Acknowledgement { to } => {
                if self.phase(to) == Some(Phase::Replied) {
                    self.establish(to);
                }
            }
            Message::Rejection { to, reason, data } => {
                let is_open = matches!(
                    self.phase(to),
                    Some(Phase::Asked | Phase::Answered | Phase::Incoming | Phase::Replied)
                );
                if is_open {
                    self.over(to);
                    let padded = if reason == BY_THE_PROGRAM { Data::Rejection.room(false) } else { 0 };
                    self.announce(to, REJECTED, reason, parameters(Link::default(), &data, padded));
                }
            }
            Message::Disconnect { from, to } => match self.phase(to) {
                Some(Phase::Established | Phase::Replied | Phase::Answered) => {
                    self.set_phase(to, Phase::Left);
                    self.announce(to, DISCONNECTED, 0, nothing());
                }
                // Both sides have disconnected, or the other one is gone, whose kernel answers.
                _ => {
                    self.deliver(Message::Disconnected { to: from });
                    self.deliver(Message::Disconnected { to });
                }
            },
            Message::Disconnected { to } => {
                if self.phase(to) == Some(Phase::Leaving) {
                    self.over(to);
                    self.announce(to, DISCONNECTED, 0, nothing());
                    self.announce(to, TIMEWAIT_EXIT, 0, nothing());
                }
            }
        }
    }

    /// A server knows that the client has its reply.
    pub(super) fn establish(&mut self, id: u32) {
        self.set_phase(id, Phase::Established);
        self.announce(id, ESTABLISHED, 0, nothing());
    }

    /// A neighbour has another hardware address: what was resolved to the old one is unreachable, in whatever state it is.
    pub(super) fn replace_neighbour(&mut self, address: &IpAddr) {
        let is_lost = |id: &Identifier| {
            let is_to = id.destination.is_some_and(|to| to.ip() == *address);
            is_to && !id.device.is_some_and(|device| self.is_iwarp(device)) && id.phase != Phase::Bound
        };
        let lost: Vec<_> =
            self.identifiers.iter().filter(|(_, id)| is_lost(id)).map(|(number, _)| *number).collect();
        for number in lost {
            self.announce(number, UNREACHABLE, -(Errno::ETIMEDOUT as i32), nothing());
        }
    }

    /// A request arrives at a listener: `cma_ib_req_handler`.
    fn request(&mut self, from: u32, data: Box<[u8]>) {
        let Some(client) = self.identifiers.get(&from).filter(|client| client.phase == Phase::Asked) else {
            return;
        };
        let (link, space) = (client.link, client.space);
        let (Some(own), Some(to)) = (client.own, client.destination) else { return };
        let listener = self.listener(space, &to);
        let device = self.at(&to.ip());
        let (Some(listener), Some(device)) = (listener, device) else {
            let data = Box::default();
            return self.deliver(Message::Rejection { to: from, reason: NOBODY_LISTENS, data });
        };
        let Some(new) = self.adopt(listener, device, (to, own)) else {
            // It is dropped, and repeated by the client's kernel.
            return self.wire.repeated.push_back(Message::Request { from, data });
        };
        if let Some(server) = self.identifiers.get_mut(&new) {
            server.peer = Some(from);
        }
        if let Some(client) = self.identifiers.get_mut(&from) {
            client.peer = Some(new);
        }
        self.tell_listener(listener, new, parameters(link, &data, Data::Request.room(false)));
    }

    /// Announces a new connection to the listener's program.
    pub(super) fn tell_listener(&mut self, listener: u32, new: u32, param: UdParam) {
        let Some(of) = self.identifiers.get(&listener) else { return };
        let (uid, file) = (of.uid, of.file);
        let event = EventResp { uid, id: new, event: CONNECT_REQUEST, param, ..EventResp::default() };
        self.push(file, listener, event);
    }

    /// The parameters of an event of iWARP, whose data has its own length.
    pub(super) fn plain(link: Link, data: &[u8]) -> UdParam {
        parameters(link, data, 0)
    }

    /// Removes the messages to an identifier that was destroyed, and its request.
    pub(super) fn forget_messages(&mut self, id: u32) {
        let is_other = |message: &Message| match message {
            Message::Request { from, .. } | Message::LookUp { from, .. } => *from != id,
            // The kernel of a server that has answered has forgotten the look-up.
            Message::Answer { to, .. } => *to != id,
            Message::Reply { from, to, .. } => *from != id && *to != id,
            Message::Acknowledgement { to }
            | Message::Rejection { to, .. }
            | Message::Disconnect { to, .. }
            | Message::Disconnected { to } => *to != id,
        };
        self.wire.held.retain(is_other);
        self.wire.repeated.retain(is_other);
    }

    /// Delivers requests again that had found no room.
    pub(super) fn retry_requests(&mut self) {
        for message in std::mem::take(&mut self.wire.repeated) {
            self.deliver(message);
        }
    }
}
