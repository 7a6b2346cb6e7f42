//! States of a queue pair, and the steps from one to another.
//!
//! The device may change the state by itself (in particular to [`QpState::Error`]), so the state is neither a type parameter nor
//! stored here: it is queried. The crate stores only whether the last query reported that the send queue had stopped, because
//! mlx5's driver changes its own state when it reports that.

use std::sync::atomic::Ordering;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::types::{QpAttrMask, mtu, qp_state, qp_type};
use uverbs_abi::write::{ModifyQp, QueryQp, QueryQpResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::{Attributes, QpType, QueuePair, QueuePairCore};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result, limit};
use crate::verbs::ah::unreachable;

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_state")]
pub enum QpState {
    /// Newly created, or reset: nothing can be posted.
    #[doc(alias = "IBV_QPS_RESET")]
    Reset,
    /// Receives can be posted, but nothing is received yet.
    #[doc(alias = "IBV_QPS_INIT")]
    Init,
    /// Ready to receive (RTR).
    #[doc(alias = "IBV_QPS_RTR")]
    ReadyToReceive,
    /// Ready to send (RTS).
    #[doc(alias = "IBV_QPS_RTS")]
    ReadyToSend,
    /// The send queue drains (SQD).
    #[doc(alias = "IBV_QPS_SQD")]
    SendQueueDrain,
    /// The send queue stopped because of an error (SQE).
    #[doc(alias = "IBV_QPS_SQE")]
    SendQueueError,
    /// Everything posted completes with [`Status::Flushed`](crate::Status::Flushed).
    #[doc(alias = "IBV_QPS_ERR")]
    Error,
}

use QpState::{Error as Failed, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError};

impl QpState {
    const ALL: [(Self, u8); 7] = [
        (Reset, qp_state::RESET),
        (Init, qp_state::INIT),
        (ReadyToReceive, qp_state::RTR),
        (ReadyToSend, qp_state::RTS),
        (SendQueueDrain, qp_state::SQD),
        (SendQueueError, qp_state::SQE),
        (Failed, qp_state::ERR),
    ];

    pub(super) fn number(self) -> u8 {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or(qp_state::ERR, |(_, number)| *number)
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == number).map(|(state, _)| *state)
    }
}

/// The attributes that a step requires and allows; `None` if there is no such step.
///
/// Source: `qp_state_table`, verbs.c, Linux 6.1; for raw packets mlx5_ib_modify_qp, qp.c; for reliable datagrams
/// `srd_qp_state_table`, efa_verbs.c.
fn step(type_: u8, from: QpState, to: QpState) -> Option<(QpAttrMask, QpAttrMask)> {
    use QpAttrMask as A;
    let none = A::empty();
    let srd = type_ == qp_type::DRIVER;
    let (ud, target) = (type_ == qp_type::UD || srd, type_ == qp_type::XRC_TGT);
    let connected = !ud && type_ != qp_type::RAW_PACKET;
    // Queue pairs that respond to the requests of others, and queue pairs whose requests are acknowledged.
    let (asked, asks) = (type_ == qp_type::RC || target, matches!(type_, qp_type::RC | qp_type::XRC_INI));
    let only = |condition: bool, mask: A| if condition { mask } else { none };
    Some(match (from, to) {
        (Reset, Failed) => return None,
        (_, Reset | Failed) => (none, none),
        (Reset, Init) => (
            A::PORT
                | only(connected || ud, A::PKEY_INDEX)
                | only(connected, A::ACCESS_FLAGS)
                | only(ud, A::QKEY),
            none,
        ),
        (Init, Init) if connected => (none, A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS),
        (Init, Init) if ud => (none, A::PKEY_INDEX | A::PORT | A::QKEY),
        (Init, ReadyToReceive) => (
            only(connected, A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN)
                | only(asked, A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER),
            only(connected, A::ALT_PATH | A::ACCESS_FLAGS | A::PKEY_INDEX)
                | only(ud, A::PKEY_INDEX | A::QKEY),
        ),
        (ReadyToReceive, ReadyToSend) => (
            only(connected || ud, A::SQ_PSN)
                | only(asks, A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC)
                | only(target, A::TIMEOUT),
            only(connected || ud, A::CUR_STATE)
                | only(connected, A::ALT_PATH | A::ACCESS_FLAGS | A::PATH_MIG_STATE)
                | only(asked, A::MIN_RNR_TIMER)
                | only(ud, A::QKEY)
                | only(srd, A::RNR_RETRY),
        ),
        (ReadyToSend, ReadyToSend) => (
            none,
            only(connected || ud, A::CUR_STATE)
                | only(connected, A::ACCESS_FLAGS | A::ALT_PATH | A::PATH_MIG_STATE)
                | only(asked, A::MIN_RNR_TIMER)
                | only(ud, A::QKEY),
        ),
        (ReadyToSend, SendQueueDrain) => (none, A::EN_SQD_ASYNC_NOTIFY),
        (SendQueueDrain | SendQueueError, ReadyToSend) => (none, A::CUR_STATE | only(ud, A::QKEY)),
        _ => return None,
    })
}

/// Explains which attributes of a refused step are missing or not allowed, if that is the reason.
fn explain(type_: u8, from: QpState, to: QpState, mask: QpAttrMask) -> Option<String> {
    let names = |mask: QpAttrMask| {
        mask.iter_names().map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>().join(", ")
    };
    let Some((required, optional)) = step(type_, from, to) else {
        return Some(format!("there is no transition from {from:?} to {to:?}"));
    };
    let missing = required.difference(mask);
    let forbidden = mask.difference(required | optional | QpAttrMask::STATE);
    let words = [("missing", missing), ("not allowed", forbidden)]
        .into_iter()
        .filter(|(_, mask)| !mask.is_empty())
        .map(|(word, mask)| format!("{word}: {}", names(mask)))
        .collect::<Vec<_>>();
    (!words.is_empty()).then(|| format!("from {from:?} to {to:?}, {}", words.join("; ")))
}

/// The state is not queried for this hint: the kernel logs a warning if only one of the two queues has stopped.
const STOPPED: &str = "one of its queues has stopped at an error by itself, of which the driver does not know: destroy the queue pair";

impl QueuePairCore {
    /// Queries the attributes from the kernel.
    pub(super) fn query(&self, mask: QpAttrMask) -> Result<QueryQpResp> {
        let request =
            QueryQp { qp_handle: self.object.id(), attr_mask: mask.bits(), ..QueryQp::new_zeroed() };
        let mut response = QueryQpResp::new_zeroed();
        let mut command = Command::write("qp.query", cmd::QUERY_QP);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        self.object.context().invoke(&mut command)?;
        self.has_stopped.store(response.qp_state == qp_state::SQE, Ordering::Relaxed);
        if self.srq.is_some() {
            // rxe does not set the sizes of a queue that does not exist (`rxe_qp_to_init`, rxe_qp.c, Linux 6.1 to 7.3).
            (response.max_recv_wr, response.max_recv_sge) = (0, 0);
        }
        self.object.context().driver().tidy_qp(&mut response);
        Ok(response)
    }

    /// The state, one of [`qp_state`]: the kernel's, or the one that was requested last if the driver does not return it.
    pub(super) fn known_state(&self, op: &'static str) -> Result<u8> {
        let context = self.object.context();
        if context.driver().tells_states(op).is_ok() {
            return Ok(self.query(QpAttrMask::STATE)?.qp_state);
        }
        context.check_origin(op)?;
        Ok(self.entered.load(Ordering::Relaxed))
    }

    /// Makes the kernel change the attributes that the request names.
    pub(super) fn modify(&self, type_: u8, request: &ModifyQp) -> Result<()> {
        let op = "qp.modify";
        let has_state = QpAttrMask::from_bits_retain(request.attr_mask).contains(QpAttrMask::STATE);
        let goes_on = has_state && request.qp_state == qp_state::RTS;
        if goes_on && self.has_stopped.load(Ordering::Relaxed) && self.stops_alone(type_) {
            self.object.context().check_origin(op)?;
            // The driver would log a warning that it has no such step (`modify_raw_packet_qp`, mlx5/qp.c, Linux 6.1): it stored the state
            // when the state was queried.
            let hint = "a send queue for raw packets that has stopped starts again from a reset";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        let request = ModifyQp { qp_handle: self.object.id(), ..*request };
        let mut command = Command::write(op, cmd::MODIFY_QP);
        command.input(CORE_IN, &request);
        self.object.context().invoke(&mut command)?;
        if has_state {
            self.has_stopped.store(false, Ordering::Relaxed);
            self.entered.store(request.qp_state, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes the kernel change attributes, with a hint about those that are missing or not allowed if the step is refused.
    pub(super) fn change(&self, type_: u8, attributes: &Attributes) -> Result<()> {
        let request = attributes.request();
        self.modify(type_, request).map_err(|error| {
            let error = match attributes.mask().contains(QpAttrMask::AV) {
                true => unreachable(error, request.dest.sgid_index, &request.dest.dgid),
                false => error,
            };
            let refused = error.kind() == ErrorKind::InvalidInput;
            let ends = matches!(request.qp_state, qp_state::RESET | qp_state::ERR);
            if refused && ends && self.stops_alone(type_) {
                return error.hinted(STOPPED);
            }
            if let (true, qp_state::RTS, Some(hint)) =
                (refused, request.qp_state, self.object.context().driver().connected_by_others())
            {
                return error.hinted(hint);
            }
            if let Some(hint) = refused.then(|| self.outside(request)).flatten() {
                return error.hinted(hint);
            }
            let from = refused.then(|| self.state().ok()).flatten();
            let to = QpState::from_number(request.qp_state);
            let hint = from.zip(to).and_then(|(from, to)| explain(type_, from, to, attributes.mask()));
            match hint {
                Some(hint) => error.hinted(hint),
                None => error,
            }
        })
    }

    /// The hint for the first attribute of a request that has a number which is not allowed.
    fn outside(&self, request: &ModifyQp) -> Option<String> {
        let (context, mask) = (self.object.context(), QpAttrMask::from_bits_retain(request.attr_mask));
        // The widths in the context of a queue pair (InfiniBand, 11.2.5.2).
        let narrow = [
            (QpAttrMask::TIMEOUT, "timeout", request.timeout, 31),
            (QpAttrMask::RETRY_CNT, "retry_cnt", request.retry_cnt, 7),
            (QpAttrMask::RNR_RETRY, "rnr_retry", request.rnr_retry, 7),
            (QpAttrMask::MIN_RNR_TIMER, "min_rnr_timer", request.min_rnr_timer, 31),
        ];
        let wide = narrow.into_iter().find(|(bit, _, given, most)| mask.contains(*bit) && given > most);
        if let Some((_, what, given, most)) = wide {
            return Some(limit(what, given, format_args!("at most {most}")));
        }
        if mask.contains(QpAttrMask::PATH_MTU) && !(mtu::MTU_256..=mtu::MTU_4096).contains(&request.path_mtu)
        {
            let allowed = format!("{} (256 bytes) to {} (4096 bytes)", mtu::MTU_256, mtu::MTU_4096);
            return Some(limit("path_mtu", request.path_mtu, allowed));
        }
        let port = mask.contains(QpAttrMask::PORT).then_some(request.port_num);
        if let Some(hint) = port.and_then(|port| context.no_such_port(port)) {
            return Some(hint);
        }
        let dest = mask.contains(QpAttrMask::AV).then_some(request.dest).filter(|dest| dest.is_global != 0);
        dest.and_then(|dest| context.no_such_gid(dest.port_num, dest.sgid_index.into()))
    }

    pub(super) fn state(&self) -> Result<QpState> {
        self.object.context().driver().tells_states("qp.query")?;
        let state = self.query(QpAttrMask::STATE)?.qp_state;
        QpState::from_number(state).ok_or_else(|| Error::malformed("qp.query", format!("state {state}")))
    }

    /// Whether its two queues stop independently.
    fn stops_alone(&self, type_: u8) -> bool {
        type_ == qp_type::RAW_PACKET && self.object.context().driver().queues_stop_alone()
    }
}

impl<T: QpType> QueuePair<T> {
    /// The state of the queue pair, as the kernel reports it.
    ///
    /// # Errors
    /// Those of the kernel; [`Malformed`](ErrorKind::Malformed) for a state that this crate does not know;
    /// [`Unsupported`](ErrorKind::Unsupported) if the driver does not report it (mana; siw before Linux 6.8).
    #[doc(alias = "ibv_query_qp")]
    pub fn state(&self) -> Result<QpState> {
        self.shared.state()
    }

    /// The attributes of the queue pair that the kernel returns.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Kernel
    /// `QUERY_QP` through `INVOKE_WRITE` (ib_uverbs_query_qp, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self, mask: QpAttrMask) -> Result<QueryQpResp> {
        self.shared.query(mask)
    }

    /// Changes the state, and attributes with it.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput), with the attributes that the transition requires and those that it does not
    /// allow.
    ///
    /// # Kernel
    /// `MODIFY_QP` through `INVOKE_WRITE` (ib_uverbs_modify_qp, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&mut self, attributes: &Attributes) -> Result<()> {
        self.shared.change(T::NUMBER, attributes)?;
        let request = attributes.request();
        if attributes.mask().contains(QpAttrMask::AV) {
            (self.peer, self.is_peer_settled) = (request.dest.dgid, false);
        }
        self.sends.changed(request);
        if attributes.mask().contains(QpAttrMask::STATE) {
            if request.qp_state == qp_state::RESET {
                self.shared.windows.reset();
            }
            self.sends.enter(request.qp_state);
            if let Some(receives) = &mut self.receives {
                receives.enter(request.qp_state);
            }
        }
        Ok(())
    }

    /// Moves the queue pair to [`QpState::Error`]: everything posted completes as flushed.
    ///
    /// # Errors
    /// Those of the kernel.
    #[doc(alias = "ibv_modify_qp")]
    pub fn to_error(&mut self) -> Result<()> {
        self.modify(&Attributes::to(QpState::Error))
    }

    /// Moves the queue pair to [`QpState::Reset`]: everything posted is discarded without a completion.
    ///
    /// # Errors
    /// Those of the kernel.
    #[doc(alias = "ibv_modify_qp")]
    pub fn reset(&mut self) -> Result<()> {
        self.modify(&Attributes::to(QpState::Reset))
    }
}
