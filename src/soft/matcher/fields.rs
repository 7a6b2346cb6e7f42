//! The fields that each spec writes: `parse_flow_attr`, one spec at a time.

use super::{Match, Rules};
use crate::soft::flow_check::{Filter, Spec};
use crate::soft::packet::{Layer, in_layer, in_tunnel};
use nix::errno::Errno;
use uverbs_abi::flow::{FlowGreFilter, FlowIpv4Filter, FlowIpv6Filter, FlowTcpUdpFilter};
use zerocopy::big_endian::U32;

const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const ESP: u8 = 50;

impl Match {
    /// One spec: `parse_flow_attr`.
    pub(super) fn add(&mut self, spec: &Spec, previous: Option<&Spec>, rules: &Rules) -> Result<(), Errno> {
        match *spec {
            Spec::Eth(spec) => {
                let (value, mask) = self.layers(spec.inner);
                for (layer, filter) in [(value, &spec.val), (mask, &spec.mask)] {
                    layer.dst_mac = filter.dst_mac;
                    layer.src_mac = filter.src_mac;
                    layer.ether_type = filter.ether_type;
                    if spec.mask.vlan_tag.get() != 0 {
                        layer.c_vlan = 1;
                        layer.vlan_tci = filter.vlan_tag;
                    }
                }
            }
            Spec::Ipv4(spec) => self.ipv4(spec, rules)?,
            Spec::Ipv6(spec) => self.ipv6(spec, rules)?,
            Spec::Esp(_) if !rules.esp => return Err(Errno::EOPNOTSUPP),
            Spec::Esp(spec) => {
                let (value, mask) = self.layers(spec.inner);
                set_proto(value, mask, ESP, 0xff)?;
                for (layer, filter) in [(value, &spec.val), (mask, &spec.mask)] {
                    layer.esp_spi = filter.spi;
                    layer.esp_seq = filter.seq;
                }
            }
            Spec::Tcp(spec) => self.ports(spec, TCP)?,
            Spec::Udp(spec) => self.ports(spec, UDP)?,
            Spec::Vxlan(spec) => {
                self.value.vxlan_vni = spec.val.tunnel_id;
                self.mask.vxlan_vni = spec.mask.tunnel_id;
            }
            Spec::Gre(spec) => self.gre(spec, rules)?,
            Spec::Mpls(spec) => {
                let (value, mask) = (spec.val.label, spec.mask.label);
                if mask.get() != 0 && !rules.mpls {
                    return Err(Errno::EOPNOTSUPP);
                }
                self.mpls(spec.inner, [value, mask], previous);
            }
            Spec::Tag(tag) if tag >> 24 != 0 => return Err(Errno::EINVAL),
            Spec::Tag(tag) => self.actions.tag = Some(tag),
            Spec::Drop => self.actions.drop = true,
            // A flow action that this driver does not know; mlx5 accepts only those that its own methods created.
            Spec::Handle(_) => return Err(Errno::EOPNOTSUPP),
            Spec::Count(_) if self.actions.count.is_some() => return Err(Errno::EINVAL),
            Spec::Count(handle) => self.actions.count = Some(handle),
        }
        Ok(())
    }

    fn ipv4(&mut self, spec: Filter<FlowIpv4Filter>, rules: &Rules) -> Result<(), Errno> {
        if (spec.mask.ttl | spec.mask.flags) != 0 && !rules.ttl {
            return Err(Errno::EOPNOTSUPP);
        }
        let (value, mask) = self.layers(spec.inner);
        set_version(value, mask, 4, rules);
        for (layer, filter) in [(&mut *value, &spec.val), (&mut *mask, &spec.mask)] {
            layer.src_ip[12..].copy_from_slice(&filter.src_ip.to_bytes());
            layer.dst_ip[12..].copy_from_slice(&filter.dst_ip.to_bytes());
            layer.tos = filter.tos;
            if rules.ttl {
                layer.ttl = filter.ttl;
                layer.ip_flags = filter.flags;
            }
        }
        set_proto(value, mask, spec.val.proto, spec.mask.proto)
    }

    fn ipv6(&mut self, spec: Filter<FlowIpv6Filter>, rules: &Rules) -> Result<(), Errno> {
        if spec.mask.hop_limit != 0 && !rules.hop_limit {
            return Err(Errno::EOPNOTSUPP);
        }
        let (value, mask) = self.layers(spec.inner);
        set_version(value, mask, 6, rules);
        for (layer, filter) in [(&mut *value, &spec.val), (&mut *mask, &spec.mask)] {
            layer.src_ip = filter.src_ip;
            layer.dst_ip = filter.dst_ip;
            layer.tos = filter.traffic_class;
            layer.flow_label = filter.flow_label;
            if rules.hop_limit {
                layer.ttl = filter.hop_limit;
            }
        }
        set_proto(value, mask, spec.val.next_hdr, spec.mask.next_hdr)
    }

    fn ports(&mut self, spec: Filter<FlowTcpUdpFilter>, proto: u8) -> Result<(), Errno> {
        let (value, mask) = self.layers(spec.inner);
        set_proto(value, mask, proto, 0xff)?;
        for (layer, filter) in [(value, &spec.val), (mask, &spec.mask)] {
            if proto == TCP {
                (layer.tcp_src, layer.tcp_dst) = (filter.src_port, filter.dst_port);
            } else {
                (layer.udp_src, layer.udp_dst) = (filter.src_port, filter.dst_port);
            }
        }
        Ok(())
    }

    /// GRE has one set of fields whether or not the spec is inner; only the protocol goes to that layer.
    fn gre(&mut self, spec: Filter<FlowGreFilter>, rules: &Rules) -> Result<(), Errno> {
        if spec.mask.c_ks_res0_ver.get() != 0 && !rules.gre_flags {
            return Err(Errno::EOPNOTSUPP);
        }
        let (value, mask) = self.layers(spec.inner);
        set_proto(value, mask, GRE, 0xff)?;
        let blocks = [(&mut self.value, &spec.val), (&mut self.mask, &spec.mask)];
        for (block, filter) in blocks {
            block.gre_protocol = filter.protocol;
            block.gre_key = filter.key;
            if rules.gre_flags {
                block.gre_flags = filter.c_ks_res0_ver;
            }
        }
        Ok(())
    }

    /// The previous spec determines which label is meant: after UDP or GRE (not their inner kinds) that of the tunnel, otherwise the
    /// first of the layer.
    fn mpls(&mut self, inner: bool, label: [U32; 2], previous: Option<&Spec>) {
        let fields = match previous {
            Some(Spec::Udp(before)) if !before.inner => {
                [&mut self.value.mpls_over_udp, &mut self.mask.mpls_over_udp]
            }
            Some(Spec::Gre(before)) if !before.inner => {
                [&mut self.value.mpls_over_gre, &mut self.mask.mpls_over_gre]
            }
            _ => {
                let (value, mask) = self.layers(inner);
                [&mut value.mpls, &mut mask.mpls]
            }
        };
        for (field, label) in fields.into_iter().zip(label) {
            *field = label;
        }
    }

    /// Value and mask of the outer or inner headers.
    fn layers(&mut self, inner: bool) -> (&mut Layer, &mut Layer) {
        match inner {
            false => (&mut self.value.outer, &mut self.mask.outer),
            true => (&mut self.value.inner, &mut self.mask.inner),
        }
    }

    /// A mask on a field also requires the header that contains it: an absent field is zero, and zero is a value.
    ///
    /// The IP version and the protocol need no such bit, nor does a VLAN tag: their specs set their own.
    pub(super) fn require_headers(&mut self) {
        for inner in [false, true] {
            let (value, mask) = self.layers(inner);
            let addresses = mask.dst_mac != [0; 6] || mask.src_mac != [0; 6];
            let ports = [mask.tcp_src, mask.tcp_dst, mask.udp_src, mask.udp_dst];
            let mut bits = 0;
            for (asked, bit) in [
                (addresses || mask.ether_type.get() != 0, in_layer::ETHERNET),
                (ports.iter().any(|port| port.get() != 0), in_layer::PORTS),
                (mask.mpls.get() != 0, in_layer::MPLS),
                (mask.esp_spi.get() | mask.esp_seq.get() != 0, in_layer::ESP),
            ] {
                bits |= if asked { bit } else { 0 };
            }
            (value.present, mask.present) = (bits, bits);
        }
        let mask = &mut self.mask;
        let gre = mask.gre_protocol.get() | mask.gre_flags.get();
        let mut bits = 0;
        for (asked, bit) in [
            (mask.vxlan_vni.get() != 0, in_tunnel::VXLAN),
            (gre != 0, in_tunnel::GRE),
            (mask.gre_key.get() != 0, in_tunnel::GRE_KEY),
            (mask.mpls_over_gre.get() != 0, in_tunnel::MPLS_OVER_GRE),
            (mask.mpls_over_udp.get() != 0, in_tunnel::MPLS_OVER_UDP),
        ] {
            bits |= if asked { bit } else { 0 };
        }
        (self.value.present, self.mask.present) = (bits, bits);
    }
}

/// The IP version is matched even if the spec's mask is all zero.
fn set_version(value: &mut Layer, mask: &mut Layer, version: u8, rules: &Rules) {
    if rules.ip_version {
        (value.ip_version, mask.ip_version) = (version, 0xf);
    } else {
        value.ether_type = if version == 4 { 0x0800 } else { 0x86dd }.into();
        mask.ether_type = 0xffff.into();
    }
}

/// Two specs must not require different protocols: `set_proto`.
fn set_proto(value: &mut Layer, mask: &mut Layer, proto: u8, bits: u8) -> Result<(), Errno> {
    if bits == 0 {
        return Ok(());
    }
    if mask.proto == 0 {
        (value.proto, mask.proto) = (proto, bits);
    }
    match (value.proto, mask.proto) == (proto, bits) {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}
