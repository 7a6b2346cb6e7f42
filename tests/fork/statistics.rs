//! Readers of a device's counters, in the process that created them and in its child.

use super::*;

pub(crate) fn readers() {
    on_every_device(|target| {
        let mut statistics = target.device.statistics().unwrap();
        let count = statistics.read().unwrap().len();
        let mut resources = target.device.resources().unwrap();
        resources.summary().unwrap();
        let Some(child) = split() else {
            in_the_child(|| {
                if target.soft.is_some() {
                    // It is memory of the parent.
                    gone(statistics.read().map(drop));
                    gone(target.device.statistics().and_then(|mut statistics| statistics.read().map(drop)));
                } else {
                    for _ in 0..100 {
                        assert_eq!(statistics.read().unwrap().len(), count);
                        resources.summary().unwrap();
                    }
                }
            })
        };
        // At the same time: neither process takes the other's answers.
        for _ in 0..100 {
            assert_eq!(statistics.read().unwrap().len(), count);
            resources.summary().unwrap();
        }
        wait_for(child);
    });
}
