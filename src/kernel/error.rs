//! The one error of the crate, and the one table from errno to kind.

use std::borrow::Cow;
use std::fmt;

use nix::errno::Errno;

/// The kinds of errors between which programs distinguish; see [`Error::kind`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No such device, port, object or table entry.
    #[doc(alias = "ENOENT")]
    NotFound,
    /// The process lacks a capability (`CAP_NET_RAW`, ...) or access to the device file.
    #[doc(alias = "EPERM")]
    #[doc(alias = "EACCES")]
    PermissionDenied,
    /// This kernel, driver or device does not have the feature.
    #[doc(alias = "EOPNOTSUPP")]
    #[doc(alias = "FI_ENOSYS")]
    Unsupported,
    /// The object is in use, or an operation on it is in progress.
    #[doc(alias = "EBUSY")]
    #[doc(alias = "FI_EBUSY")]
    Busy,
    /// An argument or a combination of arguments is refused.
    #[doc(alias = "EINVAL")]
    InvalidInput,
    /// The device or the kernel has run out of a resource.
    #[doc(alias = "ENOMEM")]
    Exhausted,
    /// The device has gone away (unplugged, reset, driver unloaded).
    #[doc(alias = "EIO")]
    Disassociated,
    /// The given time has elapsed.
    #[doc(alias = "ETIMEDOUT")]
    #[doc(alias = "FI_ETIMEDOUT")]
    TimedOut,
    /// The peer has refused the connection.
    #[doc(alias = "ECONNREFUSED")]
    Refused,
    /// The wait was ended by a [`Canceller`](crate::Canceller).
    #[doc(alias = "ECANCELED")]
    #[doc(alias = "FI_ECANCELED")]
    Cancelled,
    /// An operation that a completion counter counts has failed: its error value changed.
    #[doc(alias = "FI_EAVAIL")]
    OperationFailed,
    /// The kernel's answer is not valid.
    Malformed,
    /// Anything else; see [`Error::errno`].
    Other,
}

impl ErrorKind {
    /// The one table from errno to kind.
    fn of(errno: Errno) -> Self {
        use Errno::*;
        match errno {
            ENOENT | ENODEV | ENXIO | ENODATA => Self::NotFound,
            EPERM | EACCES => Self::PermissionDenied,
            EPROTONOSUPPORT | EOPNOTSUPP | ENOTTY | ENOSYS => Self::Unsupported,
            EBUSY => Self::Busy,
            EINVAL | EFAULT | EBADF | ERANGE | E2BIG | EEXIST | ENOTCONN => Self::InvalidInput,
            ENOMEM | ENOSPC | EAGAIN | EMFILE | ENFILE | EDQUOT => Self::Exhausted,
            EIO => Self::Disassociated,
            ETIMEDOUT => Self::TimedOut,
            ECONNREFUSED => Self::Refused,
            ECANCELED => Self::Cancelled,
            _ => Self::Other,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::PermissionDenied => "permission denied",
            Self::Unsupported => "unsupported",
            Self::Busy => "busy",
            Self::InvalidInput => "invalid input",
            Self::Exhausted => "exhausted",
            Self::Disassociated => "device gone",
            Self::TimedOut => "timed out",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::OperationFailed => "operation failed",
            Self::Malformed => "malformed answer",
            Self::Other => "failed",
        }
    }
}

/// The error type of all calls: the operation, the kind, the kernel's errno if the kernel refused, and a hint that says what to
/// do.
///
/// ```
/// # fn main() -> uverbs::Result<()> {
/// let context = uverbs::SoftDevice::default().open()?;
/// let counters = context.create_counters()?;
/// let error = counters.read(&mut [0; 2]).unwrap_err();
/// assert_eq!(error.kind(), uverbs::ErrorKind::InvalidInput);
/// assert_eq!(error.to_string(), "counters.read: invalid input (EINVAL): no flow uses these counters: create a flow that counts into them first");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    op: &'static str,
    errno: Option<Errno>,
    hint: Option<Cow<'static, str>>,
}

/// The hint of a refused number, with the number and its limit: `segments of a request: 40 given, at most 30 allowed`.
pub(crate) fn limit(what: &str, given: impl fmt::Display, allowed: impl fmt::Display) -> String {
    format!("{what}: {given} given, {allowed} allowed")
}

/// A [`std::result::Result`] with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The kernel, or a device in its place, refused `op`.
    pub(crate) fn kernel(op: &'static str, errno: Errno) -> Self {
        Self { kind: ErrorKind::of(errno), op, errno: Some(errno), hint: None }
    }

    /// A call of the standard library failed. If there is no errno, it is EIO.
    pub(crate) fn io(op: &'static str, error: &std::io::Error) -> Self {
        Self::kernel(op, error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }

    /// The kernel returned EIO for `op`, although the device exists.
    pub(crate) fn device_failed(op: &'static str) -> Self {
        let hint = "the device is there, but its firmware or driver failed; the kernel's log may say how";
        Self { kind: ErrorKind::Other, ..Self::refused(op, Errno::EIO, hint) }
    }

    /// `op` found that the device was removed.
    pub(crate) fn device_gone(op: &'static str) -> Self {
        let hint = "the device has gone away, or has another name or index now: look for it again";
        Self { kind: ErrorKind::Disassociated, ..Self::refused(op, Errno::ENODEV, hint) }
    }

    /// The crate refused `op` before any command was sent, with the errno that the kernel would return.
    pub(crate) fn refused(op: &'static str, errno: Errno, hint: impl Into<Cow<'static, str>>) -> Self {
        Self::kernel(op, errno).hinted(hint)
    }

    /// The crate refused `op` with EINVAL, because `given` is not within what is `allowed`, for example "1 to 4"; see [`limit`].
    #[cold]
    pub(crate) fn outside(
        op: &'static str,
        what: &str,
        given: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self::refused(op, Errno::EINVAL, limit(what, given, allowed))
    }

    /// The crate refused `op` with EINVAL, because `given` is more than `most`; see [`limit`].
    pub(crate) fn beyond(
        op: &'static str,
        what: &str,
        given: impl fmt::Display,
        most: impl fmt::Display,
    ) -> Self {
        Self::outside(op, what, given, format_args!("at most {most}"))
    }

    /// The kernel's answer to `op` cannot be used.
    pub(crate) fn malformed(op: &'static str, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: ErrorKind::Malformed, op, errno: None, hint: Some(hint.into()) }
    }

    /// An empty vector with room for `count`; [`Exhausted`](ErrorKind::Exhausted) if there is not enough memory.
    pub(crate) fn room<T>(op: &'static str, count: usize) -> Result<Vec<T>> {
        let mut room = Vec::new();
        match room.try_reserve_exact(count) {
            Ok(()) => Ok(room),
            Err(_) => Err(Self::kernel(op, Errno::ENOMEM)),
        }
    }

    /// The peer has refused the connection that `op` wanted.
    pub(crate) fn connection_refused(op: &'static str, hint: impl Into<Cow<'static, str>>) -> Self {
        Self::refused(op, Errno::ECONNREFUSED, hint)
    }

    /// The wait of `op` cannot succeed, because an operation has failed.
    pub(crate) fn operation_failed(op: &'static str, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: ErrorKind::OperationFailed, op, errno: None, hint: Some(hint.into()) }
    }

    /// Adds a hint, unless the error already has one.
    pub(crate) fn hinted(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Changes the kind to "not found", and adds a hint, unless the error already has one.
    pub(crate) fn not_found(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: ErrorKind::NotFound, ..self }.hinted(hint)
    }

    /// Changes the kind to "unsupported", and adds a hint, unless the error already has one.
    pub(crate) fn unsupported(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: ErrorKind::Unsupported, ..self }.hinted(hint)
    }

    /// Changes the kind to "other", for an error of which what was given is not the reason, and adds a hint, unless the error already has one.
    pub(crate) fn other(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: ErrorKind::Other, ..self }.hinted(hint)
    }

    /// Adds a hint if the error is of `kind`, unless it already has one.
    pub(crate) fn hinted_if(self, kind: ErrorKind, hint: impl Into<Cow<'static, str>>) -> Self {
        if self.kind == kind { self.hinted(hint) } else { self }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operation that failed, as `object.verb`: `counters.read`, `qp.create`.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// The errno, as a positive number; none if the kind is [`ErrorKind::Malformed`] or [`ErrorKind::OperationFailed`].
    pub fn errno(&self) -> Option<i32> {
        self.errno.map(|errno| errno as i32)
    }

    /// What to do, if the crate has a hint for this error.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.kind.words())?;
        if let Some(errno) = self.errno {
            write!(f, " ({errno:?})")?;
        }
        if let Some(hint) = self.hint() {
            write!(f, ": {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match error.kind {
            ErrorKind::NotFound => Io::NotFound,
            ErrorKind::PermissionDenied => Io::PermissionDenied,
            ErrorKind::Unsupported => Io::Unsupported,
            ErrorKind::Busy => Io::ResourceBusy,
            ErrorKind::InvalidInput => Io::InvalidInput,
            ErrorKind::Exhausted => Io::OutOfMemory,
            ErrorKind::Disassociated => Io::NotConnected,
            ErrorKind::Malformed => Io::InvalidData,
            ErrorKind::TimedOut => Io::TimedOut,
            ErrorKind::Refused => Io::ConnectionRefused,
            ErrorKind::Cancelled | ErrorKind::OperationFailed | ErrorKind::Other => Io::Other,
        };
        Self::new(kind, error)
    }
}
