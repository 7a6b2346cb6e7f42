//! What is on the wire: the head of each message, and the private data of a request and a reply.

use super::Terms;

/// Bytes before the contents of a message.
pub(super) const HEAD: usize = 8;
/// Bytes of private data.
pub(super) const HELLO: usize = 12;

const MAGIC: [u8; 4] = *b"UVMS";
const VERSION: u8 = 1;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message of the program.
    Data,
    /// Only tells how many receives there are. Over iWARP, the first message of each side is one of these.
    Credit,
    /// No message of the program follows.
    End,
    /// The answer to an end: everything before it was received.
    EndTaken,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Data, Self::Credit, Self::End, Self::EndTaken];
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Number of messages of the program that the other side may have sent in all: 32 bits of it.
    pub(super) granted: u32,
}

impl Head {
    pub(super) fn encode(self) -> [u8; HEAD] {
        let [a, b, c, d] = self.granted.to_be_bytes();
        [self.kind as u8, 0, 0, 0, a, b, c, d]
    }

    pub(super) fn decode(bytes: [u8; HEAD]) -> Option<Self> {
        let [kind, _, _, _, granted @ ..] = bytes;
        let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind)?;
        Some(Self { kind, granted: u32::from_be_bytes(granted) })
    }
}

impl Terms {
    /// The private data that says them.
    pub(super) fn encode(self) -> [u8; HELLO] {
        let ([a, b, c, d], [e, f], [g, h, i, j]) = (MAGIC, self.depth.to_be_bytes(), self.size.to_be_bytes());
        [a, b, c, d, VERSION, 0, e, f, g, h, i, j]
    }

    /// Reads them from private data, which may have zeros behind it. `None` if the other side does not speak this protocol.
    pub(super) fn decode(data: &[u8]) -> Option<Self> {
        let [a, b, c, d, version, _, e, f, size @ ..] = *data.first_chunk::<HELLO>()?;
        let terms = Self { depth: u16::from_be_bytes([e, f]), size: u32::from_be_bytes(size) };
        ([a, b, c, d] == MAGIC && version == VERSION && terms.depth > 0 && terms.size > 0).then_some(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (kind, number) in [(Kind::Data, 0), (Kind::Credit, 1), (Kind::End, 2), (Kind::EndTaken, 3)] {
            let head = Head { kind, granted: 0x0102_0304 };
            assert_eq!(head.encode(), [number, 0, 0, 0, 1, 2, 3, 4]);
            assert_eq!(Head::decode(head.encode()), Some(head));
        }
        assert_eq!(Head::decode([4, 0, 0, 0, 0, 0, 0, 0]), None);
        let terms = Terms { size: 0x1000, depth: 0x20 };
        let data = terms.encode();
        assert_eq!(data, *b"UVMS\x01\0\0\x20\0\0\x10\0");
        assert_eq!(Terms::decode(&[&data[..], &[0; 44]].concat()), Some(terms));
    }

    #[test]
    fn private_data_of_others_is_not_taken_for_ours() {
        let data = Terms { size: 1, depth: 1 }.encode();
        for at in [0, 4, 7, 11] {
            let mut wrong = data;
            wrong[at] ^= 1;
            assert_eq!(Terms::decode(&wrong), None, "byte {at}");
        }
        assert_eq!(Terms::decode(&data[..11]), None);
        assert_eq!(Terms::decode(&[]), None);
    }
}
