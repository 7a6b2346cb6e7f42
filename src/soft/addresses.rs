//! Address handles.
//!
//! Source: `ib_uverbs_create_ah`, uverbs_cmd.c; `rdma_create_user_ah`, verbs.c; `rxe_create_ah`, rxe_verbs.c;
//! `rxe_init_av`, rxe_av.c; Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::ioctl::UHW_OUT;
use uverbs_abi::rxe;
use uverbs_abi::write::{AhAttr, CreateAh, CreateAhResp, DestroyAh};
use zerocopy::IntoBytes;

use super::PORTS;
use super::call::Call;
use super::gids::{self, Route};
use super::profile::Profile;
use super::table::Kind;

/// Maximum number of address handles (`RXE_MAX_AH`, rxe_param.h, Linux 6.1).
pub(super) const MAX_AH: u32 = (1 << 15) - 1;

#[derive(Debug)]
pub(super) struct AddressHandle {
    pub(super) pd: u32,
    pub(super) route: Route,
}

/// The route of an address. On RoCE it needs a routing part.
fn route(profile: &Profile, attr: &AhAttr) -> Result<Route, Errno> {
    if attr.is_global == 0 {
        return Err(Errno::EINVAL);
    }
    let source = gids::entry(profile, attr.grh.sgid_index.into())?.gid;
    gids::resolve(&source, &attr.grh.dgid)?;
    Ok(Route {
        source,
        destination: attr.grh.dgid,
        flow_label: attr.grh.flow_label,
        traffic_class: attr.grh.traffic_class,
        hop_limit: attr.grh.hop_limit,
    })
}

/// `ib_uverbs_create_ah`. Whether the destination exists is not checked, because nothing has to be resolved here.
pub(super) fn create(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: CreateAh = call.request()?;
    let ah_handle = call.begin(Kind::Ah)?;
    if !(1..=PORTS).contains(&request.attr.port_num) {
        return Err(Errno::EINVAL);
    }
    let pd = call.lookup(Kind::Pd, request.pd_handle.into())?.id;
    let route = route(&call.state.profile, &request.attr)?;
    if call.state.ahs.len() >= MAX_AH as usize {
        return Err(Errno::ENOMEM);
    }
    let id = call.state.number(|state| &state.ahs);
    call.state.ahs.insert(id, AddressHandle { pd, route });
    if let Some(pd) = call.state.pds.get_mut(&pd) {
        pd.uses += 1;
    }
    call.made(id);
    // An old provider has no room for this number and puts the whole address into its requests.
    if let Some(found) =
        call.find(UHW_OUT).filter(|found| usize::from(found.len) >= size_of::<rxe::CreateAhResp>())
    {
        call.write(found, 0, id.as_bytes())?;
    }
    call.respond(&CreateAhResp { ah_handle })
}

/// `ib_uverbs_destroy_ah`.
pub(super) fn destroy(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: DestroyAh = call.request()?;
    call.destroy(request.ah_handle, Kind::Ah)
}
