//! Discovery by sysfs: `infiniband_verbs/uverbsN` and `infiniband/<device>` below `class`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use uverbs_abi::types::driver_id;

use super::{DRIVERS, Device, Interface, Node};
use crate::kernel::error::{Error, Result, limit};

const OP: &str = "device.list";

/// Every device that has a uverbs node, in the order of the nodes.
pub(super) fn devices(root: &Path) -> Result<Vec<Device>> {
    let nodes = match fs::read_dir(root.join("class/infiniband_verbs")) {
        Ok(nodes) => nodes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(OP, &error)),
    };
    let mut numbered = Vec::<(u32, PathBuf)>::new();
    for node in nodes {
        let path = node.map_err(|error| Error::io(OP, &error))?.path();
        let number =
            path.file_name().and_then(|name| name.to_str()?.strip_prefix("uverbs")?.parse::<u32>().ok());
        if let Some(number) = number {
            // Each is inserted at its place: there are few, and a sort is 9 kB of code.
            let place = numbered.partition_point(|(other, _)| *other < number);
            numbered.insert(place, (number, path));
        }
    }
    // A device that is removed meanwhile has no entry.
    Ok(numbered.iter().filter_map(|(number, path)| device(root, *number, path)).collect())
}

/// Node, ABI version and driver of the device `name`.
pub(super) fn node(root: &Path, name: &str) -> Option<(String, u32, u32)> {
    let nodes = fs::read_dir(root.join("class/infiniband_verbs")).ok()?;
    let verbs = nodes
        .flatten()
        .map(|node| node.path())
        .find(|verbs| line(&verbs.join("ibdev")).as_deref() == Some(name))?;
    let node = verbs.file_name()?.to_str().filter(|node| node.starts_with("uverbs"))?;
    Some((node.to_owned(), line(&verbs.join("abi_version"))?.parse().ok()?, driver_id::UNKNOWN))
}

/// The driver of the device `name`, whose node is `node`.
pub(super) fn driver(root: &Path, name: &str, node: &str) -> u32 {
    driver_of(&root.join("class/infiniband").join(name), &root.join("class/infiniband_verbs").join(node))
}

fn device(root: &Path, number: u32, verbs: &Path) -> Option<Device> {
    let name = line(&verbs.join("ibdev")).filter(|name| !name.is_empty() && !name.contains('/'))?;
    let path = root.join("class/infiniband").join(&name);
    let interfaces = interfaces(&path);
    Some(Device {
        index: None,
        node: Node::File(format!("/dev/infiniband/uverbs{number}").into()),
        driver_id: driver_of(&path, verbs),
        abi_version: line(&verbs.join("abi_version"))?.parse().ok()?,
        node_guid: guid(&path.join("node_guid")),
        sys_image_guid: guid(&path.join("sys_image_guid")),
        firmware: line(&path.join("fw_ver")).unwrap_or_default(),
        node_type: line(&path.join("node_type")).map_or(0, |text| leading_number(&text)),
        protocol: None,
        ports: fs::read_dir(path.join("ports")).map_or(0, |ports| ports.count() as u32),
        interfaces,
        sysfs: Some(path),
        name,
    })
}

/// The driver, as far as sysfs shows it: by the driver of the function, by the kind of function, or by rxe's own `parent` file.
fn driver_of(device: &Path, verbs: &Path) -> u32 {
    let module = fs::read_link(verbs.join("device/driver")).ok();
    let module = module.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    // For a part of a function, the name contains the part after a dot: `mlx5_core.sf`.
    let module = module.and_then(|name| name.split('.').next());
    let named = DRIVERS.iter().find(|driver| Some(driver.module) == module).map(|driver| driver.id);
    let modalias = || line(&verbs.join("device/modalias")).and_then(|text| of_function(&text));
    named.or_else(modalias).unwrap_or_else(|| match device.join("parent").exists() {
        true => driver_id::RXE,
        false => driver_id::UNKNOWN,
    })
}

/// The driver of a PCI function, from the modalias with its vendor and device: `pci:v000015B3d00001017...`.
fn of_function(modalias: &str) -> Option<u32> {
    let (vendor, rest) = modalias.strip_prefix("pci:v")?.split_at_checked(8)?;
    let device = u32::from_str_radix(rest.strip_prefix('d')?.get(..8)?, 16).ok()?;
    Some(match u32::from_str_radix(vendor, 16).ok()? {
        // mlx5_core_pci_table (main.c, Linux 7.3), with room for later cards; the numbers between belong to older cards.
        0x15b3 if matches!(device, 0x1011..=0x2fff | 0xa2d2..=0xa2ff) => driver_id::MLX5,
        // efa_pci_tbl (efa_main.c, Linux 7.3).
        0x1d0f if matches!(device, 0xefa0..=0xefaf) => driver_id::EFA,
        _ => return None,
    })
}

/// The interfaces to which the ports' GIDs belong.
pub(super) fn interfaces(device: &Path) -> Vec<Interface> {
    let mut found = Vec::new();
    for port in 1..=u32::from(u8::MAX) {
        let path = device.join(format!("ports/{port}"));
        if !path.exists() {
            break;
        }
        let name = line(&path.join("gid_attrs/ndevs/0"));
        found.extend(name.map(|name| Interface { port, name }));
    }
    found
}

/// The interface to which the GID at `index` belongs.
pub(super) fn interface_of(device: &Path, port: u8, index: u32) -> Option<String> {
    line(&device.join(format!("ports/{port}/gid_attrs/ndevs/{index}"))).filter(|name| !name.is_empty())
}

/// A partition key of the device whose directory is `device`.
pub(super) fn pkey(device: &Path, port: u8, index: u16) -> Result<u16> {
    const OP: &str = "pkey.query";
    let path: PathBuf = device.join(format!("ports/{port}/pkeys/{index}"));
    let text = fs::read_to_string(&path).map_err(|error| {
        let keys = path.parent().and_then(|keys| fs::read_dir(keys).ok()).map_or(0, Iterator::count);
        match (error.kind(), keys.checked_sub(1)) {
            (std::io::ErrorKind::NotFound, Some(last)) => Error::io(OP, &error).hinted(limit(
                "index of a partition key",
                index,
                format_args!("at most {last}"),
            )),
            _ => Error::io(OP, &error),
        }
    })?;
    let digits = text.trim().strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
    digits.ok_or_else(|| Error::malformed(OP, format!("{} holds no key", path.display())))
}

fn line(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Four groups of hexadecimal digits.
fn guid(path: &Path) -> u64 {
    let text = line(path).unwrap_or_default().replace(':', "");
    u64::from_str_radix(&text, 16).unwrap_or(0)
}

/// The number at the beginning of a text such as `1: CA`.
fn leading_number(text: &str) -> u8 {
    text.split(':').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
