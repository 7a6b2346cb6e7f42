//! Firmware commands that a card with a control line is configured to refuse.

use uverbs::{Error, ErrorKind};

use super::{Control, EAGAIN, EBUSY, EINVAL, EIO, ENOMEM, Target, on_every_device, skip};

/// Statuses of the firmware, and the errno into which the kernel converts each (cmd_status_to_err, cmd.c, Linux 6.1).
pub const STATUSES: &[(u8, i32)] = &[(1, EIO), (3, EINVAL), (6, EBUSY), (8, ENOMEM), (0xf, EAGAIN)];

/// Runs a behaviour on a card with a control line, if `is_right` returns true for it.
pub fn on_every_card(is_right: impl Fn(&Target) -> bool, behaviour: impl Fn(&Target, &Control)) {
    on_every_device(|target| match &target.control {
        Some(_) if !is_right(target) => skip(target, "its port is of another kind"),
        Some(control) => behaviour(target, control),
        None => skip(target, "its firmware cannot be told to fail"),
    });
}

/// Checks that the error is that of the status, and that EIO is not reported as the removal of an existing device.
#[track_caller]
pub fn is_of(error: &Error, errno: i32, what: &str) {
    assert_eq!(error.errno(), Some(errno), "{what}: {error}");
    assert_eq!(error.kind() == ErrorKind::Other, errno == EIO, "{what}: {error}");
    assert_eq!(error.hint().is_some_and(|hint| hint.contains("firmware")), errno == EIO, "{what}: {error}");
}

/// Makes the firmware refuse once to destroy an object. The call with this name returns the error, or none does; then the firmware still
/// has the object, or the driver has ignored the refusal.
#[track_caller]
pub fn refuses_an_end(
    control: &Control,
    request: &str,
    told: Option<(&str, i32)>,
    is_left: bool,
    run: impl FnOnce() -> Option<Error>,
) {
    let objects = control.ask("objects").len();
    control.ask(request);
    let error = run();
    assert_eq!(error.as_ref().map(Error::op), told.map(|(op, _)| op), "{request}");
    if let (Some(error), Some((_, errno))) = (&error, told) {
        is_of(error, errno, request);
    }
    assert_eq!(control.ask("objects").len() > objects, is_left, "{request}");
}
