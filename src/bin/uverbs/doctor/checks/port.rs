//! Ports: their state, the bus behind them, and the size of packets.
//!
//! Source: core/sysfs.c and include/rdma/ib_verbs.h (`enum ib_port_state`, `ib_port_phys_state`), include/rdma/ib_addr.h
//! (`iboe_get_mtu`), Linux 6.1 to 7.3.

use crate::doctor::finding::Finding;
use crate::doctor::seen::{Seen, SeenDevice, SeenPort};

/// Bytes of a packet's headers in front of and behind the payload, as the kernel reserves them: GRH, UDP, BTH, XRC, atomic, ICRC.
const HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

/// The bit of a network interface's flags that says that it is up (`IFF_UP`, linux/if.h).
const UP: u32 = 1;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let is_active = |port: &SeenPort| word(seen, port, "state").as_deref() == Some("ACTIVE");
    let others_work = seen.ports().any(|(_, port)| is_active(port));
    let mut found = Vec::new();
    for (device, port) in seen.ports() {
        let state = state(seen, port).map(|finding| match others_work {
            true => Finding { severity: crate::doctor::finding::Severity::Warning, ..finding },
            false => finding,
        });
        let all = state.into_iter().chain(packets(seen, device, port));
        found.extend(all.map(|finding| finding.on(&device.name).port(port.number)));
    }
    found.extend(seen.devices.iter().filter_map(|device| bus(seen, device)));
    found
}

/// A file such as `4: ACTIVE`, without the number.
fn word(seen: &Seen, port: &SeenPort, name: &str) -> Option<String> {
    Some(seen.machine.text(&format!("{}/{name}", port.folder))?.split_once(": ")?.1.to_owned())
}

/// A port that is not active.
fn state(seen: &Seen, port: &SeenPort) -> Option<Finding> {
    let state = word(seen, port, "state")?;
    let physical = word(seen, port, "phys_state").unwrap_or_default();
    let text = format!("the port is {state}, the link {physical}");
    let down = port.interfaces.iter().find(|name| !is_up(seen, name));
    // The file cannot be read while an interface is down.
    let has_no_carrier =
        |name: &&String| seen.machine.number(&format!("sys/class/net/{name}/carrier")) == Some(0);
    let without = port.interfaces.iter().find(has_no_carrier);
    let why = "queue pairs reach no peer through a port that is not active";
    let mend = match (state.as_str(), down, physical.as_str()) {
        ("ACTIVE", ..) => return None,
        ("INIT", ..) => "start a subnet manager: opensm on one host, or in the switch".to_owned(),
        ("ARMED", ..) => "the subnet manager has not finished: look at its log".to_owned(),
        (_, Some(name), _) => format!("ip link set {name} up"),
        _ if without.is_some() => {
            let name = without.map_or("INTERFACE", String::as_str);
            format!("{name} is up and has no carrier: the cable, the switch's port, the other end; ethtool {name}")
        }
        (_, None, "Disabled") => "ip link set INTERFACE up; if it is up: the cable, the switch's port, ibportstate".to_owned(),
        (_, None, "Polling") => "the other end does not answer: the cable, the switch's port, speed and error correction (ethtool)".to_owned(),
        _ => "the interface, the cable, the switch's port".to_owned(),
    };
    Some(Finding::problem("port-state", text, why).mend(mend))
}

fn is_up(seen: &Seen, interface: &str) -> bool {
    let flags = seen.machine.text(&format!("sys/class/net/{interface}/flags"));
    let flags = flags.and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    flags.is_none_or(|flags| flags & UP != 0)
}

/// The size of packets over Ethernet, which follows that of the interface.
fn packets(seen: &Seen, device: &SeenDevice, port: &SeenPort) -> Option<Finding> {
    let (used, most) = port.mtu.filter(|_| device.is_roce(&seen.machine, port))?;
    let (interface, frame) = port
        .interfaces
        .iter()
        .find_map(|name| Some((name, seen.machine.number(&format!("sys/class/net/{name}/mtu"))?)))?;
    let fits = |payload: &u32| u64::from(payload + HEADERS) <= frame;
    let possible = [4096, 2048, 1024, 512, 256].into_iter().find(fits)?.min(most);
    if used < possible {
        let text = format!(
            "packets have {used} bytes of payload, and {interface} (MTU {frame}) has room for {possible}"
        );
        let why = "smaller packets cost bandwidth, and both sides must have one size";
        return Some(
            Finding::warning("packet-size", text, why)
                .mend(format!("set the MTU of {interface} again, or remove the device and add it")),
        );
    }
    let text = format!(
        "packets have {used} bytes of payload, because the MTU of {interface} is {frame}; the device can have {most}"
    );
    let why = "each packet costs time; both sides, and every switch, must have the size";
    (used < most).then(|| {
        Finding::note("packet-size", text, why)
            .mend(format!("ip link set {interface} mtu {}", most + HEADERS))
    })
}

/// A card that uses fewer lanes, or slower ones, than it can.
fn bus(seen: &Seen, device: &SeenDevice) -> Option<Finding> {
    let folder = format!("sys/class/infiniband/{}/device", device.name);
    // `16.0 GT/s PCIe`, `16`.
    let number = |name: &str| {
        let text = seen.machine.text(&format!("{folder}/{name}"))?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    let (speed, most_speed) = number("current_link_speed").zip(number("max_link_speed"))?;
    let (width, most_width) = number("current_link_width").zip(number("max_link_width"))?;
    if speed >= most_speed && width >= most_width {
        return None;
    }
    let text =
        format!("PCIe: {width} lanes of {speed} GT/s; the card can have {most_width} of {most_speed} GT/s");
    let why = "the bus may be slower than the network";
    Some(Finding::warning("bus-speed", text, why).on(&device.name).mend(
        "another slot; the settings of the firmware; in a virtual machine this may be what the host shows",
    ))
}
