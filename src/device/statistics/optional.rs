//! Counters that a driver counts only while they are switched on.

use nix::errno::Errno;
use uverbs_abi::netlink::{attr, op};

use super::kernel::{Kernel, of_port, with_rights};
use super::{NO_COUNTERS, Reader, Statistics, answer};
use crate::device::netlink::Ask;
use crate::kernel::error::{Error, ErrorKind, Result};

const LIST: &str = "statistics.optional";
const SET: &str = "statistics.set_optional";

/// A counter that counts only while it is switched on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionalStatistic {
    /// The kernel's name of the counter.
    pub name: String,
    /// Whether it is on. Only then it counts and is read.
    pub is_on: bool,
    /// Its index in the driver's table.
    index: u32,
}

impl Statistics {
    /// The optional counters of a port, on or off. Most drivers have none. Those of mlx5 need rules in the device to count
    /// (`cc_rx_ce_pkts`, `rdma_tx_bytes`, ...).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such port. [`ErrorKind::Unsupported`] if the driver has no counters of ports, on a
    /// soft device, and without RDMA netlink. [`ErrorKind::Disassociated`] if the device has gone.
    ///
    /// # Kernel
    /// `nldev_stat_get_counter_status_doit` (core/nldev.c), Linux 5.16. It needs no privileges.
    #[doc(alias = "rdma_statistic_mode")]
    pub fn optional(&mut self, port: u32) -> Result<Vec<OptionalStatistic>> {
        self.optional_for(LIST, port)
    }

    fn optional_for(&mut self, op: &'static str, port: u32) -> Result<Vec<OptionalStatistic>> {
        let (exchange, index) = self.from.kernel(op)?.netlink(op)?;
        let mut found = Vec::new();
        let asked = exchange.one(op, op::STAT_GET_STATUS, &of_port(index, port), |message| {
            answer::optional(message, |name, index, is_on| {
                let name = String::from_utf8_lossy(name).into_owned();
                found.push(OptionalStatistic { name, is_on, index });
            });
        });
        match asked {
            Ok(()) => Ok(found),
            Err(error) => {
                Err(exchange.explain(error, index, Some(port), |error| error.unsupported(NO_COUNTERS)))
            }
        }
    }

    /// Switches on the named optional counters of a port, and switches off all others. They start at zero.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN` in the initial user namespace. [`ErrorKind::NotFound`] for a name
    /// that is not in [`optional`](Self::optional); nothing is changed then. [`ErrorKind::Unsupported`] if the device cannot
    /// count it. If one of several cannot be switched, those before it in the driver's table have been switched.
    ///
    /// # Kernel
    /// `nldev_stat_set_counter_dynamic_doit` (core/nldev.c), Linux 5.16.
    #[doc(alias = "rdma_statistic_set")]
    pub fn set_optional(&mut self, port: u32, names: &[&str]) -> Result<()> {
        let known = self.optional_for(SET, port)?;
        let mut wanted = Vec::new();
        for name in names {
            let Some(found) = known.iter().find(|known| known.name == *name) else {
                let there: Vec<_> = known.iter().map(|known| known.name.as_str()).collect();
                let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
                let hint = format!("no optional counter is called {}; there is {there}", name.escape_debug());
                return Err(Error::refused(SET, Errno::ENOENT, hint));
            };
            wanted.push(found.index);
        }
        let (exchange, index) = self.from.kernel(SET)?.netlink(SET)?;
        let [device, of_port] = of_port(index, port);
        let table = Ask::Table(attr::STAT_HWCOUNTERS, attr::STAT_HWCOUNTER_INDEX, &wanted);
        let set = exchange.one(SET, op::STAT_SET, &[device, of_port, table], |_| {});
        set.map_err(|error| {
            exchange.explain(error, index, Some(port), |error| {
                with_rights(error)
                    .hinted_if(ErrorKind::Unsupported, "the device or its driver cannot count it")
            })
        })
    }
}

impl Reader {
    /// The kernel's part, for what a soft device does not have.
    fn kernel(&mut self, op: &'static str) -> Result<&mut Kernel> {
        let refused = || Error::refused(op, Errno::EOPNOTSUPP, "a soft device has no optional counters");
        self.as_kernel().ok_or_else(refused)
    }
}
