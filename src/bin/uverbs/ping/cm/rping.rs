//! The exchange of rping, an example program of librdmacm, which can be the other side.
//!
//! For each ping, the client sends the place of its text, and the server reads the text. The client sends the place for the answer, and the
//! server writes the text there. The server reports each of the two with a message whose contents do not matter. All messages have the
//! length of a place.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uverbs::cm::{Connection, Link};
use uverbs::{
    AccessFlags, Completion, CompletionQueue, Context, ErrorKind, MemoryRegion, Operation, ProtectionDomain,
    QueuePair, Rc, ReceiveRequest, Remote, Segment, SendRequest, Status,
};

use super::{Figures, Here, Place, Report, link};
use crate::Outcome;
use crate::failure::Failure;
use crate::ping::side::{RECEIVE, SEND, SPINS};
use crate::samples::{histogram, record};

/// Bytes of a text unless a size is given: those of rping.
pub(super) const SIZE: u32 = 64;
/// The longest text that a server takes unless a size is given; rping's clients send less.
pub(super) const LONGEST: u32 = 1 << 16;
/// Where the text to send, or the text that was read, begins. Before it are the messages to send and to receive.
const TEXT: usize = 64;
const RECEIVED: usize = 32;

/// A place in the memory of a client: address, key and length, all with the most significant byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    at: Remote,
    len: u32,
}

impl Span {
    const LEN: usize = 16;

    fn written(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.at.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.at.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    fn read(bytes: [u8; Self::LEN]) -> Self {
        let [all, key, len] = [(0, 8), (8, 4), (12, 4)].map(|(start, count)| {
            bytes[start..start + count].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
        });
        // Both are made of four bytes.
        Self { at: Remote { address: all, rkey: key as u32 }, len: len as u32 }
    }
}

/// How a wait ends, if not with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Came,
    /// The other side has left.
    Left,
    /// A signal came.
    Stopped,
}

/// One side of the exchange.
#[derive(Debug)]
pub(super) struct Rping {
    cq: CompletionQueue,
    memory: MemoryRegion,
    _pd: ProtectionDomain,
    size: usize,
    /// Requests of the send queue that have not completed, and messages that have come and were not taken.
    sending: u32,
    received: u32,
    count: u64,
    trips: Histogram<u64>,
    elapsed: Duration,
}

/// A ping that is being played.
struct Play<'a> {
    rping: &'a mut Rping,
    qp: &'a mut QueuePair<Rc>,
    peer: SocketAddr,
    place: &'a Place<'a>,
    has_left: &'a AtomicBool,
}

impl Rping {
    pub(super) fn new(context: &Context, size: usize) -> Outcome<(Self, QueuePair<Rc>)> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(8)?);
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let memory = pd.register(TEXT + 2 * size, access)?;
        let qp = pd.rc(&cq).send_depth(4).receive_depth(2).create()?;
        let trips = histogram()?;
        Ok((
            Self {
                cq,
                memory,
                _pd: pd,
                size,
                sending: 0,
                received: 0,
                count: 0,
                trips,
                elapsed: Duration::ZERO,
            },
            qp,
        ))
    }

    /// The number of pings so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn receive(&self, qp: &mut QueuePair<Rc>) -> Outcome {
        let room = [self.memory.segment(RECEIVED..RECEIVED + Span::LEN)?];
        Ok(qp.post_receive(&[ReceiveRequest::new(RECEIVE, &room)])?)
    }

    /// The client's part.
    pub(super) fn ask(
        &mut self,
        connection: &mut Connection,
        peer: SocketAddr,
        place: &Place<'_>,
    ) -> Outcome {
        self.play(connection, peer, place, |play| play.ask())
    }

    /// The server's part.
    pub(super) fn answer(
        &mut self,
        connection: &mut Connection,
        peer: SocketAddr,
        place: &Place<'_>,
    ) -> Outcome {
        self.play(connection, peer, place, |play| play.answer())
    }

    /// Plays one part, while a thread waits for the end of the connection.
    fn play(
        &mut self,
        connection: &mut Connection,
        peer: SocketAddr,
        place: &Place<'_>,
        part: impl FnOnce(&mut Play<'_>) -> Outcome,
    ) -> Outcome {
        let (qp, link) = connection.parts();
        let (has_left, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| watch(link, &has_left, &is_over));
            let start = Instant::now();
            let played = part(&mut Play { rping: self, qp, peer, place, has_left: &has_left });
            self.elapsed = start.elapsed();
            is_over.store(true, Ordering::Relaxed);
            played
        })
    }

    pub(super) fn report(
        &self,
        place: &Place<'_>,
        here: &Here,
        (role, local, peer): (&'static str, SocketAddr, SocketAddr),
        iters: u64,
    ) -> Report {
        Report::new(
            place.args,
            &here.target,
            Figures {
                exchange: Some(place.exchange()),
                role,
                local: Some(local),
                peer: Some(peer),
                gid: None,
                lines: Vec::new(),
                size: self.size as u32,
                iters,
                sent: self.count,
                received: self.count,
                trips: &self.trips,
                elapsed: self.elapsed,
            },
        )
    }
}

/// Waits for the end of the connection, or of the ping.
fn watch(link: &Link, has_left: &AtomicBool, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        match link.closed().within(link::NAP) {
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            _ => return has_left.store(true, Ordering::Release),
        }
    }
}

/// The text of a ping: as rping's, readable, and ended by a NUL, up to which rping's server answers.
fn text(number: u64, size: usize) -> Vec<u8> {
    let begin = format!("rping {number}: ").into_bytes();
    let more = (0..).map(|at: u64| b'A' + ((number + at) % 58) as u8);
    let mut text: Vec<_> = begin.into_iter().chain(more).take(size - 1).collect();
    text.push(0);
    text
}

impl Play<'_> {
    fn ask(&mut self) -> Outcome {
        let (iters, size) = (self.place.args.iters, self.rping.size);
        let mut answer = vec![0; size];
        while self.rping.count < iters {
            let text = text(self.rping.count, size);
            self.rping.memory.write(TEXT, &text)?;
            let begun = Instant::now();
            for start in [TEXT, TEXT + size] {
                let at = self.rping.memory.address() + start as u64;
                let at = Remote { address: at, rkey: self.rping.memory.rkey() };
                self.tell(Span { at, len: size as u32 })?;
                match self.wait(|rping| rping.received > 0)? {
                    Wait::Came => self.rping.received -= 1,
                    Wait::Left => return Err(self.wrong(format!("left after {} pings", self.rping.count))),
                    Wait::Stopped => return Ok(()),
                }
            }
            record(&mut self.rping.trips, begun);
            self.rping.count += 1;
            self.rping.memory.read(TEXT + size, &mut answer)?;
            if answer != text {
                return Err(self.wrong("has written another text than it has read".to_owned()));
            }
        }
        Ok(())
    }

    fn answer(&mut self) -> Outcome {
        loop {
            for is_answer in [false, true] {
                match self.wait(|rping| rping.received > 0)? {
                    Wait::Came => self.rping.received -= 1,
                    Wait::Left if is_answer => {
                        return Err(self.wrong("left in the middle of a ping".to_owned()));
                    }
                    Wait::Left | Wait::Stopped => return Ok(()),
                }
                let span = self.told()?;
                let piece = TEXT..TEXT + span.len as usize;
                let operation = if is_answer { Operation::Write(span.at) } else { Operation::Read(span.at) };
                self.post(operation, piece)?;
                match self.wait(|rping| rping.sending == 0)? {
                    Wait::Came => {}
                    Wait::Left => return Err(self.wrong("left in the middle of a ping".to_owned())),
                    Wait::Stopped => return Ok(()),
                }
                if is_answer {
                    // The client may leave as soon as it has the message.
                    self.rping.count += 1;
                }
                self.tell(span)?;
            }
        }
    }

    /// The place that the other side has sent.
    fn told(&self) -> Outcome<Span> {
        let mut bytes = [0; Span::LEN];
        self.rping.memory.read(RECEIVED, &mut bytes)?;
        let span = Span::read(bytes);
        if span.len == 0 || span.len as usize > self.rping.size {
            let (len, size) = (span.len, self.rping.size);
            return Err(self.wrong(format!("has texts of {len} bytes; here --size is {size}")));
        }
        Ok(span)
    }

    /// Sends a message.
    fn tell(&mut self, span: Span) -> Outcome {
        // The memory of the last message is free when it has been sent.
        if self.wait(|rping| rping.sending == 0)? == Wait::Came {
            self.rping.memory.write(0, &span.written())?;
            self.post(Operation::Send, 0..Span::LEN)?;
        }
        Ok(())
    }

    fn post(&mut self, operation: Operation, piece: std::ops::Range<usize>) -> Outcome {
        let segment: Segment<'_> = self.rping.memory.segment(piece)?;
        self.qp.post_send(&[SendRequest::new(SEND, operation, &[segment]).signaled()])?;
        self.rping.sending += 1;
        Ok(())
    }

    /// Takes completions until the condition is met.
    fn wait(&mut self, is_met: impl Fn(&Rping) -> bool) -> Outcome<Wait> {
        let (begun, timeout) = (Instant::now(), self.place.args.timeout);
        let mut idle = 0_u64;
        while !is_met(self.rping) {
            // Read before the queue: what came before the end is in it then.
            let has_left = self.has_left.load(Ordering::Acquire);
            let mut completions = Completion::batch::<4>();
            let count = self.rping.cq.poll(&mut completions);
            for completion in &completions[..count] {
                self.take(completion)?;
            }
            if count > 0 {
                continue;
            }
            if has_left {
                return Ok(Wait::Left);
            }
            idle += 1;
            if !idle.is_multiple_of(SPINS) {
                continue;
            }
            if self.place.stop.is_set() {
                return Ok(Wait::Stopped);
            }
            if begun.elapsed() >= timeout {
                return Err(
                    self.wrong(format!("was silent for {timeout:?}, after {} pings", self.rping.count))
                );
            }
            thread::yield_now();
        }
        Ok(Wait::Came)
    }

    fn take(&mut self, completion: &Completion) -> Outcome {
        let Completion { wr_id, status, len, .. } = *completion;
        // Flushed requests are the end, which the connection reports.
        if status == Status::Flushed {
            return Ok(());
        }
        if status != Status::Success {
            let what = if wr_id == RECEIVE { "receiving" } else { "sending, reading or writing" };
            let (peer, count) = (self.peer, self.rping.count);
            return Err(Failure::Other(format!("{peer}: {what}, after {count} pings: {status}")));
        }
        if wr_id != RECEIVE {
            self.rping.sending = self.rping.sending.saturating_sub(1);
            return Ok(());
        }
        if len as usize != Span::LEN {
            return Err(self.wrong(format!("sent {len} bytes in place of rping's {}", Span::LEN)));
        }
        self.rping.received += 1;
        self.rping.receive(self.qp)
    }

    fn wrong(&self, what: String) -> Failure {
        Failure::Other(format!("the peer at {} {what}", self.peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let span =
            Span { at: Remote { address: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c }, len: 0x0d0e_0f10 };
        assert_eq!(span.written(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(Span::read(span.written()), span);
    }

    #[test]
    fn a_text_has_one_nul_at_its_end() {
        for (number, size) in [(0, 1), (7, 2), (u64::MAX - 1_000_000, 64), (57, 65535)] {
            let text = text(number, size);
            assert_eq!((text.len(), text.iter().position(|&byte| byte == 0)), (size, Some(size - 1)));
        }
    }
}
