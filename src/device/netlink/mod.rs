//! RDMA netlink: requests about devices and their answers, as bytes.

mod discovery;
mod exchange;
#[cfg(all(test, not(miri)))]
pub(super) mod testing;

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, NetlinkAddr, SockFlag, SockProtocol, SockType, recvmmsg, sendto,
    socket,
};
use uverbs_abi::netlink::{self as nl, NlAttr, NlMsgHdr};
use zerocopy::{FromBytes, IntoBytes};

pub(super) use self::discovery::{device_at, devices};
pub(super) use self::exchange::{Ask, Exchange};
use crate::kernel::error::{Error, Result};

/// Room for one datagram of answers: the kernel fills at most a page, or 8 KiB if pages are larger, or the size of the last receive call
/// if that is more (netlink_dump and `NLMSG_GOODSIZE`, Linux 6.1).
pub(in crate::device) const ROOM: usize = if cfg!(target_arch = "x86_64") { 4096 } else { 8192 };

/// Room for one datagram of a long list: the kernel fills as much as the last receive call requested, and at most this (netlink_recvmsg,
/// Linux 6.1). Only in this way does it return data that does not fit into a page, such as a counter with a thousand queue pairs.
pub(in crate::device) const LONG: usize = 32 << 10;

/// Answers requests: the kernel, or a test.
pub(in crate::device) trait Link {
    /// Sends one datagram, of one or more requests.
    fn send(&mut self, datagram: &[u8]) -> Result<(), Errno>;

    /// Receives as many datagrams of answers as there are and fit. Returns the length of each, which may exceed the room.
    fn receive(&mut self, rooms: &mut [[u8; ROOM]]) -> Result<Vec<usize>, Errno>;
}

/// A socket of the RDMA family.
#[derive(Debug)]
pub(in crate::device) struct Socket(OwnedFd);

impl Socket {
    pub(in crate::device) fn open(op: &'static str) -> Result<Self> {
        let fd =
            socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRDMA);
        fd.map(Self).map_err(|errno| Error::kernel(op, errno))
    }
}

impl Link for Socket {
    fn send(&mut self, datagram: &[u8]) -> Result<(), Errno> {
        let kernel = NetlinkAddr::new(0, 0);
        sendto(self.0.as_raw_fd(), datagram, &kernel, MsgFlags::empty()).map(drop)
    }

    fn receive(&mut self, rooms: &mut [[u8; ROOM]]) -> Result<Vec<usize>, Errno> {
        // The kernel answers during the request (netlink_unicast_kernel, af_netlink.c, Linux 6.1), and continues a list while it is
        // received (netlink_recvmsg). Waiting is therefore never necessary, and a sandbox that accepts a request and never answers causes
        // no delay.
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let mut headers = MultiHeaders::<()>::preallocate(rooms.len(), None);
        let mut slices: Vec<_> = rooms.iter_mut().map(|room| [IoSliceMut::new(room)]).collect();
        let taken = recvmmsg(self.0.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)?;
        Ok(taken.map(|datagram| datagram.bytes).collect())
    }
}

/// The body of an error message: a negative errno, or zero for an acknowledgement.
fn acknowledged(op: &'static str, body: &[u8]) -> Result<()> {
    match body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(code) => Err(Error::kernel(op, Errno::from_raw(code.saturating_neg()))),
        None => Err(Error::malformed(op, "an error message cut short")),
    }
}

/// The messages of a batch: header and body. A truncated message is left over.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (NlMsgHdr, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, _) = NlMsgHdr::read_from_prefix(self.0).ok()?;
        let len = usize::try_from(header.nlmsg_len).ok()?;
        let body = self.0.get(size_of::<NlMsgHdr>()..len)?;
        self.0 = self.0.get(len.next_multiple_of(nl::ALIGN)..).unwrap_or_default();
        Some((header, body))
    }
}

/// The attributes of a message: number and value.
pub(in crate::device) struct Attributes<'a>(pub(in crate::device) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, _) = NlAttr::read_from_prefix(self.0).ok()?;
        let len = usize::from(header.nla_len);
        let value = self.0.get(size_of::<NlAttr>()..len)?;
        self.0 = self.0.get(len.next_multiple_of(nl::ALIGN)..).unwrap_or_default();
        Some((header.nla_type & nl::NLA_TYPE_MASK, value))
    }
}

/// One attribute in the form in which it is sent.
pub(in crate::device) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, kind, value);
    bytes
}

/// Appends one attribute.
pub(in crate::device) fn put(request: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let header = NlAttr { nla_len: (size_of::<NlAttr>() + value.len()) as u16, nla_type: kind };
    request.extend_from_slice(header.as_bytes());
    request.extend_from_slice(value);
    request.resize(request.len().next_multiple_of(nl::ALIGN), 0);
}

pub(in crate::device) fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

pub(in crate::device) fn wide(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// The bytes of a string without the terminating NUL.
pub(in crate::device) fn until_nul(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}

pub(in crate::device) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(until_nul(value)).into_owned()
}

/// The head of a request with a body of `body` bytes.
fn head(body: usize, command: u16, flags: u16, sequence: u32) -> NlMsgHdr {
    NlMsgHdr {
        nlmsg_len: (size_of::<NlMsgHdr>() + body) as u32,
        nlmsg_type: nl::nldev(command),
        nlmsg_flags: nl::FLAG_REQUEST | flags,
        nlmsg_seq: sequence,
        nlmsg_pid: 0,
    }
}
