//! Frames from a capture file: pcap (either byte order, micro- or nanoseconds) and pcapng.
//!
//! The formats are read by the crate `pcap-parser`, which was made for files that nobody vouches for. This file
//! adds what a reader of traffic wants to rely on: every frame of the file or an error, never a silent gap; a
//! bound on memory; and the `io::Error` of a source that fails.

mod record;
mod source;

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{PcapBlockOwned, PcapError};
use record::{Interface, Stamp};
use source::{Failure, Whole};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// Bytes read at a time.
const CAPACITY: usize = 1 << 16;
/// Largest record or block that is read. Frames are far smaller, but pcapng also keeps secrets and comments.
const MAX_CAPACITY: usize = 1 << 24;

/// Why a capture cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file or source failed.
    #[error("reading the capture failed")]
    Io(#[from] io::Error),
    /// Neither pcap nor pcapng.
    #[error("not a pcap or pcapng capture")]
    NotACapture,
    /// The file ends within a record.
    #[error("the capture ends within a record: it was cut short")]
    Truncated,
    /// Frames of another link type than Ethernet (1). The number is that of the registry of LINKTYPE_ values.
    #[error("link type {0} is not Ethernet (1)")]
    LinkType(i32),
    /// A record larger than any that makes sense.
    #[error("a record of the capture is larger than 16 MiB")]
    TooLarge,
    /// A record that contradicts itself or the records before.
    #[error("the capture is damaged: {0}")]
    Malformed(&'static str),
}

/// One frame of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame<'a> {
    /// The frame as captured, from the destination address on. Totals of bytes count these, as capinfos does:
    /// a capture that cut frames short counts what it kept.
    pub bytes: &'a [u8],
    /// Length of the frame on the wire.
    pub original_length: u32,
    /// When it was captured, after 1970-01-01 00:00 UTC, if the file says.
    pub timestamp: Option<Duration>,
}

/// A capture file, read frame by frame.
///
/// Memory stays at 64 KiB unless a record needs more, up to 16 MiB.
///
/// ```
/// use uverbs::soft::Capture;
///
/// let mut capture = Capture::open("tests/golden/mixed.pcap")?;
/// let (mut packets, mut bytes) = (0, 0);
/// while let Some(frame) = capture.next_frame()? {
///     packets += 1;
///     bytes += frame.bytes.len();
/// }
/// assert!(packets > 0 && bytes > 60 * packets);
/// # Ok::<(), uverbs::soft::CaptureError>(())
/// ```
pub struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    failure: Failure,
    capacity: usize,
    /// Whether it consists of pcapng's blocks.
    has_blocks: bool,
    interfaces: Vec<Interface>,
    frame: Vec<u8>,
    done: bool,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Capture");
        debug.field("interfaces", &self.interfaces).field("done", &self.done);
        debug.finish_non_exhaustive()
    }
}

impl Capture {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Io`], [`CaptureError::NotACapture`]; for pcap, whose header names the link type,
    /// [`CaptureError::LinkType`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        Self::from_reader(File::open(path)?)
    }

    /// Reads from any source. One that delivers slowly, such as a pipe, is waited for: for the file's header here, then for
    /// each frame, which comes when the source has given all of it.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn from_reader(source: impl Read + Send + 'static) -> Result<Self, CaptureError> {
        let failure = Failure::default();
        let cause = failure.clone();
        let mut reader = match pcap_parser::create_reader(CAPACITY, Whole::new(source, cause)) {
            Ok(reader) => reader,
            Err(_) => return Err(failure.take().map_or(CaptureError::NotACapture, Into::into)),
        };
        let (mut interfaces, mut has_blocks) = (Vec::new(), true);
        if let Ok((size, PcapBlockOwned::LegacyHeader(header))) = reader.next() {
            interfaces.push(Interface::of_header(&header)?);
            has_blocks = false;
            reader.consume(size);
        }
        Ok(Self {
            reader,
            failure,
            capacity: CAPACITY,
            has_blocks,
            interfaces,
            frame: Vec::new(),
            done: false,
        })
    }

    /// Reads the next frame; None at the end of the file. After an error there are no more frames.
    ///
    /// # Errors
    ///
    /// Any [`CaptureError`]: what a damaged or foreign file has is known only when it is reached. All frames
    /// before it were good.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        if self.done {
            return Ok(None);
        }
        let found = self.read_frame();
        self.done = !matches!(found, Ok(Some(_)));
        Ok(found?.map(|stamp| Frame {
            bytes: &self.frame,
            original_length: stamp.original_length,
            timestamp: stamp.time,
        }))
    }

    /// Copies the next frame to the buffer.
    fn read_frame(&mut self) -> Result<Option<Stamp>, CaptureError> {
        loop {
            let held = self.reader.data().len();
            if self.has_blocks && is_too_short(self.reader.data()) {
                return Err(CaptureError::Malformed("a block is shorter than its type and lengths"));
            }
            let short = match self.reader.next() {
                Ok((size, block)) => {
                    let found = record::take(block, &mut self.interfaces, &mut self.frame)?;
                    self.reader.consume(size);
                    if found.is_some() {
                        return Ok(found);
                    }
                    continue;
                }
                Err(PcapError::Eof) => return self.end(true),
                Err(PcapError::UnexpectedEof) => return self.end(held == 0),
                Err(PcapError::BufferTooSmall) => true,
                Err(PcapError::Incomplete(_)) => false,
                Err(_) => return Err(CaptureError::Malformed("a record does not parse")),
            };
            // A full buffer of which nothing can be used, whatever the parser calls it.
            if short || held >= self.capacity {
                if self.capacity >= MAX_CAPACITY {
                    return Err(CaptureError::TooLarge);
                }
                self.capacity *= 2;
                self.reader.grow(self.capacity);
            }
            if self.reader.refill().is_err() {
                return self.end(false);
            }
        }
    }

    /// The end of the source: why it ended, or that it ended well.
    fn end(&self, clean: bool) -> Result<Option<Stamp>, CaptureError> {
        match self.failure.take() {
            Some(error) => Err(error.into()),
            None if clean => Ok(None),
            None => Err(CaptureError::Truncated),
        }
    }
}

/// Whether the block that begins here says that it is shorter than any, in either byte order: in the wrong one the length of
/// a good block is far beyond [`MAX_CAPACITY`]. pcap-parser 0.17 subtracts twelve from it (`ng_block_parser`, pcapng/block.rs).
fn is_too_short(block: &[u8]) -> bool {
    let length: Option<[u8; 4]> = block.get(4..8).and_then(|length| length.try_into().ok());
    length.is_some_and(|length| u32::from_le_bytes(length).min(u32::from_be_bytes(length)) < 12)
}
