//! The soft device: a complete RDMA device inside the process, for tests and for machines without hardware. Start with
//! [`SoftDevice`]; [`Traffic`] generates frames, and [`Capture`] reads them from a file.
//!
//! It answers the same commands as the kernel, with the same checks and the same errno: those of the uverbs core, of mlx5's flows
//! and counters, and of rxe's queues, as of Linux 6.1. It carries messages, datagrams and raw Ethernet frames between its own
//! queue pairs; [`SoftDevice::inject`] delivers frames from outside. Unlike the kernel, it requires no capability.
//!
//! Differences from hardware:
//! - Its port is looped back: sent frames arrive again, except at the sender itself.
//! - Its queues are rxe's rings, but they also support raw packets and extended reliable connections, which rxe does not.
//! - Messages and datagrams do not become frames: no flow matches them, and no capture contains them. None is lost, and there are no
//!   timers: a message without a posted receive waits for one if the sender's RNR retry count is 7, and fails immediately with a smaller
//!   count. A message to a queue pair that does not exist fails immediately, whatever the retry count (with a [profile like
//!   rxe](Profile::rxe), a count of 7 means that it is retried for ever). Posting a receive notifies the device, so its effects are
//!   complete when the call returns.
//! - A flow tag is in the completion's immediate data.
//! - When an object is destroyed, the number of its events that were read is reported as zero.
//! - Its port counts frames and their bytes ([`Device::statistics`](crate::Device::statistics)); looped-back frames count in both
//!   directions.

mod addresses;
mod attributes;
mod call;
mod completion_counters;
mod connection;
mod context;
mod copy;
mod counters;
mod datagrams;
mod engine;
mod events;
mod flow_check;
mod flows;
mod gids;
mod matcher;
mod memory;
mod memory_regions;
mod messages;
mod modify;
mod multicast;
mod network;
#[cfg(feature = "raw")]
mod on_wire;
mod packet;
mod parse;
#[cfg(feature = "pcap")]
mod pcap;
mod pieces;
mod profile;
mod queue_pairs;
mod queues;
mod receive;
mod resources;
mod responder;
mod ring;
mod rxe;
mod schema;
mod send;
mod shared_receives;
mod state;
mod steering;
mod table;
#[cfg(test)]
mod testing;
mod traffic;
mod transitions;
mod windows;
mod wire;
mod write;
mod xrc;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use self::connection::Connection;
use self::network::Network;
pub use self::network::SoftNetwork;
#[cfg(feature = "raw")]
pub use self::on_wire::DeviceOnWire;
#[cfg(feature = "pcap")]
pub use self::pcap::{Capture, CaptureError, Frame};
pub use self::profile::Profile;
pub use self::resources::Resources;
use self::state::State;
pub use self::traffic::{Traffic, TrafficError, Vary};
pub use self::wire::Faults;
use self::wire::driver::Driver;
use crate::driver::ring::RingDevice;
use crate::kernel::error::Result;
use crate::kernel::process::Origin as Process;
use crate::kernel::transport::Transport;
pub use crate::kernel::transport::{RawAttr, RawCommand, RawConnection};

/// The driver id in commands for it: none of the kernel's drivers.
pub(crate) const DRIVER_ID: u32 = 0;
/// Number of ports.
pub(crate) const PORTS: u8 = 1;
/// GUID of the device, and of its system: a locally administered one.
pub(crate) const NODE_GUID: u64 = 0x0200_5eff_fe00_0001;
/// The firmware version as text.
pub(crate) const FIRMWARE: &str = "0.1.0";

/// A soft device: it takes the place of the hardware, and can be opened any number of times.
///
/// Clones are the same device. It exists as long as a clone or an open context. It is memory of the process that created it: in a
/// child of `fork` it cannot be opened, and calls have no effect.
#[derive(Clone)]
pub struct SoftDevice {
    hardware: Arc<Hardware>,
}

#[derive(Debug)]
struct Hardware {
    profile: Profile,
    /// The process that owns its memory.
    process: Process,
    state: Arc<Mutex<State>>,
    /// The networks that it has joined, to be told when it is removed.
    networks: Mutex<Vec<Weak<Network>>>,
    /// What drives its wire, if it has one.
    driver: OnceLock<Driver>,
}

impl Hardware {
    /// Locks the state. `None` in a child of `fork`: a thread that does not exist there may hold the lock, and the event files are the
    /// parent's.
    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        // Nothing panics under the lock. If it did, the state would still be usable.
        self.process.is_here().then(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn networks(&self) -> MutexGuard<'_, Vec<Weak<Network>>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a network told when the device is removed.
    fn watch(&self, network: &Arc<Network>) {
        let mut networks = self.networks();
        let is_known = networks.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(network)));
        if !is_known {
            networks.push(Arc::downgrade(network));
        }
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        // A child of `fork` has no such thread, and shares what would wake the parent's.
        if let Some(driver) = self.driver.get_mut().filter(|_| self.process.is_here()) {
            driver.end();
        }
    }
}

impl Default for SoftDevice {
    fn default() -> Self {
        Self::new(Profile::default())
    }
}

impl SoftDevice {
    /// Whether both are handles of one device.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.hardware, &other.hardware)
    }

    /// Creates a device with the given profile.
    ///
    /// Sizes in the profile that exceed the range of the device's numbers are reduced.
    pub fn new(profile: Profile) -> Self {
        let profile = profile.bounded();
        let state = Arc::new(Mutex::new(State::new(profile.clone())));
        Self {
            hardware: Arc::new(Hardware {
                profile,
                process: Process::here(),
                state,
                networks: Mutex::default(),
                driver: OnceLock::new(),
            }),
        }
    }

    /// Creates a device with the given profile on a wire: its queue pairs reach those of other devices by RoCE v2, from an ordinary UDP
    /// socket on this address and port 4791. Nothing else is needed: no privileges, no module of the kernel, no RDMA hardware.
    ///
    /// Its first GID is the address. Two devices on one host have two addresses, such as 127.0.0.2 and 127.0.0.3. The other side may be
    /// such a device in this process or another one, the kernel's rxe, or a card. A thread of the device handles packets and timers; it
    /// ends with the device.
    ///
    /// Reliable, unreliable and extended connections and datagrams use the wire; multicast groups do not. Frames of raw packet
    /// queue pairs stay inside the process. The port's MTU is at most what the interface sends.
    ///
    /// # Errors
    ///
    /// Those of binding the socket: the address is not one of this host, or the port is taken. rxe takes the port for all addresses of
    /// its network namespace.
    ///
    /// ```no_run
    /// use uverbs::SoftDevice;
    /// use uverbs::soft::Profile;
    ///
    /// let device = SoftDevice::on("127.0.0.2".parse().unwrap(), Profile::default())?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on(address: IpAddr, profile: Profile) -> io::Result<Self> {
        let socket = wire::Socket::bind(address)?;
        let device = Self::new(profile.at(address));
        let driver = Driver::start(&device.hardware.state, socket)?;
        // The device was created a moment ago, so it has none.
        let _ = device.hardware.driver.set(driver);
        Ok(device)
    }

    /// The address on the wire, if it [has one](Self::on).
    pub fn address(&self) -> Option<IpAddr> {
        self.hardware.profile.address
    }

    /// Handles what has arrived on the [wire](Self::on) and what is due, in this thread. True if there was something, so that a queue that
    /// was empty may have a completion now.
    ///
    /// A program that polls calls this when it has found nothing: it then does not wait for the device's thread, which leaves the wire
    /// to the program for a millisecond. Never blocks. Without a wire it does nothing.
    ///
    /// ```
    /// let device = uverbs::SoftDevice::default();
    /// assert!(!device.progress());
    /// ```
    pub fn progress(&self) -> bool {
        if !self.hardware.process.is_here() {
            return false;
        }
        // If another thread has the lock, that thread makes progress.
        self.hardware.state.try_lock().is_ok_and(|mut state| state.progress())
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.hardware.profile.name
    }

    /// The device's capabilities and sizes.
    pub fn profile(&self) -> &Profile {
        &self.hardware.profile
    }

    /// The number of existing objects, of all open contexts together.
    ///
    /// ```
    /// let device = uverbs::soft::SoftDevice::default();
    /// assert!(device.resources().is_empty());
    /// ```
    pub fn resources(&self) -> Resources {
        self.hardware.lock().map_or_else(Resources::default, |mut state| state.resources())
    }

    /// Delivers a frame from outside to port 1. It starts with the destination address and ends with the payload (without check
    /// sequence).
    pub fn inject(&self, frame: &[u8]) {
        if let Some(mut state) = self.hardware.lock() {
            state.arrive_from_wire(frame);
        }
    }

    /// Delivers frames of a capture, as [`inject`](Self::inject) does: it waits for the next one, and also delivers those that
    /// were read together with it. Returns the number of frames, which is zero at the end of the capture.
    ///
    /// # Errors
    ///
    /// Those of [`Capture::next_frame`]. All frames before the error were delivered.
    ///
    /// ```
    /// # use uverbs::soft::{Capture, SoftDevice};
    /// let device = SoftDevice::default();
    /// let mut capture = Capture::open("tests/golden/mixed.pcap")?;
    /// let mut frames = 0;
    /// loop {
    ///     match device.play(&mut capture)? {
    ///         0 => break,
    ///         more => frames += more,
    ///     }
    /// }
    /// assert!(frames > 0);
    /// # Ok::<(), uverbs::soft::CaptureError>(())
    /// ```
    #[cfg(feature = "pcap")]
    pub fn play(&self, capture: &mut Capture) -> std::result::Result<u64, CaptureError> {
        // No other caller must wait for the source.
        let Some(frame) = capture.next_frame()? else { return Ok(0) };
        let mut state = self.hardware.lock();
        let mut arrive = |frame: &[u8]| state.iter_mut().for_each(|state| state.arrive_from_wire(frame));
        arrive(frame.bytes);
        let mut frames = 1;
        while let Some(frame) = capture.buffered_frame() {
            arrive(frame);
            frames += 1;
        }
        Ok(frames)
    }

    /// Removes the hardware.
    ///
    /// Its objects are destroyed. Their handles can still be destroyed; all other calls fail with `EIO`. Event files report
    /// "device fatal", and completion channels end. If the profile has no `disassociate`, the device stays until the last context
    /// is closed.
    pub fn unplug(&self) {
        if let Some(mut state) = self.hardware.lock() {
            state.unplug();
        }
        if self.hardware.process.is_here() {
            let networks: Vec<_> = self.hardware.networks().iter().filter_map(Weak::upgrade).collect();
            networks.iter().for_each(|network| network.removed(&self.hardware));
        }
    }

    /// The counters of its port, by rxe's names; `None` if it was removed. Frames count as packets.
    pub(crate) fn counters(
        &self,
        op: &'static str,
    ) -> Result<Option<impl Iterator<Item = (&'static str, u64)> + use<>>> {
        self.hardware.process.check(op)?;
        Ok(self.hardware.lock().filter(|state| !state.gone).map(|state| {
            let frames = state.frames;
            let wire = state.wire.as_ref().map(|wire| wire.counts);
            let all = wire.unwrap_or_default().with_frames(&frames).named();
            // Without a wire there is nothing else to count.
            all.into_iter().take(if wire.is_some() { all.len() } else { 4 })
        }))
    }

    /// The device to notify of receives of this queue pair, or of a shared queue.
    pub(crate) fn ring_device(&self, qp: Option<u32>) -> impl RingDevice + use<> {
        Receives { hardware: self.hardware.clone(), qp }
    }

    /// Opens a file on it.
    pub(crate) fn connect(&self, op: &'static str) -> Result<impl Transport + use<>> {
        self.hardware.process.check(op)?;
        Ok(self.open_file())
    }

    fn open_file(&self) -> Connection {
        // In a child there is no file, so every command returns EIO.
        let file = self.hardware.lock().map_or(0, |mut state| state.open());
        Connection { file, hardware: self.hardware.clone() }
    }

    /// Opens a connection that accepts any command, also a malformed one.
    pub fn raw(&self) -> RawConnection {
        let connection = self.open_file();
        if let Some(mut state) = self.hardware.lock()
            && let Some(file) = state.files.get_mut(&connection.file)
        {
            file.only_memory = Some(Vec::new());
        }
        RawConnection::new(Box::new(connection), DRIVER_ID)
    }
}

impl fmt::Debug for SoftDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftDevice").field("profile", &self.hardware.profile).finish_non_exhaustive()
    }
}

/// Notifies the device of posted receives.
#[derive(Debug)]
struct Receives {
    hardware: Arc<Hardware>,
    qp: Option<u32>,
}

impl RingDevice for Receives {
    fn look(&self) {
        let Some(mut state) = self.hardware.lock() else { return };
        if let Some(qp) = self.qp {
            state.flush_late_receives(qp);
        }
        state.retry_waiting();
        state.transmit();
    }
}
