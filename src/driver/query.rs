//! Properties of a device, and of its completions, that only the driver reports and not the core.

use uverbs_abi::mlx5::QueryDeviceResp;
use uverbs_abi::types::qp_type;
use uverbs_abi::write::QueryQpResp;
use zerocopy::{FromZeros, IntoBytes};

use super::Driver;
use crate::kernel::error::Result;

/// Capabilities for packets that only the driver reports. A value is zero if the device lacks it or the driver does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct PacketCaps {
    /// Maximum bytes of a large send, and a bit for each type of queue pair that supports large sends.
    pub large_sends: [u32; 2],
    /// The fields of headers that can be hashed, as bits.
    pub hash_fields: u64,
    /// A bit for each supported hash function.
    pub hash_functions: u8,
    /// Minimum and maximum rate of sends in kbit/s, and a bit for each type of queue pair that supports a rate.
    pub send_rates: [u32; 3],
}

impl PacketCaps {
    /// Maximum payload in bytes of a large send over a raw packet queue pair; zero if there are no large sends.
    pub(crate) fn large_send(&self) -> u32 {
        let [most, types] = self.large_sends;
        if types & 1 << qp_type::RAW_PACKET != 0 { most } else { 0 }
    }
}

#[cfg(feature = "raw")]
bitflags::bitflags! {
    /// Fields that completions can have in addition to those of all completions. The bits are those of `ibv_create_cq_wc_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CompletionFields: u64 {
        /// When the frame arrived or was sent, in ticks of the device's clock.
        const TIMESTAMP = 1 << 7;
        /// The VLAN tag that was removed from the frame.
        const VLAN = 1 << 8;
        /// The flow tag.
        const FLOW_TAG = 1 << 9;
    }
}

impl Driver {
    /// Removes from the response about a queue pair what the driver does not fill in.
    pub(crate) fn tidy_qp(&self, answer: &mut QueryQpResp) {
        match self {
            Self::Siw(state) => state.tidy_qp(answer),
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Efa(_) | Self::Other => {}
        }
    }

    /// Refuses a query for the state of a queue pair if the driver does not return it.
    pub(crate) fn tells_states(&self, op: &'static str) -> Result<()> {
        match self {
            Self::Siw(state) => state.check_tells_states(op),
            Self::Rxe | Self::Mlx5(_) | Self::Soft | Self::Efa(_) | Self::Other => Ok(()),
        }
    }

    /// Whether the two queues of a raw packet queue pair stop independently. In that case the driver passes on a state that the queue has
    /// left, and the device refuses the change. If the state is queried while only the receive queue has stopped, the driver logs a
    /// warning in the kernel's log.
    ///
    /// Source: `modify_raw_packet_qp` and `sqrq_state_to_qp_state`, mlx5/qp.c, Linux 6.1.
    pub(crate) fn queues_stop_alone(&self) -> bool {
        match self {
            Self::Mlx5(_) => true,
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => false,
        }
    }
}

/// A query about the device: room for the driver's part of the response.
#[derive(Debug)]
pub(crate) enum QueryPlan {
    Nothing,
    Mlx5(QueryDeviceResp),
}

impl QueryPlan {
    /// The place for the driver's response; empty if the driver returns nothing.
    pub(crate) fn answer(&mut self) -> &mut [u8] {
        match self {
            Self::Nothing => &mut [],
            Self::Mlx5(answer) => answer.as_mut_bytes(),
        }
    }

    /// The properties that the driver has returned.
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
    /// The driver's part of a query for the device's limits.
    pub(crate) fn plan_query(&self) -> QueryPlan {
        match self {
            Self::Mlx5(_) => QueryPlan::Mlx5(QueryDeviceResp::new_zeroed()),
            // siw refuses a longer place (siw_query_device, siw_verbs.c, Linux 6.1).
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => QueryPlan::Nothing,
        }
    }
}
