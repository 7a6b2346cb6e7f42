//! Event files: pipes whose records are those of the kernel's event files.
//!
//! The user holds the reading end and may close it at any time, or pass it on; the device holds the writing
//! end and knows a file by what it *is* (the number of its inode), since file descriptor numbers are used
//! again. What differs from the kernel: beyond 64 KiB of unread records new ones are lost.

use std::cell::Cell;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs_abi::write::{AsyncEventDesc, CompEventDesc};
use zerocopy::{FromBytes, IntoBytes};

/// What an event file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Events {
    Completion,
    Asynchronous,
}

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
    /// Whether there was ever a record.
    has_sent: Cell<bool>,
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
            has_sent: Cell::new(false),
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
    pub(super) fn completion(&self, user_handle: u64) {
        self.send(CompEventDesc { cq_handle: user_handle }.as_bytes());
    }

    /// Announces anything else.
    pub(super) fn asynchronous(&self, event_type: u32, element: u64) {
        self.send(AsyncEventDesc { element, event_type, reserved: 0 }.as_bytes());
    }

    fn send(&self, record: &[u8]) {
        // Asked first, since a write that nobody can read raises SIGPIPE; Rust programs ignore that signal,
        // but this library may be in another one.
        if let Some(writer) = self.writer.as_ref().filter(|_| self.is_open()) {
            // Records divide the pipe's capacity, so they are written whole or (EAGAIN) not at all.
            let _ = nix::unistd::write(writer, record);
            self.has_sent.set(true);
        }
    }

    /// Takes back what nobody has read of an object that is gone, by its user handle and the events that such objects have
    /// (`ib_uverbs_release_ucq` and `ib_uverbs_release_uevent`, uverbs_main.c, Linux 6.1).
    pub(super) fn take_back(&self, user_handle: u64, is_its: fn(u32) -> bool) {
        let Some(writer) = self.writer.as_ref().filter(|_| self.has_sent.get() && !cfg!(miri)) else {
            return;
        };
        // Without /proc they stay readable.
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let mut options = std::fs::File::options();
        let Ok(mut reader) = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path) else {
            return;
        };
        let (mut unread, size) = (Vec::new(), self.kind.size());
        // It ends with EAGAIN, and what was read till then is there.
        let _ = reader.read_to_end(&mut unread);
        let is_gone = |record: &[u8]| match self.kind {
            Events::Completion => {
                CompEventDesc::read_from_bytes(record).is_ok_and(|event| event.cq_handle == user_handle)
            }
            Events::Asynchronous => AsyncEventDesc::read_from_bytes(record)
                .is_ok_and(|event| event.element == user_handle && is_its(event.event_type)),
        };
        for record in unread.chunks(size).filter(|record| !is_gone(record)) {
            let _ = nix::unistd::write(writer, record);
        }
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
