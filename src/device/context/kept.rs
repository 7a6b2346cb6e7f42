//! Device files that stay open until the process ends.
//!
//! After the firmware of an mlx5 device has refused a flow counter, the driver has an error in place of a counter, and uses it
//! when the counters object is destroyed: at the latest when the device file is closed (mlx5_ib_flow_counters_set_data and
//! mlx5_ib_destroy_counters, counters.c, Linux 6.1 to 7.3). The file of such a context is therefore leaked on purpose. The end of the
//! process closes it all the same, and nothing in user space can prevent that.

use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;

use super::Context;
use crate::kernel::error::{Error, Result};
use crate::kernel::process::Local;

/// Maximum number of counters objects that a process abandons on one device. The kernel keeps each of them, perhaps with a counter of the
/// hardware, until the file is closed.
const MOST: u32 = 1024;

/// The contexts whose files stay open, each once. A child of `fork` starts with a copy of the list.
static KEPT: Local<Vec<Context>> = Local::new(Vec::clone);

/// Number of counters objects that a context has abandoned.
#[derive(Debug, Default)]
pub(super) struct Abandoned(AtomicU32);

impl Context {
    /// Refuses `op` if so many counters objects of the device were abandoned that another one must not be.
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

    /// Records that a counters object was abandoned, and keeps the device file open until the process ends.
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
             because the kernel could crash when it is closed"
        );
    }
}
