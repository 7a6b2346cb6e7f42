//! The system's pages.

use nix::unistd::{SysconfVar, sysconf};

/// Bytes of a page: 4096 on x86-64, up to 65536 elsewhere.
pub(crate) fn page_size() -> usize {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| usize::try_from(size).ok());
    size.unwrap_or(super::PAGE)
}
