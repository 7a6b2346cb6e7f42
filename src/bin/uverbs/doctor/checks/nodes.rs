//! Devices of the kernel without a file that programs can open, and those of other namespaces.
//!
//! Source: core/uverbs_main.c and core/device.c (`ib_devices_shared_netns`), Linux 6.1 to 7.3.

use crate::doctor::finding::Finding;
use crate::doctor::seen::Seen;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let machine = &seen.machine;
    let mut found = Vec::new();
    if let Some(path) = machine.elsewhere() {
        found.push(Finding::note(
            "sysfs-elsewhere",
            format!("SYSFS_PATH is {path}"),
            "devices are looked for there, and not in /sys",
        ));
    }
    let devices = machine.names("sys/class/infiniband");
    let verbs = machine.names("sys/class/infiniband_verbs");
    let verbs: Vec<_> = verbs.iter().filter(|name| name.starts_with("uverbs")).collect();
    if !devices.is_empty() && verbs.is_empty() {
        found.push(
            Finding::problem(
                "no-uverbs",
                format!("{} without an entry in /sys/class/infiniband_verbs", devices.join(", ")),
                "the module ib_uverbs makes the files that programs open",
            )
            .mend("modprobe ib_uverbs"),
        );
    }
    let has_node = |name: &&&String| machine.exists(&format!("dev/infiniband/{name}"));
    let missing: Vec<_> = verbs.iter().filter(|name| !has_node(name)).map(|name| name.as_str()).collect();
    if !missing.is_empty() {
        let seen = format!("no file in /dev/infiniband for {}", missing.join(", "));
        let mend = "in a container: --device /dev/infiniband (Kubernetes: a device plugin); otherwise udevadm trigger --subsystem-match=infiniband_verbs";
        found.push(Finding::problem("no-node", seen, "programs open these files").mend(mend));
    }
    // `netns_mode`: Y if each network namespace sees all devices.
    if machine.text("sys/module/ib_core/parameters/netns_mode").as_deref() == Some("N") {
        let (seen_there, why) = (
            "RDMA devices belong to one network namespace each (exclusive mode)",
            "a device of another namespace cannot be seen or opened here",
        );
        let mend = "rdma dev set DEVICE netns NAMESPACE, where the device is; or, before there is any namespace, rdma system set netns shared";
        found.push(match seen.devices.is_empty() {
            true => Finding::problem("exclusive-namespaces", seen_there, why).mend(mend),
            false => Finding::note("exclusive-namespaces", seen_there, why),
        });
    }
    found
}
