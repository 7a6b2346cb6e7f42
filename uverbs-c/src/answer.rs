//! How errors are returned to C: as a value, or as a null result and `errno`.

use std::collections::TryReserveError;
use std::ffi::c_int;
use std::num::NonZero;

use nix::errno::Errno;
use nix::libc;
use uverbs::Error;

/// An errno. It is not zero, so that an answer is one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(NonZero<c_int>);

pub(crate) type Answer<T = ()> = Result<T, Code>;

pub(crate) const EINVAL: Code = Code::new(libc::EINVAL);
pub(crate) const ENOMEM: Code = Code::new(libc::ENOMEM);
pub(crate) const EBADF: Code = Code::new(libc::EBADF);
pub(crate) const EBUSY: Code = Code::new(libc::EBUSY);
pub(crate) const EOPNOTSUPP: Code = Code::new(libc::EOPNOTSUPP);

impl From<&Error> for Code {
    fn from(error: &Error) -> Self {
        // An error without an errno: the kernel's answer is malformed.
        Self::new(error.errno().unwrap_or(libc::EIO))
    }
}

impl From<Error> for Code {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// There is not enough memory for the size that a caller requested.
impl From<TryReserveError> for Code {
    fn from(_: TryReserveError) -> Self {
        ENOMEM
    }
}

impl From<Errno> for Code {
    fn from(errno: Errno) -> Self {
        Self::new(errno as c_int)
    }
}

impl Code {
    /// An error without a number is still an error.
    pub(crate) const fn new(errno: c_int) -> Self {
        match NonZero::new(errno) {
            Some(errno) => Self(errno),
            None => Self::new(libc::EIO),
        }
    }

    /// The number.
    #[inline(always)]
    pub(crate) fn get(self) -> c_int {
        self.0.get()
    }

    /// Sets `errno`.
    pub(crate) fn set(self) {
        Errno::set_raw(self.get());
    }
}

/// Zero or the errno, for calls that return it. `errno` is set too, as libibverbs does for commands.
pub(crate) fn returned(answer: Answer) -> c_int {
    answer.map_or_else(
        |code| {
            code.set();
            code.get()
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

/// The created object, or null and `errno`.
pub(crate) fn or_null<T>(answer: Answer<T>) -> Option<T> {
    answer.inspect_err(|code| code.set()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_number_is_an_error() {
        assert_eq!([0, libc::EINVAL, -1].map(|errno| Code::new(errno).get()), [libc::EIO, libc::EINVAL, -1]);
        assert_eq!((returned(Ok(())), returned(Err(Code::new(0)))), (0, libc::EIO));
        assert_eq!(size_of::<Answer>(), size_of::<c_int>(), "it goes in a register");
    }
}
