//! Memory regions.

use nix::errno::Errno;
use uverbs_abi::ids::mr::query::{HANDLE, RESP_IOVA, RESP_LENGTH, RESP_LKEY, RESP_RKEY};
use uverbs_abi::rxe::Sge;
use uverbs_abi::types::{AccessFlags, wc_status};
use uverbs_abi::write::{RegMr, RegMrResp, ReregMr, ReregMrResp};

use super::call::Call;
use super::memory::Memory;
use super::profile::Profile;
use super::rxe;
use super::state::State;
use super::table::Kind;
use crate::kernel::mapping::Mapping;

#[derive(Debug)]
pub(super) struct MemoryRegion {
    pub(super) pd: u32,
    /// Local and remote key are the same, as on mlx5.
    pub(super) key: u32,
    /// The remote key, if it differs; zero if there is none.
    pub(super) remote: u32,
    /// Address of the first byte in requests.
    pub(super) iova: u64,
    pub(super) length: u64,
    pub(super) access: AccessFlags,
    pub(super) memory: Memory,
}

/// `IB_ACCESS_SUPPORTED`, Linux 6.1.
fn supported() -> AccessFlags {
    AccessFlags::from_bits_retain((AccessFlags::HUGETLB.bits() << 1) - 1) | AccessFlags::OPTIONAL_RANGE
}

/// `ib_check_mr_access`, ib_verbs.h, Linux 6.1, for a device without on-demand paging.
fn check_access(profile: &Profile, access: AccessFlags) -> Result<(), Errno> {
    let remote = access.intersects(AccessFlags::REMOTE_ATOMIC | AccessFlags::REMOTE_WRITE);
    if (remote && !access.contains(AccessFlags::LOCAL_WRITE)) || !supported().contains(access) {
        return Err(Errno::EINVAL);
    }
    if access.contains(AccessFlags::ON_DEMAND) { Err(profile.no_paging()) } else { Ok(()) }
}

/// `ib_uverbs_reg_mr`, then the checks of `ib_umem_get`.
pub(super) fn register(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: RegMr = call.request()?;
    if request.start % 4096 != request.hca_va % 4096 {
        return Err(Errno::EINVAL);
    }
    let mr_handle = call.begin(Kind::Mr)?;
    let access = AccessFlags::from_bits_retain(request.access_flags);
    check_access(&call.state.profile, access)?;
    let pd = call.lookup(Kind::Pd, request.pd_handle.into())?.id;
    if !call.state.profile.knows_access(access) {
        return Err(Errno::EOPNOTSUPP);
    }

    let (iova, length) = (request.hca_va, request.length);
    let memory = pin(call, request.start, length, iova)?;
    if call.state.mrs.len() >= call.state.profile.max_mr as usize {
        return Err(Errno::ENOMEM);
    }
    let (id, key) = call.state.new_key();
    let remote = call.state.profile.remote_key(key, access);
    call.state.mrs.insert(id, MemoryRegion { pd, key, remote, iova, length, access, memory });
    if let Some(pd) = call.state.pds.get_mut(&pd) {
        pd.uses += 1;
    }
    call.made(id);
    call.respond(&RegMrResp { mr_handle, lkey: key, rkey: remote })
}

impl Call<'_, '_, '_> {
    /// The memory of the process that the device can find by its address.
    pub(super) fn blocks(&self) -> &[Mapping] {
        let own = self.state.files.get(&self.file).and_then(|file| file.only_memory.as_deref());
        own.unwrap_or_else(|| self.command.registered().map_or(&[], std::slice::from_ref))
    }
}

/// The memory at addresses of the process, for which the device uses other addresses.
fn pin(call: &Call<'_, '_, '_>, start: u64, length: u64, iova: u64) -> Result<Memory, Errno> {
    let memory = Memory::register(call.blocks(), start, length)?;
    if iova.checked_add(length).is_some() { Ok(memory) } else { Err(Errno::EINVAL) }
}

/// Bits of [`ReregMr::flags`].
const TRANSLATION: u32 = 1 << 0;
const DOMAIN: u32 = 1 << 1;
const ACCESS: u32 = 1 << 2;

/// `ib_uverbs_rereg_mr`, Linux 6.1, and `rxe_rereg_user_mr`, Linux 6.12. With such a profile, regions can also be moved, as on mlx5. The
/// keys do not change.
pub(super) fn reregister(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: ReregMr = call.request()?;
    let has = |flag| request.flags & flag != 0;
    if request.flags == 0 {
        return Err(Errno::EINVAL);
    }
    if request.flags & !(TRANSLATION | DOMAIN | ACCESS) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if has(TRANSLATION) && request.start % 4096 != request.hca_va % 4096 {
        return Err(Errno::EINVAL);
    }
    let id = call.lookup(Kind::Mr, request.mr_handle.into())?.id;
    let access = AccessFlags::from_bits_retain(request.access_flags);
    if has(ACCESS) {
        check_access(&call.state.profile, access)?;
    }
    let pd = if has(DOMAIN) { Some(call.lookup(Kind::Pd, request.pd_handle.into())?.id) } else { None };
    if has(TRANSLATION) && !call.state.profile.moves_regions {
        return Err(Errno::EOPNOTSUPP);
    }
    if has(ACCESS) && !rxe::is_known(access) {
        return Err(Errno::EOPNOTSUPP);
    }
    let moved =
        has(TRANSLATION).then(|| pin(call, request.start, request.length, request.hca_va)).transpose()?;
    let mr = call.state.mrs.get_mut(&id).ok_or(Errno::EINVAL)?;
    if let Some(memory) = moved {
        (mr.memory, mr.iova, mr.length) = (memory, request.hca_va, request.length);
    }
    if has(ACCESS) {
        mr.access = access;
    }
    let (lkey, rkey, old) = (mr.key, mr.remote, mr.pd);
    if let Some(pd) = pd {
        mr.pd = pd;
        if let Some(pd) = call.state.pds.get_mut(&pd) {
            pd.uses += 1;
        }
        call.state.release(old);
    }
    call.respond(&ReregMrResp { lkey, rkey })
}

/// `UVERBS_METHOD_QUERY_MR`.
pub(super) fn query(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let id = call.object(HANDLE)?.id;
    let mr = call.state.mrs.get(&id).ok_or(Errno::EINVAL)?;
    let (key, remote, length, iova) = (mr.key, mr.remote, mr.length, mr.iova);
    call.copy_to(RESP_LKEY, &key.to_ne_bytes())?;
    call.copy_to(RESP_RKEY, &remote.to_ne_bytes())?;
    call.copy_to(RESP_LENGTH, &length.to_ne_bytes())?;
    call.copy_to_optional(RESP_IOVA, &iova.to_ne_bytes())
}

impl State {
    /// The status of a request whose piece cannot be accessed: the key is invalid, or the piece is not inside its region.
    pub(super) fn unreached(&self, pd: u32, piece: &Sge) -> u32 {
        let mr = self.mrs.get(&(piece.lkey >> 8)).filter(|mr| mr.key == piece.lkey && mr.pd == pd);
        if mr.is_some() { wc_status::LOC_PROT_ERR } else { self.profile.bad_local_key() }
    }

    /// The memory that one piece of a request of this protection domain names, and the piece's offset in it. `None` if the key is wrong,
    /// if the piece is not inside the region, or if the region does not allow the access.
    pub(super) fn reach(&self, pd: u32, piece: &Sge, needed: AccessFlags) -> Option<(&Memory, usize)> {
        let mr = self.mrs.get(&(piece.lkey >> 8))?;
        let offset = mr.offset(piece.addr, piece.length.into())?;
        let allowed = mr.key == piece.lkey && mr.pd == pd && mr.access.contains(needed);
        allowed.then_some((&mr.memory, offset))
    }
}
