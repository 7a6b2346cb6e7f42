//! The thread that drives a wire: it waits for datagrams and for timers, and handles them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Wire;
use super::socket::{Arrived, Socket};
use crate::soft::queues::Armed;
use crate::soft::state::State;

/// Number of reads that are handled together.
const BATCH: usize = 16;
/// The longest read: several datagrams that arrive together.
const LONGEST: usize = 1 << 16;
/// For so long after a poll of the program, the thread leaves the socket to its polls.
const POLLED: Duration = Duration::from_millis(1);

/// Room for a read, which is used again.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    control: Vec<u8>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { bytes: Vec::new(), control: nix::cmsg_space!(i32) }
    }
}

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

/// What the thread waits for, beside being woken.
#[derive(Debug)]
struct Wait {
    timeout: PollTimeout,
    /// Datagrams, and room for more.
    events: PollFlags,
}

fn run(state: &Mutex<State>, socket: &Socket, ends: &AtomicBool) {
    let mut wait = Wait { timeout: PollTimeout::NONE, events: PollFlags::POLLIN };
    loop {
        let [datagrams, wake] = socket.descriptors();
        let mut all = [PollFd::new(wake, PollFlags::POLLIN), PollFd::new(datagrams, wait.events)];
        // A socket that is left to the program is not watched.
        let watched = if wait.events.is_empty() { 1 } else { 2 };
        match poll(&mut all[..watched], wait.timeout) {
            Ok(_) | Err(Errno::EINTR | Errno::EAGAIN | Errno::ENOMEM) => {}
            Err(_) => return,
        }
        if all[0].any() == Some(true) {
            socket.woken();
        }
        if ends.load(Ordering::Acquire) {
            return;
        }
        let mut state = lock(state);
        let now = Instant::now();
        let is_left = state.wire.as_ref().is_some_and(|wire| wire.is_polled(now));
        let has_more = !is_left && state.handle_arrivals(now);
        state.after_arrivals(now);
        match state.wait(has_more) {
            Some(next) => wait = next,
            None => return,
        }
    }
}

impl Wire {
    /// Whether the program has polled a moment ago.
    fn is_polled(&self, now: Instant) -> bool {
        self.polled.is_some_and(|polled| now.saturating_duration_since(polled) < POLLED)
    }
}

impl State {
    /// Handles what has arrived. True if there may be more.
    fn handle_arrivals(&mut self, now: Instant) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        let (socket, mut inbox) = (Arc::clone(&wire.socket), std::mem::take(&mut wire.inbox));
        inbox.bytes.resize(LONGEST, 0);
        let mut count = 0;
        while count < BATCH
            && let Some(Arrived { len, each, from }) = socket.receive(&mut inbox.bytes, &mut inbox.control)
        {
            count += 1;
            if len == 0 {
                self.arrive_datagram(from, &[], 0, now);
            }
            for (place, bytes) in inbox.bytes.get(..len).unwrap_or_default().chunks(each).enumerate() {
                self.arrive_datagram(from, bytes, place, now);
            }
        }
        if let Some(wire) = &mut self.wire {
            wire.inbox = inbox;
            wire.has_arrivals |= count > 0;
        }
        count == BATCH
    }

    /// A poll of the program has found nothing: handles what has arrived and what is due. True if there was something.
    pub(in crate::soft) fn progress(&mut self) -> bool {
        let now = Instant::now();
        self.handle_arrivals(now);
        let Some(wire) = &mut self.wire else { return false };
        // A program that has asked for an event may wait for it next. None was asked for since a poll that was noted (`watch_again`), so the
        // queues need not be looked through again.
        if wire.polled.is_some() || self.cqs.values().all(|cq| cq.armed == Armed::No) {
            wire.polled = Some(now);
        }
        let is_due = wire.due.is_some_and(|due| due <= now);
        let has_work = wire.has_arrivals || is_due || wire.is_busy || !wire.out.is_empty();
        if has_work {
            self.after_arrivals(now);
        }
        has_work
    }

    /// The program has asked for an event, and may poll no more.
    pub(in crate::soft) fn watch_again(&mut self) {
        if let Some(wire) = &mut self.wire
            && wire.polled.take().is_some()
        {
            wire.socket.wake();
        }
    }

    /// What the driver waits for next.
    fn wait(&mut self, has_more: bool) -> Option<Wait> {
        let now = Instant::now();
        let wire = self.wire.as_mut()?;
        let room = if wire.out.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
        let events = PollFlags::POLLIN | room;
        if wire.is_polled(now) {
            wire.waits_until = Some(now + POLLED);
            let timeout = PollTimeout::try_from(POLLED).unwrap_or(PollTimeout::ZERO);
            return Some(Wait { timeout, events: PollFlags::empty() });
        }
        if wire.is_busy || has_more {
            return Some(Wait { timeout: PollTimeout::ZERO, events });
        }
        wire.waits_until = wire.due;
        let timeout = wire.due.map_or(PollTimeout::NONE, |due| {
            // Rounded up, so that the time has come when the thread wakes.
            let micros = due.saturating_duration_since(now).as_micros();
            PollTimeout::try_from(micros.div_ceil(1000)).unwrap_or(PollTimeout::MAX)
        });
        Some(Wait { timeout, events })
    }

    /// Begins to use a wire.
    fn connect_wire(&mut self, socket: Arc<Socket>) {
        self.wire = Some(Wire::new(socket, &self.profile));
    }
}
