//! Parses answers about hardware counters (`fill_stat_hwcounter_entry` and `nldev_stat_get_counter_status_doit`, core/nldev.c, Linux 6.1).

use uverbs_abi::netlink::attr;

use crate::device::netlink::{Attributes, number, until_nul, wide};

/// Passes name and value of each counter to `take`. Entries without a name or a value are left out.
pub(super) fn values(message: &[u8], mut take: impl FnMut(&[u8], u64)) {
    entries(message, |entry| {
        let (mut name, mut count) = (None, None);
        for (kind, value) in Attributes(entry) {
            match kind {
                attr::STAT_HWCOUNTER_ENTRY_NAME => name = Some(until_nul(value)),
                attr::STAT_HWCOUNTER_ENTRY_VALUE => count = wide(value),
                _ => {}
            }
        }
        if let (Some(name), Some(count)) = (name, count) {
            take(name, count);
        }
    });
}

/// Passes name and index of each optional counter to `take`, and whether it is on.
pub(super) fn optional(message: &[u8], mut take: impl FnMut(&[u8], u32, bool)) {
    entries(message, |entry| {
        let (mut name, mut index, mut is_on) = (None, None, None);
        for (kind, value) in Attributes(entry) {
            match kind {
                attr::STAT_HWCOUNTER_ENTRY_NAME => name = Some(until_nul(value)),
                attr::STAT_HWCOUNTER_INDEX => index = number(value),
                attr::STAT_HWCOUNTER_DYNAMIC => is_on = value.first().map(|byte| *byte != 0),
                _ => {}
            }
        }
        if let (Some(name), Some(index), Some(is_on)) = (name, index, is_on) {
            take(name, index, is_on);
        }
    });
}

fn entries(message: &[u8], mut take: impl FnMut(&[u8])) {
    for (kind, table) in Attributes(message) {
        if kind == attr::STAT_HWCOUNTERS {
            let entries = Attributes(table).filter(|(kind, _)| *kind == attr::STAT_HWCOUNTER_ENTRY);
            entries.for_each(|(_, entry)| take(entry));
        }
    }
}
