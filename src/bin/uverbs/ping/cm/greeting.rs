//! What the two sides of a ping tell each other as private data: text, which on InfiniBand and RoCE is padded with zeros.
//!
//! The client asks for `ping OPERATION SIZE ITERS`. The server's answer is empty, or for operations on its memory `ADDRESS:KEY` in hexadecimal
//! digits. A server that refuses says why.

use uverbs::Remote;

use super::super::one_sided::Op;

/// What a ping does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) op: Op,
    pub(super) size: u32,
    pub(super) iters: u64,
}

impl Greeting {
    pub(super) fn written(self) -> String {
        format!("ping {} {} {}", self.op.name(), self.size, self.iters)
    }

    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let text = text(data)?;
        let [word, op, size, iters] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let op = [Op::Send, Op::Write, Op::Read, Op::Atomic].into_iter().find(|of| of.name() == op)?;
        (word == "ping").then_some(Self { op, size: size.parse().ok()?, iters: iters.parse().ok()? })
    }

    /// Why the ping of a client is not this one.
    pub(super) fn differs(self, client: Self) -> Option<String> {
        let Self { op, size, iters } = self;
        let here = match client {
            _ if client.op != op => format!("--op is {}", op.name()),
            _ if client.size != size => format!("--size is {size}"),
            _ if client.iters != iters => format!("--iters is {iters}"),
            _ => return None,
        };
        Some(format!("at the server {here}, and it must be the same on both sides"))
    }
}

/// The memory of the server, for its answer.
pub(super) fn write_memory(Remote { address, rkey }: Remote) -> String {
    format!("{address:x}:{rkey:x}")
}

/// The memory in the server's answer.
pub(super) fn read_memory(data: &[u8]) -> Option<Remote> {
    let (address, rkey) = text(data)?.split_once(':')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    Some(Remote { address, rkey: u32::from_str_radix(rkey, 16).ok()? })
}

/// Private data that is text, without the zeros behind it.
pub(super) fn text(data: &[u8]) -> Option<&str> {
    let len = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let text = std::str::from_utf8(&data[..len]).ok()?;
    (!text.is_empty() && !text.chars().any(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_fits_and_is_read_as_it_was_written() {
        let longest = Greeting { op: Op::Atomic, size: u32::MAX, iters: u64::MAX };
        // The room on InfiniBand and RoCE.
        assert!(longest.written().len() <= 56);
        for greeting in [longest, Greeting { op: Op::Send, size: 1, iters: 2 }] {
            let mut data = greeting.written().into_bytes();
            data.resize(56, 0);
            assert_eq!(Greeting::read(&data), Some(greeting));
        }
        for data in
            [&b""[..], &[0; 56], b"ping", b"ping send 1 x", b"pong send 1 2", b"ping send 1 2 3", &[255; 8]]
        {
            assert_eq!(Greeting::read(data), None, "{data:?}");
        }
    }

    #[test]
    fn memory_is_read_as_it_was_written() {
        let memory = Remote { address: u64::MAX, rkey: 1 };
        assert_eq!(read_memory(write_memory(memory).as_bytes()), Some(memory));
        assert_eq!(read_memory(b"ff"), None);
    }

    #[test]
    fn what_differs_is_named() {
        let here = Greeting { op: Op::Send, size: 8, iters: 9 };
        assert_eq!(here.differs(here), None);
        let told = here.differs(Greeting { op: Op::Read, ..here }).expect("it differs");
        assert_eq!(told, "at the server --op is send, and it must be the same on both sides");
        // The room of a refusal on InfiniBand and RoCE.
        let longest = Greeting { op: Op::Atomic, size: u32::MAX, iters: u64::MAX };
        assert!(longest.differs(Greeting { iters: 1, ..longest }).is_some_and(|told| told.len() <= 148));
    }
}
