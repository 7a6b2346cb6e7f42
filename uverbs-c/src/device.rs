//! Devices: the list, and the properties that are known before one is opened.
//!
//! While a device exists, it is the same object in every list, because programs compare pointers (librdmacm finds new devices in this way).
//! As in libibverbs, it is the same device if its file has the same name and the kernel gave it the same index (`same_sysfs_dev` in init.c,
//! rdma-core 65). Its name may change; the object keeps the name with which the device was found.

use std::ffi::c_int;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;
use uverbs::abi::types::node_type;
use uverbs::raw::{Local, sysfs_root};
use uverbs::soft::DeviceOnWire;

use crate::abi;
use crate::answer::{Answer, Code, EBADF, EINVAL, EOPNOTSUPP, or_null};
use crate::boundary::{Counted, Handed, Pointer, give_list, take_list};
use crate::on_wire;

/// A device of a list, with a reference count: each list has one reference, each open context another, and one is kept while the device
/// exists.
#[repr(C)]
pub(crate) struct Device {
    head: Head,
    pub(crate) device: uverbs::Device,
    /// If it is not the kernel's, but a soft device that exists while it is open.
    on_wire: Option<DeviceOnWire>,
}

/// The head of every device, also of those that other libraries create.
#[repr(C)]
pub(crate) struct Head {
    c: abi::Device,
    /// The field in which driver libraries see whether a device is theirs. It never is for devices of this library.
    driver_operations: usize,
}

/// Whether a driver library has created the device itself, as `mlx5dv_get_vfio_device_list` does: then this library can only read its head.
fn is_foreign(device: Pointer) -> bool {
    device.get::<Head>().is_some_and(|head| head.driver_operations != 0)
}

/// Distinguishes a device from others, including one that had its name and its file before.
#[derive(Clone)]
struct Identity {
    node: PathBuf,
    /// The kernel's number, which netlink returns and sysfs does not.
    index: Option<u32>,
    /// The number of its directory in sysfs. The directory's time is not suitable, because it is that of its first use.
    inode: Option<u64>,
}

impl Identity {
    /// `None` for a device without a file, which cannot be opened; this is usual in a container.
    fn of(device: &uverbs::Device) -> Option<Self> {
        let node = device.node().filter(|node| node.exists())?.to_owned();
        let inode = device.sysfs().and_then(|path| path.metadata().ok()).map(|metadata| metadata.ino());
        Some(Self { node, index: device.index(), inode })
    }

    fn is(&self, other: &Self) -> bool {
        let same_number = match (self.index, other.index) {
            (Some(one), Some(other)) => one == other,
            _ => self.inode == other.inode,
        };
        same_number && self.node == other.node
    }
}

/// A device that existed when the kernel was last queried.
#[derive(Clone)]
struct Known {
    identity: Identity,
    device: Arc<Device>,
    /// The number of the last query that found it.
    found: u64,
}

/// The devices that exist, newest first.
static KNOWN: Local<Vec<Known>> = Local::new(Vec::clone);

/// Number of queries.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// `enum ibv_transport_type`.
mod transport {
    pub(super) const UNKNOWN: u32 = u32::MAX;
    pub(super) const IB: u32 = 0;
    pub(super) const IWARP: u32 = 1;
    pub(super) const USNIC: u32 = 2;
    pub(super) const USNIC_UDP: u32 = 3;
    pub(super) const UNSPECIFIED: u32 = 4;
}

/// A text in a field of fixed size, truncated so that a zero byte follows it.
pub(crate) fn text<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    let len = text.len().min(N.saturating_sub(1));
    field[..len].copy_from_slice(&text[..len]);
    field
}

impl Device {
    pub(crate) fn new(device: uverbs::Device) -> Self {
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
        Self { head: Head { c, driver_operations: 0 }, device, on_wire: None }
    }

    pub(crate) fn on_wire(on_wire: DeviceOnWire) -> Self {
        let mut device = Self::new(on_wire.device());
        // Paths of the usual form, where nothing is. UCX uses a device for which `/dev/infiniband` has a file.
        let (name, root) = (device.device.name().to_owned(), sysfs_root().join("class"));
        let c = &mut device.head.c;
        c.dev_name = text(name.as_bytes());
        c.dev_path = text(root.join("infiniband_verbs").join(&name).as_os_str().as_bytes());
        c.ibdev_path = text(root.join("infiniband").join(&name).as_os_str().as_bytes());
        Self { on_wire: Some(on_wire), ..device }
    }

    pub(crate) fn open(&self) -> Answer<uverbs::Context> {
        let opened = self.on_wire.as_ref().map_or_else(|| self.device.open(), DeviceOnWire::open);
        Ok(opened?)
    }
}

/// Whether a sysfs tree shows the kernel's RDMA modules.
fn has_modules(root: &Path) -> bool {
    ["infiniband", "infiniband_verbs"].iter().any(|name| root.join("class").join(name).exists())
}

/// All devices: the kernel's, and after them those on a wire. ENOSYS if there is none and the kernel's RDMA modules are not loaded.
fn devices() -> Answer<Vec<Arc<Device>>> {
    let on_wire = on_wire::devices();
    match kernel_devices() {
        Ok(kernel) => Ok(kernel.into_iter().chain(on_wire).collect()),
        Err(_) if !on_wire.is_empty() => Ok(on_wire),
        Err(code) => Err(code),
    }
}

fn kernel_devices() -> Answer<Vec<Arc<Device>>> {
    let asked = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    let devices = uverbs::devices()?;
    if devices.is_empty() && !has_modules(&sysfs_root()) {
        return Err(Code::new(libc::ENOSYS));
    }
    let found: Vec<_> =
        devices.into_iter().filter_map(|device| Some((Identity::of(&device)?, device))).collect();
    let mut known = KNOWN.lock();
    Ok(update(&mut known, found, asked))
}

/// Updates `known` to what was found, and returns it in its order.
fn update(known: &mut Vec<Known>, found: Vec<(Identity, uverbs::Device)>, asked: u64) -> Vec<Arc<Device>> {
    let mut new = Vec::new();
    for (identity, device) in found {
        match known.iter_mut().find(|known| known.identity.is(&identity)) {
            Some(known) => known.found = known.found.max(asked),
            None => new.push(Known { identity, device: Arc::new(Device::new(device)), found: asked }),
        }
    }
    known.splice(..0, new);
    // A later query may have found devices that did not exist yet.
    known.retain(|known| known.found >= asked);
    known.iter().map(|known| known.device.clone()).collect()
}

/// The device to which an open file belongs.
pub(crate) fn of_file(file: &File) -> Answer<Arc<Device>> {
    let number = file.metadata().map_err(|_| EBADF)?.rdev();
    let is_its = |device: &Arc<Device>| {
        let node = device.device.node().and_then(|node| node.metadata().ok());
        node.is_some_and(|node| node.rdev() == number)
    };
    devices()?.into_iter().find(is_its).ok_or(EINVAL)
}

/// A device of this library that C has.
pub(crate) fn share(device: Pointer) -> Answer<Arc<Device>> {
    if is_foreign(device) { Err(EOPNOTSUPP) } else { Counted::share::<Device>(device).ok_or(EINVAL) }
}

pub(crate) extern "C" fn get_device_list(count: Option<&mut c_int>) -> Pointer {
    let devices = or_null(devices());
    if let Some(count) = count {
        *count = devices.as_ref().map_or(0, |devices| devices.len() as c_int);
    }
    let Some(devices) = devices else { return Pointer::NULL };
    give_list(devices.into_iter().map(Counted::give).collect())
}

/// A list with a device of a driver library is not freed, because this library did not create it.
pub(crate) extern "C" fn free_device_list(list: Handed) {
    if list.0.get::<Pointer>().is_some_and(|first| is_foreign(*first)) {
        return;
    }
    for device in take_list(list) {
        drop(Counted::take::<Device>(device));
    }
}

/// Also accepts a device of a driver library.
pub(crate) extern "C" fn get_device_name(device: Option<&Head>) -> Pointer {
    device.map_or(Pointer::NULL, |head| Pointer::to(&head.c.name))
}

/// In network byte order.
pub(crate) extern "C" fn get_device_guid(device: Option<&Device>) -> u64 {
    device.map_or(0, |device| device.device.node_guid().0.to_be())
}

pub(crate) extern "C" fn get_device_index(device: Option<&Device>) -> c_int {
    let index = device.and_then(|device| device.device.index());
    index.and_then(|index| c_int::try_from(index).ok()).unwrap_or(-1)
}

/// Nothing has to be done for `fork`: the kernel copies registered pages for a child immediately (since Linux 5.12), and the library
/// refuses to use in a child what its parent opened.
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

/// A driver library registers itself; it is not needed.
pub(crate) extern "C" fn register_driver() -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device as sysfs shows it.
    fn device(name: &str) -> uverbs::Device {
        // Tests run at the same time, so each tree has a number.
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("uverbs-c-{name}-{}-{number}", std::process::id()));
        let node = root.join("class/infiniband_verbs/uverbs0");
        std::fs::create_dir_all(&node).expect("a directory");
        std::fs::write(node.join("ibdev"), name).expect("a file");
        std::fs::write(node.join("abi_version"), "1").expect("a file");
        let devices = uverbs::devices_in(&root).expect("devices");
        std::fs::remove_dir_all(&root).expect("the directory");
        devices.named(name).expect("the device").clone()
    }

    fn found(indices: &[u32]) -> Vec<(Identity, uverbs::Device)> {
        let one = |index: &u32| {
            let name = format!("rxe{index}");
            let inode = Some(100 + u64::from(*index));
            (Identity { node: PathBuf::from(&name), index: Some(*index), inode }, device(&name))
        };
        indices.iter().map(one).collect()
    }

    fn names(devices: &[Arc<Device>]) -> Vec<&str> {
        devices.iter().map(|device| device.device.name()).collect()
    }

    #[test]
    fn a_device_stays_the_same_until_it_goes() {
        let mut known = Vec::new();
        let first = update(&mut known, found(&[0, 1]), 1);
        assert_eq!(names(&first), ["rxe0", "rxe1"]);
        let second = update(&mut known, found(&[1, 0, 2, 3]), 2);
        assert_eq!(names(&second), ["rxe2", "rxe3", "rxe0", "rxe1"], "the newest first");
        assert!(Arc::ptr_eq(&first[0], &second[2]) && Arc::ptr_eq(&first[1], &second[3]));
        let third = update(&mut known, found(&[1]), 3);
        assert!(Arc::ptr_eq(&first[1], &third[0]) && third.len() == 1);
        let fourth = update(&mut known, found(&[0, 1]), 4);
        assert!(!Arc::ptr_eq(&first[0], &fourth[0]), "it went and came back");
    }

    #[test]
    fn who_asked_earlier_takes_nothing_away_that_was_found_since() {
        let mut known = Vec::new();
        let later = update(&mut known, found(&[0, 1]), 2);
        let earlier = update(&mut known, found(&[0]), 1);
        assert!(Arc::ptr_eq(&earlier[0], &later[0]) && Arc::ptr_eq(&earlier[1], &later[1]));
        assert_eq!(names(&update(&mut known, found(&[0]), 3)), ["rxe0"]);
    }

    #[test]
    fn a_device_that_a_driver_library_made_is_refused() {
        let own = Device::new(device("own")).head;
        let foreign = Head { driver_operations: 1, ..own };
        assert_eq!(share(Pointer::to(&foreign)).err(), Some(EOPNOTSUPP));
        assert_eq!(share(Pointer::NULL).err(), Some(EINVAL));
        let list = [Pointer::to(&foreign), Pointer::NULL];
        free_device_list(Handed(Pointer::to_first(&list)));
        let name: &[u8; 3] = get_device_name(Some(&foreign)).get().expect("its name");
        assert_eq!(name, b"own");
    }

    #[test]
    fn a_device_is_known_without_its_index_too() {
        let mut known = Vec::new();
        let first = update(&mut known, found(&[0, 1]), 1);
        let mut by_sysfs = found(&[0, 1]);
        for (identity, _) in &mut by_sysfs {
            identity.index = None;
        }
        by_sysfs[1].0.inode = Some(7);
        let second = update(&mut known, by_sysfs, 2);
        assert_eq!(names(&second), ["rxe1", "rxe0"]);
        assert!(Arc::ptr_eq(&first[0], &second[1]) && !Arc::ptr_eq(&first[1], &second[0]));
    }
}
