//! Building a rule: specs in the kernel's layout, over a fixed buffer.

mod announced;
#[cfg(feature = "raw")]
mod from_kernel;

use std::marker::PhantomData;
use std::mem::offset_of;

use nix::errno::Errno;
use uverbs_abi::flow::{
    self, CreateFlow, FlowAttr, FlowSpecActionCount, FlowSpecActionDrop, FlowSpecActionTag, FlowSpecHdr,
    MAX_SPEC_SIZE, MAX_SPECS,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use self::announced::Announced;
use super::spec::sealed::Layer;
use super::{Esp, Eth, FlowTag, Gre, InnerSpec, Ipv4, Ipv6, Mpls, Spec, Tcp, Udp, Vxlan};
use crate::counters::Counters;
use crate::kernel::error::{Error, Result, limit};

/// The type of a rule; sealed.
pub trait RuleType: sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

/// A rule that matches headers. Only such a rule may count.
#[derive(Clone, Copy, Debug)]
pub enum Normal {}

/// A rule for packets that no other rule matches.
#[derive(Clone, Copy, Debug)]
pub enum CatchAll {}

/// A rule that gets a copy of all packets.
#[derive(Clone, Copy, Debug)]
pub enum Sniffer {}

impl sealed::Sealed for Normal {}
impl sealed::Sealed for CatchAll {}
impl sealed::Sealed for Sniffer {}
impl RuleType for Normal {}
impl RuleType for CatchAll {}
impl RuleType for Sniffer {}

/// Size of the maximum number of specs of the maximum size that the kernel accepts.
const SPECS_SIZE: usize = MAX_SPECS * MAX_SPEC_SIZE;

/// A rule: which packets match, and what happens to them. [`create_flow`](crate::QueuePair::create_flow) puts it in force. Start
/// with [`FlowRule::normal`], or parse a text with [`AnyRule::parse`](crate::AnyRule::parse).
///
/// A rule that contradicts itself is refused when it is put in force, with the reason and before a command is sent.
/// [`FlowRule::check`] does the same check. Default and sniffer rules have no headers to match and cannot count: their types have
/// no methods for it.
///
/// ```
/// use std::net::Ipv4Addr;
/// use uverbs::{Eth, FlowRule, Ipv4, Udp};
///
/// let rule = FlowRule::normal(1)
///     .priority(2)
///     .eth(Eth::any().dst([2, 0, 0, 0, 0, 1]))
///     .ipv4(Ipv4::any().dst_masked(Ipv4Addr::new(10, 0, 0, 0), Ipv4Addr::new(255, 0, 0, 0)))
///     .udp(Udp::any().dst_port(4791));
/// assert!(rule.check().is_ok());
///
/// let rule = rule.ipv4(Ipv4::any());
/// assert_eq!(
///     rule.check().unwrap_err().hint(),
///     Some("the outer headers of the rule cannot be both IPv4 and IPv4"),
/// );
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_flow_attr")]
#[doc(alias = "ibv_flow_attr_type")]
#[doc(alias = "ibv_flow_flags")]
#[doc(alias = "ibv_flow_spec_type")]
pub struct FlowRule<K: RuleType = Normal> {
    attr: FlowAttr,
    specs: [u8; SPECS_SIZE],
    counters: Option<Counters>,
    /// Offset of the handle of the counters in the specs.
    handle_at: usize,
    seen: Seen,
    problem: Option<Error>,
    kind: PhantomData<K>,
}

/// The kernel's request: its fixed part, followed directly by the specs.
#[derive(IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
#[repr(C)]
pub(super) struct Request {
    head: CreateFlow,
    specs: [u8; SPECS_SIZE],
}

impl Request {
    /// The part of the request that is sent.
    pub(super) fn bytes(&self) -> &[u8] {
        let len = size_of::<CreateFlow>() + usize::from(self.head.flow_attr.size);
        &self.as_bytes()[..len.min(size_of::<Self>())]
    }
}

/// The contents of the rule so far: outer and inner headers, and actions.
#[derive(Clone, Debug, Default)]
struct Seen {
    layers: [Layers; 2],
    ether_type: [Option<u16>; 2],
    tag: bool,
    drop: bool,
    announced: Announced,
}

/// The layers at one place: at most one of each kind.
type Layers = [Option<Layer>; 6];

impl<K: RuleType> FlowRule<K> {
    fn new(type_: u32, port: u8) -> Self {
        Self {
            attr: FlowAttr { type_, port, ..FlowAttr::new_zeroed() },
            specs: [0; SPECS_SIZE],
            counters: None,
            handle_at: 0,
            seen: Seen::default(),
            problem: None,
            kind: PhantomData,
        }
    }

    /// Also applies the rule to packets sent by its own queue pair.
    ///
    /// libibverbs' header reserves this flag; mlx5 refuses it with EINVAL.
    #[must_use]
    #[doc(alias = "IBV_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK")]
    pub fn allow_loop_back(mut self) -> Self {
        self.attr.flags |= flow::FLAG_ALLOW_LOOP_BACK;
        self
    }

    /// Checks the rule for contradictions, as [`create_flow`](crate::QueuePair::create_flow) does.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) with the first contradiction; also for a VXLAN, MPLS or inner Ethernet
    /// header with only zero values, if no other header of the rule announces it, because every packet would match.
    pub fn check(&self) -> Result<()> {
        self.contradiction()?;
        let missing = self.missing().map(|(_, hint)| Error::refused("flow.create", Errno::EINVAL, hint));
        missing.map_or(Ok(()), Err)
    }

    /// The first contradiction so far.
    pub(super) fn contradiction(&self) -> Result<()> {
        self.problem.clone().map_or(Ok(()), Err)
    }

    /// The position of a spec whose header no other header announces, and what would announce it.
    pub(super) fn missing(&self) -> Option<(u8, &'static str)> {
        self.seen.announced.missing()
    }

    /// The counters into which the rule counts.
    pub fn counters(&self) -> Option<&Counters> {
        self.counters.as_ref()
    }

    /// The rule's attributes in the kernel's layout.
    pub fn attr(&self) -> &FlowAttr {
        &self.attr
    }

    /// The rule's specs in the kernel's layout, one after the other. The handle in a count action is zero until the rule is put
    /// in force.
    pub fn specs(&self) -> &[u8] {
        &self.specs[..usize::from(self.attr.size)]
    }

    /// The request for a queue pair, and for the counters if the rule counts.
    pub(super) fn request(&self, qp_handle: u32, counters: Option<u32>) -> Request {
        let head = CreateFlow { comp_mask: 0, qp_handle, flow_attr: self.attr };
        let mut request = Request { head, specs: self.specs };
        if let Some(handle) = counters {
            request.specs[self.handle_at..][..size_of::<u32>()].copy_from_slice(handle.as_bytes());
        }
        request
    }

    /// A valid rule that counts like this one, with the same priority and the flags that affect where it is placed, and matches any
    /// packet. It contains everything that the kernel checks before the headers.
    pub(super) fn without_headers(&self) -> FlowRule {
        let count = FlowSpecActionCount {
            hdr: action::<FlowSpecActionCount>(flow::SPEC_ACTION_COUNT),
            handle: 0,
            reserved1: 0,
        };
        let flags = self.attr.flags & (flow::FLAG_DONT_TRAP | flow::FLAG_EGRESS);
        let mut rule = FlowRule::<Normal>::new(flow::ATTR_NORMAL, 1).priority(self.attr.priority);
        rule.attr.flags = flags;
        rule.handle_at = offset_of!(FlowSpecActionCount, handle);
        rule.push(count.as_bytes());
        rule
    }

    /// Whether packets that match go to the queue pair.
    pub(super) fn needs_a_receiver(&self) -> bool {
        let drops = heads(self.specs()).any(|(_, head)| head.type_ == flow::SPEC_ACTION_DROP);
        !drops && self.attr.flags & flow::FLAG_EGRESS == 0
    }

    fn refuse(&mut self, hint: impl Into<std::borrow::Cow<'static, str>>) {
        self.problem.get_or_insert_with(|| Error::refused("flow.create", Errno::EINVAL, hint));
    }

    /// Appends a spec. If there are too many, the rule is refused.
    fn push(&mut self, spec: &[u8]) {
        let size = usize::from(self.attr.size);
        let room = self.specs.get_mut(size..size + spec.len());
        match room.filter(|_| usize::from(self.attr.num_of_specs) < MAX_SPECS) {
            Some(room) => {
                room.copy_from_slice(spec);
                self.attr.size += spec.len() as u16;
                self.attr.num_of_specs += 1;
            }
            None => {
                let most = format!("at most {MAX_SPECS}");
                self.refuse(limit("headers and actions of a rule", MAX_SPECS + 1, most));
            }
        }
    }
}

impl FlowRule<CatchAll> {
    /// A rule for all packets of `port` that no other rule matches. It fails with the mlx5 driver of Linux 7.2 and 7.3.
    #[doc(alias = "IBV_FLOW_ATTR_ALL_DEFAULT")]
    pub fn all_default(port: u8) -> Self {
        Self::new(flow::ATTR_ALL_DEFAULT, port)
    }

    /// A rule for multicast packets of `port` that no other rule matches.
    ///
    /// It is broken in the mlx5 driver of Linux 7.2 and 7.3 (`create_leftovers_rule`, fs.c): the driver refuses it, or creates a
    /// rule for unicast packets, as Debian's kernels for arm64 do. A normal rule of priority 15 whose Ethernet header has
    /// `dst_masked([1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0])` is right on every kernel.
    #[doc(alias = "IBV_FLOW_ATTR_MC_DEFAULT")]
    pub fn mc_default(port: u8) -> Self {
        Self::new(flow::ATTR_MC_DEFAULT, port)
    }
}

impl FlowRule<Sniffer> {
    /// A rule that gets a copy of all packets of `port`, received and sent.
    #[doc(alias = "IBV_FLOW_ATTR_SNIFFER")]
    pub fn sniffer(port: u8) -> Self {
        Self::new(flow::ATTR_SNIFFER, port)
    }
}

impl FlowRule<Normal> {
    /// A rule for packets of `port` that match all headers of the rule; without headers, all packets.
    #[doc(alias = "IBV_FLOW_ATTR_NORMAL")]
    pub fn normal(port: u8) -> Self {
        Self::new(flow::ATTR_NORMAL, port)
    }

    /// The priority; default 0. Rules with a lower number are tried first. mlx5 and the soft device support 0 to 15.
    #[must_use]
    pub fn priority(mut self, priority: u16) -> Self {
        self.attr.priority = priority;
        self
    }

    /// A matching packet is also passed on to rules of the same priority without this flag, and to rules with higher numbers.
    #[doc(alias = "IBV_FLOW_ATTR_FLAGS_DONT_TRAP")]
    #[must_use]
    pub fn dont_trap(mut self) -> Self {
        self.attr.flags |= flow::FLAG_DONT_TRAP;
        self
    }

    /// Matches sent packets, not received packets.
    #[doc(alias = "IBV_FLOW_ATTR_FLAGS_EGRESS")]
    #[must_use]
    pub fn egress(mut self) -> Self {
        self.attr.flags |= flow::FLAG_EGRESS;
        self
    }

    /// Matches an Ethernet header.
    #[must_use]
    pub fn eth(self, eth: Eth) -> Self {
        self.outer(eth)
    }

    /// Matches an IPv4 header.
    #[must_use]
    pub fn ipv4(self, ipv4: Ipv4) -> Self {
        self.outer(ipv4)
    }

    /// Matches an IPv6 header.
    #[must_use]
    pub fn ipv6(self, ipv6: Ipv6) -> Self {
        self.outer(ipv6)
    }

    /// Matches a TCP header.
    #[must_use]
    pub fn tcp(self, tcp: Tcp) -> Self {
        self.outer(tcp)
    }

    /// Matches a UDP header.
    #[must_use]
    pub fn udp(self, udp: Udp) -> Self {
        self.outer(udp)
    }

    /// Matches an ESP header.
    #[must_use]
    pub fn esp(self, esp: Esp) -> Self {
        self.outer(esp)
    }

    /// Matches a GRE header.
    #[must_use]
    pub fn gre(self, gre: Gre) -> Self {
        self.outer(gre)
    }

    /// Matches a VXLAN header. Without a network identifier, or with zero, the rule must also contain a UDP destination port: see
    /// [`FlowRule::check`].
    #[must_use]
    pub fn vxlan(self, vxlan: Vxlan) -> Self {
        self.outer(vxlan)
    }

    /// Matches the first MPLS label. Without a value, or with zero, the rule must contain an Ethertype, a UDP destination port or
    /// GRE's protocol that announces it: see [`FlowRule::check`].
    #[must_use]
    pub fn mpls(self, mpls: Mpls) -> Self {
        self.outer(mpls)
    }

    /// Matches a header of the packet itself.
    #[must_use]
    pub fn outer<S: Spec>(self, spec: S) -> Self {
        self.spec(spec, false)
    }

    /// Matches a header of the packet inside a tunnel. An Ethernet header without values needs VXLAN, or GRE with that protocol,
    /// in the rule: see [`FlowRule::check`].
    #[doc(alias = "IBV_FLOW_SPEC_INNER")]
    #[must_use]
    pub fn inner<S: InnerSpec>(self, spec: S) -> Self {
        self.spec(spec, true)
    }

    fn spec<S: Spec>(mut self, spec: S, inner: bool) -> Self {
        self.note(S::LAYER, spec.ether_type(), inner);
        let flag = if inner { flow::SPEC_INNER } else { 0 };
        spec.encode(flag, &mut |bytes| {
            self.seen.announced.hear(self.attr.num_of_specs, S::TYPE | flag, bytes);
            self.push(bytes);
        });
        self
    }

    /// Records a header, and refuses the rule if it contradicts an earlier one.
    fn note(&mut self, layer: Layer, ether_type: Option<u16>, inner: bool) {
        let place = if inner { "inner" } else { "outer" };
        let layers = &mut self.seen.layers[usize::from(inner)];
        let clash = layers.iter().flatten().copied().find(|other| excludes(*other, layer));
        if let Some(free) = layers.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(layer);
        }
        let named = &mut self.seen.ether_type[usize::from(inner)];
        *named = named.or(ether_type);
        // After MPLS labels an IP header has no Ethertype of its own; mlx5 matches it there (is_valid_ethertype, fs.c, Linux 6.1).
        let wrong = named.filter(|number| !matches!(number, 0x8847 | 0x8848)).filter(|number| {
            layers.iter().flatten().any(|layer| ip_ether_type(*layer).is_some_and(|ip| ip != *number))
        });
        if let Some(other) = clash {
            let (other, layer) = (words(other), words(layer));
            self.refuse(format!("the {place} headers of the rule cannot be both {other} and {layer}"));
        } else if let Some(number) = wrong {
            self.refuse(format!("the {place} Ethertype {number:#06x} contradicts the IP header of the rule"));
        }
    }

    /// Marks packets with a tag, which their completions contain.
    #[must_use]
    #[doc(alias = "ibv_flow_spec_action_tag")]
    #[doc(alias = "IBV_FLOW_SPEC_ACTION_TAG")]
    pub fn tag(mut self, tag: FlowTag) -> Self {
        if std::mem::replace(&mut self.seen.tag, true) {
            self.refuse("a rule can have only one tag");
        }
        let hdr = action::<FlowSpecActionTag>(flow::SPEC_ACTION_TAG);
        let spec = FlowSpecActionTag { hdr, tag_id: tag.get(), reserved1: 0 };
        self.push(spec.as_bytes());
        self
    }

    /// Drops packets after they are counted.
    #[must_use]
    #[doc(alias = "ibv_flow_spec_action_drop")]
    #[doc(alias = "IBV_FLOW_SPEC_ACTION_DROP")]
    pub fn drop(mut self) -> Self {
        if std::mem::replace(&mut self.seen.drop, true) {
            self.refuse("a rule can have only one drop action");
        }
        let spec = FlowSpecActionDrop { hdr: action::<FlowSpecActionDrop>(flow::SPEC_ACTION_DROP) };
        self.push(spec.as_bytes());
        self
    }

    /// Counts packets into `counters`.
    #[must_use]
    #[doc(alias = "ibv_flow_spec_counter_action")]
    #[doc(alias = "IBV_FLOW_SPEC_ACTION_COUNT")]
    pub fn count(mut self, counters: &Counters) -> Self {
        if self.counters.is_some() {
            self.refuse("a rule counts into one counters object");
        }
        let hdr = action::<FlowSpecActionCount>(flow::SPEC_ACTION_COUNT);
        self.handle_at = usize::from(self.attr.size) + offset_of!(FlowSpecActionCount, handle);
        self.push(FlowSpecActionCount { hdr, handle: 0, reserved1: 0 }.as_bytes());
        self.counters = Some(counters.clone());
        self
    }
}

/// The positions and heads of specs that follow one another. The kernel goes from one to the next in the same way, and does not read any
/// behind one with an invalid size (ib_uverbs_ex_create_flow, uverbs_cmd.c, Linux 6.1).
fn heads(specs: &[u8]) -> impl Iterator<Item = (usize, FlowSpecHdr)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let rest = specs.get(next..)?;
        let (head, _) = FlowSpecHdr::read_from_prefix(rest).ok()?;
        let (at, size) = (next, usize::from(head.size));
        next += size;
        (size_of::<FlowSpecHdr>()..=rest.len()).contains(&size).then_some((at, head))
    })
}

fn action<T>(type_: u32) -> FlowSpecHdr {
    FlowSpecHdr { type_, size: size_of::<T>() as u16, reserved: 0 }
}

/// Whether no packet has both headers at one place.
fn excludes(one: Layer, other: Layer) -> bool {
    let ip = |layer| matches!(layer, Layer::Ipv4 | Layer::Ipv6);
    one == other || (ip(one) && ip(other))
}

/// The Ethertype of an IP header.
fn ip_ether_type(layer: Layer) -> Option<u16> {
    match layer {
        Layer::Ipv4 => Some(0x0800),
        Layer::Ipv6 => Some(0x86dd),
        _ => None,
    }
}

fn words(layer: Layer) -> &'static str {
    match layer {
        Layer::Link => "Ethernet",
        Layer::Ipv4 => "IPv4",
        Layer::Ipv6 => "IPv6",
        Layer::Transport => "TCP, UDP, ESP or GRE",
        Layer::Tunnel => "VXLAN",
        Layer::Label => "MPLS",
    }
}
