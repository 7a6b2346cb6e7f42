//! Objects of which a device has few left, and who uses the device.

use crate::doctor::finding::Finding;
use crate::doctor::seen::Seen;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    for used in &seen.used {
        if used.count.saturating_mul(10) >= used.most.saturating_mul(9) {
            let text = format!("{} of {} {} are in use", used.count, used.most, used.what);
            let why = "when none is left, creating one is refused with ENOMEM or ENOSPC";
            let mend = "uverbs stat --resources says which programs have them";
            found.push(Finding::warning("few-objects-left", text, why).on(&used.device).mend(mend));
        }
    }
    for (device, programs) in &seen.users {
        let text = format!("in use by {}", programs.join(", ").escape_debug());
        found.push(
            Finding::note(
                "in-use",
                text,
                "a driver or a device that is in use is not removed without these noticing",
            )
            .on(device),
        );
    }
    found
}
