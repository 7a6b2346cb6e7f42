//! Flow tables: the destinations of packets, and the counters that count them.

mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(crate) use self::table::{Action, Destination, Entry, Group, LOG_TABLE_SIZE, Miss, Table};
use crate::command::Status;
use crate::counter::Counters;
use crate::packet::MATCH_SIZE;

/// Maximum number of tables that a packet may pass: more than there are levels.
const MOST_TABLES: usize = 256;

/// The packets that a table is for, by the numbers in commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Domain {
    Receive = 0,
    Transmit = 1,
}

impl Domain {
    /// # Errors
    /// `BadParameter` for tables that the device does not have.
    pub(crate) fn new(number: u32) -> Result<Self, Status> {
        match number {
            0 => Ok(Self::Receive),
            1 => Ok(Self::Transmit),
            _ => Err(Status::BadParameter),
        }
    }
}

/// The result for a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Receivers, each with the tag of the flow.
    pub(crate) receivers: Vec<(u32, u32)>,
    /// It leaves the tables towards the domain's default destination: for sent packets, the wire.
    pub(crate) passes: bool,
}

/// All tables.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    pub(crate) tables: BTreeMap<u32, Table>,
    roots: BTreeMap<Domain, u32>,
}

impl Steering {
    /// # Errors
    /// `BadResource` if the domain has no such table.
    pub(crate) fn table(&mut self, domain: Domain, number: u32) -> Result<&mut Table, Status> {
        self.tables.get_mut(&number).filter(|table| table.domain == domain).ok_or(Status::BadResource)
    }

    /// The first table of a domain.
    pub(crate) fn root(&self, domain: Domain) -> Option<u32> {
        self.roots.get(&domain).copied()
    }

    pub(crate) fn set_root(&mut self, domain: Domain, table: Option<u32>) {
        match table {
            Some(table) => self.roots.insert(domain, table),
            None => self.roots.remove(&domain),
        };
    }

    /// Passes a packet through the tables from the root on.
    ///
    /// In each table the matching entry with the lowest index decides. An entry may forward to receivers and to one or more further
    /// tables. A packet that no entry matches continues at the table's miss table; without one, a received packet is dropped, and a sent
    /// packet passes.
    pub(crate) fn run(
        &self,
        domain: Domain,
        value: &[u8; MATCH_SIZE],
        octets: usize,
        counters: &mut Counters,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        let Some(root) = self.root(domain) else {
            verdict.passes = domain == Domain::Transmit;
            return verdict;
        };
        let mut open = vec![(root, 0)];
        for _ in 0..MOST_TABLES {
            let Some((number, tag)) = open.pop() else { break };
            let Some(table) = self.tables.get(&number) else { continue };
            let Some(entry) = table.find(value) else {
                match table.miss {
                    Miss::Forward(next) => open.push((next, tag)),
                    Miss::Default => verdict.passes |= domain == Domain::Transmit,
                }
                continue;
            };
            entry.counters.iter().for_each(|counter| counters.count(*counter, octets));
            let tag = if entry.tag == 0 { tag } else { entry.tag };
            if entry.action.contains(Action::DROP) {
                continue;
            }
            verdict.passes |= entry.action.contains(Action::ALLOW) && domain == Domain::Transmit;
            for destination in entry.destinations.iter().rev() {
                match *destination {
                    Destination::Table(next) => open.push((next, tag)),
                    Destination::Receiver(receiver) => verdict.receivers.push((receiver, tag)),
                }
            }
        }
        verdict
    }
}
