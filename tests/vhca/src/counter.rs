//! Flow counters.

use std::collections::BTreeMap;

/// The values of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) packets: u64,
    pub(crate) octets: u64,
}

/// All flow counters, by their number.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counters: BTreeMap<u32, Counter>,
}

impl Counters {
    /// Adds `count` counters at zero.
    pub(crate) fn insert(&mut self, first: u32, count: u32) {
        self.counters.extend((first..first + count).map(|number| (number, Counter::default())));
    }

    pub(crate) fn remove(&mut self, first: u32, count: u32) {
        for number in first..first + count {
            self.counters.remove(&number);
        }
    }

    /// Counts one packet of `octets` bytes.
    pub(crate) fn count(&mut self, number: u32, octets: usize) {
        if let Some(counter) = self.counters.get_mut(&number) {
            counter.packets += 1;
            counter.octets += octets as u64;
        }
    }

    /// The values of a counter, which is then cleared on request. `None` if the counter does not exist.
    pub(crate) fn read(&mut self, number: u32, clear: bool) -> Option<Counter> {
        let counter = self.counters.get_mut(&number)?;
        Some(if clear { std::mem::take(counter) } else { *counter })
    }

    pub(crate) fn list(&self) -> impl Iterator<Item = (u32, Counter)> {
        self.counters.iter().map(|(number, counter)| (*number, *counter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_until_they_are_cleared() {
        let mut counters = Counters::default();
        counters.insert(128, 2);
        counters.count(128, 60);
        counters.count(128, 1500);
        counters.count(7, 60);
        assert_eq!(counters.read(128, true), Some(Counter { packets: 2, octets: 1560 }));
        assert_eq!(counters.read(128, false), Some(Counter::default()));
        assert_eq!(counters.read(129, false), Some(Counter::default()));
        assert_eq!(counters.read(130, false), None);
        counters.remove(128, 2);
        assert_eq!(counters.list().count(), 0);
    }
}
