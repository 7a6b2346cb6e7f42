//! Posting requests.

use nix::errno::Errno;
use uverbs_abi::mlx5::wqe::ETH_L2_INLINE_HEADER_SIZE;
use uverbs_abi::rxe::SendWr;
use uverbs_abi::types::{RawPacketCaps, SendFlags};
use zerocopy::FromZeros;

use super::operation::sealed::Encode;
use super::{Frame, QpType, QueuePair};
use crate::driver::queues::{Data, Head};
use crate::error::{Error, ErrorKind, Result};
use crate::mr::{MemoryRegion, Segment};
use crate::object::Object;
use crate::srq::not_here;
use crate::work::{Held, ReceiveRequest, full, oversized};

/// A request to be posted to the send queue: an operation, and the local memory it reads or fills.
///
/// ```
/// # use uverbs::SendRequest;
/// // A frame of a raw packet queue pair, from no memory at all, with a completion:
/// let request = SendRequest::frame(7, &[]).signaled();
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_send_wr")]
pub struct SendRequest<'a, O = Frame<'a>> {
    wr_id: u64,
    operation: O,
    data: Local<'a>,
    flags: SendFlags,
}

/// The local side of a request.
#[derive(Clone, Copy, Debug)]
enum Local<'a> {
    Segments(&'a [Segment<'a>]),
    /// Copied into the queue when the request is posted.
    Inline(&'a [u8]),
}

/// Bytes of a frame's own header.
pub(crate) const ETHERNET_HEADER: usize = 14;

/// Most bytes at the head of a frame that a device must find in the request itself.
const MAX_HEADER: usize = ETH_L2_INLINE_HEADER_SIZE;

impl Local<'_> {
    /// Bytes of it.
    fn len(&self) -> u64 {
        match self {
            Self::Segments(segments) => segments.iter().map(|segment| u64::from(segment.sge().length)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// The first bytes, as many as `header` has room for.
    #[inline]
    fn header<'h>(&self, op: &'static str, header: &'h mut [u8]) -> Result<&'h [u8]> {
        if !header.is_empty() {
            self.copy_header(op, header)?;
        }
        Ok(header)
    }

    fn copy_header(&self, op: &'static str, header: &mut [u8]) -> Result<()> {
        let short = || {
            let hint = "the device must find the first 18 bytes of a frame in the request; it has fewer";
            Error::refused(op, Errno::EINVAL, hint)
        };
        match self {
            Self::Inline(bytes) => {
                header.copy_from_slice(bytes.get(..header.len()).ok_or_else(short)?);
            }
            Self::Segments(segments) => {
                let mut rest = header;
                for segment in *segments {
                    rest = segment.read_into(rest)?;
                }
                if !rest.is_empty() {
                    return Err(short());
                }
            }
        }
        Ok(())
    }
}

/// Why a request is refused for the state of its queue pair.
pub(super) const NOT_READY: &str = "the queue pair is not ready to send";

impl<'a> SendRequest<'a> {
    /// Sends an Ethernet frame that stands in `segments`, one behind the other, without the FCS.
    pub fn frame(wr_id: u64, segments: &'a [Segment<'a>]) -> Self {
        Self::new(wr_id, Frame::Whole, segments)
    }

    /// Sends as many frames as `segments` need, one behind the other: the device cuts them into pieces of `mss` bytes, the
    /// last one shorter, and puts `header` before each. `header` is that of Ethernet, IP and TCP, without a length of
    /// IP; the device fills in that, counts on IPv4's identification and TCP's sequence number, and keeps TCP's
    /// FIN and PSH for the last frame. It fills in checksums when [asked to](Self::checksums).
    ///
    /// For queue pairs made with room for it ([`QueuePairBuilder::large_sends`](super::QueuePairBuilder::large_sends)).
    ///
    /// ```
    /// # use uverbs::SendRequest;
    /// let header = [0; 54]; // Ethernet, IPv4, TCP
    /// let request = SendRequest::large_send(7, &header, 1448, &[]).checksums().signaled();
    /// ```
    #[doc(alias = "IBV_WR_TSO")]
    #[doc(alias = "ibv_wr_send_tso")]
    pub fn large_send(wr_id: u64, header: &'a [u8], mss: u16, segments: &'a [Segment<'a>]) -> Self {
        Self::new(wr_id, Frame::Large { header, mss }, segments)
    }

    /// The device fills in the checksums of the frame: that of IPv4's header, and those of TCP and UDP. What stands in
    /// their places does not matter.
    ///
    /// Devices that can tell so in [`raw_packet_caps`](uverbs_abi::write::ExQueryDeviceResp); on others the request
    /// is [`Unsupported`](ErrorKind::Unsupported), and nothing is posted.
    ///
    /// ```
    /// use uverbs::{ErrorKind, SendRequest};
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::SoftDevice::default().open()?;
    /// let cq = context.create_cq(4)?;
    /// let mut qp = context.alloc_pd()?.raw_packet(&cq).inline(64).connect(1)?;
    /// // The soft device sends what it is given.
    /// let refused = qp.post_send(&[SendRequest::frame(1, &[]).checksums()]).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Unsupported);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "IBV_SEND_IP_CSUM")]
    #[must_use]
    pub fn checksums(mut self) -> Self {
        self.flags |= SendFlags::IP_CSUM;
        self
    }
}

impl<'a, O> SendRequest<'a, O> {
    /// An operation over the memory of `segments`, one behind the other. `wr_id` comes back in the completion.
    #[doc(alias = "ibv_wr_set_sge")]
    #[doc(alias = "ibv_wr_set_sge_list")]
    pub fn new(wr_id: u64, operation: O, segments: &'a [Segment<'a>]) -> Self {
        Self { wr_id, operation, data: Local::Segments(segments), flags: SendFlags::empty() }
    }

    /// An operation over bytes that are copied when it is posted; at most
    /// [`inline`](crate::Capacity::inline) of them.
    #[doc(alias = "ibv_wr_set_inline_data")]
    #[doc(alias = "ibv_wr_set_inline_data_list")]
    pub fn inline(wr_id: u64, operation: O, bytes: &'a [u8]) -> Self {
        Self { wr_id, operation, data: Local::Inline(bytes), flags: SendFlags::INLINE }
    }

    /// Success is reported by a completion; failure always is.
    #[must_use]
    #[doc(alias = "ibv_send_flags")]
    pub fn signaled(mut self) -> Self {
        self.flags |= SendFlags::SIGNALED;
        self
    }

    /// Wakes a receiver that waits for solicited messages.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.flags |= SendFlags::SOLICITED;
        self
    }

    /// Waits for earlier reads and atomic operations of the queue pair.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.flags |= SendFlags::FENCE;
        self
    }
}

impl<T: QpType> QueuePair<T> {
    /// Posts room for messages or frames, all of it or nothing.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when the queue has no room for all of them;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for more segments than the queue pair was made for, or when it
    /// receives from a shared receive queue.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_receive(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        let op = "qp.post_receive";
        self.shared.object().context().check_origin(op)?;
        self.receives.as_mut().ok_or_else(|| not_here(op))?.post(op, requests)
    }

    /// Posts requests to the send queue, all of them or none, with one doorbell.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when the queue has no room for all of them;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for more segments or inline bytes than the queue pair was made
    /// for, or when the queue pair is not ready to send; [`Unsupported`](ErrorKind::Unsupported) for
    /// [`checksums`](SendRequest::checksums) on a device that does not fill them in, and for
    /// [`large_send`](SendRequest::large_send) on one that does not cut them;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a second [`SendInvalidate`](super::Operation::SendInvalidate) of a key.
    ///
    /// # Kernel
    /// The doorbell is `POST_SEND` by `INVOKE_WRITE`, with no request in it: the kernel looks at the ring
    /// (rxe_post_send, rxe_verbs.c, Linux 6.1).
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    #[doc(alias = "ibv_wr_abort")]
    pub fn post_send(&mut self, requests: &[SendRequest<'_, T::Operation<'_>>]) -> Result<()> {
        let op = "qp.post_send";
        self.shared.object().context().check_origin(op)?;
        let mut takes_keys = false;
        if !self.sends.is_ready() {
            return Err(Error::refused(op, Errno::EINVAL, NOT_READY));
        }
        if requests.len() > self.free() as usize {
            return Err(full(op));
        }
        for request in requests {
            let fits = match request.data {
                Local::Segments(segments) => segments.len() <= self.capacity.send_segments as usize,
                Local::Inline(bytes) => bytes.len() <= self.capacity.inline as usize,
            };
            if !fits {
                return Err(oversized(op));
            }
            if request.flags.contains(SendFlags::IP_CSUM) {
                let hint = "the device does not fill in checksums of raw packets; nothing was posted";
                self.shared.object().context().needs_raw_packet(op, RawPacketCaps::IP_CSUM, hint)?;
            }
            if let Some((header, mss)) = request.operation.large() {
                let (object, least) = (self.shared.object(), self.sends.inline_header());
                let room = LargeRoom { object, least, most: self.capacity.large_header };
                room.check(op, header, mss, request.data.len())?;
            }
            takes_keys |= request.operation.invalidates().is_some();
        }
        if takes_keys { self.put_invalidating(op, requests) } else { self.put_all(op, requests) }
    }

    /// The same with requests that take keys from the other side.
    #[cold]
    fn put_invalidating(
        &mut self,
        op: &'static str,
        requests: &[SendRequest<'_, T::Operation<'_>>],
    ) -> Result<()> {
        let keys: Vec<_> = requests.iter().filter_map(|request| request.operation.invalidates()).collect();
        let shared = self.shared.clone();
        let context = shared.object().context();
        if !self.is_peer_settled {
            // A device has several GIDs: of the own one the first stands for all.
            let gids = context.gid_table()?;
            let is_own = gids.iter().any(|gid| gid.raw == self.peer);
            self.peer = gids.first().filter(|_| is_own).map_or(self.peer, |gid| gid.raw);
            self.is_peer_settled = true;
        }
        let known = context.window_keys();
        let noted = known.send(self.peer, &keys).map_err(|hint| Error::refused(op, Errno::EINVAL, hint))?;
        self.put_all(op, requests).inspect_err(|error| {
            // With any other error it is not known whether the device has them.
            if error.kind() == ErrorKind::InvalidInput {
                known.take_back(self.peer, &noted);
            }
        })
    }

    /// Fills slots with requests that passed all checks.
    #[inline]
    fn put_all(&mut self, op: &'static str, requests: &[SendRequest<'_, T::Operation<'_>>]) -> Result<()> {
        let first = self.sends.next_slot();
        let mut header = [0; MAX_HEADER];
        for request in requests {
            let mut wr =
                SendWr { wr_id: request.wr_id, send_flags: request.flags.bits(), ..SendWr::new_zeroed() };
            let iova = request.operation.encode(&mut wr);
            if self.bound.is_some() {
                // A sum of 4 GiB or more is not posted.
                self.stage(&wr, request.data.len() as u32);
            }
            let slot = self.sends.next_slot();
            let held = &mut self.held;
            let head = match request.operation.large() {
                Some((bytes, mss)) => Head { bytes, mss },
                None => {
                    let room = &mut header[..self.sends.inline_header()];
                    let bytes = request.data.header(op, room).inspect_err(|_| {
                        // Of a batch all or nothing.
                        self.sends.rewind();
                        self.bound.iter_mut().for_each(|bound| bound.rewind());
                    })?;
                    Head { bytes, mss: 0 }
                }
            };
            let put = match request.data {
                Local::Segments(segments) => {
                    Held::hold(held, slot, segments, request.operation.address());
                    self.sends.put(&wr, iova, head, Data::Pieces(segments.iter().map(Segment::sge)))
                }
                Local::Inline(bytes) => {
                    Held::hold(held, slot, &[], request.operation.address());
                    self.sends.put(&wr, iova, head, Data::<std::iter::Empty<_>>::Inline(bytes))
                }
            };
            if !put {
                self.sends.rewind();
                self.bound.iter_mut().for_each(|bound| bound.rewind());
                return Err(oversized(op));
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        self.publish(op, first)
    }

    /// Posts one request that moves no data, and that needs these regions until it is completed.
    pub(crate) fn post_local(
        &mut self,
        op: &'static str,
        wr: SendWr,
        regions: impl Iterator<Item = MemoryRegion>,
    ) -> Result<()> {
        self.shared.object().context().check_origin(op)?;
        if self.free() == 0 {
            return Err(full(op));
        }
        let first = self.sends.next_slot();
        Held::put(&mut self.held, first, regions.collect());
        if !self.put_nothing(wr) {
            self.sends.rewind();
            return Err(oversized(op));
        }
        self.stage(&wr, 0);
        self.publish(op, first)
    }

    /// Fills the next slot with a request without data; false when it does not fit.
    pub(super) fn put_nothing(&mut self, wr: SendWr) -> bool {
        let bytes = &[0; MAX_HEADER][..self.sends.inline_header()];
        self.sends.put(&wr, 0, Head { bytes, mss: 0 }, Data::Pieces(std::iter::empty()))
    }

    /// Shows the kernel what was put into the ring from slot `first` on.
    fn publish(&mut self, op: &'static str, first: u32) -> Result<()> {
        // Before the device can complete any of these.
        if let Some(bound) = &mut self.bound {
            bound.publish();
        }
        if self.sends.publish() {
            return Ok(());
        }
        self.doorbell(op).map_err(|error| {
            // Refused for its state, the kernel has not looked at the ring.
            if error.kind() == ErrorKind::InvalidInput {
                self.sends.retract(first);
                self.bound.iter_mut().for_each(|bound| bound.retract());
            }
            error.hinted_if(ErrorKind::InvalidInput, NOT_READY)
        })
    }

    pub(super) fn doorbell(&self, op: &'static str) -> Result<()> {
        self.shared.object().context().check_origin(op)?;
        ring_doorbell(op, self.shared.object())
    }
}

/// What headers of large sends a queue pair has room for.
#[derive(Debug)]
pub(super) struct LargeRoom<'a> {
    pub(super) object: &'a Object,
    /// Bytes that the device must find in a request, and most bytes of a header.
    pub(super) least: usize,
    pub(super) most: u32,
}

impl LargeRoom<'_> {
    /// Refuses a large send that the device or this queue pair cannot take.
    #[inline(never)]
    pub(super) fn check(&self, op: &'static str, header: &[u8], mss: u16, len: u64) -> Result<()> {
        let most = self.object.context().most_large_send(op)?;
        let least = ETHERNET_HEADER.max(self.least);
        let hint = if !(least..=self.most as usize).contains(&header.len()) {
            "the header of a large send has fewer bytes than Ethernet's, or more than the queue pair was made for"
        } else if mss == 0 {
            "a large send is cut into pieces of one byte at least"
        } else if len == 0 || len > most.into() {
            "a large send has one byte of data at least, and no more than max_tso"
        } else {
            return Ok(());
        };
        Err(Error::refused(op, Errno::EINVAL, hint))
    }
}

/// Has the kernel look at the send ring of a queue pair, in the process that opened its device.
#[inline]
pub(super) fn ring_doorbell(op: &'static str, object: &Object) -> Result<()> {
    object.context().ring(op, object.id())
}
