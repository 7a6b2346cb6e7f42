//! Multicast: datagrams to every queue pair of a group.

use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::CORE_IN;
use uverbs_abi::write::{AttachMcast, DetachMcast, cmd};

use super::{QueuePair, QueuePairCore, Ud};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};

/// The queue pair number for datagrams to a multicast GID, which stands for every queue pair of the group.
pub const MULTICAST_QP: u32 = 0xff_ffff;

/// The groups to which a queue pair is attached.
///
/// The kernel accepts a second attach to a group, but counts it once. If a queue pair attaches to one GID with two LIDs, rxe detaches the
/// first one and the core never releases the queue pair (ib_uverbs_detach_mcast, uverbs_cmd.c; rxe_detach_mcg, rxe_mcast.c, Linux 6.1).
/// Each GID is therefore attached only once.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<Vec<[u8; 16]>>);

impl Groups {
    /// Sends a command that adds or removes `gid`. If the group is attached although it must not be, or the reverse (`is_in`), it returns
    /// `None` and sends nothing.
    fn change(
        &self,
        gid: &[u8; 16],
        is_in: bool,
        command: impl FnOnce() -> Result<()>,
    ) -> Option<Result<()>> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if groups.contains(gid) != is_in {
            return None;
        }
        let answer = command();
        if answer.is_ok() {
            if is_in { groups.retain(|group| group != gid) } else { groups.push(*gid) }
        }
        Some(answer)
    }
}

/// The membership of a queue pair in a multicast group. The queue pair receives the group's datagrams as long as this object
/// exists. Created by [`QueuePair::join_multicast`](crate::QueuePair::join_multicast).
///
/// It keeps the queue pair's kernel object alive.
#[derive(Debug)]
#[must_use = "dropped, it leaves the group"]
pub struct Membership {
    qp: Arc<QueuePairCore>,
    gid: [u8; 16],
    lid: u16,
}

impl QueuePair<Ud> {
    /// Joins the multicast group `gid`, whose local identifier is `lid` (0 on Ethernet, which has none).
    ///
    /// To send a datagram to a group, use an [`AddressHandle`](crate::AddressHandle) for its GID and the queue pair number
    /// [`MULTICAST_QP`]. Every queue pair in the group with the same queue key and a posted receive gets it, including the
    /// sender's own.
    ///
    /// On Ethernet the group is an IPv6 multicast address or an IPv4 one in the form `::ffff:a.b.c.d`.
    ///
    /// ```
    /// use uverbs::{ConnectionOptions, Datagram, MULTICAST_QP, Route, SendRequest};
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::SoftDevice::default().open()?;
    /// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
    /// let mut qp = pd.ud(&cq).create()?;
    /// qp.activate(&ConnectionOptions::new(1, 0), 0x11, 0)?;
    /// let group = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    /// let membership = qp.join_multicast(&group, 0)?;
    /// let to = pd.create_ah(&Route::new(1, 0, group))?;
    /// let datagram = Datagram { to: &to, qp_num: MULTICAST_QP, qkey: 0x11, immediate: None };
    /// qp.post_send(&[SendRequest::new(1, datagram, &[])])?;
    /// membership.leave().map_err(|(_, error)| error)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a GID that is not a multicast GID, on InfiniBand a LID outside the multicast
    /// range, or a group of which the queue pair is already a member (EEXIST); [`Exhausted`](ErrorKind::Exhausted) for more
    /// groups or members than the device supports.
    ///
    /// # Kernel
    /// `ATTACH_MCAST` through `INVOKE_WRITE` (ib_uverbs_attach_mcast, uverbs_cmd.c, Linux 6.1). ib_attach_mcast, verbs.c, accepts
    /// only UD queue pairs.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn join_multicast(&self, gid: &[u8; 16], lid: u16) -> Result<Membership> {
        QueuePairCore::join(&self.shared, "qp.join_multicast", gid, lid)
    }
}

impl QueuePairCore {
    /// Joins a group, of a queue pair for datagrams.
    pub(crate) fn join(this: &Arc<Self>, op: &'static str, gid: &[u8; 16], lid: u16) -> Result<Membership> {
        let object = this.object();
        let request = AttachMcast { gid: *gid, qp_handle: object.id(), mlid: lid, reserved: 0 };
        object.context().check_origin(op)?;
        let answer = this.groups.change(gid, false, || {
            let mut command = Command::write(op, cmd::ATTACH_MCAST);
            command.input(CORE_IN, &request);
            object.context().invoke(&mut command)
        });
        answer
            .unwrap_or_else(|| {
                Err(Error::refused(op, Errno::EEXIST, "the queue pair is in this group already"))
            })
            .map_err(|error| {
                error.hinted_if(ErrorKind::InvalidInput, "not the GID of a multicast group, or not its LID")
            })?;
        Ok(Membership { qp: this.clone(), gid: *gid, lid })
    }
}

impl Membership {
    /// GID of the group.
    pub fn gid(&self) -> [u8; 16] {
        self.gid
    }

    /// Leaves the group and reports any error; datagrams that have arrived stay.
    ///
    /// # Errors
    /// Those of the kernel; the membership is returned with the error.
    ///
    /// # Kernel
    /// `DETACH_MCAST` through `INVOKE_WRITE` (ib_uverbs_detach_mcast, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_detach_mcast")]
    pub fn leave(self) -> Result<(), (Self, Error)> {
        match self.detach() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Leaves the group, unless this is already done. A device that was removed has no groups.
    fn detach(&self) -> Result<()> {
        let object = self.qp.object();
        if !object.context().is_here() {
            // A child of `fork` must not wait for the lock, and leaves no group of its parent.
            return Ok(());
        }
        let request = DetachMcast { gid: self.gid, qp_handle: object.id(), mlid: self.lid, reserved: 0 };
        let answer = self.qp.groups.change(&self.gid, true, || {
            let mut command = Command::write("qp.leave_multicast", cmd::DETACH_MCAST);
            command.input(CORE_IN, &request);
            object.context().invoke(&mut command).or_else(|error| match error.kind() {
                ErrorKind::Disassociated => Ok(()),
                _ => Err(error),
            })
        });
        answer.unwrap_or(Ok(()))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            // No caller is left to return the error to. The kernel leaves the group when the file is closed.
            #[cfg(feature = "tracing")]
            tracing::warn!(%error, "membership in a multicast group left to the kernel");
            #[cfg(not(feature = "tracing"))]
            drop(error);
        }
    }
}
