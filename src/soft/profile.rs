//! The capabilities and sizes of a soft device.

use std::net::IpAddr;

use super::NODE_GUID;
use super::wire::{self, Faults};

/// The name of a device that was given none.
const NAME: &str = "soft0";

/// The capabilities and sizes of a soft device.
///
/// The default is a small ConnectX: counters, flows, and hot-unplug.
///
/// ```
/// use uverbs::soft::{Profile, SoftDevice};
///
/// let profile = Profile::default().with_max_bound_counters(2).with_gids(4);
/// assert_eq!(SoftDevice::new(profile).profile().max_bound_counters, 2);
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Counters objects are supported.
    pub counters: bool,
    /// Flows are supported.
    pub flows: bool,
    /// Maximum number of hardware counters. A counters object allocates one when a flow first uses it, not when it is created. If
    /// none is free, the error is `ENOMEM`, as for the firmware's "limits exceeded".
    pub max_bound_counters: u32,
    /// Maximum number of completion counters; one more is `ENOMEM`. With 0, the default, the object does not exist.
    pub completion_counters: u32,
    /// Maximum number of flows; one more is `ENOSPC`.
    pub max_flows: u32,
    /// Maximum number of queue pairs; one more is `ENOMEM`.
    pub max_qp: u32,
    /// Maximum number of completion queues; one more is `ENOMEM`.
    pub max_cq: u32,
    /// Maximum number of memory regions; one more is `ENOMEM`.
    pub max_mr: u32,
    /// Maximum number of memory windows; one more is `ENOMEM`. With 0 the object does not exist.
    pub max_mw: u32,
    /// Maximum number of protection domains; one more is `ENOMEM`.
    pub max_pd: u32,
    /// Maximum number of entries of a completion queue, below 2^24.
    pub max_cqe: u32,
    /// Maximum number of requests in a ring, below 2^16.
    pub max_qp_wr: u32,
    /// Maximum number of segments of a request, at most 64.
    pub max_sge: u32,
    /// Number of completion vectors: the interrupts that completion queues can use.
    pub completion_vectors: u32,
    /// Extended reliable connections are supported, unless the device is [like rxe](Self::rxe), which has none.
    pub xrc: bool,
    /// Completion queues accept moderation, which has no effect here.
    pub cq_moderation: bool,
    /// The port's MTU in bytes, which no datagram may exceed: 256, 512, 1024, 2048 or 4096.
    pub port_mtu: u32,
    /// Length of the GID table. Entry 0 contains a link-local GID and entry 1 the IPv4 address 192.0.2.1; the others are empty. 0 means no
    /// table.
    pub gids: u32,
    /// Rules may match fields that mlx5's driver refuses (time to live, hop limit, ESP, GRE's first word), and may have flag bit
    /// 0, `ALLOW_LOOP_BACK`, with which a queue pair receives the frames that it sends.
    pub wide_rules: bool,
    /// Flows can be sniffers, which get a copy of all packets.
    pub sniffers: bool,
    /// A queue pair receives the frames that it sends itself, if its flows match them; otherwise only other queue pairs do.
    pub hears_itself: bool,
    /// A memory region can be moved to other memory, as on mlx5; on rxe it cannot.
    pub moves_regions: bool,
    /// Queue pairs, regions and windows behave as on the kernel's software device rxe of this version of Linux, where that
    /// differs from cards: statuses, events, checks of attributes, a full completion queue.
    pub rxe: Option<(u32, u32)>,
    /// Its queue pairs are connected as over iWARP on a [network](super::SoftNetwork), otherwise as over RoCE.
    pub iwarp: bool,
    /// The device can be removed while it is in use; otherwise it stays until all contexts are closed.
    pub disassociate: bool,
    /// Faults of the wire of a device that [has an address](super::SoftDevice::on).
    pub faults: Faults,
    /// On the wire, the checksum of an IPv4 packet must be right for the identification 0, which senders like this device use. Otherwise a
    /// packet may have any identification, as those of other RoCE devices.
    pub strict_checksums: bool,
    /// On the wire, packets of one length to one peer are given to the kernel together (`UDP_SEGMENT`), which is faster. An interface that
    /// numbers them in another way than the kernel does makes their checksums wrong: then it must be off.
    pub segmentation: bool,
    /// The device's name.
    pub name: String,
    /// The address, if the device has one.
    pub(super) address: Option<IpAddr>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            counters: true,
            flows: true,
            max_bound_counters: 65_536,
            completion_counters: 0,
            max_flows: 65_536,
            max_qp: 1024,
            max_cq: 1024,
            max_mr: 65_536,
            max_mw: 65_536,
            max_pd: 1024,
            max_cqe: 65_535,
            max_qp_wr: 8192,
            max_sge: 16,
            completion_vectors: 4,
            xrc: true,
            cq_moderation: false,
            port_mtu: 4096,
            gids: 16,
            wide_rules: false,
            sniffers: true,
            hears_itself: false,
            moves_regions: false,
            rxe: None,
            iwarp: false,
            disassociate: true,
            faults: Faults::default(),
            strict_checksums: false,
            segmentation: true,
            name: NAME.to_owned(),
            address: None,
        }
    }
}

impl Profile {
    /// The profile of a device on a wire.
    pub(super) fn at(self, address: IpAddr) -> Self {
        let port_mtu = wire::packet_size(address).unwrap_or(1024).min(self.port_mtu);
        Self { address: Some(address), port_mtu, ..self }
    }

    /// The address on the wire.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// GUID of the device, and of its system. On a wire it has the address: devices of one network differ.
    pub(crate) fn guid(&self) -> u64 {
        let number = match self.address {
            None => return NODE_GUID,
            Some(IpAddr::V4(address)) => address.to_bits(),
            Some(IpAddr::V6(address)) => {
                let bits = address.to_bits();
                // Those of one network differ in the last word.
                [96, 64, 32, 0].iter().fold(0, |number, shift| number ^ (bits >> shift) as u32)
            }
        };
        // As if made from the Ethernet address 02:00 and these four bytes.
        0x0200_00ff_fe00_0000 | u64::from(number >> 24) << 40 | u64::from(number & 0xff_ffff)
    }

    /// Limits the profile to the range of the device's numbers. Object numbers have 24 bits, a few of which are reserved; rings are mapped
    /// with lengths of 32 bits.
    pub(super) fn bounded(self) -> Self {
        const OBJECTS: u32 = 0xff_0000;
        Self {
            completion_counters: self.completion_counters.min(OBJECTS),
            max_flows: self.max_flows.min(OBJECTS),
            max_qp: self.max_qp.min(OBJECTS),
            max_cq: self.max_cq.min(OBJECTS),
            max_mr: self.max_mr.min(OBJECTS / 2),
            max_mw: self.max_mw.min(OBJECTS / 2),
            max_pd: self.max_pd.min(OBJECTS),
            max_cqe: self.max_cqe.min(0xff_ffff),
            max_qp_wr: self.max_qp_wr.min(0xffff),
            max_sge: self.max_sge.min(64),
            port_mtu: 1 << self.port_mtu.clamp(256, 4096).ilog2(),
            ..self
        }
    }
}

macro_rules! with {
    ($($with:ident $field:ident: $type:ty;)*) => {
        impl Profile {
            $(
                #[doc = concat!("The same with another [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $with(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

with! {
    with_counters counters: bool;
    with_flows flows: bool;
    with_max_bound_counters max_bound_counters: u32;
    with_completion_counters completion_counters: u32;
    with_max_flows max_flows: u32;
    with_max_qp max_qp: u32;
    with_max_cq max_cq: u32;
    with_max_mr max_mr: u32;
    with_max_mw max_mw: u32;
    with_max_pd max_pd: u32;
    with_max_cqe max_cqe: u32;
    with_max_qp_wr max_qp_wr: u32;
    with_max_sge max_sge: u32;
    with_completion_vectors completion_vectors: u32;
    with_xrc xrc: bool;
    with_cq_moderation cq_moderation: bool;
    with_port_mtu port_mtu: u32;
    with_gids gids: u32;
    with_wide_rules wide_rules: bool;
    with_sniffers sniffers: bool;
    with_hears_itself hears_itself: bool;
    with_moves_regions moves_regions: bool;
    with_rxe rxe: Option<(u32, u32)>;
    with_iwarp iwarp: bool;
    with_disassociate disassociate: bool;
    with_faults faults: Faults;
    with_strict_checksums strict_checksums: bool;
    with_segmentation segmentation: bool;
    with_name name: String;
}
