//! Event files: pipes whose records are those of the kernel's event files.
//!
//! The user holds the reading end and may close it at any time, or pass it on; the device holds the writing
//! end and knows a file by what it *is* (the number of its inode), since file descriptor numbers are used
//! again. What differs from the kernel: beyond 64 KiB of unread records new ones are lost.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs_abi::write::{AsyncEventDesc, CompEventDesc};
use zerocopy::IntoBytes;

use crate::kernel::process::Origin;

/// What an event file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Events {
    Completion,
    Asynchronous,
}

/// What an event is about, by the device's number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Cq(u32),
    Qp(u32),
    Srq(u32),
    Device,
}

/// Bytes that a pipe takes, unless somebody changes it.
const CAPACITY: usize = 64 << 10;

impl Events {
    /// Bytes of a record.
    const fn size(self) -> usize {
        match self {
            Self::Completion => size_of::<CompEventDesc>(),
            Self::Asynchronous => size_of::<AsyncEventDesc>(),
        }
    }
}

/// The device's end of an event file.
#[derive(Debug)]
pub(super) struct EventFile {
    /// The open file it belongs to.
    pub(super) file: u32,
    pub(super) kind: Events,
    /// The number that the reading end had at first: its handle.
    pub(super) number: RawFd,
    /// None when there will be no more events: a reader then finds the end of the file.
    writer: Option<OwnedFd>,
    inode: Option<(u64, u64)>,
    /// What the last records are about; the unread ones are at the end.
    sent: RefCell<VecDeque<About>>,
    /// A child of `fork` has a device of its own, and the same files.
    origin: Origin,
}

impl EventFile {
    /// A new event file, and the end of it that the user gets.
    pub(super) fn new(file: u32, kind: Events) -> Result<(Self, OwnedFd), Errno> {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let number = reader.as_raw_fd();
        let this = Self {
            file,
            kind,
            number,
            writer: Some(writer),
            inode: inode(number),
            sent: RefCell::default(),
            origin: Origin::here(),
        };
        Ok((this, reader))
    }

    /// Whether this number is a descriptor of this very file.
    pub(super) fn is(&self, number: RawFd) -> bool {
        match self.inode {
            Some(_) => inode(number) == self.inode,
            // No /proc, or Miri, whose descriptors are not the system's.
            None => number == self.number && self.is_open(),
        }
    }

    /// Whether anybody can still read it.
    pub(super) fn is_open(&self) -> bool {
        let Some(writer) = &self.writer else { return true };
        if cfg!(miri) {
            return true;
        }
        let mut fds = [PollFd::new(writer.as_fd(), PollFlags::empty())];
        // An error is none of the reader's making.
        let ready = poll(&mut fds, PollTimeout::ZERO).unwrap_or(0);
        ready == 0 || !fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
    }

    /// Announces a completion.
    pub(super) fn completion(&self, cq: u32, user_handle: u64) {
        self.send(About::Cq(cq), CompEventDesc { cq_handle: user_handle }.as_bytes());
    }

    /// Announces anything else.
    pub(super) fn asynchronous(&self, about: About, event_type: u32, element: u64) {
        self.send(about, AsyncEventDesc { element, event_type, reserved: 0 }.as_bytes());
    }

    fn send(&self, about: About, record: &[u8]) {
        // Asked first, since a write that nobody can read raises SIGPIPE; Rust programs ignore that signal,
        // but this library may be in another one.
        let Some(writer) = self.writer.as_ref().filter(|_| self.is_open()) else { return };
        // Records divide the pipe's capacity, so they are written whole or (EAGAIN) not at all.
        if nix::unistd::write(writer, record).is_ok() {
            let mut sent = self.sent.borrow_mut();
            // No more can be unread.
            if sent.len() == CAPACITY / self.kind.size() {
                sent.pop_front();
            }
            sent.push_back(about);
        }
    }

    /// Takes back what nobody has read of an object that is gone (`ib_uverbs_release_ucq` and `ib_uverbs_release_uevent`, uverbs_main.c,
    /// Linux 6.1).
    pub(super) fn take_back(&self, about: About) {
        let mut sent = self.sent.borrow_mut();
        let Some(writer) = self.writer.as_ref().filter(|_| sent.contains(&about)) else { return };
        if cfg!(miri) || !self.origin.is_here() {
            return;
        }
        // Without /proc they stay readable.
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let mut options = std::fs::File::options();
        let Ok(mut reader) = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path) else {
            return;
        };
        // All at once, beside whoever else reads.
        let mut unread = vec![0; CAPACITY];
        let len = reader.read(&mut unread).unwrap_or(0);
        let records = unread.get(..len).unwrap_or_default().chunks(self.kind.size());
        let are_read = sent.len().saturating_sub(records.len());
        sent.drain(..are_read);
        let mut left = VecDeque::new();
        for (record, whose) in records.zip(sent.iter().copied()) {
            if whose != about && nix::unistd::write(writer, record).is_ok() {
                left.push_back(whose);
            }
        }
        *sent = left;
    }

    /// Ends the file: whoever waits for it wakes up.
    pub(super) fn end(&mut self) {
        self.writer = None;
    }
}

/// Device and inode behind a descriptor.
fn inode(number: RawFd) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    if cfg!(miri) {
        return None;
    }
    let metadata = std::fs::metadata(format!("/proc/self/fd/{number}")).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
