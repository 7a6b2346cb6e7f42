//! The state of the device as the control line shows it.

use crate::admin::name;
use crate::bytes::Bytes as _;
use crate::device::Device;

pub(super) fn commands(device: &Device) -> Vec<String> {
    device.trace.counts().map(|(opcode, count)| format!("{opcode} {} {count}", name(opcode))).collect()
}

pub(super) fn counters(device: &Device) -> Vec<String> {
    device
        .counters
        .iter()
        .map(|(number, counter)| format!("{number} value={} users={}", counter.value, counter.users))
        .collect()
}

/// The number of objects of each kind, followed by a line for each that has details.
pub(super) fn objects(device: &Device) -> Vec<String> {
    let counts = [
        ("pd", device.pds.len()),
        ("uar", device.uars.len()),
        ("ah", device.addresses.len()),
        ("mr", device.regions.len()),
        ("cq", device.cqs.len()),
        ("qp", device.qps.len()),
        ("eq", device.eqs.len()),
        ("counter", device.counters.len()),
        ("request", device.fabric.under_way()),
    ];
    let mut lines: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    lines.extend(device.uars.iter().map(|(number, uar)| format!(" uar {number}: {} doorbells", uar.count())));
    lines.extend(device.addresses.iter().map(|(number, address)| {
        let gid: String = address.gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(" ah {number}: pd={} gid={gid} users={}", address.pd, address.users)
    }));
    lines.extend(device.qps.iter().map(|(handle, qp)| {
        let kind = if qp.is_reliable { "SRD" } else { "UD" };
        format!(
            " qp {handle}: number={:#x} {kind} state={} pd={} under_way={}",
            qp.number, qp.state, qp.pd, qp.send.under_way
        )
    }));
    lines
}

/// The driver's versions and its host's name, if they are text.
pub(super) fn host(device: &Device) -> Vec<String> {
    let text = |at: usize, len: usize| {
        let bytes = device.host.get(at..).and_then(|bytes| bytes.get(..len)).unwrap_or_default();
        String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
    };
    vec![
        format!("system {}", text(0, 128)),
        format!("version {}", text(132, 32)),
        format!("driver {:#x}", device.host.u32(168)),
        format!("reset {}", device.registers.reset_reason()),
    ]
}
