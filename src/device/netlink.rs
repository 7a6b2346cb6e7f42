//! Discovery by RDMA netlink: `nldev_get_dumpit`, `nldev_get_chardev` (nldev.c, Linux 6.1). What it does not tell of a
//! device is looked for in sysfs.

use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use uverbs_abi::netlink::{self as nl, NlAttr, NlMsgHdr, attr, op};
use uverbs_abi::types::driver_id;
use zerocopy::{FromBytes, IntoBytes};

use super::{Device, Interface, Node, sysfs};
use crate::error::{Error, Result};

const OP: &str = "device.list";

/// Room for one batch of answers: the kernel fills at most this, or what was last asked for if that is more
/// (netlink_dump and `NLMSG_GOODSIZE`, Linux 6.1).
const BATCH: usize = 8 * 1024;

/// Every device that has a uverbs node.
pub(super) fn devices(link: impl Link, root: &Path) -> Result<Vec<Device>> {
    let mut link = Conversation { link, sequence: 0, batch: vec![0; BATCH] };
    let mut found = Vec::new();
    link.request(op::GET, nl::FLAG_DUMP, &[], |message| found.push(device(message)))?;
    let mut devices = Vec::new();
    for (index, mut device) in found {
        // The name becomes a part of a path.
        let (Some(index), true) = (index, is_name(&device.name)) else {
            return Err(Error::malformed(OP, "a device without index or name"));
        };
        let mut chardev = None;
        let mut query = attribute(attr::DEV_INDEX, &index.to_ne_bytes());
        query.extend(attribute(attr::CHARDEV_TYPE, b"uverbs\0"));
        let asked = link.request(op::GET_CHARDEV, 0, &query, |message| chardev = node(message));
        // A device without a uverbs node (module not loaded, other namespace) cannot be opened: no entry.
        let Some((node, abi, driver)) =
            chardev.filter(|_| asked.is_ok()).or_else(|| sysfs::node(root, &device.name))
        else {
            continue;
        };
        let path = root.join("class/infiniband").join(&device.name);
        device.driver_id = match driver {
            driver_id::UNKNOWN => sysfs::driver(root, &device.name, &node),
            known => known,
        };
        device.node = Node::File(Path::new("/dev/infiniband").join(node));
        device.abi_version = abi;
        let query = attribute(attr::DEV_INDEX, &index.to_ne_bytes());
        let asked = link.request(op::PORT_GET, nl::FLAG_DUMP, &query, |message| {
            device.interfaces.extend(interface(message));
        });
        if asked.is_err() {
            device.interfaces = sysfs::interfaces(&path);
        }
        device.sysfs = Some(path);
        devices.push(device);
    }
    Ok(devices)
}

/// Whether it may be a part of a path.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}

/// A device out of an answer to `GET`.
fn device(message: &[u8]) -> (Option<u32>, Device) {
    let mut device = Device {
        name: String::new(),
        index: None,
        node: Node::File(Path::new("").into()),
        driver_id: 0,
        abi_version: 0,
        node_guid: 0,
        sys_image_guid: 0,
        firmware: String::new(),
        node_type: 0,
        protocol: None,
        ports: 0,
        interfaces: Vec::new(),
        sysfs: None,
    };
    for (kind, value) in Attributes(message) {
        match kind {
            attr::DEV_INDEX => device.index = number(value),
            attr::DEV_NAME => device.name = text(value),
            attr::PORT_INDEX => device.ports = number(value).unwrap_or(0),
            attr::FW_VERSION => device.firmware = text(value),
            attr::NODE_GUID => device.node_guid = wide(value).unwrap_or(0),
            attr::SYS_IMAGE_GUID => device.sys_image_guid = wide(value).unwrap_or(0),
            attr::DEV_NODE_TYPE => device.node_type = value.first().copied().unwrap_or(0),
            attr::DEV_PROTOCOL => device.protocol = Some(text(value)),
            _ => {}
        }
    }
    (device.index, device)
}

/// Name, ABI version and driver out of an answer to `GET_CHARDEV`. Kernels before 5.1 do not tell the driver.
fn node(message: &[u8]) -> Option<(String, u32, u32)> {
    let (mut name, mut abi, mut driver) = (None, None, driver_id::UNKNOWN);
    for (kind, value) in Attributes(message) {
        match kind {
            attr::CHARDEV_NAME => name = Some(text(value)),
            attr::CHARDEV_ABI => abi = wide(value).and_then(|abi| u32::try_from(abi).ok()),
            attr::UVERBS_DRIVER_ID => driver = number(value).unwrap_or(driver_id::UNKNOWN),
            _ => {}
        }
    }
    Some((name.filter(|name| is_name(name))?, abi?, driver))
}

/// Port and network interface out of an answer to `PORT_GET`.
fn interface(message: &[u8]) -> Option<Interface> {
    let (mut port, mut name) = (None, None);
    for (kind, value) in Attributes(message) {
        match kind {
            attr::PORT_INDEX => port = number(value),
            attr::NDEV_NAME => name = Some(text(value)),
            _ => {}
        }
    }
    Some(Interface { port: port?, name: name? })
}

/// What answers requests: the kernel, or a test in its place.
pub(super) trait Link {
    /// Sends one request.
    fn send(&mut self, message: &[u8]) -> Result<(), Errno>;

    /// Takes one batch of answers, and tells how long it is, which may be more than there is room for.
    fn receive(&mut self, batch: &mut [u8]) -> Result<usize, Errno>;
}

/// A socket of the RDMA family.
pub(super) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn open() -> Result<Self> {
        let fd =
            socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRDMA);
        fd.map(Self).map_err(error)
    }
}

impl Link for Socket {
    fn send(&mut self, message: &[u8]) -> Result<(), Errno> {
        let kernel = NetlinkAddr::new(0, 0);
        sendto(self.0.as_raw_fd(), message, &kernel, MsgFlags::empty()).map(drop)
    }

    fn receive(&mut self, batch: &mut [u8]) -> Result<usize, Errno> {
        // The kernel answers while it is being asked (netlink_unicast_kernel, af_netlink.c, Linux 6.1), so nothing has to be
        // waited for, and a sandbox that takes a request and never answers keeps nobody waiting.
        recv(self.0.as_raw_fd(), batch, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC)
    }
}

/// Requests and their answers.
struct Conversation<L> {
    link: L,
    /// The number of the last request.
    sequence: u32,
    batch: Vec<u8>,
}

impl<L: Link> Conversation<L> {
    /// Sends one request and hands every answer's attributes to `take`.
    fn request(&mut self, op: u16, flags: u16, attributes: &[u8], mut take: impl FnMut(&[u8])) -> Result<()> {
        self.sequence += 1;
        let header = NlMsgHdr {
            nlmsg_len: (size_of::<NlMsgHdr>() + attributes.len()) as u32,
            nlmsg_type: nl::nldev(op),
            nlmsg_flags: nl::FLAG_REQUEST | nl::FLAG_ACK | flags,
            nlmsg_seq: self.sequence,
            nlmsg_pid: 0,
        };
        let mut message = header.as_bytes().to_vec();
        message.extend_from_slice(attributes);
        self.link.send(&message).map_err(error)?;
        loop {
            let len = self.link.receive(&mut self.batch).map_err(error)?;
            let cut = || Error::malformed(OP, "an answer that is cut short");
            let mut messages =
                Messages(self.batch.get(..len).filter(|batch| !batch.is_empty()).ok_or_else(cut)?);
            for (header, body) in &mut messages {
                match header.nlmsg_type {
                    // Of an earlier request, whose answers were given up.
                    _ if header.nlmsg_seq != self.sequence => {}
                    nl::MSG_DONE => return Ok(()),
                    nl::MSG_ERROR => return acknowledged(body),
                    nl::MSG_NOOP => {}
                    _ => take(body),
                }
            }
            if !messages.0.is_empty() {
                return Err(cut());
            }
        }
    }
}

fn error(errno: Errno) -> Error {
    Error::kernel(OP, errno)
}

/// The body of an error message: a negative errno, or zero for an acknowledgement.
fn acknowledged(body: &[u8]) -> Result<()> {
    match body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(code) => Err(error(Errno::from_raw(code.saturating_neg()))),
        None => Err(Error::malformed(OP, "an error message cut short")),
    }
}

/// The messages of a batch: header and body. What is cut short is left over.
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
struct Attributes<'a>(&'a [u8]);

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

/// One attribute as it is sent.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let header = NlAttr { nla_len: (size_of::<NlAttr>() + value.len()) as u16, nla_type: kind };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(nl::ALIGN), 0);
    bytes
}

fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn wide(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let mut body = attribute(attr::DEV_INDEX, &3_u32.to_ne_bytes());
        body.extend(attribute(attr::DEV_NAME, b"rxe0\0"));
        body.extend(attribute(attr::PAD, &[]));
        body.extend(attribute(attr::NODE_GUID, &0x1122_3344_5566_7788_u64.to_ne_bytes()));
        body.extend(attribute(attr::DEV_PROTOCOL, b"roce\0"));
        let (index, device) = device(&body);
        assert_eq!(index, Some(3));
        assert_eq!(device.name(), "rxe0");
        assert_eq!(device.node_guid().to_string(), "1122:3344:5566:7788");
        assert_eq!(device.protocol(), Some("roce"));
    }

    #[test]
    fn cut_answers_end_quietly_and_names_never_leave_the_directory() {
        let mut body = attribute(attr::CHARDEV_NAME, b"uverbs0\0");
        body.extend(attribute(attr::CHARDEV_ABI, &6_u64.to_ne_bytes()));
        for len in 0..body.len() {
            assert_eq!(node(&body[..len]), None, "{len}");
        }
        assert_eq!(node(&body), Some(("uverbs0".to_owned(), 6, 0)));
        for name in [&b"../sda\0"[..], b"..\0", b"\0"] {
            let mut body = attribute(attr::CHARDEV_NAME, name);
            body.extend(attribute(attr::CHARDEV_ABI, &6_u64.to_ne_bytes()));
            assert_eq!(node(&body), None);
        }
        assert_eq!(Messages(&[0xff; 64]).count(), 0);
        assert_eq!(Attributes(&[0, 0, 0, 0]).count(), 0);
    }
}
