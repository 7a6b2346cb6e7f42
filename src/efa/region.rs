//! The connections by which the device accesses a memory region.

use nix::errno::Errno;
use uverbs_abi::efa::ids::mr::{self, query};
use uverbs_abi::efa::{
    QUERY_MR_VALIDITY_RDMA_READ_IC_ID, QUERY_MR_VALIDITY_RDMA_RECV_IC_ID, QUERY_MR_VALIDITY_RECV_IC_ID,
};
use zerocopy::IntoBytes;

use crate::device::context::Context;
use crate::driver::Driver;
use crate::driver::efa::State;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::mr::MemoryRegion;

/// Refuses `op` on a device of another driver.
pub(super) fn is_efa<'a>(op: &'static str, context: &'a Context) -> Result<&'a State> {
    match context.driver() {
        Driver::Efa(state) => Ok(state),
        _ => Err(Error::refused(op, Errno::EOPNOTSUPP, "the device is not an EFA")),
    }
}

/// The interconnects through which the device accesses a region; `None` for those that the device does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "efadv_mr_attr")]
pub struct Ways {
    /// For received messages.
    pub receive: Option<u16>,
    /// For the data of reads.
    pub rdma_read: Option<u16>,
    /// For writes from the other side.
    pub rdma_receive: Option<u16>,
}

impl Ways {
    /// Queries the device.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a device of another driver, and on older kernels.
    ///
    /// # Kernel
    /// `EFA_IB_METHOD_MR_QUERY` (efa_verbs.c, Linux 7.2; not in Linux 6.1).
    #[doc(alias = "efadv_query_mr")]
    pub fn of(region: &MemoryRegion) -> Result<Self> {
        Self::ask(region.object().context(), region.object().id())
    }

    /// Queries the device about the region with this handle.
    ///
    /// # Errors
    /// As for [`Ways::of`].
    #[cfg(feature = "raw")]
    pub fn of_handle(context: &Context, handle: u32) -> Result<Self> {
        Self::ask(context, handle)
    }

    fn ask(context: &Context, handle: u32) -> Result<Self> {
        let op = "efa.query_mr";
        is_efa(op, context)?;
        let (mut valid, mut receive, mut read, mut written) = (0_u16, 0_u16, 0_u16, 0_u16);
        let mut command = Command::new(op, mr::OBJECT, mr::method::QUERY);
        command
            .handle(query::HANDLE, handle)
            .output(query::RESP_IC_ID_VALIDITY, valid.as_mut_bytes())
            .output(query::RESP_RECV_IC_ID, receive.as_mut_bytes())
            .output(query::RESP_RDMA_READ_IC_ID, read.as_mut_bytes())
            .output(query::RESP_RDMA_RECV_IC_ID, written.as_mut_bytes());
        context.invoke(&mut command).map_err(|error| {
            error.hinted_if(ErrorKind::Unsupported, "the kernel is too old for this query")
        })?;
        let said = |bit: u16, way: u16| (valid & bit != 0).then_some(way);
        Ok(Self {
            receive: said(QUERY_MR_VALIDITY_RECV_IC_ID, receive),
            rdma_read: said(QUERY_MR_VALIDITY_RDMA_READ_IC_ID, read),
            rdma_receive: said(QUERY_MR_VALIDITY_RDMA_RECV_IC_ID, written),
        })
    }
}
