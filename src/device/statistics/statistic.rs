//! One counter and its value.

use super::meaning::Meaning;

/// The source of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Source {
    /// InfiniBand's own counters of a port (PortCounters, PortCountersExtended), from sysfs: `ports/P/counters`.
    Port,
    /// The driver's own counters: of a port from RDMA netlink or `ports/P/hw_counters`, of the device from `hw_counters`.
    Hardware,
}

impl Source {
    /// The name of the sysfs folder: `counters` or `hw_counters`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Port => "counters",
            Self::Hardware => "hw_counters",
        }
    }
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
    /// Ticks of the port's own clock, whose length is not reported (`port_xmit_wait`).
    Ticks,
    /// Events as described by the name: errors, requests, messages.
    Events,
}

impl Unit {
    /// The unit's name in English, in the plural: `bytes`, `packets`, `ticks`, `events`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::Ticks => "ticks",
            Self::Events => "events",
        }
    }
}

/// The range of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Width {
    /// Number of bits, 4 to 64.
    pub bits: u8,
    /// Whether it stops at its maximum (true) or starts again at zero.
    pub saturates: bool,
}

impl Width {
    /// The maximum raw value: all bits set.
    pub fn highest(self) -> u64 {
        u64::MAX >> (64 - self.bits.clamp(1, 64))
    }
}

/// One counter of a device, and its value when it was read.
///
/// ```
/// # fn main() -> uverbs::Result<()> {
/// use uverbs::SoftDevice;
/// use uverbs::statistics::Unit;
///
/// let device = SoftDevice::default();
/// device.inject(&[0; 60]);
/// let mut statistics = device.device().statistics()?;
/// let received = statistics.read()?.iter().find(|counter| counter.name() == "rcvd_bytes");
/// let received = received.expect("the soft device has it");
/// assert_eq!((received.value(), received.unit()), (60, Unit::Bytes));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistic {
    pub(super) port: Option<u32>,
    pub(super) source: Source,
    pub(super) name: String,
    pub(super) raw: u64,
    pub(super) optional: bool,
    pub(super) meaning: Meaning,
}

impl Statistic {
    /// The port, from 1; none for a counter of the whole device.
    pub fn port(&self) -> Option<u32> {
        self.port
    }

    /// Its source.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The kernel's name, such as `port_rcv_data`. Drivers choose the names of their counters, so programs that print or export
    /// names must escape them.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it counts.
    pub fn unit(&self) -> Unit {
        self.meaning.unit
    }

    /// The value, in [`unit`](Self::unit)s. `port_rcv_data` and `port_xmit_data` are in bytes; the kernel reports words of four
    /// bytes. If the bytes exceed 64 bits, the value is `u64::MAX`.
    pub fn value(&self) -> u64 {
        self.raw.saturating_mul(self.scale())
    }

    /// The value as the kernel reports it.
    pub fn raw(&self) -> u64 {
        self.raw
    }

    /// The number of units per raw count: 4 for words in bytes, otherwise 1.
    pub fn scale(&self) -> u64 {
        self.meaning.scale.into()
    }

    /// The range, if it is known. The kernel does not report it: for counters of a port it comes from the InfiniBand
    /// specification (16.1.3.5, PortCounters), and for some drivers from their source. If the value is higher than this range,
    /// the range is another one, and the result is none.
    pub fn width(&self) -> Option<Width> {
        self.meaning.width.filter(|width| self.raw <= width.highest())
    }

    /// Whether it has reached its maximum and stopped: the true number is this or higher, until the counter is reset.
    pub fn is_saturated(&self) -> bool {
        self.width().is_some_and(|width| width.saturates && self.raw == width.highest())
    }

    /// Whether it is a level, which also decreases, such as a number of objects, and not a count of events.
    pub fn is_gauge(&self) -> bool {
        self.meaning.gauge
    }

    /// Whether it is one of the driver's optional counters, which are switched on: see
    /// [`Statistics::optional`](super::Statistics::optional).
    pub fn is_optional(&self) -> bool {
        self.optional
    }

    /// The increase since an earlier reading, in [`unit`](Self::unit)s. One wrap of the counter at its width is taken into
    /// account.
    ///
    /// None if it is not known: for a gauge, for a saturated counter, for one that was reset or now belongs to another device,
    /// and if `earlier` is another counter.
    pub fn growth(&self, earlier: &Self) -> Option<u64> {
        let is_same = self.port == earlier.port && self.source == earlier.source && self.name == earlier.name;
        if !is_same || self.is_gauge() || self.is_saturated() {
            return None;
        }
        let grown = match self.width() {
            Some(width) if !width.saturates => self.raw.wrapping_sub(earlier.raw) & width.highest(),
            _ => self.raw.checked_sub(earlier.raw)?,
        };
        Some(grown.saturating_mul(self.scale()))
    }
}
