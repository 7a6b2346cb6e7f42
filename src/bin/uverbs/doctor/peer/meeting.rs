//! How the two sides find each other: whoever comes first listens, and the other connects.

use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::failure::Failure;
use crate::ping::exchange::{self, Peer};
use crate::stop::Stop;

/// Longest wait for an answer to a connection.
const SHORT: Duration = Duration::from_secs(1);
/// Longest wait for a word of the other side.
const LONG: Duration = Duration::from_secs(30);
/// What the one that has connected says first, and the answer. Two programs that connect to each other at once have no answer.
const HELLO: &str = "uverbs doctor";

/// The other side, and whether this one is the client. `None` if a signal arrives first.
pub(super) fn meet(host: &str, port: u16, timeout: Duration, stop: &Stop) -> Outcome<Option<(Peer, bool)>> {
    let started = Instant::now();
    let mut listener = None;
    // Different in both programs, so that they do not always try at once.
    let nap = Duration::from_millis(300 + u64::from(std::process::id() % 400));
    loop {
        if (listener.is_none() || !is_here(host))
            && let Some(peer) = connected(host, port, stop)
        {
            return Ok(Some((peer, true)));
        }
        let listener = match &listener {
            Some(listener) => listener,
            None => listener.insert(exchange::listen(port)?),
        };
        if let Some(peer) = accepted(listener, nap, stop)? {
            return Ok(Some((peer, false)));
        }
        if stop.is_set() {
            return Ok(None);
        }
        if started.elapsed() > timeout {
            let name = host.escape_debug();
            let text = format!(
                "{name} has not answered in {timeout:?}: start `uverbs doctor --peer` there too, and let TCP port {port} through"
            );
            return Err(Failure::Other(text));
        }
    }
}

/// Whether a host is this one: the program would connect to itself.
fn is_here(host: &str) -> bool {
    let addresses = (host, 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip());
    addresses.into_iter().any(|address: IpAddr| TcpListener::bind((address, 0)).is_ok())
}

fn connected(host: &str, port: u16, stop: &Stop) -> Option<Peer> {
    let mut peer = Peer::connect(host, port, SHORT, stop).ok()?;
    peer.say(HELLO).ok()?;
    let is_met = peer.hear_word(HELLO).ok()?;
    peer.wait(LONG);
    is_met.then_some(peer)
}

fn accepted(listener: &TcpListener, nap: Duration, stop: &Stop) -> Outcome<Option<Peer>> {
    // That nobody came is no failure yet.
    let Ok(Some(mut peer)) = Peer::accept(listener, nap, stop) else { return Ok(None) };
    peer.wait(SHORT);
    // Others may have connected, who say something else, and the other side may not wait any more.
    if !matches!(peer.hear_word(HELLO), Ok(true)) || peer.say(HELLO).is_err() {
        return Ok(None);
    }
    peer.wait(LONG);
    Ok(Some(peer))
}
