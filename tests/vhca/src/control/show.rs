//! The state of the device as the control line shows it.

use crate::command::Command;
use crate::device::{Device, Statistics};
use crate::steering::{Domain, Entry, Miss};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that are not zero, in sequences with their offset: `0x12=0800`.
fn sparse(bytes: &[u8]) -> String {
    let mut runs: Vec<String> = Vec::new();
    let mut zeros = true;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != 0 && zeros {
            runs.push(format!("{at:#x}="));
        }
        zeros = *byte == 0;
        if let Some(run) = runs.last_mut().filter(|_| !zeros) {
            run.push_str(&format!("{byte:02x}"));
        }
    }
    runs.join(",")
}

pub(super) fn sent(device: &Device) -> Vec<String> {
    device.wire.sent.iter().map(|packet| hex(packet)).collect()
}

pub(super) fn commands(device: &Device) -> Vec<String> {
    device
        .trace
        .counts()
        .map(|(opcode, count)| format!("{opcode:03x} {} {count}", Command::name(opcode)))
        .collect()
}

pub(super) fn counters(device: &Device) -> Vec<String> {
    let line = |(number, counter): (u32, crate::counter::Counter)| {
        format!("{number} packets={} octets={}", counter.packets, counter.octets)
    };
    device.counters.list().map(line).collect()
}

pub(super) fn tables(device: &Device) -> Vec<String> {
    let steering = &device.steering;
    let mut lines = Vec::new();
    for (number, table) in &steering.tables {
        let domain = if table.domain == Domain::Receive { "receive" } else { "transmit" };
        let root = if steering.root(table.domain) == Some(*number) { " root" } else { "" };
        let miss = match table.miss {
            Miss::Default => String::new(),
            Miss::Forward(next) => format!(" miss={next}"),
        };
        lines.push(format!(
            "table {number} {domain} level={} size={}{miss}{root}",
            table.level,
            1 << table.log_size
        ));
        for (id, group) in &table.groups {
            let range = &group.range;
            let mask = sparse(&group.mask[..]);
            lines.push(format!(" group {id} {}..={} mask {mask}", range.start(), range.end()));
            let of_group = |(_, entry): &(&u32, &Entry)| entry.group == *id;
            lines.extend(
                table.entries.iter().filter(of_group).map(|(index, entry)| self::entry(*index, entry)),
            );
        }
    }
    lines
}

fn entry(index: u32, entry: &Entry) -> String {
    let Entry { action, tag, destinations, counters, value, .. } = entry;
    let value = sparse(&value[..]);
    format!(
        "  entry {index} action={:#x} tag={tag} to={destinations:?} counters={counters:?} value {value}",
        action.0
    )
}

pub(super) fn objects(device: &Device) -> Vec<String> {
    let line = |(handle, users, uses): (crate::object::Handle, usize, &[crate::object::Handle])| {
        let uses: Vec<_> = uses.iter().map(ToString::to_string).collect();
        format!("{handle} users={users} uses=[{}]", uses.join(", "))
    };
    device.objects.list().map(line).collect()
}

pub(super) fn mishaps(device: &Device) -> Vec<String> {
    device.wire.mishaps.happened().map(|(name, times)| format!("{name} {times}")).into()
}

pub(super) fn statistics(device: &Device) -> Vec<String> {
    let Statistics { received, unclaimed, delivered, no_request, sent, refused, faults } = device.statistics;
    [
        ("received", received),
        ("unclaimed", unclaimed),
        ("delivered", delivered),
        ("no_request", no_request),
        ("sent", sent),
        ("refused", refused),
        ("faults", faults),
    ]
    .map(|(name, value)| format!("{name} {value}"))
    .into()
}
