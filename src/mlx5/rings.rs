//! Requests and completions in the device's format.

use uverbs_abi::mlx5::wqe::Cqe64;
use zerocopy::IntoBytes;

use crate::driver::completion::{Completion, Place};
use crate::driver::mlx5::{Completions, Receives, Sends, Unit};
use crate::driver::request::Refused;
use crate::driver::seam::{ReceiveRing as _, SendRing as _};
use crate::kernel::error::Result;
use crate::kernel::process::Origin;
use crate::verbs::cq::CompletionQueue;
use crate::verbs::qp::{QpType, QueuePair};
use crate::verbs::work;

/// The send ring of a queue pair, for requests that the program lays out itself: those that no other call has.
///
/// As long as it is borrowed, nothing else can post to the queue pair; before and after it, everything can. The ring keeps the position
/// and the number of each request, so a poll reports it like any other, and [`CompletionRing`] also shows the device's entry.
///
/// A request names memory by keys. The device reads and writes what is registered, and refuses everything else: dropping a
/// [`MemoryRegion`](crate::MemoryRegion) ends its key, also for requests that were posted here, which then fail.
///
/// ```no_run
/// use uverbs::mlx5::SendRing;
/// # fn post(qp: &mut uverbs::QueuePair<uverbs::Rc>) -> uverbs::Result<()> {
/// const NOP: u32 = 0x00;
/// const COMPLETES: u8 = 8; // MLX5_WQE_CTRL_CQ_UPDATE
/// let mut control = [0; 16];
/// control[..4].copy_from_slice(&NOP.to_be_bytes());
/// control[11] = COMPLETES;
/// let mut ring = SendRing::of(qp)?;
/// ring.put(7, &[control])?;
/// ring.publish();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SendRing<'a> {
    ring: &'a mut Sends,
    /// A child of `fork` that has it neither writes the ring nor rings the doorbell.
    origin: Origin,
}

impl<'a> SendRing<'a> {
    /// Borrows the ring.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device of another driver; [`Busy`](crate::ErrorKind::Busy) while completion
    /// counters are bound to the queue pair; [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`.
    pub fn of<T: QpType>(qp: &'a mut QueuePair<T>) -> Result<Self> {
        let op = "send_ring.of";
        let context = qp.shared().object().context();
        let (lacks, origin) = (context.driver().lacking(op, "has no rings of mlx5"), context.origin());
        let (sends, _) = qp.rings_of::<Sends, Receives>(op)?;
        sends.map(|ring| Self { ring, origin }).ok_or(lacks)
    }

    /// Number of blocks of 64 bytes. A request takes as many as its units of 16 bytes need.
    pub fn blocks(&self) -> u32 {
        self.ring.slots() as u32
    }

    /// Number of blocks that are free: zero before the queue pair can send.
    pub fn free(&self) -> u32 {
        self.ring.free_blocks()
    }

    /// The counter of the block at which the next request begins, for requests that refer to others by it.
    pub fn next(&self) -> u16 {
        self.ring.next_block()
    }

    /// Writes a request of 1 to 63 units, of which the first is the control segment (`mlx5_wqe_ctrl_seg`, qp.h). In it the place, the
    /// number of units and the number of the queue pair are set here; the rest is as it is given. `wr_id` is the number in its completion.
    ///
    /// At least every request with which the ring becomes full must ask for a completion: only a completion frees places.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for another number of units, and before the queue pair can send;
    /// [`Exhausted`](crate::ErrorKind::Exhausted) if there is no room: poll first; [`Disassociated`](crate::ErrorKind::Disassociated) in a
    /// child of `fork`. Nothing is written then.
    ///
    /// # Kernel
    /// None: the device reads the ring.
    pub fn put(&mut self, wr_id: u64, request: &[Unit]) -> Result<()> {
        let put = match self.origin.is_here() {
            true => self.ring.put_units(wr_id, request),
            false => Err(Refused::Elsewhere),
        };
        put.map_err(|why| work::refused("send_ring.put", why))
    }

    /// Shows the device every request that was put: stores the counter in the doorbell record, and the beginning of the last request in the
    /// doorbell register. Without this, the next request that is posted shows them, too.
    pub fn publish(&mut self) {
        if self.origin.is_here() {
            // The device is told here, never by a command.
            let _ = self.ring.publish();
        }
    }

    /// Discards every request that was put and not published.
    pub fn discard(&mut self) {
        self.ring.rewind();
    }
}

/// The receive ring of a queue pair, for requests that the program lays out itself. It is borrowed as [`SendRing`] is.
#[derive(Debug)]
pub struct ReceiveRing<'a> {
    ring: &'a mut Receives,
    origin: Origin,
}

impl<'a> ReceiveRing<'a> {
    /// Borrows the ring.
    ///
    /// # Errors
    /// Those of [`SendRing::of`]; [`Unsupported`](crate::ErrorKind::Unsupported) also for a queue pair without a receive queue of its own.
    pub fn of<T: QpType>(qp: &'a mut QueuePair<T>) -> Result<Self> {
        let op = "receive_ring.of";
        let context = qp.shared().object().context();
        let (lacks, origin) = (context.driver().lacking(op, "has no such ring of mlx5"), context.origin());
        let (_, receives) = qp.rings_of::<Sends, Receives>(op)?;
        receives.map(|ring| Self { ring, origin }).ok_or(lacks)
    }

    /// Number of places, and of units of 16 bytes in each.
    pub fn places(&self) -> [u32; 2] {
        [self.ring.slots() as u32, self.ring.segments()]
    }

    /// Number of places that are free.
    pub fn free(&self) -> u32 {
        self.ring.free()
    }

    /// Writes a request: pieces of memory (`mlx5_wqe_data_seg`, qp.h), of which a place has room for several. The end is marked here if
    /// there are fewer. `wr_id` is the number in its completion.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more units than a place has; [`Exhausted`](crate::ErrorKind::Exhausted) if there
    /// is no room; [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`. Nothing is written then.
    ///
    /// # Kernel
    /// None: the device reads the ring.
    pub fn put(&mut self, wr_id: u64, request: &[Unit]) -> Result<()> {
        let put = match self.origin.is_here() {
            true => self.ring.put_units(wr_id, request),
            false => Err(Refused::Elsewhere),
        };
        put.map_err(|why| work::refused("receive_ring.put", why))
    }

    /// Shows the device every request that was put, as soon as the queue pair may receive. Without this, the next request that is posted
    /// shows them, too.
    pub fn publish(&mut self) {
        if self.origin.is_here() {
            self.ring.publish();
        }
    }

    /// Discards every request that was put and not published.
    pub fn discard(&mut self) {
        self.ring.rewind();
    }
}

/// The ring of a completion queue, for completions of which the program reads what no [`Completion`] contains. As long as it is borrowed,
/// nothing else can poll the queue.
#[derive(Debug)]
pub struct CompletionRing<'a>(&'a mut CompletionQueue);

impl<'a> CompletionRing<'a> {
    /// Borrows the ring.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device of another driver; [`Disassociated`](crate::ErrorKind::Disassociated) in
    /// a child of `fork`.
    pub fn of(queue: &'a mut CompletionQueue) -> Result<Self> {
        let op = "completion_ring.of";
        let context = queue.shared().context();
        context.check_origin(op)?;
        let lacks = context.driver().lacking(op, "has no rings of mlx5");
        if !queue.is_of::<Completions>() {
            return Err(lacks);
        }
        Ok(Self(queue))
    }

    /// Takes the next completion: what a poll returns, and the device's entry of 64 bytes (`mlx5_cqe64`, device.h). `None` if there is none.
    /// [`CompletionCounter`](crate::CompletionCounter)s count it.
    pub fn take(&mut self) -> Option<(Completion, [u8; 64])> {
        let taken = self.0.take_by(|ring: &mut Completions, may_take| {
            let (said, entry) = ring.take_entry(may_take)?;
            let mut completion = Completion::default();
            completion.put(&said);
            Some((completion, entry))
        });
        taken.map(|(completion, entry)| {
            let mut bytes = [0; 64];
            const { assert!(size_of::<Cqe64>() == 64) }
            bytes.copy_from_slice(entry.as_bytes());
            (completion, bytes)
        })
    }
}
