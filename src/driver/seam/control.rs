//! What a driver says about its device, and what it needs for commands that create no queue.

use std::borrow::Cow;
use std::fmt::Debug;

use nix::errno::Errno;
use uverbs_abi::flow::FlowAttr;
use uverbs_abi::write::{AhAttr, QpCap, QueryQpResp};

use super::create::without_work_queues;
#[cfg(feature = "raw")]
use super::facts::CompletionFields;
use super::facts::{GuardedKeys, QueryPlan};
use super::flow::RefusedBind;
use super::plan::{AhPlan, ContextPlan, Exchange, Kernel, SrqChange};
use crate::kernel::error::{Error, ErrorKind, Result};

/// The control path of a driver, without the plans for its queues. A method that a driver does not write says that its device lacks
/// something, or that the kernel's answer is to be taken as it is.
pub(crate) trait Control: Debug + Send + Sync {
    /// The name of the driver, for hints.
    fn name(&self) -> &'static str;

    /// The error for something that the driver lacks: `what` completes a sentence that begins with its name.
    fn lacking(&self, op: &'static str, what: &str) -> Error {
        Error::refused(op, Errno::EOPNOTSUPP, format!("{} {what}", self.name()))
    }

    /// The request and response of a new context, with DEVX or without.
    fn plan_context(&self, _devx: bool) -> ContextPlan {
        ContextPlan::default()
    }

    /// The context was created; the driver has answered this.
    fn opened(&mut self, _answer: &[u8]) {}

    /// The attribute by which the driver answers again what it answered when the context was created, and the size of the answer. `None` if
    /// it does not, so that nobody else can use the context.
    #[cfg(feature = "raw")]
    fn answers_again(&self) -> Option<(u16, usize)> {
        None
    }

    /// How the driver tells the number of a protection domain that somebody else has allocated: the method of a domain, its attribute for
    /// the handle, and that for the number. `None` if it does not, so that nobody else can use the domain.
    #[cfg(feature = "raw")]
    fn tells_number(&self) -> Option<[u16; 3]> {
        None
    }

    /// The driver's part of a query for the device's limits.
    fn plan_query(&self) -> QueryPlan {
        QueryPlan::Nothing
    }

    /// The version of its firmware as text; `None` if only the kernel can convert it.
    fn firmware(&self, _raw: u64) -> Option<String> {
        None
    }

    /// Whether a context may send commands to the firmware.
    fn has_devx(&self) -> bool {
        false
    }

    /// Whether requests may be flushes and atomic writes.
    #[cfg(feature = "raw")]
    fn has_flushes(&self) -> bool {
        false
    }

    /// Whether each slot of its queues has a flag that names its owner.
    #[cfg(feature = "raw")]
    fn has_flagged_queues(&self) -> bool {
        false
    }

    /// The maximum number of sends of a queue, if it is limited in user space, by the size of the device's memory for them.
    #[cfg(feature = "raw")]
    fn most_sends(&self) -> Option<u32> {
        None
    }

    /// Whether libibverbs offers thread domains and parent domains on its devices.
    #[cfg(feature = "raw")]
    fn has_parent_domains(&self) -> bool {
        false
    }

    /// Whether the device writes the data of a message in order, in aligned pieces of 128 bytes.
    #[cfg(feature = "raw")]
    fn orders_data(&self, _kernel: &dyn Kernel) -> Result<bool> {
        Ok(false)
    }

    /// The additional fields that its completions can have.
    #[cfg(feature = "raw")]
    fn completion_fields(&self) -> CompletionFields {
        CompletionFields::empty()
    }

    /// Whether an invalidate for a key may be sent only once, and not for a window that is not bound, and for which devices this holds:
    /// see [`Keys`](crate::device::context).
    fn guarded_keys(&self) -> GuardedKeys {
        GuardedKeys::None
    }

    /// Whether the driver may return a number of its own for a protection domain.
    fn numbers_domains(&self) -> bool {
        true
    }

    /// A memory region.
    fn plan_mr(&self) -> Exchange {
        Exchange::default()
    }

    /// An address handle for a path.
    fn plan_ah(&self, op: &'static str, _attr: &AhAttr) -> Result<AhPlan> {
        Err(self.lacking(op, "has no datagrams, and so no address handles"))
    }

    /// Whether a program may choose what only this driver has: completion queues in its own memory, flags of queues, and queue pairs of the
    /// driver's own type. Otherwise these are refused.
    fn has_choices(&self) -> bool {
        false
    }

    /// Whether the driver takes memory for paged on demand, and for where it expects it, without a check.
    fn believes_paging(&self) -> bool {
        false
    }

    /// Checks whether a completion queue may be resized to `entries`, before anything is allocated.
    fn may_resize_cq(&self, op: &'static str, _entries: u32, _kernel: &dyn Kernel) -> Result<()> {
        Err(self.lacking(op, "cannot resize completion queues"))
    }

    /// Arming or resizing a shared receive queue.
    fn plan_srq_change(&self, op: &'static str) -> Result<SrqChange> {
        Err(self.lacking(op, "has no shared receive queues"))
    }

    /// A domain of extended reliable connections. The driver needs no data for it, and none for the target queue pairs
    /// (`ib_create_qp_user`, verbs.c, Linux 6.1).
    fn plan_xrcd(&self, op: &'static str) -> Result<()> {
        Err(self.lacking(op, "has no extended reliable connections"))
    }

    /// Whether the driver ignores the limit in the kernel's command that creates a shared receive queue.
    fn forgets_limit(&self) -> bool {
        false
    }

    /// A queue pair over a table of work queues, which spreads frames by a Toeplitz hash of these fields, whose bits are those of
    /// `ibv_rx_hash_fields`, with this key, and flags for tunnels and loopback.
    fn plan_hash(&self, op: &'static str, _fields: u64, _key: &[u8; 40], _flags: u16) -> Result<Exchange> {
        Err(without_work_queues(op))
    }

    /// The driver's data for a change of a work queue's state. `None` if it has no work queues.
    fn wq_change(&self) -> Option<&'static [u8]> {
        None
    }

    /// The hint for a queue pair that cannot be made ready to send, for drivers whose queue pairs are connected by other means than this
    /// crate.
    fn connected_by_others(&self) -> Option<&'static str> {
        None
    }

    /// Removes from the response about a queue pair what the driver does not fill in.
    fn tidy_qp(&self, _answer: &mut QueryQpResp) {}

    /// Refuses a query for the state of a queue pair if the driver does not return it.
    fn tells_states(&self, _op: &'static str) -> Result<()> {
        Ok(())
    }

    /// Whether the two queues of a raw packet queue pair stop independently. In that case the driver passes on a state that the queue has
    /// left, and the device refuses the change. If the state is queried while only the receive queue has stopped, the driver logs a
    /// warning in the kernel's log.
    fn queues_stop_alone(&self) -> bool {
        false
    }

    // The ring of a queue has as many slots as a power of two, and may so hold more than can be asked for. What is granted can be asked
    // for again, so it ends at the limit of the device.

    /// The entries of a completion queue whose ring has `room`, after `asked` were requested and the kernel returned `told`.
    fn granted_entries(&self, _asked: u32, _told: u32, room: u32) -> u32 {
        room
    }

    /// The requests of a shared receive queue whose ring has `room`, after `asked` were requested and the kernel returned `told`, which
    /// rxe of Linux 6.1 and siw do not adapt to the ring.
    fn granted_shared(&self, _asked: u32, _told: u32, room: u32) -> u32 {
        room
    }

    /// The capacity of a queue pair that the kernel returned, after `asked` was requested.
    fn granted_pair(&self, _asked: &QpCap, told: QpCap) -> QpCap {
        told
    }

    /// Whether the device writes the values of its completion counters to memory of the process.
    fn counts_in_memory(&self) -> bool {
        false
    }

    /// Whether flows may count, and the driver is told the points of their counters.
    fn has_flow_counters(&self) -> bool {
        false
    }

    /// The consequence for some counters if their first flow, with a rule of this priority, was refused.
    fn refused_bind(&self, _error: &Error, _priority: u16) -> RefusedBind {
        RefusedBind::Harmless
    }

    /// Whether the kernel may crash when a device file is closed whose counters were damaged.
    fn keeps_damaged_file(&self) -> bool {
        false
    }

    /// What to do about a refused rule, if the driver knows a reason.
    fn flow_hint(&self, kind: ErrorKind, _rule: &FlowAttr) -> Option<Cow<'static, str>> {
        (kind == ErrorKind::Unsupported).then(|| format!("{} has no flows", self.name()).into())
    }

    /// The number of bits after which a hardware counter wraps to zero, where that is known.
    fn counter_bits(&self, _name: &str) -> Option<u8> {
        None
    }

    /// Whether a counter that wraps counts no faster than its port transports packets.
    fn counts_packets(&self, _name: &str) -> bool {
        false
    }

    /// Whether the driver counts per queue pair, where that is known (`counter_bind_qp` of its `ib_device_ops`, Linux 6.1 and 7.3).
    fn binds_queue_pairs(&self) -> Option<bool> {
        Some(false)
    }
}
