//! What sysfs and `/dev` have of the device: a directory with the few files that are read.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use uverbs_abi::types::{driver_id, link_layer, node_type};

/// The device file, and its number, which is that of `/dev/null`: whoever opens it compares the number with what sysfs or netlink says.
pub(crate) const NODE: &str = "uverbs0";
pub(crate) const NUMBER: (u32, u32) = (1, 3);
pub(crate) const GUID: u64 = 0x0200_00ff_fe00_0001;

/// The prefixes of the paths that lead into the tree.
const PREFIXES: [&str; 3] = ["/sys/class/infiniband_verbs", "/sys/class/infiniband", "/dev/infiniband"];

/// What tells the kinds of devices apart before they are opened.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The driver, as `PLAYED_DRIVER` names it.
    driver: &'static str,
    pub(crate) driver_id: u32,
    pub(crate) abi_version: u32,
    pub(crate) name: &'static str,
    /// The file in sysfs by which the driver is known, and its content.
    mark: Option<(&'static str, &'static str)>,
    pub(crate) node_type: u8,
    pub(crate) link_layer: u8,
    pub(crate) lid: u16,
}

const KINDS: &[Kind] = &[
    // A ConnectX-5 on InfiniBand.
    Kind {
        driver: "mlx5",
        driver_id: driver_id::MLX5,
        abi_version: 1,
        name: "mlx5_0",
        mark: Some(("device/modalias", "pci:v000015B3d00001017sv000015B3sd00000001bc02sc07i00")),
        node_type: node_type::IB_CA,
        link_layer: link_layer::INFINIBAND,
        lid: 1,
    },
    Kind {
        driver: "rxe",
        driver_id: driver_id::RXE,
        abi_version: uverbs_abi::rxe::ABI_VERSION,
        name: "rxe_0",
        mark: Some(("parent", "eth0")),
        node_type: node_type::IB_CA,
        link_layer: link_layer::ETHERNET,
        lid: 0,
    },
    Kind {
        driver: "siw",
        driver_id: driver_id::SIW,
        abi_version: uverbs_abi::siw::ABI_VERSION,
        name: "siw_0",
        mark: None,
        node_type: node_type::RNIC,
        link_layer: link_layer::ETHERNET,
        lid: 0,
    },
    // An adapter that has reads and writes.
    Kind {
        driver: "efa",
        driver_id: driver_id::EFA,
        abi_version: uverbs_abi::efa::ABI_VERSION,
        name: "efa_0",
        mark: Some(("device/modalias", "pci:v00001D0Fd0000EFA2sv00001D0Fsd0000EFA2bc02sc00i00")),
        node_type: node_type::UNSPECIFIED,
        link_layer: link_layer::UNSPECIFIED,
        lid: 0,
    },
];

/// The device that is played.
pub(crate) fn kind() -> &'static Kind {
    static KIND: OnceLock<&Kind> = OnceLock::new();
    KIND.get_or_init(|| {
        let driver = std::env::var("PLAYED_DRIVER").unwrap_or_default();
        let kind = KINDS.iter().find(|kind| kind.driver == driver);
        kind.unwrap_or_else(|| crate::fail(&format!("PLAYED_DRIVER={driver} is not played")))
    })
}

/// Paths, and contents.
fn files(kind: &Kind) -> Vec<(String, String)> {
    let (abi_version, node_type) = (kind.abi_version.to_string(), kind.node_type.to_string());
    let (number, guid) = (format!("{}:{}", NUMBER.0, NUMBER.1), guid());
    let verbs = [("dev", &*number), ("abi_version", &abi_version), ("ibdev", kind.name)]
        .into_iter()
        .chain(kind.mark)
        .map(|(path, content)| (format!("infiniband_verbs/{NODE}/{path}"), content));
    let device = [
        ("node_type", &*node_type),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("fw_ver", "16.35.0"),
        ("ports/1/pkeys/0", "0xffff"),
    ]
    .into_iter()
    .chain(kind.mark)
    .map(|(path, content)| (format!("infiniband/{}/{path}", kind.name), content));
    let all = ("infiniband_verbs/abi_version".to_owned(), "6");
    let files = std::iter::once(all).chain(verbs).chain(device);
    files.map(|(path, content)| (format!("sys/class/{path}"), format!("{content}\n"))).collect()
}

/// The GUID as sysfs writes it.
fn guid() -> String {
    let groups = [48, 32, 16, 0].map(|shift| format!("{:04x}", GUID >> shift & 0xffff));
    groups.join(":")
}

/// The directory, which is filled at the first call.
fn root() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let root = PathBuf::from(std::env::var_os("PLAYED")?);
        match fill(&root) {
            Ok(()) => Some(root),
            Err(error) => crate::fail(&format!("{}: {error}", root.display())),
        }
    });
    root.as_deref()
}

fn fill(root: &Path) -> io::Result<()> {
    for (path, content) in files(kind()) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, content)?;
    }
    fs::create_dir_all(root.join("dev/infiniband"))?;
    match symlink("/dev/null", root.join("dev/infiniband").join(NODE)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Where `path` is in the tree, if it is a path of RDMA devices.
pub(crate) fn place(path: &str) -> Option<PathBuf> {
    let is_below =
        |prefix| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    PREFIXES.into_iter().find(|prefix| is_below(*prefix))?;
    Some(root()?.join(path.trim_start_matches('/')))
}
