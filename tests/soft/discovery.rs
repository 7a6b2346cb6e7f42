//! Devices found in a sysfs tree.

use std::fs;
use std::path::{Path, PathBuf};

use uverbs::{ErrorKind, Guid, devices_in};

/// A sysfs tree of the test, removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("uverbs-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The files of an rxe device on Linux 6.1.
    fn rxe(&self, number: u32, name: &str) {
        let verbs = format!("class/infiniband_verbs/uverbs{number}");
        self.file(&format!("{verbs}/ibdev"), &format!("{name}\n"));
        self.file(&format!("{verbs}/abi_version"), "2\n");
        let ib = format!("class/infiniband/{name}");
        self.file(&format!("{ib}/node_guid"), "a866:21ff:fe67:2270\n");
        self.file(&format!("{ib}/sys_image_guid"), "a866:21ff:fe67:2271\n");
        self.file(&format!("{ib}/node_type"), "1: CA\n");
        self.file(&format!("{ib}/fw_ver"), "\n");
        self.file(&format!("{ib}/parent"), "dummy0\n");
        self.file(&format!("{ib}/ports/1/gid_attrs/ndevs/0"), "dummy0\n");
        self.file(&format!("{ib}/ports/1/pkeys/0"), "0xffff\n");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_tree_without_rdma_has_no_devices() {
    let tree = Tree::new("none");
    assert!(devices_in(&tree.0).unwrap().is_empty());
    let error = devices_in(&tree.0).unwrap().named("rxe0").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.hint(), Some("no device rxe0; there is no RDMA device on this machine"));
}

#[test]
fn an_rxe_device_is_found_by_everything_that_names_it() {
    let tree = Tree::new("rxe");
    tree.rxe(10, "rxe1");
    tree.rxe(2, "rxe0");
    let devices = devices_in(&tree.0).unwrap();
    let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
    assert_eq!(names, ["rxe0", "rxe1"], "in the order of the nodes");
    let device = devices.named("rxe1").unwrap();
    assert_eq!(device.node(), Some(Path::new("/dev/infiniband/uverbs10")));
    assert_eq!((device.driver(), device.driver_id(), device.abi_version()), ("rxe", 14, 2));
    assert_eq!(device.node_guid().to_string(), "a866:21ff:fe67:2270");
    assert_eq!(device.sys_image_guid(), Guid(0xa866_21ff_fe67_2271));
    assert_eq!((device.ports(), device.node_type(), device.firmware()), (1, 1, ""));
    assert_eq!(device.interfaces()[0].name, "dummy0");
    assert_eq!(devices.at_node("uverbs2").unwrap().name(), "rxe0");
    assert_eq!(devices.at_node("/dev/infiniband/uverbs10").unwrap().name(), "rxe1");
    assert_eq!(devices.with_guid(device.node_guid()).unwrap().name(), "rxe0", "the first of equals");
    let error = devices.named("mlx5_0").unwrap_err();
    assert_eq!(error.hint(), Some("no device mlx5_0; there is rxe0, rxe1"));
    assert_eq!(devices.indexed(0).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_driver_of_hardware_is_known_by_its_module() {
    let tree = Tree::new("mlx5");
    tree.rxe(0, "mlx5_0");
    fs::remove_file(tree.0.join("class/infiniband/mlx5_0/parent")).unwrap();
    let device = tree.0.join("class/infiniband_verbs/uverbs0/device");
    fs::create_dir_all(&device).unwrap();
    std::os::unix::fs::symlink("../../../bus/pci/drivers/mlx5_core", device.join("driver")).unwrap();
    assert_eq!(devices_in(&tree.0).unwrap()[0].driver(), "mlx5");
}

#[test]
fn damaged_entries_are_passed_over() {
    let tree = Tree::new("damaged");
    tree.rxe(0, "rxe0");
    tree.file("class/infiniband_verbs/uverbs1/ibdev", "../../../etc\n");
    tree.file("class/infiniband_verbs/uverbs2/ibdev", "\n");
    tree.file("class/infiniband_verbs/uverbs3/abi_version", "x\n");
    tree.file("class/infiniband_verbs/version", "6\n");
    let devices = devices_in(&tree.0).unwrap();
    assert_eq!(devices.iter().map(|device| device.name()).collect::<Vec<_>>(), ["rxe0"]);
}

#[test]
fn opening_a_node_that_is_not_there_names_it() {
    let tree = Tree::new("open");
    tree.rxe(4_000_000, "rxe0");
    let error = devices_in(&tree.0).unwrap()[0].open().unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::NotFound, "device.open"));
    assert!(error.hint().unwrap().contains("/dev/infiniband/uverbs4000000"));
}
