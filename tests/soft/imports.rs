//! Objects that others have created, and those that are left to them.

use std::fs::File;

use uverbs::{Context, ErrorKind, SoftDevice, WindowType};

#[test]
fn what_others_have_is_refused_by_drivers_that_do_not_tell_it() {
    let context = SoftDevice::default().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    assert_eq!(context.import_pd(pd.handle()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(pd.import_region(1).unwrap_err().kind(), ErrorKind::Unsupported);
    let (file, error) = Context::import(context.device(), File::open("/dev/null").unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(file.is_some(), "a file that is refused comes back");
}

#[test]
fn a_domain_is_deallocated_before_its_clones_or_left() {
    let context = SoftDevice::default().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let window = pd.alloc_window(WindowType::One).unwrap();
    assert_eq!(pd.deallocate().unwrap_err().kind(), ErrorKind::Busy, "the kernel says so");
    window.destroy().unwrap();
    let clone = pd.clone();
    pd.deallocate().unwrap();
    pd.deallocate().unwrap();
    assert_eq!(clone.alloc_window(WindowType::One).unwrap_err().kind(), ErrorKind::NotFound);
    let left = context.alloc_pd().unwrap();
    left.leave();
    assert!(left.destroy().is_ok(), "nothing was sent");
}
