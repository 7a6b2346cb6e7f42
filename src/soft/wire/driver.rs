//! The thread that drives a wire: it waits for datagrams and for timers, and handles them.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::socket::Socket;
use super::{LONGEST, Wire};
use crate::soft::state::State;

/// Number of datagrams that are handled together.
const BATCH: usize = 64;

/// The thread of a device. It ends with the device.
#[derive(Debug)]
pub(in crate::soft) struct Driver {
    socket: Arc<Socket>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Gives a device this socket, and starts its thread.
    pub(in crate::soft) fn start(state: &Arc<Mutex<State>>, socket: Socket) -> io::Result<Self> {
        let (socket, ends) = (Arc::new(socket), Arc::new(AtomicBool::new(false)));
        lock(state).connect_wire(Arc::clone(&socket));
        // The thread keeps the state, but not the device: what it keeps is free when it has been waited for.
        let (of, on, until) = (Arc::clone(state), Arc::clone(&socket), Arc::clone(&ends));
        let thread =
            thread::Builder::new().name("uverbs-wire".to_owned()).spawn(move || run(&of, &on, &until))?;
        Ok(Self { socket, ends, thread: Some(thread) })
    }

    /// Waits until the thread has ended.
    pub(in crate::soft) fn end(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.socket.wake();
        // It does not panic.
        self.thread.take().map(JoinHandle::join).and_then(Result::ok);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing panics under the lock. If it did, the state would still be usable.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One datagram, in a buffer that is used again.
struct Slot {
    bytes: Vec<u8>,
    from: Option<(usize, SocketAddr)>,
}

fn run(state: &Mutex<State>, socket: &Socket, ends: &AtomicBool) {
    let mut slots: Vec<_> = (0..BATCH).map(|_| Slot { bytes: vec![0; LONGEST], from: None }).collect();
    // How long the thread may wait, and whether it waits for room in the socket.
    let mut wait = Some((PollTimeout::NONE, false));
    while let Some((timeout, is_full)) = wait {
        let [datagrams, wake] = socket.descriptors();
        let room = if is_full { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut all =
            [PollFd::new(datagrams, PollFlags::POLLIN | room), PollFd::new(wake, PollFlags::POLLIN)];
        match poll(&mut all, timeout) {
            Ok(_) | Err(Errno::EINTR | Errno::EAGAIN | Errno::ENOMEM) => {}
            Err(_) => return,
        }
        if all[1].any() == Some(true) {
            socket.woken();
        }
        let mut count = 0;
        for slot in &mut slots {
            slot.from = socket.receive(&mut slot.bytes);
            if slot.from.is_none() {
                break;
            }
            count += 1;
        }
        if ends.load(Ordering::Acquire) {
            return;
        }
        let (mut state, now) = (lock(state), Instant::now());
        for slot in slots.iter().take(count) {
            let Some((len, from)) = slot.from else { continue };
            state.arrive_datagram(from, slot.bytes.get(..len).unwrap_or_default(), now);
        }
        state.after_arrivals(now);
        wait = state.wait();
    }
}

impl State {
    /// How long the driver may wait, and whether there is something to send.
    fn wait(&mut self) -> Option<(PollTimeout, bool)> {
        let wire = self.wire.as_mut()?;
        wire.waits_until = wire.due;
        let timeout = wire.due.map_or(PollTimeout::NONE, |due| {
            // Rounded up, so that the time has come when the thread wakes.
            let micros = due.saturating_duration_since(Instant::now()).as_micros();
            PollTimeout::try_from(micros.div_ceil(1000)).unwrap_or(PollTimeout::MAX)
        });
        Some((timeout, !wire.out.is_empty()))
    }

    /// Begins to use a wire.
    fn connect_wire(&mut self, socket: Arc<Socket>) {
        let profile = &self.profile;
        self.wire = Some(Wire::new(socket, profile.faults, profile.strict_checksums));
    }
}
