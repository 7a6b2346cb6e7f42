//! Receive queues: descriptors in the guest's memory, one for each segment (`efa_io_rx_desc`).

use vpci::Memory;

use super::Piece;
use crate::bytes::Bytes as _;

pub(crate) const DESCRIPTOR: u32 = 16;
const FIRST: u32 = 1 << 30;
const LAST: u32 = 1 << 31;

/// A request to receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receive {
    pub(crate) id: u16,
    pub(crate) pieces: Vec<Piece>,
}

/// The ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiveRing {
    pub(crate) base: u64,
    pub(crate) slots: u16,
    pub(crate) produced: u16,
    pub(crate) consumed: u16,
}

/// The entries in the ring are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

impl ReceiveRing {
    /// The doorbell: the number of all descriptors so far.
    ///
    /// # Errors
    /// If there are more than fit.
    pub(crate) fn ring(&mut self, produced: u16) -> Result<(), Corrupt> {
        if produced.wrapping_sub(self.consumed) > self.slots {
            return Err(Corrupt);
        }
        self.produced = produced;
        Ok(())
    }

    /// The next request, if there is one.
    ///
    /// # Errors
    /// If the descriptors are malformed.
    pub(crate) fn take(&mut self, memory: &Memory, most_pieces: u16) -> Result<Option<Receive>, Corrupt> {
        let mut pieces = Vec::new();
        let mut id = 0;
        while self.consumed != self.produced {
            let slot = u64::from(self.consumed.checked_rem(self.slots).ok_or(Corrupt)?);
            let mut descriptor = [0; DESCRIPTOR as usize];
            let at = self.base.wrapping_add(slot * u64::from(DESCRIPTOR));
            memory.read(at, &mut descriptor).map_err(|_| Corrupt)?;
            let control = descriptor.u32(12);
            if (control & FIRST != 0) != pieces.is_empty() || pieces.len() >= most_pieces.into() {
                return Err(Corrupt);
            }
            if pieces.is_empty() {
                id = descriptor.u16(8);
            }
            let length = descriptor.u16(10).into();
            pieces.push(Piece { length, key: control & 0xff_ffff, address: descriptor.u64(0) });
            self.consumed = self.consumed.wrapping_add(1);
            if control & LAST != 0 {
                return Ok(Some(Receive { id, pieces }));
            }
        }
        // Begun and not ended, although a doorbell follows only complete requests.
        if pieces.is_empty() { Ok(None) } else { Err(Corrupt) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::BytesMut as _;

    fn descriptor(memory: &Memory, slot: u64, id: u16, control: u32) {
        let mut bytes = [0; 16];
        bytes.put_u64(0, 0x9000 + slot);
        bytes.put_u16(8, id);
        bytes.put_u16(10, 100);
        bytes.put_u32(12, control);
        memory.write(0x1000 + slot * 16, &bytes).unwrap();
    }

    #[test]
    fn a_request_is_all_from_its_first_to_its_last_descriptor() {
        let memory = Memory::zeroed(&[(0x1000, 4096)]);
        let mut ring = ReceiveRing { base: 0x1000, slots: 4, produced: 0xfffe, consumed: 0xfffe };
        descriptor(&memory, 2, 7, FIRST | 0x11);
        descriptor(&memory, 3, 0, LAST | 0x12);
        descriptor(&memory, 0, 8, FIRST | LAST | 0x13);
        assert_eq!(ring.take(&memory, 2), Ok(None));
        assert_eq!(ring.ring(1), Ok(()));
        let piece = |address, key| Piece { length: 100, key, address };
        let first = Receive { id: 7, pieces: vec![piece(0x9002, 0x11), piece(0x9003, 0x12)] };
        assert_eq!(ring.take(&memory, 2), Ok(Some(first)));
        assert_eq!(ring.take(&memory, 2), Ok(Some(Receive { id: 8, pieces: vec![piece(0x9000, 0x13)] })));
        assert_eq!((ring.take(&memory, 2), ring.ring(6)), (Ok(None), Err(Corrupt)));
    }

    #[test]
    fn descriptors_that_make_no_request_are_corrupt() {
        let memory = Memory::zeroed(&[(0x1000, 4096)]);
        let take = |controls: &[u32], most| {
            controls
                .iter()
                .enumerate()
                .for_each(|(slot, control)| descriptor(&memory, slot as u64, 0, *control));
            let mut ring =
                ReceiveRing { base: 0x1000, slots: 4, produced: controls.len() as u16, consumed: 0 };
            ring.take(&memory, most)
        };
        assert_eq!(take(&[LAST], 3), Err(Corrupt));
        assert_eq!(take(&[FIRST], 3), Err(Corrupt));
        assert_eq!(take(&[FIRST, FIRST | LAST], 3), Err(Corrupt));
        assert_eq!(take(&[FIRST, LAST], 1), Err(Corrupt));
        let mut nowhere = ReceiveRing { base: 0, slots: 4, produced: 1, consumed: 0 };
        assert_eq!(nowhere.take(&memory, 3), Err(Corrupt));
    }
}
