//! Flows that count into a pool.

use std::fmt::Debug;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::mlx5::ids::create_flow_flags;
use uverbs_abi::types::qp_type;
use zerocopy::IntoBytes;

use super::matcher::{NewFlow, RawMatching, create_matcher, send};
use super::matching::Match;
use super::pool::PoolCounter;
use crate::device::object::Object;
use crate::flow::{FlowRule, check_destination, explain};
use crate::kernel::error::{Error, Result};
#[cfg(feature = "raw")]
use crate::verbs::qp::create::parts as raw;
use crate::verbs::qp::{self, QueuePair, RawPacket, RssQueuePair};

/// A destination for the packets of a flow: a raw packet queue pair, or one that spreads them; sealed.
pub trait Destination: sealed::Sealed + Debug {}

impl Destination for QueuePair<RawPacket> {}
impl Destination for RssQueuePair {}
#[cfg(feature = "raw")]
impl Destination for raw::QueuePair {}

mod sealed {
    use super::{Arc, QueuePair, RawPacket, RssQueuePair, qp};

    pub trait Sealed {
        fn target(&self) -> Target<'_>;
    }

    /// The part of a queue pair that its flows share.
    #[derive(Debug)]
    pub struct Target<'a>(pub(in super::super) &'a Arc<qp::QueuePairCore>);

    impl Sealed for QueuePair<RawPacket> {
        fn target(&self) -> Target<'_> {
            Target(self.shared())
        }
    }

    impl Sealed for RssQueuePair {
        fn target(&self) -> Target<'_> {
            Target(self.shared())
        }
    }

    #[cfg(feature = "raw")]
    impl Sealed for super::raw::QueuePair {
        fn target(&self) -> Target<'_> {
            Target(self.shared())
        }
    }
}

/// A rule in force that counts into a [`PoolCounter`].
///
/// It is destroyed when it is dropped. It keeps its queue pair, its counter and the pool alive.
#[derive(Debug)]
pub struct PoolFlow {
    flow: Object,
    /// After the flow, which uses it.
    _matcher: Object,
    counter: PoolCounter,
    _qp: Arc<qp::QueuePairCore>,
}

impl PoolCounter {
    /// Puts a rule in force whose packets go to `qp` and are counted by this counter.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a rule that contradicts itself, has a count action of its own or that
    /// the driver refuses, and for a queue pair of another open device; [`PermissionDenied`](crate::ErrorKind::PermissionDenied)
    /// without `CAP_NET_RAW`; [`Unsupported`](crate::ErrorKind::Unsupported) for rules that such a flow cannot express: MPLS,
    /// ESP, time to live, fragments, sent packets, `dont_trap`; [`Exhausted`](crate::ErrorKind::Exhausted) for a priority above
    /// 15, and if the device has no room for the rule.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_FLOW_MATCHER_CREATE` and `MLX5_IB_METHOD_CREATE_FLOW` (fs.c, Linux 6.1).
    #[doc(alias = "mlx5dv_create_flow")]
    pub fn create_flow(&self, qp: &impl Destination, rule: &FlowRule) -> Result<PoolFlow> {
        let op = "flow.create";
        let context = self.pool().row.object.context();
        let qp = qp.target().0;
        if !qp.object().context().is_same(context) {
            let hint = "the queue pair belongs to another open device than the pool";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        check_destination(qp, rule)?;
        let found = Match::new(rule, self.pool().features)?;
        let explained = |error| explain(context, rule.attr(), qp_type::RAW_PACKET, error);
        let matching = RawMatching {
            mask: found.mask.as_bytes(),
            criteria: found.criteria(),
            priority: rule.attr().priority,
            table: None,
            flags: None,
            port: None,
        };
        let matcher = create_matcher(context, op, &matching).map_err(explained)?;
        let new = NewFlow {
            value: found.value.as_bytes(),
            matcher: matcher.id(),
            // Packets that are dropped have no destination (get_dests, fs.c).
            qp: (!found.drop).then(|| qp.object().id()),
            flags: if found.drop { create_flow_flags::DROP } else { 0 },
            tag: found.tag,
            counter: Some((self.pool().row.object.id(), self.index() as u32)),
            ..NewFlow::default()
        };
        let flow = send(context, op, &new).map_err(explained)?;
        Ok(PoolFlow { flow, _matcher: matcher, counter: self.clone(), _qp: qp.clone() })
    }
}

impl PoolFlow {
    /// The counter into which it counts.
    pub fn counter(&self) -> &PoolCounter {
        &self.counter
    }

    /// Ends the flow and reports any error.
    ///
    /// # Errors
    /// Those of the kernel; the flow is returned with the error.
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.flow.release().map_err(|error| (self, error))
    }
}

impl Drop for PoolFlow {
    fn drop(&mut self) {
        // A flow that could not be destroyed continues to count until the device file is closed.
        if self.flow.release().is_err() {
            self.flow.abandon();
            self.counter.lose();
        }
    }
}
