//! The contents of one record of a capture.

use super::CaptureError;
use pcap_parser::{
    Block, EPB_MAGIC, EnhancedPacketBlock, IDB_MAGIC, InterfaceDescriptionBlock, LegacyPcapBlock, Linktype,
    PcapHeader,
};
use std::time::Duration;

/// Type of the Packet Block, which pcapng replaced by the Enhanced Packet Block.
const OBSOLETE_PACKET: u32 = 2;

/// The data of a frame in its record.
pub(super) struct Record<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) original_length: u32,
    pub(super) stamp: Option<Stamp>,
}

/// A time as the record contains it. It is converted only on request, because few readers need it.
pub(super) struct Stamp {
    interface: usize,
    seconds: u64,
    parts: u64,
}

impl Stamp {
    /// The time since 1970; `None` if it is before 1970 or unknown.
    pub(super) fn time(&self, interfaces: &[Interface]) -> Option<Duration> {
        let time = interfaces.get(self.interface)?.duration(self.parts)?;
        time.checked_add(Duration::from_secs(self.seconds))
    }
}

/// An interface of a capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interface {
    link_type: Linktype,
    snap_length: u32,
    /// Units of time stamps per second. `None` if the file's value does not fit into 64 bits.
    per_second: Option<u64>,
    /// Seconds to add to time stamps.
    offset: i64,
}

/// The interface with this number, if its frames are supported.
fn interface(interfaces: &[Interface], number: usize) -> Result<&Interface, CaptureError> {
    let interface = interfaces.get(number).ok_or(CaptureError::Malformed("a frame of no interface"))?;
    ethernet(interface.link_type).map(|()| interface)
}

impl<'a> Record<'a> {
    /// A record of pcap.
    #[inline]
    pub(super) fn of_legacy(
        record: &LegacyPcapBlock<'a>,
        interfaces: &[Interface],
    ) -> Result<Self, CaptureError> {
        interface(interfaces, 0)?;
        let stamp = Stamp { interface: 0, seconds: record.ts_sec.into(), parts: record.ts_usec.into() };
        Ok(Self { bytes: record.data, original_length: record.origlen, stamp: Some(stamp) })
    }

    /// An Enhanced Packet Block of pcapng.
    #[inline]
    pub(super) fn of_packet(
        packet: &EnhancedPacketBlock<'a>,
        interfaces: &[Interface],
    ) -> Result<Self, CaptureError> {
        // No interface has a number that is larger than an address.
        let number = usize::try_from(packet.if_id).unwrap_or(usize::MAX);
        interface(interfaces, number)?;
        let parts = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
        let kept = usize::try_from(packet.caplen).unwrap_or(usize::MAX);
        let bytes = packet.data.get(..kept).unwrap_or(packet.data);
        let stamp = Stamp { interface: number, seconds: 0, parts };
        Ok(Self { bytes, original_length: packet.origlen, stamp: Some(stamp) })
    }

    /// Processes any other block of pcapng. `None` unless it is a frame.
    pub(super) fn of_block(
        block: &Block<'a>,
        interfaces: &mut Vec<Interface>,
    ) -> Result<Option<Self>, CaptureError> {
        match block {
            Block::EnhancedPacket(packet) => return Self::of_packet(packet, interfaces).map(Some),
            Block::SimplePacket(packet) => {
                // The block does not contain the captured length: it is the maximum of the first interface.
                let kept = match interface(interfaces, 0)?.snap_length {
                    0 => packet.origlen,
                    limit => packet.origlen.min(limit),
                };
                let kept = usize::try_from(kept).unwrap_or(usize::MAX);
                let bytes = packet.data.get(..kept).unwrap_or(packet.data);
                return Ok(Some(Self { bytes, original_length: packet.origlen, stamp: None }));
            }
            Block::SectionHeader(_) => interfaces.clear(),
            Block::InterfaceDescription(block) => interfaces.push(Interface::of(block)),
            Block::Unknown(block)
                if [OBSOLETE_PACKET, OBSOLETE_PACKET.swap_bytes()].contains(&block.block_type) =>
            {
                return Err(CaptureError::Malformed("frames in obsolete packet blocks"));
            }
            _ => {}
        }
        Ok(None)
    }
}

fn ethernet(link_type: Linktype) -> Result<(), CaptureError> {
    match link_type {
        Linktype::ETHERNET => Ok(()),
        Linktype(other) => Err(CaptureError::LinkType(other)),
    }
}

impl Interface {
    /// The only interface of a pcap file.
    pub(super) fn of_header(header: &PcapHeader) -> Result<Self, CaptureError> {
        // The bits above say whether frames include their FCS; frames are counted as they are.
        let link_type = Linktype(header.network.0 & 0xffff);
        ethernet(link_type)?;
        let nanoseconds = header.is_nanosecond_precision();
        let per_second = if nanoseconds { 1_000_000_000 } else { 1_000_000 };
        Ok(Self { link_type, snap_length: 0, per_second: Some(per_second), offset: 0 })
    }

    fn of(block: &InterfaceDescriptionBlock<'_>) -> Self {
        let power = u32::from(block.if_tsresol & 0x7f);
        let base: u64 = if block.if_tsresol & 0x80 == 0 { 10 } else { 2 };
        // The parser reads this option as little endian in every file.
        let swapped = block.block_type != IDB_MAGIC;
        Self {
            link_type: block.linktype,
            snap_length: block.snaplen,
            per_second: base.checked_pow(power),
            offset: if swapped { block.if_tsoffset.swap_bytes() } else { block.if_tsoffset },
        }
    }

    /// Converts a time stamp; `None` if it is before 1970 or unknown.
    fn duration(&self, time: u64) -> Option<Duration> {
        let per_second = self.per_second?;
        let seconds = (time / per_second).checked_add_signed(self.offset)?;
        let part = time % per_second;
        // For nanoseconds and finer units, 64 bits are sufficient.
        let rest = match part.checked_mul(1_000_000_000) {
            Some(scaled) => scaled / per_second,
            None => u64::try_from(u128::from(part) * 1_000_000_000 / u128::from(per_second)).ok()?,
        };
        Some(Duration::new(seconds, u32::try_from(rest).ok()?))
    }
}

/// The Enhanced Packet Block at the beginning of `data`, as the parser would return it, if it is complete and contains nothing but a
/// frame. Nearly all of a file consists of such blocks, and the parser takes five times as long for them. Any other block is left to the
/// parser.
#[inline]
pub(super) fn plain_packet(data: &[u8], big_endian: bool) -> Option<(usize, EnhancedPacketBlock<'_>)> {
    let word =
        |bytes: &[u8; 4]| if big_endian { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
    let (head, rest) = data.split_first_chunk::<28>()?;
    let [type_, length, if_id, ts_high, ts_low, caplen, origlen] = head.as_chunks().0 else { return None };
    let (block_len1, caplen) = (word(length), word(caplen));
    let padded = usize::try_from(caplen).ok()?.checked_next_multiple_of(4)?;
    let (packet, rest) = rest.split_at_checked(padded)?;
    let block_len2 = word(rest.first_chunk()?);
    let size = 32 + padded;
    let is_plain =
        word(type_) == EPB_MAGIC && block_len2 == block_len1 && usize::try_from(block_len1) == Ok(size);
    is_plain.then_some((
        size,
        EnhancedPacketBlock {
            block_type: u32::from_le_bytes(*type_),
            block_len1,
            if_id: word(if_id),
            ts_high: word(ts_high),
            ts_low: word(ts_low),
            caplen,
            origlen: word(origlen),
            data: packet,
            options: Vec::new(),
            block_len2,
        },
    ))
}
