//! One counter and its value.

// Not under Miri: see `device::tests`.
#[cfg(all(test, not(miri)))]
mod tests;

use std::time::Instant;

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

/// How a counter has changed between two readings; see [`Statistic::change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// It has grown by this number of [`unit`](Statistic::unit)s, or by 0.
    Grown(u64),
    /// It is lower than before, and did not wrap as far as is known: another program set it back, or the device was reset.
    Reset,
    /// It is not known: for a gauge, for a saturated counter, and if the two are different counters.
    Unknown,
}

/// One counter of a device, and its value when it was read. Two are equal if counter and value are, whenever they were read.
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
#[derive(Clone, Debug)]
pub struct Statistic {
    pub(super) port: Option<u32>,
    pub(super) source: Source,
    pub(super) name: String,
    pub(super) raw: u64,
    pub(super) optional: bool,
    pub(super) meaning: Meaning,
    /// When it was read.
    pub(super) taken: Instant,
    /// The most that it can count per second, where the reader needed to know this.
    pub(super) most: Option<u64>,
}

impl PartialEq for Statistic {
    fn eq(&self, other: &Self) -> bool {
        self.is_the_counter(other)
            && (self.raw, self.optional, self.meaning) == (other.raw, other.optional, other.meaning)
    }
}

impl Eq for Statistic {}

impl Statistic {
    /// A value that was read at `taken`.
    pub(super) fn new(
        (port, source): (Option<u32>, Source),
        name: String,
        raw: u64,
        meaning: Meaning,
        taken: Instant,
    ) -> Self {
        Self { port, source, name, raw, optional: false, meaning, taken, most: None }
    }

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

    /// The increase since an earlier reading, in [`unit`](Self::unit)s: that of [`Change::Grown`]. None if the counter was reset, and
    /// if the increase is not known.
    pub fn growth(&self, earlier: &Self) -> Option<u64> {
        match self.change(earlier) {
            Change::Grown(grown) => Some(grown),
            Change::Reset | Change::Unknown => None,
        }
    }

    /// The change since an earlier reading, of this counter by the same [`Statistics`](super::Statistics).
    ///
    /// A counter that is lower than before was reset, with one exception: a counter of mlx5 that wraps at 32 bits and counts packets
    /// or requests may have wrapped. It has if the increase is not more than its port can transport in the time between the two
    /// readings, and in this time the port cannot transport so much that the counter passes through its whole range. At 100 Gbit/s
    /// the latter takes about 9 seconds. Of other counters of events nobody knows how fast they can count, so they are reset.
    ///
    /// ```
    /// # fn main() -> uverbs::Result<()> {
    /// use uverbs::SoftDevice;
    /// use uverbs::statistics::Change;
    ///
    /// let soft = SoftDevice::default();
    /// let mut statistics = soft.device().statistics()?;
    /// let before = statistics.read()?.to_vec();
    /// soft.inject(&[0; 60]);
    /// let now = statistics.read()?;
    /// let changes = now.iter().zip(&before).map(|(now, before)| now.change(before));
    /// assert!(changes.into_iter().any(|change| change == Change::Grown(60)));
    /// assert_eq!(before[1].change(&now[1]), Change::Reset); // lower than "before"
    /// # Ok(())
    /// # }
    /// ```
    pub fn change(&self, earlier: &Self) -> Change {
        if !self.is_the_counter(earlier) || self.is_gauge() || self.is_saturated() {
            return Change::Unknown;
        }
        let grown = self.raw.checked_sub(earlier.raw).or_else(|| self.wrapped(earlier));
        grown.map_or(Change::Reset, |grown| Change::Grown(grown.saturating_mul(self.scale())))
    }

    fn is_the_counter(&self, other: &Self) -> bool {
        self.port == other.port && self.source == other.source && self.name == other.name
    }

    /// The raw increase since an earlier reading with a higher value, if the counter has wrapped.
    fn wrapped(&self, earlier: &Self) -> Option<u64> {
        let width = self.width().filter(|width| !width.saturates && width.bits < 64)?;
        let elapsed = self.taken.checked_duration_since(earlier.taken)?;
        let possible = u128::from(self.most?) * elapsed.as_nanos() / 1_000_000_000;
        let range = u128::from(width.highest());
        let grown = self.raw.wrapping_sub(earlier.raw) & width.highest();
        // An earlier value above the range shows that the counter is wider than known.
        let is_wrap = earlier.raw <= width.highest() && possible < range && u128::from(grown) <= possible;
        is_wrap.then_some(grown)
    }
}
