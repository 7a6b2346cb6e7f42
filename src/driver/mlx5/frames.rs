//! Requests that are frames: the segments before their data.

use uverbs_abi::mlx5::wqe::{OPCODE_SEND, OPCODE_TSO};
use uverbs_abi::types::SendFlags;

use super::segments::{ETH_START, UNIT, bare_eth_segment, eth_segment};
use super::sends::{Sends, Start, unit};
use crate::driver::request::{FrameHead, Opcode, Refused};

impl Sends {
    /// Writes the segments before the data of a frame, or of a large send.
    #[inline(always)]
    pub(super) fn start_frame(
        &mut self,
        flags: SendFlags,
        opcode: &Opcode<'_>,
        head: Option<&FrameHead>,
    ) -> Result<Start, Refused> {
        match *opcode {
            Opcode::Send => match head {
                None if !self.wants_head => {
                    self.units.put(unit(self.head) + 1, bare_eth_segment(flags));
                    Ok(Start { opcode: OPCODE_SEND, units: 2, left_out: 0 })
                }
                Some(&head) if self.wants_head => {
                    // A copy, because a reference would force the whole request into memory.
                    let units = self.put_headers(flags, 0, &head)?;
                    Ok(Start { opcode: OPCODE_SEND, units, left_out: head.len() as u8 })
                }
                _ => Err(Refused::TooLarge),
            },
            Opcode::Large { header, mss } if mss > 0 => {
                let units = self.put_headers(flags, mss, header)?;
                Ok(Start { opcode: OPCODE_TSO, units, left_out: 0 })
            }
            Opcode::Large { .. } => Err(Refused::TooLarge),
            _ => Err(Refused::Lacks),
        }
    }

    /// Writes the Ethernet segment with the headers in it, and returns the number of units of the request so far.
    #[inline(never)]
    fn put_headers(&mut self, flags: SendFlags, mss: u16, headers: &[u8]) -> Result<u8, Refused> {
        let rest = headers.get(ETH_START..).unwrap_or_default();
        let units = 2 + rest.len().div_ceil(UNIT);
        if units > self.most_units as usize {
            return Err(Refused::TooLarge);
        }
        let at = unit(self.head) + 1;
        self.units.put(at, eth_segment(flags, mss, headers));
        self.units.put_bytes((at + 1).wrapping_mul(UNIT), rest);
        Ok(units as u8)
    }
}
