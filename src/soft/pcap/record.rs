//! What one record of a capture says.

use super::CaptureError;
use pcap_parser::{
    Block, EPB_MAGIC, EnhancedPacketBlock, IDB_MAGIC, InterfaceDescriptionBlock, LegacyPcapBlock, Linktype,
    PcapHeader,
};
use std::time::Duration;

/// Type of the Packet Block, which pcapng gave up for the Enhanced Packet Block.
const OBSOLETE_PACKET: u32 = 2;

/// What a record says of a frame.
pub(super) struct Record<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) original_length: u32,
    pub(super) stamp: Option<Stamp>,
}

/// A time as a record says it. What it means is for the frame's reader to ask, since few want to know.
pub(super) struct Stamp {
    interface: usize,
    seconds: u64,
    parts: u64,
}

impl Stamp {
    /// The time after 1970; None if it is before, or cannot be told.
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
    /// Time stamps count this part of a second. None if the file names none that fits 64 bits.
    per_second: Option<u64>,
    /// Seconds to add to time stamps.
    offset: i64,
}

/// The interface of this number, if frames of it can be taken.
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
        // There is no interface of a number that is beyond an address.
        let number = usize::try_from(packet.if_id).unwrap_or(usize::MAX);
        interface(interfaces, number)?;
        let parts = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
        let kept = usize::try_from(packet.caplen).unwrap_or(usize::MAX);
        let bytes = packet.data.get(..kept).unwrap_or(packet.data);
        let stamp = Stamp { interface: number, seconds: 0, parts };
        Ok(Self { bytes, original_length: packet.origlen, stamp: Some(stamp) })
    }

    /// Takes in any other block of pcapng: None unless it is a frame.
    pub(super) fn of_block(
        block: &Block<'a>,
        interfaces: &mut Vec<Interface>,
    ) -> Result<Option<Self>, CaptureError> {
        match block {
            Block::EnhancedPacket(packet) => return Self::of_packet(packet, interfaces).map(Some),
            Block::SimplePacket(packet) => {
                // It does not say how much of the frame it has: as much as the first interface keeps.
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
    /// The one interface of a pcap file.
    pub(super) fn of_header(header: &PcapHeader) -> Result<Self, CaptureError> {
        // The bits above say whether frames have their FCS; they are counted as they are.
        let link_type = Linktype(header.network.0 & 0xffff);
        ethernet(link_type)?;
        let nanoseconds = header.is_nanosecond_precision();
        let per_second = if nanoseconds { 1_000_000_000 } else { 1_000_000 };
        Ok(Self { link_type, snap_length: 0, per_second: Some(per_second), offset: 0 })
    }

    fn of(block: &InterfaceDescriptionBlock<'_>) -> Self {
        let power = u32::from(block.if_tsresol & 0x7f);
        let base: u64 = if block.if_tsresol & 0x80 == 0 { 10 } else { 2 };
        // The parser reads this option as little endian whatever the file is.
        let swapped = block.block_type != IDB_MAGIC;
        Self {
            link_type: block.linktype,
            snap_length: block.snaplen,
            per_second: base.checked_pow(power),
            offset: if swapped { block.if_tsoffset.swap_bytes() } else { block.if_tsoffset },
        }
    }

    /// A time stamp as time; None if it is before 1970 or cannot be told.
    fn duration(&self, time: u64) -> Option<Duration> {
        let per_second = self.per_second?;
        let seconds = (time / per_second).checked_add_signed(self.offset)?;
        let part = time % per_second;
        // Down to nanoseconds and beyond, 64 bits are enough.
        let rest = match part.checked_mul(1_000_000_000) {
            Some(scaled) => scaled / per_second,
            None => u64::try_from(u128::from(part) * 1_000_000_000 / u128::from(per_second)).ok()?,
        };
        Some(Duration::new(seconds, u32::try_from(rest).ok()?))
    }
}

/// The Enhanced Packet Block that `data` begins with, as the parser would give it, if it is whole and has nothing but a frame. That
/// is what nearly all of a file consists of, and takes the parser five times as long. Any other is left to the parser.
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
