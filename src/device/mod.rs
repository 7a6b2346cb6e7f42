//! Devices: the existing ones, before they are opened.

pub(crate) mod context;
mod interfaces;
mod netlink;
pub(crate) mod object;
pub mod resources;
pub mod statistics;
mod sysfs;
// Not under Miri, which takes minutes for the file trees of these tests. This module is safe code over the standard library.
#[cfg(all(test, not(miri)))]
mod tests;

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use uverbs_abi::types::driver_id;

use crate::driver::Driver;
use crate::driver::ring::RingDevice;
use crate::kernel::error::{Error, Result, limit};
#[cfg(feature = "soft")]
pub(crate) use crate::soft::SoftDevice;

const NO_NETLINK: &str = "this needs RDMA netlink, which is refused here, or does not know the device";

/// An RDMA device: a description, found by [`devices`] or returned by a soft device. [`open`](Self::open) opens it.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_device")]
pub struct Device {
    pub(crate) name: String,
    pub(crate) index: Option<u32>,
    pub(crate) node: Node,
    pub(crate) driver_id: u32,
    pub(crate) abi_version: u32,
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) firmware: String,
    pub(crate) node_type: u8,
    pub(crate) protocol: Option<String>,
    pub(crate) ports: u32,
    pub(crate) interfaces: Vec<Interface>,
    /// The directory of this device in sysfs; `None` for a soft device.
    pub(crate) sysfs: Option<PathBuf>,
}

/// What is opened.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A character device, such as `/dev/infiniband/uverbs0`.
    File(PathBuf),
    #[cfg(feature = "soft")]
    Soft(SoftDevice),
}

/// A network interface that belongs to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The port, from 1.
    pub port: u32,
    /// The interface's name, such as `eth0`.
    pub name: String,
}

impl Device {
    /// The device's name, such as `mlx5_0` or `rxe0`.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether both are descriptions of one device.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.node, &other.node) {
            (Node::File(one), Node::File(two)) => one == two,
            #[cfg(feature = "soft")]
            (Node::Soft(one), Node::Soft(two)) => one.is(two),
            #[cfg(feature = "soft")]
            _ => false,
        }
    }

    /// The kernel's index of the device; none if it was found without netlink.
    #[doc(alias = "ibv_get_device_index")]
    pub fn index(&self) -> Option<u32> {
        self.index
    }

    /// The character device; none for a soft device.
    pub fn node(&self) -> Option<&Path> {
        match &self.node {
            Node::File(path) => Some(path),
            #[cfg(feature = "soft")]
            Node::Soft(_) => None,
        }
    }

    /// Number of the kernel driver: one of [`uverbs_abi::types::driver_id`], 0 if unknown.
    pub fn driver_id(&self) -> u32 {
        self.driver_id
    }

    /// Name of the kernel driver.
    pub fn driver(&self) -> &'static str {
        #[cfg(feature = "soft")]
        if let Node::Soft(_) = self.node {
            return "soft";
        }
        DRIVERS.iter().find(|driver| driver.id == self.driver_id).map_or("unknown", |driver| driver.name)
    }

    /// Version of the driver's own ABI.
    pub fn abi_version(&self) -> u32 {
        self.abi_version
    }

    /// GUID of the node.
    #[doc(alias = "ibv_get_device_guid")]
    pub fn node_guid(&self) -> Guid {
        Guid(self.node_guid)
    }

    /// GUID of the system that the node is a part of.
    pub fn sys_image_guid(&self) -> Guid {
        Guid(self.sys_image_guid)
    }

    /// Firmware version as the driver prints it; empty if it has none.
    pub fn firmware(&self) -> &str {
        &self.firmware
    }

    /// Type of the node: one of [`uverbs_abi::types::node_type`].
    pub fn node_type(&self) -> u8 {
        self.node_type
    }

    /// Protocol, such as `roce` or `ib`; none if the device was found without netlink.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Number of ports.
    pub fn ports(&self) -> u32 {
        self.ports
    }

    /// The network interfaces of the ports.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The device's folder in sysfs; none for a soft device. The folder need not exist.
    #[doc(alias = "ibdev_path")]
    pub fn sysfs(&self) -> Option<&Path> {
        self.sysfs.as_deref()
    }

    /// Whether it is a part of this process: it then cannot find memory by its address.
    #[cfg(feature = "raw")]
    pub(crate) fn is_in_process(&self) -> bool {
        !matches!(self.node, Node::File(_))
    }

    pub(crate) fn driver_kind(&self) -> Driver {
        match self.node {
            Node::File(_) => Driver::of(self.driver_id),
            #[cfg(feature = "soft")]
            Node::Soft(_) => Driver::Soft,
        }
    }

    /// Refuses a port that the device does not have.
    fn check_port(&self, op: &'static str, port: u32) -> Result<()> {
        if (1..=self.ports).contains(&port) {
            return Ok(());
        }
        let hint = format!("no port {port} on {}; the last one is {}", self.name, self.ports);
        Err(Error::kernel(op, Errno::EINVAL).not_found(hint))
    }

    /// RDMA netlink, and the index of this device there; refuses a soft device.
    #[cfg_attr(not(feature = "soft"), expect(unused_variables))]
    fn exchange(&self, op: &'static str, soft: &'static str) -> Result<(netlink::Exchange, u32)> {
        match (&self.node, self.index) {
            (Node::File(_), Some(index)) => {
                let exchange = netlink::Exchange::open(op, netlink::LONG);
                exchange.map(|exchange| (exchange, index)).map_err(|error| error.unsupported(NO_NETLINK))
            }
            (Node::File(_), None) => Err(Error::refused(op, Errno::EOPNOTSUPP, NO_NETLINK)),
            #[cfg(feature = "soft")]
            (Node::Soft(_), _) => Err(Error::refused(op, Errno::EOPNOTSUPP, soft)),
        }
    }

    /// The device that must be notified of receives in rings: those of the queue pair with this number, or of a shared queue.
    #[cfg_attr(not(feature = "soft"), expect(unused_variables))]
    pub(crate) fn ring_device(&self, qp: Option<u32>) -> Option<Box<dyn RingDevice>> {
        match &self.node {
            Node::File(_) => None,
            #[cfg(feature = "soft")]
            Node::Soft(device) => Some(Box::new(device.ring_device(qp))),
        }
    }

    /// The name of the network interface to which a GID belongs, in whichever network namespace it is.
    fn interface_of(&self, port: u8, index: u32) -> Option<String> {
        sysfs::interface_of(self.sysfs.as_ref()?, port, index)
    }

    /// Reads a partition key.
    pub(crate) fn pkey(&self, port: u8, index: u16) -> Result<u16> {
        match &self.sysfs {
            Some(root) => sysfs::pkey(root, port, index).or_else(|error| {
                // Without sysfs the keys cannot be read, but a RoCE port has only one.
                let is_default = index == 0 && (1..=self.ports).contains(&port.into()) && !root.exists();
                if is_default && self.protocol() == Some("roce") { Ok(0xffff) } else { Err(error) }
            }),
            // A RoCE port has one key, the default one.
            None if port == 1 && index == 0 => Ok(0xffff),
            None => {
                let hint = match port {
                    1 => limit("index of a partition key", index, "at most 0"),
                    _ => limit("port", port, format_args!("1 to {}", self.ports)),
                };
                Err(Error::refused("pkey.query", Errno::ENOENT, hint))
            }
        }
    }
}

#[cfg(feature = "soft")]
impl SoftDevice {
    /// This device as discovery would return it.
    pub fn device(&self) -> Device {
        use uverbs_abi::types::node_type;
        let is_iwarp = self.profile().iwarp;
        Device {
            name: self.name().to_owned(),
            index: None,
            node: Node::Soft(self.clone()),
            driver_id: crate::soft::DRIVER_ID,
            abi_version: 1,
            node_guid: self.profile().guid(),
            sys_image_guid: self.profile().guid(),
            firmware: crate::soft::FIRMWARE.to_owned(),
            node_type: if is_iwarp { node_type::RNIC } else { node_type::IB_CA },
            protocol: Some(if is_iwarp { "iw" } else { "roce" }.to_owned()),
            ports: crate::soft::PORTS.into(),
            interfaces: Vec::new(),
            sysfs: None,
        }
    }
}

#[cfg(all(feature = "soft", feature = "raw"))]
impl crate::soft::DeviceOnWire {
    /// This device as discovery would return it. It is opened by [`open`](Self::open), and not by [`Device::open`].
    pub fn device(&self) -> Device {
        self.described().device()
    }

    /// Opens the device.
    ///
    /// # Errors
    /// Those of binding a UDP socket to its address: it is not one of this host (`EADDRNOTAVAIL`), or another device, also rxe, has it
    /// (`EADDRINUSE`).
    pub fn open(&self) -> Result<context::Context> {
        self.take("device.open")?.device().open()
    }
}

/// A 64-bit GUID, printed as four groups of four hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(guid) = self;
        write!(
            f,
            "{:04x}:{:04x}:{:04x}:{:04x}",
            guid >> 48,
            guid >> 32 & 0xffff,
            guid >> 16 & 0xffff,
            guid & 0xffff
        )
    }
}

/// The devices of this machine, found by [`devices`].
#[derive(Clone, Debug, Default)]
#[doc(alias = "ibv_get_device_list")]
#[doc(alias = "ibv_free_device_list")]
#[doc(alias = "rdma_free_devices")]
pub struct Devices(Vec<Device>);

impl Devices {
    /// The device called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) with a list of the existing devices.
    pub fn named(&self, name: &str) -> Result<&Device> {
        self.find(|device| device.name == name, || format!("no device {name}"))
    }

    /// The device with the kernel's index `index`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) with a list of the existing devices.
    pub fn indexed(&self, index: u32) -> Result<&Device> {
        self.find(|device| device.index == Some(index), || format!("no device with index {index}"))
    }

    /// The device with the node GUID `guid`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) with a list of the existing devices.
    pub fn with_guid(&self, guid: Guid) -> Result<&Device> {
        self.find(|device| device.node_guid == guid.0, || format!("no device with node GUID {guid}"))
    }

    /// The device of a character device: a path, or just `uverbs0`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) with a list of the existing devices.
    pub fn at_node(&self, node: impl AsRef<Path>) -> Result<&Device> {
        let node = node.as_ref();
        let named = |path: &Path| path == node || path.file_name() == Some(node.as_os_str());
        self.find(|device| device.node().is_some_and(named), || format!("no device at {}", node.display()))
    }

    fn find(&self, wanted: impl Fn(&Device) -> bool, missing: impl Fn() -> String) -> Result<&Device> {
        self.0.iter().find(|device| wanted(device)).ok_or_else(|| {
            let names: Vec<_> = self.0.iter().map(Device::name).collect();
            let there = match names.as_slice() {
                [] => "there is no RDMA device on this machine".to_owned(),
                names => format!("there is {}", names.join(", ")),
            };
            Error::refused("device.find", Errno::ENODEV, format!("{}; {there}", missing()))
        })
    }
}

impl Deref for Devices {
    type Target = [Device];

    fn deref(&self) -> &[Device] {
        &self.0
    }
}

impl IntoIterator for Devices {
    type Item = Device;
    type IntoIter = std::vec::IntoIter<Device>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Every RDMA device that can be opened, in the kernel's order.
///
/// The kernel is queried through RDMA netlink. If that is not possible or incomplete (no module, a sandbox, an older kernel), sysfs is
/// read, below `SYSFS_PATH` if that is set, as in libibverbs, otherwise below `/sys`. If netlink answers, sysfs may be missing.
///
/// # Errors
/// Errors of reading. A machine without RDMA has no devices, which is not an error.
///
/// ```
/// for device in uverbs::devices()? {
///     println!("{} {} {}", device.name(), device.driver(), device.node_guid());
/// }
/// # Ok::<(), uverbs::Error>(())
/// ```
#[doc(alias = "ibv_get_device_list")]
#[doc(alias = "rdma_get_devices")]
pub fn devices() -> Result<Devices> {
    found(netlink::Socket::open("device.list"), &sysfs_root())
}

/// Where sysfs is: `SYSFS_PATH` if that is set, otherwise `/sys`.
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub fn sysfs_root() -> PathBuf {
    std::env::var_os("SYSFS_PATH").map_or_else(|| PathBuf::from("/sys"), PathBuf::from)
}

/// The devices that netlink and the sysfs tree below `root` contain. Either may be missing.
fn found(link: Result<impl netlink::Link>, root: &Path) -> Result<Devices> {
    match link.and_then(|link| netlink::devices(link, root)) {
        Ok(devices) => Ok(Devices(devices)),
        Err(_) => devices_in(root),
    }
}

/// The device that the kernel's answer to `op` names by its index. It is asked for alone; where netlink is refused, it is not found.
pub(crate) fn device_at(op: &'static str, index: u32) -> Result<Device> {
    found_at(op, netlink::Socket::open(op), &sysfs_root(), index)
}

fn found_at(op: &'static str, link: Result<impl netlink::Link>, root: &Path, index: u32) -> Result<Device> {
    match link.and_then(|link| netlink::device_at(link, root, index)) {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(Error::refused(op, Errno::ENODEV, "the device has no uverbs node")),
        // `nldev_get_doit` (nldev.c, Linux 6.1).
        Err(error) if error.errno() == Some(Errno::EINVAL as i32) => Err(Error::device_gone(op)),
        Err(error) => Err(error.unsupported(NO_NETLINK)),
    }
}

/// Every RDMA device in a sysfs tree; `root` is usually `/sys`.
///
/// # Errors
/// Errors of reading. A tree without RDMA has no devices, which is not an error.
pub fn devices_in(root: impl AsRef<Path>) -> Result<Devices> {
    sysfs::devices(root.as_ref()).map(Devices)
}

/// A kernel driver, with the number that commands contain and the name with which it binds to hardware.
struct Named {
    id: u32,
    name: &'static str,
    module: &'static str,
}

/// The numbers of all drivers in this table, those with the most devices first.
pub(crate) fn driver_ids() -> impl Iterator<Item = u32> {
    DRIVERS.iter().map(|driver| driver.id)
}

/// `enum rdma_driver_id`, include/uapi/rdma/ib_user_ioctl_verbs.h, Linux 7.2; modules: the drivers' own.
const DRIVERS: [Named; 21] = {
    const fn driver(id: u32, name: &'static str, module: &'static str) -> Named {
        Named { id, name, module }
    }
    use driver_id::*;
    [
        driver(MLX5, "mlx5", "mlx5_core"),
        driver(MLX4, "mlx4", "mlx4_core"),
        driver(CXGB3, "cxgb3", "iw_cxgb3"),
        driver(CXGB4, "cxgb4", "cxgb4"),
        driver(MTHCA, "mthca", "ib_mthca"),
        driver(BNXT_RE, "bnxt_re", "bnxt_en"),
        driver(OCRDMA, "ocrdma", "be2net"),
        driver(NES, "nes", "iw_nes"),
        driver(IRDMA, "irdma", "ice"),
        driver(VMW_PVRDMA, "vmw_pvrdma", "vmw_pvrdma"),
        driver(QEDR, "qedr", "qede"),
        driver(HNS, "hns", "hns3"),
        driver(USNIC, "usnic", "enic"),
        driver(RXE, "rxe", ""),
        driver(HFI1, "hfi1", "hfi1"),
        driver(QIB, "qib", "ib_qib"),
        driver(EFA, "efa", "efa"),
        driver(SIW, "siw", ""),
        driver(ERDMA, "erdma", "erdma"),
        driver(MANA, "mana", "mana"),
        driver(IONIC, "ionic", "ionic"),
    ]
};
