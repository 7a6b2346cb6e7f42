//! Multicast groups of UD queue pairs.
//!
//! Source: `ib_uverbs_attach_mcast` and `ib_uverbs_detach_mcast`, uverbs_cmd.c; `ib_attach_mcast`, verbs.c;
//! Linux 6.1. A sender that is in the group gets its own datagrams too.

use nix::errno::Errno;
use uverbs_abi::types::qp_type;
use uverbs_abi::write::{AttachMcast, DetachMcast};

use super::call::Call;
use super::gids;
use super::queue_pairs::Qp;
use super::table::Kind;

fn queue_pair<'a>(call: &'a mut Call<'_, '_, '_>, handle: u32) -> Result<&'a mut Qp, Errno> {
    let number = call.lookup(Kind::Qp, handle.into())?.id;
    call.state.qps.get_mut(&number).ok_or(Errno::EINVAL)
}

/// Joining a group again changes nothing.
pub(super) fn attach(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: AttachMcast = call.request()?;
    let qp = queue_pair(call, request.qp_handle)?;
    let group = (request.gid, request.mlid);
    if qp.groups.contains(&group) {
        return Ok(());
    }
    if !gids::is_multicast(&request.gid) || qp.kind != qp_type::UD {
        return Err(Errno::EINVAL);
    }
    qp.groups.push(group);
    Ok(())
}

pub(super) fn detach(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: DetachMcast = call.request()?;
    let qp = queue_pair(call, request.qp_handle)?;
    let before = qp.groups.len();
    qp.groups.retain(|group| *group != (request.gid, request.mlid));
    if qp.groups.len() < before { Ok(()) } else { Err(Errno::EINVAL) }
}
