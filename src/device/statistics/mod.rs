//! Counters of every RDMA device, read without opening it: of its ports, of its driver, and of queue pairs.
//!
//! Start with [`Device::statistics`], which creates a reader of all counters of a device. Keep the reader and call
//! [`read`](Statistics::read) repeatedly. [`Device::queue_pair_counters`] binds queue pairs to their own counters. These are not
//! the [`Counters`](crate::Counters) of flows, which count what a rule matches.
//!
//! Reading needs no privileges. Each pass queries the driver, which on mlx5 takes a few firmware commands.
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
pub use self::statistic::{Change, Source, Statistic, Unit, Width};
use self::table::Table;
use super::{Device, Node};
use crate::kernel::error::{Error, Result};
#[cfg(feature = "soft")]
use crate::soft::SoftDevice;

const OPEN: &str = "statistics.open";
const READ: &str = "statistics.read";

const NO_COUNTERS: &str = "the driver has no counters of its own of ports";

/// A counter that exists and could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The port, from 1; none for a counter of the device.
    pub port: Option<u32>,
    /// The source of the counter.
    pub source: Source,
    /// The kernel's name of the counter; none if it concerns all counters of this source.
    pub name: Option<String>,
    /// The error.
    pub error: Error,
}

/// A reader of all counters of a device, or of those of one port.
///
/// It holds an RDMA netlink socket, a sysfs folder for each port, and memory for the values. As long as the device has the same
/// counters, and none of them wraps, [`read`](Self::read) allocates nothing after the first call. A child of `fork` can use its copy.
#[derive(Debug)]
pub struct Statistics {
    from: Reader,
    table: Table,
    missing: Vec<Missing>,
    /// When the last reading was due.
    #[cfg(feature = "tokio")]
    due: Option<Instant>,
}

/// The source of the values.
#[derive(Debug)]
enum Reader {
    Kernel(Box<Kernel>),
    #[cfg(feature = "soft")]
    Soft(SoftDevice),
}

impl Reader {
    fn as_kernel(&mut self) -> Option<&mut Kernel> {
        match self {
            Self::Kernel(kernel) => Some(kernel),
            #[cfg(feature = "soft")]
            Self::Soft(_) => None,
        }
    }
}

impl Device {
    /// Creates a reader of all counters of the device: for each port InfiniBand's own counters ([`Source::Port`]) and the
    /// driver's ([`Source::Hardware`]), then the counters of the device. The device is not opened, and no privileges are needed.
    ///
    /// Hardware counters of a port are read through RDMA netlink, in one request. If netlink is not available, or its answer has
    /// no room for them, they are read from sysfs, like all other counters. For a driver without counters the result is empty,
    /// which is not an error.
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`](crate::ErrorKind::Disassociated) if the device has gone,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if neither netlink nor sysfs has it, as in some containers, and those of
    /// reading sysfs.
    ///
    /// # Kernel
    /// `nldev_stat_get_doit` (core/nldev.c) and core/sysfs.c, Linux 5.3.
    #[doc(alias = "rdma_statistic")]
    #[doc(alias = "perfquery")]
    pub fn statistics(&self) -> Result<Statistics> {
        let ports: Vec<_> = (1..=self.ports).collect();
        Statistics::open(self, &ports, true)
    }

    /// Creates a reader of the counters of one port, from 1.
    ///
    /// # Errors
    /// Those of [`statistics`](Self::statistics), and [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if there is no such
    /// port.
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
            Node::File(_) => Reader::Kernel(Box::new(Kernel::open(device, ports, with_device)?)),
            #[cfg(feature = "soft")]
            Node::Soft(soft) => Reader::Soft(soft.clone()),
        };
        Ok(Self::of(from))
    }

    fn of(from: Reader) -> Self {
        Self {
            from,
            table: Table::default(),
            missing: Vec::new(),
            #[cfg(feature = "tokio")]
            due: None,
        }
    }

    /// Reads each counter once, in this order: for each port InfiniBand's own counters, then the driver's; at the end the
    /// counters of the device. Values of one source and port are read at the same time if they come through netlink; sysfs files
    /// are read one after the other.
    ///
    /// Counters that cannot be read are left out; [`missing`](Self::missing) returns them.
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`](crate::ErrorKind::Disassociated) if the device has gone since the reader was created. A
    /// device that comes back is another device: search for it again.
    pub fn read(&mut self) -> Result<&[Statistic]> {
        self.table.begin();
        self.missing.clear();
        match &mut self.from {
            Reader::Kernel(kernel) => kernel.read(&mut self.table, &mut self.missing),
            #[cfg(feature = "soft")]
            Reader::Soft(soft) => soft_counters(soft, &mut self.table)?,
        }
        let is_new = self.table.end();
        if let Some(kernel) = self.from.as_kernel() {
            // If a device has no counters, nothing is missing.
            let is_doubtful = !self.missing.is_empty() || self.table.rows().is_empty();
            if is_doubtful && kernel.is_gone() {
                return Err(Error::device_gone(READ));
            }
            if is_new {
                kernel.mark(self.table.rows_mut());
            }
            if self.table.may_have_wrapped() {
                kernel.limit(self.table.rows_mut());
            }
        }
        Ok(self.table.rows())
    }

    /// The result of the last [`read`](Self::read); empty before the first.
    pub fn latest(&self) -> &[Statistic] {
        self.table.rows()
    }

    /// The counters that the last [`read`](Self::read) could not read, and why.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// When the next reading is due: immediately for the first, then one interval after the last due time. Readings that were missed are
    /// not repeated.
    #[cfg(feature = "tokio")]
    pub(crate) fn due(&self, interval: Duration) -> Instant {
        let now = Instant::now();
        self.due.map_or(now, |due| due.checked_add(interval).unwrap_or(due).max(now))
    }

    /// Makes the reading that was due.
    #[cfg(feature = "tokio")]
    pub(crate) fn read_due(&mut self, due: Instant) -> Result<&[Statistic]> {
        self.due = Some(due);
        self.read()
    }
}

/// The soft device counts frames: those that it receives, from outside or looped back, and those that it sends; and the packets on its
/// wire, if it has one.
#[cfg(feature = "soft")]
fn soft_counters(soft: &SoftDevice, table: &mut Table) -> Result<()> {
    use self::meaning::Meaning;
    let counters = soft.counters(READ)?.ok_or_else(|| Error::device_gone(READ))?;
    let place = (Some(1), Source::Hardware);
    for (name, raw) in counters {
        let meaning = |name: &str| Meaning::of(place.1, name, false, &crate::driver::Driver::Soft);
        table.put(place, name.as_bytes(), raw, meaning);
    }
    Ok(())
}
