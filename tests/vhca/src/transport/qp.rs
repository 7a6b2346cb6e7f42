//! A queue pair: its properties, its state, and its two halves.

use super::requester::Requester;
use super::responder::Responder;
use crate::bits::{Bits, BitsMut, Field};
use crate::command::Status;
use crate::ifc::command::create_qp_in;
use crate::ifc::context::{ads, qpc};
use crate::queue::{Pages, ReceiveRing, WorkRing};

use uverbs::raw::roce::Service;

/// States of queue pairs, by the numbers of QUERY_QP.
pub(crate) mod state {
    pub(crate) const RESET: u32 = 0;
    pub(crate) const INIT: u32 = 1;
    pub(crate) const READY_TO_RECEIVE: u32 = 2;
    pub(crate) const READY_TO_SEND: u32 = 3;
    pub(crate) const SEND_ERROR: u32 = 4;
    pub(crate) const SEND_DRAINED: u32 = 5;
    pub(crate) const ERROR: u32 = 6;
}

/// The kind of a queue pair: `MLX5_QP_ST_*` in the kernel's `include/linux/mlx5/qp.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rc,
    Uc,
    Ud,
    Xrc,
    /// Queue pairs 0 and 1 of the port, for subnet management and general services.
    Management(u32),
    /// Changes memory keys, and sends nothing.
    Keys,
}

impl Kind {
    fn of(number: u32) -> Option<Self> {
        Some(match number {
            0x0 => Self::Rc,
            0x1 => Self::Uc,
            0x2 => Self::Ud,
            0x3 => Self::Xrc,
            0x7 => Self::Management(0),
            0x8 => Self::Management(1),
            0xc => Self::Keys,
            _ => return None,
        })
    }

    pub(crate) fn service(self) -> Service {
        match self {
            Self::Rc | Self::Keys => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud | Self::Management(_) => Service::Ud,
            Self::Xrc => Service::Xrc,
        }
    }

    /// Whether every packet is acknowledged.
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc | Self::Keys)
    }

    pub(crate) fn is_datagram(self) -> bool {
        matches!(self, Self::Ud | Self::Management(_))
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) context: Vec<u8>,
    pub(crate) sends: Option<WorkRing>,
    /// Its own receive requests, if it does not use a shared queue.
    pub(crate) receives: Option<ReceiveRing>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
}

/// The place of receive requests, by the numbers of `rq_type`.
const OWN_RECEIVES: u32 = 0;
const SHARED_RECEIVES: u32 = 1;

/// The code of the segment sizes from which a stride is counted.
const LOG_SEGMENT: u32 = 4;

impl Qp {
    /// The queue pair that CREATE_QP describes, without its number.
    ///
    /// # Errors
    /// `BadParameter` for what the device does not support, and the errors of [`Pages::new`].
    pub(crate) fn new(input: &[u8]) -> Result<Self, Status> {
        let mut context = input.part(create_qp_in::qpc).to_vec();
        let kind = Kind::of(context.num(qpc::st)).ok_or(Status::BadParameter)?;
        let log_stride = context.num(qpc::log_rq_stride) + LOG_SEGMENT;
        let log_receives = context.num(qpc::log_rq_size);
        let log_blocks = context.num(qpc::log_sq_size);
        let has_receives = context.num(qpc::rq_type) == OWN_RECEIVES && kind != Kind::Keys;
        let has_sends = !context.is(qpc::no_sq);
        let receive_bytes = if has_receives { 1_u64 << (log_stride + log_receives) } else { 0 };
        let send_bytes = if has_sends { 64_u64 << log_blocks } else { 0 };
        let pages = Pages::new(
            input.part(create_qp_in::pas),
            context.num(qpc::log_page_size),
            context.num(qpc::page_offset),
            receive_bytes + send_bytes,
        )?;
        let (doorbell, pd) = (context.wide(qpc::dbr_addr), context.num(qpc::pd));
        let ring = |at, bytes, log_stride, log_size| {
            WorkRing::of_queue_pair(pages.within(at, bytes), log_stride, log_size, doorbell, pd)
        };
        let receives =
            has_receives.then(|| ReceiveRing::new(ring(0, receive_bytes, log_stride, log_receives)));
        let sends = has_sends.then(|| ring(receive_bytes, send_bytes, 6, log_blocks));
        context.set(qpc::state, state::RESET);
        Ok(Self {
            number: 0,
            kind,
            context,
            sends,
            receives,
            requester: Requester::default(),
            responder: Responder::default(),
        })
    }

    pub(crate) fn state(&self) -> u32 {
        self.context.num(qpc::state)
    }

    pub(crate) fn set_state(&mut self, state: u32) {
        self.context.set(qpc::state, state);
    }

    /// Whether requests of the peer are accepted.
    pub(crate) fn is_receiving(&self) -> bool {
        (state::READY_TO_RECEIVE..=state::SEND_DRAINED).contains(&self.state())
    }

    /// The protection domain of its requests; none for one that changes keys of all domains.
    pub(crate) fn pd(&self) -> Option<u32> {
        (self.kind != Kind::Keys).then(|| self.context.num(qpc::pd))
    }

    /// The shared queue that provides its receive requests. The driver names one even if there is none: the kind decides.
    pub(crate) fn shared_receives(&self) -> Option<u32> {
        (self.context.num(qpc::rq_type) == SHARED_RECEIVES && self.kind != Kind::Xrc)
            .then(|| self.context.num(qpc::srqn_rmpn_xrqn))
    }

    /// Maximum payload of a packet in bytes.
    pub(crate) fn mtu(&self) -> usize {
        match self.context.num(qpc::mtu) {
            code @ 1..=5 => 128 << code,
            _ => 4096,
        }
    }

    pub(crate) fn path(&self) -> &[u8] {
        self.context.part(qpc::primary_address_path)
    }

    /// The set of counters in which it counts; 0 for none.
    pub(crate) fn counter_set(&self) -> u32 {
        self.context.num(qpc::counter_set_id)
    }

    /// The set of counters to which a command moves it, if the command does this.
    pub(crate) fn wanted_counter_set(&self, opcode: u32, mask: u32, wanted: &[u8]) -> Option<u32> {
        let step = Step::of(opcode).filter(|_| wanted.len() == self.context.len())?;
        let mut fields = step.required.iter().chain(optional(mask));
        fields.any(|field| *field == qpc::counter_set_id).then(|| wanted.num(qpc::counter_set_id))
    }

    /// Changes to the state of a command, with the attributes that the command requires and those that its mask names.
    ///
    /// # Errors
    /// `BadQpState` if the command does not start from this state, `BadOpcode` if the command does not exist.
    pub(crate) fn modify(&mut self, opcode: u32, mask: u32, wanted: &[u8]) -> Result<(), Status> {
        let step = Step::of(opcode).ok_or(Status::BadOpcode)?;
        if step.from >> self.state() & 1 == 0 {
            return Err(Status::BadQpState);
        }
        // A command without a context only changes the state.
        if wanted.len() == self.context.len() {
            for field in step.required.iter().chain(optional(mask)) {
                self.context.set(*field, wanted.wide(*field));
            }
            if step.brings_path || mask & PRIMARY_PATH != 0 {
                self.take_path(wanted);
            }
        }
        match step.to {
            state::RESET => self.reset(),
            state::READY_TO_RECEIVE if step.from == 1 << state::INIT => {
                self.responder.begin(self.context.num(qpc::next_rcv_psn));
            }
            state::READY_TO_SEND if step.from == 1 << state::READY_TO_RECEIVE => {
                self.requester.begin(self.context.num(qpc::next_send_psn));
            }
            _ => {}
        }
        self.set_state(step.to);
        Ok(())
    }

    /// Takes the address of the peer, without the index of the partition key and the response timeout, which other steps set.
    fn take_path(&mut self, wanted: &[u8]) {
        let kept = [ads::pkey_index, ads::ack_timeout].map(|field| (field, self.path().wide(field)));
        let path = wanted.part(qpc::primary_address_path);
        self.context.put(qpc::primary_address_path, path);
        let path = self.context.part_mut(qpc::primary_address_path);
        kept.into_iter().for_each(|(field, value)| path.set(field, value));
    }

    /// Discards everything in progress.
    fn reset(&mut self) {
        (self.requester, self.responder) = (Requester::default(), Responder::default());
        self.context.set(qpc::counter_set_id, 0_u32);
        if let Some(ring) = &mut self.receives {
            ring.reset();
        }
    }

    /// The context as a query shows it.
    pub(crate) fn shown(&self) -> Vec<u8> {
        let mut context = self.context.clone();
        if self.state() >= state::READY_TO_RECEIVE {
            context.set(qpc::next_rcv_psn, self.responder.expected);
        }
        if self.state() >= state::READY_TO_SEND {
            context.set(qpc::next_send_psn, self.requester.next_psn);
        }
        context.set(qpc::hw_sq_wqebb_counter, self.requester.consumer);
        context
    }
}

/// A command that changes the state.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The states from which it may start, one bit each.
    from: u32,
    to: u32,
    required: &'static [Field],
    /// It includes the address of the peer.
    brings_path: bool,
}

const PATH: Field = qpc::primary_address_path;

const TO_INIT: &[Field] = &[
    qpc::pm_state,
    ads::pkey_index.within(PATH),
    ads::vhca_port_num.within(PATH),
    qpc::q_key,
    qpc::rre,
    qpc::rwe,
    qpc::rae,
    qpc::counter_set_id,
    qpc::mtu,
    qpc::log_msg_max,
];
const TO_RECEIVE: &[Field] =
    &[qpc::mtu, qpc::log_msg_max, qpc::remote_qpn, qpc::next_rcv_psn, qpc::log_rra_max, qpc::min_rnr_nak];
const TO_SEND: &[Field] = &[
    qpc::next_send_psn,
    qpc::log_sra_max,
    qpc::log_ack_req_freq,
    qpc::retry_count,
    qpc::rnr_retry,
    ads::ack_timeout.within(PATH),
];

impl Step {
    fn of(opcode: u32) -> Option<Self> {
        const ANY: u32 = 0x7f;
        let step = |from: u32, to, required, brings_path| Some(Self { from, to, required, brings_path });
        match opcode {
            0x502 => step(1 << state::RESET, state::INIT, TO_INIT, false),
            0x503 => step(1 << state::INIT, state::READY_TO_RECEIVE, TO_RECEIVE, true),
            0x504 => step(1 << state::READY_TO_RECEIVE, state::READY_TO_SEND, TO_SEND, false),
            0x505 => step(1 << state::READY_TO_SEND, state::READY_TO_SEND, &[], false),
            0x506 => step(1 << state::SEND_ERROR, state::READY_TO_SEND, &[], false),
            0x507 => step(ANY, state::ERROR, &[], false),
            0x50a => step(ANY, state::RESET, &[], false),
            0x50c => step(1 << state::SEND_DRAINED, state::READY_TO_SEND, &[], false),
            0x50e => step(1 << state::INIT, state::INIT, &[], false),
            _ => None,
        }
    }
}

/// The bit for the address of the peer in the mask of optional attributes.
const PRIMARY_PATH: u32 = 1 << 7;

/// The bits of other attributes, as in `enum mlx5_qp_optpar` in the kernel's `include/linux/mlx5/qp.h`.
const OPTIONAL: &[(u32, Field)] = &[
    (1, qpc::rre),
    (2, qpc::rae),
    (2, qpc::atomic_mode),
    (3, qpc::rwe),
    (4, ads::pkey_index.within(PATH)),
    (5, qpc::q_key),
    (6, qpc::min_rnr_nak),
    (8, qpc::log_sra_max),
    (9, qpc::log_rra_max),
    (10, qpc::pm_state),
    (12, qpc::retry_count),
    (13, qpc::rnr_retry),
    (14, ads::ack_timeout.within(PATH)),
    (16, ads::vhca_port_num.within(PATH)),
    (18, qpc::srqn_rmpn_xrqn),
    (19, qpc::cqn_rcv),
    (25, qpc::counter_set_id),
];

fn optional(mask: u32) -> impl Iterator<Item = &'static Field> {
    OPTIONAL.iter().filter(move |(bit, _)| mask >> bit & 1 == 1).map(|(_, field)| field)
}
