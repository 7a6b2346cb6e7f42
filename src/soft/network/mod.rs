//! A network inside the process, with a connection manager like the kernel's: [`SoftNetwork`].
//!
//! Checks are made in the kernel's order and with its errnos: ucma.c and cma.c, for InfiniBand and RoCE cm.c, for iWARP iwcm.c and the data
//! limits of siw; Linux 6.1 to 7.3.

mod attributes;
mod commands;
mod file;
mod listen;
mod look_up;
mod multicast;
mod ports;
mod setup;
mod state;
mod wire;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use self::file::NetworkFile;
use self::state::State;
use super::{Hardware, SoftDevice};
use crate::kernel::error::{Error, Result};
use crate::kernel::manager::ManagerFile;
use crate::kernel::process::Origin;

/// A network inside the process. Soft devices join it with addresses, and [`manager`](Self::manager) connects and listens on it as the
/// kernel's connection manager does.
///
/// All addresses are those of one host, so that a manager can be the client and the server. A device can have several addresses. Devices
/// whose [profile](super::Profile) says `iwarp` are connected as over iWARP, and have no datagrams, the others as over RoCE.
///
/// Differences from a kernel:
/// - Nothing takes time. A host that is not there, or a [lost](Self::lose) message, is found at once, where a kernel repeats it for 75
///   seconds.
/// - Messages of queue pairs stay within one device. Queue pairs of two devices can be connected, but their messages end as with a peer that
///   does not answer. So do datagrams, also those to groups.
///
/// Clones are the same network.
#[derive(Clone, Default)]
pub struct SoftNetwork {
    network: Arc<Network>,
}

pub(super) struct Network {
    process: Origin,
    state: Mutex<State>,
}

impl Default for Network {
    fn default() -> Self {
        Self { process: Origin::here(), state: Mutex::default() }
    }
}

impl Network {
    /// `None` in a child of `fork`, where another thread may hold the lock for ever.
    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        // Nothing panics under the lock.
        self.process.is_here().then(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A device was unplugged.
    pub(super) fn removed(&self, hardware: &Arc<Hardware>) {
        if let Some(mut state) = self.lock() {
            state.remove_device(hardware);
        }
    }
}

impl SoftNetwork {
    /// Gives a device an address. The network keeps the device.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the address is taken, or is none of a host.
    pub fn join(&self, device: &SoftDevice, address: IpAddr) -> Result<()> {
        let op = "network.join";
        self.network.process.check(op)?;
        if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            return Err(Error::refused(op, Errno::EINVAL, format!("{address} is not the address of a host")));
        }
        device.hardware.watch(&self.network);
        if let Some(mut state) = self.network.lock() {
            let is_new = state.join(device, address);
            if !is_new {
                let hint = format!("a device has the address {address} already");
                return Err(Error::refused(op, Errno::EEXIST, hint));
            }
        }
        Ok(())
    }

    /// Keeps the messages of the connection manager from now on, until [`release`](Self::release) delivers them: answers are late.
    pub fn hold(&self) {
        if let Some(mut state) = self.network.lock() {
            state.hold();
        }
    }

    /// Delivers the messages that were kept, in their order, and keeps no more.
    pub fn release(&self) {
        if let Some(mut state) = self.network.lock() {
            state.release();
        }
    }

    /// Loses the next `count` messages of the connection manager, with all their repetitions. Their senders learn that there is no answer,
    /// at once.
    pub fn lose(&self, count: usize) {
        if let Some(mut state) = self.network.lock() {
            state.lose(count);
        }
    }

    /// Gives the host with this address another hardware address: connections to it over RoCE are told, and stay as they are
    /// (`cma_netevent_work_handler`, cma.c, Linux 6.1).
    pub fn replace_neighbour(&self, address: IpAddr) {
        if let Some(mut state) = self.network.lock() {
            state.replace_neighbour(&address);
        }
    }

    /// The number of identifiers of all managers: of listeners, connections, and what becomes one.
    ///
    /// ```
    /// let network = uverbs::cm::SoftNetwork::default();
    /// assert_eq!(network.identifiers(), 0);
    /// ```
    pub fn identifiers(&self) -> usize {
        self.network.lock().map_or(0, |state| state.identifiers())
    }

    /// The device with this index.
    pub(crate) fn device(&self, index: u32) -> Result<SoftDevice> {
        let device = self.network.lock().and_then(|state| state.device(index));
        device.ok_or_else(|| Error::device_gone("cm.device"))
    }

    /// Opens a file of its connection manager.
    pub(crate) fn open(&self, op: &'static str) -> Result<impl ManagerFile + use<>> {
        NetworkFile::open(&self.network).map_err(|errno| Error::kernel(op, errno))
    }
}

impl fmt::Debug for SoftNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftNetwork").finish_non_exhaustive()
    }
}
