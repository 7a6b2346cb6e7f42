//! How two sides tell each other their endpoints: over TCP, with the messages of libibverbs' pingpong programs.
//!
//! The client sends its endpoint as text with a NUL at its end; the server, once it can receive, answers with its
//! own; the client says "done". For operations on its memory the server then tells where that is, and the client says "done"
//! once more when it has ended.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::{Endpoint, Remote};

use crate::Outcome;
use crate::failure::Failure;
use crate::stop::Stop;

#[cfg(test)]
mod tests;

/// An endpoint's text and its NUL.
const MESSAGE: usize = "0000:000000:000000:00000000000000000000000000000000\0".len();
const DONE: &[u8; 5] = b"done\0";
/// An address and a key, and a NUL.
const MEMORY: usize = "0000000000000000:00000000\0".len();
/// Longest time between two looks at signals.
const NAP: Duration = Duration::from_millis(20);

/// The TCP connection to the other side.
#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    address: SocketAddr,
    timeout: Duration,
    stop: Stop,
}

/// Listens for clients, on every address of this host.
pub(super) fn listen(port: u16) -> Outcome<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        // A host may have no IPv6.
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        .map_err(|error| Failure::Other(format!("listening on TCP port {port}: {error}")))
}

impl Peer {
    /// Waits for a client; none if a signal came first.
    pub(super) fn accept(listener: &TcpListener, timeout: Duration, stop: &Stop) -> Outcome<Option<Self>> {
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
    pub(super) fn connect(host: &str, port: u16, timeout: Duration, stop: &Stop) -> Outcome<Self> {
        let name = host.escape_debug();
        let failed =
            |error: io::Error| Failure::Other(format!("connecting to {name}, TCP port {port}: {error}"));
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
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
        // An IPv4 client of an IPv6 socket is still one.
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Ok(Self { stream, address, timeout, stop: stop.clone() })
    }

    /// Where the other side is.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells the own endpoint. In one piece: the pingpong programs read only once.
    pub(super) fn tell(&mut self, endpoint: &Endpoint) -> Outcome {
        self.write(format!("{endpoint}\0").as_bytes())
    }

    /// The other side's endpoint; none if a signal came first.
    pub(super) fn hear(&mut self) -> Outcome<Option<Endpoint>> {
        let mut message = [0; MESSAGE];
        if !self.read(&mut message, "its endpoint")? {
            return Ok(None);
        }
        let text = message.strip_suffix(b"\0").and_then(|text| std::str::from_utf8(text).ok());
        let endpoint = text.and_then(|text| text.parse::<Endpoint>().ok()).ok_or_else(|| {
            let sent = message.escape_ascii();
            self.wrong(&format!("sent no endpoint but \"{sent}\"; is it a pingpong program?"))
        })?;
        if endpoint.lid == 0 && endpoint.gid == [0; 16] {
            return Err(self.wrong("has told neither LID nor GID; a pingpong program needs -g on RoCE"));
        }
        Ok(Some(endpoint))
    }

    /// The client's last word.
    pub(super) fn say_done(&mut self) -> Outcome {
        self.write(DONE)
    }

    /// Waits for it; false if a signal came first.
    pub(super) fn hear_done(&mut self) -> Outcome<bool> {
        let mut message = [0; DONE.len()];
        let heard = self.read(&mut message, "\"done\"")?;
        if heard && message != *DONE {
            return Err(self.wrong(&format!("sent \"{}\" in place of \"done\"", message.escape_ascii())));
        }
        Ok(heard)
    }

    /// Tells which memory the other side may operate on.
    pub(super) fn tell_memory(&mut self, Remote { address, rkey }: Remote) -> Outcome {
        self.write(format!("{address:016x}:{rkey:08x}\0").as_bytes())
    }

    /// The other side's memory; none if a signal came first.
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

    /// Waits for the client's end, however long that takes; false if a signal came first.
    pub(super) fn hear_end(&mut self) -> Outcome<bool> {
        self.timeout = Duration::MAX;
        self.hear_done()
    }

    fn write(&mut self, bytes: &[u8]) -> Outcome {
        self.stream.write_all(bytes).map_err(|error| self.wrong(&format!("cannot be told anything: {error}")))
    }

    /// Fills `bytes`; false if a signal came first.
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
