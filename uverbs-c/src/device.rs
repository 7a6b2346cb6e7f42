//! Devices: the list, and what is known before one is opened.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use nix::libc;
use uverbs::abi::types::node_type;

use crate::abi;
use crate::answer::{Answer, Code, or_null};
use crate::boundary::{Counted, Pointer, give_list, take_list};

/// A device of a list. Counted: the list has one count, each open context another.
#[repr(C)]
pub(crate) struct Device {
    c: abi::Device,
    /// Where driver libraries look whether a device is theirs: never.
    driver_operations: usize,
    pub(crate) device: uverbs::Device,
}

/// `enum ibv_transport_type`.
mod transport {
    pub(super) const UNKNOWN: u32 = u32::MAX;
    pub(super) const IB: u32 = 0;
    pub(super) const IWARP: u32 = 1;
    pub(super) const USNIC: u32 = 2;
    pub(super) const USNIC_UDP: u32 = 3;
    pub(super) const UNSPECIFIED: u32 = 4;
}

/// A text in a field of fixed size, cut so that a zero stays behind it.
pub(crate) fn text<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    let len = text.len().min(N.saturating_sub(1));
    field[..len].copy_from_slice(&text[..len]);
    field
}

impl Device {
    fn new(device: uverbs::Device) -> Self {
        let node = device.node().and_then(Path::file_name).unwrap_or_default().as_bytes();
        let class = device.sysfs().and_then(Path::parent).and_then(Path::parent);
        let dev_path = class.map(|class| class.join("infiniband_verbs")).unwrap_or_default();
        let dev_path = dev_path.join(std::ffi::OsStr::from_bytes(node));
        let node_type = device.node_type();
        let transport_type = match node_type {
            node_type::IB_CA | node_type::IB_SWITCH | node_type::IB_ROUTER => transport::IB,
            node_type::RNIC => transport::IWARP,
            node_type::USNIC => transport::USNIC,
            node_type::USNIC_UDP => transport::USNIC_UDP,
            node_type::UNSPECIFIED => transport::UNSPECIFIED,
            _ => transport::UNKNOWN,
        };
        let c = abi::Device {
            _ops: [0; 2],
            node_type: node_type.into(),
            transport_type,
            name: text(device.name().as_bytes()),
            dev_name: text(node),
            dev_path: text(dev_path.as_os_str().as_bytes()),
            ibdev_path: text(device.sysfs().unwrap_or(Path::new("")).as_os_str().as_bytes()),
        };
        Self { c, driver_operations: 0, device }
    }
}

/// Every device; ENOSYS where the kernel's part of RDMA is not loaded.
fn devices() -> Answer<uverbs::Devices> {
    let devices = uverbs::devices()?;
    let is_there =
        || ["infiniband", "infiniband_verbs"].iter().any(|name| Path::new("/sys/class").join(name).exists());
    if devices.is_empty() && !is_there() { Err(Code(libc::ENOSYS)) } else { Ok(devices) }
}

pub(crate) extern "C" fn get_device_list(count: Option<&mut c_int>) -> Pointer {
    let devices = or_null(devices());
    if let Some(count) = count {
        *count = devices.as_ref().map_or(0, |devices| devices.len() as c_int);
    }
    let Some(devices) = devices else { return Pointer::NULL };
    let given: Vec<_> =
        devices.into_iter().map(|device| Counted::give(Arc::new(Device::new(device)))).collect();
    give_list(&given)
}

pub(crate) extern "C" fn free_device_list(list: Pointer) {
    for device in take_list(list) {
        drop(Counted::take::<Device>(device));
    }
}

pub(crate) extern "C" fn get_device_name(device: Option<&Device>) -> Pointer {
    device.map_or(Pointer::NULL, |device| Pointer::to(&device.c.name))
}

/// In network order.
pub(crate) extern "C" fn get_device_guid(device: Option<&Device>) -> u64 {
    device.map_or(0, |device| device.device.node_guid().0.to_be())
}

pub(crate) extern "C" fn get_device_index(device: Option<&Device>) -> c_int {
    let index = device.and_then(|device| device.device.index());
    index.and_then(|index| c_int::try_from(index).ok()).unwrap_or(-1)
}

/// Nothing has to be done for `fork`: the kernel copies registered pages for a child at once (since Linux 5.12), and
/// the library refuses to work in a child on what its parent opened.
pub(crate) extern "C" fn fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`.
pub(crate) extern "C" fn is_fork_initialized() -> c_int {
    2
}

pub(crate) extern "C" fn dofork_range(_base: Pointer, _size: usize) -> c_int {
    0
}

pub(crate) extern "C" fn dontfork_range(_base: Pointer, _size: usize) -> c_int {
    0
}

/// A driver library says that it is there; it is not needed.
pub(crate) extern "C" fn register_driver() -> c_int {
    0
}
