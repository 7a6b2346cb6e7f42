//! Properties of a device that only its driver knows.

use uverbs_abi::mlx5::QueryDeviceResp;
use uverbs_abi::types::qp_type;
use zerocopy::IntoBytes;

/// The scope in which an invalidate must not be sent twice for one key, and not for a window that is not bound.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GuardedKeys {
    /// No restriction, because the device checks it.
    None,
    /// The open device.
    OfDevice,
    /// All devices of the driver.
    OfDriver,
}

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

/// A query about the device: room for the driver's part of the response.
#[derive(Debug)]
pub(crate) enum QueryPlan {
    Nothing,
    /// Only one driver answers, so the layout is that driver's.
    Packets(QueryDeviceResp),
}

impl QueryPlan {
    /// The place for the driver's response; empty if the driver returns nothing.
    pub(crate) fn answer(&mut self) -> &mut [u8] {
        match self {
            Self::Nothing => &mut [],
            Self::Packets(answer) => answer.as_mut_bytes(),
        }
    }

    /// The properties that the driver has returned.
    pub(crate) fn open(self) -> PacketCaps {
        match self {
            Self::Nothing => PacketCaps::default(),
            Self::Packets(answer) => {
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
