//! The wire behind the port: frames that leave the device, and where they go.
//!
//! Two cards are connected by sockets for datagrams, one frame each. Whoever holds the device never waits for the other side: a
//! thread sends, and another receives.

mod mishaps;

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

pub(crate) use self::mishaps::{Mishap, Mishaps};
use crate::server::{Shared, lock};

/// Frames that were sent and are kept for the control line.
const SENT_KEPT: usize = 4096;

/// Frames that wait to be sent at most: some messages of many megabytes, and a bound for what the process takes.
const UNDER_WAY: usize = 1 << 16;

/// The wire, as the device sees it.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// Frames come back that were sent.
    pub(crate) is_loop: bool,
    pub(crate) sent: VecDeque<Vec<u8>>,
    /// What happens on the way to packets of the connected transports.
    pub(crate) mishaps: Mishaps,
    /// To the thread that sends, if there is another end.
    line: Option<SyncSender<Vec<u8>>>,
}

impl Wire {
    /// Sends a frame to the other end, if there is one.
    pub(crate) fn send(&self, frame: &[u8]) {
        if let Some(line) = &self.line {
            // It is lost where there is no room, as on a way that is too narrow.
            drop(line.try_send(frame.to_vec()));
        }
    }

    /// Keeps a frame for the control line.
    pub(crate) fn keep(&mut self, frame: Vec<u8>) {
        if self.sent.len() == SENT_KEPT {
            self.sent.pop_front();
        }
        self.sent.push_back(frame);
    }
}

/// The sockets of both ends, as in `PATH` or `PATH,PEER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
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

fn peer(peer: &Peer) -> std::sync::MutexGuard<'_, Option<PathBuf>> {
    peer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects a device to the other end.
///
/// # Errors
/// When its own socket cannot be made. The other one may come later.
pub(crate) fn connect(ends: &Ends, device: &Shared) -> io::Result<()> {
    if ends.own.exists() {
        std::fs::remove_file(&ends.own)?;
    }
    let socket = UnixDatagram::bind(&ends.own)?;
    let sending = socket.try_clone()?;
    let (line, frames) = mpsc::sync_channel(UNDER_WAY);
    lock(device).wire.line = Some(line);
    let other = Arc::new(Mutex::new(ends.peer.clone()));
    let (to, learns) = (Arc::clone(&other), ends.peer.is_none());
    thread::spawn(move || send(&sending, &frames, &to));
    let device = Shared::clone(device);
    thread::spawn(move || {
        receive(&socket, &device, |from| {
            if learns {
                *peer(&other) = Some(from.to_owned());
            }
        })
    });
    Ok(())
}

fn send(socket: &UnixDatagram, frames: &Receiver<Vec<u8>>, to: &Peer) {
    for frame in frames {
        let to = peer(to).clone();
        // Nobody at the other end, as on a wire that is not plugged in.
        let _ = to.map(|to| socket.send_to(&frame, to));
    }
}

fn receive(socket: &UnixDatagram, device: &Shared, mut comes_from: impl FnMut(&Path)) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok((len, from)) = socket.recv_from(&mut buffer) {
        if let Some(from) = from.as_pathname() {
            comes_from(from);
        }
        lock(device).frame_arrives(&buffer[..len]);
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
