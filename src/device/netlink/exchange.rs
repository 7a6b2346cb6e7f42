//! One request and its answers, in buffers that are used again.

use std::fmt::Debug;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use uverbs_abi::netlink::{self as nl, NlMsgHdr, attr, op};
use zerocopy::{FromBytes, IntoBytes};

use super::{Link, Messages, Socket, acknowledged, head, put};
use crate::kernel::error::{Error, Result};
use crate::kernel::process::Origin;

/// Answers requests: the kernel, or a test.
pub(in crate::device) trait Line: Debug + Send + Sync {
    /// Sends a request.
    fn send(&mut self, datagram: &[u8]) -> Result<(), Errno>;

    /// Receives one datagram of answers, and returns its length, which may exceed the room.
    fn take(&mut self, room: &mut [u8]) -> Result<usize, Errno>;

    /// Replaces itself by a new one without pending answers.
    fn renew(&mut self, op: &'static str) -> Result<()>;
}

impl Line for Socket {
    fn send(&mut self, datagram: &[u8]) -> Result<(), Errno> {
        Link::send(self, datagram)
    }

    fn take(&mut self, room: &mut [u8]) -> Result<usize, Errno> {
        // This does not wait: see `receive`.
        recv(self.0.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC)
    }

    fn renew(&mut self, op: &'static str) -> Result<()> {
        *self = Self::open(op)?;
        Ok(())
    }
}

/// An attribute of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::device) enum Ask<'a> {
    Number(u16, u32),
    Byte(u16, u8),
    /// A table of numbers: its attribute, and the attribute of each number.
    Table(u16, u16, &'a [u32]),
}

/// Requests and their answers, one at a time.
///
/// A child of `fork` would receive its parent's answers from the socket that both have, so it gets its own.
#[derive(Debug)]
pub(in crate::device) struct Exchange {
    line: Box<dyn Line>,
    origin: Origin,
    /// The last list was not received completely: the kernel refuses another one on this socket until it is (EBUSY,
    /// `__netlink_dump_start`, af_netlink.c, Linux 6.1).
    is_midway: bool,
    /// The number of the last request.
    sequence: u32,
    request: Vec<u8>,
    room: Vec<u8>,
}

impl Exchange {
    /// An exchange with the kernel. An answer may have `room` bytes.
    pub(in crate::device) fn open(op: &'static str, room: usize) -> Result<Self> {
        Ok(Self::new(Socket::open(op)?, room))
    }

    pub(in crate::device) fn new(line: impl Line + 'static, room: usize) -> Self {
        let request = Vec::with_capacity(128);
        Self {
            line: Box::new(line),
            origin: Origin::here(),
            is_midway: false,
            sequence: 0,
            request,
            room: vec![0; room],
        }
    }

    /// Requests one item, and passes the attributes of the answer to `take`.
    pub(in crate::device) fn one(
        &mut self,
        op: &'static str,
        command: u16,
        attributes: &[Ask<'_>],
        take: impl FnMut(&[u8]),
    ) -> Result<()> {
        self.exchange(op, command, 0, attributes, take)
    }

    /// Requests a list, and passes the attributes of each message to `take`.
    pub(in crate::device) fn list(
        &mut self,
        op: &'static str,
        command: u16,
        attributes: &[Ask<'_>],
        take: impl FnMut(&[u8]),
    ) -> Result<()> {
        self.exchange(op, command, nl::FLAG_DUMP, attributes, take)
    }

    /// Whether there is a device with this index (`nldev_get_doit`); `None` if there is no answer.
    pub(in crate::device) fn has_device(&mut self, op: &'static str, index: u32) -> Option<bool> {
        match self.one(op, op::GET, &[Ask::Number(attr::DEV_INDEX, index)], |_| {}) {
            Ok(()) => Some(true),
            Err(error) if error.errno() == Some(Errno::EINVAL as i32) => Some(false),
            Err(_) => None,
        }
    }

    /// Explains EINVAL for a request about a port: the device was removed, it has no such port (`rdma_is_port_valid`), or the reason that
    /// `otherwise` gives. The kernel returns the same errno in all of these cases.
    pub(in crate::device) fn explain(
        &mut self,
        error: Error,
        index: u32,
        port: Option<u32>,
        otherwise: impl FnOnce(Error) -> Error,
    ) -> Error {
        let op = error.op();
        if error.errno() != Some(Errno::EINVAL as i32) {
            return otherwise(error);
        }
        if self.has_device(op, index) == Some(false) {
            return Error::device_gone(op);
        }
        if let Some(port) = port {
            let ask = [Ask::Number(attr::DEV_INDEX, index), Ask::Number(attr::PORT_INDEX, port)];
            if self.one(op, op::PORT_GET, &ask, |_| {}).is_err() {
                return error.not_found(format!("the device has no port {port}"));
            }
        }
        otherwise(error)
    }

    fn exchange(
        &mut self,
        op: &'static str,
        command: u16,
        flags: u16,
        attributes: &[Ask<'_>],
        mut take: impl FnMut(&[u8]),
    ) -> Result<()> {
        if self.is_midway || !self.origin.is_here() {
            self.line.renew(op)?;
            self.origin = Origin::here();
        }
        self.is_midway = flags & nl::FLAG_DUMP != 0;
        self.sequence = self.sequence.wrapping_add(1);
        self.write(command, flags, attributes);
        let refused = |errno| Error::kernel(op, errno);
        self.line.send(&self.request).map_err(refused)?;
        loop {
            let len = self.line.take(&mut self.room).map_err(refused)?;
            let whole = self.room.get(..len);
            let mut messages = Messages(whole.unwrap_or(&self.room));
            for (header, body) in &mut messages {
                // Other answers are to an earlier request that was abandoned.
                if header.nlmsg_seq != self.sequence {
                    continue;
                }
                self.is_midway &= !matches!(header.nlmsg_type, nl::MSG_DONE | nl::MSG_ERROR);
                match header.nlmsg_type {
                    // The end of a list contains an errno too (netlink_dump_done, af_netlink.c, Linux 6.1).
                    nl::MSG_DONE if body.is_empty() => return Ok(()),
                    nl::MSG_DONE | nl::MSG_ERROR => return acknowledged(op, body),
                    nl::MSG_NOOP => {}
                    _ => {
                        take(body);
                        if flags & nl::FLAG_DUMP == 0 {
                            return Ok(());
                        }
                    }
                }
            }
            let rest = NlMsgHdr::read_from_prefix(messages.0);
            if whole.is_none() || rest.is_ok_and(|(header, _)| header.nlmsg_seq == self.sequence) {
                return Err(Error::malformed(op, "an answer that is cut short"));
            }
        }
    }

    fn write(&mut self, command: u16, flags: u16, attributes: &[Ask<'_>]) {
        let request = &mut self.request;
        request.clear();
        request.resize(size_of::<NlMsgHdr>(), 0);
        for attribute in attributes {
            match *attribute {
                Ask::Number(kind, value) => put(request, kind, &value.to_ne_bytes()),
                Ask::Byte(kind, value) => put(request, kind, &[value]),
                Ask::Table(kind, inner, values) => {
                    let at = request.len();
                    put(request, kind | nl::NLA_F_NESTED, &[]);
                    values.iter().for_each(|value| put(request, inner, &value.to_ne_bytes()));
                    let len = (request.len() - at) as u16;
                    request[at..at + size_of_val(&len)].copy_from_slice(&len.to_ne_bytes());
                }
            }
        }
        let body = request.len() - size_of::<NlMsgHdr>();
        let header = head(body, command, flags, self.sequence);
        request[..size_of::<NlMsgHdr>()].copy_from_slice(header.as_bytes());
    }
}
