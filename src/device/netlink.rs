//! Discovery by RDMA netlink: `nldev_get_dumpit`, `nldev_get_chardev` (nldev.c, Linux 6.1).

use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use uverbs_abi::netlink::{self as nl, NlAttr, NlMsgHdr, attr, op};
use zerocopy::{FromBytes, IntoBytes};

use super::{Device, Interface, Node};
use crate::error::{Error, Result};

const OP: &str = "device.list";

/// Room for one batch of answers: the kernel fills at most this, or what was last asked for if that is more
/// (netlink_dump and `NLMSG_GOODSIZE`, Linux 6.1).
const BATCH: usize = 8 * 1024;

/// Every device that has a uverbs node.
pub(super) fn devices(sysfs: &Path) -> Result<Vec<Device>> {
    let mut socket = Socket::open()?;
    let mut found = Vec::new();
    socket.request(op::GET, nl::FLAG_DUMP, &[], |message| found.push(device(message)))?;
    let mut devices = Vec::new();
    for (index, mut device) in found.into_iter().filter_map(|(index, device)| Some((index?, device))) {
        let mut chardev = None;
        let mut query = attribute(attr::DEV_INDEX, &index.to_ne_bytes());
        query.extend(attribute(attr::CHARDEV_TYPE, b"uverbs\0"));
        // A device without a uverbs node (module not loaded, other namespace) cannot be opened: no entry.
        let asked = socket.request(op::GET_CHARDEV, 0, &query, |message| chardev = Some(node(message)));
        let (Ok(()), Some((Some(name), abi, driver))) = (asked, chardev) else { continue };
        device.node = Node::File(Path::new("/dev/infiniband").join(name));
        device.abi_version = abi;
        device.driver_id = driver;
        device.sysfs = Some(sysfs.join("class/infiniband").join(&device.name));
        let query = attribute(attr::DEV_INDEX, &index.to_ne_bytes());
        let _ = socket.request(op::PORT_GET, nl::FLAG_DUMP, &query, |message| {
            device.interfaces.extend(interface(message));
        });
        devices.push(device);
    }
    Ok(devices)
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

/// Name, ABI version and driver out of an answer to `GET_CHARDEV`.
fn node(message: &[u8]) -> (Option<String>, u32, u32) {
    let (mut name, mut abi, mut driver) = (None, 0, 0);
    for (kind, value) in Attributes(message) {
        match kind {
            attr::CHARDEV_NAME => name = Some(text(value)),
            attr::CHARDEV_ABI => abi = wide(value).and_then(|abi| u32::try_from(abi).ok()).unwrap_or(0),
            attr::UVERBS_DRIVER_ID => driver = number(value).unwrap_or(0),
            _ => {}
        }
    }
    // The name becomes a part of a path.
    (name.filter(|name| !name.is_empty() && !name.contains('/')), abi, driver)
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

/// A socket of the RDMA family.
struct Socket {
    fd: OwnedFd,
    batch: Vec<u8>,
}

impl Socket {
    fn open() -> Result<Self> {
        let fd =
            socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRDMA);
        Ok(Self { fd: fd.map_err(error)?, batch: vec![0; BATCH] })
    }

    /// Sends one request and hands every answer's attributes to `take`.
    fn request(&mut self, op: u16, flags: u16, attributes: &[u8], mut take: impl FnMut(&[u8])) -> Result<()> {
        let header = NlMsgHdr {
            nlmsg_len: (size_of::<NlMsgHdr>() + attributes.len()) as u32,
            nlmsg_type: nl::nldev(op),
            nlmsg_flags: nl::FLAG_REQUEST | nl::FLAG_ACK | flags,
            nlmsg_seq: 1,
            nlmsg_pid: 0,
        };
        let mut message = header.as_bytes().to_vec();
        message.extend_from_slice(attributes);
        let kernel = NetlinkAddr::new(0, 0);
        sendto(self.fd.as_raw_fd(), &message, &kernel, MsgFlags::empty()).map_err(error)?;
        loop {
            let len = recv(self.fd.as_raw_fd(), &mut self.batch, MsgFlags::empty()).map_err(error)?;
            for (kind, body) in Messages(&self.batch[..len]) {
                match kind {
                    nl::MSG_DONE => return Ok(()),
                    nl::MSG_ERROR => return acknowledged(body),
                    nl::MSG_NOOP => {}
                    _ => take(body),
                }
            }
            if len == 0 {
                return Err(Error::malformed(OP, "the answer ends too early"));
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

/// The messages of a batch: type and body.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, _) = NlMsgHdr::read_from_prefix(self.0).ok()?;
        let len = usize::try_from(header.nlmsg_len).ok()?;
        let body = self.0.get(size_of::<NlMsgHdr>()..len)?;
        self.0 = self.0.get(len.next_multiple_of(nl::ALIGN)..).unwrap_or_default();
        Some((header.nlmsg_type, body))
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
        let body = attribute(attr::CHARDEV_NAME, b"uverbs0\0");
        for len in 0..body.len() {
            assert_eq!(node(&body[..len]).0, None, "{len}");
        }
        assert_eq!(node(&body).0.as_deref(), Some("uverbs0"));
        assert_eq!(node(&attribute(attr::CHARDEV_NAME, b"../sda\0")).0, None);
        assert_eq!(Messages(&[0xff; 64]).count(), 0);
        assert_eq!(Attributes(&[0, 0, 0, 0]).count(), 0);
    }
}
