//! A request as the device reads it, in words of eight bytes: what [`TxMetaDesc`](uverbs_abi::efa::io::TxMetaDesc) and what stands behind it
//! have as fields.

use std::borrow::Borrow;

use uverbs_abi::efa::io::{LKEY, TX_DESC_INLINE_MAX_SIZE_128, TX_DESC_NUM_BUFS, TX_INLINE_MSG, TX_OP_TYPE};
use zerocopy::IntoBytes;

use crate::driver::request::{Address, Data, Refused, Remote, Sge};

/// The words of a slot of 64 bytes; a wide one has two.
pub(super) type Unit = [u64; 8];
pub(super) const UNIT: usize = size_of::<Unit>();

/// In which word the data begins, and that of a request which names remote memory.
pub(super) const HEAD: usize = 4;
pub(super) const BEHIND_REMOTE: usize = 6;

/// Where a request goes. The number of a queue pair has 16 bits on the wire, as that of an address handle.
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
}

/// What a request begins with, but for what its data says.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) number: u16,
    pub(super) control: [u8; 2],
    pub(super) immediate: u32,
    pub(super) to: To,
    pub(super) remote: Option<Remote>,
}

impl Head {
    /// All of a slot, as of a request without data.
    #[inline]
    pub(super) fn write(self, slot: &mut Unit) {
        let Self { number, control: [one, two], immediate, to, remote } = self;
        let (address, rkey) = remote.map_or((0, 0), |Remote { address, rkey }| (address, rkey));
        let first = u64::from(number) | u64::from(one) << 16 | u64::from(two) << 24;
        *slot = [first, immediate.into(), 0, 0, u64::from(rkey) << 32, address, 0, 0].map(u64::to_le);
        Self::set_destination(slot, to);
    }

    /// Writes where it goes.
    #[inline]
    pub(super) fn set_destination(slot: &mut Unit, to: To) {
        let with = |word: u64, field: u16| u64::from_le(word) & !(0xffff << 32) | u64::from(field) << 32;
        slot[0] = with(slot[0], to.qp_num).to_le();
        slot[1] = with(slot[1], to.ah).to_le();
        slot[2] = u64::from(to.qkey).to_le();
    }

    /// The operation, by the first word.
    #[inline]
    pub(super) fn operation(first: u64) -> u8 {
        (u64::from_le(first) >> 16) as u8 & TX_OP_TYPE
    }

    /// The first word with what it says of this data.
    #[inline]
    pub(super) fn with_data(first: u64, body: &Body) -> u64 {
        let inline = u64::from(TX_INLINE_MSG) << 16;
        let rest = u64::from_le(first) & !(0xffff << 48 | inline);
        (rest | u64::from(body.length) << 48 | if body.is_inline { inline } else { 0 }).to_le()
    }

    /// The first word on remote memory with its length.
    #[inline]
    pub(super) fn with_remote_len(word: u64, len: u32) -> u64 {
        (u64::from_le(word) >> 32 << 32 | u64::from(len)).to_le()
    }

    /// The second word with hints at what is optimized for.
    #[cfg(feature = "raw")]
    pub(super) fn with_hints(second: u64, hints: u8) -> u64 {
        (u64::from_le(second) & !(0xff << 48) | u64::from(hints) << 48).to_le()
    }
}

/// The data of a request, in a form that does not depend on where it comes from.
#[derive(Debug)]
pub(super) struct Body {
    words: [u64; TX_DESC_INLINE_MAX_SIZE_128 / 8],
    pub(super) is_inline: bool,
    /// Bytes that stand here, or number of pieces.
    pub(super) length: u16,
    /// Bytes of it, wherever they are.
    pub(super) len: u32,
}

impl Body {
    #[inline(always)]
    pub(super) fn new<'b, P, B>(data: &Data<P, B>) -> Result<Self, Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        let mut words = [0; TX_DESC_INLINE_MAX_SIZE_128 / 8];
        match data {
            Data::Pieces(pieces) => {
                let count = pieces.len();
                if count > TX_DESC_NUM_BUFS {
                    return Err(Refused::TooLarge);
                }
                let mut len = 0;
                for (place, piece) in words.as_chunks_mut().0.iter_mut().zip(pieces.clone()) {
                    let Sge { addr, length, lkey } = *piece.borrow();
                    *place = [u64::from(length) | u64::from(lkey & LKEY) << 32, addr].map(u64::to_le);
                    len += u64::from(length);
                }
                let len = u32::try_from(len).map_err(|_| Refused::TooLarge)?;
                Ok(Self { words, is_inline: false, length: count as u16, len })
            }
            Data::Inline(parts) => {
                let mut at = 0;
                for part in parts.clone() {
                    let place = words.as_mut_bytes().get_mut(at..at + part.len()).ok_or(Refused::TooLarge)?;
                    place.copy_from_slice(part);
                    at += part.len();
                }
                Ok(Self { words, is_inline: true, length: at as u16, len: at as u32 })
            }
        }
    }

    /// Writes it into a slot, from this word on, as far as that goes.
    #[inline]
    pub(super) fn write(&self, slot: &mut [u64], at: usize) {
        let Some(room) = slot.get_mut(at..) else { return };
        // Of lengths that are known: the rest of a slot of each kind.
        if let Some(all) = room.first_chunk_mut() {
            *all = self.words;
        } else if let (Some(four), Some(words)) = (room.first_chunk_mut::<4>(), self.words.first_chunk()) {
            *four = *words;
        } else if let (Some(two), Some(words)) = (room.first_chunk_mut::<2>(), self.words.first_chunk()) {
            *two = *words;
        }
    }
}
