//! How two sides exchange their addresses: over TCP, with the messages of libibverbs' pingpong programs.
//!
//! The client sends its addresses as text, each followed by a NUL. The server, once it can receive, answers with its own addresses, and
//! the client sends "done". Over extended connections the client does not send this, and the server begins; there both sides report when
//! they have finished. For operations on remote memory, the server sends the address of its memory, and the client reports when it has
//! finished.

use std::io::{self, ErrorKind, Read, Write};
use std::iter::repeat_n;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::{Endpoint, Remote};

use super::address::Address;
use crate::Outcome;
use crate::failure::Failure;
use crate::stop::Stop;

#[cfg(test)]
mod tests;

/// Length of an endpoint's text with its NUL, and of that of one end of an extended connection.
const MESSAGE: usize = "0000:000000:000000:00000000000000000000000000000000\0".len();
const EXTENDED: usize = "0000:000000:000000:000000:000000:00000000000000000000000000000000\0".len();
/// Number of endpoints that are sent if queue pairs share their receives. If there are fewer queue pairs, the rest are zeros.
const SHARED: usize = 256;
const NONE: Address =
    Address { endpoint: Endpoint { lid: 0, qp_num: 0, psn: 0, gid: [0; 16] }, extended: None };
/// Maximum number of queue pairs that share their receives.
pub(super) const MOST: u32 = SHARED as u32 - 1;
/// Length of an address and a key, with a NUL.
const MEMORY: usize = "0000000000000000:00000000\0".len();
/// Longest text that is received.
const TEXT: usize = 64 << 10;
/// Maximum time between two checks for signals.
const NAP: Duration = Duration::from_millis(20);

/// The messages of the protocol, named by the pingpong program that uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// One queue pair on each side: `ibv_rc_pingpong` and similar programs.
    Single,
    /// Several queue pairs that share their receives: `ibv_srq_pingpong`.
    Shared(usize),
    /// An extended connection: `ibv_xsrq_pingpong`.
    Extended,
}

impl Words {
    /// Number of lines, that is, pairs of connected queue pairs.
    pub(super) fn lines(self) -> usize {
        if let Self::Shared(lines) = self { lines } else { 1 }
    }

    /// The last message of the client; over extended connections also of the server.
    pub(super) fn last(self) -> &'static str {
        if self == Self::Extended { "END" } else { "done" }
    }
}

/// The TCP connection to the other side.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: TcpStream,
    address: SocketAddr,
    timeout: Duration,
    stop: Stop,
}

/// Listens for clients, on every address of this host.
pub(crate) fn listen(port: u16) -> Outcome<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        // A host may have no IPv6.
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        .map_err(|error| Failure::Other(format!("listening on TCP port {port}: {error}")))
}

impl Peer {
    /// Waits for a client. `None` if a signal arrives first.
    pub(crate) fn accept(listener: &TcpListener, timeout: Duration, stop: &Stop) -> Outcome<Option<Self>> {
        let failed = |error: io::Error| Failure::Other(format!("waiting for a client: {error}"));
        listener.set_nonblocking(true).map_err(failed)?;
        let start = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream, timeout, stop).map(Some).map_err(failed),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
            if stop.is_set() {
                return Ok(None);
            }
            if start.elapsed() >= timeout {
                return Err(Failure::Other(format!("no client came in {timeout:?}")));
            }
            thread::sleep(NAP);
        }
    }

    /// Connects to a server, at the first address of `host` that answers.
    pub(crate) fn connect(host: &str, port: u16, timeout: Duration, stop: &Stop) -> Outcome<Self> {
        let name = host.escape_debug();
        let failed =
            |error: io::Error| Failure::Other(format!("connecting to {name}, TCP port {port}: {error}"));
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no IP address");
        for address in (host, port).to_socket_addrs().map_err(failed)? {
            let connected = TcpStream::connect_timeout(&address, timeout);
            match connected.and_then(|stream| Self::new(stream, timeout, stop)) {
                Ok(peer) => return Ok(peer),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    fn new(stream: TcpStream, timeout: Duration, stop: &Stop) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(NAP))?;
        stream.set_write_timeout(Some(timeout))?;
        let address = stream.peer_addr()?;
        // An IPv4 client of an IPv6 socket is reported with its IPv4 address.
        let address = match address.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
            // With its zone.
            IpAddr::V6(_) => address,
        };
        Ok(Self { stream, address, timeout, stop: stop.clone() })
    }

    /// The address of the other side.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends this side's addresses, in one piece, because the pingpong programs read only once.
    pub(super) fn tell(&mut self, words: Words, own: &[Address]) -> Outcome {
        let unused = if matches!(words, Words::Shared(_)) { SHARED.saturating_sub(own.len()) } else { 0 };
        let all = own.iter().chain(repeat_n(&NONE, unused));
        self.write(all.map(|address| address.written() + "\0").collect::<String>().as_bytes())
    }

    /// Receives the other side's addresses, one for each line. `None` if a signal arrives first.
    pub(super) fn hear(&mut self, words: Words) -> Outcome<Option<Vec<Address>>> {
        let (count, len) = match words {
            Words::Single => (1, MESSAGE),
            Words::Shared(_) => (SHARED, MESSAGE),
            Words::Extended => (1, EXTENDED),
        };
        let mut messages = vec![0; count * len];
        if !self.read(&mut messages, if count == 1 { "its endpoint" } else { "its endpoints" })? {
            return Ok(None);
        }
        let mut addresses = Vec::new();
        for message in messages.chunks_exact(len) {
            let text = message.strip_suffix(b"\0").and_then(|text| std::str::from_utf8(text).ok());
            let address = text.and_then(Address::read).ok_or_else(|| {
                let sent = message.escape_ascii();
                self.wrong(&format!(
                    "sent no endpoint but \"{sent}\"; is it a pingpong program of this kind?"
                ))
            })?;
            addresses.push(address);
        }
        if let Words::Shared(lines) = words {
            let used = addresses.iter().rposition(|address| *address != NONE).map_or(0, |last| last + 1);
            addresses.truncate(lines);
            if used != lines {
                return Err(self.wrong(&format!(
                    "has {used} queue pairs; here --qps is {lines}, and it must be the same on both sides"
                )));
            }
        }
        if addresses.iter().any(|address| address.endpoint.lid == 0 && address.endpoint.gid == [0; 16]) {
            return Err(self.wrong("sent neither LID nor GID; a pingpong program needs -g on RoCE"));
        }
        Ok(Some(addresses))
    }

    /// Sends a word of the protocol.
    pub(crate) fn say(&mut self, word: &str) -> Outcome {
        self.write(format!("{word}\0").as_bytes())
    }

    /// Waits for this word. False if a signal arrives first.
    pub(crate) fn hear_word(&mut self, word: &str) -> Outcome<bool> {
        let mut message = vec![0; word.len() + 1];
        let heard = self.read(&mut message, &format!("\"{word}\""))?;
        if heard && message.strip_suffix(b"\0") != Some(word.as_bytes()) {
            return Err(self.wrong(&format!("sent \"{}\" in place of \"{word}\"", message.escape_ascii())));
        }
        Ok(heard)
    }

    /// Sends the address and key of the memory on which the other side may operate.
    pub(super) fn tell_memory(&mut self, Remote { address, rkey }: Remote) -> Outcome {
        self.write(format!("{address:016x}:{rkey:08x}\0").as_bytes())
    }

    /// Receives the other side's memory. `None` if a signal arrives first.
    pub(super) fn hear_memory(&mut self) -> Outcome<Option<Remote>> {
        let mut message = [0; MEMORY];
        if !self.read(&mut message, "its memory")? {
            return Ok(None);
        }
        let text = message.strip_suffix(b"\0").and_then(|text| std::str::from_utf8(text).ok());
        let parts = text.and_then(|text| text.split_once(':'));
        let memory = parts.and_then(|(address, rkey)| {
            let address = u64::from_str_radix(address, 16).ok()?;
            Some(Remote { address, rkey: u32::from_str_radix(rkey, 16).ok()? })
        });
        memory.map(Some).ok_or_else(|| {
            let sent = message.escape_ascii();
            self.wrong(&format!("sent no memory but \"{sent}\"; is --op the same on both sides?"))
        })
    }

    /// Sends a text, after its length in eight hexadecimal digits.
    pub(crate) fn tell_text(&mut self, text: &str) -> Outcome {
        self.write(format!("{:08x}{text}", text.len()).as_bytes())
    }

    /// Receives a text, which must not be long. `None` if a signal arrives first.
    pub(crate) fn hear_text(&mut self, what: &str) -> Outcome<Option<String>> {
        let mut len = [0; 8];
        if !self.read(&mut len, what)? {
            return Ok(None);
        }
        let len = std::str::from_utf8(&len).ok().and_then(|len| usize::from_str_radix(len, 16).ok());
        let len =
            len.filter(|len| *len <= TEXT).ok_or_else(|| self.wrong(&format!("did not send {what}")))?;
        let mut text = vec![0; len];
        if !self.read(&mut text, what)? {
            return Ok(None);
        }
        String::from_utf8(text).map(Some).map_err(|_| self.wrong(&format!("did not send {what}")))
    }

    /// From now on, waits this long.
    pub(crate) fn wait(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// From now on, waits without a time limit.
    pub(super) fn be_patient(&mut self) {
        self.timeout = Duration::MAX;
    }

    fn write(&mut self, bytes: &[u8]) -> Outcome {
        self.stream.write_all(bytes).map_err(|error| self.wrong(&format!("cannot be sent anything: {error}")))
    }

    /// Fills `bytes`. False if a signal arrives first.
    fn read(&mut self, bytes: &mut [u8], what: &str) -> Outcome<bool> {
        let start = Instant::now();
        let mut got = 0;
        while got < bytes.len() {
            if self.stop.is_set() {
                return Ok(false);
            }
            match self.stream.read(&mut bytes[got..]) {
                Ok(0) => {
                    let wanted = bytes.len();
                    return Err(self.wrong(&format!("went away after {got} of the {wanted} bytes of {what}")));
                }
                Ok(count) => got += count,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(self.wrong(&format!("did not send {what}: {error}"))),
                },
            }
            if got < bytes.len() && start.elapsed() >= self.timeout {
                return Err(self.wrong(&format!("did not send {what} in {:?}", self.timeout)));
            }
        }
        Ok(true)
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::Other(format!("the peer at {} {what}", self.address))
    }
}
