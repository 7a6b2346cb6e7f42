//! The existing objects of a device, of all processes and of the kernel, and their owners, as `rdma resource` shows them. Start
//! with [`Device::resources`](crate::Device::resources).
//!
//! ```no_run
//! # fn main() -> uverbs::Result<()> {
//! let mut resources = uverbs::devices()?.named("mlx5_0")?.resources()?;
//! for count in resources.summary()? {
//!     println!("{} {}", count.kind, count.number);
//! }
//! for qp in resources.queue_pairs()? {
//!     println!("queue pair {} of {}", qp.number, qp.owner);
//! }
//! # Ok(())
//! # }
//! ```

mod owner;
mod rows;
// Not under Miri: see `device::tests`.
#[cfg(all(test, not(miri)))]
mod tests;

use nix::errno::Errno;
use uverbs_abi::netlink::{attr, op};

pub use self::owner::Owner;
pub use self::rows::{
    CompletionQueueRow, ConnectionIdRow, ContextRow, MemoryRegionRow, ProtectionDomainRow, QueuePairRow,
    SharedReceiveQueueRow,
};
use super::netlink::{Ask, Attributes, Exchange, text, wide};
use super::{Device, Node};
use crate::kernel::error::{Error, Result};
#[cfg(feature = "soft")]
use crate::soft::SoftDevice;

const OPEN: &str = "resources.open";
const SUMMARY: &str = "resources.summary";
const LIST: &str = "resources.list";

const SOFT: &str =
    "a soft device lists no objects; it counts them in the summary, and in SoftDevice::resources";

/// The number of objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// The kind as the kernel names it: `pd`, `cq`, `qp`, `cm_id`, `mr`, `ctx`, `srq`; later kernels have more.
    pub kind: String,
    /// Number of objects.
    pub number: u64,
    /// Maximum number; none if there is no limit or the kernel does not report it (before Linux 7.3).
    pub limit: Option<u64>,
}

/// The objects of a device: see [`Device::resources`].
#[derive(Debug)]
pub struct Resources(Reader);

/// The source of the data.
#[derive(Debug)]
enum Reader {
    Kernel {
        exchange: Exchange,
        index: u32,
    },
    #[cfg(feature = "soft")]
    Soft(SoftDevice),
}

impl Reader {
    fn as_kernel(&mut self) -> Option<(&mut Exchange, u32)> {
        match self {
            Self::Kernel { exchange, index } => Some((exchange, *index)),
            #[cfg(feature = "soft")]
            Self::Soft(_) => None,
        }
    }
}

impl Device {
    /// The existing objects of the device, those of all users. The device is not opened, and no privileges are needed. A soft
    /// device has only the summary.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) without RDMA netlink, because sysfs does not contain them.
    ///
    /// # Kernel
    /// `fill_res_info` and `res_get_common_dumpit` (core/nldev.c), Linux 6.1.
    ///
    /// ```
    /// # fn main() -> uverbs::Result<()> {
    /// let device = uverbs::SoftDevice::default();
    /// let context = device.open()?;
    /// let domain = context.alloc_pd()?;
    /// let counts = context.device().resources()?.summary()?;
    /// let domains = counts.iter().find(|count| count.kind == "pd").expect("a count of them");
    /// assert_eq!(domains.number, 1);
    /// # drop(domain);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "rdma_resource")]
    pub fn resources(&self) -> Result<Resources> {
        match &self.node {
            Node::File(_) => {
                let (exchange, index) = self.exchange(OPEN, "")?;
                Ok(Resources(Reader::Kernel { exchange, index }))
            }
            #[cfg(feature = "soft")]
            Node::Soft(soft) => Ok(Resources(Reader::Soft(soft.clone()))),
        }
    }
}

/// The lists, which differ in command, table and row.
macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident: $command:ident, $table:ident, $entry:ident, $row:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`ErrorKind::Disassociated`](crate::ErrorKind::Disassociated) if the device has gone, and
            /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) on a soft device.
            pub fn $name(&mut self) -> Result<Vec<$row>> {
                self.list(op::$command, (attr::$table, attr::$entry), $row::of)
            }
        )*
    };
}

impl Resources {
    #[cfg(all(test, not(miri)))]
    fn with(exchange: Exchange, index: u32) -> Self {
        Self(Reader::Kernel { exchange, index })
    }

    /// The number of objects of each kind, including those of the kernel itself.
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`](crate::ErrorKind::Disassociated) if the device has gone.
    pub fn summary(&mut self) -> Result<Vec<Count>> {
        let mut counts = Vec::new();
        match &mut self.0 {
            Reader::Kernel { exchange, index } => {
                let asked =
                    exchange.one(SUMMARY, op::RES_GET, &[Ask::Number(attr::DEV_INDEX, *index)], |message| {
                        let tables = Attributes(message).filter(|(kind, _)| *kind == attr::RES_SUMMARY);
                        for (_, table) in tables {
                            counts.extend(Attributes(table).filter_map(|(_, entry)| count(entry)));
                        }
                    });
                asked.map_err(|error| exchange.explain(error, *index, None, |error| error))?;
            }
            #[cfg(feature = "soft")]
            Reader::Soft(soft) => {
                let there = soft.resources();
                for (kind, number) in [
                    ("pd", there.protection_domains),
                    ("cq", there.completion_queues),
                    ("qp", there.queue_pairs),
                    ("mr", there.memory_regions),
                    ("ctx", there.contexts),
                    ("srq", there.shared_receive_queues),
                ] {
                    counts.push(Count { kind: kind.to_owned(), number: number as u64, limit: None });
                }
            }
        }
        Ok(counts)
    }

    lists! {
        /// The queue pairs.
        queue_pairs: RES_QP_GET, RES_QP, RES_QP_ENTRY, QueuePairRow;
        /// The completion queues.
        completion_queues: RES_CQ_GET, RES_CQ, RES_CQ_ENTRY, CompletionQueueRow;
        /// The memory regions. Their keys are included only with `CAP_NET_ADMIN`.
        memory_regions: RES_MR_GET, RES_MR, RES_MR_ENTRY, MemoryRegionRow;
        /// The protection domains.
        protection_domains: RES_PD_GET, RES_PD, RES_PD_ENTRY, ProtectionDomainRow;
        /// The contexts: one for each open device file.
        contexts: RES_CTX_GET, RES_CTX, RES_CTX_ENTRY, ContextRow;
        /// The identifiers of the kernel's connection manager, which programs use through librdmacm.
        connection_ids: RES_CM_ID_GET, RES_CM_ID, RES_CM_ID_ENTRY, ConnectionIdRow;
        /// The shared receive queues.
        shared_receive_queues: RES_SRQ_GET, RES_SRQ, RES_SRQ_ENTRY, SharedReceiveQueueRow;
    }

    fn list<T>(
        &mut self,
        command: u16,
        (table, entry): (u16, u16),
        mut row: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>> {
        let refused = || Error::refused(LIST, Errno::EOPNOTSUPP, SOFT);
        let (exchange, index) = self.0.as_kernel().ok_or_else(refused)?;
        let mut rows = Vec::new();
        let listed = exchange.list(LIST, command, &[Ask::Number(attr::DEV_INDEX, index)], |message| {
            for (_, entries) in Attributes(message).filter(|(kind, _)| *kind == table) {
                let entries = Attributes(entries).filter(|(kind, _)| *kind == entry);
                rows.extend(entries.filter_map(|(_, entry)| row(entry)));
            }
        });
        listed.map_err(|error| exchange.explain(error, index, None, |error| error))?;
        Ok(rows)
    }
}

/// One kind of object in a summary.
fn count(entry: &[u8]) -> Option<Count> {
    let (mut kind, mut count, mut limit) = (None, None, None);
    for (number, value) in Attributes(entry) {
        match number {
            attr::RES_SUMMARY_ENTRY_NAME => kind = Some(text(value)),
            attr::RES_SUMMARY_ENTRY_CURR => count = wide(value),
            attr::RES_SUMMARY_ENTRY_MAX => limit = wide(value),
            _ => {}
        }
    }
    Some(Count { kind: kind?, number: count?, limit })
}
