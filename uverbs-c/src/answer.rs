//! How errors are told: as a value, or as nothing and `errno`.

use std::collections::TryReserveError;
use std::ffi::c_int;

use nix::errno::Errno;
use nix::libc;
use uverbs::Error;

/// An errno, a positive number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_int);

pub(crate) type Answer<T = ()> = Result<T, Code>;

pub(crate) const EINVAL: Code = Code(libc::EINVAL);
pub(crate) const ENOMEM: Code = Code(libc::ENOMEM);
pub(crate) const EBUSY: Code = Code(libc::EBUSY);
pub(crate) const EOPNOTSUPP: Code = Code(libc::EOPNOTSUPP);

impl From<&Error> for Code {
    fn from(error: &Error) -> Self {
        // An answer of the kernel that makes no sense.
        Self(error.errno().unwrap_or(libc::EIO))
    }
}

impl From<Error> for Code {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// There is no memory for as much as a caller asked for.
impl From<TryReserveError> for Code {
    fn from(_: TryReserveError) -> Self {
        ENOMEM
    }
}

impl From<Errno> for Code {
    fn from(errno: Errno) -> Self {
        Self(errno as c_int)
    }
}

impl Code {
    /// Sets `errno`.
    pub(crate) fn set(self) {
        Errno::set_raw(self.0);
    }
}

/// Zero or the errno, for calls that return it. `errno` is set too, as libibverbs does for commands.
pub(crate) fn returned(answer: Answer) -> c_int {
    answer.map_or_else(
        |code| {
            code.set();
            code.0
        },
        |()| 0,
    )
}

/// Zero, or -1 and `errno`.
pub(crate) fn minus_one(answer: Answer) -> c_int {
    answer.map_or_else(
        |code| {
            code.set();
            -1
        },
        |()| 0,
    )
}

/// What was made, or null and `errno`.
pub(crate) fn or_null<T>(answer: Answer<T>) -> Option<T> {
    answer.inspect_err(|code| code.set()).ok()
}
