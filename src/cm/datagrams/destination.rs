//! Where datagrams go.

use uverbs_abi::cm::UdParam;

use crate::kernel::error::Result;
use crate::verbs::ah::AddressHandle;
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::qp::Datagram;

/// Where datagrams go: a queue pair that was looked up, or all members of a group. It belongs to the protection domain of the queue pair
/// with which it was found.
#[derive(Clone, Debug)]
pub struct Destination {
    ah: AddressHandle,
    qp_num: u32,
    qkey: u32,
}

impl Destination {
    /// The destination in an event.
    pub(super) fn of(pd: &ProtectionDomain, param: &UdParam) -> Result<Self> {
        Ok(Self { ah: pd.make_ah(param.ah_attr)?, qp_num: param.qp_num, qkey: param.qkey })
    }

    /// A datagram to it, without a number; for one with a number write `Datagram { immediate: Some(7), ..destination.datagram() }`.
    pub fn datagram(&self) -> Datagram<'_> {
        Datagram { to: &self.ah, qp_num: self.qp_num, qkey: self.qkey, immediate: None }
    }

    /// The address handle.
    pub fn address_handle(&self) -> &AddressHandle {
        &self.ah
    }

    /// Number of the queue pair; [`MULTICAST_QP`](crate::MULTICAST_QP) for a group.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// The queue key that is expected there.
    pub fn qkey(&self) -> u32 {
        self.qkey
    }
}
