//! A rule: the driver's interpretation of a request, before it is put into a table.

use super::MULTICAST;
use crate::soft::flow_check::{Spec, Specs};
use crate::soft::matcher::{Match, Rules};
use nix::errno::Errno;
use uverbs_abi::flow::{
    ATTR_ALL_DEFAULT, ATTR_MC_DEFAULT, ATTR_NORMAL, ATTR_SNIFFER, FLAG_ALLOW_LOOP_BACK, FLAG_DONT_TRAP,
    FLAG_EGRESS, FlowAttr,
};

/// `MLX5_IB_FLOW_LAST_PRIO`.
const LAST_PRIORITY: u16 = 15;

/// Where a rule takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A table for received frames.
    Receive(usize),
    /// A table for sent frames.
    Send(usize),
    /// Packets that no rule took.
    Leftovers { unicast: bool },
    /// A copy of everything.
    Sniffer,
}

/// A rule that the driver accepts, not yet in a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(super) place: Place,
    pub(super) port: u8,
    dont_trap: bool,
    pub(super) loop_back: bool,
    pub(super) matching: Match,
}

impl Rule {
    /// The driver's checks up to the counters: `mlx5_ib_create_flow` after its own payload, then `is_valid_attr` and `parse_flow_attr`.
    /// Next, the counters of [`Rule::counters`] must be bound, and then the rule is inserted.
    pub(crate) fn compile(attr: &FlowAttr, specs: &Specs, rules: &Rules) -> Result<Self, Errno> {
        let has = |flag| attr.flags & flag != 0;
        let egress = has(FLAG_EGRESS);
        if attr.priority > LAST_PRIORITY {
            return Err(Errno::ENOMEM);
        }
        let loop_back = if rules.loop_back { FLAG_ALLOW_LOOP_BACK } else { 0 };
        if attr.flags & !(loop_back | FLAG_DONT_TRAP | FLAG_EGRESS) != 0 {
            return Err(Errno::EINVAL);
        }
        let place = match attr.type_ {
            ATTR_ALL_DEFAULT | ATTR_MC_DEFAULT if egress => return Err(Errno::EINVAL),
            ATTR_NORMAL => {
                let table = match multicast_only(specs) && !has(FLAG_DONT_TRAP) {
                    true => MULTICAST,
                    false => usize::from(attr.priority) * 2 + usize::from(!has(FLAG_DONT_TRAP)),
                };
                if egress { Place::Send(table) } else { Place::Receive(table) }
            }
            ATTR_ALL_DEFAULT => Place::Leftovers { unicast: true },
            ATTR_MC_DEFAULT => Place::Leftovers { unicast: false },
            ATTR_SNIFFER if !rules.sniffer => return Err(Errno::EOPNOTSUPP),
            // The driver accepts this, and passes a port to the firmware as the destination of a sniffer's copies.
            ATTR_SNIFFER if egress => return Err(Errno::EINVAL),
            ATTR_SNIFFER => Place::Sniffer,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let matching = match attr.type_ {
            ATTR_NORMAL => Match::compile(specs, rules)?,
            // The specs of all other types are ignored: fixed templates replace them.
            _ => Match::everything(),
        };
        Ok(Self {
            place,
            port: attr.port,
            // A dropped packet does not continue: `_create_flow_rule` sets "next priority" only together with "forward".
            dont_trap: attr.type_ == ATTR_NORMAL && has(FLAG_DONT_TRAP) && !matching.actions.drop,
            loop_back: has(FLAG_ALLOW_LOOP_BACK) || rules.plug,
            matching,
        })
    }

    /// Handle of the counters object of this rule. A COUNT spec of a rule that is not NORMAL is not included, because the driver ignores
    /// the specs of such a rule.
    pub(crate) fn counters(&self) -> Option<u32> {
        self.matching.actions.count
    }

    /// Sets the counters object of the hardware for this rule.
    pub(crate) fn counting(mut self, counters: Option<u32>) -> Self {
        self.matching.actions.count = counters;
        self
    }

    /// The checks of mlx5_core, which happen after the counters were bound.
    pub(super) fn check(&self, rules: &Rules) -> Result<(), Errno> {
        let forwards_on_send = matches!(self.place, Place::Send(_)) && self.dont_trap;
        if forwards_on_send || (self.dont_trap && !rules.dont_trap) {
            return Err(Errno::EOPNOTSUPP); // fwd_next_prio_supported: received frames only
        }
        self.matching.check_values()
    }
}

/// Whether a NORMAL rule can match only multicast, by its first spec: `flow_is_multicast_only`. For IPv4 the driver uses only the value,
/// whatever the mask is.
fn multicast_only(specs: &Specs) -> bool {
    match specs.iter().next() {
        Some(Spec::Ipv4(spec)) if !spec.inner => spec.val.dst_ip.get() >> 28 == 0xe,
        Some(Spec::Eth(spec)) if !spec.inner => spec.mask.dst_mac[0] & spec.val.dst_mac[0] & 1 != 0,
        _ => false,
    }
}
