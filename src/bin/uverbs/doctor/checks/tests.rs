//! Each check, where it fires and where it is silent, on machines that are folders.

mod paths;

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs::ErrorKind;

use super::all;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::machine::Machine;
use crate::doctor::seen::{Grown, Seen, SeenDevice, SeenPort, Used};

/// A machine in a folder, which is removed at the end.
struct Tree {
    root: PathBuf,
    seen: Seen,
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Tree {
    fn empty() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("uverbs-doctor-{}-{number}", std::process::id()));
        let tree = Self { seen: Seen::of(Machine::at(&root)), root };
        tree.file("proc/sys/kernel/osrelease", "6.12.1-amd64\n");
        tree.file("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
        tree.folder("sys/bus/pci/devices");
        tree
    }

    /// A host with one healthy port of a ConnectX with an address.
    fn healthy() -> Self {
        let mut tree = Self::empty();
        tree.card("0000:01:00.0", "0x15b3", "0x101d", Some("mlx5_core"));
        tree.folder("sys/bus/pci/devices/0000:01:00.0/infiniband/mlx5_0");
        tree.folder("sys/module/mlx5_ib");
        tree.file("dev/infiniband/rdma_cm", "");
        tree.file("dev/infiniband/uverbs0", "");
        tree.folder("sys/class/infiniband_verbs/uverbs0");
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        for (name, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("link_layer", "Ethernet"),
            ("gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456"),
            ("gids/1", "0000:0000:0000:0000:0000:ffff:c000:0201"),
            ("gids/2", "0000:0000:0000:0000:0000:ffff:c000:0201"),
            ("gids/3", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("gid_attrs/types/0", "RoCE v2"),
            ("gid_attrs/types/1", "IB/RoCE v1"),
            ("gid_attrs/types/2", "RoCE v2"),
            ("gid_attrs/ndevs/0", "eth0"),
            ("gid_attrs/ndevs/1", "eth0"),
            ("gid_attrs/ndevs/2", "eth0"),
        ] {
            tree.file(&format!("{port}/{name}"), &format!("{text}\n"));
        }
        tree.file("sys/class/net/eth0/flags", "0x1003\n");
        tree.file("sys/class/net/eth0/mtu", "9000\n");
        let (folder, interfaces) = (port.to_owned(), vec!["eth0".to_owned()]);
        let port = SeenPort { number: 1, folder, interfaces, mtu: Some((4096, 4096)) };
        tree.seen.devices.push(SeenDevice {
            name: "mlx5_0".to_owned(),
            driver: "mlx5".to_owned(),
            is_adapter: true,
            node: Some("/dev/infiniband/uverbs0".to_owned()),
            ports: vec![port],
            refused: None,
        });
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        tree.seen.addresses = vec![
            ("lo".to_owned(), address("127.0.0.1")),
            ("eth0".to_owned(), address("192.0.2.1")),
            ("eth0".to_owned(), address("fe80::5054:ff:fe12:3456")),
        ];
        tree
    }

    fn folder(&self, name: &str) {
        fs::create_dir_all(self.root.join(name)).expect("a folder");
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn gone(&self, name: &str) {
        let path = self.root.join(name);
        let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        gone.expect("it was there");
    }

    fn port(&self, name: &str, text: &str) {
        self.file(&format!("sys/class/infiniband/mlx5_0/ports/1/{name}"), text);
    }

    fn card(&self, address: &str, vendor: &str, device: &str, driver: Option<&str>) {
        let folder = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{folder}/vendor"), &format!("{vendor}\n"));
        self.file(&format!("{folder}/device"), &format!("{device}\n"));
        if let Some(driver) = driver {
            symlink(format!("../../drivers/{driver}"), self.root.join(folder).join("driver"))
                .expect("a link");
        }
    }

    fn found(&self) -> Vec<Finding> {
        all(&self.seen)
    }

    /// The checks that found something worse than a note, with its severity.
    fn worse(&self) -> Vec<(&'static str, Severity)> {
        let worse = |finding: &&Finding| finding.severity > Severity::Note;
        self.found().iter().filter(worse).map(|finding| (finding.check, finding.severity)).collect()
    }

    /// The one finding of a check.
    fn one(&self, check: &str) -> Finding {
        let mut found: Vec<_> = self.found().into_iter().filter(|finding| finding.check == check).collect();
        assert_eq!(found.len(), 1, "{check}: {found:#?}");
        found.remove(0)
    }

    fn is_silent(&self, check: &str) {
        assert!(self.found().iter().all(|finding| finding.check != check), "{check}");
    }
}

use Severity::{Note, Problem, Warning};

#[test]
fn a_healthy_host_has_notes_alone() {
    let tree = Tree::healthy();
    assert_eq!(tree.worse(), []);
    let gid = tree.one("gid-index");
    assert_eq!((gid.device.as_deref(), gid.port), (Some("mlx5_0"), Some(1)));
    assert_eq!(gid.seen, "index 2 is the address to take: 192.0.2.1, RoCE v2, eth0");
}

#[test]
fn a_machine_without_anything_says_so() {
    let tree = Tree::empty();
    assert_eq!(tree.worse(), [("no-device", Problem)]);
    tree.gone("sys/bus");
    assert!(tree.one("no-device").seen.contains("sysfs is not mounted"));
}

#[test]
fn a_card_says_which_of_its_modules_is_missing() {
    for (driver, is_loaded, wanted) in [
        (None, false, "modprobe mlx5_core"),
        (Some("mlx5_core"), false, "modprobe mlx5_ib"),
        (Some("mlx5_core"), true, "devlink dev param show pci/0000:01:00.0"),
    ] {
        let tree = Tree::empty();
        tree.card("0000:01:00.0", "0x15b3", "0x101d", driver);
        if is_loaded {
            tree.folder("sys/module/mlx5_ib");
        }
        assert_eq!(tree.worse(), [("card-without-device", Problem)], "{driver:?}");
        let mend = tree.one("card-without-device").mend.expect("a command");
        assert!(mend.starts_with(wanted), "{mend}");
    }
}

#[test]
fn a_card_of_a_virtual_machine_is_a_note_and_the_machine_has_no_device() {
    let tree = Tree::empty();
    tree.card("0000:01:00.0", "0x15b3", "0x101d", Some("vfio-pci"));
    assert_eq!(tree.one("card-handed-over").severity, Note);
    assert_eq!(tree.worse(), [("no-device", Problem)]);
}

#[test]
fn a_network_card_that_may_have_rdma_is_a_note() {
    let tree = Tree::healthy();
    tree.card("0000:02:00.0", "0x8086", "0x1592", Some("ice"));
    tree.card("0000:03:00.0", "0x8086", "0x100e", Some("e1000"));
    assert_eq!(tree.one("card-without-device").severity, Note);
    // A second card that surely has it is a warning, since another one works.
    let tree = Tree::healthy();
    tree.card("0000:02:00.0", "0x1d0f", "0xefa1", None);
    assert_eq!(tree.worse(), [("card-without-device", Warning)]);
}

#[test]
fn files_that_programs_open_are_missing() {
    let tree = Tree::healthy();
    tree.gone("dev/infiniband/uverbs0");
    assert_eq!(tree.worse(), [("no-node", Problem)]);
    let tree = Tree::healthy();
    tree.gone("sys/class/infiniband_verbs");
    assert_eq!(tree.worse(), [("no-uverbs", Problem)]);
}

#[test]
fn exclusive_namespaces_matter_where_there_is_no_device() {
    let tree = Tree::healthy();
    tree.file("sys/module/ib_core/parameters/netns_mode", "N\n");
    assert_eq!(tree.one("exclusive-namespaces").severity, Note);
    let tree = Tree::empty();
    tree.file("sys/module/ib_core/parameters/netns_mode", "N\n");
    assert_eq!(tree.one("exclusive-namespaces").severity, Problem);
    tree.file("sys/module/ib_core/parameters/netns_mode", "Y\n");
    tree.is_silent("exclusive-namespaces");
}

#[test]
fn kernels_that_are_too_old_or_have_a_known_fault() {
    let tree = Tree::healthy();
    tree.is_silent("mlx5-default-rules");
    tree.file("proc/sys/kernel/osrelease", "7.3.4\n");
    assert_eq!(tree.one("mlx5-default-rules").device.as_deref(), Some("mlx5_0"));
    tree.file("proc/sys/kernel/osrelease", "5.15.0-generic\n");
    assert_eq!(tree.worse(), [("kernel-untested", Warning)]);
}

#[test]
fn a_device_that_cannot_be_opened() {
    let mut tree = Tree::healthy();
    tree.seen.devices[0].refused =
        Some((ErrorKind::PermissionDenied, "device.open: permission denied".to_owned()));
    let found = tree.one("open-denied");
    assert!(found.seen.starts_with("/dev/infiniband/uverbs0 (mode 0"), "{}", found.seen);
    tree.seen.devices[0].refused =
        Some((ErrorKind::Disassociated, "device.open: the device has gone".to_owned()));
    assert_eq!(tree.worse(), [("open-refused", Problem)]);
}

#[test]
fn memory_that_cannot_be_locked() {
    let limits = |bytes: &str| {
        format!("Limit   Soft Limit  Hard Limit  Units\nMax locked memory  {bytes}  {bytes}  bytes\n")
    };
    let tree = Tree::healthy();
    tree.file("proc/self/limits", &limits("65536"));
    // The capability makes the limit void.
    tree.is_silent("memory-limit");
    tree.file("proc/self/status", "CapEff:\t0000000000000000\n");
    assert_eq!(tree.worse(), [("memory-limit", Problem)]);
    assert!(tree.one("memory-limit").seen.contains("64 KiB"));
    assert_eq!(tree.one("no-net-raw").severity, Note);
    tree.file("proc/self/limits", &limits("8388608"));
    assert_eq!(tree.worse(), [("memory-limit", Warning)]);
    assert!(tree.one("memory-limit").seen.contains("8 MiB"));
    for enough in ["unlimited", "1073741824"] {
        tree.file("proc/self/limits", &limits(enough));
        tree.is_silent("memory-limit");
    }
}

#[test]
fn limits_of_the_cgroup() {
    let tree = Tree::healthy();
    tree.file("proc/self/cgroup", "0::/job\n");
    tree.file("sys/fs/cgroup/job/rdma.max", "mlx5_0 hca_handle=2 hca_object=max\n");
    tree.file("sys/fs/cgroup/job/rdma.current", "mlx5_0 hca_handle=1 hca_object=20\n");
    assert_eq!(tree.one("cgroup-limit").severity, Note);
    tree.file("sys/fs/cgroup/job/rdma.current", "mlx5_0 hca_handle=2 hca_object=20\n");
    assert_eq!(tree.worse(), [("cgroup-limit", Warning)]);
    tree.file("sys/fs/cgroup/job/rdma.max", "mlx5_0 hca_handle=max hca_object=max\n");
    tree.is_silent("cgroup-limit");
}

#[test]
fn a_port_that_is_not_active() {
    for (state, physical, flags, wanted) in [
        ("1: DOWN", "3: Disabled", "0x1002", "ip link set eth0 up"),
        ("1: DOWN", "2: Polling", "0x1003", "the other end does not answer"),
        ("2: INIT", "5: LinkUp", "0x1003", "start a subnet manager"),
        ("3: ARMED", "5: LinkUp", "0x1003", "the subnet manager has not finished"),
    ] {
        let tree = Tree::healthy();
        tree.port("state", state);
        tree.port("phys_state", physical);
        tree.file("sys/class/net/eth0/flags", flags);
        assert_eq!(tree.worse(), [("port-state", Problem)], "{state}");
        let mend = tree.one("port-state").mend.expect("a command");
        assert!(mend.starts_with(wanted), "{mend}");
    }
}

#[test]
fn a_second_port_that_is_down_is_a_warning() {
    let mut tree = Tree::healthy();
    let folder = "sys/class/infiniband/mlx5_0/ports/2".to_owned();
    tree.file(&format!("{folder}/state"), "1: DOWN\n");
    tree.seen.devices[0].ports.push(SeenPort { number: 2, folder, ..SeenPort::default() });
    assert_eq!(tree.worse(), [("port-state", Warning)]);
    assert_eq!(tree.one("port-state").port, Some(2));
}

#[test]
fn packets_that_are_smaller_than_they_could_be() {
    let mut tree = Tree::healthy();
    tree.file("sys/class/net/eth0/mtu", "1500\n");
    tree.seen.devices[0].ports[0].mtu = Some((1024, 4096));
    let found = tree.one("packet-size");
    assert_eq!((found.severity, found.mend.as_deref()), (Note, Some("ip link set eth0 mtu 4192")));
    tree.seen.devices[0].ports[0].mtu = Some((512, 4096));
    assert_eq!(tree.worse(), [("packet-size", Warning)]);
    // The port of a device whose packets are not RoCE's says nothing.
    tree.seen.devices[0].is_adapter = false;
    tree.is_silent("packet-size");
}

#[test]
fn a_bus_with_fewer_lanes_than_the_card() {
    let tree = Tree::healthy();
    let device = "sys/class/infiniband/mlx5_0/device";
    for (name, text) in [
        ("current_link_speed", "16.0 GT/s PCIe"),
        ("max_link_speed", "16.0 GT/s PCIe"),
        ("current_link_width", "8"),
        ("max_link_width", "16"),
    ] {
        tree.file(&format!("{device}/{name}"), text);
    }
    assert_eq!(tree.worse(), [("bus-speed", Warning)]);
    tree.file(&format!("{device}/current_link_width"), "16\n");
    tree.is_silent("bus-speed");
}

#[test]
fn addresses_that_are_missing_foreign_or_local() {
    let entries = ["gids", "gid_attrs"];
    let tree = Tree::healthy();
    entries.iter().for_each(|name| tree.gone(&format!("sys/class/infiniband/mlx5_0/ports/1/{name}")));
    assert_eq!(tree.worse(), [("no-gid", Problem)]);
    let tree = Tree::healthy();
    tree.gone("sys/class/net/eth0");
    assert_eq!(tree.worse(), [("foreign-gids", Warning)]);
    let mut tree = Tree::healthy();
    [1, 2].iter().for_each(|index| tree.gone(&format!("sys/class/infiniband/mlx5_0/ports/1/gids/{index}")));
    assert_eq!(tree.worse(), [("link-local-only", Warning), ("address-without-gid", Warning)]);
    tree.seen.addresses.retain(|(_, address)| address.is_ipv6());
    assert_eq!(tree.worse()[0], ("link-local-only", Warning));
    let tree = Tree::healthy();
    [0, 2].iter().for_each(|index| tree.port(&format!("gid_attrs/types/{index}"), "IB/RoCE v1"));
    assert_eq!(tree.worse(), [("only-roce-v1", Warning)]);
}

#[test]
fn an_address_of_two_devices() {
    let mut tree = Tree::healthy();
    let other =
        SeenDevice { name: "rxe0".to_owned(), driver: "rxe".to_owned(), ..tree.seen.devices[0].clone() };
    tree.seen.devices.push(other);
    tree.file("proc/sys/kernel/osrelease", "6.1.0\n");
    assert_eq!(tree.worse(), [("address-twice", Warning)]);
}

#[test]
fn the_connection_manager() {
    let tree = Tree::healthy();
    tree.gone("dev/infiniband/rdma_cm");
    assert_eq!(tree.worse(), [("no-manager", Warning)]);
    assert_eq!(tree.one("no-manager").mend.as_deref(), Some("modprobe rdma_ucm"));
    tree.folder("sys/class/misc/rdma_cm");
    assert!(tree.one("no-manager").seen.contains("the module is loaded"));
    let mut tree = Tree::healthy();
    tree.seen.addresses.retain(|(name, _)| name == "lo");
    assert_eq!(tree.worse(), [("no-address", Warning)]);
}

#[test]
fn errors_that_grow_and_objects_that_run_out() {
    let mut tree = Tree::healthy();
    let grown =
        |name: &str| Grown { device: "mlx5_0".to_owned(), port: Some(1), name: name.to_owned(), amount: 3 };
    tree.seen.grown = vec![grown("port_rcv_packets"), grown("out_of_sequence")];
    assert_eq!(tree.one("errors-grow").seen, "out_of_sequence has grown by 3 while this program looked");
    tree.seen.grown.clear();
    let used = |count| Used { device: "mlx5_0".to_owned(), what: "queue pairs", count, most: 100 };
    tree.seen.used = vec![used(89)];
    assert_eq!(tree.worse(), []);
    tree.seen.used = vec![used(90)];
    assert_eq!(tree.worse(), [("few-objects-left", Warning)]);
    tree.seen.users = vec![("mlx5_0".to_owned(), vec!["ib_send_bw[4711]".to_owned()])];
    assert_eq!(tree.one("in-use").seen, "in use by ib_send_bw[4711]");
}

#[test]
fn the_worst_come_first() {
    let tree = Tree::healthy();
    tree.port("state", "1: DOWN");
    tree.gone("dev/infiniband/rdma_cm");
    let found = tree.found();
    assert!(found.is_sorted_by(|one, next| one.severity >= next.severity), "{found:#?}");
    assert_eq!(found[0].check, "port-state");
}

#[test]
fn the_libraries_of_programs_are_named() {
    let tree = Tree::healthy();
    assert!(!all(&tree.seen).iter().any(|finding| finding.check == "library"));
    let line =
        |path: &str| format!("7f0000000000-7f0000001000 r-xp 00000000 08:01 42                 {path}\n");
    let system = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0";
    for (process, name, text) in [
        ("12", "ib_send_bw", line(system) + &line(system) + &line("/usr/lib/libc.so.6")),
        ("13", "sh", line("/usr/lib/libc.so.6")),
    ] {
        tree.file(&format!("proc/{process}/maps"), &text);
        tree.file(&format!("proc/{process}/comm"), &format!("{name}\n"));
    }
    let found = |tree: &Tree| -> Vec<_> {
        let found = all(&tree.seen).into_iter().filter(|finding| finding.check == "library");
        found.map(|finding| (finding.severity, finding.seen)).collect()
    };
    let one = format!("ib_send_bw[12]: {system}");
    assert_eq!(found(&tree), [(Severity::Note, one.clone())]);
    tree.file("proc/14/maps", &line("/opt/dropin/libibverbs.so.1 (deleted)"));
    tree.file("proc/14/comm", "app\n");
    let two = "app[14]: /opt/dropin/libibverbs.so.1".to_owned();
    assert_eq!(found(&tree), [(Severity::Note, two), (Severity::Note, one)]);
}
