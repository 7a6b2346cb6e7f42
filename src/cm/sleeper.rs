//! A thread that sleeps until something happens to its call.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Wake;
use std::thread::Thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::kernel::error::{Error, Result};
use crate::kernel::process::Origin;

/// One for each thread, so that its waker is the same in all calls: who keeps wakers keeps one of each thread.
#[derive(Debug)]
pub(super) struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
    /// Readable when the thread is woken, for a thread that sleeps on files.
    file: OnceLock<EventFd>,
    /// A child of `fork` shares the file with its parent.
    origin: Origin,
}

thread_local! {
    static SLEEPER: RefCell<Option<Arc<Sleeper>>> = const { RefCell::new(None) };
}

impl Sleeper {
    /// That of this thread.
    pub(super) fn here() -> Arc<Self> {
        let new = || {
            let (thread, is_woken) = (std::thread::current(), AtomicBool::new(false));
            Arc::new(Self { thread, is_woken, file: OnceLock::new(), origin: Origin::here() })
        };
        // A thread that ends has none any more.
        let known = SLEEPER.try_with(|known| {
            let mut known = known.try_borrow_mut().ok()?;
            let is_here = known.as_ref().is_some_and(|known| known.origin.is_here());
            Some(if is_here { known.clone()? } else { known.insert(new()).clone() })
        });
        known.ok().flatten().unwrap_or_else(new)
    }

    /// Begins a round: what wakes it from now on counts.
    pub(super) fn begin(&self) {
        if self.is_woken.swap(false, Ordering::Relaxed) {
            self.clear();
        }
    }

    /// Empties the file. It may be written after the flag was seen, so a sleeper that finds it readable empties it too.
    pub(super) fn clear(&self) {
        if let Some(file) = self.file.get() {
            // An empty file is not an error.
            let _ = file.read();
        }
    }

    pub(super) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::Acquire)
    }

    /// The file, if there is one.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.get().map(AsFd::as_fd)
    }

    /// Makes the file. Whoever was given the waker before may not see it: give it again.
    pub(super) fn make_file(&self, op: &'static str) -> Result<()> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let file = EventFd::from_flags(flags).map_err(|errno: Errno| Error::kernel(op, errno))?;
        // Only this thread sets it.
        let _ = self.file.set(file);
        Ok(())
    }

    /// Sleeps until it is woken, or so long.
    pub(super) fn sleep(&self, left: Option<Duration>) {
        if !self.is_woken() {
            match left {
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        if let Some(file) = self.file.get() {
            // A file that is full is readable.
            let _ = file.write(1);
        }
        self.thread.unpark();
    }
}
