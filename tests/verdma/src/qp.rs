//! Queue pairs: their state, and the commands about them.

use std::time::Duration;

use uverbs::raw::roce::Service;
use vpci::transport::frame::Route;
use vpci::transport::{Connection, Settings};

use crate::bytes::Bytes as _;
use crate::command::Refusal;
use crate::device::Device;
use crate::memory::{Pages, Ring};

/// States, `enum erdma_qps_rocev2`.
pub(crate) mod state {
    pub(crate) const RESET: u8 = 0;
    pub(crate) const INIT: u8 = 1;
    pub(crate) const READY_TO_RECEIVE: u8 = 2;
    pub(crate) const READY_TO_SEND: u8 = 3;
    pub(crate) const ERROR: u8 = 6;
}

/// Attributes that a command changes, `enum erdma_qpa_mask_rocev2`.
mod changes {
    pub(super) const STATE: u32 = 1 << 0;
    pub(super) const QKEY: u32 = 1 << 1;
    pub(super) const PATH: u32 = 1 << 2;
    pub(super) const SEND_NUMBER: u32 = 1 << 3;
    pub(super) const RECEIVE_NUMBER: u32 = 1 << 4;
    pub(super) const DESTINATION: u32 = 1 << 5;
}

/// The driver does not tell the device how long to wait for responses, and how often to try again.
const TIMEOUT: Duration = Duration::from_millis(134);
const RETRIES: u8 = 7;
const FOR_EVER: u8 = 7;
const MOST_READS: u32 = 16;

/// The way to a peer, `struct erdma_av_cfg`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    sgid_index: u16,
    route: Route,
}

impl Path {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let route = Route {
            flow_label: bytes.u32(0) & 0xf_ffff,
            traffic_class: bytes.u8(4),
            hop_limit: bytes.u8(5),
            udp_source: bytes.u16(8),
            dmac: bytes.array(12),
            dgid: bytes.array(20),
            ..Route::default()
        };
        Self { sgid_index: bytes.u16(10), route }
    }

    /// With the addresses of the device. `None` if it has not this one.
    pub(crate) fn route(&self, device: &Device) -> Option<Route> {
        let sgid = *device.gids.get(&self.sgid_index)?;
        Some(Route { smac: device.mac, sgid, ..self.route })
    }

    pub(crate) fn peer(&self) -> [u8; 16] {
        self.route.dgid
    }
}

/// A queue of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) ring: Ring,
    /// The number of the next slot to be filled, as the last doorbell said, and of the next to be read.
    pub(crate) produced: u16,
    pub(crate) consumed: u16,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) pd: u32,
    pub(crate) is_datagram: bool,
    pub(crate) sends: Work,
    pub(crate) receives: Work,
    /// The completion queues of sends and receives.
    pub(crate) cqs: [u32; 2],
    /// The pages of doorbells of sends and receives of its process, if it has some.
    pub(crate) pages: Option<[u16; 2]>,
    pub(crate) state: u8,
    pub(crate) qkey: u32,
    pub(crate) path: Path,
    to: u32,
    /// The first numbers of packets that are sent and expected.
    first: [u32; 2],
    pub(crate) connection: Option<Connection>,
}

impl Qp {
    fn new(command: &[u8], device: &Device) -> Result<Self, Refusal> {
        let (cfg0, cfg1) = (command.u32(8), command.u32(12));
        // Log of the depth; page size and completion queue; place of the pages; offset, number, and whether they are in a table; the others.
        let work = |log: u32, size: usize, base: usize, table: usize, more: usize| {
            let (size, table) = (command.u32(size), command.u32(table));
            let (count, first) = (table >> 1 & 0x7ff, command.u64(base));
            let list = match table & 1 {
                1 => Pages::table(&device.memory, first, count.into()).ok_or(Refusal::Invalid)?,
                _ if (1..=4).contains(&count) => {
                    let more = (0..count as usize - 1).map(|at| command.u64(more + at * 8));
                    std::iter::once(first).chain(more).collect()
                }
                _ => return Err(Refusal::Invalid),
            };
            let pages = Pages::new((size >> 28) as u8 + 12, (table & !0xfff).into(), list);
            let ring = Ring::new(pages, log).filter(|_| log <= 15).ok_or(Refusal::Invalid)?;
            let cq = size & 0xff_ffff;
            if !device.cqs.contains_key(&cq) {
                return Err(Refusal::Unknown);
            }
            Ok((Work { ring, ..Work::default() }, cq, size >> 25 & 1 == 1))
        };
        let (sends, send_cq, has_page) = work(cfg0 >> 20, 16, 24, 40, 64)?;
        let (receives, receive_cq, _) = work(cfg1 >> 20, 20, 32, 44, 88)?;
        let pages = command.u32(112);
        let pages = [(pages >> 16) as u16, pages as u16];
        if has_page && pages.iter().any(|page| !device.pages.contains_key(page)) {
            return Err(Refusal::Unknown);
        }
        Ok(Self {
            number: cfg0 & 0xf_ffff,
            pd: cfg1 & 0xf_ffff,
            is_datagram: command.u32(116) & 0xf == 1,
            sends,
            receives,
            cqs: [send_cq, receive_cq],
            pages: has_page.then_some(pages),
            state: state::RESET,
            qkey: 0,
            path: Path::default(),
            to: 0,
            first: [0; 2],
            connection: None,
        })
    }

    /// Whether packets of the peer are taken.
    pub(crate) fn is_receiving(&self) -> bool {
        (state::READY_TO_RECEIVE..state::ERROR).contains(&self.state)
    }

    /// Begins anew with empty queues.
    fn reset(&mut self) {
        self.connection = None;
        (self.sends.produced, self.sends.consumed) = (0, 0);
        (self.receives.produced, self.receives.consumed) = (0, 0);
    }
}

impl Device {
    pub(crate) fn create_qp(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let qp = Qp::new(command, self)?;
        if self.qps.contains_key(&qp.number) {
            return Err(Refusal::InUse);
        }
        for cq in qp.cqs {
            if let Some(cq) = self.cqs.get_mut(&cq) {
                cq.users += 1;
            }
        }
        self.qps.insert(qp.number, qp);
        Ok(())
    }

    pub(crate) fn destroy_qp(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let qp = self.qps.remove(&command.u32(8)).ok_or(Refusal::Unknown)?;
        for cq in qp.cqs {
            if let Some(cq) = self.cqs.get_mut(&cq) {
                cq.users -= 1;
            }
        }
        Ok(())
    }

    /// Number of bytes of a full packet.
    fn packet_size(&self) -> u32 {
        // What is left for the headers of IPv6, UDP and the transport.
        let room = self.mtu.saturating_sub(100);
        [4096, 2048, 1024, 512].into_iter().find(|size| *size <= room).unwrap_or(256)
    }

    pub(crate) fn modify_qp(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let (cfg, mask) = (command.u32(8), command.u32(16));
        let mtu = self.packet_size();
        let number = cfg & 0xf_ffff;
        let qp = self.qps.get_mut(&number).ok_or(Refusal::Unknown)?;
        if mask & changes::QKEY != 0 {
            qp.qkey = command.u32(20);
        }
        if mask & changes::RECEIVE_NUMBER != 0 {
            qp.first[1] = command.u32(24) & 0xff_ffff;
        }
        if mask & changes::SEND_NUMBER != 0 {
            qp.first[0] = command.u32(28) & 0xff_ffff;
        }
        if mask & changes::DESTINATION != 0 {
            qp.to = command.u32(12) & 0xf_ffff;
        }
        if mask & changes::PATH != 0 {
            qp.path = Path::parse(&command[32..]);
        }
        if mask & changes::STATE == 0 {
            return Ok(());
        }
        let before = std::mem::replace(&mut qp.state, (cfg >> 24) as u8);
        match qp.state {
            state::RESET => qp.reset(),
            state::READY_TO_RECEIVE if before == state::INIT && !qp.is_datagram => {
                let settings = Settings {
                    service: Service::Rc,
                    to: qp.to,
                    mtu,
                    timeout: Some(TIMEOUT),
                    retries: RETRIES,
                    unready: FOR_EVER,
                    reads: MOST_READS,
                    window: 128 << 10,
                };
                qp.connection = Some(Connection::new(settings, 0, qp.first[1]));
            }
            state::READY_TO_SEND if before == state::READY_TO_RECEIVE => {
                let first = qp.first[0];
                if let Some(connection) = &mut qp.connection {
                    connection.begin_sending(first);
                }
            }
            _ => {}
        }
        self.advance(number);
        Ok(())
    }

    /// The numbers of the next packets, and the state.
    pub(crate) fn query_qp(&mut self, command: &[u8]) -> Result<u64, Refusal> {
        let qp = self.qps.get(&command.u32(8)).ok_or(Refusal::Unknown)?;
        let [first, expected] = qp.first;
        let [sends, receives] = match &qp.connection {
            Some(connection) if qp.state >= state::READY_TO_SEND => connection.numbers().into(),
            Some(connection) => [first, connection.numbers().1],
            None => [first, expected],
        };
        Ok(u64::from(qp.state) << 48 | u64::from(receives) << 24 | u64::from(sends))
    }

    /// The kernel flushes a queue pair of its own again, with what was posted meanwhile.
    pub(crate) fn flush_again(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let number = command.u32(8);
        let qp = self.qps.get_mut(&number).ok_or(Refusal::Unknown)?;
        (qp.sends.produced, qp.receives.produced) = (command.u32(12) as u16, command.u32(16) as u16);
        self.advance(number);
        Ok(())
    }

    /// The doorbell of a send queue.
    pub(crate) fn ring_sends(&mut self, doorbell: u64, page: Option<u16>) {
        let number = (doorbell >> 32) as u32 & 0xf_ffff;
        let own = |qp: &&mut Qp| qp.pages.map(|pages| pages[0]) == page;
        let Some(qp) = self.qps.get_mut(&number).filter(own) else {
            return self
                .complain(format!("a doorbell for the sends of queue pair {number}, which is not there"));
        };
        qp.sends.produced = doorbell as u16;
        self.advance(number);
    }

    /// The doorbell of a receive queue: the first eight bytes of a request.
    pub(crate) fn ring_receives(&mut self, doorbell: u64, page: Option<u16>) {
        let number = (doorbell >> 32) as u32;
        let own = |qp: &&mut Qp| qp.pages.map(|pages| pages[1]) == page;
        let Some(qp) = self.qps.get_mut(&number).filter(own) else {
            return self
                .complain(format!("a doorbell for the receives of queue pair {number}, which is not there"));
        };
        qp.receives.produced = doorbell as u16;
        self.advance(number);
    }
}
