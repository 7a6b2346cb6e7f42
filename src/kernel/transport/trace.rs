//! A watcher that writes one readable line per command.

use std::fmt;
use std::io::Write;
use std::sync::Mutex;

use nix::errno::Errno;

use super::Watcher;
use crate::kernel::command::Command;

/// A [`Watcher`] that writes one line for every command and mapping, with the answer, to a sink.
///
/// ```
/// use uverbs::transport::Trace;
/// # fn main() -> uverbs::Result<()> {
/// let device = uverbs::SoftDevice::default().device();
/// let context = device.open_with(Trace::new(std::io::stderr()))?;
/// # drop(context);
/// # Ok(())
/// # }
/// ```
pub struct Trace {
    sink: Mutex<Box<dyn Write + Send>>,
}

impl Trace {
    /// Traces to `sink`. Lines that the sink cannot write are discarded.
    pub fn new(sink: impl Write + Send + 'static) -> Self {
        Self { sink: Mutex::new(Box::new(sink)) }
    }

    fn line(&self, line: fmt::Arguments<'_>) {
        let mut sink = self.sink.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // A full or closed sink must not fail the command it reports.
        let _ = sink.write_fmt(format_args!("{line}\n"));
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

impl Watcher for Trace {
    fn after(&self, command: &Command<'_>, answer: Result<(), Errno>) {
        match answer {
            Ok(()) => self.line(format_args!("{command:?} -> ok")),
            Err(errno) => self.line(format_args!("{command:?} -> {errno:?}")),
        }
    }

    fn after_map(&self, offset: u64, len: usize, answer: Result<(), Errno>) {
        match answer {
            Ok(()) => self.line(format_args!("mmap offset={offset:#x} len={len} -> ok")),
            Err(errno) => self.line(format_args!("mmap offset={offset:#x} len={len} -> {errno:?}")),
        }
    }
}
