//! What drivers tell of a device beyond the core's answer, and what their completions tell.

use uverbs_abi::mlx5::QueryDeviceResp;
use uverbs_abi::types::qp_type;
use uverbs_abi::write::QueryQpResp;
use zerocopy::{FromZeros, IntoBytes};

use super::Driver;
use crate::kernel::error::Result;

/// What a device does to packets, as only its driver tells. Zeros are what it cannot, or does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct PacketCaps {
    /// Most bytes of a large send, and a bit for each type of queue pair that has them.
    pub large_sends: [u32; 2],
    /// Fields of headers that can be hashed.
    pub hash_fields: u64,
    /// A bit for each function to hash them by.
    pub hash_functions: u8,
    /// Least and highest rate of sends, in kbit/s, and a bit for each type of queue pair that has one.
    pub send_rates: [u32; 3],
}

impl PacketCaps {
    /// Most bytes of payload of a large send over a raw packet queue pair; zero without them.
    pub(crate) fn large_send(&self) -> u32 {
        let [most, types] = self.large_sends;
        if types & 1 << qp_type::RAW_PACKET != 0 { most } else { 0 }
    }
}

#[cfg(feature = "raw")]
bitflags::bitflags! {
    /// What completions can tell besides what all of them do. The bits are those of `ibv_create_cq_wc_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CompletionFields: u64 {
        /// When the frame came in or was sent, in ticks of the device's clock.
        const TIMESTAMP = 1 << 7;
        /// The VLAN tag that was taken off.
        const VLAN = 1 << 8;
        /// The flow tag.
        const FLOW_TAG = 1 << 9;
    }
}

impl Driver {
    /// Takes out of an answer about a queue pair what the driver does not say: the kernel then tells what was in its memory.
    pub(crate) fn tidy_qp(&self, answer: &mut QueryQpResp) {
        match self {
            Self::Siw(state) => state.tidy_qp(answer),
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Efa(_) | Self::Other => {}
        }
    }

    /// Refuses to ask for the state of a queue pair where the driver does not tell it.
    pub(crate) fn tells_states(&self, op: &'static str) -> Result<()> {
        match self {
            Self::Siw(state) => state.check_tells_states(op),
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Efa(_) | Self::Other => Ok(()),
        }
    }

    /// Whether the two queues of a raw packet queue pair stop each by itself: the driver then tells the device a state in which
    /// the queue is no more, and the device refuses the change; asked for the state, it warns in the kernel's log if the receive queue alone
    /// has stopped.
    ///
    /// Source: `modify_raw_packet_qp` and `sqrq_state_to_qp_state`, mlx5/qp.c, Linux 6.1.
    pub(crate) fn queues_stop_alone(&self) -> bool {
        match self {
            Self::Mlx5(_) => true,
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => false,
        }
    }
}

/// A question about the device: room for the driver's part of the answer.
#[derive(Debug)]
pub(crate) enum QueryPlan {
    Nothing,
    Mlx5(QueryDeviceResp),
}

impl QueryPlan {
    /// The place of the driver's answer, which is empty for a driver that tells nothing.
    pub(crate) fn answer(&mut self) -> &mut [u8] {
        match self {
            Self::Nothing => &mut [],
            Self::Mlx5(answer) => answer.as_mut_bytes(),
        }
    }

    /// What the driver has told.
    pub(crate) fn open(self) -> PacketCaps {
        match self {
            Self::Nothing => PacketCaps::default(),
            Self::Mlx5(answer) => {
                let QueryDeviceResp { tso_caps, rss_caps, packet_pacing_caps: rates, .. } = answer;
                PacketCaps {
                    large_sends: [tso_caps.max_tso, tso_caps.supported_qpts],
                    hash_fields: rss_caps.rx_hash_fields_mask,
                    hash_functions: rss_caps.rx_hash_function,
                    send_rates: [rates.qp_rate_limit_min, rates.qp_rate_limit_max, rates.supported_qpts],
                }
            }
        }
    }
}

impl Driver {
    /// What it tells when the device is asked for its limits.
    pub(crate) fn plan_query(&self) -> QueryPlan {
        match self {
            Self::Mlx5(_) => QueryPlan::Mlx5(QueryDeviceResp::new_zeroed()),
            // siw refuses a place for more (siw_query_device, siw_verbs.c, Linux 6.1).
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => QueryPlan::Nothing,
        }
    }
}
