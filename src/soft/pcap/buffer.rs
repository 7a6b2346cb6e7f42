//! Bytes of a source that have been read but not yet used.

use super::CaptureError;
use std::io::{ErrorKind, Read};

/// Bytes read at a time.
const CAPACITY: usize = 1 << 16;
/// Largest record or block that is read. Frames are far smaller, but pcapng also keeps secrets and comments.
const MAX_CAPACITY: usize = 1 << 24;

pub(super) struct Buffer {
    source: Box<dyn Read + Send>,
    bytes: Vec<u8>,
    /// The part of the bytes that is filled and not yet used: `start <= end <= bytes.len()`.
    start: usize,
    end: usize,
}

impl Buffer {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        Self { source, bytes: vec![0; CAPACITY], start: 0, end: 0 }
    }

    #[inline]
    pub(super) fn data(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Marks this many bytes as used.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Reads as much as the source has and as fits, and waits until there is something. Returns zero at the end of the source. A full
    /// buffer grows.
    ///
    /// This moves the rest to the front, so it is called when the rest is too little to be useful.
    pub(super) fn refill(&mut self) -> Result<usize, CaptureError> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.bytes.len() {
            if self.end >= MAX_CAPACITY {
                return Err(CaptureError::TooLarge);
            }
            self.bytes.resize(self.end * 2, 0);
        }
        let room = self.bytes.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.source.read(room) {
                Ok(more) => {
                    // A source that reports more bytes than it was given room for is not trusted.
                    let more = more.min(room.len());
                    self.end += more;
                    return Ok(more);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
