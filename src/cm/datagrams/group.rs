//! Multicast groups that are joined by their address.

use std::net::IpAddr;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::cm::{
    DEVICE_REMOVAL, DestroyId, EventResp, FULLMEMBER, JoinMcast, MULTICAST_ERROR, MULTICAST_JOIN,
    SENDONLY_FULLMEMBER,
};

use super::super::error::{check, status};
use super::super::id::Id;
use super::super::manager::bind;
use super::super::resolve::{Resolve, address};
use super::super::waiting::Waiting;
use super::destination::Destination;
use super::look_up::domain;
use super::ready::make_ready;
use crate::device::Device;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::manager::{LeaveMcast, encode};
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::qp::{self, QueuePair, QueuePairCore, Ud};

const OP: &str = "cm.join";

/// A multicast group, and the device on which it can be joined; found by [`Datagrams::group`](super::Datagrams::group).
#[derive(Debug)]
pub struct Group {
    id: Id,
    address: IpAddr,
}

/// A group that is about to be joined; created by [`Group::join`].
#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Join {
    id: Id,
    address: IpAddr,
    pd: ProtectionDomain,
    qp: Arc<QueuePairCore>,
    only_sends: bool,
}

/// The membership in a multicast group. The queue pair receives the group's datagrams, and may send to the group, as long as this object
/// exists; dropping it leaves.
///
/// It keeps the queue pair's kernel object alive.
#[derive(Debug)]
#[must_use = "dropped, it leaves the group"]
pub struct Membership {
    // The queue pair leaves before the port does.
    attached: Option<qp::Membership>,
    id: Id,
    number: u32,
    address: IpAddr,
    destination: Destination,
}

/// How a membership has ended without being left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The device was removed.
    Device,
    /// The group was lost: the port or its subnet manager has changed. Only on InfiniBand.
    Group,
}

impl Resolve<Group> {
    /// Finds the device. Without a [source](Self::source) the kernel needs a route to the group.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an address that is not one of a group; [`NotFound`](ErrorKind::NotFound) if the interface
    /// has no RDMA device; `ENETUNREACH` without a route; [`Unsupported`](ErrorKind::Unsupported) over iWARP, which has no datagrams.
    ///
    /// # Kernel
    /// `BIND` or `RESOLVE_ADDR` (ucma.c, Linux 6.1).
    pub fn run<'a>(self) -> Waiting<'a, Group> {
        let shared = self.shared.clone();
        Waiting::new(&shared, OP, self.find())
    }

    async fn find(self) -> Result<Group> {
        use super::super::kind::sealed::Kind;
        let group = self.destination.ip();
        if !group.is_multicast() {
            // The kernel joins any address.
            let hint = format!("{group} is not the address of a group: those are 224.0.0.0/4 and ff00::/8");
            return Err(Error::refused(OP, Errno::EINVAL, hint));
        }
        let id = match &self.source {
            Some(source) if source.ip().is_loopback() || source.ip().is_unspecified() => {
                let hint = format!("{} belongs to no RDMA device", source.ip());
                return Err(Error::refused(OP, Errno::EINVAL, hint));
            }
            Some(source) => {
                let id = Id::create(&self.shared, OP, Ud::SPACE)?;
                bind(&id, OP, source)?;
                id
            }
            None => address(&self.shared, Ud::SPACE, [], &self.destination, None, None).await?,
        };
        id.has_datagrams(OP)?;
        Ok(Group { id, address: group })
    }
}

impl Group {
    /// The device on which the group is joined, and its port. The queue pair must belong to it.
    ///
    /// # Errors
    /// [`Disassociated`](ErrorKind::Disassociated) if the device has gone.
    pub fn device(&self) -> Result<(Device, u8)> {
        self.id.device(OP)
    }

    /// Prepares to join with this queue pair. If it is new, it is made ready with the queue key of the connection manager, so that receives
    /// can be posted before the first datagram can arrive.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a queue pair of another device, or one that is ready with another queue key; those of
    /// [`QueuePair::modify`].
    #[doc(alias = "rdma_join_multicast")]
    #[doc(alias = "rdma_join_multicast_ex")]
    pub fn join(self, qp: &mut QueuePair<Ud>) -> Result<Join> {
        make_ready(OP, &self.id, qp)?;
        let (pd, qp) = (domain(OP, qp)?, qp.shared().clone());
        Ok(Join { id: self.id, address: self.address, pd, qp, only_sends: false })
    }
}

impl Join {
    /// The queue pair only sends to the group, and receives nothing from it.
    pub fn only_send(mut self) -> Self {
        self.only_sends = true;
        self
    }

    /// Joins: the port, and unless it [only sends](Self::only_send) the queue pair.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use uverbs::{SendRequest, SoftDevice, cm::SoftNetwork};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let network = SoftNetwork::default();
    /// # network.join(&SoftDevice::default(), "10.0.0.1".parse()?)?;
    /// # let manager = network.manager()?;
    /// let patience = Duration::from_secs(5);
    /// let group = manager.datagrams().group("239.1.2.3".parse()?).run().within(patience)?;
    /// let context = group.device()?.0.open()?;
    /// let (pd, cq) = (context.alloc_pd()?, context.create_cq(4)?);
    /// let mut qp = pd.ud(&cq).inline(16).create()?;
    /// let membership = group.join(&mut qp)?.run().within(patience)?;
    /// qp.post_send(&[SendRequest::inline(1, membership.destination().datagram(), b"to all")])?;
    /// membership.leave()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for an IPv6 group on RoCE, which the kernel does not join;
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the queue pair is in the group already; [`Disassociated`](ErrorKind::Disassociated) if the
    /// device has gone.
    ///
    /// # Kernel
    /// `JOIN_MCAST` (ucma.c, Linux 6.1), then `ATTACH_MCAST` of uverbs.
    pub fn run<'a>(self) -> Waiting<'a, Membership> {
        let shared = self.id.shared.clone();
        Waiting::new(&shared, OP, self.enter())
    }

    async fn enter(self) -> Result<Membership> {
        let Self { id, address, pd, qp, only_sends } = self;
        let (addr_size, addr) = encode(&(address, 0).into());
        let join_flags = if only_sends { SENDONLY_FULLMEMBER } else { FULLMEMBER };
        // The number of the identifier: events of its membership go to the same place.
        let request =
            JoinMcast { uid: id.uid, id: id.id, addr_size, join_flags, addr, ..JoinMcast::default() };
        // Whatever ends this call destroys the identifier, and thereby leaves the group.
        let number = id.request(OP, &request).map_err(|error| refusal(error, address))?.id;
        let event = loop {
            let event = id.event(OP).await?;
            check_join(&event, address)?;
            if event.event == MULTICAST_JOIN {
                break event;
            }
        };
        let path = &event.param.ah_attr;
        let attached = match only_sends {
            true => None,
            false => Some(QueuePairCore::join(&qp, OP, &path.grh.dgid, path.dlid)?),
        };
        let destination = Destination::of(&pd, &event.param)?;
        Ok(Membership { attached, id, number, address, destination })
    }
}

/// The error of an event that ends a join; `Ok` for any other event.
fn check_join(event: &EventResp, address: IpAddr) -> Result<()> {
    if event.event != MULTICAST_ERROR {
        return Ok(check(OP, event)?);
    }
    let error = Error::kernel(OP, Errno::from_raw(status(event).wrapping_neg()));
    Err(refusal(error, address).hinted("the group could not be joined"))
}

fn refusal(error: Error, address: IpAddr) -> Error {
    match error.errno().map(Errno::from_raw) {
        Some(Errno::EOPNOTSUPP | Errno::ENOSYS) if address.is_ipv6() => error.unsupported(format!(
            "the kernel joins no IPv6 groups such as {address} on RoCE; QueuePair::join_multicast needs no connection manager"
        )),
        Some(Errno::EOPNOTSUPP | Errno::ENOSYS) => error.unsupported("this port has no multicast groups"),
        _ => error,
    }
}

impl Membership {
    /// The group.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Where datagrams to all members go.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Waits until the membership has ended without being left: the device was removed, or on InfiniBand the group was lost.
    ///
    /// # Errors
    /// Those of reading events.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn lost(&self) -> Waiting<'_, Lost> {
        Waiting::new(&self.id.shared, "cm.lost", async {
            loop {
                let event = self.id.event("cm.lost").await?;
                let lost = match event.event {
                    DEVICE_REMOVAL => Lost::Device,
                    MULTICAST_ERROR => Lost::Group,
                    _ => continue,
                };
                // It is there for the next call, and for one that waits at the same time.
                self.id.shared.give_back(event);
                return Ok(lost);
            }
        })
    }

    /// Leaves the group and reports any error; datagrams that have arrived stay. Dropping it does the same.
    ///
    /// # Errors
    /// Those of the kernel. The group is left nevertheless.
    ///
    /// # Kernel
    /// `DETACH_MCAST` of uverbs, then `LEAVE_MCAST` (ucma.c, Linux 6.1).
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave(self) -> Result<()> {
        let Self { attached, id, number, .. } = self;
        id.shared.check_origin("cm.leave")?;
        let detached = attached.map_or(Ok(()), |attached| attached.leave().map_err(|(_, error)| error));
        let request = LeaveMcast(DestroyId { id: number, ..DestroyId::default() });
        match id.request("cm.leave", &request) {
            Err(error) if error.kind() != ErrorKind::Disassociated => Err(error),
            _ => detached,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_not_joined_says_why() {
        let told = |event, status: i32, group: &str| {
            let event = EventResp { event, status: status as u32, ..EventResp::default() };
            check_join(&event, group.parse().expect("an address"))
                .map_err(|error| (error.kind(), error.to_string()))
        };
        let (kind, text) = told(MULTICAST_ERROR, -12, "239.1.2.3").expect_err("no memory");
        assert_eq!(kind, ErrorKind::Exhausted);
        assert!(text.contains("could not be joined"), "{text}");
        let (kind, text) = told(MULTICAST_ERROR, -95, "ff12::5").expect_err("no IPv6");
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(text.contains("no IPv6 groups such as ff12::5"), "{text}");
        let (kind, _) = told(MULTICAST_ERROR, -38, "239.1.2.3").expect_err("no multicast");
        assert_eq!(kind, ErrorKind::Unsupported);
        let (kind, _) = told(DEVICE_REMOVAL, 0, "239.1.2.3").expect_err("removed");
        assert_eq!(kind, ErrorKind::Disassociated);
        assert_eq!(told(MULTICAST_JOIN, 0, "239.1.2.3"), Ok(()));
    }
}
