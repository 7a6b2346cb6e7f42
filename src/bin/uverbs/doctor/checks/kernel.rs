//! The kernel's age, and its faults that this project knows (docs/internals/kernels.md).

use crate::doctor::finding::Finding;
use crate::doctor::seen::Seen;

/// The oldest kernel on which this crate is tested.
const OLDEST: (u32, u32) = (6, 1);

/// A fault of some kernels: the driver, the first version without it, if there is one, what happens, and what to do. `docs/internals/kernels.md`
/// has the sentence in `page`, which a test of the project compares.
pub(in crate::doctor) struct Fault {
    driver: &'static str,
    since: (u32, u32),
    until: Option<(u32, u32)>,
    name: &'static str,
    seen: &'static str,
    mend: &'static str,
    #[cfg_attr(not(test), expect(dead_code))]
    page: &'static str,
}

pub(in crate::doctor) const FAULTS: &[Fault] = &[
    Fault {
        driver: "rxe",
        since: (7, 3),
        until: None,
        name: "rxe-interface-down",
        seen: "rxe's queue pair for connections stops for ever when its interface goes down while the connection manager sends",
        mend: "after that, remove the device and add it again: rdma link delete, rdma link add",
        page: "and added again",
    },
    Fault {
        driver: "rxe",
        since: (6, 1),
        until: Some((6, 2)),
        name: "rxe-message-size",
        seen: "rxe has messages of 8 MiB at most",
        mend: "send larger ones in parts, or use a newer kernel",
        page: "| `max_msg_sz` of rxe | 8 MiB | 2 GiB | 2 GiB |",
    },
    Fault {
        driver: "mlx5",
        since: (7, 2),
        until: None,
        name: "mlx5-default-rules",
        seen: "flows of the kinds all-default and mc-default are refused (EINVAL)",
        mend: "use other rules; flows of the kind normal work",
        page: "Default rules do not work on 7.2 and 7.3",
    },
];

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let Some(kernel) = seen.machine.kernel() else { return Vec::new() };
    let mut found = Vec::new();
    if kernel < OLDEST {
        let (major, minor) = kernel;
        found.push(
            Finding::warning(
                "kernel-untested",
                format!("Linux {major}.{minor}"),
                "this program is tested on Linux 6.1 and later; older kernels lack commands",
            )
            .mend("use a newer kernel"),
        );
    }
    for fault in FAULTS {
        let is_there = kernel >= fault.since && fault.until.is_none_or(|until| kernel < until);
        if let Some(device) = seen.devices.iter().find(|device| is_there && device.driver == fault.driver) {
            let why = format!("known of {} on this kernel", fault.driver);
            found.push(Finding::note(fault.name, fault.seen, why).on(&device.name).mend(fault.mend));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_on_the_page_about_kernels() {
        let page = include_str!("../../../../../docs/internals/kernels.md");
        for fault in FAULTS {
            assert!(page.contains(fault.page), "{}", fault.name);
        }
    }
}
