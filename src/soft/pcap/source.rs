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

/// Bytes of a pcap file's header.
const HEADER: usize = 24;
/// Bytes of a pcapng file that tell how long its first block is.
const BEGIN: usize = 12;

/// A source that gives the file's header in one read, as the parser wants it, and then what there is.
pub(super) struct Whole<R> {
    source: R,
    cause: Failure,
    begun: bool,
    failed: bool,
}

impl<R> Whole<R> {
    pub(super) fn new(source: R, cause: Failure) -> Self {
        Self { source, cause, begun: false, failed: false }
    }

    /// How many bytes a read must give at least that has so many.
    fn least(&self, filled: &[u8]) -> usize {
        match filled {
            _ if self.begun => 1,
            [0x0a, 0x0d, 0x0d, 0x0a, length @ ..] => {
                let (Some(length), Some(order)) = (length.first_chunk(), length.get(4..8)) else {
                    return BEGIN;
                };
                let is_big = order == [0x1a, 0x2b, 0x3c, 0x4d];
                let length = if is_big { u32::from_be_bytes(*length) } else { u32::from_le_bytes(*length) };
                usize::try_from(length).unwrap_or(usize::MAX)
            }
            _ => HEADER,
        }
    }
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while !self.failed {
            let least = self.least(&buffer[..filled]).min(buffer.len());
            if filled >= least {
                break;
            }
            // The parser reads twice before it looks at a frame: what stands behind the header is for the second time.
            let most = if self.begun { buffer.len() } else { least };
            match self.source.read(&mut buffer[filled..most]) {
                Ok(0) => break,
                Ok(more) => filled += more.min(most - filled),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What came before is still good. The source ends here, and the error is told at its end.
                    self.cause.set(error);
                    self.failed = true;
                }
            }
        }
        self.begun = true;
        Ok(filled)
    }
}
