//! Memory windows, of types 1 and 2B.
//!
//! Checks and statuses are those of rxe_mw.c and rxe_resp.c, Linux 6.1. In four points this device follows the InfiniBand specification
//! and cards, and not rxe: a peer can access only the window (rxe: the whole region); window and region belong to the same protection
//! domain; only the queue pair that bound a window of type 2 can invalidate it; and a window of type 2 that is not bound cannot be
//! invalidated (rxe dereferences a null pointer). A profile that behaves like rxe changes the first and the third.

use nix::errno::Errno;
use uverbs_abi::rxe::{MwWr, SendWqe};
use uverbs_abi::types::{AccessFlags, qp_type, wc_status, wr_opcode};
use uverbs_abi::write::{AllocMw, AllocMwResp, DeallocMw};
use zerocopy::FromBytes;

use super::call::Call;
use super::memory::Memory;
use super::memory_regions::MemoryRegion;
use super::state::State;
use super::table::Kind;

const TYPE_1: u8 = 1;
const TYPE_2: u8 = 2;

#[derive(Debug)]
pub(super) struct Window {
    pub(super) pd: u32,
    kind: u8,
    key: u32,
    bound: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    region: u32,
    /// The queue pair that bound a window of type 2.
    qp: Option<u32>,
    addr: u64,
    length: u64,
    access: AccessFlags,
}

/// `ib_uverbs_alloc_mw`.
pub(super) fn alloc(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: AllocMw = call.request()?;
    let mw_handle = call.begin(Kind::Mw)?;
    let pd = call.lookup(Kind::Pd, request.pd_handle.into())?.id;
    if ![TYPE_1, TYPE_2].contains(&request.mw_type) {
        return Err(Errno::EINVAL);
    }
    if call.state.mws.len() >= call.state.profile.max_mw as usize {
        return Err(Errno::ENOMEM);
    }
    let (id, rkey) = call.state.new_key();
    call.state.mws.insert(id, Window { pd, kind: request.mw_type, key: rkey, bound: None });
    if let Some(pd) = call.state.pds.get_mut(&pd) {
        pd.uses += 1;
    }
    call.made(id);
    call.respond(&AllocMwResp { mw_handle, rkey })
}

pub(super) fn dealloc(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: DeallocMw = call.request()?;
    call.destroy(request.mw_handle, Kind::Mw)
}

/// Whether a queue pair of this type executes the request locally (`WR_LOCAL_OP_MASK`, rxe_opcode.c).
pub(super) fn is_local(kind: u8, opcode: u32) -> bool {
    match opcode {
        wr_opcode::BIND_MW => [qp_type::RC, qp_type::UC].contains(&kind),
        wr_opcode::LOCAL_INV => kind == qp_type::RC,
        _ => false,
    }
}

impl State {
    /// A number that neither a region nor a window has, and its key.
    pub(super) fn new_key(&mut self) -> (u32, u32) {
        loop {
            let id = self.number(|state| &state.mrs);
            if !self.mws.contains_key(&id) {
                // The low byte differs from one to the next, so that an old key does not become valid again soon.
                return (id, id << 8 | (id.wrapping_mul(167) & 0xff));
            }
        }
    }

    /// `rxe_do_local_ops`: the status with which a local request ends.
    pub(super) fn local_operation(&mut self, number: u32, wqe: &SendWqe) -> u32 {
        if wqe.wr.opcode == wr_opcode::LOCAL_INV {
            // Only regions that were created for it could be invalidated, and there are none.
            let done = self.invalidate(number, wqe.wr.ex);
            return if done { wc_status::SUCCESS } else { wc_status::LOC_QP_OP_ERR };
        }
        let bound = MwWr::read_from_prefix(&wqe.wr.wr).ok().and_then(|(wr, _)| self.bind(number, &wr));
        if bound.is_some() { wc_status::SUCCESS } else { wc_status::MW_BIND_ERR }
    }

    /// `rxe_bind_mw`; `None` if the bind is refused.
    fn bind(&mut self, number: u32, wr: &MwWr) -> Option<()> {
        let qp = self.qps.get(&number)?;
        let window = self.mws.get(&(wr.mw_rkey >> 8)).filter(|window| window.key == wr.mw_rkey)?;
        let access = AccessFlags::from_bits_retain(wr.access);
        let allowed = match window.kind {
            TYPE_1 => !access.contains(AccessFlags::ZERO_BASED),
            _ => window.bound.is_none() && qp.pd == window.pd && wr.length > 0,
        };
        let bound = if wr.length == 0 { None } else { Some(self.bound(number, window, wr, access)?) };
        if !allowed {
            return None;
        }
        let window = self.mws.get_mut(&(wr.mw_rkey >> 8))?;
        window.key = (window.key & !0xff) | (wr.rkey & 0xff);
        window.bound = bound;
        Some(())
    }

    /// The checks of `rxe_check_bind_mw` for the region.
    fn bound(&self, number: u32, window: &Window, wr: &MwWr, access: AccessFlags) -> Option<Bound> {
        let id = wr.mr_lkey >> 8;
        let region = self.mrs.get(&id).filter(|region| region.key == wr.mr_lkey)?;
        let writes = access.intersects(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC);
        // The local right means nothing here. rxe and mlx5 accept it, and pyverbs' tests bind with it.
        let known = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_ATOMIC
            | AccessFlags::ZERO_BASED;
        let allowed = region.pd == window.pd
            && known.contains(access)
            && !region.access.contains(AccessFlags::ZERO_BASED)
            && region.access.contains(AccessFlags::MW_BIND)
            && (!writes || region.access.contains(AccessFlags::LOCAL_WRITE))
            && region.offset(wr.addr, wr.length).is_some();
        let qp = (window.kind == TYPE_2).then_some(number);
        allowed.then_some(Bound { region: id, qp, addr: wr.addr, length: wr.length, access })
    }

    /// Whether a queue pair can invalidate this key: that of a window of type 2 which it has bound; on rxe, of any such window.
    pub(super) fn can_invalidate(&self, number: u32, key: u32) -> bool {
        let window = self.mws.get(&(key >> 8)).filter(|window| window.key == key);
        let bound = window.and_then(|window| window.bound.as_ref());
        bound.and_then(|bound| bound.qp).is_some_and(|qp| qp == number || self.profile.takes_any_window())
    }

    /// `rxe_invalidate_mw`; false if it is refused.
    pub(super) fn invalidate(&mut self, number: u32, key: u32) -> bool {
        let done = self.can_invalidate(number, key);
        if let Some(window) = self.mws.get_mut(&(key >> 8)).filter(|_| done) {
            window.bound = None;
        }
        done
    }

    /// The memory that a peer of this queue pair accesses in a protection domain by a window's key, and the position in it
    /// (`rxe_lookup_mw`). `None` if the key is wrong, if the range is not inside the window, or if the window does not allow the access.
    pub(super) fn reach_window(
        &self,
        (number, pd): (u32, u32),
        (addr, length): (u64, u64),
        key: u32,
        needed: AccessFlags,
    ) -> Option<(&Memory, usize)> {
        let window = self.mws.get(&(key >> 8)).filter(|window| window.key == key && window.pd == pd)?;
        let bound = window.bound.as_ref()?;
        let is_zero_based = bound.access.contains(AccessFlags::ZERO_BASED);
        let addr = if is_zero_based { addr.checked_add(bound.addr)? } else { addr };
        let offset = addr.checked_sub(bound.addr);
        let end = offset.and_then(|offset| offset.checked_add(length));
        let inside = self.profile.reaches_behind_windows() || end.is_some_and(|end| end <= bound.length);
        let allowed = bound.qp.is_none_or(|of| of == number) && bound.access.contains(needed);
        if !inside || !allowed {
            return None;
        }
        let region = self.mrs.get(&bound.region)?;
        Some((&region.memory, region.offset(addr, length)?))
    }

    /// `rxe_dereg_mr`: a region cannot be destroyed while a window is bound to it.
    pub(super) fn has_window(&self, region: u32) -> bool {
        self.mws.values().filter_map(|window| window.bound.as_ref()).any(|bound| bound.region == region)
    }

    /// Ends the binds of a queue pair that is destroyed.
    pub(super) fn unbind_all(&mut self, number: u32) {
        for window in self.mws.values_mut() {
            window.bound.take_if(|bound| bound.qp == Some(number));
        }
    }
}

impl MemoryRegion {
    /// The offset of a range of addresses in the region; `None` if it is not inside.
    pub(super) fn offset(&self, addr: u64, length: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.iova)?;
        let inside = offset.checked_add(length)? <= self.length;
        usize::try_from(offset).ok().filter(|_| inside)
    }
}
