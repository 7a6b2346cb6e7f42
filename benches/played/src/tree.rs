//! What sysfs and `/dev` have of the device: a directory with the few files that are read.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use uverbs_abi::types::{driver_id, link_layer};

/// The prefixes of the paths that lead into the tree.
const PREFIXES: [&str; 3] = ["/sys/class/infiniband_verbs", "/sys/class/infiniband", "/dev/infiniband"];

/// What tells the kinds of devices apart before they are opened.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The driver, as `PLAYED_DRIVER` names it.
    driver: &'static str,
    pub(crate) driver_id: u32,
    abi_version: u32,
    name: &'static str,
    /// The file by which the driver is known, and its content.
    mark: (&'static str, &'static str),
    node_type: &'static str,
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
        mark: ("device/modalias", "pci:v000015B3d00001017sv000015B3sd00000001bc02sc07i00"),
        node_type: "1: CA",
        link_layer: link_layer::INFINIBAND,
        lid: 1,
    },
    Kind {
        driver: "rxe",
        driver_id: driver_id::RXE,
        abi_version: uverbs_abi::rxe::ABI_VERSION,
        name: "rxe_0",
        mark: ("parent", "eth0"),
        node_type: "1: CA",
        link_layer: link_layer::ETHERNET,
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

/// Paths, and contents. The device file is `/dev/null`: whoever opens it compares its number with that in `dev`.
fn files(kind: &Kind) -> Vec<(String, String)> {
    let verbs = [
        ("abi_version", "6"),
        ("uverbs0/dev", "1:3"),
        ("uverbs0/abi_version", &kind.abi_version.to_string()),
        ("uverbs0/ibdev", kind.name),
        (&format!("uverbs0/{}", kind.mark.0), kind.mark.1),
    ]
    .map(|(path, content)| (format!("sys/class/infiniband_verbs/{path}"), format!("{content}\n")));
    let device = [
        kind.mark,
        ("node_type", kind.node_type),
        ("node_guid", "0200:00ff:fe00:0001"),
        ("sys_image_guid", "0200:00ff:fe00:0001"),
        ("fw_ver", "16.35.0"),
        ("ports/1/pkeys/0", "0xffff"),
    ]
    .map(|(path, content)| (format!("sys/class/infiniband/{}/{path}", kind.name), format!("{content}\n")));
    verbs.into_iter().chain(device).collect()
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
    match symlink("/dev/null", root.join("dev/infiniband/uverbs0")) {
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
