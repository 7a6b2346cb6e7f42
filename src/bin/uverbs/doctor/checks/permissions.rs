//! What this process may do.

use std::path::Path;

use uverbs::ErrorKind;

use crate::doctor::finding::Finding;
use crate::doctor::machine::{IPC_LOCK, NET_RAW};
use crate::doctor::seen::{Seen, SeenDevice};

/// Less than this is not enough for the queues alone: their memory is pinned too.
const QUEUES: u64 = 256 << 10;
/// Less than this is not enough for the buffers of usual programs.
const BUFFERS: u64 = 64 << 20;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    // A limit of a cgroup may be the cause of what is refused.
    let mut found = groups(seen);
    found.extend(seen.devices.iter().filter_map(|device| refused(seen, device)));
    found.extend(memory(seen));
    found.extend(raw_packets(seen));
    found
}

/// A device that cannot be opened.
fn refused(seen: &Seen, device: &SeenDevice) -> Option<Finding> {
    let (kind, text) = device.refused.as_ref()?;
    let found = match kind {
        ErrorKind::PermissionDenied => {
            let node = device.node.as_deref().unwrap_or("its file");
            let mode = seen.machine.mode(node.trim_start_matches('/'));
            let mode = mode.map_or_else(String::new, |(mode, user, group)| {
                format!(" (mode {mode:04o}, owner {user}, group {group})")
            });
            Finding::problem("open-denied", format!("{node}{mode}: {text}"), "a program needs to read and write this file")
                .mend("udev's rule of rdma-core gives mode 0666; in a container also the device cgroup: --device /dev/infiniband")
        }
        ErrorKind::Exhausted => Finding::problem("open-refused", text.as_str(), "the device cannot be used")
            .mend("EAGAIN: rdma.max of the cgroup; EMFILE: ulimit -n; ENOMEM: free memory"),
        _ => Finding::problem("open-refused", text.as_str(), "the device cannot be used"),
    };
    Some(found.on(&device.name))
}

/// Registered memory is pinned, and counts against RLIMIT_MEMLOCK without CAP_IPC_LOCK (`ib_umem_get`, core/umem.c, Linux 6.1).
fn memory(seen: &Seen) -> Option<Finding> {
    if seen.machine.has_capability(IPC_LOCK) != Some(false) {
        return None;
    }
    let limit = seen.machine.lockable().filter(|limit| *limit < BUFFERS)?;
    let text = format!("at most {} of memory can be locked (RLIMIT_MEMLOCK)", amount(limit));
    let why = "registered memory and queues are locked; beyond the limit registrations and queue pairs are refused with ENOMEM";
    let found = match limit < QUEUES {
        true => Finding::problem("memory-limit", text, why),
        false => Finding::warning("memory-limit", text, why),
    };
    Some(found.mend("ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; Docker: --ulimit memlock=-1; all users: /etc/security/limits.d"))
}

/// Bytes, in a unit that people read.
fn amount(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mebibytes => format!("{mebibytes} MiB"),
    }
}

/// Raw packets, flows and sniffers need CAP_NET_RAW (core/uverbs_cmd.c).
fn raw_packets(seen: &Seen) -> Option<Finding> {
    let is_needed = seen.devices.iter().any(|device| device.driver == "mlx5");
    if !is_needed || seen.machine.has_capability(NET_RAW) != Some(false) {
        return None;
    }
    let why = "raw packet queue pairs, flows and flow counters need it";
    Some(
        Finding::note("no-net-raw", "this process lacks CAP_NET_RAW", why)
            .mend("setcap cap_net_raw+ep PROGRAM, --cap-add NET_RAW, or root"),
    )
}

/// Limits of the RDMA cgroup and of those above it: lines such as `mlx5_0 hca_handle=2 hca_object=2000`
/// (Documentation/admin-guide/cgroup-v2.rst).
fn groups(seen: &Seen) -> Vec<Finding> {
    let machine = &seen.machine;
    let own = machine.text("proc/self/cgroup").unwrap_or_default();
    let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::")) else { return Vec::new() };
    let mut found = Vec::new();
    for group in Path::new(own).ancestors().map(|group| group.display().to_string()) {
        let folder = format!("sys/fs/cgroup{}", group.trim_end_matches('/'));
        let read = |name: &str| machine.text(&format!("{folder}/{name}")).unwrap_or_default();
        let (most, current) = (read("rdma.max"), read("rdma.current"));
        for (device, what, limit) in values(&most) {
            let is_it = |(of, key, _): &(&str, &str, u64)| (*of, *key) == (device, what);
            let used = values(&current).find(is_it).map_or(0, |(.., used)| used);
            let text = format!("{used} of at most {limit} ({what}) are used in the cgroup {group}");
            let why = "when none is left, opening or creating is refused with EAGAIN";
            let is_cause =
                used >= limit && seen.devices.iter().any(|seen| seen.name == device && seen.is_exhausted());
            let finding = match used.saturating_mul(10) >= limit.saturating_mul(9) {
                true if is_cause => Finding::problem("cgroup-limit", text, why),
                true => Finding::warning("cgroup-limit", text, why),
                false => Finding::note("cgroup-limit", text, why),
            };
            found.push(finding.on(device).mend(format!("raise it: rdma.max of {group}")));
        }
    }
    found
}

/// The numbers of such a file: device, kind, number. What is not limited is left out.
fn values(text: &str) -> impl Iterator<Item = (&str, &str, u64)> {
    text.lines().flat_map(|line| {
        let mut words = line.split_whitespace();
        let device = words.next().unwrap_or_default();
        words.filter_map(move |word| {
            let (key, value) = word.split_once('=')?;
            Some((device, key, value.parse().ok()?))
        })
    })
}
