//! The differences between a device that behaves like rxe and one that behaves like cards and the InfiniBand specification.
//!
//! Each method is called where the difference matters. The sources are those of the named version and of Linux 7.3. All other behaviour is
//! that of cards for every profile; its differences from rxe are listed in `tests/common/differences`.

use nix::errno::Errno;
use uverbs_abi::types::{AccessFlags, qp_type, wc_status};

use super::profile::Profile;

/// The access rights that rxe supports (`RXE_ACCESS_SUPPORTED_MR`, rxe_verbs.h, Linux 6.12 and 7.3).
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

    /// On 6.1, a region without remote access rights has no remote key (`rxe_mr_init`, rxe_mr.c).
    pub(super) fn remote_key(&self, key: u32, access: AccessFlags) -> u32 {
        let remote = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        if self.is_rxe_before((6, 12)) && !access.intersects(remote) { 0 } else { key }
    }

    /// Whether a failed request of such a queue pair stops only the send queue. rxe has no such state (`rxe_completer`, rxe_comp.c).
    pub(super) fn stops_sends_alone(&self, kind: u8) -> bool {
        !self.is_rxe() && matches!(kind, qp_type::UC | qp_type::UD | qp_type::RAW_PACKET)
    }

    /// Whether an atomic operation without room for its response is sent (`do_atomic`, rxe_comp.c, checks the room when the response
    /// arrives).
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

    /// The core's error for on-demand paging (`ib_check_mr_access`, ib_verbs.h).
    pub(super) fn no_paging(&self) -> Errno {
        if self.is_rxe_since((6, 12)) { Errno::EOPNOTSUPP } else { Errno::EINVAL }
    }

    /// Whether a region or a queue pair may have these access rights (`RXE_ACCESS_SUPPORTED_MR`, rxe_verbs.h).
    pub(super) fn knows_access(&self, access: AccessFlags) -> bool {
        !self.is_rxe_since((6, 12)) || is_known(access)
    }

    /// There is no `rxe_rereg_user_mr` in 6.1.
    pub(super) fn changes_regions(&self) -> bool {
        !self.is_rxe_before((6, 12))
    }

    /// rxe is not notified of posted receives. A receive that is posted to a queue pair in the error state therefore stays there until
    /// the queue pair is moved to the error state again (`rxe_qp_error`, rxe_qp.c).
    pub(super) fn sees_late_receives(&self) -> bool {
        !self.is_rxe()
    }

    /// Whether a request of a queue pair in the error state, or a message to it, makes it flush what was posted late (`rxe_requester`,
    /// rxe_req.c, and `check_type_state`, rxe_recv.c).
    pub(super) fn flushes_when_asked(&self) -> bool {
        self.is_rxe_since((6, 12))
    }

    /// Whether a datagram that does not fit into its receive is dropped (`rxe_resp_check_length`, rxe_resp.c).
    pub(super) fn drops_long_datagrams(&self) -> bool {
        self.is_rxe_since((6, 12))
    }

    /// Whether a receiver that is not ready counts like one that does not respond, so that the retries end.
    pub(super) fn tires_of_waiting(&self, retries: u8) -> bool {
        self.is_rxe_since((6, 12)) && !self.retries_for_ever(retries)
    }

    /// A send queue that is already drained reports this again each time it is drained (`rxe_qp_sqd`, rxe_qp.c).
    pub(super) fn drains_again(&self) -> bool {
        self.is_rxe_since((6, 12))
    }

    /// A request that is to be retried can be stopped before the retry, so that the queue is drained without it (`rxe_requester`,
    /// rxe_req.c).
    pub(super) fn stops_between_tries(&self) -> bool {
        self.is_rxe()
    }

    /// A request with a fence waits until no read or atomic operation is in flight. A request that is to be retried, and those behind it,
    /// still count as in flight, so it waits for itself (`rxe_wqe_is_fenced`, rxe_req.c, after `req_retry`).
    pub(super) fn waits_for_itself(&self) -> bool {
        self.is_rxe()
    }

    /// Whether a datagram from a queue pair to itself that moves it to the error state is flushed: requester and responder are the same
    /// queue pair (`rxe_requester`, rxe_req.c, and `rxe_completer`, rxe_comp.c, 6.1).
    pub(super) fn flushes_own_datagram(&self) -> bool {
        self.is_rxe_before((6, 12))
    }

    /// After the step from SQD to RTS, sending continues only with the next doorbell (`rxe_qp_from_attr`, rxe_qp.c).
    pub(super) fn resumes(&self) -> bool {
        !self.is_rxe()
    }

    /// Whether a channel that is armed for solicited messages gets an event for a receive that is flushed (`flush_recv_wqe`, rxe_resp.c).
    pub(super) fn solicits_flushed(&self) -> bool {
        !self.is_rxe_since((6, 12))
    }

    /// Whether requests after one whose completion was lost are flushed without completions (`flush_send_queue`, rxe_comp.c, and
    /// `flush_recv_queue`, rxe_resp.c).
    pub(super) fn flushes_in_silence(&self) -> bool {
        self.is_rxe_since((6, 12))
    }

    /// `flush_recv_queue`, rxe_resp.c, which 6.1 does not have.
    pub(super) fn tells_of_last_receive(&self) -> bool {
        !self.is_rxe_before((6, 12))
    }

    /// How often a request without a response is retried: for ever if `count` is at least 7 (`COMPST_ERROR_RETRY`, rxe_comp.c).
    pub(super) fn retries_for_ever(&self, count: u8) -> bool {
        self.is_rxe() && count >= 7
    }

    /// Whether any message with an earlier sequence number is acknowledged, and the acknowledgement ends the request
    /// (`duplicate_request`, rxe_resp.c, and `check_psn`, rxe_comp.c). The requester of a card accepts no acknowledgement for what it has
    /// not sent: only the latest number that its peer has received ends the request.
    pub(super) fn ends_by_old_number(&self) -> bool {
        self.is_rxe()
    }

    /// Whether a read with an earlier sequence number is executed, as InfiniBand requires of a duplicate. rxe executes it only if it has
    /// executed one with that number before (`find_resource`, rxe_resp.c).
    pub(super) fn reads_again(&self) -> bool {
        !self.is_rxe()
    }

    /// Whether a queue key with the highest bit in a request stands for that of its queue pair, as InfiniBand specifies. rxe sends the
    /// number as it is (`init_req_packet`, rxe_req.c).
    pub(super) fn has_own_qkey(&self) -> bool {
        !self.is_rxe()
    }

    /// A queue pair accepts messages from other queue pairs than the one to which it is connected, and responds to that one
    /// (`check_addr`, rxe_recv.c).
    pub(super) fn takes_from_anybody(&self) -> bool {
        self.is_rxe()
    }

    /// A peer can access the whole region behind a window (`check_rkey`, rxe_resp.c).
    pub(super) fn reaches_behind_windows(&self) -> bool {
        self.is_rxe()
    }

    /// Any queue pair can invalidate a bound window (`rxe_invalidate_mw`, rxe_mw.c).
    pub(super) fn takes_any_window(&self) -> bool {
        self.is_rxe()
    }

    /// The status of a request with a local key that does not exist or belongs to another protection domain (`copy_data`, rxe_mr.c).
    pub(super) fn bad_local_key(&self) -> u32 {
        if self.is_rxe() { wc_status::LOC_QP_OP_ERR } else { wc_status::LOC_PROT_ERR }
    }

    /// The status of a request in which the requester itself found the fault: later versions flush it with the others (`rxe_requester`,
    /// rxe_req.c).
    pub(super) fn own_status(&self, status: u32) -> u32 {
        let is_flushed = self.is_rxe_since((6, 12)) && status != wc_status::SUCCESS;
        if is_flushed { wc_status::WR_FLUSH_ERR } else { status }
    }

    /// The status of a request that a queue pair sends to itself and that moves it to the error state (`rxe_completer`, rxe_comp.c).
    pub(super) fn status_to_itself(&self, status: u32) -> u32 {
        if self.is_rxe_since((6, 12)) { wc_status::WR_FLUSH_ERR } else { status }
    }

    /// The status of a receive into which its message could not be written (`send_data_in`, rxe_resp.c).
    pub(super) fn bad_receive(&self, status: u32) -> u32 {
        if self.is_rxe() { wc_status::LOC_QP_OP_ERR } else { status }
    }

    /// Whether a responder that enters the error state without a completion raises an event: 7.2 does so for a wrong key or right
    /// (`do_qp_event`, rxe_resp.c).
    pub(super) fn tells_of_refusal(&self, is_access: bool) -> bool {
        !self.is_rxe() || (is_access && self.is_rxe_since((7, 2)))
    }
}
