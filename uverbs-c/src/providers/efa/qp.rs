//! Queue pairs of reliable datagrams.

use uverbs::abi::efa::{CREATE_QP_WITH_UNSOLICITED_WRITE_RECV, QP_DRIVER_TYPE_SRD};
use uverbs::abi::types::qp_type;
use uverbs::efa::{Device, DeviceCaps};
use uverbs::raw::DriverQp;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{device, given, only};
use crate::abi::{Function, QpInitAttr, QpInitAttrEx};
use crate::answer::{Answer, EINVAL, or_null};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::pd::Pd;
use crate::qp::{HAS_PD, Own, Qp, make_own, make_plain};
use crate::qp_ex::{READ, SEND, SEND_IMM, WRITE, write_part};

/// `struct efadv_qp_init_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct OwnInitAttr {
    comp_mask: u64,
    driver_qp_type: u32,
    flags: u16,
    sl: u8,
    reserved: u8,
    wr_flags: u64,
}

/// The size of the oldest version in bytes.
const OLDEST: usize = 12;

/// `EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV` and `EFADV_QP_FLAGS_INLINE_WRITE`.
const UNSOLICITED_WRITE_RECV: u16 = 1 << 0;
const INLINE_WRITE: u16 = 1 << 1;

/// `EFADV_WR_EX_WITH_PROCESSING_HINTS`.
const WITH_HINTS: u64 = 1 << 0;

/// The driver's properties of a queue pair. Refuses those that the device does not support.
fn own(device: &Device, attr: &OwnInitAttr) -> Answer<Own> {
    let has = |cap: DeviceCaps| device.caps.contains(cap);
    let reads = if has(DeviceCaps::RDMA_READ) { READ } else { 0 };
    let writes = if has(DeviceCaps::RDMA_WRITE) { WRITE } else { 0 };
    let inline_writes = attr.flags & INLINE_WRITE != 0;
    let is_unsolicited = attr.flags & UNSOLICITED_WRITE_RECV != 0;
    only(attr.driver_qp_type == QP_DRIVER_TYPE_SRD)?;
    only(attr.flags & !(INLINE_WRITE | UNSOLICITED_WRITE_RECV) == 0)?;
    only(!inline_writes || has(DeviceCaps::RDMA_WRITE))?;
    only(!is_unsolicited || has(DeviceCaps::UNSOLICITED_WRITE_RECEIVE))?;
    only(attr.wr_flags & !WITH_HINTS == 0)?;
    let driver = DriverQp {
        flags: if is_unsolicited { CREATE_QP_WITH_UNSOLICITED_WRITE_RECV } else { 0 },
        service_level: attr.sl,
        inline_writes: Some(inline_writes),
    };
    Ok(Own { driver, operations: Some(SEND | SEND_IMM | reads | writes) })
}

fn make(
    context: Option<&Context>,
    init: Option<&mut QpInitAttrEx>,
    attr: Pointer,
    len: u32,
) -> Answer<Box<Qp>> {
    let device = device(context)?;
    let init = init.filter(|init| init.qp_type == u32::from(qp_type::DRIVER)).ok_or(EINVAL)?;
    let attr: OwnInitAttr = given(attr, len, OLDEST)?;
    // The capabilities that were checked are those of this context.
    let is_other = |pd: &Pd| Some(pd.c.context.word()) != context.map(|context| Pointer::to(context).word());
    let is_foreign = init.comp_mask & HAS_PD != 0 && init.pd.get().is_some_and(is_other);
    if attr.comp_mask != 0 || attr.reserved != 0 || is_foreign {
        return Err(EINVAL);
    }
    make_own(context, init, Some(&own(&device, &attr)?))
}

pub(crate) extern "C" fn create_qp_ex(
    context: Option<&Context>,
    init: Option<&mut QpInitAttrEx>,
    attr: Pointer,
    len: u32,
) -> Option<Box<Qp>> {
    or_null(make(context, init, attr, len))
}

fn make_driver(pd: Option<&Pd>, init: Option<&mut QpInitAttr>, type_: u32) -> Answer<Box<Qp>> {
    let device = device(pd.ok_or(EINVAL)?.c.context.get())?;
    let init = init.filter(|init| init.qp_type == u32::from(qp_type::DRIVER)).ok_or(EINVAL)?;
    let attr = OwnInitAttr { driver_qp_type: type_, ..OwnInitAttr::new_zeroed() };
    make_plain(pd, init, Some(&own(&device, &attr)?))
}

pub(crate) extern "C" fn create_driver_qp(
    pd: Option<&Pd>,
    init: Option<&mut QpInitAttr>,
    type_: u32,
) -> Option<Box<Qp>> {
    or_null(make_driver(pd, init, type_))
}

/// `struct efadv_qp`, and its queue pair.
#[repr(C)]
pub(crate) struct QpPart {
    comp_mask: u64,
    wr_set_processing_hints: Function,
    qp: Pointer,
}

impl QpPart {
    /// The part of the queue pair at this address.
    pub(crate) fn new(qp: Pointer) -> Self {
        Self { comp_mask: 0, wr_set_processing_hints: set_hints as Function, qp }
    }
}

pub(crate) extern "C" fn qp_from_ibv_qp_ex(qp: Option<&Qp>) -> Pointer {
    qp.map_or(Pointer::NULL, |qp| Pointer::to(&qp.own))
}

/// `EFADV_WR_PROCESSING_HINT_BURST_PPS_SENSITIVE`, the only hint that libefa passes on. The device uses the same number.
const BURST: u32 = 1 << 0;

extern "C" fn set_hints(part: &QpPart, hints: u32) {
    if let Some(qp) = part.qp.get::<Qp>() {
        write_part(qp, |queue| Ok(queue.set_hints((hints & BURST) as u8)?));
    }
}
