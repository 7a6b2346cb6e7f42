//! Messages from one address to another, and back.

use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Context, Endpoint, MemoryRegion, Operation,
    ProtectionDomain, QueuePair, Rc, ReceiveRequest, SendRequest, Status,
};

use super::facts::{Entry, shown};
use crate::Outcome;
use crate::ping::exchange::Peer;

/// Number of messages each way of a length.
const ROUNDS: u64 = 10;
/// Longest wait for a message.
const LIMIT: Duration = Duration::from_secs(3);
/// Bytes of a short message.
const SHORT: usize = 8;

/// A pair of addresses, from the point of view of this side.
pub(super) struct Sides<'a> {
    pub(super) port: u8,
    pub(super) mine: &'a Entry,
    /// The code of the packets' size, and their bytes.
    pub(super) mtu: u8,
    pub(super) mtu_bytes: u32,
    pub(super) is_client: bool,
}

/// What was seen of a pair of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The time there and back, in ns.
    Works(u64),
    /// Short messages arrive, and those that fill packets of this many bytes do not.
    OnlyShort(u32, String),
    Fails(String),
}

/// A queue pair with what it needs.
struct Side {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    local: Endpoint,
    _pd: ProtectionDomain,
}

/// Sends messages back and forth. `None` if a signal arrives.
pub(super) fn exchange(context: &Context, sides: &Sides<'_>, peer: &mut Peer) -> Outcome<Option<Seen>> {
    let options = ConnectionOptions {
        mtu: sides.mtu,
        retries: 3,
        rnr_retries: 6,
        ..ConnectionOptions::new(sides.port, sides.mine.index)
    };
    let long = 4 * sides.mtu_bytes as usize;
    let made = Side::new(context, &options, long).map_err(|error| error.to_string());
    let Some(remote) = agree(peer, made.as_ref().map(|side| side.local.to_string()))? else {
        return Ok(None);
    };
    let connected = match (made, remote) {
        (Ok(side), Ok(remote)) => side.connect(&options, &remote),
        (Err(why), _) | (_, Err(why)) => return Ok(Some(Seen::Fails(why))),
    };
    // Both must be ready to receive before one sends.
    let Some(ready) = agree(peer, connected.as_ref().map(|_| "ready".to_owned()))? else { return Ok(None) };
    let mut side = match (connected, ready) {
        (Ok(side), Ok(_)) => side,
        (Err(why), _) | (_, Err(why)) => return Ok(Some(Seen::Fails(why))),
    };
    let Some(short) = played(&mut side, SHORT, sides, peer)? else { return Ok(None) };
    let time = match short {
        Ok(time) => time,
        Err(why) => return Ok(Some(Seen::Fails(why))),
    };
    let Some(longer) = played(&mut side, long, sides, peer)? else { return Ok(None) };
    Ok(Some(match longer {
        Ok(_) => Seen::Works(time),
        Err(why) => Seen::OnlyShort(sides.mtu_bytes, why),
    }))
}

/// Messages of a length: the time there and back as the client has measured it, or why they do not arrive, on either side.
fn played(
    side: &mut Side,
    len: usize,
    sides: &Sides<'_>,
    peer: &mut Peer,
) -> Outcome<Option<Result<u64, String>>> {
    let own = side.play(len, sides.is_client);
    let Some(other) = agree(peer, own.as_ref().map(u64::to_string))? else { return Ok(None) };
    Ok(Some(match (own, other) {
        (Ok(own), Ok(other)) => Ok(if sides.is_client { own } else { other.parse().unwrap_or(own) }),
        // That of the one who sees more than silence comes first.
        (Err(own), Err(other)) => Err(if own.contains(SILENCE) { other } else { own }),
        (Err(why), Ok(_)) | (Ok(_), Err(why)) => Err(why),
    }))
}

/// What is said if nothing comes.
const SILENCE: &str = "nothing came";

/// Tells the other side how a step has ended, and learns how it has there. `None` if a signal arrives.
fn agree(peer: &mut Peer, own: Result<String, &String>) -> Outcome<Option<Result<String, String>>> {
    peer.tell_text(&match own {
        Ok(text) => format!("ok {text}"),
        Err(why) => format!("no {why}"),
    })?;
    let Some(text) = peer.hear_text("how a step has ended")? else { return Ok(None) };
    Ok(Some(match text.split_once(' ') {
        Some(("ok", text)) => Ok(shown(text)),
        Some(("no", why)) => Err(format!("at the peer: {}", shown(why))),
        _ => Err("the peer has said something else".to_owned()),
    }))
}

impl Side {
    fn new(context: &Context, options: &ConnectionOptions, long: usize) -> uverbs::Result<Self> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(64)?);
        let qp = pd.rc(&cq).send_depth(16).receive_depth(32).create()?;
        let memory = pd.register(2 * long, AccessFlags::LOCAL_WRITE)?;
        let local = qp.endpoint(options, std::process::id() & 0xff_ffff)?;
        Ok(Self { qp, cq, memory, local, _pd: pd })
    }

    /// Connects, and posts receives for all messages of both lengths.
    fn connect(mut self, options: &ConnectionOptions, remote: &str) -> Result<Self, String> {
        let remote: Endpoint = remote.parse().map_err(|error: uverbs::Error| error.to_string())?;
        let mut connect = || {
            self.qp.connect(options, &self.local, &remote)?;
            let half = self.memory.len() / 2;
            let segments = [self.memory.segment(half..)?];
            let requests = vec![ReceiveRequest::new(2, &segments); 2 * ROUNDS as usize];
            self.qp.post_receive(&requests)
        };
        connect().map_err(|error| error.to_string())?;
        Ok(self)
    }

    /// Sends and receives; the client begins. Returns the median time there and back.
    fn play(&mut self, len: usize, begins: bool) -> Result<u64, String> {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            if begins {
                self.send(len)?;
            }
            self.ends(if begins { 2 } else { 1 }, !begins, len)?;
            times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        times.sort_unstable();
        Ok(times.get(times.len() / 2).copied().unwrap_or_default())
    }

    fn send(&mut self, len: usize) -> Result<(), String> {
        let mut post = || {
            let segments = [self.memory.segment(0..len)?];
            self.qp.post_send(&[SendRequest::new(1, Operation::Send, &segments).signaled()])
        };
        post().map_err(|error| error.to_string())
    }

    /// Takes completions: of the send and the receive of the client, or of the receive, whose message is answered, and of the answer.
    fn ends(&mut self, count: usize, answers: bool, len: usize) -> Result<(), String> {
        let (start, mut batch, mut left) =
            (Instant::now(), Completion::batch::<1>(), count + usize::from(answers));
        while left > 0 {
            if self.cq.poll(&mut batch) == 0 {
                if start.elapsed() > LIMIT {
                    return Err(format!("{SILENCE} in {LIMIT:?}"));
                }
                std::thread::yield_now();
                continue;
            }
            if batch[0].status != Status::Success {
                return Err(batch[0].status.to_string());
            }
            left -= 1;
            if answers && batch[0].is_receive() {
                self.send(len)?;
            }
        }
        Ok(())
    }
}
