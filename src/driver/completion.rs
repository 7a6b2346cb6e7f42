//! Completions of posted requests.

use std::mem::MaybeUninit;

use uverbs_abi::types::{WcFlags, wc_opcode, wc_status};
use uverbs_abi::write::Wc;

/// The completion of one posted request.
// In the order of the kernel's `Wc`, so that most of it is copied in words of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "ibv_wc")]
pub struct Completion {
    /// The number that was given with the request.
    pub wr_id: u64,
    /// Whether the request succeeded, and if not, why. If it failed, only this field, `wr_id`, `qp_num` and `vendor_error` are
    /// valid.
    pub status: Status,
    /// The operation: one of [`uverbs_abi::types::wc_opcode`].
    #[doc(alias = "ibv_wc_opcode")]
    #[doc(alias = "ibv_wc_read_opcode")]
    pub opcode: u32,
    /// The driver's own error number.
    #[doc(alias = "ibv_wc_read_vendor_err")]
    pub vendor_error: u32,
    /// Number of bytes that were received, if the completion is of a receive. Some devices also report the length of a read, a write or
    /// an atomic operation; for a send, the value has no meaning.
    #[doc(alias = "ibv_wc_read_byte_len")]
    pub len: u32,
    /// If `flags` has `WITH_IMM`, the immediate data in network byte order: `u32::from_be` returns the sender's number. If
    /// `flags` has `WITH_INVALIDATE`, the key that was invalidated. For a raw packet, the flow tag.
    #[doc(alias = "ibv_wc_read_imm_data")]
    #[doc(alias = "ibv_wc_read_flow_tag")]
    #[doc(alias = "ibv_wc_read_invalidated_rkey")]
    pub immediate: u32,
    /// Number of the queue pair on this side.
    #[doc(alias = "ibv_wc_read_qp_num")]
    pub qp_num: u32,
    /// For a datagram, number of the sender's queue pair.
    #[doc(alias = "ibv_wc_read_src_qp")]
    pub source_qp: u32,
    /// Which other fields are valid.
    #[doc(alias = "ibv_wc_flags")]
    #[doc(alias = "ibv_wc_read_wc_flags")]
    pub flags: WcFlags,
    /// See [`Completion::pkey_index`] and [`Completion::source_lid`].
    #[doc(hidden)]
    pub path: u32,
    /// The VLAN tag that was removed from the frame (priority, drop bit and number), if `flags` has `WITH_VLAN`.
    #[doc(alias = "ibv_wc_read_cvlan")]
    pub vlan: u16,
    /// When the frame arrived or was sent, in ticks of the device's clock; zero if not available.
    #[doc(alias = "ibv_wc_read_completion_ts")]
    pub timestamp: u64,
}

/// A completion in its queue. The driver reads only the fields that are requested.
pub trait Raised: Copy {
    /// All fields for which the kernel's layout has a place. For a raw packet, `ex` is the flow tag.
    fn wc(&self) -> Wc;

    /// Copies these fields to `place`.
    #[inline(always)]
    fn copy_wc(&self, place: &mut MaybeUninit<Wc>) {
        place.write(self.wc());
    }

    /// The flags of the completion.
    #[inline(always)]
    fn flags(&self) -> u32 {
        self.wc().wc_flags
    }

    /// The VLAN tag that was removed from the frame.
    #[inline(always)]
    fn vlan(&self) -> u16 {
        0
    }

    /// When the frame arrived or was sent, in ticks of the device's clock; zero if not available.
    #[inline(always)]
    fn timestamp(&self) -> u64 {
        0
    }

    /// All fields.
    #[inline(always)]
    fn extended(&self) -> Extended {
        Extended { wc: self.wc(), vlan: self.vlan(), timestamp: self.timestamp() }
    }
}

impl Raised for Extended {
    #[inline(always)]
    fn wc(&self) -> Wc {
        self.wc
    }

    #[inline(always)]
    fn vlan(&self) -> u16 {
        self.vlan
    }

    #[inline(always)]
    fn timestamp(&self) -> u64 {
        self.timestamp
    }
}

/// A completion that was taken, and whose fields are read one by one. A device without a field has zero there.
#[cfg_attr(not(feature = "raw"), expect(dead_code))]
pub trait Fields {
    /// The number that was given with the request.
    fn wr_id(&self) -> u64;
    /// The status: one of [`wc_status`].
    fn status(&self) -> u32;
    /// The operation: one of [`wc_opcode`].
    fn opcode(&self) -> u32;
    /// The device's own error number.
    fn vendor_error(&self) -> u32;
    /// Bytes received, read or written.
    fn byte_len(&self) -> u32;
    /// Immediate data in network byte order, or the key that was invalidated. For a frame, the flow tag.
    fn immediate(&self) -> u32;
    /// Number of the queue pair on this side.
    fn qp_num(&self) -> u32;
    /// Number of the sender's queue pair, for a datagram.
    fn source_qp(&self) -> u32;
    /// Bits of [`WcFlags`].
    fn flags(&self) -> u32;
    /// Local identifier (LID) of a datagram's sender, on InfiniBand; on efa, the sender's address handle.
    fn source_lid(&self) -> u16;

    /// Service level of a datagram.
    fn service_level(&self) -> u8 {
        0
    }

    /// The lower bits of the local identifier (LID) to which a datagram was sent: a port may have several of them.
    fn path_bits(&self) -> u8 {
        0
    }

    /// The time of the completion, in ticks of the device's clock.
    fn timestamp(&self) -> u64 {
        0
    }

    /// The VLAN tag that was removed from the frame.
    fn vlan(&self) -> u16 {
        0
    }
}

/// Why a short path has taken no completion.
#[cfg(feature = "raw")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// There is none.
    Nothing,
    /// There is none in the ring of the previous completion. The other rings have not been searched.
    Elsewhere,
    /// There may be one that takes a longer path, such as one of another queue pair than the previous completion.
    Other,
}

/// A destination for completions.
pub trait Place {
    /// Stores a completion.
    fn put(&mut self, raised: &impl Raised);

    /// Stores a completion without a function call. Returns false, with nothing done, for a completion that needs one.
    #[inline(always)]
    fn put_plain(&mut self, raised: &impl Raised) -> bool {
        self.put(raised);
        true
    }

    /// Stores one of many completions in a loop, where rare cases are better handled in a separate function.
    #[inline(always)]
    fn put_among(&mut self, raised: &impl Raised) {
        self.put(raised);
    }
}

impl Place for Extended {
    #[inline(always)]
    fn put(&mut self, raised: &impl Raised) {
        *self = raised.extended();
    }
}

impl Place for Completion {
    #[inline(always)]
    fn put(&mut self, raised: &impl Raised) {
        if !self.put_plain(raised) {
            self.put_unknown(*raised);
        }
    }

    #[inline(always)]
    fn put_plain(&mut self, raised: &impl Raised) -> bool {
        let extended = raised.extended();
        // The value of a known status is the kernel's number for it, so the whole completion can be copied.
        let is_known = extended.wc.status < Status::Unknown as u32;
        if is_known {
            *self = Self::from(&extended);
        }
        is_known
    }
}

/// A completion with all fields that drivers report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extended {
    /// In the kernel's layout. For a raw packet, `ex` is the flow tag.
    pub wc: Wc,
    /// The VLAN tag that was removed from the frame.
    pub vlan: u16,
    /// When the frame arrived or was sent, in ticks of the device's clock; zero if not available.
    pub timestamp: u64,
}

impl Completion {
    /// An array of empty completions, for [`poll`](crate::CompletionQueue::poll) to fill.
    pub fn batch<const N: usize>() -> [Self; N] {
        [Self::default(); N]
    }

    #[cold]
    #[inline(never)]
    fn put_unknown(&mut self, raised: impl Raised) {
        *self = Self::from(&raised.extended());
    }

    /// Whether the request was a receive, not a send.
    pub fn is_receive(&self) -> bool {
        self.opcode & wc_opcode::RECV != 0
    }

    /// On InfiniBand, index of the partition key of a datagram.
    pub fn pkey_index(&self) -> u16 {
        self.path as u16
    }

    /// On InfiniBand, local identifier (LID) of a datagram's sender.
    #[doc(alias = "ibv_wc_read_slid")]
    pub fn source_lid(&self) -> u16 {
        (self.path >> 16) as u16
    }

    /// The completion if the request succeeded, otherwise its status as an error.
    ///
    /// # Errors
    /// The completion's status.
    pub fn ok(&self) -> Result<&Self, Status> {
        if self.status == Status::Success { Ok(self) } else { Err(self.status) }
    }
}

impl From<&Extended> for Completion {
    #[inline(always)]
    fn from(Extended { wc, vlan, timestamp }: &Extended) -> Self {
        Self {
            wr_id: wc.wr_id,
            status: Status::from(wc.status),
            opcode: wc.opcode,
            vendor_error: wc.vendor_err,
            len: wc.byte_len,
            immediate: wc.ex,
            qp_num: wc.qp_num,
            source_qp: wc.src_qp,
            flags: WcFlags::from_bits_retain(wc.wc_flags),
            path: u32::from(wc.pkey_index) | u32::from(wc.slid) << 16,
            vlan: *vlan,
            timestamp: *timestamp,
        }
    }
}

macro_rules! status {
    ($($name:ident = $number:ident $alias:literal, $text:literal;)*) => {
        /// The status of a completion.
        #[non_exhaustive]
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, thiserror::Error)]
        #[doc(alias = "ibv_wc_status")]
        #[doc(alias = "ibv_wc_status_str")]
        pub enum Status {
            $(
                #[doc = concat!("The request ended with: ", $text, ".")]
                #[doc(alias = $alias)]
                #[error($text)]
                $name,
            )*
            /// A number that this crate does not know; also the status of an empty completion.
            #[default]
            #[error("unknown status")]
            Unknown,
        }

        impl From<u32> for Status {
            #[inline]
            fn from(number: u32) -> Self {
                match number {
                    $(wc_status::$number => Self::$name,)*
                    _ => Self::Unknown,
                }
            }
        }
    };
}

status! {
    Success = SUCCESS "IBV_WC_SUCCESS", "success";
    LocalLength = LOC_LEN_ERR "IBV_WC_LOC_LEN_ERR", "local length error";
    LocalQpOperation = LOC_QP_OP_ERR "IBV_WC_LOC_QP_OP_ERR", "local queue pair operation error";
    LocalEecOperation = LOC_EEC_OP_ERR "IBV_WC_LOC_EEC_OP_ERR", "local EE context operation error";
    LocalProtection = LOC_PROT_ERR "IBV_WC_LOC_PROT_ERR", "local protection error";
    Flushed = WR_FLUSH_ERR "IBV_WC_WR_FLUSH_ERR", "flushed, since the queue pair is in error";
    WindowBind = MW_BIND_ERR "IBV_WC_MW_BIND_ERR", "memory window bind error";
    BadResponse = BAD_RESP_ERR "IBV_WC_BAD_RESP_ERR", "bad response";
    LocalAccess = LOC_ACCESS_ERR "IBV_WC_LOC_ACCESS_ERR", "local access error";
    RemoteInvalidRequest = REM_INV_REQ_ERR "IBV_WC_REM_INV_REQ_ERR", "remote invalid request";
    RemoteAccess = REM_ACCESS_ERR "IBV_WC_REM_ACCESS_ERR", "remote access error";
    RemoteOperation = REM_OP_ERR "IBV_WC_REM_OP_ERR", "remote operation error";
    RetryExceeded = RETRY_EXC_ERR "IBV_WC_RETRY_EXC_ERR", "transport retries exceeded";
    RnrRetryExceeded = RNR_RETRY_EXC_ERR "IBV_WC_RNR_RETRY_EXC_ERR", "receiver-not-ready retries exceeded";
    LocalRddViolation = LOC_RDD_VIOL_ERR "IBV_WC_LOC_RDD_VIOL_ERR", "local RDD violation";
    RemoteInvalidRdRequest = REM_INV_RD_REQ_ERR "IBV_WC_REM_INV_RD_REQ_ERR", "remote invalid RD request";
    RemoteAborted = REM_ABORT_ERR "IBV_WC_REM_ABORT_ERR", "remote aborted";
    InvalidEecn = INV_EECN_ERR "IBV_WC_INV_EECN_ERR", "invalid EE context number";
    InvalidEecState = INV_EEC_STATE_ERR "IBV_WC_INV_EEC_STATE_ERR", "invalid EE context state";
    Fatal = FATAL_ERR "IBV_WC_FATAL_ERR", "fatal error";
    ResponseTimeout = RESP_TIMEOUT_ERR "IBV_WC_RESP_TIMEOUT_ERR", "response timeout";
    General = GENERAL_ERR "IBV_WC_GENERAL_ERR", "general error";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_says_what_was_raised_whether_its_status_has_a_name_or_not() {
        for status in (0..30).chain([u32::MAX]) {
            let wc = Wc {
                wr_id: 1,
                status,
                opcode: 2,
                vendor_err: 3,
                byte_len: 4,
                ex: 5,
                qp_num: 6,
                src_qp: 7,
                wc_flags: 8,
                pkey_index: 9,
                slid: 10,
                ..Wc::default()
            };
            let raised = Extended { wc, vlan: 11, timestamp: 12 };
            let mut completion = Completion::default();
            let is_plain = completion.put_plain(&raised);
            completion.put(&raised);
            let is_known = status < 22;
            assert_eq!((is_plain, completion.status != Status::Unknown), (is_known, is_known), "{status}");
            assert_eq!(completion, Completion::from(&raised));
            assert_eq!(completion.status, Status::from(status));
            let Completion { wr_id, opcode, vendor_error, len, immediate, qp_num, source_qp, flags, .. } =
                completion;
            assert_eq!((wr_id, [opcode, vendor_error, len, immediate]), (1, [2, 3, 4, 5]));
            assert_eq!([qp_num, source_qp, flags.bits()], [6, 7, 8]);
            assert_eq!((completion.pkey_index(), completion.source_lid()), (9, 10));
            assert_eq!((completion.vlan, completion.timestamp), (11, 12));
        }
    }
}
