//! Changes of a queue pair's state.

use std::time::Duration;

use uverbs::raw::roce::Service;
use vpci::bytes::Bytes as _;
use vpci::transport::frame::Route;
use vpci::transport::{Connection, Settings};

use super::error::Ends;
use super::qp::{Kind, Qp, state};
use crate::command::Status;
use crate::device::Device;

/// Bits of the attributes that a change has (`enum ib_qp_attr_mask`).
mod mask {
    pub(super) const STATE: u64 = 1 << 0;
    pub(super) const ACCESS: u64 = 1 << 3;
    pub(super) const PORT: u64 = 1 << 5;
    pub(super) const QKEY: u64 = 1 << 6;
    pub(super) const ADDRESS: u64 = 1 << 7;
    pub(super) const MTU: u64 = 1 << 8;
    pub(super) const TIMEOUT: u64 = 1 << 9;
    pub(super) const RETRIES: u64 = 1 << 10;
    pub(super) const UNREADY: u64 = 1 << 11;
    pub(super) const RQ_PSN: u64 = 1 << 12;
    pub(super) const READS: u64 = 1 << 13;
    pub(super) const UNREADY_TIMER: u64 = 1 << 15;
    pub(super) const SQ_PSN: u64 = 1 << 16;
    pub(super) const PEER_READS: u64 = 1 << 17;
    pub(super) const DESTINATION: u64 = 1 << 20;
}

/// The attributes of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    pub(super) access: u32,
    pub(super) qkey: u32,
    /// Number of bytes of a full packet.
    pub(super) mtu: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) destination: u32,
    timeout: u8,
    retries: u8,
    unready: u8,
    reads: u8,
}

/// A change (`struct mana_rnic_set_qp_state_req`).
#[derive(Clone, Debug)]
pub(crate) struct Change {
    mask: u64,
    state: u32,
    /// The number of the size of packets.
    mtu: u32,
    attributes: Attributes,
    route: Route,
}

impl Change {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        fn reversed<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
            let mut array = bytes.array::<N>(at);
            array.reverse();
            array
        }
        let mtu = bytes.u32(68);
        Self {
            mask: bytes.u64(56),
            state: bytes.u32(64),
            mtu,
            attributes: Attributes {
                access: bytes.u32(172),
                qkey: bytes.u32(168),
                mtu: 128_u32.checked_shl(mtu).unwrap_or(0),
                rq_psn: bytes.u32(72) & 0xff_ffff,
                sq_psn: bytes.u32(76) & 0xff_ffff,
                destination: bytes.u32(80) & 0xff_ffff,
                timeout: bytes.u8(176),
                retries: bytes.u32(88).min(7) as u8,
                unready: bytes.u32(92).min(7) as u8,
                reads: bytes.u8(177),
            },
            route: Route {
                sgid: reversed(bytes, 104),
                dgid: reversed(bytes, 120),
                smac: reversed(bytes, 136),
                dmac: reversed(bytes, 142),
                hop_limit: bytes.u8(150),
                traffic_class: bytes.u8(151) << 2,
                udp_source: bytes.u16(152),
                flow_label: bytes.u32(156) & 0xf_ffff,
            },
        }
    }

    fn has(&self, bits: u64) -> bool {
        self.mask & bits == bits
    }

    /// Whether a queue pair in state `from` may have it, and it has what the new state needs.
    fn is_allowed(&self, qp: &Qp) -> bool {
        use mask::*;
        let is_connected = qp.kind == Kind::Connected;
        let values = self.has(MTU) && !(1..=5).contains(&self.mtu);
        let needed = match (qp.state, self.state) {
            (_, state::RESET | state::ERROR) => 0,
            (state::RESET, state::INIT) if is_connected => PORT | ACCESS,
            // The kernel's own queue pair names no port.
            (state::RESET, state::INIT) => QKEY,
            (state::INIT, state::RTR) if is_connected => {
                ADDRESS | MTU | RQ_PSN | PEER_READS | UNREADY_TIMER | DESTINATION
            }
            (state::RTR, state::RTS) if is_connected => SQ_PSN | TIMEOUT | RETRIES | UNREADY | READS,
            (state::RTR, state::RTS) => SQ_PSN,
            (state::INIT, state::INIT | state::RTR) | (state::RTS, state::RTS) => 0,
            _ => return false,
        };
        !values && self.has(STATE | needed)
    }
}

impl Attributes {
    fn take(&mut self, change: &Change) {
        let new = &change.attributes;
        let mut take = |bit, set: fn(&mut Self, &Self)| {
            if change.has(bit) {
                set(self, new);
            }
        };
        take(mask::ACCESS, |to, from| to.access = from.access);
        take(mask::QKEY, |to, from| to.qkey = from.qkey);
        take(mask::MTU, |to, from| to.mtu = from.mtu);
        take(mask::RQ_PSN, |to, from| to.rq_psn = from.rq_psn);
        take(mask::SQ_PSN, |to, from| to.sq_psn = from.sq_psn);
        take(mask::DESTINATION, |to, from| to.destination = from.destination);
        take(mask::TIMEOUT, |to, from| to.timeout = from.timeout);
        take(mask::RETRIES, |to, from| to.retries = from.retries);
        take(mask::UNREADY, |to, from| to.unready = from.unready);
        take(mask::READS, |to, from| to.reads = from.reads);
    }

    fn settings(&self) -> Settings {
        // In units of 4.096 microseconds; 0 is for ever.
        let timeout = Duration::from_nanos(4096).checked_mul(1 << (self.timeout & 0x1f));
        Settings {
            service: Service::Rc,
            to: self.destination,
            mtu: self.mtu,
            timeout: timeout.filter(|_| self.timeout != 0),
            retries: self.retries,
            unready: self.unready,
            reads: self.reads.into(),
            window: 1 << 18,
        }
    }
}

impl Device {
    /// Changes a queue pair.
    pub(crate) fn change_qp(&mut self, base: u32, change: &Change) -> Result<(), Status> {
        let mut result = Err(Status::INVALID);
        self.with_qp(base, |device, qp| {
            if change.is_allowed(qp) {
                device.change(qp, change);
                result = Ok(());
            }
        });
        self.carry();
        result
    }

    fn change(&mut self, qp: &mut Qp, change: &Change) {
        qp.attributes.take(change);
        if change.has(mask::ADDRESS) {
            qp.route = change.route;
        }
        let attributes = qp.attributes;
        match (qp.state, change.state) {
            (_, state::RESET) => {
                qp.connection = None;
                qp.armed = None;
                [&mut qp.requests, &mut qp.reads, &mut qp.receives]
                    .into_iter()
                    .for_each(|queue| queue.reset());
                qp.attributes = Attributes::default();
            }
            (state::ERROR, state::ERROR) => {}
            (_, state::ERROR) => return self.end_qp(qp, Ends::default()),
            (state::INIT, state::RTR) if qp.kind == Kind::Connected => {
                let connection = Connection::new(attributes.settings(), 0, attributes.rq_psn);
                qp.connection = Some(connection);
            }
            (state::RTR, state::RTS) => {
                qp.acked = attributes.sq_psn.wrapping_sub(1) & 0xff_ffff;
                if let Some(connection) = &mut qp.connection {
                    *connection.settings() = attributes.settings();
                    connection.begin_sending(attributes.sq_psn);
                }
            }
            _ => {}
        }
        qp.state = change.state;
        self.advance(qp);
    }
}
