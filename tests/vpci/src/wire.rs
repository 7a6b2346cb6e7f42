//! A wire between two devices: sockets for datagrams, one frame each.
//!
//! Whoever holds the device never waits for the other side: a thread sends, and another receives.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Frames that wait to be sent at most: some messages of many megabytes, and a bound for what the process takes.
const UNDER_WAY: usize = 1 << 16;

/// The way to the thread that sends.
#[derive(Clone, Debug)]
pub struct Line(SyncSender<Vec<u8>>);

impl Line {
    /// Sends a frame to the other end. It is lost where there is no room, as on a way that is too narrow; says whether there was.
    pub fn send(&self, frame: Vec<u8>) -> bool {
        self.0.try_send(frame).is_ok()
    }
}

/// The sockets of both ends, as in `PATH` or `PATH,PEER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    own: PathBuf,
    /// Without it the other end is the one that has sent last.
    peer: Option<PathBuf>,
}

impl FromStr for Ends {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (own, peer) = text.split_once(',').map_or((text, None), |(own, peer)| (own, Some(peer)));
        if own.is_empty() || peer.is_some_and(str::is_empty) {
            return Err("PATH or PATH,PEER is wanted".to_owned());
        }
        Ok(Self { own: own.into(), peer: peer.map(Into::into) })
    }
}

/// Where frames go, as both threads know it.
type Peer = Arc<Mutex<Option<PathBuf>>>;

fn peer(peer: &Peer) -> MutexGuard<'_, Option<PathBuf>> {
    peer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to the other end, whose frames are handed to `arrives`.
///
/// # Errors
/// When the own socket cannot be made. The other one may come later.
pub fn connect(ends: &Ends, arrives: impl FnMut(&[u8]) + Send + 'static) -> io::Result<Line> {
    if ends.own.exists() {
        std::fs::remove_file(&ends.own)?;
    }
    let socket = UnixDatagram::bind(&ends.own)?;
    let sending = socket.try_clone()?;
    let (line, frames) = mpsc::sync_channel(UNDER_WAY);
    let other = Arc::new(Mutex::new(ends.peer.clone()));
    let (to, learns) = (Arc::clone(&other), ends.peer.is_none());
    thread::spawn(move || send(&sending, &frames, &to));
    thread::spawn(move || {
        receive(&socket, arrives, |from| {
            if learns {
                *peer(&other) = Some(from.to_owned());
            }
        })
    });
    Ok(Line(line))
}

fn send(socket: &UnixDatagram, frames: &Receiver<Vec<u8>>, to: &Peer) {
    for frame in frames {
        let to = peer(to).clone();
        // Nobody at the other end, as on a wire that is not plugged in.
        let _ = to.map(|to| socket.send_to(&frame, to));
    }
}

fn receive(socket: &UnixDatagram, mut arrives: impl FnMut(&[u8]), mut comes_from: impl FnMut(&Path)) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok((len, from)) = socket.recv_from(&mut buffer) {
        if let Some(from) = from.as_pathname() {
            comes_from(from);
        }
        arrives(&buffer[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_one_path_or_two() {
        let ends = |own: &str, peer: Option<&str>| Ends { own: own.into(), peer: peer.map(Into::into) };
        assert_eq!("a".parse(), Ok(ends("a", None)));
        assert_eq!("a,b".parse(), Ok(ends("a", Some("b"))));
        for text in ["", ",", "a,", ",b"] {
            assert!(text.parse::<Ends>().is_err(), "{text}");
        }
    }
}
