//! A source as the parser likes it.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// The error of a source, kept for the one who asks: the parser only says that there was one.
#[derive(Clone, Debug, Default)]
pub(super) struct Failure(Arc<Mutex<Option<io::Error>>>);

impl Failure {
    fn set(&self, error: io::Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    pub(super) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A source that fills the whole buffer or is at its end: the parser wants the file's header in one read.
pub(super) struct Whole<R> {
    source: R,
    cause: Failure,
    failed: bool,
}

impl<R> Whole<R> {
    pub(super) fn new(source: R, cause: Failure) -> Self {
        let failed = false;
        Self { source, cause, failed }
    }
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() && !self.failed {
            match self.source.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more.min(buffer.len() - filled),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What came before is still good. The source ends here, and the error is told at its end.
                    self.cause.set(error);
                    self.failed = true;
                }
            }
        }
        Ok(filled)
    }
}
