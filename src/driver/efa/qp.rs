//! Queue pairs of efa that are about to be created.
//!
//! Source: `efa_setup_qp`, `efa_check_qp_limits` and `create_qp`, providers/efa/verbs.c, rdma-core 65; `efa_create_qp`,
//! efa_verbs.c, Linux 6.1 to 7.3.

use std::sync::Arc;

use uverbs_abi::efa::io::{TX_DESC_INLINE_MAX_SIZE, TX_DESC_INLINE_MAX_SIZE_128};
use uverbs_abi::efa::{CreateQp, CreateQpResp, QP_DRIVER_TYPE_SRD};
use uverbs_abi::types::qp_type;
use uverbs_abi::write::QpCap;
use zerocopy::{FromZeros, IntoBytes};

use super::completions::CompletionSide;
use super::doorbell::Doorbell;
use super::receives::{PIECE, Receives};
use super::request::UNIT;
use super::sends::{Allowed, Device, SLOT, Sends, WIDE_SLOT};
use super::track::{Generations, MOST, Track};
use super::{Caps, Limits};
use crate::driver::ring::units::Units;
use crate::driver::seam::{Created, DriverQp, Kernel, Payload, Plan, QpQueues, QpShape};
use crate::kernel::error::{Error, Result};

/// State that both queues of a queue pair share. The queue pair is in the lists of its completion queues as long as one of the two
/// exists.
#[derive(Debug)]
pub(super) struct Queues {
    track: Arc<Track>,
    generation: u16,
    /// The completion queues for sends and for receives.
    sides: [Arc<CompletionSide>; 2],
}

impl Queues {
    pub(super) fn new(track: Track, sides: [Arc<CompletionSide>; 2]) -> Self {
        let track = Arc::new(track);
        let [sends, receives] = &sides;
        if Arc::ptr_eq(sends, receives) {
            sends.add(&track, true, true);
        } else {
            sends.add(&track, true, false);
            receives.add(&track, false, true);
        }
        let generation = track.next_generation();
        Self { track, generation, sides }
    }

    pub(super) fn track(&self) -> &Track {
        &self.track
    }

    /// The track, for a caller that keeps it.
    pub(super) fn shared_track(&self) -> &Arc<Track> {
        &self.track
    }

    /// The generation of its first life.
    pub(super) fn generation(&self) -> u16 {
        self.generation
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.sides.iter().for_each(|side| side.remove(&self.track));
    }
}

/// A queue pair that is about to be created.
#[derive(Debug)]
pub(crate) struct QpPlan {
    request: CreateQp,
    response: CreateQpResp,
    cap: QpCap,
    /// Bytes of a slot of the send ring, and the maximum number of slots that one doorbell announces.
    slot: usize,
    most_at_once: u32,
    /// Number of places of the receive ring.
    places: u32,
    allowed: Allowed,
    sides: [Arc<CompletionSide>; 2],
    generations: Arc<Generations>,
}

impl QpPlan {
    pub(super) fn new(
        op: &'static str,
        shape: &QpShape,
        (limits, caps): (&Limits, &Caps),
        sides: [Arc<CompletionSide>; 2],
        generations: &Arc<Generations>,
    ) -> Result<Self> {
        let is_reliable = shape.type_ == qp_type::DRIVER;
        let DriverQp { flags, service_level, inline_writes } = shape.driver;
        let QpCap { max_send_wr: sends, max_recv_wr: receives, max_inline_data: inline, .. } = shape.cap;
        let mut allowed = if is_reliable { caps.allowed() } else { Allowed::default() };
        allowed.inline_writes &= inline_writes != Some(false);
        let [narrow, most_inline] = limits.inline();
        if inline > most_inline {
            return Err(Error::beyond(op, "bytes of inline data", inline, most_inline));
        }
        // A write can have inline data only in a wide slot.
        let has_inline_writes = inline_writes.unwrap_or(inline > 0 && allowed.writes);
        let is_wide = inline > narrow || has_inline_writes;
        let slot = if is_wide { WIDE_SLOT } else { SLOT };
        let most = (limits.max_llq / slot as u32).min(MOST);
        let depth = match sends.max(limits.min_sends) {
            0 => 0,
            sends => sends.checked_next_power_of_two().unwrap_or(u32::MAX),
        };
        if depth > most {
            let most = if most == 0 { 0 } else { 1 << most.ilog2() };
            return Err(Error::beyond(op, "sends with such inline data", sends, most));
        }
        let batch = if limits.max_batch == 0 { u32::MAX } else { limits.max_batch / slot as u32 };
        // If the device has a minimum depth, a doorbell never announces the whole ring.
        let all = if limits.min_sends == 0 { depth } else { depth.saturating_sub(1) };

        let pieces = shape.cap.max_recv_sge.max(1);
        let places = match receives.checked_mul(pieces) {
            Some(0) => 0,
            Some(places) => places.checked_next_power_of_two().unwrap_or(u32::MAX),
            None => u32::MAX,
        };
        if places > MOST {
            let all = u64::from(receives) * u64::from(pieces);
            return Err(Error::beyond(op, "segments of all receives together", all, MOST));
        }
        let cap = QpCap {
            max_send_wr: depth,
            max_recv_wr: places / pieces,
            max_recv_sge: if receives == 0 { shape.cap.max_recv_sge } else { pieces },
            ..shape.cap
        };
        let request = CreateQp {
            rq_ring_size: places * PIECE as u32,
            sq_ring_size: depth * slot as u32,
            driver_qp_type: QP_DRIVER_TYPE_SRD,
            flags,
            sl: service_level,
            ..CreateQp::new_zeroed()
        };
        Ok(Self {
            request,
            response: CreateQpResp::new_zeroed(),
            cap,
            slot,
            most_at_once: batch.min(all),
            places,
            allowed,
            sides,
            generations: generations.clone(),
        })
    }

    /// The send ring in the device's memory.
    fn device(&self, op: &'static str, kernel: &dyn Kernel) -> Result<Device> {
        let CreateQpResp { llq_desc_offset, llq_desc_mmap_key, sq_db_mmap_key, sq_db_offset, .. } =
            self.response;
        let (begin, size) = (llq_desc_offset as usize, self.request.sq_ring_size as usize);
        let is_right = begin.is_multiple_of(SLOT) && begin < 1 << 16;
        if !is_right {
            return Err(Error::malformed(op, "a send ring that begins nowhere in its page"));
        }
        let doorbell = Doorbell::map(op, sq_db_mmap_key, sq_db_offset, kernel)?;
        let ring = Units::new(&kernel.map(op, llq_desc_mmap_key, begin + size)?, begin, size);
        let ring = ring.ok_or_else(|| Error::malformed(op, "a send ring that is no ring"))?;
        Ok(Device { ring, begin, doorbell })
    }
}

impl Plan<QpCap, QpQueues<Sends, Receives>> for QpPlan {
    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    /// The sizes of the queues, which are rounded up, because rings are powers of two.
    fn asked(&self, _: QpCap) -> QpCap {
        self.cap
    }

    fn open(self: Box<Self>, made: Created<'_, QpCap>) -> Result<QpQueues<Sends, Receives>> {
        let (Created { op, number, kernel, .. }, cap) = (made, self.cap);
        let response = &self.response;
        let [depth, requests] = [cap.max_send_wr, cap.max_recv_wr];
        let device = (depth > 0).then(|| self.device(op, kernel)).transpose()?;
        let ring = (requests > 0)
            .then(|| {
                let doorbell = Doorbell::map(op, response.rq_db_mmap_key, response.rq_db_offset, kernel)?;
                let size = usize::try_from(response.rq_mmap_size).unwrap_or(0);
                if size < self.places as usize * PIECE {
                    return Err(Error::malformed(op, "a receive ring smaller than was asked for"));
                }
                let memory = kernel.map(op, response.rq_mmap_key, size)?;
                // A ring that is smaller than a unit is the beginning of a whole one.
                let ring = Units::new(&memory, 0, (self.places as usize * PIECE).max(UNIT));
                Ok((ring.ok_or_else(|| Error::malformed(op, "a receive ring that is no ring"))?, doorbell))
            })
            .transpose()?;
        let track = Track::new(op, number, [depth, requests], &self.generations)?;
        let queues = Arc::new(Queues::new(track, self.sides));
        let sends =
            Sends::new(op, queues.clone(), device, [depth, self.most_at_once], self.slot, self.allowed)?;
        let sizes = [self.places, cap.max_recv_sge];
        let receives =
            ring.map(|(ring, doorbell)| Receives::new(op, queues, ring, doorbell, sizes)).transpose()?;
        Ok(QpQueues { sends, receives, cap, known: None })
    }
}

impl Limits {
    /// Maximum bytes of inline data in a narrow slot, and in the widest slot of the device.
    fn inline(&self) -> [u32; 2] {
        let [narrow, wide] = [TX_DESC_INLINE_MAX_SIZE as u32, TX_DESC_INLINE_MAX_SIZE_128 as u32];
        [self.inline.min(narrow), self.wide_inline.max(self.inline).min(wide)]
    }
}
