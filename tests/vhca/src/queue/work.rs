//! Rings of work requests, and the memory that they name.

use super::Pages;
use crate::bits::Bits;
use crate::command::Status;
use crate::ifc::context::{srqc, wq, xrc_srqc};
use vpci::{Fault, Memory};

/// The key that ends a list of segments.
const END_OF_LIST: u32 = 0x100;

/// A range of memory by its key, address and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) len: u32,
    pub(crate) key: u32,
    pub(crate) address: u64,
}

impl Segment {
    /// Its size in a work request in bytes.
    pub(crate) const SIZE: usize = 16;

    pub(crate) fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { len: word(0), key: word(4), address: u64::from(word(8)) << 32 | u64::from(word(12)) }
    }

    /// The segments in a work request, up to the one that ends the list.
    pub(crate) fn list(bytes: &[u8]) -> Vec<Self> {
        let (chunks, _) = bytes.as_chunks();
        chunks.iter().map(Self::parse).take_while(|segment| segment.key != END_OF_LIST).collect()
    }
}

/// A ring of work requests.
#[derive(Debug)]
pub(crate) struct WorkRing {
    pages: Pages,
    log_stride: u32,
    pub(crate) log_size: u32,
    pub(crate) doorbell: u64,
    pub(crate) pd: u32,
    /// Each request names the next one.
    pub(crate) is_linked: bool,
}

impl WorkRing {
    /// A ring that the context of a send or receive queue, or of a pool, describes.
    ///
    /// # Errors
    /// `BadParameter` for what the device does not support, and the errors of [`Pages::new`].
    pub(crate) fn new(context: &[u8]) -> Result<Self, Status> {
        let kind = context.num(wq::wq_type);
        let (log_stride, log_size) = (context.num(wq::log_wq_stride), context.num(wq::log_wq_sz));
        if kind > 1 || !(4..=13).contains(&log_stride) || log_size > 15 {
            return Err(Status::BadParameter);
        }
        let list = context.part(wq::pas);
        let pages = Pages::new(
            list,
            context.num(wq::log_wq_pg_sz),
            context.num(wq::page_offset),
            1 << (log_stride + log_size),
        )?;
        let (doorbell, pd) = (context.wide(wq::dbr_addr), context.num(wq::pd));
        Ok(Self { pages, log_stride, log_size, doorbell, pd, is_linked: kind == 0 })
    }

    /// A ring that CREATE_SRQ describes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn shared(context: &[u8], list: &[u8]) -> Result<Self, Status> {
        let (log_stride, log_size) = (context.num(srqc::log_rq_stride) + 4, context.num(srqc::log_srq_size));
        let (log_page, offset) = (context.num(srqc::log_page_size), context.num(srqc::page_offset));
        let pages = Pages::new(list, log_page, offset, 1 << (log_stride + log_size))?;
        let (doorbell, pd) = (context.wide(srqc::dbr_addr), context.num(srqc::pd));
        Ok(Self { pages, log_stride, log_size, doorbell, pd, is_linked: true })
    }

    /// A ring that CREATE_XRC_SRQ describes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn shared_xrc(context: &[u8], list: &[u8]) -> Result<Self, Status> {
        let high = context.wide(xrc_srqc::db_record_addr_h);
        let doorbell = high << 32 | context.wide(xrc_srqc::db_record_addr_l) << 2;
        // The other fields are at the same places as in the other kind of context.
        Ok(Self { doorbell, ..Self::shared(context, list)? })
    }

    /// A ring of a queue pair, which has both rings in one buffer.
    pub(crate) fn of_queue_pair(
        pages: Pages,
        log_stride: u32,
        log_size: u32,
        doorbell: u64,
        pd: u32,
    ) -> Self {
        Self { pages, log_stride, log_size, doorbell, pd, is_linked: false }
    }

    /// Bytes of an entry.
    pub(crate) fn stride(&self) -> usize {
        1 << self.log_stride
    }

    /// Reads from the entry with this index on.
    ///
    /// # Errors
    /// If the ring is not in the guest's memory.
    pub(crate) fn read(&self, memory: &Memory, index: u16, bytes: &mut [u8]) -> Result<(), Fault> {
        let index = u64::from(index) & ((1 << self.log_size) - 1);
        self.pages.read(memory, index << self.log_stride, bytes)
    }
}
