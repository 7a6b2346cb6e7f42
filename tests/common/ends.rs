//! Devices that are removed.

use std::time::{Duration, Instant};

use uverbs::{CompletionChannel, Context, ErrorKind, EventKind};

/// Long enough for any machine; an operation that takes longer hangs.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Waits until a condition is true.
#[track_caller]
pub fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < LIMIT, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The removal of a device is an event, the last one, and a wait for completions also reports it.
#[track_caller]
pub fn sees_the_end(context: &Context, channel: &CompletionChannel) {
    let mut events = Vec::new();
    until("the end of events", || match context.next_event() {
        Ok(Some(event)) => {
            events.push(event.kind);
            false
        }
        Ok(None) => events.contains(&EventKind::DeviceFatal),
        Err(error) => error.kind() == ErrorKind::Disassociated,
    });
    assert!(events.contains(&EventKind::DeviceFatal), "{events:?}");
    assert!(channel.wait(Some(LIMIT)).unwrap(), "the end of a channel can be seen");
}
