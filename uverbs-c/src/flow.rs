//! Flows: rules as the header lays them out, translated into the kernel's layout.

use std::ffi::c_int;

use uverbs::abi::flow::{
    self, FlowAttr as KernelAttr, FlowSpecActionCount, FlowSpecActionDrop, FlowSpecActionTag, FlowSpecHdr,
    MAX_SPECS,
};
use uverbs::{Counters as LibraryCounters, Error, Flow as Library, FlowRule};
use zerocopy::{FromZeros, IntoBytes};

use crate::abi::{self, FlowAttr};
use crate::answer::{Answer, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::Pointer;
use crate::counters::Counters;
use crate::owned::{Owned, end};
use crate::providers::MatchedFlow;
use crate::qp::Qp;

#[repr(C)]
pub(crate) struct Flow {
    pub(crate) c: abi::Flow,
    pub(crate) flow: Owned<Rule>,
}

/// A rule in force: of libibverbs, or of a matcher.
pub(crate) enum Rule {
    Verbs(Library),
    Matched(MatchedFlow),
}

impl Rule {
    fn destroy(self) -> Result<(), (Self, Error)> {
        match self {
            Self::Verbs(flow) => flow.destroy().map_err(|(flow, error)| (Self::Verbs(flow), error)),
            Self::Matched(flow) => flow.destroy().map_err(|(flow, error)| (Self::Matched(flow), error)),
        }
    }
}

/// The layout of a filter: its type in C and in the kernel, the bytes that are copied and those of the kernel's filter, and where value and
/// mask begin in C. In the kernel's layout they follow a header of eight bytes.
struct Filter {
    type_: u32,
    val: usize,
    mask: usize,
    len: usize,
    kernel_type: u32,
    kernel_len: usize,
}

/// `IBV_FLOW_SPEC_IPV4_EXT`: the kernel has only this one, as [`flow::SPEC_IPV4`].
const IPV4_EXT: u32 = 0x32;

const FILTERS: [Filter; 10] = {
    /// The length of the kernel's filter is that of its type.
    const fn filter<T>(type_: u32, [val, mask, len]: [usize; 3], kernel_type: u32) -> Filter {
        assert!(len <= size_of::<T>());
        Filter { type_, val, mask, len, kernel_type, kernel_len: size_of::<T>() }
    }
    use flow::*;
    [
        filter::<FlowEthFilter>(SPEC_ETH, [6, 22, 16], SPEC_ETH),
        filter::<FlowIpv4Filter>(SPEC_IPV4, [8, 16, 8], SPEC_IPV4),
        filter::<FlowIpv4Filter>(IPV4_EXT, [8, 20, 12], SPEC_IPV4),
        filter::<FlowIpv6Filter>(SPEC_IPV6, [8, 48, 39], SPEC_IPV6),
        filter::<FlowEspFilter>(SPEC_ESP, [8, 16, 8], SPEC_ESP),
        filter::<FlowTcpUdpFilter>(SPEC_TCP, [6, 10, 4], SPEC_TCP),
        filter::<FlowTcpUdpFilter>(SPEC_UDP, [6, 10, 4], SPEC_UDP),
        filter::<FlowTunnelFilter>(SPEC_VXLAN_TUNNEL, [8, 12, 4], SPEC_VXLAN_TUNNEL),
        filter::<FlowGreFilter>(SPEC_GRE, [8, 16, 8], SPEC_GRE),
        filter::<FlowMplsFilter>(SPEC_MPLS, [8, 12, 4], SPEC_MPLS),
    ]
};

/// A number in a spec, at an offset in bytes.
fn word<const N: usize>(spec: &[u8], at: usize) -> Answer<[u8; N]> {
    spec.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(EINVAL)
}

fn action<T>(type_: u32) -> FlowSpecHdr {
    FlowSpecHdr { type_, size: size_of::<T>() as u16, reserved: 0 }
}

/// A spec in the kernel's layout, and the counters if it counts.
fn translated(type_: u32, spec: &[u8], to: &mut Vec<u8>) -> Answer<Option<&'static Counters>> {
    match type_ {
        flow::SPEC_ACTION_TAG => {
            let tag_id = u32::from_ne_bytes(word(spec, 8)?);
            let hdr = action::<FlowSpecActionTag>(type_);
            to.extend_from_slice(FlowSpecActionTag { hdr, tag_id, reserved1: 0 }.as_bytes());
        }
        flow::SPEC_ACTION_DROP => {
            to.extend_from_slice(FlowSpecActionDrop { hdr: action::<FlowSpecActionDrop>(type_) }.as_bytes());
        }
        flow::SPEC_ACTION_COUNT => {
            let counters = Pointer::from_word(u64::from_ne_bytes(word(spec, 8)?)).get::<Counters>();
            let hdr = action::<FlowSpecActionCount>(type_);
            to.extend_from_slice(FlowSpecActionCount { hdr, handle: 0, reserved1: 0 }.as_bytes());
            return Ok(counters);
        }
        flow::SPEC_ACTION_HANDLE => return Err(EOPNOTSUPP),
        _ => {
            let inner = type_ & flow::SPEC_INNER;
            let filter = FILTERS.iter().find(|filter| filter.type_ == type_ & !flow::SPEC_INNER);
            let filter = filter.ok_or(EINVAL)?;
            let part = |at: usize| spec.get(at..at + filter.len).ok_or(EINVAL);
            let (val, mask) = (part(filter.val)?, part(filter.mask)?);
            let size = (size_of::<FlowSpecHdr>() + 2 * filter.kernel_len) as u16;
            let hdr = FlowSpecHdr { type_: filter.kernel_type | inner, size, reserved: 0 };
            to.extend_from_slice(hdr.as_bytes());
            for bytes in [val, mask] {
                let end = to.len() + filter.kernel_len;
                to.extend_from_slice(bytes);
                to.resize(end, 0);
            }
        }
    }
    Ok(None)
}

/// The end of the type and size of a spec.
const HEAD: usize = 6;

fn rule(place: Pointer) -> Answer<FlowRule> {
    let attr = place.get::<FlowAttr>().ok_or(EINVAL)?;
    if attr.comp_mask != 0 || usize::from(attr.num_of_specs) > MAX_SPECS {
        return Err(EINVAL);
    }
    let (mut specs, mut counters) = (Vec::new(), None::<(&LibraryCounters, usize)>);
    let mut at = size_of::<FlowAttr>();
    for _ in 0..attr.num_of_specs {
        let head = place.items::<u8>(at + HEAD).ok_or(EINVAL)?;
        let type_ = u32::from_ne_bytes(word(head, at)?);
        let size = usize::from(u16::from_ne_bytes(word(head, at + 4)?));
        let spec = place.items::<u8>(at + size).and_then(|bytes| bytes.get(at..)).ok_or(EINVAL)?;
        let place = specs.len();
        if let Some(counted) = translated(type_, spec, &mut specs)? {
            if counters.is_some() {
                return Err(EINVAL);
            }
            counters = Some((counted.counters.get()?, place));
        }
        at += size;
    }
    let kernel = KernelAttr {
        type_: attr.type_,
        priority: attr.priority,
        num_of_specs: attr.num_of_specs,
        port: attr.port,
        flags: attr.flags,
        ..KernelAttr::new_zeroed()
    };
    Ok(FlowRule::from_kernel(kernel, &specs, counters)?)
}

fn create(qp: Option<&Qp>, attr: Pointer) -> Answer<Box<Flow>> {
    let qp = qp.ok_or(EINVAL)?;
    let flow = qp.qp.lock()?.get()?.create_flow(&rule(attr)?)?;
    let c = abi::Flow { comp_mask: 0, context: qp.c.qp_base.context, handle: flow.handle() };
    Ok(Box::new(Flow { c, flow: Owned::new(Rule::Verbs(flow)) }))
}

pub(crate) extern "C" fn create_flow(qp: Option<&Qp>, attr: Pointer) -> Option<Box<Flow>> {
    or_null(create(qp, attr))
}

pub(crate) extern "C" fn destroy_flow(flow: Option<Box<Flow>>) -> c_int {
    returned(end(flow, |flow| flow.flow.destroy(Rule::destroy)))
}
