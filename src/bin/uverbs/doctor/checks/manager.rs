//! The kernel's connection manager (core/ucma.c, Linux 6.1 to 7.3), which librdmacm and this crate's connections use.

use crate::doctor::finding::Finding;
use crate::doctor::seen::Seen;

const NODE: &str = "dev/infiniband/rdma_cm";

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let machine = &seen.machine;
    if seen.devices.is_empty() {
        return Vec::new();
    }
    let why = "librdmacm opens this file, so programs that connect by an IP address need it";
    if !machine.exists(NODE) {
        // The class has an entry where the module is loaded, also if the file is not there.
        let (text, mend) = match machine.exists("sys/class/misc/rdma_cm") {
            true => (
                "/dev/infiniband/rdma_cm is missing, and the module is loaded",
                "in a container: --device /dev/infiniband/rdma_cm",
            ),
            false => ("/dev/infiniband/rdma_cm is missing", "modprobe rdma_ucm"),
        };
        return vec![Finding::warning("no-manager", text, why).mend(mend)];
    }
    let mut found = Vec::new();
    let path = machine.path(NODE);
    let wanted = nix::unistd::AccessFlags::R_OK | nix::unistd::AccessFlags::W_OK;
    if nix::unistd::access(&path, wanted).is_err() {
        let mode = machine.mode(NODE).map_or_else(String::new, |(mode, ..)| format!(" (mode {mode:04o})"));
        found.push(
            Finding::warning(
                "manager-denied",
                format!("/dev/infiniband/rdma_cm{mode} cannot be opened by this user"),
                why,
            )
            .mend("udev's rule of rdma-core gives mode 0666"),
        );
    }
    // A route over the loopback interface has no device; addresses of other interfaces of this host have.
    let interfaces = seen.interfaces();
    if seen.addresses.iter().all(|(name, _)| !interfaces.contains(name))
        && seen.ports().any(|(_, port)| !port.interfaces.is_empty())
    {
        let text = "no interface of a device has an IP address";
        let why = "a connection by an IP address finds its device by the interface that has the address";
        found.push(Finding::warning("no-address", text, why).mend("ip addr add ADDRESS/24 dev INTERFACE"));
    }
    found
}
