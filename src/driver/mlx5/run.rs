//! Completions that come one behind the other: of requests of one queue pair that succeeded, all sent or all received.
//!
//! A loop over those has little to ask of each, and all that it asks is at hand. Whatever is something else is taken by the longer way,
//! [`Completions::next_if`].

use std::mem::offset_of;

use uverbs_abi::mlx5::wqe::{CQE_REQ, CQE_RESP_SEND, CQE_RESP_SEND_INV, CQE_RESP_WR_IMM, Cqe64, OPCODE_UMR};
use uverbs_abi::write::Wc;
use zerocopy::big_endian::U16;

use super::completion_ring::Entries;
use super::completions::{CompletionSide, Completions, index_of};
use super::entry::{HAS_DATA, Sent, frame, message};
use super::track::Track;
use crate::driver::completion::Extended;
use crate::driver::ring::units::Item;

/// What such completions are of: what was sent, or messages or frames that came in.
const SENT: u8 = 0;
const MESSAGES: u8 = 1;
const FRAMES: u8 = 2;

/// Whether an entry is of that, by its opcode, and that there is no data in it: in one look.
#[inline(always)]
fn is_of<const KIND: u8>(cqe: &Item<'_, Cqe64>) -> bool {
    const DATA: u8 = HAS_DATA >> 2;
    let kind = cqe.field::<{ offset_of!(Cqe64, op_own) }, u8>() >> 2;
    match KIND {
        SENT => kind == CQE_REQ << 2,
        FRAMES => kind == CQE_RESP_SEND << 2,
        _ => {
            let most = (CQE_RESP_SEND_INV - CQE_RESP_WR_IMM) << 2;
            kind & DATA == 0 && kind.wrapping_sub(CQE_RESP_WR_IMM << 2) <= most
        }
    }
}

/// What that entry says, which stands at `position`, if its request is of this life of this queue pair; it is done then. None of a change
/// of keys, whose opcode does not say which.
#[inline(always)]
fn take<const KIND: u8>(cqe: &Item<'_, Cqe64>, track: &Track, position: u64) -> Option<Extended> {
    let opcode = cqe.field::<{ offset_of!(Cqe64, sop_drop_qpn) }, u8>();
    if KIND == SENT && opcode == OPCODE_UMR {
        return None;
    }
    let counter = cqe.field::<{ offset_of!(Cqe64, wqe_counter) }, U16>().get();
    let lane = if KIND == SENT { &track.sends } else { &track.receives };
    let wr_id = lane.complete(counter, position)?;
    let wc = Wc { wr_id, qp_num: track.number(), ..Wc::default() };
    let cqe = cqe.read();
    let wc = match KIND {
        FRAMES => return Some(frame(&cqe, wc)),
        SENT => Sent::of(cqe.sop_drop_qpn.get()).said(&cqe, wc),
        _ => message(&cqe, wc),
    };
    Some(Extended { wc, vlan: 0, timestamp: cqe.timestamp.get() })
}

/// Completions of one queue pair, from one on that is known to be there, while they are taken.
struct Run<'a, May> {
    ring: Entries<'a>,
    track: &'a Track,
    shared: &'a CompletionSide,
    /// What is known of who completes here.
    changes: u32,
    may_take: May,
}

impl<May: Fn() -> bool> Run<'_, May> {
    /// Fills `places` from the one at `position` on, as far as they are of this kind, and says how many.
    #[inline(always)]
    fn take<const KIND: u8, T>(
        self,
        position: u64,
        places: &mut [T],
        mut fill: impl FnMut(&mut T, &Extended),
    ) -> usize {
        let Self { ring, track, shared, changes, may_take } = self;
        let (mut cqe, mut at, mut rest) = (ring.entry(position), position, places);
        let mut in_ring = ring.place(position);
        while let [place, behind @ ..] = rest {
            let Some(said) = take::<KIND>(&cqe, track, at) else { break };
            fill(place, &said);
            at += 1;
            rest = behind;
            if rest.is_empty() {
                break;
            }
            in_ring = ring.behind(in_ring);
            let Some(next) = ring.filled_at(in_ring, at) else { break };
            let is_changed = shared.changes() != changes;
            if is_changed || !track.is_of(index_of(&next)) || !is_of::<KIND>(&next) || !may_take() {
                break;
            }
            cqe = next;
        }
        (at - position) as usize
    }
}

impl Completions {
    /// Fills `places` with such completions from the next one on, as far as they are of one kind and `may_take` lets, and says how many;
    /// their own places are not given back. If none may be taken, whether the device has written none.
    #[inline(always)]
    pub(super) fn run<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        fill: impl FnMut(&mut T, &Extended),
    ) -> Result<usize, bool> {
        let Self { ring, position, known, changes, shared, .. } = self;
        let (ring, shared, at) = (ring.reading(), &**shared, *position);
        let cqe = ring.filled(at).ok_or(true)?;
        if shared.is_armed() || shared.changes() != *changes {
            return Ok(0);
        }
        if !may_take() {
            return Err(false);
        }
        let Some(track) = known.get(index_of(&cqe)) else { return Ok(0) };
        let run = Run { ring, track, shared, changes: *changes, may_take };
        let count = if is_of::<SENT>(&cqe) {
            run.take::<SENT, T>(at, places, fill)
        } else if track.has_frames {
            if !is_of::<FRAMES>(&cqe) {
                return Ok(0);
            }
            run.take::<FRAMES, T>(at, places, fill)
        } else {
            if !is_of::<MESSAGES>(&cqe) {
                return Ok(0);
            }
            run.take::<MESSAGES, T>(at, places, fill)
        };
        *position = at + count as u64;
        Ok(count)
    }
}
