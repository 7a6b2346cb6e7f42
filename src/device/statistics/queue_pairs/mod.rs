//! Counters of queue pairs: bound by a rule, or one by one (core/counters.c).

// Not under Miri: see `device::tests`.
#[cfg(all(test, not(miri)))]
mod tests;

use std::time::Instant;

use bitflags::bitflags;
use nix::errno::Errno;
use uverbs_abi::netlink::{attr, op};

use crate::device::Device;
use crate::device::netlink::{Ask, Attributes, Exchange, number};
use crate::device::resources::Owner;
use crate::device::statistics::kernel::{of_port, with_rights};
use crate::device::statistics::meaning::Meaning;
use crate::device::statistics::{NO_COUNTERS, Source, Statistic, answer};
use crate::driver::Driver;
use crate::kernel::error::{Error, ErrorKind, Result};

const OPEN: &str = "queue_pair_counters.open";
const MODE: &str = "queue_pair_counters.mode";
const AUTO: &str = "queue_pair_counters.bind_by";
const BIND: &str = "queue_pair_counters.bind";
const UNBIND: &str = "queue_pair_counters.unbind";
const LIST: &str = "queue_pair_counters.list";

const NOT_PER_QP: &str = "the driver does not count per queue pair; of those this crate knows only mlx5 does";

/// `enum rdma_nl_counter_mode` (rdma_netlink.h).
mod mode {
    pub(super) const NONE: u32 = 0;
    pub(super) const AUTO: u32 = 1;
    pub(super) const MANUAL: u32 = 2;
}

bitflags! {
    /// The property by which a rule assigns queue pairs to counters: queue pairs with the same property share one counter.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BindBy: u32 {
        /// Their type: RC, UD and so on.
        const TYPE = 1;
        /// The process that owns them.
        const PROCESS = 2;
    }
}

/// How the queue pairs of a port are bound to counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CounterMode {
    /// Not at all.
    Off,
    /// Each queue pair is bound when it is connected (its transition from INIT to RTR).
    ByRule {
        /// The property by which queue pairs share a counter.
        by: BindBy,
        /// Whether the driver's optional counters are counted per queue pair too (Linux 7.2; not 6.1).
        with_optional: bool,
    },
    /// Individually.
    OneByOne,
    /// A mode of a later kernel.
    Other(u32),
}

/// A counter to which queue pairs are bound, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePairCounter {
    /// Its number on the device.
    pub id: u32,
    /// The port, from 1.
    pub port: u32,
    /// How queue pairs are bound to it.
    pub mode: CounterMode,
    /// The type of its queue pairs, one of [`uverbs_abi::types::qp_type`]; none if it is not bound by type.
    pub qp_type: Option<u8>,
    /// The process whose queue pairs it counts; none if it is not bound by process.
    pub owner: Option<Owner>,
    /// Numbers of the queue pairs that are bound to it.
    pub queue_pairs: Vec<u32>,
    /// The values: the same hardware counters of the driver as for a port.
    pub counters: Vec<Statistic>,
}

/// Counters of the queue pairs of one port. When a queue pair is unbound or destroyed, its counts are added to those of the port,
/// so the values of the port never decrease.
///
/// ```no_run
/// # fn main() -> uverbs::Result<()> {
/// use uverbs::statistics::BindBy;
///
/// let mut counters = uverbs::devices()?.named("mlx5_0")?.queue_pair_counters(1)?;
/// counters.bind_by(BindBy::PROCESS)?; // queue pairs that are connected from now on
/// for counter in counters.list()? {
///     println!("{:?}: {:?}", counter.owner, counter.queue_pairs);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct QueuePairCounters {
    exchange: Exchange,
    index: u32,
    port: u32,
    driver: Driver,
}

impl Device {
    /// The counters of the queue pairs of a port, from 1. The device is not opened. Listing needs no privileges, binding needs
    /// `CAP_NET_ADMIN` in the initial user namespace.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such port, [`ErrorKind::Unsupported`] without RDMA netlink and on a soft device.
    ///
    /// # Kernel
    /// core/counters.c, Linux 5.3.
    #[doc(alias = "rdma_statistic_qp")]
    pub fn queue_pair_counters(&self, port: u32) -> Result<QueuePairCounters> {
        self.check_port(OPEN, port)?;
        let (exchange, index) = self.exchange(OPEN, "a soft device does not count per queue pair")?;
        Ok(QueuePairCounters { exchange, index, port, driver: self.driver_kind() })
    }
}

impl QueuePairCounters {
    #[cfg(all(test, not(miri)))]
    fn with(exchange: Exchange, index: u32, port: u32, driver: Driver) -> Self {
        Self { exchange, index, port, driver }
    }

    /// How queue pairs are currently bound.
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`] if the device has gone.
    pub fn mode(&mut self) -> Result<CounterMode> {
        let mut mode = None;
        // The value of the mode has no effect, but the attribute has to be there (`stat_get_doit_qp`).
        let asked = self.ask(MODE, op::STAT_GET, &[Ask::Number(attr::STAT_MODE, mode::MANUAL)], |message| {
            mode = mode_of(Attributes(message));
        });
        asked.map_err(|error| self.explain(error, |error| error))?;
        mode.ok_or_else(|| Error::malformed(MODE, "an answer without the mode"))
    }

    /// Sets the rule for queue pairs that are connected from now on: each is bound to a counter that it shares with queue pairs
    /// of the same properties. Without a bit set, no further queue pairs are bound.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for drivers that do not count per queue pair, for which the kernel would return success and do
    /// nothing. [`ErrorKind::Busy`] while queue pairs are bound in another way: unbind or destroy them first.
    /// [`ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN` in the initial user namespace.
    pub fn bind_by(&mut self, by: BindBy) -> Result<()> {
        self.set_rule(by, None)
    }

    /// Sets the rule for queue pairs that are connected from now on, as [`bind_by`](Self::bind_by) does, and also counts per queue pair
    /// the driver's optional counters that are on.
    ///
    /// # Errors
    /// Those of `bind_by`, and [`ErrorKind::InvalidInput`] on kernels that do not support it, such as 6.1; 7.2 does.
    pub fn bind_by_with_optional(&mut self, by: BindBy) -> Result<()> {
        self.set_rule(by, Some(Ask::Byte(attr::STAT_OPCOUNTER_ENABLED, 1)))
    }

    fn set_rule(&mut self, by: BindBy, more: Option<Ask<'static>>) -> Result<()> {
        self.can_bind(AUTO)?;
        let mut attributes =
            vec![Ask::Number(attr::STAT_MODE, mode::AUTO), Ask::Number(attr::STAT_AUTO_MODE_MASK, by.bits())];
        attributes.extend(more);
        let set = self.ask(AUTO, op::STAT_SET, &attributes, |_| {});
        set.map_err(|error| {
            self.explain(error, |error| {
                error.hinted_if(
                    ErrorKind::Busy,
                    "queue pairs are bound by another rule or one by one: unbind or destroy them first",
                )
            })
        })
    }

    /// Binds one queue pair of this port to its own counter, and returns the number of the counter.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such queue pair. [`ErrorKind::InvalidInput`] if it belongs to another port, or while queue
    /// pairs are bound by a rule. [`ErrorKind::Exhausted`] if it is already bound, for which the kernel returns ENOMEM, or if no counter
    /// is left. [`ErrorKind::Unsupported`] and [`ErrorKind::PermissionDenied`] as for [`bind_by`](Self::bind_by).
    pub fn bind(&mut self, queue_pair: u32) -> Result<u32> {
        self.set_one(queue_pair, None)
    }

    /// Binds one queue pair to a counter to which others are already bound.
    ///
    /// # Errors
    /// Those of [`bind`](Self::bind); `NotFound` also if there is no such counter; `InvalidInput` if the queue pair is already bound.
    pub fn bind_to(&mut self, queue_pair: u32, counter: u32) -> Result<()> {
        self.set_one(queue_pair, Some(Ask::Number(attr::STAT_COUNTER_ID, counter))).map(drop)
    }

    fn set_one(&mut self, queue_pair: u32, more: Option<Ask<'static>>) -> Result<u32> {
        self.can_bind(BIND)?;
        let mut attributes =
            vec![Ask::Number(attr::STAT_MODE, mode::MANUAL), Ask::Number(attr::RES_LQPN, queue_pair)];
        attributes.extend(more);
        let mut id = None;
        let set = self.ask(BIND, op::STAT_SET, &attributes, |message| {
            id = Attributes(message)
                .find(|(kind, _)| *kind == attr::STAT_COUNTER_ID)
                .and_then(|(_, value)| number(value));
        });
        set.map_err(|error| {
            self.explain(error, |error| {
                error
                    .hinted_if(ErrorKind::NotFound, "there is no such queue pair, or no such counter, on the device")
                    .hinted_if(
                        ErrorKind::Exhausted,
                        "the queue pair is bound already, or the driver does not count per queue pair, or has no counter left",
                    )
                    .hinted_if(
                        ErrorKind::InvalidInput,
                        "the queue pair is bound already, or belongs to another port, or queue pairs are bound by a rule",
                    )
            })
        })?;
        id.ok_or_else(|| Error::malformed(BIND, "an answer without the counter's number"))
    }

    /// Unbinds a queue pair from its counter. Its counts are added to those of the port; a counter without queue pairs is
    /// destroyed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such queue pair; [`ErrorKind::InvalidInput`] if it is not bound to this counter, or
    /// is bound by a rule. [`ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN` in the initial user namespace.
    pub fn unbind(&mut self, queue_pair: u32, counter: u32) -> Result<()> {
        let attributes =
            [Ask::Number(attr::STAT_COUNTER_ID, counter), Ask::Number(attr::RES_LQPN, queue_pair)];
        let deleted = self.ask(UNBIND, op::STAT_DEL, &attributes, |_| {});
        deleted.map_err(|error| {
            self.explain(error, |error| {
                error.hinted_if(ErrorKind::NotFound, "there is no such queue pair on the device").hinted_if(
                    ErrorKind::InvalidInput,
                    "the queue pair is not bound to this counter, or it is bound by a rule",
                )
            })
        })
    }

    /// All counters of this port to which queue pairs are bound, those of all users. It needs no privileges.
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`] if the device has gone.
    pub fn list(&mut self) -> Result<Vec<QueuePairCounter>> {
        let mut found = Vec::new();
        let (port, driver) = (self.port, &self.driver);
        let attributes =
            [Ask::Number(attr::DEV_INDEX, self.index), Ask::Number(attr::STAT_RES, attr::RES_QP.into())];
        let listed = self.exchange.list(LIST, op::STAT_GET, &attributes, |message| {
            let tables = Attributes(message).filter(|(kind, _)| *kind == attr::STAT_COUNTER);
            for (_, table) in tables {
                let entries = Attributes(table).filter(|(kind, _)| *kind == attr::STAT_COUNTER_ENTRY);
                found.extend(entries.filter_map(|(_, entry)| counter(entry, driver)));
            }
        });
        listed.map_err(|error| self.explain(error, |error| error))?;
        found.retain(|counter| counter.port == port);
        Ok(found)
    }

    fn can_bind(&self, op: &'static str) -> Result<()> {
        if self.driver.binds_queue_pairs() == Some(false) {
            return Err(Error::refused(op, Errno::EOPNOTSUPP, NOT_PER_QP));
        }
        Ok(())
    }

    /// Sends a request about this port's queue pairs.
    fn ask(
        &mut self,
        op: &'static str,
        command: u16,
        more: &[Ask<'_>],
        take: impl FnMut(&[u8]),
    ) -> Result<()> {
        let mut attributes = of_port(self.index, self.port).to_vec();
        attributes.push(Ask::Number(attr::STAT_RES, attr::RES_QP.into()));
        attributes.extend_from_slice(more);
        self.exchange.one(op, command, &attributes, take)
    }

    fn explain(&mut self, error: Error, otherwise: impl FnOnce(Error) -> Error) -> Error {
        self.exchange.explain(error, self.index, Some(self.port), |error| {
            with_rights(otherwise(error)).hinted_if(ErrorKind::Unsupported, NO_COUNTERS)
        })
    }
}

/// The mode in an answer about a port or a counter.
fn mode_of(attributes: Attributes<'_>) -> Option<CounterMode> {
    let (mut mode, mut by, mut with_optional) = (None, BindBy::empty(), false);
    for (kind, value) in attributes {
        match kind {
            attr::STAT_MODE => mode = number(value),
            attr::STAT_AUTO_MODE_MASK => by = BindBy::from_bits_retain(number(value).unwrap_or(0)),
            attr::STAT_OPCOUNTER_ENABLED => with_optional = value.first() == Some(&1),
            // The common properties of a counter show by which criteria it was created.
            attr::RES_TYPE => by |= BindBy::TYPE,
            attr::RES_PID | attr::RES_KERN_NAME => by |= BindBy::PROCESS,
            _ => {}
        }
    }
    Some(match mode? {
        mode::NONE => CounterMode::Off,
        mode::AUTO => CounterMode::ByRule { by, with_optional },
        mode::MANUAL => CounterMode::OneByOne,
        other => CounterMode::Other(other),
    })
}

/// One counter of a list (`fill_res_counter_entry`, core/nldev.c); `None` without its number.
fn counter(entry: &[u8], driver: &Driver) -> Option<QueuePairCounter> {
    let (mut id, mut port, mut qp_type) = (None, None, None);
    let (mut queue_pairs, mut counters) = (Vec::new(), Vec::new());
    for (kind, value) in Attributes(entry) {
        match kind {
            attr::STAT_COUNTER_ID => id = number(value),
            attr::PORT_INDEX => port = number(value),
            attr::RES_TYPE => qp_type = value.first().copied(),
            attr::RES_QP => {
                let entries = Attributes(value).filter(|(kind, _)| *kind == attr::RES_QP_ENTRY);
                for (_, entry) in entries {
                    let numbers = Attributes(entry).filter(|(kind, _)| *kind == attr::RES_LQPN);
                    queue_pairs.extend(numbers.filter_map(|(_, value)| number(value)));
                }
            }
            _ => {}
        }
    }
    let (port, taken) = (port?, Instant::now());
    answer::values(entry, |name, raw| {
        let name = String::from_utf8_lossy(name).into_owned();
        let meaning = Meaning::of(Source::Hardware, &name, false, driver);
        counters.push(Statistic::new((Some(port), Source::Hardware), name, raw, meaning, taken));
    });
    let owner = Owner::of(Attributes(entry));
    let owner = (owner != Owner::Unknown).then_some(owner);
    let mode = mode_of(Attributes(entry)).unwrap_or(CounterMode::Off);
    Some(QueuePairCounter { id: id?, port, mode, qp_type, owner, queue_pairs, counters })
}
