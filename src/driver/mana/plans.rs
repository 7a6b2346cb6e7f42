//! Objects that are about to be created: this side allocates their memory, and the kernel returns the device's numbers.
//!
//! Source: `mana_ib_create_cq` and `mana_ib_create_rc_qp`, hw/mana, Linux 7.3; `get_queue_size`, providers/mana/qp.c, rdma-core 65.

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::mana::{CREATE_RNIC_CQ, CreateCq, CreateCqResp, CreateRcQp, CreateRcQpResp};
use uverbs_abi::types::{QpCreateFlags, driver_id, qp_type};
use uverbs_abi::write::QpCap;
use zerocopy::{FromZeros, IntoBytes};

use super::doorbell::Doorbell;
use super::gdma::{LARGEST, UNIT, receive_size, send_size};
use super::sends::Rings;
use super::side::{CompletionSide, ENTRY, Known as Entry};
use super::track::{Lane, Numbers, TRAILER, Track};
use super::{Completions, Limits, Receives, Sends, State};
use crate::driver::ring::units::Units;
use crate::driver::seam::{
    CqShape, Created, Kernel, Payload, Plan, Planned, QpQueues, QpShape, Queues, Sides, own,
};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

const TYPES: &str = "mana has reliable connections (rc) only";
const SHARED: &str = "mana has no shared receive queues";
/// Its operations: bits of `enum ibv_qp_create_send_ops_flags` (verbs.h), of writes, messages, each also with immediate data, and reads.
const OPERATIONS: u64 = 0x1f;
const OTHERS: &str = "mana has messages, writes and reads, and no other operations";
const FLAGS: &str = "mana's queue pairs have no options except that all sends are signaled";

/// The smallest ring, which is also the size of the rings whose requests others write, and of that for the answers to reads.
const SMALLEST: usize = 4096;

impl Queues for State {
    const NUMBER: u32 = driver_id::MANA;

    type Completions = Completions;
    type Sends = Sends;
    type Receives = Receives;
    type Shared = Receives;

    fn plan_cq(
        &self,
        op: &'static str,
        shape: &CqShape<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<u32, Completions> {
        let most = self.limits(op, kernel)?.entries;
        if shape.entries == 0 || shape.entries > most {
            return Err(Error::outside(op, "entries", shape.entries, format_args!("1 to {most}")));
        }
        Ok(Box::new(CqPlan::new(op, shape.entries, self.page(op, kernel)?)?))
    }

    fn plan_qp(
        &self,
        op: &'static str,
        shape: &QpShape,
        sides: Sides<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<QpCap, QpQueues<Sends, Receives>> {
        shape.only(op, &[qp_type::RC], [TYPES, SHARED, FLAGS])?;
        if shape.operations.is_some_and(|operations| operations & !OPERATIONS != 0) {
            return Err(Error::refused(op, Errno::EOPNOTSUPP, OTHERS));
        }
        let [sends, receives] = sides.queues;
        let sides = [own(op, sends.clone())?, own(op, receives.clone())?];
        Ok(Box::new(QpPlan::new(op, shape, self.limits(op, kernel)?, sides, self.page(op, kernel)?)?))
    }
}

fn block(op: &'static str, bytes: usize) -> Result<Mapping> {
    Mapping::block(bytes).map_err(|errno| Error::kernel(op, errno))
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CqPlan {
    request: CreateCq,
    answer: CreateCqResp,
    entries: u32,
    memory: Mapping,
    page: Mapping,
}

impl CqPlan {
    pub(super) fn new(op: &'static str, wanted: u32, page: Mapping) -> Result<Self> {
        let entries = wanted.max((SMALLEST / ENTRY) as u32).next_power_of_two();
        let memory = block(op, entries as usize * ENTRY)?;
        let request =
            CreateCq { buf_addr: memory.address(), comp_mask: CREATE_RNIC_CQ, ..CreateCq::new_zeroed() };
        Ok(Self { request, answer: CreateCqResp::new_zeroed(), entries, memory, page })
    }
}

impl Plan<u32, Completions> for CqPlan {
    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.answer.as_mut_bytes())
    }

    /// The kernel reads as much memory as this number says (`mana_ib_create_cq`, hw/mana/cq.c).
    fn asked(&self, _: u32) -> u32 {
        self.entries
    }

    fn memory(&self) -> Option<&Mapping> {
        Some(&self.memory)
    }

    fn open(self: Box<Self>, made: Created<'_, u32>) -> Result<Completions> {
        let Self { answer, entries, memory, page, .. } = *self;
        let units = Units::new(&memory, 0, entries as usize * ENTRY);
        let units =
            units.ok_or_else(|| Error::malformed(made.op, "memory of a completion queue that is none"))?;
        let doorbell = Doorbell::new(made.op, &page, Doorbell::ENTRIES)?;
        let side = CompletionSide::new(answer.cqid & 0xff_ffff, doorbell, units, entries);
        Ok(Completions::new(Arc::new(side)))
    }
}

/// A queue pair that is in the tables of its completion queues as long as this exists.
#[derive(Debug)]
pub(super) struct Registered {
    track: Arc<Track>,
    sides: [Arc<CompletionSide>; 2],
}

impl Registered {
    fn new(track: Track, sides: [Arc<CompletionSide>; 2]) -> Self {
        // An earlier queue pair may have had the same numbers, and have left entries.
        track.reset(sides.each_ref().map(|side| side.written()));
        let track = Arc::new(track);
        let [sends, receives] = &sides;
        let entry = |sends, receives| Entry { track: track.clone(), sends, receives };
        if Arc::ptr_eq(sends, receives) {
            sends.add(entry(true, true));
        } else {
            sends.add(entry(true, false));
            receives.add(entry(false, true));
        }
        Self { track, sides }
    }

    pub(super) fn track(&self) -> &Track {
        &self.track
    }

    /// The queue pair was reset.
    pub(super) fn reset(&self) {
        self.track.reset(self.sides.each_ref().map(|side| side.written()));
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sides.iter().for_each(|side| side.remove(&self.track));
        // A poller may have an entry of it of which not all sends have completed, or have to flush it.
        if self.sides.iter().all(|side| side.is_here()) {
            self.track.retire();
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QpPlan {
    request: CreateRcQp,
    answer: CreateRcQpResp,
    cap: QpCap,
    signals_all: bool,
    /// The sizes of the rings that this side writes, without what is behind that of sends: of sends, of answers, of receives.
    sizes: [usize; 3],
    /// The memory of all rings, and where they begin.
    memory: Mapping,
    places: [usize; 4],
    sides: [Arc<CompletionSide>; 2],
    page: Mapping,
}

#[cfg(test)]
impl QpPlan {
    /// Where the rings begin in the memory.
    pub(super) fn places(&self) -> [usize; 4] {
        self.places
    }
}

/// The size of a ring of so many requests of this size.
fn ring_size(op: &'static str, requests: u32, size: usize) -> Result<usize> {
    let places = requests.max(1).checked_next_power_of_two().map(|places| places as usize);
    let bytes = places.and_then(|places| places.checked_mul(size)).and_then(usize::checked_next_power_of_two);
    bytes.map(|bytes| bytes.max(SMALLEST)).ok_or_else(|| Error::kernel(op, Errno::ENOMEM))
}

impl QpPlan {
    pub(super) fn new(
        op: &'static str,
        shape: &QpShape,
        limits: Limits,
        sides: [Arc<CompletionSide>; 2],
        page: Mapping,
    ) -> Result<Self> {
        let (Limits { requests, pieces, .. }, cap) = (limits, shape.cap);
        for (what, given, most) in [
            ("sends", cap.max_send_wr, requests),
            ("receives", cap.max_recv_wr, requests),
            ("pieces of a send", cap.max_send_sge, pieces),
            ("pieces of a receive", cap.max_recv_sge, pieces),
        ] {
            if given > most {
                return Err(Error::beyond(op, what, given, most));
            }
        }
        if cap.max_inline_data > 0 {
            return Err(Error::beyond(op, "bytes of inline data", cap.max_inline_data, 0));
        }
        // A write with immediate data needs the room of one piece more.
        let (send, receive) =
            (send_size(cap.max_send_sge.max(1) as usize + 1), receive_size(cap.max_recv_sge as usize));
        if send > LARGEST || receive > LARGEST {
            return Err(Error::beyond(op, "bytes of a request", send.max(receive), LARGEST));
        }
        let sizes =
            [ring_size(op, cap.max_send_wr, send)?, SMALLEST, ring_size(op, cap.max_recv_wr, receive)?];
        let all = [sizes[0] + TRAILER, SMALLEST, sizes[1], sizes[2]];
        // Each ring has to begin with a page of the device (`mana_ib_create_zero_offset_dma_region`, hw/mana/main.c).
        let mut places = [0; 4];
        let mut request = CreateRcQp::new_zeroed();
        let mut end = 0_usize;
        for (i, size) in all.into_iter().enumerate() {
            places[i] = end;
            request.queue_size[i] = u32::try_from(size).map_err(|_| Error::kernel(op, Errno::ENOMEM))?;
            end = end.saturating_add(size.next_multiple_of(SMALLEST));
        }
        let memory = block(op, end)?;
        request.queue_buf = places.map(|place| memory.address() + place as u64);
        let (answer, signals_all) =
            (CreateRcQpResp::new_zeroed(), shape.flags.contains(QpCreateFlags::SQ_SIG_ALL));
        Ok(Self { request, answer, cap, signals_all, sizes, memory, places, sides, page })
    }
}

impl Plan<QpCap, QpQueues<Sends, Receives>> for QpPlan {
    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.answer.as_mut_bytes())
    }

    fn memory(&self) -> Option<&Mapping> {
        Some(&self.memory)
    }

    fn open(self: Box<Self>, made: Created<'_, QpCap>) -> Result<QpQueues<Sends, Receives>> {
        let op = made.op;
        let Self { answer, cap, signals_all, sizes, memory, places, sides, page, .. } = *self;
        let [sends, _, answers, receives] = answer.queue_id.map(|id| id & 0xff_ffff);
        let numbers = Numbers { qp: receives, sends, answers };
        if made.number != receives {
            return Err(Error::malformed(op, "a queue pair with another number than its receives"));
        }
        let units = |ring: usize, bytes| {
            Units::new(&memory, places[ring], bytes)
                .ok_or_else(|| Error::malformed(op, "memory of a ring that is none"))
        };
        let bell = |offset| Doorbell::new(op, &page, offset);
        let lanes = [Lane::new(op, cap.max_send_wr)?, Lane::new(op, cap.max_recv_wr)?];
        let rings = Rings {
            sends: units(0, sizes[0])?,
            answers: units(2, sizes[1])?,
            answer_units: (sizes[1] / UNIT) as u32,
            send_bell: bell(Doorbell::SENDS)?,
            answer_bell: bell(Doorbell::RECEIVES)?,
        };
        let ring = units(3, sizes[2])?;
        let weak = sides.each_ref().map(Arc::downgrade);
        let track =
            Track::new(numbers, lanes, bell(Doorbell::ARM)?, (memory.clone(), places[0] + sizes[0]), weak);
        let registered = Arc::new(Registered::new(track, sides));
        let sends = Sends::new(registered.clone(), rings, cap.max_send_sge, signals_all);
        let receives = Receives::new(registered.clone(), ring, bell(Doorbell::RECEIVES)?, cap.max_recv_sge);
        Ok(QpQueues { sends, receives: Some(receives), cap: made.size, known: Some(registered) })
    }
}
