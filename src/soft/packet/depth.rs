//! The depth to which a frame must be read for a mask.

use super::{Headers, Layer, in_layer};
use zerocopy::IntoBytes;

/// The deepest header that must be read. Each variant includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// None at all.
    #[default]
    Nothing,
    /// Addresses, tags and ethertype.
    Ethernet,
    /// Label stack and IP header.
    Network,
    /// Ports and IPsec.
    Transport,
    /// A tunnel's header, and what is inside the tunnel.
    Tunnel,
}

impl Depth {
    /// The depth of the deepest field in which this mask has a bit.
    pub(crate) fn of(mask: &Headers) -> Self {
        // Each field is listed, so that a new field must be given a depth. The port and the reserved fields are not part of the frame.
        let Headers {
            outer,
            inner,
            vxlan_vni,
            gre_protocol,
            gre_flags,
            gre_key,
            mpls_over_gre,
            mpls_over_udp,
            port: _,
            present,
            reserved: _,
        } = mask;
        let tunnel = [vxlan_vni, gre_key, mpls_over_gre, mpls_over_udp].iter().any(|field| field.get() != 0)
            || [gre_protocol, gre_flags].iter().any(|field| field.get() != 0)
            || *present != 0
            || inner.as_bytes().iter().any(|byte| *byte != 0);
        if tunnel { Self::Tunnel } else { Self::of_layer(outer) }
    }

    fn of_layer(mask: &Layer) -> Self {
        let Layer {
            dst_mac,
            src_mac,
            ether_type,
            vlan_tci,
            ip_version,
            proto,
            tos,
            ttl,
            ip_flags,
            c_vlan,
            present,
            reserved: _,
            tcp_dst,
            tcp_src,
            udp_dst,
            udp_src,
            src_ip,
            dst_ip,
            flow_label,
            mpls,
            esp_spi,
            esp_seq,
        } = mask;
        let ports = [tcp_dst, tcp_src, udp_dst, udp_src].iter().any(|field| field.get() != 0);
        let esp = esp_spi.get() | esp_seq.get() != 0;
        if ports || esp || present & (in_layer::PORTS | in_layer::ESP) != 0 {
            return Self::Transport;
        }
        let ip = ip_version | proto | tos | ttl | ip_flags != 0
            || [src_ip, dst_ip].iter().any(|ip| **ip != [0; 16]);
        if ip || flow_label.get() | mpls.get() != 0 || present & in_layer::MPLS != 0 {
            return Self::Network;
        }
        let tag = vlan_tci.get() != 0 || *c_vlan != 0;
        let ethernet = *dst_mac != [0; 6] || *src_mac != [0; 6] || ether_type.get() != 0 || *present != 0;
        if tag || ethernet { Self::Ethernet } else { Self::Nothing }
    }
}
