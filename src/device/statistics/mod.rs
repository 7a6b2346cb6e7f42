//! Counters that every RDMA device has, without opening it: those of its ports, its driver's, and those of queue pairs.
//!
//! [`Device::statistics`] makes a reader of all counters of a device, which is used again and again and takes each of them once in a
//! pass. [`Device::queue_pair_counters`] binds queue pairs to counters of their own. They are not the
//! [`Counters`](crate::Counters) of flows, which count what a rule takes.
//!
//! Reading is open to everybody, and asks the driver: on mlx5 a pass is some firmware commands.
//!
//! ```no_run
//! # fn main() -> uverbs::Result<()> {
//! let mut statistics = uverbs::devices()?.named("mlx5_0")?.statistics()?;
//! for counter in statistics.read()? {
//!     let full = if counter.is_saturated() { " or more" } else { "" };
//!     println!("{} {}{full} {}", counter.name(), counter.value(), counter.unit().as_str());
//! }
//! # Ok(())
//! # }
//! ```

mod answer;
mod folder;
mod kernel;
mod meaning;
mod optional;
mod queue_pairs;
mod statistic;
mod table;
// Not under Miri: see `device::tests`.
#[cfg(all(test, not(miri)))]
mod tests;

#[cfg(feature = "tokio")]
use std::time::{Duration, Instant};

use self::kernel::Kernel;
pub use self::optional::OptionalStatistic;
pub use self::queue_pairs::{BindBy, CounterMode, QueuePairCounter, QueuePairCounters};
pub use self::statistic::{Source, Statistic, Unit, Width};
use self::table::Table;
use super::{Device, Node};
use crate::kernel::error::{Error, Result};
#[cfg(feature = "soft")]
use crate::soft::SoftDevice;

const OPEN: &str = "statistics.open";
const READ: &str = "statistics.read";

const NO_COUNTERS: &str = "the driver has no counters of its own of ports";

/// A counter that is there, and could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The port, from 1; none of the device.
    pub port: Option<u32>,
    /// Where it would come from.
    pub source: Source,
    /// The kernel's name of it; none of all that come from there.
    pub name: Option<String>,
    /// Why not.
    pub error: Error,
}

/// A reader of all counters of a device, or of those of one port.
///
/// It keeps what it needs: a socket of RDMA netlink and a folder of sysfs for each port, and memory for the values. As long as the device has the
/// same counters, [`read`](Self::read) allocates nothing after the first time. A child of `fork` can go on with its copy.
#[derive(Debug)]
pub struct Statistics {
    from: From,
    table: Table,
    missing: Vec<Missing>,
    /// When it was to be read the last time.
    #[cfg(feature = "tokio")]
    due: Option<Instant>,
}

/// Who is asked.
#[derive(Debug)]
enum From {
    Kernel(Box<Kernel>),
    #[cfg(feature = "soft")]
    Soft(SoftDevice),
}

impl From {
    fn as_kernel(&mut self) -> Option<&mut Kernel> {
        match self {
            Self::Kernel(kernel) => Some(kernel),
            #[cfg(feature = "soft")]
            Self::Soft(_) => None,
        }
    }
}

impl Device {
    /// Makes a reader of all counters of the device: of each port those of InfiniBand's own set ([`Source::Port`]) and the driver's
    /// ([`Source::Hardware`]), then those of the device. The device is not opened, and no right is needed.
    ///
    /// Hardware counters of ports come by RDMA netlink, all of a port's in one request; where it is not there, or its answer has not room for
    /// them, they are read from sysfs, as all others are. A driver without counters gives none; that is no error.
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`](crate::ErrorKind::Disassociated) when the device has gone,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when neither netlink nor sysfs knows it, as in some containers, and those of reading
    /// sysfs.
    ///
    /// # Kernel
    /// `nldev_stat_get_doit` (core/nldev.c) and core/sysfs.c, Linux 5.3.
    #[doc(alias = "rdma_statistic")]
    #[doc(alias = "perfquery")]
    pub fn statistics(&self) -> Result<Statistics> {
        let ports: Vec<_> = (1..=self.ports).collect();
        Statistics::open(self, &ports, true)
    }

    /// Makes a reader of the counters of one port, from 1.
    ///
    /// # Errors
    /// Those of [`statistics`](Self::statistics), and [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) without such a port.
    ///
    /// ```
    /// let device = uverbs::SoftDevice::default().device();
    /// assert!(device.port_statistics(1).is_ok());
    /// let error = device.port_statistics(2).unwrap_err();
    /// assert_eq!(error.to_string(), "statistics.open: not found (EINVAL): no port 2 on soft0; the last one is 1");
    /// ```
    pub fn port_statistics(&self, port: u32) -> Result<Statistics> {
        self.check_port(OPEN, port)?;
        Statistics::open(self, &[port], false)
    }
}

impl Statistics {
    fn open(device: &Device, ports: &[u32], with_device: bool) -> Result<Self> {
        let from = match &device.node {
            Node::File(_) => From::Kernel(Box::new(Kernel::open(device, ports, with_device)?)),
            #[cfg(feature = "soft")]
            Node::Soft(soft) => From::Soft(soft.clone()),
        };
        Ok(Self::of(from))
    }

    fn of(from: From) -> Self {
        Self {
            from,
            table: Table::default(),
            missing: Vec::new(),
            #[cfg(feature = "tokio")]
            due: None,
        }
    }

    /// Reads each counter once: the ports in their order, of each its own counters first, then the device's. Values of one source and port belong
    /// to one moment if they come by netlink; files are read one after the other.
    ///
    /// What cannot be read is left out, and told by [`missing`](Self::missing).
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`](crate::ErrorKind::Disassociated) when the device has gone since the reader was made. One that comes back is
    /// another device: look for it again.
    pub fn read(&mut self) -> Result<&[Statistic]> {
        self.table.begin();
        self.missing.clear();
        match &mut self.from {
            From::Kernel(kernel) => kernel.read(&mut self.table, &mut self.missing),
            #[cfg(feature = "soft")]
            From::Soft(soft) => soft_counters(soft, &mut self.table)?,
        }
        let is_new = self.table.end();
        if let Some(kernel) = self.from.as_kernel() {
            // Of a device without counters nothing is missing, either way.
            let is_doubtful = !self.missing.is_empty() || self.table.rows().is_empty();
            if is_doubtful && kernel.is_gone() {
                return Err(Error::device_gone(READ));
            }
            if is_new {
                kernel.mark(self.table.rows_mut());
            }
        }
        Ok(self.table.rows())
    }

    /// What the last [`read`](Self::read) has found; nothing before the first.
    pub fn latest(&self) -> &[Statistic] {
        self.table.rows()
    }

    /// What the last [`read`](Self::read) could not read, and why.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// When the next reading is due: at once the first time, then an interval after the last was due. Readings that were missed are not
    /// made up for.
    #[cfg(feature = "tokio")]
    pub(crate) fn due(&self, interval: Duration) -> Instant {
        let now = Instant::now();
        self.due.map_or(now, |due| due.checked_add(interval).unwrap_or(due).max(now))
    }

    /// Reads what was due.
    #[cfg(feature = "tokio")]
    pub(crate) fn read_due(&mut self, due: Instant) -> Result<&[Statistic]> {
        self.due = Some(due);
        self.read()
    }
}

/// The soft device counts frames: those that come in, from the wire or looped back, and those that it sends.
#[cfg(feature = "soft")]
fn soft_counters(soft: &SoftDevice, table: &mut Table) -> Result<()> {
    use self::meaning::Meaning;
    let frames = soft.frames(READ)?.ok_or_else(|| Error::device_gone(READ))?;
    let place = (Some(1), Source::Hardware);
    for (name, raw) in [
        ("sent_pkts", frames.sent),
        ("rcvd_pkts", frames.received),
        ("sent_bytes", frames.sent_bytes),
        ("rcvd_bytes", frames.received_bytes),
    ] {
        let meaning = |name: &str| Meaning::of(place.1, name, false, &crate::driver::Driver::Soft);
        table.put(place, name.as_bytes(), raw, meaning);
    }
    Ok(())
}
