//! Discovery by RDMA netlink: `nldev_get_dumpit`, `nldev_get_doit`, `nldev_get_chardev` (nldev.c, Linux 6.1). What it does not return for a device is read
//! from sysfs.

use std::path::Path;

use nix::errno::Errno;
use uverbs_abi::netlink::{self as nl, NlMsgHdr, attr, op};
use uverbs_abi::types::driver_id;
use zerocopy::{FromBytes, IntoBytes};

use super::{Attributes, Link, Messages, ROOM, acknowledged, attribute, head, number, text, wide};
use crate::device::{Device, Interface, Node, sysfs};
use crate::kernel::error::{Error, Result};

const OP: &str = "device.list";

/// Number of datagrams that are received together: that of the first answers on a machine with one device.
const DATAGRAMS: usize = 4;

/// Every device that has a uverbs node.
pub(in crate::device) fn devices(link: impl Link, root: &Path) -> Result<Vec<Device>> {
    // The first device is queried together with the list, because most machines have one device with one port.
    found(link, root, (nl::FLAG_DUMP, FIRST))
}

/// The device with this index, if it has a uverbs node. It is asked for without the list.
pub(in crate::device) fn device_at(link: impl Link, root: &Path, index: u32) -> Result<Option<Device>> {
    let found = found(link, root, (0, index))?;
    Ok(found.into_iter().find(|device| device.index == Some(index)))
}

/// The devices of a list, or the one that is asked for.
fn found(link: impl Link, root: &Path, (flags, expected): (u16, u32)) -> Result<Vec<Device>> {
    let mut link = Conversation::new(link);
    let (list, first) = link.begin(flags, expected)?;
    let mut first = Some(first);
    let mut devices = Vec::new();
    for (index, mut device) in list {
        // The name becomes a part of a path.
        let (Some(index), true) = (index, is_name(&device.name)) else {
            return Err(Error::malformed(OP, "a device without index or name"));
        };
        let first = if (index, device.ports) == (expected, 1) { first.take() } else { None };
        let told = first.filter(Told::is_whole).unwrap_or_else(|| link.ask(index));
        // A device without a uverbs node (module not loaded, other namespace) cannot be opened, so it is not listed.
        let Some((node, abi, driver)) = told.node.or_else(|| sysfs::node(root, &device.name)) else {
            continue;
        };
        let path = root.join("class/infiniband").join(&device.name);
        device.driver_id = match driver {
            driver_id::UNKNOWN => sysfs::driver(root, &device.name, &node),
            known => known,
        };
        device.node = Node::File(Path::new("/dev/infiniband").join(node));
        device.abi_version = abi;
        device.interfaces = told.interfaces.unwrap_or_else(|| sysfs::interfaces(&path));
        device.sysfs = Some(path);
        devices.push(device);
    }
    Ok(devices)
}

/// The index of the first device.
const FIRST: u32 = 0;

/// The data of one device: name of its node, ABI version and driver, and interfaces; `None` for what was refused.
struct Told {
    node: Option<(String, u32, u32)>,
    interfaces: Option<Vec<Interface>>,
}

/// A device from the list, and its index.
type Listed = (Option<u32>, Device);

impl Told {
    /// From the attributes, and the results of the requests for the node and for the interfaces.
    fn new(
        [node, ports]: [Result<()>; 2],
        chardev: Option<(String, u32, u32)>,
        interfaces: Vec<Interface>,
    ) -> Self {
        Self { node: chardev.filter(|_| node.is_ok()), interfaces: ports.is_ok().then_some(interfaces) }
    }

    fn is_whole(&self) -> bool {
        self.node.is_some() && self.interfaces.is_some()
    }
}

/// Whether it may be a part of a path.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}

/// Parses a device from an answer to `GET`.
fn device(message: &[u8]) -> Listed {
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

/// Parses name, ABI version and driver from an answer to `GET_CHARDEV`. Kernels before 5.1 do not return the driver.
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

/// Parses port and network interface from an answer to `PORT_GET`.
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

/// A request: its number, flags and attributes.
type Request<'a> = (u16, u16, &'a [u8]);

/// Requests and their answers.
struct Conversation<L> {
    link: L,
    /// The number of the last request.
    sequence: u32,
    rooms: Vec<[u8; ROOM]>,
}

impl<L: Link> Conversation<L> {
    fn new(link: L) -> Self {
        Self { link, sequence: 0, rooms: vec![[0; ROOM]; DATAGRAMS] }
    }

    /// The list of devices, or without the flag of a list the device `expected`, and further data of that device, if there is one.
    fn begin(&mut self, flags: u16, expected: u32) -> Result<(Vec<Listed>, Told)> {
        let wanted = attribute(attr::DEV_INDEX, &expected.to_ne_bytes());
        let mut port = wanted.clone();
        port.extend(attribute(attr::PORT_INDEX, &1_u32.to_ne_bytes()));
        let (mut list, mut chardev, mut interfaces) = (Vec::new(), None, Vec::new());
        let of_which = if flags & nl::FLAG_DUMP == 0 { &wanted[..] } else { &[] };
        let requests = [
            (op::GET, flags, of_which),
            (op::GET_CHARDEV, 0, &chardev_of(expected)),
            (op::PORT_GET, 0, &port),
        ];
        let [listed, found, ports] = self.request(requests, |request, message| match request {
            0 => list.push(device(message)),
            1 => chardev = node(message),
            _ => interfaces.extend(interface(message)),
        })?;
        listed?;
        Ok((list, Told::new([found, ports], chardev, interfaces)))
    }

    /// The data of the device `index`.
    fn ask(&mut self, index: u32) -> Told {
        let (mut chardev, mut interfaces) = (None, Vec::new());
        let requests = [
            (op::GET_CHARDEV, 0, &chardev_of(index)[..]),
            (op::PORT_GET, nl::FLAG_DUMP, &attribute(attr::DEV_INDEX, &index.to_ne_bytes())),
        ];
        let asked = self.request(requests, |request, message| match request {
            0 => chardev = node(message),
            _ => interfaces.extend(interface(message)),
        });
        Told::new(asked.unwrap_or_else(|error| [Err(error.clone()), Err(error)]), chardev, interfaces)
    }

    /// Sends requests in one datagram, at most one of which is for a list. Passes the attributes of every answer to `take`, with the
    /// index of its request. Returns the result of each.
    fn request<const N: usize>(
        &mut self,
        requests: [Request<'_>; N],
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<[Result<()>; N]> {
        let first = self.sequence + 1;
        self.sequence += N as u32;
        let mut datagram = Vec::new();
        for (sequence, (op, flags, attributes)) in (first..).zip(requests) {
            datagram.extend_from_slice(head(attributes.len(), op, flags, sequence).as_bytes());
            datagram.extend_from_slice(attributes);
        }
        self.link.send(&datagram).map_err(error)?;
        let mut done = [const { None }; N];
        while done.iter().any(Option::is_none) {
            let lengths = match self.link.receive(&mut self.rooms) {
                Ok(lengths) => lengths,
                Err(errno) => return Ok(done.map(|done| done.unwrap_or_else(|| Err(error(errno))))),
            };
            for (room, len) in self.rooms.iter().zip(lengths) {
                let whole = room.get(..len);
                let mut messages = Messages(whole.unwrap_or_default());
                for (header, body) in &mut messages {
                    // Other answers are to an earlier request that was abandoned.
                    let place = header.nlmsg_seq.wrapping_sub(first) as usize;
                    let Some(done @ None) = done.get_mut(place) else { continue };
                    match header.nlmsg_type {
                        nl::MSG_DONE => *done = Some(Ok(())),
                        nl::MSG_ERROR => *done = Some(acknowledged(OP, body)),
                        nl::MSG_NOOP => {}
                        _ => {
                            take(place, body);
                            // A list has its own end.
                            if requests[place].1 & nl::FLAG_DUMP == 0 {
                                *done = Some(Ok(()));
                            }
                        }
                    }
                }
                // The rest was truncated, or longer than the room for it.
                if let Ok((header, _)) = NlMsgHdr::read_from_prefix(whole.map_or(room, |_| messages.0))
                    && let Some(done) = done.get_mut(header.nlmsg_seq.wrapping_sub(first) as usize)
                {
                    *done = Some(Err(Error::malformed(OP, "an answer that is cut short")));
                }
            }
        }
        Ok(done.map(|done| done.unwrap_or(Ok(()))))
    }
}

/// The attributes of a request for the uverbs node of a device.
fn chardev_of(index: u32) -> Vec<u8> {
    let mut query = attribute(attr::DEV_INDEX, &index.to_ne_bytes());
    query.extend(attribute(attr::CHARDEV_TYPE, b"uverbs\0"));
    query
}

fn error(errno: Errno) -> Error {
    Error::kernel(OP, errno)
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
