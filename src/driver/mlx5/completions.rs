//! Completion queues of mlx5.
//!
//! The device writes entries round and round the ring. An entry is ours when its owner bit has the parity of the
//! round that we are in and its opcode is not "invalid". We tell how far we have read by the consumer counter in the
//! doorbell record, and ask for an event by the arm word behind it and a doorbell.
//!
//! The device takes an ask for an event only with a sequence number that it has not answered yet, so the number goes
//! up with each event. Events reach the program by way of a file that it may read when it likes; but that one
//! was made is seen in the queue: an armed queue makes it at the first completion that it was armed for.
//!
//! Source: `mlx5_cq_arm`, include/linux/mlx5/cq.h; `struct mlx5_cqe64`, device.h; Linux 6.1.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::mlx5::wqe::{
    CQE_L3_OK, CQE_L4_OK, CQE_REQ, CQE_REQ_ERR, CQE_RESP_ERR, CQE_RESP_SEND, Cqe64, ErrCqe, OPCODE_TSO,
};
use uverbs_abi::mlx5::{CREATE_CQ_FLAGS_UAR_PAGE_INDEX, CreateCq, CreateCqResp, ResizeCq};
use uverbs_abi::types::{WcFlags, wc_opcode};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::ring::{ENTRY, Ring};
use super::track::{Lane, Track};
use super::{CQ_DOORBELL, Limits, Registers};
use crate::completion::{Completion, Status};
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::process::Origin;

/// Words of the doorbell record.
const CONSUMER: usize = 0;
const ARM: usize = 4;
/// Bits of a position that the device counts, and of the index of a queue pair.
const COUNTER: u32 = 0xff_ffff;
/// Bit of [`Cqe64::op_own`]: the message was solicited.
const SOLICITED: u8 = 2;

/// Bit of [`Cqe64::l4_hdr_type_etc`]: a VLAN tag was taken off (`cqe_has_vlan`, device.h).
const STRIPPED: u8 = 1;

/// Where the doorbell record is.
#[derive(Clone, Debug)]
struct Record {
    memory: Mapping,
    at: usize,
}

impl Record {
    fn store(&self, word: usize, value: u32) {
        self.memory.store(self.at + word, value.to_be(), Ordering::Release);
    }

    /// Tells how far the queue was read.
    fn tell(&self, position: u64) {
        self.store(CONSUMER, position as u32 & COUNTER);
    }
}

/// A completion queue about to be made: what the driver is told, and its memory.
#[derive(Debug)]
pub(crate) struct CqPlan {
    /// With the doorbell record behind it.
    ring: Ring,
    registers: Registers,
    request: CreateCq,
    response: CreateCqResp,
}

impl CqPlan {
    pub(crate) fn new(op: &'static str, wanted: u32, limits: &Limits, registers: Registers) -> Result<Self> {
        let ring = Ring::new(op, wanted, limits.cqe_size, ENTRY)?;
        let uar_page_index = u16::try_from(registers.id.unwrap_or(0))
            .map_err(|_| Error::malformed(op, "a page of registers with a number above 65535"))?;
        let request = CreateCq {
            buf_addr: ring.memory.address(),
            db_addr: ring.memory.address() + ring.bytes() as u64,
            cqe_size: ring.size,
            flags: registers.id.map_or(0, |_| CREATE_CQ_FLAGS_UAR_PAGE_INDEX),
            uar_page_index,
            ..CreateCq::new_zeroed()
        };
        Ok(Self { ring, registers, request, response: CreateCqResp::new_zeroed() })
    }

    /// The driver's request, and the place of its answer.
    pub(crate) fn payload(&mut self) -> (&[u8], &mut [u8]) {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    /// The memory that the device may write to as long as the queue exists.
    pub(crate) fn memory(&self) -> &Mapping {
        &self.ring.memory
    }

    /// The queue, now that the kernel has made it. Nothing completes here yet, so the ring is still ours alone; before, a
    /// queue larger than the device's limit would have cost its memory, and not only an error.
    pub(crate) fn open(self) -> Completions {
        self.ring.clear();
        let record = Record { memory: self.ring.memory.clone(), at: self.ring.bytes() };
        let shared = Shared {
            ring: Mutex::new(self.ring.clone()),
            record,
            registers: self.registers,
            number: self.response.cqn,
            next: AtomicU64::new(0),
            sequence: AtomicU32::new(0),
            armed: AtomicU32::new(NOT_ARMED),
            origin: Origin::here(),
            tracks: Mutex::default(),
            changes: AtomicU32::new(0),
        };
        Completions { ring: self.ring, shared: Arc::new(shared), tracks: Vec::new(), changes: 0 }
    }
}

const NOT_ARMED: u32 = 0;
const ARMED_SOLICITED: u32 = 1;
const ARMED: u32 = 2;

/// What queue pairs know of a completion queue.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The process that has the queue: a child of `fork` takes no lock of it.
    origin: Origin,
    /// The poller has a copy, and changes both.
    ring: Mutex<Ring>,
    record: Record,
    registers: Registers,
    number: u32,
    /// Position of the next entry to be read; only the poller changes it.
    next: AtomicU64,
    /// Of the next ask for an event.
    sequence: AtomicU32,
    armed: AtomicU32,
    /// The queue pairs that complete here, and how often that has changed: the poller has a copy.
    tracks: Mutex<Vec<Arc<Track>>>,
    changes: AtomicU32,
}

impl Shared {
    fn change<T>(&self, how: impl FnOnce(&mut Vec<Arc<Track>>) -> T) -> T {
        let mut tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = how(&mut tracks);
        self.changes.fetch_add(1, Ordering::Release);
        answer
    }

    /// Adds a queue pair; false when another one has its index.
    pub(super) fn add(&self, track: &Arc<Track>) -> bool {
        self.change(|tracks| match tracks.binary_search_by_key(&track.index(), |known| known.index()) {
            Ok(at) => Arc::ptr_eq(&tracks[at], track),
            Err(at) => {
                tracks.insert(at, track.clone());
                true
            }
        })
    }

    /// Forgets a queue pair; what it left in the queue is nobody's.
    pub(super) fn remove(&self, track: &Arc<Track>) {
        if !self.origin.is_here() {
            return;
        }
        self.change(|tracks| tracks.retain(|known| !Arc::ptr_eq(known, track)));
    }

    /// Does something at the position behind all that the device has written, while the queue is not resized.
    pub(super) fn at_end(&self, what: impl FnOnce(u64)) {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let mut position = self.next.load(Ordering::Acquire);
        while ring.entry(position).is_some() {
            position += 1;
        }
        what(position);
    }
}

/// The side of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    ring: Ring,
    shared: Arc<Shared>,
    tracks: Vec<Arc<Track>>,
    changes: u32,
}

impl Completions {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.ring.entries - 1
    }

    /// Fills `places` with completions, as many as there are and fit; gives their places back at once, and says how
    /// many. Before the first one is taken, `may_take` is asked: if not, nothing is.
    #[inline(never)]
    pub(crate) fn poll(&mut self, places: &mut [Completion], may_take: impl Fn() -> bool) -> usize {
        let first = self.shared.next.load(Ordering::Relaxed);
        let (mut position, mut count) = (first, 0);
        while let Some(place) = places.get_mut(count) {
            let Some(entry) = self.ring.entry(position) else { break };
            if position == first {
                if !may_take() {
                    return 0;
                }
                self.look_for_changes();
            }
            if let Some(completion) = self.completion(&entry, position) {
                *place = completion;
                count += 1;
            }
            self.event_made(&entry);
            position += 1;
        }
        if position != first {
            self.shared.next.store(position, Ordering::Release);
            self.shared.record.tell(position);
        }
        count
    }

    /// Gives the queue room for `wanted` completions: `command` has the kernel do it, with the driver's request and the new
    /// ring's memory. Gives the memory of the old ring back, if the device needs nothing of it any more; none either if the
    /// queue has this size already.
    pub(crate) fn resize(
        &mut self,
        op: &'static str,
        wanted: u32,
        command: impl FnOnce(&ResizeCq, &Mapping) -> Result<()>,
    ) -> Result<Option<Mapping>> {
        // The kernel does nothing then.
        if Ring::entries_for(wanted) == Some(self.ring.entries) {
            return Ok(None);
        }
        let new = Ring::new(op, wanted, self.ring.size, 0)?;
        // The device writes to it as soon as it has it.
        new.clear();
        let request =
            ResizeCq { buf_addr: new.memory.address(), cqe_size: new.size as u16, ..ResizeCq::new_zeroed() };
        self.look_for_changes();
        let shared = self.shared.clone();
        let mut ring = shared.ring.lock().unwrap_or_else(PoisonError::into_inner);
        command(&request, &new.memory)?;
        let first = shared.next.load(Ordering::Relaxed);
        let is_nobodys = |cqe: &Cqe64, position| {
            self.owner(cqe).is_none_or(|(_, lane)| lane.is_of_an_earlier_life(position))
        };
        let taken_over = new.take_over(op, &ring, first, is_nobodys);
        let next = *taken_over.as_ref().unwrap_or(&(first + 1));
        shared.next.store(next, Ordering::Release);
        shared.record.tell(next);
        *ring = new.clone();
        let old = std::mem::replace(&mut self.ring, new);
        taken_over?;
        let has_record = old.memory.address() == shared.record.memory.address();
        Ok((!has_record).then_some(old.memory))
    }

    fn look_for_changes(&mut self) {
        let changes = self.shared.changes.load(Ordering::Acquire);
        if changes != self.changes {
            let tracks = self.shared.tracks.lock().unwrap_or_else(PoisonError::into_inner);
            self.tracks.clone_from(&tracks);
            self.changes = changes;
        }
    }

    /// Whose completion it is.
    fn owner(&self, cqe: &Cqe64) -> Option<(&Track, &Lane)> {
        let index = cqe.srqn_uidx.get() & COUNTER;
        let at = self.tracks.binary_search_by_key(&index, |track| track.index()).ok()?;
        let track = self.tracks.get(at)?;
        let is_send = matches!(cqe.op_own >> 4, CQE_REQ | CQE_REQ_ERR);
        Some((track, if is_send { &track.sends } else { &track.receives }))
    }

    /// What the entry says, if its queue pair is still there.
    fn completion(&self, entry: &[u8; ENTRY], position: u64) -> Option<Completion> {
        let cqe = Cqe64::ref_from_bytes(entry).ok()?;
        let opcode = cqe.op_own >> 4;
        let (track, lane) = self.owner(cqe)?;
        let wr_id = lane.complete(cqe.wqe_counter.get(), position)?;
        let completion = Completion { wr_id, qp_num: track.number(), ..Completion::default() };
        Some(match opcode {
            CQE_REQ => {
                let is_large = cqe.sop_drop_qpn.get() >> 24 == u32::from(OPCODE_TSO);
                let opcode = if is_large { wc_opcode::TSO } else { wc_opcode::SEND };
                Completion { status: Status::Success, opcode, timestamp: cqe.timestamp.get(), ..completion }
            }
            CQE_REQ_ERR | CQE_RESP_ERR => {
                let error = ErrCqe::ref_from_bytes(entry).ok()?;
                let opcode = if opcode == CQE_REQ_ERR { wc_opcode::SEND } else { wc_opcode::RECV };
                let status = status(error.syndrome);
                Completion { status, opcode, vendor_error: error.vendor_err_synd.into(), ..completion }
            }
            CQE_RESP_SEND => {
                let good = cqe.hds_ip_ext & (CQE_L3_OK | CQE_L4_OK) == CQE_L3_OK | CQE_L4_OK;
                let mut flags = WcFlags::empty();
                flags.set(WcFlags::IP_CSUM_OK, good && is_ipv4(cqe));
                flags.set(WcFlags::WITH_VLAN, cqe.l4_hdr_type_etc & STRIPPED != 0);
                Completion {
                    status: Status::Success,
                    opcode: wc_opcode::RECV,
                    len: cqe.byte_cnt.get(),
                    immediate: cqe.sop_drop_qpn.get() & 0xff_ffff,
                    flags,
                    vlan: cqe.vlan_info.get(),
                    timestamp: cqe.timestamp.get(),
                    ..completion
                }
            }
            // An opcode that raw packet queue pairs do not have.
            _ => Completion { status: Status::General, opcode: wc_opcode::RECV, ..completion },
        })
    }

    /// If this completion is the one that the queue was armed for, an event is on its way.
    fn event_made(&self, entry: &[u8; ENTRY]) {
        let op_own = entry[ENTRY - 1];
        let notable = op_own & SOLICITED != 0 || matches!(op_own >> 4, CQE_REQ_ERR | CQE_RESP_ERR);
        let armed = self.shared.armed.load(Ordering::Relaxed);
        if armed == ARMED || (armed == ARMED_SOLICITED && notable) {
            self.shared.armed.store(NOT_ARMED, Ordering::Relaxed);
            self.shared.sequence.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Asks for an event at the next completion, or the next solicited one.
    pub(crate) fn arm(&self, solicited_only: bool) {
        let shared = &*self.shared;
        let (command, armed) = if solicited_only { (1 << 24, ARMED_SOLICITED) } else { (0, ARMED) };
        let sequence = shared.sequence.load(Ordering::Relaxed) & 3;
        let next = shared.next.load(Ordering::Relaxed) as u32 & COUNTER;
        shared.armed.store(armed, Ordering::Relaxed);
        let word = sequence << 28 | command | next;
        shared.record.store(ARM, word);
        let mut doorbell = [0; 8];
        doorbell[..4].copy_from_slice(&word.to_be_bytes());
        doorbell[4..].copy_from_slice(&shared.number.to_be_bytes());
        shared.registers.ring(CQ_DOORBELL, doorbell);
    }
}

/// Whether the frame that came in was IPv4; its checksum is meant.
fn is_ipv4(cqe: &Cqe64) -> bool {
    cqe.l4_hdr_type_etc >> 2 & 3 == 2
}

/// `mlx5_handle_error_cqe`, cq.c, Linux 6.1.
fn status(syndrome: u8) -> Status {
    use uverbs_abi::mlx5::wqe as abi;
    match syndrome {
        abi::SYNDROME_LOCAL_LENGTH_ERR => Status::LocalLength,
        abi::SYNDROME_LOCAL_QP_OP_ERR => Status::LocalQpOperation,
        abi::SYNDROME_LOCAL_PROT_ERR => Status::LocalProtection,
        abi::SYNDROME_WR_FLUSH_ERR => Status::Flushed,
        abi::SYNDROME_MW_BIND_ERR => Status::WindowBind,
        abi::SYNDROME_BAD_RESP_ERR => Status::BadResponse,
        abi::SYNDROME_LOCAL_ACCESS_ERR => Status::LocalAccess,
        abi::SYNDROME_REMOTE_INVAL_REQ_ERR => Status::RemoteInvalidRequest,
        abi::SYNDROME_REMOTE_ACCESS_ERR => Status::RemoteAccess,
        abi::SYNDROME_REMOTE_OP_ERR => Status::RemoteOperation,
        abi::SYNDROME_TRANSPORT_RETRY_EXC_ERR => Status::RetryExceeded,
        abi::SYNDROME_RNR_RETRY_EXC_ERR => Status::RnrRetryExceeded,
        abi::SYNDROME_REMOTE_ABORTED_ERR => Status::RemoteAborted,
        _ => Status::General,
    }
}
