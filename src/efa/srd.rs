//! Options of reliable datagrams, and what their completions report in addition.

use nix::errno::Errno;
use uverbs_abi::efa::CREATE_QP_WITH_UNSOLICITED_WRITE_RECV;

use super::region::is_efa;
use crate::driver::completion::Completion;
use crate::driver::efa::UNSOLICITED;
use crate::kernel::error::{Error, Result};
use crate::verbs::ah::AddressHandle;
use crate::verbs::qp::{QueuePairBuilder, Srd};

impl QueuePairBuilder<'_, Srd> {
    /// Writes with immediate data from the other side consume no receive. Their completions have `wr_id` 0;
    /// [`efa::is_unsolicited`](is_unsolicited) recognizes them. [`create`](Self::create) is
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on devices without this feature; the kernel must be newer than Linux 6.1.
    #[doc(alias = "EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV")]
    pub fn unsolicited_writes(self) -> Self {
        self.with_driver(|driver| driver.flags |= CREATE_QP_WITH_UNSOLICITED_WRITE_RECV)
    }

    /// The service level of sent packets; default 0. The kernel must be newer than Linux 6.1.
    pub fn service_level(self, level: u8) -> Self {
        self.with_driver(|driver| driver.service_level = level)
    }
}

/// Whether a completion belongs to a write with immediate data that consumed no receive.
#[doc(alias = "efadv_wc_is_unsolicited")]
pub fn is_unsolicited(completion: &Completion) -> bool {
    completion.flags.bits() & UNSOLICITED != 0
}

/// Whether a completion in the kernel's layout belongs to a write with immediate data that consumed no receive.
#[cfg(feature = "raw")]
pub fn is_unsolicited_wc(completion: &uverbs_abi::write::Wc) -> bool {
    completion.wc_flags & UNSOLICITED != 0
}

/// The device's number of an address handle. Completions of receives contain the sender's in [`Completion::source_lid`]; 0xffff
/// means unknown.
///
/// # Errors
/// [`Unsupported`](crate::ErrorKind::Unsupported) for a device of another driver.
#[doc(alias = "efadv_query_ah")]
pub fn handle_number(handle: &AddressHandle) -> Result<u16> {
    let op = "efa.query_ah";
    is_efa(op, handle.context())?;
    u16::try_from(handle.address().number).map_err(|_| Error::kernel(op, Errno::EPROTO))
}
