//! Event files: pipes with the same records as the kernel's event files.
//!
//! The user holds the reading end and may close it at any time, or pass it on. The device holds the writing end, and identifies a file by
//! its inode, because file descriptor numbers are used again. The difference from the kernel: if 64 KiB of records are unread, new ones
//! are lost.

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

/// The kind of an event file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Events {
    Completion,
    Asynchronous,
}

/// The object of an event, by the device's number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Cq(u32),
    Qp(u32),
    Srq(u32),
    Device,
}

/// Capacity of a pipe in bytes, unless it was changed.
const CAPACITY: usize = 64 << 10;

impl Events {
    /// Size of a record in bytes.
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
    /// The open file to which it belongs.
    pub(super) file: u32,
    pub(super) kind: Events,
    /// The number that the reading end had at first, which is its handle.
    pub(super) number: RawFd,
    /// `None` if there will be no more events: a reader then finds the end of the file.
    writer: Option<OwnedFd>,
    inode: Option<(u64, u64)>,
    /// The objects of the last records; the unread ones are at the end.
    sent: RefCell<VecDeque<About>>,
    /// A child of `fork` has its own device, and the same files.
    origin: Origin,
}

impl EventFile {
    /// A new event file, and the end of it for the user.
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

    /// Whether this number is a descriptor of this file.
    pub(super) fn is(&self, number: RawFd) -> bool {
        match self.inode {
            Some(_) => inode(number) == self.inode,
            // Without /proc, or under Miri, whose descriptors are not the system's.
            None => number == self.number && self.is_open(),
        }
    }

    /// Whether the reading end is still open.
    pub(super) fn is_open(&self) -> bool {
        let Some(writer) = &self.writer else { return true };
        if cfg!(miri) {
            return true;
        }
        let mut fds = [PollFd::new(writer.as_fd(), PollFlags::empty())];
        // The reader does not cause an error here.
        let ready = poll(&mut fds, PollTimeout::ZERO).unwrap_or(0);
        ready == 0 || !fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
    }

    /// Announces a completion.
    pub(super) fn completion(&self, cq: u32, user_handle: u64) {
        self.send(About::Cq(cq), CompEventDesc { cq_handle: user_handle }.as_bytes());
    }

    /// Reports any other event.
    pub(super) fn asynchronous(&self, about: About, event_type: u32, element: u64) {
        self.send(about, AsyncEventDesc { element, event_type, reserved: 0 }.as_bytes());
    }

    fn send(&self, about: About, record: &[u8]) {
        // Checked first, because a write to a closed pipe raises SIGPIPE. Rust programs ignore that signal, but other programs may use
        // this library.
        let Some(writer) = self.writer.as_ref().filter(|_| self.is_open()) else { return };
        // The capacity of the pipe is a multiple of the record size, so records are written completely or (EAGAIN) not at all.
        if nix::unistd::write(writer, record).is_ok() {
            let mut sent = self.sent.borrow_mut();
            // No more records can be unread.
            if sent.len() == CAPACITY / self.kind.size() {
                sent.pop_front();
            }
            sent.push_back(about);
        }
    }

    /// Removes the unread events of an object that is destroyed (`ib_uverbs_release_ucq` and `ib_uverbs_release_uevent`, uverbs_main.c,
    /// Linux 6.1).
    pub(super) fn take_back(&self, about: About) {
        let mut sent = self.sent.borrow_mut();
        let Some(writer) = self.writer.as_ref().filter(|_| sent.contains(&about)) else { return };
        if cfg!(miri) || !self.origin.is_here() {
            return;
        }
        // Without /proc they remain readable.
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let mut options = std::fs::File::options();
        let Ok(mut reader) = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path) else {
            return;
        };
        // All at once, because others may read at the same time.
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

    /// Ends the file, which wakes waiting readers.
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
