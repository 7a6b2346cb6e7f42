//! One counter and its value.

use super::meaning::Meaning;

/// Where a counter comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Source {
    /// InfiniBand's own set of a port (PortCounters, PortCountersExtended), by sysfs: `ports/P/counters`.
    Port,
    /// The driver's own: of a port by RDMA netlink or `ports/P/hw_counters`, of the device by `hw_counters`.
    Hardware,
}

impl Source {
    /// As sysfs names its folder: `counters` or `hw_counters`.
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
    /// Ticks of the port's own clock, whose length nobody tells (`port_xmit_wait`).
    Ticks,
    /// What the name says: errors, requests, messages.
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

/// How far a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Width {
    /// Its bits, from 4 to 64.
    pub bits: u8,
    /// Whether it stays at its highest value (true), or begins at zero again.
    pub saturates: bool,
}

impl Width {
    /// The highest raw value: all ones.
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
    /// The port, from 1; none of a counter of the whole device.
    pub fn port(&self) -> Option<u32> {
        self.port
    }

    /// Where it comes from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The kernel's name of it, such as `port_rcv_data`. A driver may name its own as it likes: what prints or exports names has to escape
    /// them.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it counts.
    pub fn unit(&self) -> Unit {
        self.meaning.unit
    }

    /// The value, in [`unit`](Self::unit)s: of `port_rcv_data` and `port_xmit_data` in bytes, of which the kernel tells words of four. It stays at
    /// `u64::MAX` where bytes do not fit.
    pub fn value(&self) -> u64 {
        self.raw.saturating_mul(self.scale())
    }

    /// The value as the kernel tells it.
    pub fn raw(&self) -> u64 {
        self.raw
    }

    /// How many units the raw value counts by: 4 of words in bytes, else 1.
    pub fn scale(&self) -> u64 {
        self.meaning.scale.into()
    }

    /// How far it counts, if that is known. The kernel does not tell: it is known of the port's counters by InfiniBand's specification (16.1.3.5,
    /// PortCounters), and of some drivers' by their source. A value that is higher than it could be says that the width is another one.
    pub fn width(&self) -> Option<Width> {
        self.meaning.width.filter(|width| self.raw <= width.highest())
    }

    /// Whether it stands at its end and does not count any more: the true number is this one or any higher one, until somebody sets it back.
    pub fn is_saturated(&self) -> bool {
        self.width().is_some_and(|width| width.saturates && self.raw == width.highest())
    }

    /// Whether it is a level, which also falls, and no counter: objects that there are, not events that were.
    pub fn is_gauge(&self) -> bool {
        self.meaning.gauge
    }

    /// Whether it was switched on, as one of the driver's optional counters: see [`Statistics::optional`](super::Statistics::optional).
    pub fn is_optional(&self) -> bool {
        self.optional
    }

    /// By how much it has grown since an earlier reading, in [`unit`](Self::unit)s. A counter that has begun at zero again after all its bits is
    /// taken for that.
    ///
    /// None where nothing can be said: of a gauge, of one that is saturated, of one that was set back or belongs to another device now, and of
    /// another counter.
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
