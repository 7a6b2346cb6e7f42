//! One flow table: groups of entries that match the same fields.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use super::Domain;
use crate::command::Status;
use crate::packet::{MATCH_SIZE, supported};

/// Size of the largest table, as a power of two.
pub(crate) const LOG_TABLE_SIZE: u32 = 16;

/// The actions of an entry, by the bits of `MLX5_FLOW_CONTEXT_ACTION_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Action(pub(crate) u32);

impl Action {
    pub(crate) const ALLOW: u32 = 0x1;
    pub(crate) const DROP: u32 = 0x2;
    pub(crate) const FORWARD: u32 = 0x4;
    pub(crate) const COUNT: u32 = 0x8;

    pub(crate) fn contains(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    /// # Errors
    /// `BadParameter` for an action that the device does not have, or for a set of actions without a destination.
    pub(crate) fn check(self) -> Result<Self, Status> {
        let ways = [Self::ALLOW, Self::DROP, Self::FORWARD];
        let known = self.0 & !(ways.iter().sum::<u32>() | Self::COUNT) == 0;
        let one_way = ways.iter().filter(|way| self.contains(**way)).count() == 1;
        if known && one_way { Ok(self) } else { Err(Status::BadParameter) }
    }
}

/// The destination of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Table(u32),
    Receiver(u32),
}

/// What happens to packets that no entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    Default,
    Forward(u32),
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) group: u32,
    pub(crate) value: Box<[u8; MATCH_SIZE]>,
    pub(crate) action: Action,
    pub(crate) tag: u32,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) counters: Vec<u32>,
}

/// Entries with indices in a range, which match the same fields.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) range: RangeInclusive<u32>,
    pub(crate) mask: Box<[u8; MATCH_SIZE]>,
    /// Indices by match value.
    lookup: HashMap<[u8; MATCH_SIZE], BTreeSet<u32>>,
}

impl Group {
    /// # Errors
    /// `BadParameter` if the mask has bits that cannot be matched.
    pub(crate) fn new(range: RangeInclusive<u32>, mask: Box<[u8; MATCH_SIZE]>) -> Result<Self, Status> {
        if mask.iter().zip(supported()).any(|(mask, can)| mask & !can != 0) {
            return Err(Status::BadParameter);
        }
        Ok(Self { range, mask, lookup: HashMap::new() })
    }

    fn masked(&self, value: &[u8; MATCH_SIZE]) -> [u8; MATCH_SIZE] {
        std::array::from_fn(|i| value[i] & self.mask[i])
    }

    fn find(&self, value: &[u8; MATCH_SIZE]) -> Option<u32> {
        self.lookup.get(&self.masked(value))?.first().copied()
    }
}

/// A flow table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) domain: Domain,
    pub(crate) level: u32,
    pub(crate) log_size: u32,
    pub(crate) miss: Miss,
    pub(crate) groups: BTreeMap<u32, Group>,
    pub(crate) entries: BTreeMap<u32, Entry>,
}

impl Table {
    /// # Errors
    /// `BadParameter` for a table that is too large.
    pub(crate) fn new(domain: Domain, level: u32, log_size: u32, miss: Miss) -> Result<Self, Status> {
        if log_size > LOG_TABLE_SIZE {
            return Err(Status::BadParameter);
        }
        Ok(Self { domain, level, log_size, miss, groups: BTreeMap::new(), entries: BTreeMap::new() })
    }

    /// # Errors
    /// `BadParameter` if a group's range is not in the table, or overlaps another group's.
    pub(crate) fn check_range(&self, range: &RangeInclusive<u32>) -> Result<(), Status> {
        let (start, end) = (*range.start(), *range.end());
        let overlaps = |group: &Group| start <= *group.range.end() && *group.range.start() <= end;
        if start > end || end >> self.log_size != 0 || self.groups.values().any(overlaps) {
            return Err(Status::BadParameter);
        }
        Ok(())
    }

    /// Inserts an entry at an index, replacing an existing one.
    ///
    /// # Errors
    /// `BadResource` without its group, `BadIndex` outside the group's range.
    pub(crate) fn insert(&mut self, index: u32, entry: Entry) -> Result<(), Status> {
        let group = self.groups.get(&entry.group).ok_or(Status::BadResource)?;
        if !group.range.contains(&index) {
            return Err(Status::BadIndex);
        }
        self.remove(index);
        if let Some(group) = self.groups.get_mut(&entry.group) {
            let key = group.masked(&entry.value);
            group.lookup.entry(key).or_default().insert(index);
        }
        self.entries.insert(index, entry);
        Ok(())
    }

    pub(crate) fn remove(&mut self, index: u32) {
        let Some(entry) = self.entries.remove(&index) else { return };
        let Some(group) = self.groups.get_mut(&entry.group) else { return };
        let key = group.masked(&entry.value);
        if let Some(indices) = group.lookup.get_mut(&key) {
            indices.remove(&index);
            if indices.is_empty() {
                group.lookup.remove(&key);
            }
        }
    }

    /// The matching entry with the lowest index. The ranges of groups do not overlap, so it is the first one that is found in any group.
    pub(crate) fn find(&self, value: &[u8; MATCH_SIZE]) -> Option<&Entry> {
        let index = self.groups.values().filter_map(|group| group.find(value)).min()?;
        self.entries.get(&index)
    }
}
