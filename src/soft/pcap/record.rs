//! What one record of a capture says.

use super::CaptureError;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, IDB_MAGIC, InterfaceDescriptionBlock, Linktype, PcapBlockOwned, PcapHeader};
use std::time::Duration;

/// Type of the Packet Block, which pcapng gave up for the Enhanced Packet Block.
const OBSOLETE_PACKET: u32 = 2;

/// What a record says of a frame, apart from its bytes.
pub(super) struct Stamp {
    pub(super) original_length: u32,
    pub(super) time: Option<Duration>,
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

/// Takes in one block: None unless it is a frame, which is copied to `frame`.
pub(super) fn take(
    block: PcapBlockOwned<'_>,
    interfaces: &mut Vec<Interface>,
    frame: &mut Vec<u8>,
) -> Result<Option<Stamp>, CaptureError> {
    let of = |id: u32| {
        let interface = usize::try_from(id).ok().and_then(|id| interfaces.get(id));
        let interface = interface.ok_or(CaptureError::Malformed("a frame of no interface"))?;
        ethernet(interface.link_type).map(|()| *interface)
    };
    let (bytes, original_length, time) = match block {
        PcapBlockOwned::LegacyHeader(_) => return Ok(None),
        PcapBlockOwned::Legacy(record) => {
            let part = u64::from(record.ts_usec);
            let time = of(0)?.duration(part);
            let seconds = Duration::from_secs(record.ts_sec.into());
            (record.data, record.origlen, time.and_then(|part| part.checked_add(seconds)))
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(ref packet)) => {
            let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            (packet.packet_data(), packet.origlen, of(packet.if_id)?.duration(time))
        }
        PcapBlockOwned::NG(Block::SimplePacket(ref packet)) => {
            // It does not say how much of the frame it has: as much as the first interface keeps.
            let kept = match of(0)?.snap_length {
                0 => packet.origlen,
                limit => packet.origlen.min(limit),
            };
            let data = packet.packet_data();
            let kept = usize::try_from(kept).map_or(data.len(), |kept| kept.min(data.len()));
            (&data[..kept], packet.origlen, None)
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            return Ok(None);
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(ref block)) => {
            interfaces.push(Interface::of(block));
            return Ok(None);
        }
        PcapBlockOwned::NG(Block::Unknown(ref block))
            if [OBSOLETE_PACKET, OBSOLETE_PACKET.swap_bytes()].contains(&block.block_type) =>
        {
            return Err(CaptureError::Malformed("frames in obsolete packet blocks"));
        }
        PcapBlockOwned::NG(_) => return Ok(None),
    };
    frame.clear();
    frame.extend_from_slice(bytes);
    Ok(Some(Stamp { original_length, time }))
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
        let rest = u128::from(time % per_second) * 1_000_000_000 / u128::from(per_second);
        Some(Duration::new(seconds, u32::try_from(rest).ok()?))
    }
}
