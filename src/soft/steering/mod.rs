//! The steering table: determines which rules a frame matches, and which queue pairs receive and counters count it.
//!
//! Order, conflicts and errno are those of mlx5: `mlx5_ib_create_flow`, `get_flow_table` and
//! `_create_flow_rule` (drivers/infiniband/hw/mlx5/fs.c), `mlx5_add_flow_rules` and `check_conflicting_ftes`
//! (drivers/net/ethernet/mellanox/mlx5/core/fs_core.c), Linux 6.1.
//!
//! # The path of a received frame
//!
//! 1. SNIFFER rules: each gets a copy, and the frame continues.
//! 2. Priorities 0 to 15. Each has two tables, first for rules with DONT_TRAP, then for those without (`ib_prio_to_core_prio`). A frame
//!    matches at most one entry of a table. After DONT_TRAP it continues.
//! 3. One table for rules that can only match multicast and do not have DONT_TRAP, whatever their priority is: it has number
//!    `MLX5_IB_FLOW_MCAST_PRIO` = 32, after the 32 tables of the priorities, so these rules come *last*.
//! 4. Leftovers: ALL_DEFAULT, and for multicast MC_DEFAULT. (On mlx5 the kernel's own network interface comes between 3 and 4; the soft
//!    device has none.)
//!
//! A sent frame first passes the EGRESS rules in the same order, then the sniffers, and then, looped back, 2 to 4. It is copied to
//! sniffers once, not again when it is looped back.
//!
//! # What the hardware decides on mlx5, and this file here
//!
//! - If different matches in one table match the same frame, the one that was inserted first wins.
//! - A rule is not applied to frames sent by its own queue pair, unless it has ALLOW_LOOP_BACK (which mlx5
//!   refuses, see [`Rules::loop_back`]): the meaning of that flag in ibv_create_flow(3).
//! - Sniffers see the frames that leave the port, so not a frame that an EGRESS rule drops.

mod rule;
mod tier;

use super::matcher::Rules;
use super::packet::{Depth, Headers};
use nix::errno::Errno;
use rule::Place;
pub(crate) use rule::Rule;
use std::collections::HashMap;
use tier::{Key, Member, Tier};

/// `MLX5_IB_FLOW_MCAST_PRIO`: 16 tables with DONT_TRAP and 16 without come before it (device.h, mlx5).
const MULTICAST: usize = 32;
/// Tables of one direction.
const TIERS: usize = MULTICAST + 1;

/// The origin of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Received on this port.
    Wire { port: u8 },
    /// Sent on this port by this queue pair.
    Sent { port: u8, qp: u32 },
}

/// One rule that a frame matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The flow.
    pub(crate) flow: u32,
    /// The queue pair that receives the frame. `None` if it is dropped, if the flow is for sent frames, and if another flow with the same
    /// match has already delivered this frame to the same queue pair, which is one destination for mlx5.
    pub(crate) qp: Option<u32>,
    /// Counters object that counts the frame.
    pub(crate) counters: Option<u32>,
    /// Tag for the completion: that of the table entry, see [`Table::insert`].
    pub(crate) tag: Option<u32>,
    /// The rule drops the frame.
    pub(crate) drop: bool,
}

/// The result for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A rule took it.
    Taken,
    /// A rule dropped it. For a sent frame this means that it was never sent.
    Dropped,
    /// No rule took it; sniffers and DONT_TRAP rules may have had a copy.
    Missed,
}

/// All rules of a device.
#[derive(Debug)]
pub(crate) struct Table {
    rules: Rules,
    receive: [Tier; TIERS],
    send: [Tier; TIERS],
    /// The tables that have rules, in order.
    receiving: Vec<usize>,
    sending: Vec<usize>,
    /// The depth to which frames must be read for the rules.
    depth: Depth,
    leftovers: Vec<(u8, bool, Member)>,
    sniffers: Vec<(u8, Member)>,
    /// The place of each flow.
    flows: HashMap<u32, (Place, Key)>,
    /// Counts insertions of entries, for "first inserted wins".
    clock: u64,
}

impl Table {
    /// An empty table of a device with these capabilities.
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            receive: std::array::from_fn(|_| Tier::default()),
            send: std::array::from_fn(|_| Tier::default()),
            receiving: Vec::new(),
            sending: Vec::new(),
            depth: Depth::default(),
            leftovers: Vec::new(),
            sniffers: Vec::new(),
            flows: HashMap::new(),
            clock: 0,
        }
    }

    /// Inserts a rule as `flow`, for `qp`. An id that is in use is EINVAL: the kernel never assigns one twice.
    ///
    /// A rule whose match is already in its table joins that entry, with these conflicts (EEXIST): one drops and the other does not; the
    /// new rule has a tag that is not the entry's. The entry's tag is that of the rule that created it, zero if it had none. A rule
    /// without a tag joins any entry, and its packets get that tag.
    pub(crate) fn insert(&mut self, flow: u32, qp: u32, rule: &Rule) -> Result<(), Errno> {
        rule.check(&self.rules)?;
        if self.flows.contains_key(&flow) {
            return Err(Errno::EINVAL);
        }
        let member = Member {
            flow,
            qp,
            counters: rule.matching.actions.count,
            loop_back: rule.loop_back,
            first: true,
        };
        let key = Key::new(&rule.matching, rule.port);
        let actions = &rule.matching.actions;
        match rule.place {
            Place::Receive(table) => self.receive[table].insert(&key, actions, member, self.clock)?,
            Place::Send(table) => self.send[table].insert(&key, actions, member, self.clock)?,
            Place::Leftovers { unicast } => self.leftovers.push((rule.port, unicast, member)),
            Place::Sniffer => self.sniffers.push((rule.port, member)),
        }
        self.clock += 1;
        self.flows.insert(flow, (rule.place, key));
        self.prepare();
        Ok(())
    }

    /// Removes a flow. False if it does not exist.
    pub(crate) fn remove(&mut self, flow: u32) -> bool {
        let Some((place, key)) = self.flows.remove(&flow) else {
            return false;
        };
        match place {
            Place::Receive(table) => self.receive[table].remove(&key, flow),
            Place::Send(table) => self.send[table].remove(&key, flow),
            Place::Leftovers { .. } => self.leftovers.retain(|(_, _, member)| member.flow != flow),
            Place::Sniffer => self.sniffers.retain(|(_, member)| member.flow != flow),
        }
        self.prepare();
        true
    }

    /// Determines how deep frames have to be parsed.
    fn prepare(&mut self) {
        let used = |tiers: &[Tier; TIERS]| (0..TIERS).filter(|table| !tiers[*table].is_empty()).collect();
        (self.receiving, self.sending) = (used(&self.receive), used(&self.send));
        let tiers = self.receive.iter().chain(&self.send).map(Tier::depth);
        // Leftovers depend on whether the destination is a group.
        let leftovers = if self.leftovers.is_empty() { Depth::Nothing } else { Depth::Ethernet };
        self.depth = tiers.max().unwrap_or_default().max(leftovers);
    }

    /// Passes a frame through the rules, and calls `visit` for each that it matched, in order. Does not allocate.
    pub(crate) fn steer(&self, frame: &[u8], origin: Origin, mut visit: impl FnMut(Delivery)) -> Fate {
        let mut fields = Headers::none();
        fields.fill(frame, self.depth);
        let (port, sender) = match origin {
            Origin::Wire { port } => (port, None),
            Origin::Sent { port, qp } => (port, Some(qp)),
        };
        fields.port = port;
        let words = fields.as_words();

        // The flow's owner does not matter here: EGRESS rules apply to everything that is sent.
        let sent = || self.sending.iter().find_map(|table| self.send[*table].find(words, None));
        if let Some(entry) = sender.and_then(|_| sent()) {
            entry.members(None).for_each(|member| visit(entry.sent(member)));
            if entry.drop {
                return Fate::Dropped;
            }
        }
        if !self.sniffers.is_empty() {
            let sniffers = self.sniffers.iter().filter(|(on, _)| *on == port);
            copy(sniffers.map(|(_, member)| member), &mut visit);
        }

        for &number in &self.receiving {
            let Some(entry) = self.receive[number].find(words, sender) else {
                continue;
            };
            entry.members(sender).for_each(|member| visit(entry.received(member)));
            if entry.drop {
                return Fate::Dropped;
            }
            if number == MULTICAST || number % 2 == 1 {
                return Fate::Taken;
            }
        }
        if self.leftovers.is_empty() {
            return Fate::Missed;
        }
        let leftovers = self.leftovers.iter().filter(|(on, unicast, member)| {
            *on == port && member.hears(sender) && (*unicast || fields.multicast())
        });
        match copy(leftovers.map(|(_, _, member)| member), &mut visit) {
            0 => Fate::Missed,
            _ => Fate::Taken,
        }
    }
}

/// Delivers a frame to all these flows, once to each queue pair. Returns the number of flows.
fn copy<'a>(members: impl Iterator<Item = &'a Member> + Clone, visit: &mut impl FnMut(Delivery)) -> usize {
    let mut number = 0;
    for member in members.clone() {
        let first = !members.clone().take(number).any(|before| before.qp == member.qp);
        visit(Member { first, ..*member }.delivery());
        number += 1;
    }
    number
}

#[cfg(test)]
mod tests;
