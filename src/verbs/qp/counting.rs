//! Operations that count into completion counters.

use nix::errno::Errno;
use uverbs_abi::types::{SendFlags, qp_state, qp_type};

use super::{QpType, QueuePair, QueuePairCore};
use crate::completion_counter::{Bound, CompletionCounter, Counted, Kind, Posted, insist};
use crate::device::object::Object;
use crate::driver::request::Opcode;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};

/// The name of the operation in errors.
const OP: &str = "qp.bind_counter";

/// The kind of a request for counters. An atomic operation returns an old value, as a read does.
fn kind(opcode: &Opcode<'_>) -> Kind {
    match opcode {
        Opcode::Send | Opcode::SendImmediate(_) | Opcode::SendInvalidate(_) | Opcode::Datagram { .. } => {
            Kind::Send
        }
        Opcode::Write(_) | Opcode::WriteImmediate(..) => Kind::Write,
        Opcode::Read(_) | Opcode::CompareSwap { .. } | Opcode::FetchAdd { .. } => Kind::Read,
        Opcode::AtomicWrite(_) | Opcode::Flush { .. } | Opcode::Bind(_) | Opcode::LocalInvalidate(_) => {
            Kind::Other
        }
        // All frames of a large send are one request.
        Opcode::Large { .. } => Kind::Send,
    }
}

/// The operations of queue pairs of this type that software can count.
fn visible(type_: u8) -> Counted {
    let messages = Counted::SEND | Counted::RECEIVE;
    match type_ {
        qp_type::RC => messages | Counted::READ | Counted::WRITE | Counted::REMOTE_WRITE_IMMEDIATE,
        qp_type::DRIVER => messages | Counted::READ | Counted::WRITE | Counted::REMOTE_WRITE_IMMEDIATE,
        qp_type::XRC_INI => Counted::SEND | Counted::READ | Counted::WRITE,
        qp_type::UC => messages | Counted::WRITE | Counted::REMOTE_WRITE_IMMEDIATE,
        _ => messages,
    }
}

impl<T: QpType> QueuePair<T> {
    /// Makes `counter` count operations of the queue pair, until the queue pair is destroyed. Several counters may count the same
    /// operations, and one counter those of several queue pairs. For one completion, the counters count in the order in which
    /// they were bound.
    ///
    /// An operation counts when its completion is taken from the completion queue, by [`poll`](crate::CompletionQueue::poll),
    /// [`progress`](crate::CompletionQueue::progress) or [`Progress`](crate::Progress). A send that was not
    /// [`signaled`](crate::SendRequest::signaled) has no completion; it counts, and its slot in the queue becomes free, when the
    /// completion of a later send proves that it is done. On devices whose requests complete in any order (efa, siw) a later
    /// completion proves nothing, so an unsignaled send is refused while a counter is bound.
    ///
    /// Each failed operation adds one to the error value, whatever the counter counts. This includes flushed receives. For a
    /// failure, a device may not report whether it was a send or a receive. If both complete in one queue, the number of the
    /// request distinguishes them, so use different numbers.
    ///
    /// Take the completions from the queue before you reset the queue pair: a reset discards them, and they are not counted.
    ///
    /// ```
    /// use uverbs::{CompletionCounter, Counted, SendRequest, WaitObject};
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::SoftDevice::default().open()?;
    /// let mut cq = context.create_cq(16)?;
    /// let mut qp = context.alloc_pd()?.raw_packet(&cq).inline(64).create()?;
    /// let sent = CompletionCounter::new(WaitObject::None)?;
    /// qp.bind_counter(&sent, Counted::SEND)?;
    /// qp.bring_up(1)?;
    ///
    /// let frame = [0; 60];
    /// let request = |wr_id| SendRequest::inline(wr_id, uverbs::Frame::Whole, &frame);
    /// qp.post_send(&[request(1), request(2), request(3).signaled()])?;
    /// assert_eq!(cq.progress(), 1); // one completion, of three sends
    /// assert_eq!(sent.read(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for operations that software cannot see: remote reads of this side's
    /// memory, remote writes without immediate data, and operations that queue pairs of this type do not have.
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an empty set, for operations that this counter already counts, and
    /// for a queue pair beyond [`QpState::Init`](crate::QpState::Init): bind first, then connect. For a hardware counter those of
    /// the kernel, and [`Busy`](crate::ErrorKind::Busy) for operations for which the queue pair already has one: it can have one
    /// per operation, which stays until the queue pair is destroyed.
    #[doc(alias = "fi_ep_bind")]
    #[doc(alias = "ibv_qp_attach_comp_cntr")]
    pub fn bind_counter(&mut self, counter: &CompletionCounter, counted: Counted) -> Result<()> {
        let of = Bindable { shared: &self.shared, type_: T::NUMBER, slots: self.sends.logged() };
        of.bind(&mut self.sends.bound, counter, counted)
    }
}

/// A request of `bytes` bytes, in the form that counters use.
pub(super) fn posted(opcode: &Opcode<'_>, wr_id: u64, flags: SendFlags, bytes: u32) -> Posted {
    Posted { wr_id, kind: kind(opcode), bytes, signaled: flags.contains(SendFlags::SIGNALED).into() }
}

/// A queue pair to which a counter is to be bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bindable<'a> {
    pub(super) shared: &'a QueuePairCore,
    /// One of [`qp_type`], and the number of sends for which it has room; `None` if requests complete in any order.
    pub(super) type_: u8,
    pub(super) slots: Option<u32>,
}

impl Bindable<'_> {
    /// Adds a counter to those that are `bound`.
    pub(super) fn bind(
        self,
        bound: &mut Option<Box<Bound>>,
        counter: &CompletionCounter,
        counted: Counted,
    ) -> Result<()> {
        let refused = |hint| Err(Error::refused(OP, Errno::EINVAL, hint));
        if counted.is_empty() {
            return refused("no operation is named");
        }
        if let Some(object) = counter.object() {
            return self.attach_counter(counter, object, counted);
        }
        self.is_visible(counted)?;
        if bound.as_ref().is_some_and(|bound| bound.counted_by(counter).intersects(counted)) {
            return refused("the counter counts some of these operations of the queue pair already");
        }
        let state = self.shared.known_state(OP)?;
        if ![qp_state::RESET, qp_state::INIT].contains(&state) {
            return refused(
                "bind counters before the queue pair is connected: what is in flight would be missed",
            );
        }
        let queues = match &*self.shared.cqs {
            [send_cq, receive_cq] => [send_cq, receive_cq].map(|cq| cq.registry().clone()),
            // It receives nothing.
            [send_cq] => [(); 2].map(|()| send_cq.registry().clone()),
            _ => return refused("the queue pair has no queues of its own"),
        };
        let (number, slots) = (self.shared.number, self.slots);
        bound.get_or_insert_with(|| Box::new(Bound::new(number, slots, queues))).bind(counter, counted);
        Ok(())
    }

    /// Attaches a counter of the device. The bits of the kernel's mask are those of [`Counted`].
    fn attach_counter(&self, counter: &CompletionCounter, object: &Object, counted: Counted) -> Result<()> {
        use uverbs_abi::ids::qp::{self, attach_comp_cntr};
        use uverbs_abi::types::CompCntrOps;
        if !CompCntrOps::all().contains(CompCntrOps::from_bits_retain(counted.bits())) {
            let hint = "the hardware counters of the device do not count these operations";
            return Err(Error::refused(OP, Errno::EOPNOTSUPP, hint));
        }
        let own = self.shared.object();
        if !object.context().is_same(own.context()) {
            return Err(Error::refused(OP, Errno::EINVAL, "the counter belongs to another open device"));
        }
        own.context().check_origin(OP)?;
        let taken = "the queue pair has a counter for some of these operations";
        if self.shared.attached.has(counted) {
            return Err(Error::refused(OP, Errno::EBUSY, taken));
        }
        // EBUSY may also be caused by a command of another thread for the queue pair or the counter.
        let attached = insist(|| {
            let mut command = Command::new(OP, qp::OBJECT, qp::method::ATTACH_COMP_CNTR);
            command
                .handle(attach_comp_cntr::HANDLE, own.id())
                .handle(attach_comp_cntr::CNTR_HANDLE, object.id())
                .flags(attach_comp_cntr::OP_MASK, counted.bits());
            own.context().invoke(&mut command)
        });
        attached.map_err(|error| error.hinted_if(ErrorKind::Busy, taken))?;
        self.shared.attached.add(counter, counted);
        Ok(())
    }

    /// Refuses operations that would never be counted.
    fn is_visible(&self, counted: Counted) -> Result<()> {
        let hidden = counted.difference(visible(self.type_));
        if hidden.is_empty() {
            return Ok(());
        }
        let hint = if hidden.intersects(Counted::REMOTE_READ) {
            "software does not see a peer's reads of its memory: only hardware counters count them"
        } else if hidden.intersects(Counted::REMOTE_WRITE) {
            "software does not see a peer's writes to its memory: only hardware counters count them; REMOTE_WRITE_IMMEDIATE counts \
             those with immediate data"
        } else {
            "queue pairs of this type have no such operations"
        };
        Err(Error::refused(OP, Errno::EOPNOTSUPP, hint))
    }
}
