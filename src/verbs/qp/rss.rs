//! Queue pairs that spread frames over work queues: receive side scaling.

use std::sync::Arc;

use bitflags::bitflags;
use nix::errno::Errno;
use uverbs_abi::ids::qp::{self, create};
use uverbs_abi::types::{qp_state, qp_type};
use uverbs_abi::write::QpCap;
use zerocopy::{FromZeros, IntoBytes};

use super::{Groups, QueuePairCore};
use crate::completion_counter::Watching;
use crate::device::object::{self, Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::work::Kept;
use crate::verbs::wq::IndirectionTable;

bitflags! {
    /// The header fields that are hashed, in this order: source and destination address, source and destination port. The bits
    /// are those of `ibv_rx_hash_fields`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[doc(alias = "ibv_rx_hash_fields")]
    pub struct HashFields: u64 {
        /// Source address of IPv4.
        const SRC_IPV4 = 1 << 0;
        /// Destination address of IPv4.
        const DST_IPV4 = 1 << 1;
        /// Source address of IPv6.
        const SRC_IPV6 = 1 << 2;
        /// Destination address of IPv6.
        const DST_IPV6 = 1 << 3;
        /// Source port of TCP.
        const SRC_PORT_TCP = 1 << 4;
        /// Destination port of TCP.
        const DST_PORT_TCP = 1 << 5;
        /// Source port of UDP.
        const SRC_PORT_UDP = 1 << 6;
        /// Destination port of UDP.
        const DST_PORT_UDP = 1 << 7;
        /// Both addresses of IPv4.
        const IPV4 = 1 << 0 | 1 << 1;
        /// Both addresses of IPv6.
        const IPV6 = 1 << 2 | 1 << 3;
        /// Both ports of TCP.
        const TCP = 1 << 4 | 1 << 5;
        /// Both ports of UDP.
        const UDP = 1 << 6 | 1 << 7;
    }
}

/// A raw packet queue pair that spreads received frames over the work queues of an [`IndirectionTable`]. Created by
/// [`ProtectionDomain::rss`].
///
/// It has no queues of its own, no number and no states. Create flows on it as on any other queue pair; frames arrive in work
/// queues that are ready.
#[derive(Debug)]
#[doc(alias = "ibv_rx_hash_conf")]
pub struct RssQueuePair(Arc<QueuePairCore>);

/// Builder for a queue pair on a table; see [`ProtectionDomain::rss`].
#[derive(Debug)]
#[must_use = "nothing is made before `create`"]
pub struct RssBuilder<'a> {
    pd: &'a ProtectionDomain,
    table: &'a IndirectionTable,
    fields: HashFields,
    key: [u8; 40],
    flags: u16,
}

impl ProtectionDomain {
    /// Starts a builder for a raw packet queue pair that spreads frames over the work queues of `table` with a Toeplitz hash.
    ///
    /// ```no_run
    /// use uverbs::{FlowRule, HashFields, Tcp, WorkQueueState};
    ///
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::devices()?.named("mlx5_0")?.open()?;
    /// let pd = context.alloc_pd()?;
    /// let (one, two) = (context.create_cq(64)?, context.create_cq(64)?);
    /// let mut queues = [pd.work_queue(&one).create()?, pd.work_queue(&two).create()?];
    /// let table = context.create_indirection_table(&[&queues[0], &queues[1]])?;
    /// let qp = pd.rss(&table).hash(HashFields::IPV4 | HashFields::TCP).create()?;
    /// for queue in &mut queues {
    ///     queue.modify(WorkQueueState::Ready)?;
    /// }
    /// let flow = qp.create_flow(&FlowRule::normal(1).tcp(Tcp::any().dst_port(80)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rss<'a>(&'a self, table: &'a IndirectionTable) -> RssBuilder<'a> {
        RssBuilder { pd: self, table, fields: HashFields::empty(), key: RssBuilder::KEY, flags: 0 }
    }
}

impl RssBuilder<'_> {
    /// The default key, which is the usual one for verifying Toeplitz hashes. A sender that knows the key can choose headers that
    /// all go to one queue.
    pub const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// The fields that are hashed: of one version of IP, and of either TCP or UDP. None, the default, is allowed only for a table
    /// with one entry.
    pub fn hash(mut self, fields: HashFields) -> Self {
        self.fields = fields;
        self
    }

    /// The key of the hash; default [`RssBuilder::KEY`].
    pub fn key(mut self, key: [u8; 40]) -> Self {
        self.key = key;
        self
    }

    /// Sets flags that only the driver defines.
    #[cfg(feature = "raw")]
    pub fn driver_flags(mut self, flags: u16) -> Self {
        self.flags = flags;
        self
    }

    /// Why the fields contradict each other, if they do; the driver would return only an errno.
    fn contradiction(&self) -> Option<&'static str> {
        let both =
            |one: HashFields, other: HashFields| self.fields.intersects(one) && self.fields.intersects(other);
        if both(HashFields::IPV4, HashFields::IPV6) {
            Some("a hash of IPv4 and IPv6; create a queue pair for each")
        } else if both(HashFields::TCP, HashFields::UDP) {
            Some("a hash of TCP and UDP; create a queue pair for each")
        } else if self.fields.is_empty() && self.table.shared().len() > 1 {
            Some("a table of several work queues needs fields to hash")
        } else {
            None
        }
    }

    /// Creates the queue pair.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for fields that exclude each other, no fields for more than one work queue, or a
    /// table of another open device; [`PermissionDenied`](ErrorKind::PermissionDenied) without `CAP_NET_RAW`;
    /// [`Unsupported`](ErrorKind::Unsupported) for fields or a hash that the device does not support.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QP_CREATE` with an indirection table (uverbs_std_types_qp.c; create_rss_raw_qp_tir, qp.c, Linux 6.1).
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create(self) -> Result<RssQueuePair> {
        let op = "qp.create";
        let context = self.pd.context();
        let table = self.table.shared();
        let contradiction = self.contradiction();
        let foreign = "the table belongs to another open device";
        if let Some(hint) = contradiction.or((!table.context().is_same(context)).then_some(foreign)) {
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        let mut plan = context.driver().plan_hash(op, self.fields.bits(), &self.key, self.flags)?;
        let (mut cap, mut number) = (QpCap::new_zeroed(), 0_u32);
        let wanted = QpCap::new_zeroed();
        let mut command = Command::new(op, qp::OBJECT, qp::method::CREATE);
        command
            .new_handle(create::HANDLE)
            .handle(create::PD_HANDLE, self.pd.id())
            .handle(create::IND_TABLE_HANDLE, table.id())
            .input(create::USER_HANDLE, &0_u64)
            .input(create::CAP, &wanted)
            .value(create::TYPE, qp_type::RAW_PACKET.into())
            .output(create::RESP_CAP, cap.as_mut_bytes())
            .output(create::RESP_QP_NUM, number.as_mut_bytes())
            .driver_payload(plan.payload());
        context.invoke(&mut command).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => error.hinted("raw packet queue pairs need CAP_NET_RAW"),
            ErrorKind::Unsupported => error.hinted("the device does not hash these fields"),
            _ => error,
        })?;
        let shared = QueuePairCore {
            object: Object::new(context, Kind::Qp, command.new_handle_of(create::HANDLE)?),
            _known: None,
            kept: Kept::default(),
            number,
            receives: true,
            groups: Groups::default(),
            windows: Watching::default(),
            cqs: Vec::new(),
            srq: None,
            _table: Some(table.clone()),
            attached: crate::completion_counter::Attached::default(),
            has_stopped: false.into(),
            entered: qp_state::RESET.into(),
            pd: Some(self.pd.clone()),
            _xrcd: None,
        };
        Ok(RssQueuePair(Arc::new(shared)))
    }
}

impl RssQueuePair {
    pub(crate) fn shared(&self) -> &Arc<QueuePairCore> {
        &self.0
    }

    #[cfg(feature = "raw")]
    pub(super) fn into_shared(self) -> Arc<QueuePairCore> {
        self.0
    }

    /// Destroys the queue pair and reports any error.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a flow directs frames to it.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(shared) = Arc::get_mut(&mut self.0) else {
            return Err((self, object::shared("qp.destroy", "a flow still uses the queue pair")));
        };
        shared.object.release().map_err(|error| (self, error))
    }
}
