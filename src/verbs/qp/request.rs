//! A request to a send queue, before it is posted.

use uverbs_abi::types::SendFlags;

use super::Frame;
use crate::driver::request::FrameHead;
use crate::kernel::error::{Error, Result, limit};
use crate::verbs::mr::Segment;

/// A request for the send queue: an operation, and the local memory that it reads or writes.
///
/// ```
/// # use uverbs::SendRequest;
/// // A frame of a raw packet queue pair, from no memory at all, with a completion:
/// let request = SendRequest::frame(7, &[]).signaled();
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_send_wr")]
pub struct SendRequest<'a, O = Frame<'a>> {
    pub(super) wr_id: u64,
    pub(super) operation: O,
    pub(super) data: Local<'a>,
    pub(super) flags: SendFlags,
}

/// The local side of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Local<'a> {
    Segments(&'a [Segment<'a>]),
    /// Copied into the queue when the request is posted.
    Inline(&'a [u8]),
}

/// Length of an Ethernet header in bytes.
pub(super) const ETHERNET_HEADER: usize = 14;

// What there can be more of than a queue was made for.
const SEGMENTS: &str = "segments of a request";
const INLINE: &str = "inline bytes of a request";

impl Local<'_> {
    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Segments(segments) => segments.iter().map(|segment| u64::from(segment.sge().length)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// The hint if there is more of it than the queue was made for.
    pub(super) fn beyond(&self, pieces: u32, inline: u32) -> Option<String> {
        let (what, given, most) = match self {
            Self::Segments(segments) => (SEGMENTS, segments.len(), pieces),
            Self::Inline(bytes) => (INLINE, bytes.len(), inline),
        };
        let hint = || limit(what, given, format_args!("at most {most}")) + "; nothing was posted";
        (given as u64 > u64::from(most)).then(hint)
    }

    /// The first bytes.
    #[cold]
    pub(super) fn head(&self, op: &'static str) -> Result<FrameHead> {
        let short = || {
            let least = format!("at least {} (for the device)", size_of::<FrameHead>());
            Error::outside(op, "bytes of a frame", self.len(), least)
        };
        match self {
            Self::Inline(bytes) => bytes.first_chunk().copied().ok_or_else(short),
            Self::Segments(segments) => {
                let mut head = FrameHead::default();
                let mut rest = &mut head[..];
                for segment in *segments {
                    rest = segment.read_into(rest)?;
                }
                if rest.is_empty() { Ok(head) } else { Err(short()) }
            }
        }
    }
}

impl<'a> SendRequest<'a> {
    /// Sends an Ethernet frame, without the FCS, that consists of `segments` in their order.
    pub fn frame(wr_id: u64, segments: &'a [Segment<'a>]) -> Self {
        Self::new(wr_id, Frame::Whole, segments)
    }

    /// Sends as many frames as the data in `segments` needs: the device divides it into parts of `mss` bytes, of which the last
    /// may be shorter, and puts `header` before each. `header` contains the headers of Ethernet, IP and TCP. The device fills in
    /// the length of IP, increments IPv4's identification and TCP's sequence number, and sets TCP's FIN and PSH only in the last
    /// frame. It fills in checksums if [requested](Self::checksums).
    ///
    /// For queue pairs created with room for it ([`QueuePairBuilder::large_sends`](super::QueuePairBuilder::large_sends)).
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

    /// The device fills in the checksums of the frame: that of IPv4's header, and those of TCP and UDP. The bytes at their
    /// positions are ignored.
    ///
    /// Devices with this feature report it in [`raw_packet_caps`](uverbs_abi::write::ExQueryDeviceResp). On others the request is
    /// [`Unsupported`](crate::ErrorKind::Unsupported), and nothing is posted.
    ///
    /// ```
    /// use uverbs::{ErrorKind, SendRequest};
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::SoftDevice::default().open()?;
    /// let cq = context.create_cq(4)?;
    /// let mut qp = context.alloc_pd()?.raw_packet(&cq).inline(64).connect(1)?;
    /// // The soft device does not fill in checksums.
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
    /// An operation on the memory of `segments`, in their order. The completion contains `wr_id`.
    #[doc(alias = "ibv_wr_set_sge")]
    #[doc(alias = "ibv_wr_set_sge_list")]
    pub fn new(wr_id: u64, operation: O, segments: &'a [Segment<'a>]) -> Self {
        Self { wr_id, operation, data: Local::Segments(segments), flags: SendFlags::empty() }
    }

    /// An operation on bytes that are copied when it is posted; at most [`inline`](crate::Capacity::inline) bytes. Not for reads
    /// and atomic operations, which return data.
    #[doc(alias = "ibv_wr_set_inline_data")]
    #[doc(alias = "ibv_wr_set_inline_data_list")]
    #[doc(alias = "IBV_SEND_INLINE")]
    pub fn inline(wr_id: u64, operation: O, bytes: &'a [u8]) -> Self {
        Self { wr_id, operation, data: Local::Inline(bytes), flags: SendFlags::INLINE }
    }

    /// Reports success with a completion; failure is always reported.
    #[must_use]
    #[doc(alias = "ibv_send_flags")]
    #[doc(alias = "IBV_SEND_SIGNALED")]
    pub fn signaled(mut self) -> Self {
        self.flags |= SendFlags::SIGNALED;
        self
    }

    /// Causes a solicited event at the receiver.
    #[must_use]
    #[doc(alias = "IBV_SEND_SOLICITED")]
    pub fn solicited(mut self) -> Self {
        self.flags |= SendFlags::SOLICITED;
        self
    }

    /// Waits for earlier reads and atomic operations of the queue pair.
    #[must_use]
    #[doc(alias = "IBV_SEND_FENCE")]
    pub fn fenced(mut self) -> Self {
        self.flags |= SendFlags::FENCE;
        self
    }
}
