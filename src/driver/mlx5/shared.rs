//! Shared receive queues.
//!
//! The entries are a linked list: each names the next one in its first segment. The device begins with entry zero, takes as many entries
//! as the counter in the doorbell record says, and follows the links. An entry that has completed, in any order, is appended to the list
//! again. The last entry of the list is never posted, because it has no link yet. There is therefore one entry more than can be posted.
//!
//! One thread posts while others may poll: completions of the queue arrive in the completion queue of each queue pair that receives from
//! it. A poller marks an entry as done. The poster looks for such entries when it reaches the end of the list, and appends them.
//!
//! A queue of extended reliable connections has its own completion queue, in which an index identifies it like a queue pair.
//!
//! Source: `mlx5_ib_create_srq`, srq.c; `struct mlx5_wqe_srq_next_seg`, qp.h; Linux 6.1.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use uverbs_abi::mlx5::wqe::{RCV_DBR, WqeSrqNextSeg};
use uverbs_abi::mlx5::{CreateSrq, CreateSrqResp};
use zerocopy::{FromZeros, IntoBytes};

use super::completions::CompletionSide;
use super::receives::{put_pieces, put_segment, segment};
use super::shape::{Queues, Source, part, word};
use super::sizes::{self, SEGMENT, floor};
use super::{Form, Limits};
use crate::driver::request::{Refused, Sge};
use crate::driver::ring::units::{self, Units, Word};
#[cfg(feature = "raw")]
use crate::driver::seam::OwnRing;
use crate::driver::seam::{
    Created, FillReceives, LowerReceive, Payload, Plains, Plan, ReceiveBatch, ReceiveRing, SrqSide,
};
use crate::kernel::error::{Error, Result, limit};
use crate::kernel::mapping::Mapping;

/// The part of an entry before its segments, in units of a segment.
const HEAD: u32 = 1;
const LEAST_STRIDE: u32 = 32;
/// The least size of memory for a ring. An entry of a queue without requests is smaller.
const LEAST_MEMORY: usize = 64;
/// The number of segments of an entry has eight bits.
const MOST_STRIDE: u32 = 128 * SEGMENT;

/// A shared receive queue that is about to be created: the driver's request, and the memory.
#[derive(Debug)]
pub(crate) struct SrqPlan {
    /// The ring, and the doorbell record on a separate page.
    memory: Mapping,
    units: Units,
    counter: Word,
    places: Arc<Places>,
    queues: Option<Queues>,
    request: CreateSrq,
    response: CreateSrqResp,
}

impl SrqPlan {
    /// For `depth` requests of `segments` segments. A queue of extended connections completes in a queue, and `index` returns numbers by
    /// which its completions name it.
    pub(crate) fn new(
        op: &'static str,
        depth: u32,
        segments: u32,
        limits: &Limits,
        queue: Option<&Arc<CompletionSide>>,
        index: impl FnMut() -> u32,
    ) -> Result<Self> {
        let (entries, stride) = size(depth, segments, limits).map_err(|hint| sizes::refused(op, hint))?;
        let bytes = entries as usize * stride as usize;
        let record = bytes.next_multiple_of(4096);
        let memory = limits.memory.block(record + 4096).map_err(|errno| Error::kernel(op, errno))?;
        let (units, counter) =
            (part(op, &memory, 0, bytes.max(LEAST_MEMORY))?, word(op, &memory, record + 4 * RCV_DBR)?);
        // The largest stride has fewer.
        let places = Places::new(op, entries, (stride / SEGMENT - HEAD) as u8)?;
        let source = Source::Shared(places.clone());
        let queues =
            queue.map(|queue| Queues::join(op, [queue; 2], Form::Messages, 0, source, index)).transpose()?;
        let request = CreateSrq {
            buf_addr: memory.address(),
            db_addr: memory.address() + record as u64,
            uidx: queues.as_ref().map_or(0, |queues| queues.track().index()),
            ..CreateSrq::new_zeroed()
        };
        let response = CreateSrqResp::new_zeroed();
        Ok(Self { memory, units, counter, places, queues, request, response })
    }
}

impl Plan<[u32; 2], SharedReceives> for SrqPlan {
    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    fn memory(&self) -> Option<&Mapping> {
        Some(&self.memory)
    }

    fn asked(&self, _: [u32; 2]) -> [u32; 2] {
        [self.places.last().into(), self.places.segments()]
    }

    fn open(self: Box<Self>, _: Created<'_, [u32; 2]>) -> Result<SharedReceives> {
        let Self { units, counter, places, queues, .. } = *self;
        let last = places.last();
        let mut queue = SharedReceives {
            units,
            counter,
            places,
            ends: Ends { head: Head::default(), tail: last },
            #[cfg(feature = "raw")]
            number: self.response.srqn,
            _queues: queues,
        };
        let mut list = queue.list();
        (0..=last).for_each(|entry| list.put_link(entry, entry.wrapping_add(1) & last));
        Ok(queue)
    }
}

/// The number of entries, and the size of one. The error is a hint.
fn size(depth: u32, segments: u32, limits: &Limits) -> Result<(u32, u32), String> {
    // One entry more than can be posted. The number of an entry has 16 bits.
    let most = floor(limits.max_shared.min(1 << u16::BITS)).saturating_sub(1);
    if depth > most {
        let what = "requests of a shared receive queue (max_srq_wr)";
        return Err(limit(what, depth, format_args!("at most {most}")));
    }
    // The kernel refuses an entry that is larger than a receive (`mlx5_ib_create_srq`, srq.c, Linux 6.1.192).
    let most = floor(limits.max_receive).min(MOST_STRIDE) / SEGMENT;
    if segments.saturating_add(HEAD) > most {
        let what = "segments of a request of a shared receive queue (max_srq_sge)";
        return Err(limit(what, segments, format_args!("at most {}", most.saturating_sub(HEAD))));
    }
    let stride = ((HEAD + segments) * SEGMENT).next_power_of_two().max(LEAST_STRIDE);
    Ok(((depth + 1).next_power_of_two(), stride))
}

/// The state of the entries, which pollers and the poster share.
pub(crate) struct Places {
    entries: Box<[Place]>,
}

#[derive(Debug, Default)]
struct Place {
    wr_id: AtomicU64,
    state: AtomicU8,
    /// Used by the poster: the next entry, which is also in the link of the entry.
    link: AtomicU16,
    /// Position and number of its segments.
    first: u32,
    segments: u8,
}

/// States of an entry: in the list and free, posted, taken by a poller, and completed but not in the list yet.
const FREE: u8 = 0;
const POSTED: u8 = 1;
const TAKEN: u8 = 2;
const DONE: u8 = 3;

/// Does not print the entries, of which there may be thousands.
impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("entries", &self.entries.len()).finish()
    }
}

impl Places {
    fn new(op: &'static str, count: u32, segments: u8) -> Result<Arc<Self>> {
        let mut entries = Error::room(op, count as usize)?;
        let first = |entry: u32| entry * (HEAD + u32::from(segments)) + HEAD;
        entries.extend((0..count).map(|entry| Place { first: first(entry), segments, ..Place::default() }));
        Ok(Arc::new(Self { entries: entries.into_boxed_slice() }))
    }

    /// The last entry of the ring. There is at least one, and their number is a power of two.
    fn last(&self) -> u16 {
        (self.entries.len() - 1) as u16
    }

    /// Number of segments of each entry.
    fn segments(&self) -> u32 {
        self.entries.first().map_or(0, |place| place.segments.into())
    }

    /// Called by a poller. The number of the request in this entry, which is done. If a device reports an entry that is not posted, or
    /// reports one to two pollers, the entry stays in the list and the completion is ignored.
    pub(super) fn complete(&self, entry: u16) -> Option<u64> {
        let place = self.entries.get(usize::from(entry))?;
        // This is also correct for a device that reports a request before the request was announced to it: the entry then has the number
        // of that request.
        place.state.compare_exchange(POSTED, TAKEN, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let wr_id = place.wr_id.load(Ordering::Relaxed);
        place.state.store(DONE, Ordering::Release);
        Some(wr_id)
    }
}

impl Place {
    /// Called by the poster. Whether this entry is done. It then belongs to the poster again.
    fn take_back(&self) -> bool {
        let is_done = self.state.load(Ordering::Acquire) == DONE;
        if is_done {
            self.state.store(FREE, Ordering::Relaxed);
        }
        is_done
    }
}

/// The entry that is filled next, and the number of entries filled so far. The device gets the lower half of that number.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    entry: u16,
    filled: u16,
}

/// The beginning and the end of the list: the entry after the last one that was published, and the last entry.
#[derive(Debug)]
struct Ends {
    head: Head,
    tail: u16,
}

/// The part of a shared receive queue that posts; see the module's page.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    units: Units,
    counter: Word,
    places: Arc<Places>,
    ends: Ends,
    #[cfg(feature = "raw")]
    number: u32,
    /// For a queue of extended connections: the queue in which it completes.
    _queues: Option<Queues>,
}

impl SharedReceives {
    /// The state that is shared with the queue pairs that receive from the queue.
    #[cfg(test)]
    pub(super) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    fn list(&mut self) -> List<'_> {
        List { units: self.units.writing(), entries: &self.places.entries }
    }

    /// Borrows the queue for a batch.
    #[inline(always)]
    pub(crate) fn writing(&mut self) -> Writing<'_> {
        let Self { units, counter, places, ends, .. } = self;
        let list = List { units: units.writing(), entries: &places.entries };
        Writing { list, head: ends.head, ends, counter }
    }
}

/// The entries as a list.
#[derive(Debug)]
struct List<'a> {
    units: units::Writing<'a>,
    entries: &'a [Place],
}

impl List<'_> {
    /// Lends the list to another call.
    #[inline]
    fn lend(&mut self) -> List<'_> {
        List { units: self.units.lend(), entries: self.entries }
    }

    /// Links this entry to the next one.
    fn put_link(&mut self, entry: u16, link: u16) {
        let Some(place) = self.entries.get(usize::from(entry)) else { return };
        place.link.store(link, Ordering::Relaxed);
        let head = WqeSrqNextSeg { next_wqe_index: link.into(), ..WqeSrqNextSeg::new_zeroed() };
        self.units.put((place.first - HEAD) as usize, head);
    }

    /// Appends the entries that are done, as long as they follow one another, and returns the last entry of the list.
    #[inline(never)]
    fn extend(mut self, end: u16) -> u16 {
        let last = (self.entries.len() - 1) as u16;
        let (mut entry, mut tail) = (end, end);
        loop {
            entry = entry.wrapping_add(1) & last;
            if entry == end {
                break;
            }
            if self.entries.get(usize::from(entry)).is_some_and(Place::take_back) {
                self.put_link(tail, entry);
                tail = entry;
            } else if tail != end {
                break;
            }
        }
        tail
    }
}

/// A shared receive queue, borrowed to be written. What was filled is discarded unless [`end`](Self::end) is called.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    list: List<'a>,
    head: Head,
    ends: &'a mut Ends,
    counter: &'a Word,
}

impl Writing<'_> {
    /// Shows the device every entry that was filled, or discards them.
    #[inline(always)]
    pub(crate) fn end(mut self, is_kept: bool) {
        if is_kept {
            self.ends.head = self.head;
            self.counter.tell(self.head.filled.into());
        } else {
            self.forget();
        }
        std::mem::forget(self);
    }

    #[cold]
    #[inline(never)]
    fn forget(&mut self) {
        let Head { mut entry, filled } = self.ends.head;
        for _ in 0..self.head.filled.wrapping_sub(filled) {
            let Some(place) = self.list.entries.get(usize::from(entry)) else { break };
            place.state.store(FREE, Ordering::Relaxed);
            entry = place.link.load(Ordering::Relaxed);
        }
        self.head = self.ends.head;
    }
}

/// Without a call of `end`, what was filled is discarded.
impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}

impl LowerReceive for Writing<'_> {
    #[inline]
    fn next_slot(&self) -> u32 {
        self.head.entry.into()
    }

    #[inline(always)]
    fn links(&self) -> impl Fn(u32) -> Option<u32> {
        let entries = self.list.entries;
        |slot| Some(entries.get(slot as usize)?.link.load(Ordering::Relaxed).into())
    }

    #[inline(always)]
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        let Head { entry, filled } = self.head;
        if entry == self.ends.tail {
            self.ends.tail = self.list.lend().extend(entry);
            if self.ends.tail == entry {
                return Err(Refused::Full);
            }
        }
        let List { ref mut units, entries } = self.list;
        let Some(place) = entries.get(usize::from(entry)) else { return Err(Refused::Full) };
        // If the request is refused, the number is not used: the entry is not posted.
        place.wr_id.store(wr_id, Ordering::Relaxed);
        put_pieces(units.lend(), place.first as usize, place.segments.into(), pieces)?;
        place.state.store(POSTED, Ordering::Release);
        self.head = Head { entry: place.link.load(Ordering::Relaxed), filled: filled.wrapping_add(1) };
        Ok(())
    }
}

impl ReceiveRing for SharedReceives {
    fn slots(&self) -> usize {
        self.places.entries.len()
    }

    /// One of the entries is never posted.
    fn capacity(&self) -> u32 {
        self.places.last().into()
    }

    fn side(&self) -> SrqSide {
        self.places.clone()
    }

    #[cfg(feature = "raw")]
    fn number(&self) -> Option<u32> {
        Some(self.number)
    }

    fn next_slot(&self) -> u32 {
        self.ends.head.entry.into()
    }

    #[inline(always)]
    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let mut batch = ReceiveBatch::new(self.writing(), pieces);
        let answer = how.fill(&mut batch);
        batch.lower.end(F::is_kept(&answer));
        answer
    }

    /// What was filled is discarded already.
    fn rewind(&mut self) {}

    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        Some(OwnRing {
            address: self.units.address(),
            entry_size: (self.places.segments() + HEAD) * SEGMENT,
            entries: self.places.entries.len() as u32,
            record: self.counter.address(),
            list: [self.ends.head.entry, self.ends.tail].map(u32::from),
            ..OwnRing::default()
        })
    }

    const HAS_FAST: bool = true;

    #[inline(always)]
    fn post_fast(&mut self, wr_id: u64, piece: &Sge) -> Option<u32> {
        let entry = self.ends.head.entry;
        self.post_list_fast(std::iter::once(Some((wr_id, piece)))).then_some(entry.into())
    }

    #[inline(always)]
    fn post_list_fast<'p>(&mut self, requests: impl Plains<'p>) -> bool {
        let Self { units, counter, places, ends, .. } = self;
        let entries = &places.entries[..];
        let mut list = List { units: units.writing(), entries };
        let Head { mut entry, filled } = ends.head;
        let count = requests.len();
        for (index, request) in requests.enumerate() {
            let next = request.and_then(|(wr_id, piece)| {
                if entry == ends.tail {
                    ends.tail = list.lend().extend(entry);
                    if entry == ends.tail {
                        return None;
                    }
                }
                let (place, segment) = (entries.get(usize::from(entry))?, segment(piece)?);
                place.wr_id.store(wr_id, Ordering::Relaxed);
                put_segment(&mut list.units, place.first as usize, place.segments.into(), segment);
                place.state.store(POSTED, Ordering::Release);
                Some(place.link.load(Ordering::Relaxed))
            });
            let Some(next) = next else {
                let head = Head { entry, filled: filled.wrapping_add(index as u16) };
                drop(Writing { list, head, ends, counter });
                return false;
            };
            entry = next;
        }
        ends.head = Head { entry, filled: filled.wrapping_add(count as u16) };
        counter.tell(ends.head.filled.into());
        true
    }
}
