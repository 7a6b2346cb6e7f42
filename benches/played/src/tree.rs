//! What sysfs and `/dev` have of the device: a directory with the few files that are read.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The prefixes of the paths that lead into the tree.
const PREFIXES: [&str; 3] = ["/sys/class/infiniband_verbs", "/sys/class/infiniband", "/dev/infiniband"];

/// Path, and content. The device file is `/dev/null`: whoever opens it compares its number with that in `dev`.
const FILES: &[(&str, &str)] = &[
    ("sys/class/infiniband_verbs/abi_version", "6\n"),
    ("sys/class/infiniband_verbs/uverbs0/dev", "1:3\n"),
    ("sys/class/infiniband_verbs/uverbs0/abi_version", "1\n"),
    ("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
    ("sys/class/infiniband_verbs/uverbs0/device/modalias", MODALIAS),
    ("sys/class/infiniband/mlx5_0/device/modalias", MODALIAS),
    ("sys/class/infiniband/mlx5_0/node_type", "1: CA\n"),
    ("sys/class/infiniband/mlx5_0/node_guid", "0200:00ff:fe00:0001\n"),
    ("sys/class/infiniband/mlx5_0/sys_image_guid", "0200:00ff:fe00:0001\n"),
    ("sys/class/infiniband/mlx5_0/fw_ver", "16.35.0\n"),
    ("sys/class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff\n"),
];

/// A ConnectX-5.
const MODALIAS: &str = "pci:v000015B3d00001017sv000015B3sd00000001bc02sc07i00\n";

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
    for (path, content) in FILES {
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
