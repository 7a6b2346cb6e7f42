//! A wire between two devices: sockets for datagrams, one frame each.
//!
//! The thread that holds the device never waits for the other side: one thread sends, and another receives. Between two of our devices,
//! their times are sent in the same way, from a socket beside the other: `PATH.clock`.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::lock;

/// Maximum number of frames that wait to be sent: several messages of many megabytes, and a limit for the memory of the process.
const UNDER_WAY: usize = 1 << 16;

/// The connection to the thread that sends.
#[derive(Clone, Debug)]
pub struct Line {
    sender: SyncSender<Sent>,
    other: Arc<Other>,
}

/// An item that waits to be sent.
#[derive(Debug)]
enum Sent {
    Frame(Vec<u8>),
    Time(Duration),
}

impl Line {
    /// Sends a frame to the other end. If there is no room, it is lost, as on a congested link. Returns whether there was room.
    pub fn send(&self, frame: Vec<u8>) -> bool {
        self.sender.try_send(Sent::Frame(frame)).is_ok()
    }

    /// Sends the time of this device to the other end, unless the last one still waits to be sent.
    pub fn tell(&self, time: Duration) {
        if !self.other.is_telling.swap(true, Ordering::AcqRel)
            && self.sender.try_send(Sent::Time(time)).is_err()
        {
            self.other.is_telling.store(false, Ordering::Release);
        }
    }

    /// The time to which the clock of this device may advance: a short time beyond what the other end has received and sent back, after
    /// everything that it sent before. There is no limit if the other end has no clock or is gone.
    pub fn until(&self) -> Duration {
        lock(&self.other.clock).until(Instant::now())
    }
}

/// The sockets of both ends, as in `PATH` or `PATH,PEER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    own: PathBuf,
    /// Without it, the other end is the one that sent last.
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

/// The other end, as all threads see it.
#[derive(Debug, Default)]
struct Other {
    /// The destination of frames.
    path: Mutex<Option<PathBuf>>,
    clock: Mutex<Clock>,
    /// A time waits to be sent.
    is_telling: AtomicBool,
}

/// The socket from which times are sent, beside the one for frames.
fn clock_of(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".clock");
    path.into()
}

fn bind(path: &Path) -> io::Result<UnixDatagram> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    UnixDatagram::bind(path)
}

/// Connects to the other end, whose frames are passed to `arrives`.
///
/// # Errors
/// If the own sockets cannot be created. The other ones may be created later.
pub fn connect(ends: &Ends, arrives: impl FnMut(&[u8]) + Send + 'static) -> io::Result<Line> {
    let socket = bind(&ends.own)?;
    let clock = bind(&clock_of(&ends.own))?;
    let sending = socket.try_clone()?;
    let (sender, waiting) = mpsc::sync_channel(UNDER_WAY);
    let other = Arc::new(Other { path: Mutex::new(ends.peer.clone()), ..Other::default() });
    let (to, from, learns) = (Arc::clone(&other), Arc::clone(&other), ends.peer.is_none());
    thread::spawn(move || send(&sending, &clock, &waiting, &to));
    thread::spawn(move || receive(&socket, arrives, &from, learns));
    Ok(Line { sender, other })
}

/// There may be no device at the other end, as on an unplugged wire: what is sent is lost.
fn send(frames: &UnixDatagram, clock: &UnixDatagram, waiting: &Receiver<Sent>, other: &Other) {
    for sent in waiting {
        let to = lock(&other.path).clone();
        match (sent, to) {
            (Sent::Frame(frame), Some(to)) => drop(frames.send_to(&frame, to)),
            (Sent::Frame(_), None) => {}
            (Sent::Time(time), to) => {
                other.is_telling.store(false, Ordering::Release);
                // Other programs would take it for a frame.
                if let Some(to) = to.filter(|to| clock_of(to).exists()) {
                    let message = lock(&other.clock).message(time);
                    drop(clock.send_to(&message, to));
                }
            }
        }
    }
}

fn receive(socket: &UnixDatagram, mut arrives: impl FnMut(&[u8]), other: &Other, learns: bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok((len, from)) = socket.recv_from(&mut buffer) {
        let from = from.as_pathname();
        if from.is_some_and(|from| from.extension() == Some("clock".as_ref())) {
            lock(&other.clock).hear(&buffer[..len], Instant::now());
            continue;
        }
        if let Some(from) = from.filter(|_| learns) {
            *lock(&other.path) = Some(from.to_owned());
        }
        arrives(&buffer[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_one_path_or_two() {
        let parsed = |own: &str, peer: Option<&str>| Ends { own: own.into(), peer: peer.map(Into::into) };
        assert_eq!("a".parse(), Ok(parsed("a", None)));
        assert_eq!("a,b".parse(), Ok(parsed("a", Some("b"))));
        for text in ["", ",", "a,", ",b"] {
            assert!(text.parse::<Ends>().is_err(), "{text}");
        }
    }

    /// Ends in a directory of their own, which is removed with the test.
    fn ends(name: &str) -> (PathBuf, Ends, Ends) {
        let directory = std::env::temp_dir().join(format!("vpci-wire-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let [one, two] = ["one", "two"].map(|name| directory.join(name));
        let first = Ends { own: one.clone(), peer: Some(two.clone()) };
        (directory, first, Ends { own: two, peer: Some(one) })
    }

    fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn time_stands_still_while_the_other_end_takes_no_frames() {
        let (directory, here, there) = ends("stands");
        let busy = Arc::new(Mutex::new(0));
        let works = Arc::clone(&busy);
        let here = connect(&here, |_| {}).unwrap();
        let there = connect(&there, move |_| *lock(&works) += 1).unwrap();
        let second = Duration::from_secs(1);
        let both_know = |time| {
            here.tell(time);
            there.tell(time);
            time < here.until() && here.until() < time + second
        };
        wait_until("each hears of the other", || both_know(second));

        // The other end is busy: what is sent now waits behind a frame.
        let held = lock(&busy);
        assert!(here.send(vec![1; 64]));
        for _ in 0..50 {
            here.tell(2 * second);
            there.tell(second);
            assert!(here.until() < 2 * second, "it has not come back");
            thread::sleep(Duration::from_millis(1));
        }
        drop(held);
        wait_until("it goes on", || both_know(2 * second));
        assert_eq!(*lock(&busy), 1);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn an_end_without_a_clock_is_told_nothing_and_is_no_limit() {
        let (directory, here, there) = ends("foreign");
        let foreign = UnixDatagram::bind(&there.own).unwrap();
        let here = connect(&here, |_| {}).unwrap();
        here.tell(Duration::from_secs(1));
        assert!(here.send(vec![7; 60]));
        let mut buffer = [0; 128];
        assert_eq!(foreign.recv(&mut buffer).unwrap(), 60, "the frame, and nothing before it");
        assert_eq!(here.until(), Duration::MAX);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
