//! Indirection tables.

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::write::{ExCreateRwqIndTable, ExCreateRwqIndTableResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::WorkQueue;
use crate::device::context::Context;
use crate::device::context::limits::Size;
use crate::device::object::{self, Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};

/// Maximum number of entries as a power of two: `IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE`, ib_user_verbs.h, Linux 6.1.
const MAX_LOG_SIZE: u32 = 13;

/// A list of work queues over which frames are spread: the low bits of a hash of each frame's headers are the index in the list.
/// A work queue may be in the list more than once.
///
/// It keeps its work queues alive. Create the hash with [`ProtectionDomain::rss`](crate::ProtectionDomain::rss).
#[derive(Debug)]
#[doc(alias = "ibv_rwq_ind_table")]
pub struct IndirectionTable(Arc<IndirectionTableCore>);

/// The part that a queue pair over the table keeps.
#[derive(Debug)]
pub(crate) struct IndirectionTableCore {
    object: Object,
    /// The device's number.
    #[cfg(feature = "raw")]
    number: u32,
    queues: Vec<Arc<super::WorkQueueCore>>,
}

impl IndirectionTableCore {
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn id(&self) -> u32 {
        self.object.id()
    }

    pub(crate) fn context(&self) -> &Context {
        self.object.context()
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }
}

impl Context {
    /// Creates a table of work queues: a power of two of them, at most `query_device()?.rss_caps.max_rwq_indirection_table_size`.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) on devices without tables; [`InvalidInput`](ErrorKind::InvalidInput) for a number
    /// that is not a power of two or exceeds the device's limit, or work queues of another open device.
    ///
    /// # Kernel
    /// `EX_CREATE_RWQ_IND_TBL` through `INVOKE_WRITE` (ib_uverbs_ex_create_rwq_ind_table, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_create_rwq_ind_table")]
    pub fn create_indirection_table(&self, queues: &[&WorkQueue]) -> Result<IndirectionTable> {
        let op = "indirection_table.create";
        self.driver().plan_table(op)?;
        if !queues.len().is_power_of_two() || queues.len() > 1 << MAX_LOG_SIZE {
            let allowed = format!("a power of two up to {}", 1 << MAX_LOG_SIZE);
            return Err(Error::outside(op, "work queues of a table", queues.len(), allowed));
        }
        if queues.iter().any(|queue| !queue.shared().object.context().is_same(self)) {
            let hint = "a work queue belongs to another open device";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        let head = ExCreateRwqIndTable { comp_mask: 0, log_ind_tbl_size: queues.len().ilog2() };
        // The kernel accepts extended requests in units of eight bytes.
        let size = (size_of_val(&head) + size_of::<u32>() * queues.len()).next_multiple_of(8);
        let mut request = Error::room(op, size)?;
        request.extend_from_slice(head.as_bytes());
        for queue in queues {
            request.extend_from_slice(queue.shared().object.id().as_bytes());
        }
        request.resize(size, 0);
        let mut kept = Error::room(op, queues.len())?;
        kept.extend(queues.iter().map(|queue| queue.shared().clone()));
        let mut response = ExCreateRwqIndTableResp::new_zeroed();
        let mut command = Command::write(op, cmd::EX_CREATE_RWQ_IND_TBL);
        command.input(CORE_IN, &request[..]).output(CORE_OUT, response.as_mut_bytes());
        self.invoke(&mut command).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => error.hinted("the device has no indirection tables"),
            _ => {
                let size = Size {
                    what: "work queues of a table (max_rwq_indirection_table_size)",
                    given: queues.len() as u32,
                    least: 1,
                    always: 1,
                    most: |device| device.rss_caps.max_rwq_indirection_table_size,
                };
                self.sized(error, &[size], "the device does not allow a table of these work queues")
            }
        })?;
        let object = Object::new(self, Kind::IndirectionTable, response.ind_tbl_handle);
        let shared = IndirectionTableCore {
            object,
            #[cfg(feature = "raw")]
            number: response.ind_tbl_num,
            queues: kept,
        };
        Ok(IndirectionTable(Arc::new(shared)))
    }
}

impl IndirectionTable {
    pub(crate) fn shared(&self) -> &Arc<IndirectionTableCore> {
        &self.0
    }

    /// The numbers of the work queues, in the order of the table.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = u32> {
        self.0.queues.iter().map(|queue| queue.number)
    }

    /// Destroys the table and reports any error.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a queue pair uses it.
    #[doc(alias = "ibv_destroy_rwq_ind_table")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(shared) = Arc::get_mut(&mut self.0) else {
            let hint = "a queue pair still spreads frames by the table";
            return Err((self, object::shared("indirection_table.destroy", hint)));
        };
        shared.object.release().map_err(|error| (self, error))
    }
}

#[cfg(feature = "raw")]
impl IndirectionTable {
    /// The kernel's handle of the table.
    pub fn handle(&self) -> u32 {
        self.0.id()
    }

    /// The device's number of the table.
    pub fn number(&self) -> u32 {
        self.0.number
    }
}
