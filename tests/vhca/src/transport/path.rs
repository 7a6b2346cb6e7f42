//! The route of packets: from the path of a queue pair, or from the address in a datagram's request.

use crate::bits::Bits;
use crate::ifc::context::ads;
use crate::port::{LinkLayer, Port};
use crate::transport::route::Route;

/// The first local identifier of multicast groups.
const FIRST_GROUP: u16 = 0xc000;

/// Size of an address vector in a request in bytes.
pub(super) const VECTOR: usize = 48;

/// The address of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vector {
    pub(super) route: Route,
    pub(super) to: u32,
    pub(super) qkey: u32,
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

impl Vector {
    /// Parses `struct mlx5_av` of the kernel's `include/linux/mlx5/qp.h`.
    pub(super) fn parse(vector: &[u8], port: &Port) -> Self {
        let word = |at| u32::from_be_bytes(bytes(vector, at));
        let half = |at| u16::from_be_bytes(bytes(vector, at));
        let global = word(0x1c);
        let path = Address {
            has_grh: global >> 30 & 1 == 1,
            path_bits: vector[0xd] & 0x7f,
            remote: half(0xe),
            gid_index: (global >> 20 & 0xff) as u8,
            mac: bytes(vector, 0x14),
            gid: bytes(vector, 0x20),
            traffic_class: vector[0x1a],
            hop_limit: vector[0x1b],
            flow_label: global & 0xf_ffff,
            service_level: vector[0xc] & 0xf,
            udp_source: half(0xe),
        };
        Self { route: path.route(port), to: word(8) & 0xff_ffff, qkey: word(0) }
    }
}

/// The route to the peer of a connected queue pair.
pub(super) fn of_path(path: &[u8], port: &Port) -> Route {
    let mac = path.wide(ads::rmac_47_32) << 32 | path.wide(ads::rmac_31_0);
    let [_, _, mac @ ..] = mac.to_be_bytes();
    let gid = path.part(ads::rgid_rip);
    let address = Address {
        has_grh: path.is(ads::grh),
        path_bits: path.num(ads::mlid) as u8,
        remote: path.num(ads::rlid) as u16,
        gid_index: path.num(ads::src_addr_index) as u8,
        mac,
        gid: bytes(gid, 0),
        traffic_class: path.num(ads::tclass) as u8,
        hop_limit: path.num(ads::hop_limit) as u8,
        flow_label: path.num(ads::flow_label),
        service_level: path.num(ads::sl) as u8,
        udp_source: path.num(ads::udp_sport) as u16,
    };
    address.route(port)
}

struct Address {
    has_grh: bool,
    path_bits: u8,
    remote: u16,
    gid_index: u8,
    mac: [u8; 6],
    gid: [u8; 16],
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
    service_level: u8,
    udp_source: u16,
}

impl Address {
    fn route(self, port: &Port) -> Route {
        let own = port.gids.get(&self.gid_index.into()).copied().unwrap_or_default();
        let is_ethernet = port.link != LinkLayer::InfiniBand;
        let common = Route {
            has_grh: self.has_grh || is_ethernet,
            sgid: own.gid,
            dgid: self.gid,
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            hop_limit: self.hop_limit,
            service_level: self.service_level,
            ..Route::default()
        };
        if is_ethernet {
            Route { smac: own.mac, dmac: self.mac, udp_source: self.udp_source, ..common }
        } else {
            Route { slid: port.lid | u16::from(self.path_bits), dlid: self.remote, ..common }
        }
    }
}

/// Whether packets to this destination return to the same card.
pub(super) fn is_own(route: &Route, port: &Port) -> bool {
    match port.link {
        LinkLayer::InfiniBand => route.dlid == port.lid,
        _ => port.is_own_gid(&route.dgid),
    }
}

/// Whether datagrams to this destination go to a group.
pub(super) fn is_group(route: &Route, port: &Port) -> bool {
    match port.link {
        LinkLayer::InfiniBand => route.dlid >= FIRST_GROUP && route.dlid != u16::MAX,
        _ => {
            route.dgid[0] == 0xff
                || route.dgid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
                    && route.dgid[12] >> 4 == 0xe
        }
    }
}
