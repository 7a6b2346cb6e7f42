//! How the two sides find each other: whoever comes first listens, and the other connects. They have met when each has what the other says of
//! its port.

use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::failure::Failure;
use crate::ping::exchange::{self, Peer};
use crate::stop::Stop;

/// Longest wait for an answer to a connection.
const SHORT: Duration = Duration::from_secs(1);
/// Time between two tries to listen.
const NAP: Duration = Duration::from_millis(50);
/// Longest wait for what the other side says of its port, which it has by then.
const FACTS: Duration = Duration::from_secs(5);
/// Longest wait for a word of the other side after that.
const LONG: Duration = Duration::from_secs(30);
/// What the one that has connected says first, and the answer. Two programs that connect to each other at once have no answer.
const HELLO: &str = "uverbs doctor";

/// Whom to meet, and what to say.
pub(super) struct Wanted<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) timeout: Duration,
    /// What this side says of its port.
    pub(super) facts: &'a str,
}

/// The other side.
pub(super) struct Met {
    pub(super) peer: Peer,
    pub(super) is_client: bool,
    /// What it says of its port.
    pub(super) facts: String,
}

/// The other side. `None` if a signal arrives first. Callers that say something else, or nothing, or come from elsewhere are not waited for.
pub(super) fn meet(wanted: &Wanted<'_>, stop: &Stop) -> Outcome<Option<Met>> {
    let Wanted { host, port, timeout, .. } = *wanted;
    let started = Instant::now();
    let (mut listener, mut stranger) = (None, None);
    // Different in both programs, so that they do not always try at once.
    let nap = Duration::from_millis(300 + u64::from(std::process::id() % 400));
    loop {
        if (listener.is_none() || !is_here(host))
            && let Some(met) = connected(wanted, stop)
        {
            return Ok(Some(met));
        }
        if listener.is_none() {
            match exchange::listen(port) {
                Ok(new) => listener = Some(new),
                // Two sides on one host that have begun at once: the other one has the port by now.
                Err(_) if is_here(host) && started.elapsed() + NAP <= timeout => std::thread::sleep(NAP),
                Err(failure) => return Err(failure),
            }
        }
        match listener.as_ref().map_or(Caller::Nobody, |listener| accepted(listener, nap, wanted, stop)) {
            Caller::Met(met) => return Ok(Some(*met)),
            Caller::Stranger(address) => stranger = Some(address),
            Caller::Nobody => {}
        }
        if stop.is_set() {
            return Ok(None);
        }
        if listener.is_some() && started.elapsed() > timeout {
            let name = host.escape_debug();
            let other = stranger.map_or_else(String::new, |address| {
                format!("; {address} has connected, which is no address of {name}")
            });
            let text = format!(
                "{name} has not answered in {timeout:?}: start `uverbs doctor --peer` there too, and let TCP port {port} through{other}"
            );
            return Err(Failure::Other(text));
        }
    }
}

/// The addresses of a host; none if its name is not known here.
fn addresses(host: &str) -> Vec<IpAddr> {
    (host, 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip().to_canonical()).collect()
}

/// Whether an address is one of this host's.
pub(super) fn is_own(address: IpAddr) -> bool {
    TcpListener::bind((address, 0)).is_ok()
}

/// Whether a host is this one: the program would connect to itself.
fn is_here(host: &str) -> bool {
    addresses(host).into_iter().any(is_own)
}

fn connected(wanted: &Wanted<'_>, stop: &Stop) -> Option<Met> {
    let mut peer = Peer::connect(wanted.host, wanted.port, SHORT, stop).ok()?;
    peer.say(HELLO).ok()?;
    peer.hear_word(HELLO).ok()?.then_some(())?;
    told(peer, true, wanted)
}

/// Who has called.
enum Caller {
    Met(Box<Met>),
    /// Someone from an address that is not the host's.
    Stranger(IpAddr),
    /// Nobody, or someone who has said something else or nothing.
    Nobody,
}

fn accepted(listener: &TcpListener, nap: Duration, wanted: &Wanted<'_>, stop: &Stop) -> Caller {
    // That nobody came is no failure yet.
    let Ok(Some(mut peer)) = Peer::accept(listener, nap, stop) else { return Caller::Nobody };
    let (address, expected) = (peer.address().ip().to_canonical(), addresses(wanted.host));
    // A connection of this host to itself may come from another of its addresses: to 127.0.1.1 it comes from 127.0.0.1.
    let is_expected =
        || expected.contains(&address) || is_own(address) && expected.iter().copied().any(is_own);
    if !expected.is_empty() && !is_expected() {
        return Caller::Stranger(address);
    }
    peer.wait(SHORT);
    // Others may have connected, and the other side may not wait any more.
    if !matches!(peer.hear_word(HELLO), Ok(true)) || peer.say(HELLO).is_err() {
        return Caller::Nobody;
    }
    told(peer, false, wanted).map_or(Caller::Nobody, |met| Caller::Met(Box::new(met)))
}

/// Both say what their ports have. `None` if the other side does not.
fn told(mut peer: Peer, is_client: bool, wanted: &Wanted<'_>) -> Option<Met> {
    peer.wait(FACTS.min(wanted.timeout));
    peer.tell_text(wanted.facts).ok()?;
    let facts = peer.hear_text("what it has").ok()??;
    peer.wait(LONG);
    Some(Met { peer, is_client, facts })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;

    fn wanted(host: &str) -> Wanted<'_> {
        Wanted { host, port: 0, timeout: Duration::from_millis(200), facts: "facts" }
    }

    /// A listener and someone who has connected to it from 127.0.0.1.
    fn called() -> (TcpListener, TcpStream) {
        let listener = exchange::listen(0).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        (listener, TcpStream::connect(("127.0.0.1", port)).expect("it listens"))
    }

    #[test]
    fn a_caller_from_another_address_is_not_the_peer() {
        let (listener, mut caller) = called();
        caller.write_all(b"uverbs doctor\0").expect("it is sent");
        let found = accepted(&listener, SHORT, &wanted("192.0.2.1"), &Stop::default());
        assert!(matches!(found, Caller::Stranger(address) if address == IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn a_caller_that_greets_and_then_says_nothing_is_left() {
        let (listener, mut caller) = called();
        caller.write_all(b"uverbs doctor\0").expect("it is sent");
        let found = accepted(&listener, SHORT, &wanted("127.0.0.1"), &Stop::default());
        assert!(matches!(found, Caller::Nobody));
    }

    #[test]
    fn a_caller_that_says_what_it_has_is_met_also_if_the_name_is_not_known_here() {
        for host in ["127.0.0.1", "127.0.1.1", "nowhere.invalid"] {
            let (listener, mut caller) = called();
            caller.write_all(b"uverbs doctor\x0000000005other").expect("it is sent");
            let Caller::Met(met) = accepted(&listener, SHORT, &wanted(host), &Stop::default()) else {
                panic!("{host}")
            };
            assert_eq!((met.facts.as_str(), met.is_client), ("other", false));
        }
    }
}
