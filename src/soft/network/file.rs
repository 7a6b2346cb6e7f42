//! An open file of the network's connection manager.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::Network;
use super::commands::Call;
use crate::kernel::manager::{ManagerCommand, ManagerFile};

/// The file, which is closed with its identifiers when this is dropped.
pub(super) struct NetworkFile {
    network: Arc<Network>,
    number: u32,
    /// Holds a byte while an event waits.
    ready: OwnedFd,
}

impl NetworkFile {
    pub(super) fn open(network: &Arc<Network>) -> Result<Self, Errno> {
        let (ready, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let reader = ready.try_clone().map_err(|_| Errno::EMFILE)?;
        let number = network.lock().ok_or(Errno::EACCES)?.open(&ready, reader, writer);
        Ok(Self { network: network.clone(), number, ready })
    }
}

impl ManagerFile for NetworkFile {
    fn send(&self, command: &mut ManagerCommand<'_>) -> Result<(), Errno> {
        // As the kernel answers in a child of `fork`.
        let mut state = self.network.lock().ok_or(Errno::EACCES)?;
        Call { state: &mut state, file: self.number }.run(command)
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for NetworkFile {
    fn drop(&mut self) {
        if let Some(mut state) = self.network.lock() {
            state.close(self.number);
        }
    }
}

impl std::fmt::Debug for NetworkFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetworkFile").field("number", &self.number).finish_non_exhaustive()
    }
}
