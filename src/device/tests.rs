//! Discovery with netlink or sysfs missing or incomplete. The test answers the requests, and the tree belongs to the test.

use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use uverbs_abi::netlink::{self as nl, NlMsgHdr, attr, op};
use uverbs_abi::types::driver_id;
use zerocopy::FromBytes;

use super::netlink::testing::{attribute, message};
use super::netlink::{Link, ROOM};
use super::{Device, found};
use crate::kernel::error::{Error, ErrorKind, Result};

/// How the kernel in these tests fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// There is no socket.
    Socket(Errno),
    /// Sending fails.
    Send(Errno),
    /// There is no answer.
    Silence,
    /// An empty answer.
    Empty,
    /// The request is refused.
    Refused(u16, Errno),
    /// The answer ends after this number of bytes.
    Cut(u16, usize),
    /// The answer is longer than the room for it.
    TooLong(u16),
    /// The answer lacks this attribute.
    Lacks(u16, u16),
}

/// A simulated kernel.
struct Kernel {
    fault: Fault,
    /// The index of the only device, and the number of its ports.
    index: u32,
    ports: u32,
    /// The requests that it received, and how many were for a list.
    asked: Vec<u16>,
    lists: usize,
    batches: Vec<Vec<u8>>,
}

impl Link for Kernel {
    fn send(&mut self, requests: &[u8]) -> Result<(), Errno> {
        let mut rest = requests;
        while let Ok((header, _)) = NlMsgHdr::read_from_prefix(rest) {
            let (request, others) = rest.split_at(header.nlmsg_len as usize);
            self.answer(&header, &request[size_of::<NlMsgHdr>()..])?;
            rest = others;
        }
        Ok(())
    }

    fn receive(&mut self, rooms: &mut [[u8; ROOM]]) -> Result<Vec<usize>, Errno> {
        if self.batches.is_empty() {
            return Err(Errno::EAGAIN);
        }
        let count = rooms.len().min(self.batches.len());
        let answers = self.batches.drain(..count).zip(rooms).map(|(answer, room)| {
            let len = answer.len().min(room.len());
            room[..len].copy_from_slice(&answer[..len]);
            answer.len()
        });
        Ok(answers.collect())
    }
}

impl Kernel {
    fn new(fault: Fault, index: u32, ports: u32) -> Self {
        Self { fault, index, ports, asked: Vec::new(), lists: 0, batches: Vec::new() }
    }

    fn answer(&mut self, header: &NlMsgHdr, query: &[u8]) -> Result<(), Errno> {
        let (sequence, op) = (header.nlmsg_seq, header.nlmsg_type & 0xff);
        self.asked.push(op);
        let is_list = header.nlmsg_flags & nl::FLAG_DUMP != 0;
        self.lists += usize::from(is_list);
        let index = self.index.to_ne_bytes();
        let told = |attributes: &[(u16, &[u8])]| -> Vec<u8> {
            let is_told = |kind: u16| self.fault != Fault::Lacks(op, kind);
            attributes
                .iter()
                .filter(|(kind, _)| is_told(*kind))
                .flat_map(|(kind, value)| attribute(*kind, value))
                .collect()
        };
        let body = match op {
            op::GET => told(&[
                (attr::DEV_INDEX, &index),
                (attr::DEV_NAME, b"rxe0\0"),
                (attr::PORT_INDEX, &self.ports.to_ne_bytes()),
                (attr::NODE_GUID, &1_u64.to_ne_bytes()),
                (attr::DEV_PROTOCOL, b"roce\0"),
            ]),
            op::GET_CHARDEV => told(&[
                (attr::CHARDEV_NAME, b"uverbs7\0"),
                (attr::CHARDEV_ABI, &2_u64.to_ne_bytes()),
                (attr::UVERBS_DRIVER_ID, &driver_id::RXE.to_ne_bytes()),
            ]),
            _ => told(&[(attr::PORT_INDEX, &1_u32.to_ne_bytes()), (attr::NDEV_NAME, b"dummy0\0")]),
        };
        let mut answer = message(nl::nldev(op), sequence, &body);
        if op == op::PORT_GET && is_list && self.ports == 2 {
            let body = told(&[(attr::PORT_INDEX, &2_u32.to_ne_bytes()), (attr::NDEV_NAME, b"dummy1\0")]);
            answer.extend(message(nl::nldev(op), sequence, &body));
        }
        let mut end = if is_list { message(nl::MSG_DONE, sequence, &[0; 4]) } else { Vec::new() };
        // A request about another device than the existing one.
        if !(op == op::GET && is_list) && query.get(4..8) != Some(&index[..]) {
            answer = message(nl::MSG_ERROR, sequence, &(-(Errno::EINVAL as i32)).to_ne_bytes());
            self.batches.push(answer);
            return Ok(());
        }
        match self.fault {
            Fault::Send(errno) => return Err(errno),
            Fault::Silence => return Ok(()),
            Fault::Empty => {
                answer.clear();
                end.clear();
                self.batches.push(Vec::new());
            }
            Fault::Refused(refused, errno) if refused == op => {
                answer.clear();
                end = message(nl::MSG_ERROR, sequence, &(-(errno as i32)).to_ne_bytes());
            }
            Fault::Cut(cut, len) if cut == op => {
                answer.truncate(len);
                end.clear();
            }
            Fault::TooLong(long) if long == op => answer.resize(1 << 20, 0),
            _ => {}
        }
        self.batches.extend([answer, end].into_iter().filter(|batch| !batch.is_empty()));
        Ok(())
    }
}

/// A sysfs tree of the test, removed at the end.
pub(super) struct Tree(pub(super) PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("uverbs-device-{name}-{}", std::process::id())))
    }

    pub(super) fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("it is ours");
        fs::write(path, text).expect("it is ours");
    }

    /// The files of an rxe device on Linux 6.1.
    pub(super) fn rxe(name: &str) -> Self {
        let tree = Self::new(name);
        tree.file("class/infiniband_verbs/uverbs7/ibdev", "rxe0\n");
        tree.file("class/infiniband_verbs/uverbs7/abi_version", "2\n");
        tree.file("class/infiniband_verbs/abi_version", "6\n");
        tree.file("class/infiniband/rxe0/node_guid", "0000:0000:0000:0001\n");
        tree.file("class/infiniband/rxe0/parent", "dummy0\n");
        tree.file("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "dummy0\n");
        tree
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn found_with(fault: Fault, root: &Path) -> Vec<Device> {
    let link: Result<Kernel> = match fault {
        Fault::Socket(errno) => Err(Error::kernel("device.list", errno)),
        fault => Ok(Kernel::new(fault, 0, 1)),
    };
    found(link, root).expect("what is missing is no error").into_iter().collect()
}

/// Whether the device has everything that opening and identifying it takes.
fn is_whole(device: &Device) -> bool {
    device.node() == Some(Path::new("/dev/infiniband/uverbs7"))
        && (device.name(), device.abi_version(), device.driver(), device.ports()) == ("rxe0", 2, "rxe", 1)
        && (device.node_guid().0, device.interfaces().len()) == (1, 1)
}

/// Netlink returns nothing.
const NO_NETLINK: &[Fault] = &[
    Fault::Socket(Errno::EPERM),
    Fault::Socket(Errno::EAFNOSUPPORT),
    Fault::Socket(Errno::EPROTONOSUPPORT),
    Fault::Socket(Errno::EMFILE),
    Fault::Send(Errno::EPERM),
    Fault::Send(Errno::ECONNREFUSED),
    Fault::Silence,
    Fault::Empty,
    Fault::Refused(op::GET, Errno::EPERM),
    Fault::Refused(op::GET, Errno::EOPNOTSUPP),
    Fault::TooLong(op::GET),
    Fault::Lacks(op::GET, attr::DEV_INDEX),
    Fault::Lacks(op::GET, attr::DEV_NAME),
];
/// It returns the device, but not its node.
const NO_NODE: &[Fault] = &[
    Fault::Refused(op::GET_CHARDEV, Errno::ENOENT),
    Fault::Refused(op::GET_CHARDEV, Errno::EPERM),
    Fault::Refused(op::GET_CHARDEV, Errno::EINVAL),
    Fault::TooLong(op::GET_CHARDEV),
    Fault::Lacks(op::GET_CHARDEV, attr::CHARDEV_NAME),
    Fault::Lacks(op::GET_CHARDEV, attr::CHARDEV_ABI),
];

#[test]
fn a_device_is_whole_whatever_netlink_does_not_tell() {
    let tree = Tree::rxe("whole");
    let cuts = [op::GET, op::GET_CHARDEV, op::PORT_GET]
        .into_iter()
        .flat_map(|op| (1..60).map(move |len| Fault::Cut(op, len)));
    let more = [
        Fault::Nothing,
        Fault::Lacks(op::GET_CHARDEV, attr::UVERBS_DRIVER_ID),
        Fault::Refused(op::PORT_GET, Errno::EPERM),
    ];
    for fault in NO_NETLINK.iter().chain(NO_NODE).chain(&more).copied().chain(cuts) {
        let devices = found_with(fault, &tree.0);
        assert_eq!(devices.len(), 1, "{fault:?}");
        assert!(is_whole(&devices[0]), "{fault:?}: {:?}", devices[0]);
        let told = !NO_NETLINK.contains(&fault) && !matches!(fault, Fault::Cut(op::GET, _));
        assert_eq!(devices[0].index(), told.then_some(0), "{fault:?}");
    }
}

/// A reference, so that the test can read afterwards what was requested.
impl Link for &mut Kernel {
    fn send(&mut self, requests: &[u8]) -> Result<(), Errno> {
        (**self).send(requests)
    }

    fn receive(&mut self, rooms: &mut [[u8; ROOM]]) -> Result<Vec<usize>, Errno> {
        (**self).receive(rooms)
    }
}

#[test]
fn a_device_that_is_not_the_first_is_asked_for_and_the_first_is_asked_for_once() {
    let tree = Tree::new("index");
    let at_once = vec![op::GET, op::GET_CHARDEV, op::PORT_GET];
    let later = [&at_once[..], &at_once[1..]].concat();
    for (index, ports, asked) in [(0, 1, &at_once), (0, 2, &later), (3, 1, &later), (3, 2, &later)] {
        let mut kernel = Kernel::new(Fault::Nothing, index, ports);
        let devices = found(Ok(&mut kernel), &tree.0).expect("all is told");
        assert_eq!(&kernel.asked, asked);
        assert_eq!((devices.len(), devices[0].index(), devices[0].ports()), (1, Some(index), ports));
        let interfaces: Vec<_> =
            devices[0].interfaces().iter().map(|found| (found.port, &*found.name)).collect();
        assert_eq!(interfaces, [(1, "dummy0"), (2, "dummy1")][..ports as usize]);
        assert_eq!(devices[0].node(), Some(Path::new("/dev/infiniband/uverbs7")));
    }
}

#[test]
fn a_device_is_found_by_its_index_without_a_list() {
    let tree = Tree::rxe("at");
    let at = |kernel: &mut Kernel, index| super::found_at("test", Ok(kernel), &tree.0, index);
    for (ports, asked) in [(1, 3), (2, 5)] {
        let mut kernel = Kernel::new(Fault::Nothing, 7, ports);
        let device = at(&mut kernel, 7).expect("it is there");
        assert_eq!((device.index(), device.name(), device.ports()), (Some(7), "rxe0", ports));
        assert_eq!(device.interfaces().len(), ports as usize);
        assert_eq!((kernel.asked.len(), kernel.lists), (asked, usize::from(ports > 1)));
    }
    let gone = at(&mut Kernel::new(Fault::Nothing, 7, 1), 8).expect_err("another index");
    assert_eq!((gone.kind(), gone.op()), (ErrorKind::Disassociated, "test"));
    let refused = at(&mut Kernel::new(Fault::Refused(op::GET, Errno::EPERM), 7, 1), 7);
    assert_eq!(refused.expect_err("netlink is refused").kind(), ErrorKind::Unsupported);
    // What netlink does not return is read from sysfs, as in a list.
    let device = at(&mut Kernel::new(Fault::Refused(op::GET_CHARDEV, Errno::EPERM), 7, 1), 7);
    assert_eq!(device.expect("sysfs has it").node(), Some(Path::new("/dev/infiniband/uverbs7")));
}

#[test]
fn without_sysfs_netlink_is_enough() {
    let tree = Tree::new("none");
    let devices = found_with(Fault::Nothing, &tree.0);
    assert!(is_whole(&devices[0]), "{:?}", devices[0]);
    assert_eq!(devices[0].pkey(1, 0).expect("the only key of RoCE"), 0xffff);
    assert!(
        devices[0].pkey(1, 1).is_err() && devices[0].pkey(2, 0).is_err() && devices[0].pkey(0, 0).is_err()
    );
    // The driver is unknown; opening the device identifies it.
    let devices = found_with(Fault::Lacks(op::GET_CHARDEV, attr::UVERBS_DRIVER_ID), &tree.0);
    assert_eq!((devices[0].driver_id(), devices[0].abi_version()), (driver_id::UNKNOWN, 2));
    for fault in NO_NETLINK.iter().chain(NO_NODE) {
        assert!(found_with(*fault, &tree.0).is_empty(), "{fault:?}");
    }
}

#[test]
fn devices_of_sysfs_are_in_the_order_of_their_nodes() {
    let tree = Tree::new("order");
    for number in [12, 3, 0, 101, 7] {
        tree.file(&format!("class/infiniband_verbs/uverbs{number}/ibdev"), &format!("rxe{number}\n"));
        tree.file(&format!("class/infiniband_verbs/uverbs{number}/abi_version"), "2\n");
    }
    let devices = found_with(Fault::Socket(Errno::EPERM), &tree.0);
    assert!(devices.iter().map(Device::name).eq(["rxe0", "rxe3", "rxe7", "rxe12", "rxe101"]), "{devices:?}");
}

#[test]
fn the_driver_is_known_by_its_module_or_by_the_function() {
    for (module, modalias, wanted) in [
        (Some("mlx5_core"), None, driver_id::MLX5),
        (Some("mlx5_core.sf"), None, driver_id::MLX5),
        (Some("efa"), Some("pci:v000015B3d00001017sv"), driver_id::EFA),
        (None, Some("pci:v000015B3d00001017sv000015B3sd00000008bc02sc00i00\n"), driver_id::MLX5),
        (Some("vfio-pci"), Some("pci:v000015B3d0000A2DCsv"), driver_id::MLX5),
        (None, Some("pci:v00001D0Fd0000EFA2sv"), driver_id::EFA),
        // A ConnectX-3, and truncated texts.
        (None, Some("pci:v000015B3d00001003sv"), driver_id::UNKNOWN),
        (None, Some("pci:v000015B3d0000"), driver_id::UNKNOWN),
        (None, Some("pci:v15"), driver_id::UNKNOWN),
        (None, Some("acpi:PNP0A08"), driver_id::UNKNOWN),
        (Some("other"), None, driver_id::UNKNOWN),
    ] {
        let tree = Tree::rxe("driver");
        fs::remove_file(tree.0.join("class/infiniband/rxe0/parent")).expect("it is ours");
        let function = "class/infiniband_verbs/uverbs7/device";
        tree.file(&format!("{function}/modalias"), modalias.unwrap_or("\n"));
        if let Some(module) = module {
            let driver = tree.0.join(function).join("driver");
            std::os::unix::fs::symlink(format!("../../bus/pci/drivers/{module}"), driver)
                .expect("it is ours");
        }
        let devices = found_with(Fault::Socket(Errno::EPERM), &tree.0);
        assert_eq!(devices[0].driver_id(), wanted, "{module:?}, {modalias:?}");
        let devices = found_with(Fault::Lacks(op::GET_CHARDEV, attr::UVERBS_DRIVER_ID), &tree.0);
        assert_eq!(devices[0].driver_id(), wanted, "{module:?}, {modalias:?}, with netlink");
    }
}
