//! Completion queues, and the additional fields of their completions.

use std::ffi::c_int;

use nix::libc;
use uverbs::abi::efa::CREATE_CQ_WITH_SGID;
use uverbs::efa::DeviceCaps;
use uverbs::raw::{DriverCq, Fields, Told};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{device, given, only};
use crate::abi::{CqInitAttrEx, Function};
use crate::answer::{Answer, EINVAL, or_null};
use crate::boundary::{Places, Pointer};
use crate::context::Context;
use crate::cq::Cq;
use crate::cq_ex;

/// `struct efadv_cq_init_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct CqInitAttr {
    comp_mask: u64,
    wc_flags: u64,
    flags: u64,
    ext_mem_dmabuf: [u64; 4],
}

/// The size of the oldest version in bytes.
const OLDEST: usize = 16;

/// `EFADV_WC_EX_WITH_SGID` and `EFADV_WC_EX_WITH_IS_UNSOLICITED`.
const WITH_SGID: u64 = 1 << 0;
const WITH_IS_UNSOLICITED: u64 = 1 << 1;

fn make(context: Option<&Context>, attr: Option<&CqInitAttrEx>, own: Pointer, len: u32) -> Answer<Box<Cq>> {
    let device = device(context)?;
    let own: CqInitAttr = given(own, len, OLDEST)?;
    if own.comp_mask != 0 {
        return Err(EINVAL);
    }
    let has_sgid = own.wc_flags & WITH_SGID != 0;
    only(own.wc_flags & !(WITH_SGID | WITH_IS_UNSOLICITED) == 0)?;
    only(!has_sgid || device.caps.contains(DeviceCaps::CQ_WITH_SGID))?;
    let has_unsolicited = own.wc_flags & WITH_IS_UNSOLICITED != 0;
    only(!has_unsolicited || device.caps.contains(DeviceCaps::UNSOLICITED_WRITE_RECEIVE))?;
    // Memory of a dma-buf.
    only(own.flags == 0)?;
    let flags = if has_sgid { CREATE_CQ_WITH_SGID } else { 0 };
    cq_ex::create(context, attr, DriverCq { flags, ..DriverCq::default() })
}

pub(crate) extern "C" fn create_cq(
    context: Option<&Context>,
    attr: Option<&CqInitAttrEx>,
    own: Pointer,
    len: u32,
) -> Option<Box<Cq>> {
    or_null(make(context, attr, own, len))
}

/// `struct efadv_cq`, and its queue.
#[repr(C)]
pub(crate) struct CqPart {
    comp_mask: u64,
    wc_read_sgid: Function,
    wc_is_unsolicited: Function,
    cq: Pointer,
}

impl CqPart {
    /// The part of the queue at this address.
    pub(crate) fn new(cq: Pointer) -> Self {
        let (wc_read_sgid, wc_is_unsolicited) = (read_sgid as Function, is_unsolicited as Function);
        Self { comp_mask: 0, wc_read_sgid, wc_is_unsolicited, cq }
    }

    /// Reads the current completion of a poll.
    fn with<R>(&self, how: impl FnOnce(&Told) -> R) -> Option<R> {
        self.cq.get::<Cq>().map(|cq| cq.told.with(|told| how(told)))
    }
}

pub(crate) extern "C" fn cq_from_ibv_cq_ex(cq: Option<&Cq>) -> Pointer {
    cq.map_or(Pointer::NULL, |cq| Pointer::to(&cq.own))
}

/// The number that a completion has for a sender without an address handle. Only the GIDs of such senders are reported.
const UNKNOWN: u16 = 0xffff;

extern "C" fn read_sgid(part: &CqPart, mut sgid: Places<'_, u8>) -> c_int {
    let sender = part.with(|told| (told.source_lid() == UNKNOWN).then_some(told.sender())).flatten();
    match sender.and_then(|sender| sgid.write_prefix(&sender, sender.len())) {
        Some(()) => 0,
        None => -libc::ENOENT,
    }
}

extern "C" fn is_unsolicited(part: &CqPart) -> bool {
    part.with(|told| uverbs::efa::is_unsolicited_wc(&told.wc())) == Some(true)
}
