//! What a device that is to be like rxe does otherwise than cards and the InfiniBand specification do.
//!
//! Each question is asked where the answer is; the sources are those of the named version and of Linux 7.3. What is not
//! here is as on cards whatever the profile says, and is listed in `tests/common/differences`.

use nix::errno::Errno;
use uverbs_abi::types::{AccessFlags, qp_type, wc_status};

use super::profile::Profile;

/// What rxe takes of rights (`RXE_ACCESS_SUPPORTED_MR`, rxe_verbs.h, Linux 6.12 and 7.3).
pub(super) fn is_known(access: AccessFlags) -> bool {
    let known = AccessFlags::from_bits_retain((AccessFlags::MW_BIND.bits() << 1) - 1)
        | AccessFlags::ON_DEMAND
        | AccessFlags::FLUSH_GLOBAL
        | AccessFlags::FLUSH_PERSISTENT
        | AccessFlags::OPTIONAL_RANGE;
    known.contains(access)
}

/// A version of Linux.
type Version = (u32, u32);

impl Profile {
    pub(super) fn is_rxe(&self) -> bool {
        self.rxe.is_some()
    }

    fn is_rxe_before(&self, version: Version) -> bool {
        self.rxe.is_some_and(|is| is < version)
    }

    fn is_rxe_since(&self, version: Version) -> bool {
        self.rxe.is_some_and(|is| is >= version)
    }

    /// A region that gives no right to others has no key for them, on 6.1 (`rxe_mr_init`, rxe_mr.c).
    pub(super) fn remote_key(&self, key: u32, access: AccessFlags) -> u32 {
        let remote = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        if self.is_rxe_before((6, 12)) && !access.intersects(remote) { 0 } else { key }
    }

    /// Whether a failed request stops the send queue of such a queue pair alone; rxe has no such state (`rxe_completer`, rxe_comp.c).
    pub(super) fn stops_sends_alone(&self, kind: u8) -> bool {
        !self.is_rxe() && matches!(kind, qp_type::UC | qp_type::UD | qp_type::RAW_PACKET)
    }

    /// Whether an atomic operation is sent that has no room for its answer (`do_atomic`, rxe_comp.c, looks at that when it is there).
    pub(super) fn sends_without_room(&self) -> bool {
        self.is_rxe()
    }

    /// `rxe_qp_chk_init`, rxe_qp.c.
    pub(super) fn has_raw_packets(&self) -> bool {
        !self.is_rxe()
    }

    /// rxe has no `alloc_xrcd` (`rxe_dev_ops`, rxe_verbs.c).
    pub(super) fn has_xrc(&self) -> bool {
        self.xrc && !self.is_rxe()
    }

    /// What the core says of paging on demand (`ib_check_mr_access`, ib_verbs.h).
    pub(super) fn no_paging(&self) -> Errno {
        if self.is_rxe_since((6, 12)) { Errno::EOPNOTSUPP } else { Errno::EINVAL }
    }

    /// Whether a region may have these rights, and a queue pair (`RXE_ACCESS_SUPPORTED_MR`, rxe_verbs.h).
    pub(super) fn knows_access(&self, access: AccessFlags) -> bool {
        !self.is_rxe_since((6, 12)) || is_known(access)
    }

    /// There is no `rxe_rereg_user_mr` in 6.1.
    pub(super) fn changes_regions(&self) -> bool {
        !self.is_rxe_before((6, 12))
    }

    /// Who receives posts to a ring, and nobody looks at it; so what is posted to a queue pair that is broken already stays there
    /// until it is told to break again (`rxe_qp_error`, rxe_qp.c).
    pub(super) fn sees_late_receives(&self) -> bool {
        !self.is_rxe()
    }

    /// Whether a request or a message to a broken queue pair has it flush what is posted late (`rxe_requester`, rxe_req.c, and
    /// `check_type_state`, rxe_recv.c).
    pub(super) fn flushes_when_asked(&self) -> bool {
        self.is_rxe_since((6, 12))
    }

    /// Whether a datagram that does not fit into its receive is dropped (`rxe_resp_check_length`, rxe_resp.c).
    pub(super) fn drops_long_datagrams(&self) -> bool {
        self.is_rxe_since((6, 12))
    }

    /// Whether a receiver that is not ready counts as one that does not answer, so that the retries come to their end.
    pub(super) fn tires_of_waiting(&self, retries: u8) -> bool {
        self.is_rxe_since((6, 12)) && !self.retries_for_ever(retries)
    }

    /// A send queue that is drained is so each time that it is to be (`rxe_qp_sqd`, rxe_qp.c).
    pub(super) fn drains_again(&self) -> bool {
        self.is_rxe_since((6, 12))
    }

    /// A request that is to be tried again can be held before it is, so that the queue is drained without it (`rxe_requester`, rxe_req.c).
    pub(super) fn stops_between_tries(&self) -> bool {
        self.is_rxe()
    }

    /// A request with a fence waits until no read or atomic operation is in flight, and one that is to be tried again still counts as
    /// that, itself and those behind it (`rxe_wqe_is_fenced`, rxe_req.c, after `req_retry`).
    pub(super) fn waits_for_itself(&self) -> bool {
        self.is_rxe()
    }

    /// Whether a datagram of a queue pair to itself that breaks it is flushed: nothing is between the two sides
    /// (`rxe_requester`, rxe_req.c, and `rxe_completer`, rxe_comp.c, 6.1).
    pub(super) fn flushes_own_datagram(&self) -> bool {
        self.is_rxe_before((6, 12))
    }

    /// Back from SQD to RTS, nothing goes on until the next doorbell (`rxe_qp_from_attr`, rxe_qp.c).
    pub(super) fn resumes(&self) -> bool {
        !self.is_rxe()
    }

    /// Whether who waits for solicited messages is told of a receive that is flushed (`flush_recv_wqe`, rxe_resp.c).
    pub(super) fn solicits_flushed(&self) -> bool {
        !self.is_rxe_since((6, 12))
    }

    /// Whether requests behind one whose completion was lost are flushed without any (`flush_send_queue`, rxe_comp.c, and
    /// `flush_recv_queue`, rxe_resp.c).
    pub(super) fn flushes_in_silence(&self) -> bool {
        self.is_rxe_since((6, 12))
    }

    /// `flush_recv_queue`, rxe_resp.c, which 6.1 has not.
    pub(super) fn tells_of_last_receive(&self) -> bool {
        !self.is_rxe_before((6, 12))
    }

    /// How often a request that nobody answers is tried again: for ever (`COMPST_ERROR_RETRY`, rxe_comp.c).
    pub(super) fn retries_for_ever(&self, count: u8) -> bool {
        self.is_rxe() && count >= 7
    }

    /// Whether a message with a sequence number that was there before is acknowledged and that ends the request (`duplicate_request`,
    /// rxe_resp.c, and `check_psn`, rxe_comp.c). A card's requester takes no acknowledgement of what it has not sent.
    pub(super) fn ends_by_old_number(&self) -> bool {
        self.is_rxe()
    }

    /// A queue pair takes messages from others than the one that it is connected to, and answers that one (`check_addr`, rxe_recv.c).
    pub(super) fn takes_from_anybody(&self) -> bool {
        self.is_rxe()
    }

    /// A peer reaches the whole region behind a window (`check_rkey`, rxe_resp.c).
    pub(super) fn reaches_behind_windows(&self) -> bool {
        self.is_rxe()
    }

    /// A window that is bound can be invalidated by any queue pair (`rxe_invalidate_mw`, rxe_mw.c).
    pub(super) fn takes_any_window(&self) -> bool {
        self.is_rxe()
    }

    /// The status of a request with a local key that is not there or not of the protection domain (`copy_data`, rxe_mr.c).
    pub(super) fn bad_local_key(&self) -> u32 {
        if self.is_rxe() { wc_status::LOC_QP_OP_ERR } else { wc_status::LOC_PROT_ERR }
    }

    /// What becomes of a request's status when the requester itself found the fault: later ones flush the request with the others
    /// (`rxe_requester`, rxe_req.c).
    pub(super) fn own_status(&self, status: u32) -> u32 {
        let is_flushed = self.is_rxe_since((6, 12)) && status != wc_status::SUCCESS;
        if is_flushed { wc_status::WR_FLUSH_ERR } else { status }
    }

    /// The status of a request that breaks the queue pair that it is sent to, which is its own (`rxe_completer`, rxe_comp.c).
    pub(super) fn status_to_itself(&self, status: u32) -> u32 {
        if self.is_rxe_since((6, 12)) { wc_status::WR_FLUSH_ERR } else { status }
    }

    /// The status of a receive that its message could not go into (`send_data_in`, rxe_resp.c).
    pub(super) fn bad_receive(&self, status: u32) -> u32 {
        if self.is_rxe() { wc_status::LOC_QP_OP_ERR } else { status }
    }

    /// Whether a responder that breaks without a completion says so: of a key or a right 7.2 does (`do_qp_event`, rxe_resp.c).
    pub(super) fn tells_of_refusal(&self, is_access: bool) -> bool {
        !self.is_rxe() || (is_access && self.is_rxe_since((7, 2)))
    }
}
