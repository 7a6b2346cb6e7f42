//! Headers that a device recognises only by the header before them.
//!
//! A spec of VXLAN, of MPLS or of the Ethernet header in a tunnel matches the header's own fields, but nothing that shows that the
//! header is present (parse_flow_attr, fs.c, Linux 6.1). If the fields must be zero, or may be anything, packets without the header
//! match too. The rule therefore has to announce the header in another place: the port, the Ethertype or the protocol.

use uverbs_abi::flow::{
    self, FlowEthFilter, FlowGreFilter, FlowSpecEth, FlowSpecGre, FlowSpecTcpUdp, FlowTcpUdpFilter,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// MPLS as an Ethertype, and as GRE's protocol.
const MPLS: [u16; 2] = [0x8847, 0x8848];
/// Ethernet as GRE's protocol.
const ETHERNET: u16 = 0x6558;

/// What the specs of a rule contain, in any order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Announced {
    /// The positions of specs that must be announced.
    vxlan: Option<u8>,
    inner_eth: Option<u8>,
    mpls: [Option<u8>; 2],
    /// Whether there is an announcement for MPLS outside and inside a tunnel, for VXLAN, and for an Ethernet header in a tunnel.
    has_label: [bool; 2],
    has_port: bool,
    has_frame: bool,
}

impl Announced {
    /// Records a spec at this position.
    pub(super) fn hear(&mut self, at: u8, type_: u32, spec: &[u8]) {
        let inner = usize::from(type_ & flow::SPEC_INNER != 0);
        let body = spec.get(8..).unwrap_or_default();
        let (value, mask) = body.split_at(body.len() / 2);
        let is_silent = value.iter().zip(mask).all(|(value, mask)| value & mask == 0);
        match type_ & !flow::SPEC_INNER {
            flow::SPEC_ETH => {
                let (value, mask) = halves::<FlowSpecEth, FlowEthFilter>(spec, |spec| (spec.val, spec.mask));
                let is_whole = mask.ether_type.get() == 0xffff;
                self.has_label[inner] |= is_whole && MPLS.contains(&value.ether_type.get());
                // A mask of the tag requires a tag.
                if inner == 1 && is_silent && mask.vlan_tag.get() == 0 {
                    self.inner_eth = Some(at);
                }
            }
            flow::SPEC_UDP => {
                let (_, mask) =
                    halves::<FlowSpecTcpUdp, FlowTcpUdpFilter>(spec, |spec| (spec.val, spec.mask));
                let is_whole = mask.dst_port.get() == 0xffff;
                self.has_label[inner] |= is_whole;
                self.has_port |= is_whole && inner == 0;
            }
            flow::SPEC_GRE => {
                let (value, mask) = halves::<FlowSpecGre, FlowGreFilter>(spec, |spec| (spec.val, spec.mask));
                let is_whole = mask.protocol.get() == 0xffff;
                self.has_label[inner] |= is_whole && MPLS.contains(&value.protocol.get());
                self.has_frame |= is_whole && inner == 0 && value.protocol.get() == ETHERNET;
            }
            flow::SPEC_VXLAN_TUNNEL => {
                self.has_frame = true;
                self.vxlan = is_silent.then_some(at);
            }
            flow::SPEC_MPLS if is_silent => self.mpls[inner] = Some(at),
            _ => {}
        }
    }

    /// The position of a header that nothing announces, and what would announce it.
    pub(super) fn missing(&self) -> Option<(u8, &'static str)> {
        let port = "packets without VXLAN would match too: name the port as well, as in `udp dst port 4789`";
        let label = "packets without MPLS would match too: name what announces it as well, `ether proto mpls`, a UDP \
                     destination port (6635), or `gre proto mpls`";
        let frame = "packets without a tunnel would match too: name one that carries Ethernet as well, `vxlan` or \
                     `gre proto 0x6558`";
        let unless = |at: Option<u8>, is_said: bool, hint| at.filter(|_| !is_said).map(|at| (at, hint));
        unless(self.vxlan, self.has_port, port)
            .or(unless(self.mpls[0], self.has_label[0], label))
            .or(unless(self.mpls[1], self.has_label[1], label))
            .or(unless(self.inner_eth, self.has_frame, frame))
    }
}

/// Value and mask of a spec; zeros if it is truncated.
fn halves<S, F>(spec: &[u8], of: impl FnOnce(S) -> (F, F)) -> (F, F)
where
    S: FromBytes + FromZeros + Immutable + KnownLayout + IntoBytes,
{
    of(S::read_from_prefix(spec).map_or_else(|_| S::new_zeroed(), |(spec, _)| spec))
}
