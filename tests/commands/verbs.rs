//! Connected queue pairs and datagrams, with commands built by hand.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use uverbs::soft::{RawAttr, RawCommand, RawConnection, SoftDevice};
use uverbs::transport::Mapping;
use uverbs_abi::ids::qp;
use uverbs_abi::rxe::{AtomicWr, DmaInfo, RdmaWr, RecvWqe, SendWqe, SendWr, Sge, UdWr};
use uverbs_abi::types::{AccessFlags, QpAttrMask, SendFlags, mtu, qp_state, qp_type};
use uverbs_abi::write::{
    AhAttr, AsyncEventDesc, CreateAh, CreateAhResp, ModifyQp, QpCap, QpDest, QueryQp, QueryQpResp, RegMr,
    RegMrResp, Wc, cmd,
};
use zerocopy::{FromZeros, IntoBytes};

use super::ring::{Cq, Qp};
use super::{CORE_OUT, alloc_async, answer, create_qp, done, get_context, new_pd, write};

pub(crate) const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0x5e, 0xff, 0xfe, 0, 0, 1];
pub(crate) const IPV4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
pub(crate) const QKEY: u32 = 0x1234;
pub(crate) const ALL: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);
pub(crate) const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// A command for a queue pair of this type.
pub(crate) fn create(kind: u8, pd: u32, cq: u32) -> RawCommand {
    let mut command = create_qp(pd, cq);
    for attr in command.attrs() {
        match attr.id {
            qp::create::TYPE => attr.data = kind.into(),
            qp::create::CAP => {
                let cap = QpCap {
                    max_send_wr: 15,
                    max_recv_wr: 15,
                    max_send_sge: 2,
                    max_recv_sge: 2,
                    max_inline_data: 64,
                };
                *attr = RawAttr::input(attr.id, cap.as_bytes());
            }
            _ => {}
        }
    }
    command
}

pub(crate) fn path(gid: [u8; 16], sgid_index: u8) -> QpDest {
    QpDest { dgid: gid, sgid_index, hop_limit: 64, is_global: 1, port_num: 1, ..QpDest::new_zeroed() }
}

/// The attributes that a transition to this state needs.
pub(crate) fn needed(kind: u8, state: u8) -> QpAttrMask {
    use QpAttrMask as M;
    M::STATE
        | match (kind, state) {
            (qp_type::UD, qp_state::INIT) => M::PKEY_INDEX | M::PORT | M::QKEY,
            (_, qp_state::INIT) => M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
            (qp_type::RC, qp_state::RTR) => {
                M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER
            }
            (qp_type::UC, qp_state::RTR) => M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN,
            (qp_type::RC, qp_state::RTS) => {
                M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC
            }
            (_, qp_state::RTS) => M::SQ_PSN,
            _ => M::empty(),
        }
}

/// A request with valid values for everything.
pub(crate) fn change(kind: u8, qp: u32, to: u32, state: u8) -> ModifyQp {
    ModifyQp {
        qp_handle: qp,
        qp_state: state,
        attr_mask: needed(kind, state).bits(),
        dest: path(IPV4, 1),
        port_num: 1,
        qkey: QKEY,
        dest_qp_num: to,
        rq_psn: 100,
        sq_psn: 100,
        path_mtu: mtu::MTU_1024,
        qp_access_flags: ALL.bits(),
        max_rd_atomic: 3,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..ModifyQp::new_zeroed()
    }
}

/// An open file with a protection domain, a completion queue and memory.
pub(crate) struct Side {
    pub(crate) file: RawConnection,
    pub(crate) events: Option<OwnedFd>,
    pub(crate) pd: u32,
    pub(crate) cq: Cq,
    pub(crate) memory: Mapping,
    pub(crate) address: u64,
    pub(crate) key: u32,
}

impl Side {
    pub(crate) fn new(device: &SoftDevice, len: usize) -> Self {
        Self::on(device.raw(), len)
    }

    pub(crate) fn on(file: RawConnection, len: usize) -> Self {
        done(&file, get_context());
        let events = file.invoke_fd(&mut alloc_async()).unwrap();
        let pd = new_pd(&file);
        let cq = Cq::new(&file, 64, None);
        let (address, memory) = file.memory(len).unwrap();
        let mut this = Self { file, events, pd, cq, memory, address, key: 0 };
        this.key = this.register(len, ALL);
        this
    }

    /// Registers the beginning of the memory again, and returns the key.
    pub(crate) fn register(&self, len: usize, access: AccessFlags) -> u32 {
        let request = RegMr {
            start: self.address,
            hca_va: self.address,
            length: len as u64,
            pd_handle: self.pd,
            access_flags: access.bits(),
            ..RegMr::new_zeroed()
        };
        let response: RegMrResp = answer(&done(&self.file, write(cmd::REG_MR, &request, 12)), CORE_OUT);
        response.lkey
    }

    pub(crate) fn qp(&self, kind: u8) -> Qp {
        Qp::make(&self.file, create(kind, self.pd, self.cq.handle))
    }

    pub(crate) fn modify(&self, request: &ModifyQp) -> Result<(), i32> {
        self.file.invoke(&mut write(cmd::MODIFY_QP, request, 0))
    }

    /// From reset to this state.
    #[track_caller]
    pub(crate) fn raise(&self, kind: u8, qp: &Qp, to: u32, state: u8) {
        for state in qp_state::INIT..=state {
            assert_eq!(self.modify(&change(kind, qp.handle, to, state)), Ok(()), "to {state}");
        }
    }

    #[track_caller]
    pub(crate) fn query(&self, qp: &Qp) -> QueryQpResp {
        let request = QueryQp { qp_handle: qp.handle, ..QueryQp::new_zeroed() };
        answer(&done(&self.file, write(cmd::QUERY_QP, &request, 128)), CORE_OUT)
    }

    pub(crate) fn piece(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: self.address + offset as u64, length, lkey: self.key }
    }

    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        assert!(self.memory.write(offset, bytes));
    }

    pub(crate) fn look(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.memory.read(offset, &mut bytes));
        bytes
    }

    /// All completions in the queue.
    pub(crate) fn take(&self) -> Vec<Wc> {
        std::iter::from_fn(|| self.cq.ring.take()).collect()
    }

    /// The next completions, at least `count`; a device of the kernel takes time.
    #[track_caller]
    pub(crate) fn take_at_least(&self, count: usize) -> Vec<Wc> {
        let start = Instant::now();
        let mut all = self.take();
        while all.len() < count {
            assert!(start.elapsed() < Duration::from_secs(20), "{} of {count} completions", all.len());
            std::thread::yield_now();
            all.extend(self.take());
        }
        all
    }

    /// The type of the next asynchronous event, if there is one.
    pub(crate) fn event(&self) -> Option<u32> {
        self.event_within(0)
    }

    /// The same, after waiting at most this number of seconds.
    pub(crate) fn event_within(&self, seconds: u16) -> Option<u32> {
        let file = self.events.as_ref().unwrap().as_fd();
        let mut files = [PollFd::new(file, PollFlags::POLLIN)];
        let limit = PollTimeout::from(seconds * 1000);
        (poll(&mut files, limit).unwrap() > 0).then(|| self.next_event().0)
    }

    /// Type and element of the next asynchronous event.
    pub(crate) fn next_event(&self) -> (u32, u64) {
        let mut record = AsyncEventDesc::new_zeroed();
        let mut file = std::fs::File::from(self.events.as_ref().unwrap().try_clone().unwrap());
        file.read_exact(record.as_mut_bytes()).unwrap();
        (record.event_type, record.element)
    }

    pub(crate) fn ah(&self, gid: [u8; 16], sgid_index: u8) -> (u32, u32) {
        let command =
            create_ah(self.pd, gid, sgid_index).with(RawAttr::output(uverbs_abi::ioctl::UHW_OUT, 8));
        let command = done(&self.file, command);
        let CreateAhResp { ah_handle } = answer(&command, CORE_OUT);
        (ah_handle, answer(&command, uverbs_abi::ioctl::UHW_OUT))
    }
}

pub(crate) fn create_ah(pd: u32, gid: [u8; 16], sgid_index: u8) -> RawCommand {
    let mut attr = AhAttr { is_global: 1, port_num: 1, ..AhAttr::new_zeroed() };
    (attr.grh.dgid, attr.grh.sgid_index, attr.grh.hop_limit) = (gid, sgid_index, 9);
    attr.grh.traffic_class = 0x28;
    let request = CreateAh { pd_handle: pd, attr, ..CreateAh::new_zeroed() };
    write(cmd::CREATE_AH, &request, 4)
}

fn dma(pieces: &[Sge]) -> DmaInfo {
    let length = pieces.iter().fold(0_u32, |sum, piece| sum.wrapping_add(piece.length));
    DmaInfo { length, resid: length, num_sge: pieces.len() as u32, ..DmaInfo::new_zeroed() }
}

/// A request, which its other methods change.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) wqe: SendWqe,
    tail: Vec<u8>,
}

impl Post {
    pub(crate) fn new(wr_id: u64, opcode: u32, pieces: &[Sge]) -> Self {
        let wr = SendWr { wr_id, opcode, send_flags: SIGNALED.bits(), ..SendWr::new_zeroed() };
        let wqe = SendWqe { wr, dma: dma(pieces), ..SendWqe::new_zeroed() };
        Self { wqe, tail: pieces.as_bytes().to_vec() }
    }

    pub(crate) fn inline(wr_id: u64, opcode: u32, bytes: &[u8]) -> Self {
        let mut post = Self::new(wr_id, opcode, &[]).flags(SIGNALED | SendFlags::INLINE);
        (post.wqe.dma.length, post.wqe.dma.resid) = (bytes.len() as u32, bytes.len() as u32);
        post.tail = bytes.to_vec();
        post
    }

    pub(crate) fn flags(mut self, flags: SendFlags) -> Self {
        self.wqe.wr.send_flags = flags.bits();
        self
    }

    /// Immediate data, or a key to invalidate.
    pub(crate) fn extra(mut self, ex: u32) -> Self {
        self.wqe.wr.ex = ex;
        self
    }

    pub(crate) fn remote(mut self, remote_addr: u64, rkey: u32) -> Self {
        let wr = RdmaWr { remote_addr, rkey, reserved: 0 };
        self.wqe.wr.wr[..16].copy_from_slice(wr.as_bytes());
        self.wqe.iova = remote_addr;
        self
    }

    pub(crate) fn atomic(mut self, remote_addr: u64, rkey: u32, compare_add: u64, swap: u64) -> Self {
        let wr = AtomicWr { remote_addr, compare_add, swap, rkey, reserved: 0 };
        self.wqe.wr.wr[..32].copy_from_slice(wr.as_bytes());
        self.wqe.iova = remote_addr;
        self
    }

    pub(crate) fn to(mut self, remote_qpn: u32, ah_num: u32) -> Self {
        let wr = UdWr { remote_qpn, remote_qkey: QKEY, ah_num, ..UdWr::new_zeroed() };
        self.wqe.wr.wr.copy_from_slice(wr.as_bytes());
        self
    }
}

impl Qp {
    pub(crate) fn post(&self, post: &Post) {
        self.sends.put(&[post.wqe.as_bytes(), &post.tail]);
    }

    /// A receive as a provider posts it, with its lengths.
    pub(crate) fn receive(&self, wr_id: u64, pieces: &[Sge]) {
        let wqe = RecvWqe { wr_id, dma: dma(pieces), ..RecvWqe::new_zeroed() };
        self.receives.put(&[wqe.as_bytes(), pieces.as_bytes()]);
    }
}

/// Two connected queue pairs in two open files of one device.
pub(crate) struct Pair<D = SoftDevice> {
    pub(crate) device: D,
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) qa: Qp,
    pub(crate) qb: Qp,
}

impl Pair {
    pub(crate) fn new(kind: u8) -> Self {
        Self::with(kind, 16384)
    }

    pub(crate) fn with(kind: u8, len: usize) -> Self {
        Self::unconnected(kind, len).connected(kind)
    }

    /// On a given device.
    pub(crate) fn on(device: SoftDevice, kind: u8) -> Self {
        Self::made(device, kind, 16384).connected(kind)
    }

    fn connected(self, kind: u8) -> Self {
        self.a.raise(kind, &self.qa, self.qb.number, qp_state::RTS);
        self.b.raise(kind, &self.qb, self.qa.number, qp_state::RTS);
        self
    }

    pub(crate) fn unconnected(kind: u8, len: usize) -> Self {
        Self::made(SoftDevice::default(), kind, len)
    }

    fn made(device: SoftDevice, kind: u8, len: usize) -> Self {
        let [a, b] = [(); 2].map(|()| Side::new(&device, len));
        Self::of(device, kind, a, b)
    }
}

impl Pair<()> {
    /// Two sides of any device, ready to send; requests are sent at most twice.
    pub(crate) fn between(kind: u8, a: Side, b: Side) -> Self {
        let this = Pair::of((), kind, a, b);
        for (side, qp, peer) in [(&this.a, &this.qa, &this.qb), (&this.b, &this.qb, &this.qa)] {
            side.raise(kind, qp, peer.number, qp_state::RTR);
            let request = change(kind, qp.handle, peer.number, qp_state::RTS);
            // Enough time for a slow machine: half a second, twice.
            let request = ModifyQp { timeout: 17, retry_cnt: 1, rnr_retry: 1, ..request };
            assert_eq!(side.modify(&request), Ok(()));
        }
        this
    }
}

impl<D> Pair<D> {
    fn of(device: D, kind: u8, a: Side, b: Side) -> Self {
        let (qa, qb) = (a.qp(kind), b.qp(kind));
        Self { device, a, b, qa, qb }
    }

    /// Posts to the first queue pair and rings its doorbell.
    pub(crate) fn send(&self, posts: &[Post]) {
        posts.iter().for_each(|post| self.qa.post(post));
        self.qa.ring_doorbell(&self.a.file);
    }
}

/// Work request and status of each.
pub(crate) fn ends(completions: &[Wc]) -> Vec<(u64, u32)> {
    completions.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}
