//! Packets between queue pairs.

use crate::bytes::{Bytes as _, BytesMut as _};

/// The address of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

impl Gid {
    /// The link-local address of a hardware address.
    pub(crate) fn of_mac([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }

    /// Its second half, in the form that the driver gets.
    pub(crate) fn guid(self) -> u64 {
        u64::from_be_bytes(self.0[..].array(8))
    }
}

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message of UD, without a response.
    Datagram,
    Send,
    /// A part of the data of a write.
    Write,
    Read,
    /// A part of the data of a read.
    Part,
    /// The result of a send or a write, or the error of a read.
    Answer,
}

const KINDS: [Kind; 6] = [Kind::Datagram, Kind::Send, Kind::Write, Kind::Read, Kind::Part, Kind::Answer];

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) kind: Kind,
    pub(crate) source: Gid,
    pub(crate) destination: Gid,
    /// Numbers of queue pairs.
    pub(crate) from: u16,
    pub(crate) to: u16,
    /// Number of the request, assigned by the requester.
    pub(crate) id: u64,
    pub(crate) qkey: u32,
    pub(crate) immediate: Option<u32>,
    /// The remote key and address.
    pub(crate) key: u32,
    pub(crate) address: u64,
    /// The total number of bytes, and the offset of these.
    pub(crate) total: u32,
    pub(crate) offset: u32,
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
}

/// The first bytes of a frame on a wire.
const MAGIC: u16 = 0xefa1;
const HEADER: usize = 80;

impl Packet {
    /// A response to a packet.
    pub(crate) fn reply(&self, kind: Kind, status: u8) -> Self {
        Self {
            kind,
            source: self.destination,
            destination: self.source,
            from: self.to,
            to: self.from,
            status,
            immediate: None,
            data: Vec::new(),
            ..*self
        }
    }

    /// Encodes it as a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut frame = vec![0; HEADER + self.data.len()];
        frame.put_u16(0, MAGIC);
        frame.put(2, &[self.kind as u8, self.immediate.is_some().into(), self.status]);
        frame.put_u16(6, self.from);
        frame.put_u16(8, self.to);
        frame.put(16, &self.source.0);
        frame.put(32, &self.destination.0);
        frame.put_u64(48, self.id);
        frame.put_u64(56, self.address);
        frame.put_u32(64, self.qkey);
        frame.put_u32(68, self.immediate.unwrap_or(0));
        frame.put_u32(12, self.key);
        frame.put_u32(72, self.total);
        frame.put_u32(76, self.offset);
        frame.put(HEADER, &self.data);
        frame
    }

    /// Decodes a frame, if it is one.
    pub(crate) fn decode(frame: &[u8]) -> Option<Self> {
        let data = frame.get(HEADER..)?.to_vec();
        if frame.u16(0) != MAGIC {
            return None;
        }
        Some(Self {
            kind: *KINDS.get(usize::from(frame.u8(2)))?,
            source: Gid(frame.array(16)),
            destination: Gid(frame.array(32)),
            from: frame.u16(6),
            to: frame.u16(8),
            id: frame.u64(48),
            qkey: frame.u32(64),
            immediate: (frame.u8(3) == 1).then(|| frame.u32(68)),
            key: frame.u32(12),
            address: frame.u64(56),
            total: frame.u32(72),
            offset: frame.u32(76),
            status: frame.u8(4),
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_packet_comes_out_of_its_frame(
            kind in 0_usize..6, ids in any::<(u16, u16, u64, u64)>(), words in any::<(u32, u32, u32, u32, u8)>(),
            immediate in any::<Option<u32>>(), gids in any::<([u8; 16], [u8; 16])>(), data in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let packet = Packet {
                kind: KINDS[kind], source: Gid(gids.0), destination: Gid(gids.1), from: ids.0, to: ids.1, id: ids.2, qkey: words.0,
                immediate, key: words.1, address: ids.3, total: words.2, offset: words.3, status: words.4, data,
            };
            prop_assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }

        #[test]
        fn any_bytes_are_a_frame_or_none(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(packet) = Packet::decode(&frame) {
                prop_assert_eq!(packet.data.len(), frame.len() - HEADER);
            }
        }
    }
}
