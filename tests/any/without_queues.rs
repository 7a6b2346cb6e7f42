//! Devices with a driver for which this crate has no queues: what they support, and what is refused.

use std::collections::BTreeSet;

use crate::common::*;
use uverbs::{AccessFlags, ErrorKind, OpenOptions, Route};

#[track_caller]
fn lacks<T: std::fmt::Debug>(target: &Target, answer: uverbs::Result<T>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let named = error.hint().is_some_and(|hint| hint.contains(target.device.driver()));
    assert!(named, "a hint that names the driver: {error}");
}

#[test]
fn what_needs_queues_is_refused_with_a_hint_where_there_are_none() {
    on_every_device(|target| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(4);
        if cq.is_ok() {
            return;
        }
        lacks(target, cq);
        lacks(target, context.cq(4).cookie(7).create());
        lacks(target, pd.create_srq(4));
        lacks(target, pd.create_ah(&Route::new(1, 0, [1; 16])));
        lacks(target, OpenOptions::new().devx(true).open(&target.device));
        lacks(target, context.create_counters());
        assert_eq!(context.create_indirection_table(&[]).unwrap_err().kind(), ErrorKind::Unsupported);
        // The order does not matter: nothing was left halfway.
        context.query_device().unwrap();
        pd.destroy().unwrap();
    });
}

#[test]
fn memory_is_registered_with_keys_of_its_own() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        // The driver efa of Linux 6.1 has no writes.
        let has_writes = pd.register(5000, access).is_ok();
        assert!(has_writes || target.device.driver() == "efa");
        let access = if has_writes { access } else { access - AccessFlags::REMOTE_WRITE };
        let regions: Vec<_> = (0..300).map(|_| pd.register(5000, access).unwrap()).collect();
        let locals: BTreeSet<_> = regions.iter().map(|region| region.lkey()).collect();
        let remotes: BTreeSet<_> = regions.iter().map(|region| region.rkey()).collect();
        assert_eq!((locals.len(), remotes.len()), (300, 300));
        for region in regions {
            region.destroy().unwrap();
        }
        // A number that was used before.
        let again = pd.register(5000, access).unwrap();
        again.write(4990, b"0123456789").unwrap();
        again.destroy().unwrap();
        pd.destroy().unwrap();
    });
}
