//! One side: a queue pair that posts requests by address and key, with its memory.

use uverbs::abi::types::{QpCreateFlags, qp_state, qp_type};
use uverbs::abi::write::{ModifyQp, QpDest};
use uverbs::raw::{CompletionObject, QueuePair, QueuePairInit, ReceiveQueue, SendQueue, Sge};
use uverbs::{
    AccessFlags, Capacity, Completion, CompletionQueue, Context, Endpoint, Error, EventKind, MemoryRegion,
    ProtectionDomain, QpAttrMask, Remote, Route,
};
use zerocopy::FromZeros;

use crate::commands::verbs::{ALL, QKEY, change, needed};
use crate::common::options;

/// The length of a side's memory.
pub(super) const LEN: usize = 16384;
/// Where the first receive of the peer begins, and where the second does.
pub(super) const RECEIVES: [usize; 2] = [8192, 12288];
/// Room in a receive, without the header of a datagram.
pub(super) const ROOM: u32 = 100;
/// Where results of reads and atomic operations go.
pub(super) const RESULT: usize = 4096;
/// Room for the header of a datagram.
pub(super) const HEADER: usize = 40;

/// The kind of queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Rc,
    Uc,
    Ud,
}

impl Transport {
    pub(super) const ALL: [Self; 3] = [Self::Rc, Self::Uc, Self::Ud];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Rc => qp_type::RC,
            Self::Uc => qp_type::UC,
            Self::Ud => qp_type::UD,
        }
    }
}

/// How one side is connected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// The queue pair that it is connected to, if that is not the peer.
    pub(super) to: Option<u32>,
    /// Its destination is a port that is not there.
    pub(super) is_astray: bool,
    pub(super) access: AccessFlags,
    pub(super) qkey: u32,
    pub(super) receive_psn: u32,
    pub(super) rnr_retries: u8,
    /// Reads and atomic operations in flight, of its own and of the peer.
    pub(super) reads: u8,
    pub(super) reads_of_peer: u8,
    pub(super) pkey_index: u16,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            to: None,
            is_astray: false,
            access: ALL,
            qkey: QKEY,
            receive_psn: 100,
            rnr_retries: 3,
            reads: 3,
            reads_of_peer: 4,
            pkey_index: 0,
        }
    }
}

/// A queue pair with its domain, completion queue and memory.
pub(super) struct End {
    pub(super) qp: Option<(QueuePair, SendQueue, Option<ReceiveQueue>)>,
    cq: CompletionQueue,
    pub(super) memory: Option<MemoryRegion>,
    pub(super) pd: ProtectionDomain,
    context: Context,
    transport: Transport,
    endpoint: Endpoint,
    gid_index: u8,
    pub(super) link: Link,
}

/// Why a queue pair could not be brought to a state, in the words of a cell.
pub(super) type Refusal = String;

pub(super) fn refusal(error: &Error) -> Refusal {
    format!("refused {}", error.errno().map_or("without errno", errno))
}

pub(super) fn errno(number: i32) -> &'static str {
    match number {
        12 => "ENOMEM",
        22 => "EINVAL",
        95 => "EOPNOTSUPP",
        101 => "ENETUNREACH",
        110 => "ETIMEDOUT",
        113 => "EHOSTUNREACH",
        _ => "another errno",
    }
}

impl End {
    pub(super) fn new(context: &Context, transport: Transport, fill: u8) -> Self {
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(32).unwrap());
        let object: CompletionObject = cq.object();
        let capacity = Capacity {
            sends: 8,
            receives: 8,
            send_segments: 2,
            receive_segments: 2,
            inline: 64,
            ..Capacity::default()
        };
        let init = QueuePairInit {
            type_: transport.number(),
            send_cq: &object,
            receive_cq: &object,
            srq: None,
            capacity,
            operations: None,
            cookie: 0,
            flags: QpCreateFlags::empty(),
        };
        let qp = pd.create_parts(&init).unwrap();
        let memory = pd.register(LEN, ALL).unwrap();
        memory.write(0, &[fill; LEN]).unwrap();
        let options = options(context);
        let endpoint = Endpoint {
            lid: context.query_port(1).unwrap().legacy_resp.lid,
            qp_num: qp.0.number(),
            psn: 100,
            gid: context.gid(1, options.gid_index.into()).unwrap().raw,
        };
        Self {
            qp: Some(qp),
            cq,
            memory: Some(memory),
            pd,
            context: context.clone(),
            transport,
            endpoint,
            gid_index: options.gid_index,
            link: Link::default(),
        }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn number(&self) -> u32 {
        self.endpoint.qp_num
    }

    pub(super) fn memory(&self) -> &MemoryRegion {
        self.memory.as_ref().expect("it is there")
    }

    pub(super) fn piece(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: self.memory().address() + offset as u64, length, lkey: self.memory().lkey() }
    }

    pub(super) fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.memory().address() + offset as u64, rkey: self.memory().rkey() }
    }

    /// The port that it reaches: the device's own, or none.
    pub(super) fn route(&self, is_astray: bool) -> Route {
        let mut gid = self.endpoint.gid;
        let mut lid = self.endpoint.lid;
        if is_astray {
            gid[15] ^= 0x4c;
            lid ^= if lid == 0 { 0 } else { 0x70 };
        }
        Route { lid, ..Route::new(1, self.gid_index, gid) }
    }

    /// Brings the queue pair from one state to the next, until it is in `last`.
    pub(super) fn raise(&mut self, first: u8, last: u8, peer: u32) -> Result<(), Refusal> {
        (first..=last).try_for_each(|state| self.enter(state, peer))
    }

    /// Brings the queue pair to a state.
    pub(super) fn enter(&mut self, state: u8, peer: u32) -> Result<(), Refusal> {
        let (link, kind) = (self.link, self.transport.number());
        let route = self.route(link.is_astray);
        let dest = QpDest {
            dgid: route.gid,
            dlid: route.lid,
            sgid_index: route.gid_index,
            hop_limit: 64,
            is_global: 1,
            port_num: 1,
            ..QpDest::new_zeroed()
        };
        let to = link.to.unwrap_or(peer);
        let request = ModifyQp {
            attr_mask: needed(kind, state).bits(),
            dest,
            qkey: link.qkey,
            pkey_index: link.pkey_index,
            rq_psn: link.receive_psn,
            qp_access_flags: link.access.bits(),
            max_rd_atomic: link.reads,
            max_dest_rd_atomic: link.reads_of_peer,
            min_rnr_timer: 1,
            // On rxe seven retries never end.
            retry_cnt: 1,
            rnr_retry: link.rnr_retries,
            ..change(kind, 0, to, state)
        };
        let Some((qp, sends, receives)) = &mut self.qp else { return Ok(()) };
        qp.modify(&request, Some(sends), receives.as_mut()).map_err(|error| refusal(&error))
    }

    pub(super) fn destroy(&mut self) {
        if let Some((qp, ..)) = self.qp.take() {
            qp.destroy().unwrap();
        }
    }

    pub(super) fn receive(&mut self, wr_id: u64, pieces: &[Sge]) {
        let Some((.., Some(receives))) = &mut self.qp else { return };
        receives.post_one(wr_id, pieces).unwrap();
    }

    /// The room for one of the two messages that the peer can receive.
    pub(super) fn room(&self, number: usize) -> Sge {
        let header = if self.transport == Transport::Ud { HEADER as u32 } else { 0 };
        self.piece(RECEIVES[number], header + ROOM)
    }

    pub(super) fn state(&self) -> &'static str {
        let Some((qp, ..)) = &self.qp else { return "gone" };
        match qp.query(QpAttrMask::STATE).map(|answer| answer.qp_state) {
            Ok(qp_state::RESET) => "RESET",
            Ok(qp_state::INIT) => "INIT",
            Ok(qp_state::RTR) => "RTR",
            Ok(qp_state::RTS) => "RTS",
            Ok(qp_state::SQD) => "SQD",
            Ok(qp_state::SQE) => "SQE",
            Ok(qp_state::ERR) => "ERR",
            _ => "without a name",
        }
    }

    pub(super) fn poll(&mut self, to: &mut Vec<Completion>) {
        let mut batch = Completion::batch::<16>();
        let count = self.cq.poll(&mut batch);
        to.extend(&batch[..count]);
    }

    pub(super) fn poll_events(&self, to: &mut Vec<EventKind>) {
        while let Some(event) = self.context.next_event().unwrap() {
            // rxe reports this for queue pairs without shared receives too, whenever it looks at a broken one (`flush_recv_queue`,
            // rxe_resp.c, 6.12 and later).
            if event.kind != EventKind::QpLastWqeReached {
                to.push(event.kind);
            }
        }
    }
}
