//! What became of posted requests.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_abi::types::{WcFlags, wc_opcode, wc_status};
use uverbs_abi::write::Wc;

/// What became of one posted request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "ibv_wc")]
pub struct Completion {
    /// The number given with the request.
    pub wr_id: u64,
    /// Whether it succeeded, and if not why. All but this, `wr_id`, `qp_num` and `vendor_error` means
    /// nothing unless it did.
    pub status: Status,
    /// What was completed: one of [`uverbs_abi::types::wc_opcode`].
    #[doc(alias = "ibv_wc_opcode")]
    #[doc(alias = "ibv_wc_read_opcode")]
    pub opcode: u32,
    /// Bytes received.
    #[doc(alias = "ibv_wc_read_byte_len")]
    pub len: u32,
    /// Number of the own queue pair.
    #[doc(alias = "ibv_wc_read_qp_num")]
    pub qp_num: u32,
    /// The key that was invalidated, if `flags` has `WITH_INVALIDATE`. Immediate data as it was on the wire, if `flags` has
    /// `WITH_IMM`: `u32::from_be` gives the sender's number. Of a raw packet, the flow tag.
    #[doc(alias = "ibv_wc_read_imm_data")]
    #[doc(alias = "ibv_wc_read_flow_tag")]
    #[doc(alias = "ibv_wc_read_invalidated_rkey")]
    pub immediate: u32,
    /// Number of the sender's queue pair, of a datagram.
    #[doc(alias = "ibv_wc_read_src_qp")]
    pub source_qp: u32,
    /// What else is valid.
    #[doc(alias = "ibv_wc_flags")]
    #[doc(alias = "ibv_wc_read_wc_flags")]
    pub flags: WcFlags,
    /// The driver's own error number.
    #[doc(alias = "ibv_wc_read_vendor_err")]
    pub vendor_error: u32,
    /// The VLAN tag that was taken off the frame (priority, drop bit and number), if `flags` has `WITH_VLAN`.
    #[doc(alias = "ibv_wc_read_cvlan")]
    pub vlan: u16,
    /// When the frame came in or was sent, in ticks of the device's clock; zero where there is none.
    #[doc(alias = "ibv_wc_read_completion_ts")]
    pub timestamp: u64,
}

/// A completion with what the kernel's layout has no place for.
#[cfg(feature = "raw")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Extended {
    /// In the kernel's layout; of a raw packet, `ex` is the flow tag.
    pub wc: Wc,
    /// The VLAN tag that was taken off the frame.
    pub vlan: u16,
    /// When the frame came in or was sent, in ticks of the device's clock; zero where there is none.
    pub timestamp: u64,
}

impl Completion {
    /// An array of empty completions, to be filled by [`poll`](crate::CompletionQueue::poll).
    pub fn batch<const N: usize>() -> [Self; N] {
        [Self::default(); N]
    }

    /// Whether it is a receive that was completed, not a send.
    pub fn is_receive(&self) -> bool {
        self.opcode & wc_opcode::RECV != 0
    }

    /// The completion if it succeeded, else the error.
    ///
    /// # Errors
    /// The completion's status.
    pub fn ok(&self) -> Result<&Self, Status> {
        if self.status == Status::Success { Ok(self) } else { Err(self.status) }
    }
}

impl Completion {
    /// Takes over a completion from the words of a ring, one by one: so nothing is copied twice.
    #[inline]
    pub(crate) fn fill(&mut self, wc: &[AtomicU32; size_of::<Wc>() / 4]) {
        let word = |offset: usize| wc[offset / 4].load(Ordering::Relaxed);
        let id = offset_of!(Wc, wr_id);
        self.wr_id = u64::from(word(id)) | u64::from(word(id + 4)) << 32;
        self.status = Status::from(word(offset_of!(Wc, status)));
        self.opcode = word(offset_of!(Wc, opcode));
        self.len = word(offset_of!(Wc, byte_len));
        self.qp_num = word(offset_of!(Wc, qp_num));
        self.immediate = word(offset_of!(Wc, ex));
        self.source_qp = word(offset_of!(Wc, src_qp));
        self.flags = WcFlags::from_bits_retain(word(offset_of!(Wc, wc_flags)));
        self.vendor_error = word(offset_of!(Wc, vendor_err));
        self.timestamp = 0;
    }
}

#[cfg(feature = "raw")]
impl Completion {
    /// Takes over a completion in the kernel's layout.
    pub(crate) fn from_wc(wc: &Wc) -> Self {
        Self {
            wr_id: wc.wr_id,
            status: Status::from(wc.status),
            opcode: wc.opcode,
            len: wc.byte_len,
            qp_num: wc.qp_num,
            immediate: wc.ex,
            source_qp: wc.src_qp,
            flags: WcFlags::from_bits_retain(wc.wc_flags),
            vendor_error: wc.vendor_err,
            ..Self::default()
        }
    }

    /// The completion in the kernel's layout.
    pub(crate) fn wc(&self) -> Wc {
        Wc {
            wr_id: self.wr_id,
            status: self.status.number(),
            opcode: self.opcode,
            vendor_err: self.vendor_error,
            byte_len: self.len,
            ex: self.immediate,
            qp_num: self.qp_num,
            src_qp: self.source_qp,
            wc_flags: self.flags.bits(),
            ..Wc::default()
        }
    }
}

macro_rules! status {
    ($($name:ident = $number:ident, $text:literal;)*) => {
        /// Why a request completed.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, thiserror::Error)]
        #[doc(alias = "ibv_wc_status")]
        #[doc(alias = "ibv_wc_status_str")]
        pub enum Status {
            $(
                #[doc = concat!("The request ended with: ", $text, ".")]
                #[error($text)]
                $name,
            )*
            /// A number that this crate does not know; also of a completion never filled in.
            #[default]
            #[error("unknown status")]
            Unknown,
        }

        #[cfg(feature = "raw")]
        impl Status {
            /// The kernel's number; of what is unknown, that of a general error.
            fn number(self) -> u32 {
                match self {
                    $(Self::$name => wc_status::$number,)*
                    Self::Unknown => wc_status::GENERAL_ERR,
                }
            }
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
    Success = SUCCESS, "success";
    LocalLength = LOC_LEN_ERR, "local length error";
    LocalQpOperation = LOC_QP_OP_ERR, "local queue pair operation error";
    LocalEecOperation = LOC_EEC_OP_ERR, "local EE context operation error";
    LocalProtection = LOC_PROT_ERR, "local protection error";
    Flushed = WR_FLUSH_ERR, "flushed, since the queue pair is in error";
    WindowBind = MW_BIND_ERR, "memory window bind error";
    BadResponse = BAD_RESP_ERR, "bad response";
    LocalAccess = LOC_ACCESS_ERR, "local access error";
    RemoteInvalidRequest = REM_INV_REQ_ERR, "remote invalid request";
    RemoteAccess = REM_ACCESS_ERR, "remote access error";
    RemoteOperation = REM_OP_ERR, "remote operation error";
    RetryExceeded = RETRY_EXC_ERR, "transport retries exceeded";
    RnrRetryExceeded = RNR_RETRY_EXC_ERR, "receiver-not-ready retries exceeded";
    LocalRddViolation = LOC_RDD_VIOL_ERR, "local RDD violation";
    RemoteInvalidRdRequest = REM_INV_RD_REQ_ERR, "remote invalid RD request";
    RemoteAborted = REM_ABORT_ERR, "remote aborted";
    InvalidEecn = INV_EECN_ERR, "invalid EE context number";
    InvalidEecState = INV_EEC_STATE_ERR, "invalid EE context state";
    Fatal = FATAL_ERR, "fatal error";
    ResponseTimeout = RESP_TIMEOUT_ERR, "response timeout";
    General = GENERAL_ERR, "general error";
}
