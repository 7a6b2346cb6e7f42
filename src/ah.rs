//! Address handles: where datagrams go.

use std::sync::Arc;

use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::rxe::CreateAhResp as Driver;
use uverbs_abi::write::{AhAttr, CreateAh, CreateAhResp, GlobalRoute, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::command::Command;
use crate::error::{ErrorKind, Result};
use crate::object::{Kind, Object};
use crate::pd::ProtectionDomain;

/// The way from a port of this device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_ah_attr")]
pub struct Route {
    /// GID of the other port.
    pub gid: [u8; 16],
    /// Index of the own GID in the port's table.
    pub gid_index: u8,
    /// Own port, from 1.
    pub port: u8,
    /// Hop limit; 64 if not changed.
    pub hop_limit: u8,
    /// Traffic class; 0 if not changed.
    pub traffic_class: u8,
    /// Service level; 0 if not changed.
    pub service_level: u8,
    /// Local identifier of the other port; only InfiniBand has one.
    pub lid: u16,
}

impl Route {
    /// The way to the port with the GID `gid`, from `port` with its GID at `gid_index`.
    pub fn new(port: u8, gid_index: u8, gid: [u8; 16]) -> Self {
        Self { gid, gid_index, port, hop_limit: 64, traffic_class: 0, service_level: 0, lid: 0 }
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
        AhAttr { grh, dlid, sl, port_num, is_global: 1, ..AhAttr::new_zeroed() }
    }
}

/// A place that datagrams can be sent to.
///
/// Cheap to clone; destroyed when the last clone and the last posted request with it are gone.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_ah")]
pub struct AddressHandle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    _object: Object,
    number: u32,
    _pd: ProtectionDomain,
}

impl ProtectionDomain {
    /// Makes an address handle for a way to another port.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a port or GID index that the device does not have.
    ///
    /// # Kernel
    /// `CREATE_AH` by `INVOKE_WRITE` (ib_uverbs_create_ah, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, route: &Route) -> Result<AddressHandle> {
        let op = "ah.create";
        let context = self.context();
        context.provider().needs_rings(op)?;
        let request = CreateAh { pd_handle: self.id(), attr: route.attr(), ..CreateAh::new_zeroed() };
        let mut response = CreateAhResp::new_zeroed();
        let mut driver = Driver::new_zeroed();
        let mut command = Command::write(op, cmd::CREATE_AH);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        command.driver_output(driver.as_mut_bytes());
        context.invoke(&mut command).map_err(|error| {
            error.hinted_if(ErrorKind::InvalidInput, "check port and GID index against the GID table")
        })?;
        let object = Object::new(context, Kind::Ah, response.ah_handle);
        let inner = Inner { _object: object, number: driver.ah_num, _pd: self.clone() };
        Ok(AddressHandle(Arc::new(inner)))
    }
}

impl AddressHandle {
    /// The driver's number for it, which datagrams carry.
    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }
}
