//! What the tests of completion counters share.

use std::time::Duration;

use uverbs::{CompletionCounter, ErrorKind, WaitObject, WaitSet};

/// For waits that must end by themselves, which they do long before this.
pub const LONG: Option<Duration> = Some(Duration::from_secs(60));
/// For waits that must not end by themselves.
pub const SHORT: Option<Duration> = Some(Duration::from_millis(20));

pub fn counter(object: WaitObject) -> CompletionCounter {
    CompletionCounter::new(object).unwrap()
}

/// The wait objects with which `wait` works.
pub fn waiting_objects() -> [WaitObject; 4] {
    [WaitObject::Unspecified, WaitObject::FileDescriptor, WaitObject::MutexCondvar, WaitObject::Yield]
}

pub fn all_objects() -> [WaitObject; 6] {
    let [one, two, three, four] = waiting_objects();
    [WaitObject::None, WaitObject::Set(WaitSet::new()), one, two, three, four]
}

/// The value and the error value.
pub fn values(counter: &CompletionCounter) -> (u64, u64) {
    (counter.read(), counter.read_err())
}

#[track_caller]
pub fn ends_with(result: uverbs::Result<()>, kind: ErrorKind) {
    assert_eq!(result.unwrap_err().kind(), kind);
}
