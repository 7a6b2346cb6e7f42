//! The headers of a packet.

/// The default port of VXLAN.
pub(crate) const VXLAN_PORT: u16 = 4789;
const MPLS_PORT: u16 = 6635;

const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const ETHERNET_IN_GRE: u16 = 0x6558;

const PROTOCOL_IPV4: u8 = 4;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_GRE: u8 = 47;

/// An IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    V4([u8; 4]),
    V6([u8; 16]),
}

impl Address {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::V4(bytes) => bytes,
            Self::V6(bytes) => bytes,
        }
    }
}

/// A VLAN tag, and whether it is a service provider's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vlan {
    pub(crate) service: bool,
    pub(crate) tci: u16,
}

/// An IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// The beginning of the header, and of its payload.
    pub(crate) offset: usize,
    pub(crate) payload: usize,
    pub(crate) source: Address,
    pub(crate) destination: Address,
    pub(crate) protocol: u8,
    /// Type of service, or traffic class.
    pub(crate) class: u8,
    pub(crate) ttl: u8,
    pub(crate) ihl: u8,
    pub(crate) flow_label: u32,
    pub(crate) is_fragment: bool,
    /// A fragment that is not the first has no transport header.
    is_later_fragment: bool,
}

/// A TCP or UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    pub(crate) is_tcp: bool,
    pub(crate) source: u16,
    pub(crate) destination: u16,
    pub(crate) tcp_flags: u16,
}

/// The headers of a packet, or of a packet inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Destination and source; none in a tunnel that contains plain IP.
    pub(crate) addresses: Option<[[u8; 6]; 2]>,
    pub(crate) vlans: Vec<Vlan>,
    pub(crate) ethertype: u16,
    pub(crate) mpls: Option<[u8; 4]>,
    pub(crate) network: Option<Network>,
    pub(crate) transport: Option<Transport>,
}

/// A GRE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gre {
    pub(crate) flags: u16,
    pub(crate) protocol: u16,
    pub(crate) key: u32,
}

/// All headers of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) outer: Layer,
    pub(crate) vxlan: Option<u32>,
    pub(crate) gre: Option<Gre>,
    pub(crate) mpls_over_gre: Option<[u8; 4]>,
    pub(crate) mpls_over_udp: Option<[u8; 4]>,
    pub(crate) inner: Option<Layer>,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

impl Headers {
    /// Parses as many headers as there are. A truncated header counts as absent.
    pub(crate) fn parse(bytes: &[u8], vxlan_ports: &[u16]) -> Self {
        let outer = Layer::ethernet(bytes, 0);
        let mut headers = Self { outer, ..Self::default() };
        headers.tunnel(bytes, vxlan_ports);
        headers
    }

    /// Parses the headers after the outer ones. `None` if there is no tunnel, or if it is truncated.
    fn tunnel(&mut self, bytes: &[u8], vxlan_ports: &[u16]) -> Option<()> {
        let network = self.outer.network?;
        let at = network.payload;
        match (network.protocol, self.outer.transport) {
            (PROTOCOL_UDP, Some(Transport { destination, .. })) if vxlan_ports.contains(&destination) => {
                let [_, a, b, c] = array::<8>(bytes, at + 8).map(|[.., a, b, c, _]| [0, a, b, c])?;
                self.vxlan = Some(u32::from_be_bytes([0, a, b, c]));
                self.inner = Some(Layer::ethernet(bytes, at + 16));
            }
            (PROTOCOL_UDP, Some(Transport { destination: MPLS_PORT, .. })) => {
                self.mpls_over_udp = array(bytes, at + 8);
                self.inner = Layer::behind_labels(bytes, at + 8);
            }
            (PROTOCOL_GRE, _) if !network.is_later_fragment => self.gre(bytes, at)?,
            (PROTOCOL_IPV4, _) => self.inner = Some(Layer::internet(bytes, at, IPV4)),
            (PROTOCOL_IPV6, _) => self.inner = Some(Layer::internet(bytes, at, IPV6)),
            _ => {}
        }
        Some(())
    }

    fn gre(&mut self, bytes: &[u8], at: usize) -> Option<()> {
        let (flags, protocol) = (half(bytes, at)?, half(bytes, at + 2)?);
        let mut next = at + 4;
        if flags & 0x8000 != 0 {
            next += 4; // checksum
        }
        let mut key = 0;
        if flags & 0x2000 != 0 {
            key = u32::from_be_bytes(array(bytes, next)?);
            next += 4;
        }
        if flags & 0x1000 != 0 {
            next += 4; // sequence number
        }
        self.gre = Some(Gre { flags, protocol, key });
        match protocol {
            ETHERNET_IN_GRE => self.inner = Some(Layer::ethernet(bytes, next)),
            IPV4 | IPV6 => self.inner = Some(Layer::internet(bytes, next, protocol)),
            MPLS | MPLS_MULTICAST => {
                self.mpls_over_gre = array(bytes, next);
                self.inner = Layer::behind_labels(bytes, next);
            }
            _ => {}
        }
        Some(())
    }
}

impl Layer {
    fn ethernet(bytes: &[u8], at: usize) -> Self {
        let mut layer = Self::default();
        let (Some(destination), Some(source)) = (array(bytes, at), array(bytes, at + 6)) else {
            return layer;
        };
        layer.addresses = Some([destination, source]);
        let mut next = at + 12;
        while let Some(ethertype) = half(bytes, next) {
            next += 2;
            match half(bytes, next) {
                Some(tci) if matches!(ethertype, VLAN | SERVICE_VLAN) && layer.vlans.len() < 2 => {
                    layer.vlans.push(Vlan { service: ethertype == SERVICE_VLAN, tci });
                    next += 2;
                }
                _ => {
                    layer.behind(bytes, next, ethertype);
                    break;
                }
            }
        }
        layer
    }

    /// A layer without Ethernet.
    fn internet(bytes: &[u8], at: usize, ethertype: u16) -> Self {
        let mut layer = Self::default();
        layer.behind(bytes, at, ethertype);
        layer
    }

    /// The layer after a stack of MPLS labels: IP of the version in its first bits.
    fn behind_labels(bytes: &[u8], mut at: usize) -> Option<Self> {
        while bytes.get(at + 2)? & 1 == 0 {
            at += 4;
        }
        match bytes.get(at + 4)? >> 4 {
            4 => Some(Self::internet(bytes, at + 4, IPV4)),
            6 => Some(Self::internet(bytes, at + 4, IPV6)),
            _ => None,
        }
    }

    fn behind(&mut self, bytes: &[u8], at: usize, ethertype: u16) {
        self.ethertype = ethertype;
        match ethertype {
            IPV4 => self.network = ipv4(bytes, at),
            IPV6 => self.network = ipv6(bytes, at),
            MPLS | MPLS_MULTICAST => self.mpls = array(bytes, at),
            _ => {}
        }
        self.transport = self.network.and_then(|network| transport(bytes, &network));
    }
}

fn ipv4(bytes: &[u8], at: usize) -> Option<Network> {
    let header: [u8; 20] = array(bytes, at)?;
    let ihl = header[0] & 0xf;
    if header[0] >> 4 != 4 || ihl < 5 {
        return None;
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    Some(Network {
        offset: at,
        payload: at + usize::from(ihl) * 4,
        source: Address::V4(array(&header, 12)?),
        destination: Address::V4(array(&header, 16)?),
        protocol: header[9],
        class: header[1],
        ttl: header[8],
        ihl,
        flow_label: 0,
        is_fragment: fragment & 0x3fff != 0,
        is_later_fragment: fragment & 0x1fff != 0,
    })
}

fn ipv6(bytes: &[u8], at: usize) -> Option<Network> {
    let header: [u8; 40] = array(bytes, at)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let first = u32::from_be_bytes(array(&header, 0)?);
    let mut network = Network {
        offset: at,
        payload: at + 40,
        source: Address::V6(array(&header, 8)?),
        destination: Address::V6(array(&header, 24)?),
        protocol: header[6],
        class: (first >> 20) as u8,
        ttl: header[7],
        ihl: 0,
        flow_label: first & 0xf_ffff,
        is_fragment: false,
        is_later_fragment: false,
    };
    // Hop-by-hop, routing and destination options, and fragments: the header after them counts.
    while let 0 | 43 | 44 | 60 = network.protocol {
        let Some([next, len, a, b]) = array(bytes, network.payload) else { break };
        let mut size = (usize::from(len) + 1) * 8;
        if network.protocol == 44 {
            size = 8;
            let fragment = u16::from_be_bytes([a, b]);
            network.is_fragment = fragment & !0b110 != 0;
            network.is_later_fragment = fragment & !0b111 != 0;
        }
        network.protocol = next;
        network.payload += size;
    }
    Some(network)
}

fn transport(bytes: &[u8], network: &Network) -> Option<Transport> {
    let is_tcp = network.protocol == PROTOCOL_TCP;
    if network.is_later_fragment || !is_tcp && network.protocol != PROTOCOL_UDP {
        return None;
    }
    let at = network.payload;
    let tcp_flags = if is_tcp { half(bytes, at + 12)? & 0x1ff } else { 0 };
    Some(Transport { is_tcp, source: half(bytes, at)?, destination: half(bytes, at + 2)?, tcp_flags })
}
