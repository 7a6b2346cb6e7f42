//! A wrapper that writes one readable line per command.

use std::fmt;
use std::io::Write;
use std::sync::Mutex;

use nix::errno::Errno;

use super::{Mapping, Transport};
use crate::command::Command;

/// Writes one line for every command and mapping, with its answer, to a sink.
///
/// ```
/// use uverbs::transport::Trace;
/// # fn main() -> uverbs::Result<()> {
/// let device = uverbs::SoftDevice::default().device();
/// let context = device.open_with(|inner| Box::new(Trace::new(inner, std::io::stderr())))?;
/// # drop(context);
/// # Ok(())
/// # }
/// ```
pub struct Trace {
    inner: Box<dyn Transport>,
    sink: Mutex<Box<dyn Write + Send>>,
}

impl Trace {
    /// Traces `inner` to `sink`. What the sink cannot take is dropped.
    pub fn new(inner: Box<dyn Transport>, sink: impl Write + Send + 'static) -> Self {
        Self { inner, sink: Mutex::new(Box::new(sink)) }
    }

    fn line(&self, line: fmt::Arguments<'_>) {
        let mut sink = self.sink.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // A full or closed sink must not fail the command it reports.
        let _ = sink.write_fmt(format_args!("{line}\n"));
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trace").field(&self.inner).finish()
    }
}

impl Transport for Trace {
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        let answer = self.inner.invoke(command);
        match answer {
            Ok(()) => self.line(format_args!("{command:?} -> ok")),
            Err(errno) => self.line(format_args!("{command:?} -> {errno:?}")),
        }
        answer
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        let answer = self.inner.map(offset, len);
        match &answer {
            Ok(_) => self.line(format_args!("mmap offset={offset:#x} len={len} -> ok")),
            Err(errno) => self.line(format_args!("mmap offset={offset:#x} len={len} -> {errno:?}")),
        }
        answer
    }
}
