//! The core's checks of a CREATE_FLOW request, in the kernel's order and with its errno.
//!
//! The core checks the format of a request, not the packets that it describes: what it accepts may still be invalid for a driver, whose
//! rules are in [`super::matcher`]. Order and errno are those of `ib_uverbs_ex_create_flow` and `kern_spec_to_ib_spec`,
//! drivers/infiniband/core/uverbs_cmd.c, Linux 6.1. Later kernels differ in one place, the capability: 7.2 uses the user namespace of the
//! device.

use nix::errno::Errno;
use uverbs_abi::flow::{
    ATTR_ALL_DEFAULT, ATTR_MC_DEFAULT, CreateFlow, FLAG_ALLOW_LOOP_BACK, FLAG_DONT_TRAP, FLAG_EGRESS,
    FlowAttr, FlowEspFilter, FlowEthFilter, FlowGreFilter, FlowIpv4Filter, FlowIpv6Filter, FlowMplsFilter,
    FlowSpecActionCount, FlowSpecActionDrop, FlowSpecActionHandle, FlowSpecActionTag, FlowSpecHdr,
    FlowTcpUdpFilter, FlowTunnelFilter, MAX_SPEC_SIZE, MAX_SPECS, SPEC_ACTION_COUNT, SPEC_ACTION_DROP,
    SPEC_ACTION_HANDLE, SPEC_ACTION_TAG, SPEC_ESP, SPEC_ETH, SPEC_GRE, SPEC_INNER, SPEC_IPV4, SPEC_IPV6,
    SPEC_MPLS, SPEC_TCP, SPEC_UDP, SPEC_VXLAN_TUNNEL,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Size of a filter in the kernel: everything except the byte that pads an IPv6 filter (`struct ib_flow_ipv6_filter` ends at its
/// `real_sz`, offset 39).
const IPV6_FILTER: usize = 39;

/// The caller's rights, and the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// The caller has CAP_NET_RAW.
    pub(crate) net_raw: bool,
    /// Number of ports of the device, which are numbered from 1.
    pub(crate) ports: u32,
}

/// The objects that a spec may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// A flow action, by ACTION_HANDLE.
    FlowAction,
    /// A counters object, by ACTION_COUNT.
    Counters,
}

/// A filter of full size: fields that a short one leaves out are zero, and therefore not matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter<T> {
    /// Matches the headers inside a tunnel.
    pub(crate) inner: bool,
    pub(crate) val: T,
    pub(crate) mask: T,
}

/// One spec that the core has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    Eth(Filter<FlowEthFilter>),
    Ipv4(Filter<FlowIpv4Filter>),
    Ipv6(Filter<FlowIpv6Filter>),
    Esp(Filter<FlowEspFilter>),
    Tcp(Filter<FlowTcpUdpFilter>),
    Udp(Filter<FlowTcpUdpFilter>),
    Vxlan(Filter<FlowTunnelFilter>),
    Gre(Filter<FlowGreFilter>),
    Mpls(Filter<FlowMplsFilter>),
    Tag(u32),
    Drop,
    Handle(u32),
    Count(u32),
}

/// The specs of one request, in order, without heap memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Specs {
    list: [Option<Spec>; MAX_SPECS],
}

impl Specs {
    /// The specs, in the order of the request.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Spec> + Clone {
        self.list.iter().flatten()
    }

    /// The handles of counters, once for each spec that names one: each has a use of the object.
    #[cfg(test)]
    pub(crate) fn counters(&self) -> impl Iterator<Item = u32> + Clone {
        self.iter().filter_map(|spec| match spec {
            Spec::Count(handle) => Some(*handle),
            _ => None,
        })
    }
}

/// Checks the fixed part of CREATE_FLOW and returns it with the bytes of its specs.
///
/// These are all checks before the queue pair is looked up. The caller must have a context.
pub(crate) fn header(body: &[u8], caller: Caller) -> Result<(CreateFlow, &[u8]), Errno> {
    let (request, rest) = CreateFlow::read_from_prefix(body).map_err(|_| Errno::ENOSPC)?;
    let attr = request.flow_attr;
    if request.comp_mask != 0 {
        return Err(Errno::EINVAL);
    }
    if !caller.net_raw {
        return Err(Errno::EPERM);
    }
    // Bit 0 is accepted here; mlx5 refuses it later.
    let flags = FLAG_ALLOW_LOOP_BACK | FLAG_DONT_TRAP | FLAG_EGRESS;
    let leftovers = matches!(attr.type_, ATTR_ALL_DEFAULT | ATTR_MC_DEFAULT);
    if attr.flags & !flags != 0 || (attr.flags & FLAG_DONT_TRAP != 0 && leftovers) {
        return Err(Errno::EINVAL);
    }
    let (size, number) = (usize::from(attr.size), usize::from(attr.num_of_specs));
    if number > MAX_SPECS || size > number * MAX_SPEC_SIZE || attr.reserved != [0; 2] {
        return Err(Errno::EINVAL);
    }
    let (specs, tail) = rest.split_at_checked(size).ok_or(Errno::ENOSPC)?;
    if tail.iter().any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    if attr.port == 0 || u32::from(attr.port) > caller.ports {
        return Err(Errno::EINVAL);
    }
    Ok((request, specs))
}

/// Checks and normalises the specs of a request whose header was accepted and whose queue pair was found.
///
/// `lookup` is called once for each spec that names an object, in order, so that it can take a use of that object each time. After an
/// error the uses that it granted must be released, as `ib_uverbs_flow_resources_free` does.
pub(crate) fn specs(
    attr: &FlowAttr,
    mut bytes: &[u8],
    lookup: &mut impl FnMut(Object, u32) -> Result<(), Errno>,
) -> Result<Specs, Errno> {
    let mut specs = Specs::default();
    let number = usize::from(attr.num_of_specs);
    let mut found = 0;
    for slot in specs.list.iter_mut().take(number) {
        let Ok((head, _)) = FlowSpecHdr::read_from_prefix(bytes) else {
            break;
        };
        let Some((whole, rest)) = bytes.split_at_checked(usize::from(head.size)) else {
            break;
        };
        if head.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        *slot = Some(if head.type_ >= SPEC_ACTION_TAG {
            action(head, whole, lookup)?
        } else {
            filter(head, whole)?
        });
        bytes = rest;
        found += 1;
    }
    if found != number || !bytes.is_empty() {
        return Err(Errno::EINVAL);
    }
    Ok(specs)
}

/// An action spec: it must have its exact size (`kern_spec_to_ib_spec_action`).
fn action(
    head: FlowSpecHdr,
    whole: &[u8],
    lookup: &mut impl FnMut(Object, u32) -> Result<(), Errno>,
) -> Result<Spec, Errno> {
    const WRONG_SIZE: Errno = Errno::EINVAL;
    Ok(match head.type_ {
        SPEC_ACTION_TAG => {
            let spec = FlowSpecActionTag::read_from_bytes(whole).map_err(|_| WRONG_SIZE)?;
            Spec::Tag(spec.tag_id)
        }
        SPEC_ACTION_DROP => {
            FlowSpecActionDrop::read_from_bytes(whole).map_err(|_| WRONG_SIZE)?;
            Spec::Drop
        }
        // The only action whose size is a matter of support: even size 0 gets this errno.
        SPEC_ACTION_HANDLE => {
            let spec = FlowSpecActionHandle::read_from_bytes(whole).map_err(|_| Errno::EOPNOTSUPP)?;
            lookup(Object::FlowAction, spec.handle)?;
            Spec::Handle(spec.handle)
        }
        SPEC_ACTION_COUNT => {
            let spec = FlowSpecActionCount::read_from_bytes(whole).map_err(|_| WRONG_SIZE)?;
            lookup(Object::Counters, spec.handle)?;
            Spec::Count(spec.handle)
        }
        _ => return Err(Errno::EINVAL),
    })
}

/// A filter spec (`ib_uverbs_kern_spec_to_ib_spec_filter`).
fn filter(head: FlowSpecHdr, whole: &[u8]) -> Result<Spec, Errno> {
    let inner = head.type_ & SPEC_INNER != 0;
    Ok(match head.type_ & !SPEC_INNER {
        SPEC_ETH => Spec::Eth(halves(whole, inner, size_of::<FlowEthFilter>())?),
        SPEC_IPV4 => Spec::Ipv4(halves(whole, inner, size_of::<FlowIpv4Filter>())?),
        SPEC_IPV6 => {
            let spec: Filter<FlowIpv6Filter> = halves(whole, inner, IPV6_FILTER)?;
            fits(spec.val.flow_label.get() | spec.mask.flow_label.get(), 20)?;
            Spec::Ipv6(spec)
        }
        SPEC_ESP => Spec::Esp(halves(whole, inner, size_of::<FlowEspFilter>())?),
        SPEC_TCP => Spec::Tcp(halves(whole, inner, size_of::<FlowTcpUdpFilter>())?),
        SPEC_UDP => Spec::Udp(halves(whole, inner, size_of::<FlowTcpUdpFilter>())?),
        SPEC_VXLAN_TUNNEL if !inner => {
            let spec: Filter<FlowTunnelFilter> = halves(whole, inner, size_of::<FlowTunnelFilter>())?;
            fits(spec.val.tunnel_id.get() | spec.mask.tunnel_id.get(), 24)?;
            Spec::Vxlan(spec)
        }
        SPEC_GRE => Spec::Gre(halves(whole, inner, size_of::<FlowGreFilter>())?),
        SPEC_MPLS => Spec::Mpls(halves(whole, inner, size_of::<FlowMplsFilter>())?),
        _ => return Err(Errno::EINVAL),
    })
}

/// Checks that a value fits into a field with fewer bits than its integer.
fn fits(value: u32, bits: u32) -> Result<(), Errno> {
    if value >> bits == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Splits what follows the head into value and mask, and extends both to the full size.
///
/// Half of an odd size is rounded down, and the odd byte is skipped, as in the kernel. A filter longer than the kernel's is accepted if
/// its additional mask bytes are zero (`spec_filter_size`); its additional values are not read.
fn halves<T: FromZeros + FromBytes + IntoBytes>(
    whole: &[u8],
    inner: bool,
    known: usize,
) -> Result<Filter<T>, Errno> {
    let body = whole.get(size_of::<FlowSpecHdr>()..).ok_or(Errno::EINVAL)?;
    let length = body.len() / 2;
    if length == 0 || length % 4 != 0 {
        return Err(Errno::EINVAL);
    }
    let (values, rest) = body.split_at(length);
    let masks = rest.get(..length).ok_or(Errno::EINVAL)?;
    let (mut val, mut mask) = (T::new_zeroed(), T::new_zeroed());
    for (from, to) in [(values, &mut val), (masks, &mut mask)] {
        for (from, to) in from.iter().take(known).zip(to.as_mut_bytes()) {
            *to = *from;
        }
    }
    if masks.iter().skip(known).any(|byte| *byte != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(Filter { inner, val, mask })
}

#[cfg(test)]
mod tests;
