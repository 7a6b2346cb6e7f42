//! The connection manager.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use uverbs_abi::cm::Bind;

use super::datagrams::Datagrams;
use super::id::Id;
use super::kind::sealed::Kind;
use super::listener::{Listener, ListenerBuilder};
use super::resolve::Resolve;
use super::shared::{Shared, not_here};
use crate::device::Device;
use crate::kernel::error::Result;
use crate::kernel::manager::{ManagerFile, RdmaCm, WatchedFile, Watcher, encode};
use crate::verbs::qp::Rc;

/// The connection manager: one file of the kernel's for any number of connections.
///
/// Clones are the same manager. It belongs to the process that opened it: in a child of `fork`, and after the process has changed its
/// user, the kernel refuses everything, and another one is to be opened. Await the calls of one manager in one runtime.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_event_channel")]
#[doc(alias = "rdma_destroy_event_channel")]
pub struct Manager(pub(super) Arc<Shared>);

impl Manager {
    /// Opens the kernel's connection manager.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the module `rdma_ucm` is not loaded.
    ///
    /// # Kernel
    /// `/dev/infiniband/rdma_cm`, which every user may open (ucma.c, Linux 6.1).
    #[doc(alias = "rdma_create_event_channel")]
    pub fn open() -> Result<Self> {
        Ok(Self::of_kernel(Box::new(RdmaCm::open("cm.open")?)))
    }

    /// Opens the kernel's connection manager, with a watcher of its commands.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(watcher: impl Watcher + 'static) -> Result<Self> {
        let file = Box::new(RdmaCm::open("cm.open")?);
        Ok(Self::of_kernel(Box::new(WatchedFile::new(file, watcher))))
    }

    fn of_kernel(file: Box<dyn ManagerFile>) -> Self {
        let find = |index| crate::device::device_at("cm.device", index);
        Self(Shared::new(file, Box::new(find)))
    }

    /// Finds the device and the route to an address, to connect to it.
    #[doc(alias = "rdma_resolve_addr")]
    #[doc(alias = "rdma_resolve_route")]
    #[doc(alias = "rdma_getaddrinfo")]
    #[doc(alias = "rdma_create_id")]
    #[doc(alias = "rdma_create_ep")]
    pub fn resolve(&self, destination: SocketAddr) -> Resolve {
        Resolve::new(&self.0, destination)
    }

    /// Listens on an own address, or on all of them with `0.0.0.0` or `::`. With port 0 the kernel chooses one.
    ///
    /// # Errors
    /// Those of [`ListenerBuilder::listen`].
    #[doc(alias = "rdma_listen")]
    #[doc(alias = "rdma_create_ep")]
    pub fn listen(&self, address: SocketAddr) -> Result<Listener> {
        self.listener(address).listen()
    }

    /// A listener with options.
    #[doc(alias = "rdma_create_id")]
    #[doc(alias = "rdma_bind_addr")]
    pub fn listener(&self, address: SocketAddr) -> ListenerBuilder {
        ListenerBuilder::new(&self.0, address)
    }

    /// Look-ups of queue pairs for datagrams, and multicast groups.
    pub fn datagrams(&self) -> Datagrams {
        Datagrams::new(&self.0)
    }

    /// The device that has an IP address of this host, and its port.
    ///
    /// ```
    /// # use uverbs::{SoftDevice, cm::SoftNetwork};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let network = SoftNetwork::default();
    /// # network.join(&SoftDevice::default(), "10.0.0.1".parse()?)?;
    /// # let manager = network.manager()?;
    /// let (device, port) = manager.device_of("10.0.0.1".parse()?)?;
    /// assert_eq!(port, 1);
    /// # assert_eq!(device.name(), "soft0");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if no RDMA device has the address.
    pub fn device_of(&self, address: IpAddr) -> Result<(Device, u8)> {
        let op = "cm.device_of";
        let id = Id::create(&self.0, op, Rc::SPACE)?;
        let address = SocketAddr::new(address, 0);
        bind(&id, op, &address)?;
        id.device(op)
    }
}

/// Binds an identifier to an own address.
pub(super) fn bind(id: &Id, op: &'static str, address: &SocketAddr) -> Result<()> {
    let (addr_size, addr) = encode(address);
    let request = Bind { id: id.id, addr_size, addr, ..Bind::default() };
    id.request(op, &request).map_err(|error| not_here(error, address))
}

#[cfg(feature = "soft")]
impl crate::soft::SoftNetwork {
    /// A manager of this network, which takes the place of the kernel's.
    ///
    /// # Errors
    /// Those of `pipe(2)`, and in a child of `fork` a refusal.
    pub fn manager(&self) -> Result<Manager> {
        Ok(self.managed_by(Box::new(self.open("cm.open")?)))
    }

    /// A manager of this network, with a watcher of its commands.
    ///
    /// # Errors
    /// As [`manager`](Self::manager).
    pub fn manager_with(&self, watcher: impl Watcher + 'static) -> Result<Manager> {
        let file = Box::new(self.open("cm.open")?);
        Ok(self.managed_by(Box::new(WatchedFile::new(file, watcher))))
    }

    fn managed_by(&self, file: Box<dyn ManagerFile>) -> Manager {
        let network = self.clone();
        let find = move |index| network.device(index).map(|device| device.device());
        Manager(Shared::new(file, Box::new(find)))
    }
}
