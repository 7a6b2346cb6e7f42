//! Address handles: the destinations of datagrams.

use std::net::Ipv6Addr;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::write::{AhAttr, CreateAh, CreateAhResp, GlobalRoute, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::device::context::{Context, Gid, GidKind};
use crate::device::object::{self, Kind, Object};
use crate::driver::request::Address;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::pd::ProtectionDomain;

/// The route from a port of this device to another port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_ah_attr")]
pub struct Route {
    /// GID of the other port; zeros if its local identifier is sufficient.
    pub gid: [u8; 16],
    /// Index of this side's GID in the port's table.
    pub gid_index: u8,
    /// Port of this side, from 1.
    pub port: u8,
    /// Hop limit; default 64.
    pub hop_limit: u8,
    /// Traffic class; default 0.
    pub traffic_class: u8,
    /// Service level; default 0.
    pub service_level: u8,
    /// Local identifier (LID) of the other port; only on InfiniBand.
    pub lid: u16,
}

impl Route {
    /// The route to the port with the GID `gid`, from `port` with its GID at `gid_index`.
    pub fn new(port: u8, gid_index: u8, gid: [u8; 16]) -> Self {
        Self { gid, gid_index, port, hop_limit: 64, traffic_class: 0, service_level: 0, lid: 0 }
    }

    /// The route back to the sender of a datagram. `header` is the routing header of the datagram: the first 40 bytes of its
    /// receive. `gids` is the device's table ([`Context::gid_table`](crate::Context::gid_table)), in which this side's GID is
    /// looked up.
    ///
    /// An answer also needs [`Completion::source_qp`](crate::Completion::source_qp). On InfiniBand, set `lid` to
    /// [`Completion::source_lid`](crate::Completion::source_lid).
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a header that is neither one of IPv6 (InfiniBand's is the same) nor, in its
    /// second half, one of IPv4, and for one of IPv6 that neither UDP nor InfiniBand's transport follows;
    /// [`NotFound`](ErrorKind::NotFound) if its destination is not a GID of `port`, such as a multicast group.
    #[doc(alias = "ibv_init_ah_from_wc")]
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn back(port: u8, gids: &[Gid], header: &[u8; 40]) -> Result<Self> {
        let way = RoutingHeader::parse(header).and_then(|header| header.back(port, gids));
        let way = way.map_err(|why| why.error("route.back"))?;
        Ok(Self { traffic_class: way.traffic_class, ..Self::new(port, way.sgid_index, way.dgid) })
    }

    pub(crate) fn attr(&self) -> AhAttr {
        let grh = GlobalRoute {
            dgid: self.gid,
            sgid_index: self.gid_index,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            ..GlobalRoute::new_zeroed()
        };
        let (dlid, sl, port_num) = (self.lid, self.service_level, self.port);
        // On InfiniBand the local identifier is sufficient inside a subnet.
        let is_global = dlid == 0 || self.gid != [0; 16];
        AhAttr { grh, dlid, sl, port_num, is_global: is_global.into(), ..AhAttr::new_zeroed() }
    }
}

/// Adds a hint to an error of the kernel that it finds no way from a GID of this side to the peer's (addr_resolve, addr.c, Linux 6.1).
pub(super) fn unreachable(error: Error, index: u8, gid: &[u8; 16]) -> Error {
    use Errno::{EADDRNOTAVAIL, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ETIMEDOUT};
    let of_route = [EADDRNOTAVAIL, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ETIMEDOUT].map(|errno| errno as i32);
    if !error.errno().is_some_and(|errno| of_route.contains(&errno)) {
        return error;
    }
    let to = Ipv6Addr::from(*gid).to_canonical();
    error.hinted(format!(
        "no route from GID {index} to {to}, or no neighbour answers there; Context::gid_for says which GIDs can be used"
    ))
}

/// Why a routing header names no route back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub enum NoRoute {
    /// It is no routing header of RDMA.
    NoHeader,
    /// The datagram was for a multicast group, so it does not say which GID of this side to use.
    Multicast,
    /// It was not for a GID of the port.
    NotOurs,
}

impl NoRoute {
    fn error(self, op: &'static str) -> Error {
        match self {
            Self::NoHeader => {
                Error::refused(op, Errno::EINVAL, "the first 40 bytes are not a routing header")
            }
            Self::Multicast => Error::refused(
                op,
                Errno::ENOENT,
                "the datagram was for a multicast group: choose a GID of the port and use `Route::new`",
            ),
            Self::NotOurs => Error::refused(op, Errno::ENOENT, "the datagram was not for a GID of the port"),
        }
    }
}

/// The contents of a routing header: the one place that decides which header the first 40 bytes of a datagram's receive contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct RoutingHeader {
    from: [u8; 16],
    to: [u8; 16],
    /// The types of the GID for which it can have been sent.
    kinds: &'static [GidKind],
    traffic_class: u8,
    hop_limit: u8,
}

impl RoutingHeader {
    /// An IPv6 header (InfiniBand's is the same), or an IPv4 header in the second half. The first four bits distinguish them, but before
    /// an IPv4 header there may be anything, such as an older IPv6 header; then the checksum of the IPv4 header decides
    /// (`ib_get_rdma_header_version`, verbs.c, Linux 6.1; `get_grh_header_version`, verbs.c, rdma-core 65).
    ///
    /// # Errors
    /// [`NoRoute::NoHeader`], [`NoRoute::Multicast`]
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn parse(header: &[u8; 40]) -> Result<Self, NoRoute> {
        let (first, ipv4) = header.split_at(20);
        let is_ipv4 = match first[0] >> 4 {
            // An IPv4 header of RoCE has no options.
            6 => ipv4[0] == 0x45 && checksum_is_good(ipv4),
            _ if ipv4[0] >> 4 == 4 => true,
            _ => return Err(NoRoute::NoHeader),
        };
        let found = if is_ipv4 { Self::ipv4(ipv4) } else { Self::ipv6(header)? };
        if is_multicast(&found.to) { Err(NoRoute::Multicast) } else { Ok(found) }
    }

    fn ipv4(header: &[u8]) -> Self {
        let address = |at: usize| {
            let mut address = [0; 16];
            address[10..12].fill(0xff);
            address[12..].copy_from_slice(&header[at..at + 4]);
            address
        };
        Self {
            from: address(12),
            to: address(16),
            kinds: &[GidKind::RoceV2],
            traffic_class: header[1],
            hop_limit: header[8],
        }
    }

    fn ipv6(header: &[u8; 40]) -> Result<Self, NoRoute> {
        let address = |at: usize| std::array::from_fn(|byte| header[at + byte]);
        let to = address(24);
        let kinds: &[_] = match header[6] {
            NEXT_IS_UDP => &[GidKind::RoceV2],
            NEXT_IS_TRANSPORT => &[GidKind::InfiniBand, GidKind::RoceV1],
            _ if is_multicast(&to) => return Err(NoRoute::Multicast),
            _ => return Err(NoRoute::NoHeader),
        };
        let traffic_class = header[0] << 4 | header[1] >> 4;
        Ok(Self { from: address(8), to, kinds, traffic_class, hop_limit: header[7] })
    }

    /// The route to the sender, from the GID of `port` for which the datagram was. Its flow label is zero.
    ///
    /// # Errors
    /// [`NoRoute::NotOurs`]
    #[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
    pub fn back(&self, port: u8, gids: &[Gid]) -> Result<GlobalRoute, NoRoute> {
        let is_own =
            |gid: &&Gid| gid.port == u32::from(port) && gid.raw == self.to && self.kinds.contains(&gid.kind);
        let own = gids.iter().find(is_own).and_then(|gid| u8::try_from(gid.index).ok());
        Ok(GlobalRoute {
            dgid: self.from,
            sgid_index: own.ok_or(NoRoute::NotOurs)?,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            ..GlobalRoute::new_zeroed()
        })
    }
}

/// Whether the destination of a packet is a multicast group: no table of GIDs contains one.
fn is_multicast(to: &[u8; 16]) -> bool {
    to[0] == 0xff || (to[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] && to[12] >> 4 == 0xe)
}

/// The next header of IPv6 for UDP.
const NEXT_IS_UDP: u8 = 17;
/// The next header of IPv6 for the headers of InfiniBand's transport, also in RoCE version 1 (`IB_GRH_NEXT_HDR`, ib_pack.h, Linux 6.1).
const NEXT_IS_TRANSPORT: u8 = 0x1b;

/// Whether the checksum of an IPv4 header is correct.
fn checksum_is_good(header: &[u8]) -> bool {
    let words = header.as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// A destination for datagrams.
///
/// Cheap to clone; destroyed when the last clone and the last posted request with it are gone.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_ah")]
pub struct AddressHandle(Arc<AddressHandleCore>);

#[derive(Debug)]
struct AddressHandleCore {
    object: Object,
    address: Address,
    _pd: ProtectionDomain,
}

impl ProtectionDomain {
    /// Creates an address handle for a route.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a port or GID index that the device does not have.
    ///
    /// # Kernel
    /// `CREATE_AH` through `INVOKE_WRITE` (ib_uverbs_create_ah, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, route: &Route) -> Result<AddressHandle> {
        self.make_ah(route.attr())
    }

    pub(crate) fn make_ah(&self, attr: AhAttr) -> Result<AddressHandle> {
        let op = "ah.create";
        let context = self.context();
        let mut plan = context.driver().plan_ah(op, &attr)?;
        let request = CreateAh { pd_handle: self.id(), attr, ..CreateAh::new_zeroed() };
        let mut response = CreateAhResp::new_zeroed();
        let mut command = Command::write(op, cmd::CREATE_AH);
        command
            .input(CORE_IN, &request)
            .output(CORE_OUT, response.as_mut_bytes())
            .driver_payload(plan.payload());
        let grh = &attr.grh;
        context.invoke(&mut command).map_err(|error| {
            let error = unreachable(error, grh.sgid_index, &grh.dgid);
            if error.kind() != ErrorKind::InvalidInput {
                return error;
            }
            let hint = context.no_such_gid(attr.port_num, grh.sgid_index.into());
            error.hinted(
                hint.unwrap_or_else(|| "the GID at this index cannot reach the destination".to_owned()),
            )
        })?;
        let object = Object::new(context, Kind::Ah, response.ah_handle);
        let inner = AddressHandleCore { object, address: plan.address(), _pd: self.clone() };
        Ok(AddressHandle(Arc::new(inner)))
    }
}

impl AddressHandle {
    /// Identifies this address handle while it exists. Clones have the same key.
    #[inline]
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Number of clones, including this one.
    #[cfg(test)]
    pub(crate) fn owners(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// The open device to which the address handle belongs.
    pub fn context(&self) -> &Context {
        self.0.object.context()
    }

    /// The part of the address handle that datagrams contain.
    #[inline]
    pub(crate) fn address(&self) -> &Address {
        &self.0.address
    }

    /// Destroys the address handle and reports any error.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a clone exists, or a posted request with it whose slot has not been used again.
    #[doc(alias = "ibv_destroy_ah")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::get_mut(&mut self.0) else {
            let error =
                object::shared("ah.destroy", "a clone or a posted request still has the address handle");
            return Err((self, error));
        };
        inner.object.release().map_err(|error| (self, error))
    }
}

#[cfg(feature = "raw")]
impl ProtectionDomain {
    /// Creates an address handle for a route in the kernel's format.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_ah`].
    pub fn create_ah_from(&self, attr: AhAttr) -> Result<AddressHandle> {
        self.make_ah(attr)
    }
}

#[cfg(feature = "raw")]
impl AddressHandle {
    /// The kernel's handle.
    pub fn handle(&self) -> u32 {
        self.0.object.id()
    }

    /// The part of the address handle that datagrams contain.
    #[inline]
    pub fn driver_address(&self) -> &Address {
        self.address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u32, raw: [u8; 16], kind: GidKind) -> Gid {
        Gid { raw, port: 1, index, kind, interface: 0 }
    }

    const V4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    const V6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

    /// IPv4 from 192.0.2.7 to 192.0.2.1, after these twenty bytes.
    fn ipv4(first: [u8; 20]) -> [u8; 40] {
        let mut header = [0; 40];
        header[..20].copy_from_slice(&first);
        header[20..].copy_from_slice(&[
            0x45, 0x68, 0, 60, 0, 0, 0x40, 0, 64, 17, 0xb6, 0x40, 192, 0, 2, 7, 192, 0, 2, 1,
        ]);
        header
    }

    #[test]
    fn the_way_back_is_found_in_every_kind_of_header() {
        let gids = [
            gid(0, V6, GidKind::RoceV1),
            gid(1, V6, GidKind::RoceV2),
            gid(2, V4, GidKind::RoceV1),
            gid(3, V4, GidKind::RoceV2),
        ];
        let route = Route::back(1, &gids, &ipv4([0; 20])).unwrap();
        assert_eq!((route.gid_index, route.gid[12..].to_vec()), (3, vec![192, 0, 2, 7]));
        assert_eq!((route.gid[10..12].to_vec(), route.traffic_class), (vec![0xff, 0xff], 0x68));
        // Whatever the first half contains.
        assert_eq!(Route::back(1, &gids, &ipv4([0x60; 20])).unwrap().gid_index, 3);
        let mut header = [0; 40];
        header[..8].copy_from_slice(&[0x6a, 0xb0, 0, 0, 0, 60, 17, 64]);
        header[8..24].copy_from_slice(&[7; 16]);
        header[24..].copy_from_slice(&V6);
        let route = Route::back(1, &gids, &header).unwrap();
        assert_eq!((route.gid_index, route.gid, route.traffic_class), (1, [7; 16], 0xab));
        header[6] = 0x1b;
        assert_eq!(Route::back(1, &gids, &header).unwrap().gid_index, 0);
    }

    #[test]
    fn every_field_is_of_the_header_that_is_valid() {
        let gids = [gid(1, V6, GidKind::RoceV2), gid(3, V4, GidKind::RoceV2)];
        let back = |header: &[u8; 40]| RoutingHeader::parse(header).and_then(|header| header.back(1, &gids));
        // What an IPv6 packet of another hop limit, class and sender has left in the buffer.
        let mut older = [7; 20];
        older[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 60, 17, 9]);
        let mut header = ipv4(older);
        let way = back(&header).unwrap();
        assert_eq!((way.hop_limit, way.traffic_class, way.sgid_index, way.flow_label), (64, 0x68, 3, 0));
        assert_eq!(way.dgid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7]);
        // An IPv6 packet whose addresses look like an IPv4 header, but for the checksum.
        header[24..].copy_from_slice(&V6);
        let way = back(&header).unwrap();
        assert_eq!((way.hop_limit, way.traffic_class, way.sgid_index), (9, 0xab, 1));
        assert_eq!((way.dgid[..12].to_vec(), way.dgid[12]), (vec![7; 12], 0x45));
        // Without an IPv6 header, an IPv4 header is not doubted.
        let mut header = ipv4([0; 20]);
        (header[20], header[30]) = (0x46, 0);
        assert_eq!(back(&header).unwrap().hop_limit, 64);
    }

    #[test]
    fn groups_and_other_protocols_have_no_route_back() {
        let mut header = ipv4([0; 20]);
        header[36] = 239;
        assert_eq!(RoutingHeader::parse(&header), Err(NoRoute::Multicast));
        let error = Route::back(1, &[gid(3, V4, GidKind::RoceV2)], &header).unwrap_err();
        assert!(error.kind() == ErrorKind::NotFound && error.hint().unwrap().contains("multicast"));
        let mut header = [0; 40];
        (header[0], header[6]) = (0x60, 6);
        header[24..].copy_from_slice(&V6);
        assert_eq!(RoutingHeader::parse(&header), Err(NoRoute::NoHeader));
        header[24] = 0xff;
        assert_eq!(RoutingHeader::parse(&header), Err(NoRoute::Multicast));
    }

    #[test]
    fn a_missing_route_names_both_ends() {
        let told = unreachable(Error::kernel("qp.modify", Errno::ENETUNREACH), 3, &V4);
        assert_eq!(
            told.to_string(),
            "qp.modify: failed (ENETUNREACH): no route from GID 3 to 192.0.2.1, or no neighbour answers there; Context::gid_for says \
             which GIDs can be used"
        );
        for errno in [Errno::EINVAL, Errno::ENODEV, Errno::ENOMEM] {
            assert_eq!(unreachable(Error::kernel("qp.modify", errno), 3, &V4).hint(), None);
        }
    }

    #[test]
    fn what_is_no_header_or_for_somebody_else_is_refused() {
        let gids = [gid(3, V4, GidKind::RoceV2)];
        assert_eq!(Route::back(1, &gids, &[0; 40]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(Route::back(2, &gids, &ipv4([0; 20])).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(Route::back(1, &[], &ipv4([0; 20])).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
