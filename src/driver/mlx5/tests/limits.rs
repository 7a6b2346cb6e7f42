//! Sizes that the device does not support.

use super::*;

#[test]
fn what_the_device_does_not_have_is_refused() {
    let limits = limits(1);
    let page = Registers { page: Mapping::block(4096).unwrap(), id: Some(0), offset: 0 };
    assert!(CqPlan::new("test", 0, &limits, page.clone()).is_err());
    assert!(CqPlan::new("test", u32::MAX, &limits, page.clone()).is_err());
    let queue = open(CqPlan::new("test", 1, &limits, page.clone()).unwrap(), 0);
    for wanted in [
        cap(32769, 1, 1, 0),
        cap(1, 32769, 1, 0),
        cap(1, 1, 62, 0),
        cap(1, 1, 1, 1000),
        cap(1, 1, u32::MAX, 0),
        cap(u32::MAX, 1, 1, u32::MAX),
    ] {
        let plan = QpPlan::new(
            "test",
            Form::Frames { header: 0 },
            &all(wanted),
            &limits,
            page.clone(),
            ends([queue.shared(); 2]),
            || 0,
        );
        assert!(plan.is_err(), "{wanted:?}");
    }
}
