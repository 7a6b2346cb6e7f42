//! What the device reports about itself.

use bitflags::bitflags;
use uverbs_abi::efa::{self as abi, ExQueryDeviceResp};
use zerocopy::{FromZeros, IntoBytes};

use super::region::is_efa;
use crate::device::context::Context;
use crate::kernel::error::Result;

bitflags! {
    /// Capabilities of an EFA device.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DeviceCaps: u32 {
        /// Reads of remote memory.
        #[doc(alias = "EFADV_DEVICE_ATTR_CAPS_RDMA_READ")]
        const RDMA_READ = abi::QUERY_DEVICE_CAPS_RDMA_READ;
        /// The number of retries when the other side has no receive posted can be set.
        #[doc(alias = "EFADV_DEVICE_ATTR_CAPS_RNR_RETRY")]
        const RNR_RETRY = abi::QUERY_DEVICE_CAPS_RNR_RETRY;
        /// Completion channels.
        const CQ_NOTIFICATIONS = abi::QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS;
        /// Completions contain the GID of a sender for which this side has no address handle.
        #[doc(alias = "EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID")]
        const CQ_WITH_SGID = abi::QUERY_DEVICE_CAPS_CQ_WITH_SGID;
        /// Data is written in order in units of 128 bytes.
        const DATA_POLLING_128 = abi::QUERY_DEVICE_CAPS_DATA_POLLING_128;
        /// Writes to remote memory.
        #[doc(alias = "EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE")]
        const RDMA_WRITE = abi::QUERY_DEVICE_CAPS_RDMA_WRITE;
        /// A write with immediate data consumes no receive; see
        /// [`unsolicited_writes`](crate::QueuePairBuilder::unsolicited_writes).
        #[doc(alias = "EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV")]
        const UNSOLICITED_WRITE_RECEIVE = abi::QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV;
        /// Completion queues in memory of the program (Linux 7.2).
        #[doc(alias = "EFADV_DEVICE_ATTR_CAPS_CQ_WITH_EXT_MEM_DMABUF")]
        const CQ_IN_OWN_MEMORY = abi::QUERY_DEVICE_CAPS_CQ_WITH_EXT_MEM;
        /// Completion counters (Linux 7.3).
        const COMPLETION_COUNTERS = abi::QUERY_DEVICE_CAPS_COMP_CNTR;
        /// Request ids of sends may have 64 bits (Linux 7.3). The crate uses 16.
        const LONG_REQUEST_IDS = abi::QUERY_DEVICE_CAPS_SQ_64_BIT_REQ_ID;
    }
}

/// Attributes of an EFA device that [`Context::query_device`] does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "efadv_device_attr")]
pub struct Device {
    /// Maximum number of outstanding sends of a queue pair.
    pub max_sends: u32,
    /// Maximum number of outstanding receives.
    pub max_receives: u32,
    /// Maximum number of segments of a send.
    pub max_send_segments: u16,
    /// Maximum number of segments of a receive.
    pub max_receive_segments: u16,
    /// Maximum bytes of a read or write of remote memory.
    pub max_rdma_size: u32,
    /// Maximum bytes of inline data of a send in a small slot.
    pub max_inline: u32,
    /// Maximum bytes of inline data of a send in a slot of any size.
    pub max_wide_inline: u32,
    /// Capabilities.
    pub caps: DeviceCaps,
}

impl Device {
    /// Queries the device.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device of another driver.
    ///
    /// # Kernel
    /// Extended `QUERY_DEVICE` with the driver's answer (efa_query_device, efa_verbs.c, Linux 6.1).
    #[doc(alias = "efadv_query_device")]
    pub fn of(context: &Context) -> Result<Self> {
        let state = is_efa("efa.device", context)?;
        let [max_inline, max_wide_inline] = state.inline();
        let mut answer = ExQueryDeviceResp::new_zeroed();
        context.query(answer.as_mut_bytes())?;
        Ok(Self {
            max_sends: answer.max_sq_wr,
            max_receives: answer.max_rq_wr,
            max_send_segments: answer.max_sq_sge,
            max_receive_segments: answer.max_rq_sge,
            max_rdma_size: answer.max_rdma_size,
            max_inline,
            max_wide_inline,
            caps: DeviceCaps::from_bits_retain(answer.device_caps),
        })
    }

    /// Maximum number of requests of a send queue with small slots, or with wide ones, which longer inline data and inline writes need.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device of another driver.
    #[cfg(feature = "raw")]
    pub fn most_sends(context: &Context, is_wide: bool) -> Result<u32> {
        Ok(is_efa("efa.most_sends", context)?.most_in_ring(is_wide))
    }
}
