//! Frames from a capture file: pcap (either byte order, micro- or nanoseconds) and pcapng.
//!
//! The crate `pcap-parser`, which is written for untrusted files, parses the formats. This file adds the guarantees that a reader
//! of traffic needs: every frame of the file or an error, without gaps; a limit on memory; and the `io::Error` of a source that
//! fails. A frame stays in the buffer into which it was read.
//!
//! Files are read, not mapped: a capture may be a pipe, and a file that is truncated while it is mapped would end the process.

mod buffer;
mod record;

use buffer::Buffer;
use pcap_parser::nom::{self, IResult};
use pcap_parser::{
    Block, LegacyPcapBlock, PcapError, parse_block_be, parse_block_le, parse_pcap_frame, parse_pcap_frame_be,
    parse_pcap_frame_modified, parse_pcap_header, parse_sectionheaderblock,
};
use record::{Interface, Record, Stamp};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Type of the block that begins a section, the same in either byte order.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Why a capture cannot be read, or cannot be read further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file or source failed.
    #[error("reading the capture failed")]
    Io(#[from] io::Error),
    /// The file is neither pcap nor pcapng.
    #[error("not a pcap or pcapng capture")]
    NotACapture,
    /// The file ends within a record.
    #[error("the capture ends within a record: it was cut short")]
    Truncated,
    /// Frames of a link type other than Ethernet (1). The number is a LINKTYPE_ value.
    #[error("link type {0} is not Ethernet (1)")]
    LinkType(i32),
    /// A record is larger than 16 MiB.
    #[error("a record of the capture is larger than 16 MiB")]
    TooLarge,
    /// A record contradicts itself or earlier records.
    #[error("the capture is damaged: {0}")]
    Malformed(&'static str),
}

/// One frame of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame<'a> {
    /// The frame as captured, from the destination address on. Byte totals count these captured bytes; if the capture truncated
    /// frames, that is less than the [length on the wire](Self::original_length), which other programs add up.
    pub bytes: &'a [u8],
    /// Length of the frame on the wire.
    pub original_length: u32,
    /// Time of capture since 1970-01-01 00:00 UTC, if the file contains it.
    pub timestamp: Option<Duration>,
}

/// A capture file, read frame by frame.
///
/// It uses 64 KiB of memory, or up to 16 MiB if a record needs more.
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
    buffer: Buffer,
    format: Format,
    interfaces: Vec<Interface>,
    /// Length of the last record that was returned. It stays in the buffer until the next one is searched for.
    used: usize,
    done: bool,
}

/// The result of a parser of `pcap-parser`.
type Parsed<'a, T> = IResult<&'a [u8], T, PcapError<&'a [u8]>>;

/// The format of a file.
#[derive(Clone, Copy)]
enum Format {
    /// pcap: records, which this function reads.
    Records(for<'a> fn(&'a [u8]) -> Parsed<'a, LegacyPcapBlock<'a>>),
    /// pcapng: blocks, in the byte order of their section.
    Blocks { big_endian: bool },
}

/// A frame in the buffer.
struct Found {
    place: Range<usize>,
    original_length: u32,
    stamp: Option<Stamp>,
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

    /// Reads from any source. It waits for slow sources, such as a pipe: here for the file's header, later for each complete
    /// frame.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn from_reader(source: impl Read + Send + 'static) -> Result<Self, CaptureError> {
        let mut buffer = Buffer::new(Box::new(source));
        loop {
            match header(buffer.data()) {
                Ok((size, format, interfaces)) => {
                    let (used, done) = (size, false);
                    return Ok(Self { buffer, format, interfaces, used, done });
                }
                Err(nom::Err::Incomplete(_)) if buffer.refill()? > 0 => {}
                Err(nom::Err::Failure(error)) => return Err(error),
                Err(_) => return Err(CaptureError::NotACapture),
            }
        }
    }

    /// Reads the next frame; none at the end of the file. After an error there are no further frames.
    ///
    /// # Errors
    ///
    /// Any [`CaptureError`]; a fault in the file is reported when it is reached. All frames before it were valid.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        if self.done {
            return Ok(None);
        }
        // Also when this function returns early.
        self.done = true;
        let found = loop {
            if let Some(found) = self.find()? {
                break found;
            }
            if self.buffer.refill()? == 0 {
                let is_whole = self.buffer.data().is_empty();
                return if is_whole { Ok(None) } else { Err(CaptureError::Truncated) };
            }
        };
        self.done = false;
        Ok(Some(Frame {
            bytes: self.bytes(&found),
            original_length: found.original_length,
            timestamp: found.stamp.and_then(|stamp| stamp.time(&self.interfaces)),
        }))
    }

    /// The bytes of the next frame, if all of it is already in the buffer: this never waits for the source. The end of the file, and
    /// errors, are left to [`next_frame`](Self::next_frame).
    pub(super) fn buffered_frame(&mut self) -> Option<&[u8]> {
        if self.done {
            return None;
        }
        let found = self.find().ok()??;
        Some(self.bytes(&found))
    }

    fn bytes(&self, found: &Found) -> &[u8] {
        // They were found there.
        self.buffer.data().get(found.place.clone()).unwrap_or_default()
    }

    /// Searches for the next frame in the buffer; `None` if it is not complete. The source is not read. Other blocks are processed, and
    /// an error is found again by the next call.
    fn find(&mut self) -> Result<Option<Found>, CaptureError> {
        loop {
            self.buffer.consume(std::mem::take(&mut self.used));
            let data = self.buffer.data();
            let (size, record) = match self.format {
                Format::Records(parse) => match parsed(data, parse(data))? {
                    Some((size, record)) => (size, Some(Record::of_legacy(&record, &self.interfaces)?)),
                    None => return Ok(None),
                },
                Format::Blocks { big_endian } => match record::plain_packet(data, big_endian) {
                    Some((size, packet)) => (size, Some(Record::of_packet(&packet, &self.interfaces)?)),
                    None if is_too_short(data) => {
                        let text = "a block is shorter than its type and lengths";
                        return Err(CaptureError::Malformed(text));
                    }
                    None => {
                        let parse = if big_endian { parse_block_be } else { parse_block_le };
                        let Some((size, block)) = parsed(data, parse(data))? else { return Ok(None) };
                        if let Block::SectionHeader(section) = &block {
                            self.format = Format::Blocks { big_endian: section.big_endian() };
                        }
                        (size, Record::of_block(&block, &mut self.interfaces)?)
                    }
                },
            };
            self.used = size;
            if let Some(Record { bytes, original_length, stamp }) = record {
                // The bytes are part of the data.
                let first = bytes.as_ptr().addr() - data.as_ptr().addr();
                let place = first..first + bytes.len();
                return Ok(Some(Found { place, original_length, stamp }));
            }
        }
    }
}

/// The result of a parser, and the number of bytes that it consumed; `None` if there are too few.
fn parsed<'a, T>(data: &[u8], answer: Parsed<'a, T>) -> Result<Option<(usize, T)>, CaptureError> {
    match answer {
        Ok((rest, value)) => Ok(Some((data.len() - rest.len(), value))),
        Err(nom::Err::Incomplete(_)) => Ok(None),
        Err(_) => Err(CaptureError::Malformed("a record does not parse")),
    }
}

/// Parses the beginning of a file. Returns the number of bytes that are finished with, and the format.
fn header(data: &[u8]) -> Result<(usize, Format, Vec<Interface>), nom::Err<CaptureError>> {
    let unknown = |error: nom::Err<_>| error.map(|_: PcapError<&[u8]>| CaptureError::NotACapture);
    if data.starts_with(&SECTION) {
        // It is parsed again, like that of any section.
        parse_sectionheaderblock(data).map_err(unknown)?;
        return Ok((0, Format::Blocks { big_endian: false }, Vec::new()));
    }
    let (rest, header) = parse_pcap_header(data).map_err(unknown)?;
    let parse = match () {
        () if header.is_modified_format() => parse_pcap_frame_modified,
        () if header.is_bigendian() => parse_pcap_frame_be,
        () => parse_pcap_frame,
    };
    let interface = Interface::of_header(&header).map_err(nom::Err::Failure)?;
    Ok((data.len() - rest.len(), Format::Records(parse), vec![interface]))
}

/// Whether the block that begins here has a length that is smaller than that of any block, in either byte order: in the wrong byte order,
/// the length of a valid block is far beyond what is read. pcap-parser 0.17 subtracts twelve from it (`ng_block_parser`,
/// pcapng/block.rs).
fn is_too_short(block: &[u8]) -> bool {
    let length: Option<[u8; 4]> = block.get(4..8).and_then(|length| length.try_into().ok());
    length.is_some_and(|length| u32::from_le_bytes(length).min(u32::from_be_bytes(length)) < 12)
}

#[cfg(test)]
mod tests;
