//! A request in the device's format: the fields of [`TxMetaDesc`](uverbs_abi::efa::io::TxMetaDesc) and what follows it, as words of
//! eight bytes.

use uverbs_abi::efa::io::{LKEY, TX_INLINE_MSG, TX_OP_TYPE};

use crate::driver::request::{Address, Refused, Remote, Sge, Terms};

/// The words of a narrow slot, of 64 bytes; a wide slot has two units.
pub(super) type Unit = [u64; 8];
pub(super) const UNIT: usize = size_of::<Unit>();

/// Byte position of the data, and of the data of a request that names remote memory.
pub(super) const DATA: usize = 32;
pub(super) const BEHIND_REMOTE: usize = 48;

/// The destination of a request. On the wire, numbers of queue pairs and of address handles have 16 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct To {
    ah: u16,
    qp_num: u16,
    qkey: u32,
}

impl To {
    #[inline(always)]
    pub(super) fn new(ah: &Address, qp_num: u32, qkey: u32) -> Self {
        Self { ah: ah.number as u16, qp_num: qp_num as u16, qkey }
    }

    /// The destination, if the terms are those of a reliable datagram.
    #[inline(always)]
    pub(super) fn of(terms: &impl Terms) -> Option<Self> {
        terms.destination().map(|to| Self::new(&to.ah, to.qp_num, to.qkey))
    }

    /// Writes the destination into the request that begins with this unit.
    #[inline(always)]
    pub(super) fn write(self, slot: &mut Unit) {
        let bytes = unit_bytes(slot);
        bytes[4..6].copy_from_slice(&self.qp_num.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.ah.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.qkey.to_le_bytes());
    }
}

/// The beginning of a request, without the fields that describe its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) number: u16,
    /// Bits 16 to 31 of the first word.
    pub(super) control: u32,
    pub(super) immediate: u32,
    pub(super) to: To,
    pub(super) remote: Option<Remote>,
}

impl Head {
    /// The first unit of a request. `data` follows the head, or the remote memory if the request names one.
    #[inline(always)]
    pub(super) fn unit(self, said: Said, data: [u64; 4]) -> Unit {
        let Self { number, control, immediate, to, remote } = self;
        let inline = if said.is_inline { u32::from(TX_INLINE_MSG) << 16 } else { 0 };
        let high = u32::from(to.qp_num) | said.length << 16;
        let first = u64::from(u32::from(number) | control | inline) | u64::from(high) << 32;
        let second = u64::from(immediate) | u64::from(to.ah) << 32;
        let [a, b, c, d] = match remote {
            Some(Remote { address, rkey }) => {
                [u64::from(said.bytes) | u64::from(rkey) << 32, address, data[0], data[1]]
            }
            None => data,
        };
        [first, second, to.qkey.into(), 0, a, b, c, d].map(u64::to_le)
    }
}

/// The fields of a request that describe its data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) is_inline: bool,
    /// Number of inline bytes, or of pieces: 16 bits.
    // As wide as `bytes`; both stay in registers.
    pub(super) length: u32,
    /// Bytes of the data, wherever it is.
    pub(super) bytes: u32,
}

impl Said {
    /// For this many pieces with this many bytes in total.
    #[inline(always)]
    pub(super) fn of_pieces(count: usize, bytes: u64) -> Result<Self, Refused> {
        let bytes = u32::try_from(bytes).map_err(|_| Refused::TooLarge)?;
        Ok(Self { is_inline: false, length: count as u32, bytes })
    }

    /// For one piece of this many bytes.
    #[inline(always)]
    pub(super) fn of_one(bytes: u32) -> Self {
        Self { is_inline: false, length: 1, bytes }
    }

    /// For this many inline bytes, no more than fit in a slot.
    #[inline(always)]
    pub(super) fn of_bytes(count: usize) -> Self {
        Self { is_inline: true, length: count as u32, bytes: count as u32 }
    }

    /// Writes the fields into the request that begins with this unit. A request that `IS_REMOTE` names remote memory.
    #[inline(always)]
    pub(super) fn write<const IS_REMOTE: bool>(self, slot: &mut Unit) {
        let bytes = unit_bytes(slot);
        bytes[2] = bytes[2] & !TX_INLINE_MSG | if self.is_inline { TX_INLINE_MSG } else { 0 };
        bytes[6..8].copy_from_slice(&(self.length as u16).to_le_bytes());
        if IS_REMOTE {
            bytes[DATA..DATA + 4].copy_from_slice(&self.bytes.to_le_bytes());
        }
    }
}

/// The number of the request that begins with this unit.
pub(super) fn number(slot: &Unit) -> u16 {
    u64::from_le(slot[0]) as u16
}

/// The operation of the request that begins with this unit.
#[inline(always)]
pub(super) fn operation(slot: &Unit) -> u8 {
    (u64::from_le(slot[0]) >> 16) as u8 & TX_OP_TYPE
}

/// Sets the hints, which say what the device should optimize for.
#[cfg(feature = "raw")]
pub(super) fn set_hints(slot: &mut Unit, hints: u8) {
    unit_bytes(slot)[14] = hints;
}

#[inline(always)]
fn unit_bytes(slot: &mut Unit) -> &mut [u8; UNIT] {
    zerocopy::transmute_mut!(slot)
}

/// A piece of memory in the format of a request.
#[inline(always)]
pub(super) fn piece(&Sge { addr, length, lkey }: &Sge) -> [u64; 2] {
    [u64::from(length) | u64::from(lkey & LKEY) << 32, addr]
}

/// Writes a piece of memory to byte `AT` of the request that begins with this unit.
#[inline(always)]
pub(super) fn put_piece<const AT: usize>(slot: &mut Unit, &Sge { addr, length, lkey }: &Sge) {
    let bytes = unit_bytes(slot);
    bytes[AT..AT + 4].copy_from_slice(&length.to_le_bytes());
    bytes[AT + 4..AT + 8].copy_from_slice(&(lkey & LKEY).to_le_bytes());
    bytes[AT + 8..AT + 16].copy_from_slice(&addr.to_le_bytes());
}

/// Copies inline data to its place in a request. Returns the number of bytes.
#[inline(always)]
pub(super) fn copy<'b>(parts: impl Iterator<Item = &'b [u8]>, room: &mut [u8]) -> Result<usize, Refused> {
    let mut at = 0;
    for part in parts {
        let end = at + part.len();
        copy_part(part, room.get_mut(at..end).ok_or(Refused::TooLarge)?);
        at = end;
    }
    Ok(at)
}

/// Copies bytes to a place of the same length. Lengths of 16 to 32 bytes, which are common in a narrow slot, are copied without a call
/// of a function, so that the values around it stay in registers.
#[inline(always)]
pub(super) fn copy_part(from: &[u8], to: &mut [u8]) {
    const HALF: usize = 16;
    if let (Some(first), Some(last)) = (from.first_chunk::<HALF>(), from.last_chunk::<HALF>())
        && from.len() <= 2 * HALF
        && to.len() == from.len()
        && let Some(place) = to.first_chunk_mut()
    {
        *place = *first;
        if let Some(place) = to.last_chunk_mut() {
            *place = *last;
        }
    } else {
        to.copy_from_slice(from);
    }
}
