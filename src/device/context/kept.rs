//! Device files that stay open until the process ends.
//!
//! Once the firmware of an mlx5 device has refused a flow counter, the driver has an error in the place of a pointer, and
//! follows it when the counters object is destroyed: at the latest when the device file is closed
//! (mlx5_ib_flow_counters_set_data and mlx5_ib_destroy_counters, counters.c, Linux 6.1 to 7.3). So the file of such a
//! context is leaked on purpose. The end of the process closes it all the same, and nothing in user space prevents that.

use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;

use super::Context;
use crate::kernel::error::{Error, Result};
use crate::kernel::process::Local;

/// Most counters objects that a process abandons on one device. The kernel keeps each, and with each perhaps a counter of
/// the hardware, until the file is closed.
const MOST: u32 = 1024;

/// The contexts whose files stay open, each once. A child of `fork` goes on with a copy of the list.
static KEPT: Local<Vec<Context>> = Local::new(Vec::clone);

/// How many counters objects a context has abandoned.
#[derive(Debug, Default)]
pub(super) struct Abandoned(AtomicU32);

impl Context {
    /// Refuses `op` when so many counters objects of the device were abandoned that no other may be.
    pub(crate) fn may_abandon_counters(&self, op: &'static str) -> Result<()> {
        let count = |context: &Self| context.0.abandoned.0.load(Ordering::Relaxed);
        let node = self.device().node();
        let is_of_the_device = |other: &&Self| !self.is_same(other) && other.device().node() == node;
        let others: u32 = KEPT.lock().iter().filter(is_of_the_device).map(count).sum();
        if count(self).saturating_add(others) < MOST {
            return Ok(());
        }
        let hint = "1024 first flows of counters have failed in this process in a way that may have left the kernel with an object that it cannot free; no further one is attempted";
        Err(Error::refused(op, Errno::ENOMEM, hint))
    }

    /// Notes that a counters object was abandoned, and has the device file stay open until the process ends.
    #[cold]
    pub(crate) fn abandon_counters(&self) {
        let is_first = self.0.abandoned.0.fetch_add(1, Ordering::Relaxed) == 0;
        if !is_first || !self.driver().keeps_damaged_file() {
            return;
        }
        KEPT.lock().push(self.clone());
        #[cfg(feature = "tracing")]
        tracing::warn!(
            device = self.device().name(),
            "the firmware may have refused a flow counter: the device file stays open until the process ends, \
             because the kernel would dereference an error pointer when it is closed"
        );
    }
}
