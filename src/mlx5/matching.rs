//! Converts a rule to the device's layout.
//!
//! The layout is that of the kernel for an ordinary flow (parse_flow_attr, fs.c, Linux 6.1), so that a rule matches the same packets in
//! both cases.

use nix::errno::Errno;
use uverbs_abi::flow::{
    self, FlowSpecActionTag, FlowSpecEth, FlowSpecGre, FlowSpecHdr, FlowSpecIpv4, FlowSpecIpv6,
    FlowSpecTcpUdp, FlowSpecTunnel,
};
use uverbs_abi::mlx5::prm::{
    CAP_INNER_IP_VERSION, CAP_IP_VERSION, CAP_OUTER_IP_VERSION, FIRST_CVLAN_TAG, FteMatchParam,
    FteMatchSetLyr24, IP_VERSION_4, IP_VERSION_6, IP_VERSION_MASK, MATCH_INNER, MATCH_MISC, MATCH_OUTER,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::flow::FlowRule;
use crate::kernel::error::{Error, Result};

/// How the device distinguishes IPv4 and IPv6: by the version, or by the Ethertype.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    outer_ip_version: bool,
    inner_ip_version: bool,
}

impl Features {
    /// From the device's capabilities for flow tables.
    pub(super) fn new(flow_table: &[u8]) -> Self {
        let has = |byte: usize| flow_table.get(byte).is_some_and(|bits| bits & CAP_IP_VERSION != 0);
        Self { outer_ip_version: has(CAP_OUTER_IP_VERSION), inner_ip_version: has(CAP_INNER_IP_VERSION) }
    }
}

/// What a rule matches, and its actions except counting.
#[derive(Debug)]
pub(super) struct Match {
    pub(super) mask: FteMatchParam,
    pub(super) value: FteMatchParam,
    pub(super) tag: Option<u32>,
    pub(super) drop: bool,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;

fn unsupported(hint: &'static str) -> Error {
    Error::refused("flow.create", Errno::EOPNOTSUPP, hint)
}

impl Match {
    /// # Errors
    /// `Unsupported` if something has no place in the layout or no meaning for such a flow; `InvalidInput` for a rule that contradicts
    /// itself.
    pub(super) fn new(rule: &FlowRule, features: Features) -> Result<Self> {
        rule.check()?;
        if rule.counters().is_some() {
            let hint = "the rule has a count action of its own; this flow counts into the pool";
            return Err(Error::refused("flow.create", Errno::EINVAL, hint));
        }
        if rule.attr().flags != 0 {
            return Err(unsupported(
                "a flow of a pool takes received packets, and lets none go on or loop back",
            ));
        }
        if rule.attr().port != 1 {
            return Err(unsupported("a flow of a pool is for port 1"));
        }
        let mut this = Self {
            mask: FteMatchParam::new_zeroed(),
            value: FteMatchParam::new_zeroed(),
            tag: None,
            drop: false,
        };
        let mut rest = rule.specs();
        while let Ok((header, _)) = FlowSpecHdr::read_from_prefix(rest) {
            let (spec, behind) = rest.split_at_checked(header.size.into()).ok_or_else(malformed)?;
            this.add(header.type_, spec, features)?;
            rest = behind;
        }
        Ok(this)
    }

    /// The parts of the mask that are used.
    pub(super) fn criteria(&self) -> u8 {
        let bit = |bytes: &[u8], bit| if bytes.iter().any(|byte| *byte != 0) { bit } else { 0 };
        let FteMatchParam { outer, misc, inner } = &self.mask;
        bit(outer.as_bytes(), MATCH_OUTER)
            | bit(misc.as_bytes(), MATCH_MISC)
            | bit(inner.as_bytes(), MATCH_INNER)
    }

    fn add(&mut self, type_: u32, spec: &[u8], features: Features) -> Result<()> {
        let inner = type_ & flow::SPEC_INNER != 0;
        match type_ & !flow::SPEC_INNER {
            flow::SPEC_ETH => self.eth(&read(spec)?, inner),
            flow::SPEC_IPV4 => self.ipv4(&read(spec)?, inner, features)?,
            flow::SPEC_IPV6 => self.ipv6(&read(spec)?, inner, features)?,
            flow::SPEC_TCP => {
                self.proto(inner, TCP, 0xff)?;
                let spec = read::<FlowSpecTcpUdp>(spec)?;
                for (to, from) in self.sides(inner, [&spec.val, &spec.mask]) {
                    (to.tcp_sport, to.tcp_dport) = (from.src_port, from.dst_port);
                }
            }
            flow::SPEC_UDP => {
                self.proto(inner, UDP, 0xff)?;
                let spec = read::<FlowSpecTcpUdp>(spec)?;
                for (to, from) in self.sides(inner, [&spec.val, &spec.mask]) {
                    (to.udp_sport, to.udp_dport) = (from.src_port, from.dst_port);
                }
            }
            flow::SPEC_GRE => {
                let spec = read::<FlowSpecGre>(spec)?;
                if spec.mask.c_ks_res0_ver.get() != 0 {
                    return Err(unsupported("mlx5 cannot match the first 16 bits of GRE"));
                }
                self.proto(inner, GRE, 0xff)?;
                for (to, from) in [(&mut self.value, &spec.val), (&mut self.mask, &spec.mask)] {
                    (to.misc.gre_protocol, to.misc.gre_key) = (from.protocol, from.key);
                }
            }
            flow::SPEC_VXLAN_TUNNEL => {
                let spec = read::<FlowSpecTunnel>(spec)?;
                for (to, from) in [(&mut self.value, &spec.val), (&mut self.mask, &spec.mask)] {
                    to.misc.vxlan_vni = (from.tunnel_id.get() << 8).into();
                }
            }
            flow::SPEC_ACTION_TAG => self.tag = Some(read::<FlowSpecActionTag>(spec)?.tag_id),
            flow::SPEC_ACTION_DROP => self.drop = true,
            _ => return Err(unsupported("a flow of a pool matches Ethernet, IP, TCP, UDP, GRE and VXLAN")),
        }
        Ok(())
    }

    /// The headers of value and mask, each with the filter that fills it.
    fn sides<'a, T>(
        &mut self,
        inner: bool,
        [value, mask]: [&'a T; 2],
    ) -> [(&mut FteMatchSetLyr24, &'a T); 2] {
        if inner {
            [(&mut self.value.inner, value), (&mut self.mask.inner, mask)]
        } else {
            [(&mut self.value.outer, value), (&mut self.mask.outer, mask)]
        }
    }

    fn eth(&mut self, spec: &FlowSpecEth, inner: bool) {
        let (is_tagged, has_type) = (spec.mask.vlan_tag.get() != 0, spec.mask.ether_type.get() != 0);
        for (to, from) in self.sides(inner, [&spec.val, &spec.mask]) {
            (to.smac, to.dmac) = (from.src_mac, from.dst_mac);
            if is_tagged {
                to.tags |= FIRST_CVLAN_TAG;
                to.vlan_tci = from.vlan_tag;
            }
            if has_type {
                to.ethertype = from.ether_type;
            }
        }
    }

    fn ipv4(&mut self, spec: &FlowSpecIpv4, inner: bool, features: Features) -> Result<()> {
        if spec.mask.ttl != 0 || spec.mask.flags != 0 {
            return Err(unsupported("mlx5 cannot match time to live and flags of IPv4"));
        }
        self.ip_version(inner, features, IP_VERSION_4, 0x0800);
        for (to, from) in self.sides(inner, [&spec.val, &spec.mask]) {
            to.src_ip[12..].copy_from_slice(from.src_ip.as_bytes());
            to.dst_ip[12..].copy_from_slice(from.dst_ip.as_bytes());
            to.tos = from.tos;
        }
        self.proto(inner, spec.val.proto, spec.mask.proto)
    }

    fn ipv6(&mut self, spec: &FlowSpecIpv6, inner: bool, features: Features) -> Result<()> {
        if spec.mask.hop_limit != 0 {
            return Err(unsupported("mlx5 cannot match the hop limit of IPv6"));
        }
        self.ip_version(inner, features, IP_VERSION_6, 0x86dd);
        for (to, from) in self.sides(inner, [&spec.val, &spec.mask]) {
            (to.src_ip, to.dst_ip, to.tos) = (from.src_ip, from.dst_ip, from.traffic_class);
        }
        for (to, from) in [(&mut self.value, &spec.val), (&mut self.mask, &spec.mask)] {
            let misc = &mut to.misc;
            *if inner { &mut misc.inner_ipv6_flow_label } else { &mut misc.outer_ipv6_flow_label } =
                from.flow_label;
        }
        self.proto(inner, spec.val.next_hdr, spec.mask.next_hdr)
    }

    fn ip_version(&mut self, inner: bool, features: Features, version: u8, ether_type: u16) {
        let is_matched = if inner { features.inner_ip_version } else { features.outer_ip_version };
        let sides = [&(version, ether_type), &(IP_VERSION_MASK, 0xffff)];
        for (to, &(version, ether_type)) in self.sides(inner, sides) {
            if is_matched {
                to.tags |= version;
            } else {
                to.ethertype = ether_type.into();
            }
        }
    }

    /// Requires a protocol after IP: it must be the same as one that was required before.
    fn proto(&mut self, inner: bool, value: u8, mask: u8) -> Result<()> {
        let [(to_value, _), (to_mask, _)] = self.sides(inner, [&(), &()]);
        if mask != 0
            && to_mask.ip_protocol != 0
            && (to_value.ip_protocol, to_mask.ip_protocol) != (value, mask)
        {
            let hint = "the IP header names another protocol than the header behind it";
            return Err(Error::refused("flow.create", Errno::EINVAL, hint));
        }
        if mask != 0 {
            (to_value.ip_protocol, to_mask.ip_protocol) = (value, mask);
        }
        Ok(())
    }
}

fn malformed() -> Error {
    Error::malformed("flow.create", "a rule that ends in the middle of a header")
}

fn read<T: FromBytes + Immutable + KnownLayout>(spec: &[u8]) -> Result<T> {
    T::read_from_bytes(spec).map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::flow::{Eth, FlowLabel, FlowTag, Gre, Ipv4, Ipv6, Mpls, Tcp, Udp, VlanId, Vni, Vxlan};
    use crate::kernel::error::ErrorKind;

    const NEW: Features = Features { outer_ip_version: true, inner_ip_version: true };
    const OLD: Features = Features { outer_ip_version: false, inner_ip_version: false };

    /// The bytes that are not zero, by their offset.
    fn bytes(param: &FteMatchParam) -> Vec<(usize, u8)> {
        param.as_bytes().iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect()
    }

    #[test]
    fn headers_stand_where_the_device_has_them() {
        let rule = FlowRule::normal(1)
            .eth(Eth::any().dst([2, 3, 4, 5, 6, 7]).vlan(VlanId::new(0x123).unwrap()))
            .ipv4(Ipv4::any().src_masked(Ipv4Addr::new(10, 0, 0, 0), Ipv4Addr::new(255, 0, 0, 0)).tos(0xb8))
            .udp(Udp::any().dst_port(0x1234));
        let found = Match::new(&rule, NEW).unwrap();
        let value = [
            (8, 2),
            (9, 3),
            (10, 4),
            (11, 5),
            (12, 6),
            (13, 7), // destination
            (14, 0x01),
            (15, 0x23), // VLAN
            (16, 17),
            (17, 0xb8),
            (18, 0x88), // UDP, type of service, tagged, version 4
            (30, 0x12),
            (31, 0x34), // port
            (44, 10),   // the first byte of the address
        ];
        assert_eq!(bytes(&found.value), value);
        let mask = bytes(&found.mask);
        assert_eq!(mask[..6], [8, 9, 10, 11, 12, 13].map(|at| (at, 0xff)));
        assert_eq!(
            mask[6..],
            [(14, 0x0f), (15, 0xff), (16, 0xff), (17, 0xff), (18, 0x9e), (30, 0xff), (31, 0xff), (44, 0xff)]
        );
        assert_eq!((found.criteria(), found.tag, found.drop), (MATCH_OUTER, None, false));
    }

    #[test]
    fn an_older_device_tells_the_versions_by_the_ethertype() {
        let rule = FlowRule::normal(1).ipv6(Ipv6::any().dst(Ipv6Addr::LOCALHOST));
        let found = Match::new(&rule, OLD).unwrap();
        assert_eq!(bytes(&found.value), [(6, 0x86), (7, 0xdd), (63, 1)]);
        assert_eq!(Match::new(&rule, NEW).unwrap().value.outer.tags, IP_VERSION_6);
        // An Ethernet header after it does not change that.
        let rule = FlowRule::normal(1).ipv4(Ipv4::any()).eth(Eth::any().dst([2; 6]));
        assert_eq!(Match::new(&rule, OLD).unwrap().value.outer.ethertype.get(), 0x0800);
    }

    #[test]
    fn tunnels_flow_labels_tags_and_drops_have_their_places() {
        let rule = FlowRule::normal(1)
            .udp(Udp::any().dst_port(4789))
            .vxlan(Vxlan::any().vni(Vni::new(0x01_0203).unwrap()))
            .inner(Ipv6::any().flow_label(FlowLabel::new(0x4_5678).unwrap()))
            .inner(Tcp::any().src_port(80))
            .tag(FlowTag::new(7).unwrap())
            .drop();
        let found = Match::new(&rule, NEW).unwrap();
        assert_eq!(found.value.misc.vxlan_vni.get(), 0x0102_0300);
        assert_eq!(found.value.misc.inner_ipv6_flow_label.get(), 0x4_5678);
        assert_eq!((found.value.inner.tags, found.value.inner.ip_protocol), (IP_VERSION_6, TCP));
        assert_eq!(found.value.inner.tcp_sport.get(), 80);
        assert_eq!(found.criteria(), MATCH_OUTER | MATCH_MISC | MATCH_INNER);
        assert_eq!((found.tag, found.drop), (Some(7), true));
        let gre = Match::new(&FlowRule::normal(1).gre(Gre::any().protocol(0x0800).key(9)), NEW).unwrap();
        assert_eq!((gre.value.misc.gre_protocol.get(), gre.value.misc.gre_key.get()), (0x0800, 9));
        assert_eq!(gre.value.outer.ip_protocol, GRE);
    }

    #[test]
    fn a_rule_without_headers_has_an_empty_mask() {
        let found = Match::new(&FlowRule::normal(1), NEW).unwrap();
        assert_eq!((found.criteria(), bytes(&found.mask)), (0, vec![]));
    }

    #[test]
    fn what_such_a_flow_cannot_do_is_unsupported_and_a_contradiction_invalid() {
        let any = || FlowRule::normal(1);
        for rule in [
            any().ipv4(Ipv4::any().ttl(64)),
            any().ipv6(Ipv6::any().hop_limit(64)),
            any().gre(Gre::any().flags(1)),
            any().mpls(Mpls::any().word(1)),
            any().egress(),
            any().dont_trap(),
            FlowRule::normal(2),
        ] {
            let error = Match::new(&rule, NEW).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{rule}: {error}");
            assert!(error.hint().is_some());
        }
        let error = Match::new(&any().ipv4(Ipv4::any().protocol(17)).tcp(Tcp::any()), NEW).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = Match::new(&any().ipv4(Ipv4::any()).ipv4(Ipv4::any()), NEW).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
