//! Waiting for connections of others.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::cm::{AFONLY, CONNECT_REQUEST, DEVICE_REMOVAL, Listen, REUSEADDR};

use super::id::Id;
use super::incoming::Incoming;
use super::kind::Managed;
use super::manager::bind;
use super::shared::Shared;
use super::waiting::Waiting;
use crate::kernel::error::{Error, Result};
use crate::verbs::qp::Rc;

const OP: &str = "cm.listen";

/// A listener that is about to be created, by [`Manager::listener`](super::Manager::listener) or
/// [`Datagrams::listener`](super::Datagrams::listener).
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `listen`"]
pub struct ListenerBuilder<T: Managed = Rc> {
    shared: Arc<Shared>,
    address: SocketAddr,
    backlog: u32,
    reuses_address: bool,
    only_family: bool,
    kind: PhantomData<fn() -> T>,
}

impl<T: Managed> ListenerBuilder<T> {
    pub(super) fn new(shared: &Arc<Shared>, address: SocketAddr) -> Self {
        let (shared, kind) = (shared.clone(), PhantomData);
        Self { shared, address, backlog: 0, reuses_address: false, only_family: false, kind }
    }

    /// Maximum number of requests that wait to be taken. Without this, or with 0, as many as the kernel allows. On InfiniBand and RoCE the
    /// requests of others are dropped, and repeated by their kernels; on iWARP they are refused, and so are look-ups everywhere.
    pub fn backlog(mut self, requests: u32) -> Self {
        self.backlog = requests;
        self
    }

    /// The address may also be bound by others that set this. Only one of them can listen at a time.
    #[doc(alias = "rdma_set_option")]
    pub fn reuse_address(mut self) -> Self {
        self.reuses_address = true;
        self
    }

    /// A listener on `::` does not take connections over IPv4.
    #[doc(alias = "rdma_set_option")]
    pub fn only_family(mut self) -> Self {
        self.only_family = true;
        self
    }

    /// Listens.
    ///
    /// # Errors
    /// `EADDRINUSE` if another listener has the port, `EADDRNOTAVAIL` if the address is not of this host,
    /// [`NotFound`](crate::ErrorKind::NotFound) if it is not of an RDMA device, and [`InvalidInput`](crate::ErrorKind::InvalidInput) for a
    /// loopback address, which the kernel would take for any address. Datagrams over iWARP are
    /// [`Unsupported`](crate::ErrorKind::Unsupported).
    ///
    /// # Kernel
    /// `BIND` and `LISTEN`, for datagrams also `INIT_QP_ATTR` (ucma.c, Linux 6.1).
    pub fn listen(self) -> Result<Listener<T>> {
        let ip = self.address.ip();
        if ip.is_loopback() {
            let hint = format!(
                "the kernel takes {ip} for any address: use 0.0.0.0 or ::, or the address of the device's interface"
            );
            return Err(Error::refused(OP, Errno::EINVAL, hint));
        }
        let id = Id::create(&self.shared, OP, T::SPACE)?;
        for (option, is_set) in [(REUSEADDR, self.reuses_address), (AFONLY, self.only_family)] {
            if is_set {
                self.shared.set_option(OP, id.id, option, &1_i32.to_ne_bytes())?;
            }
        }
        bind(&id, OP, &self.address)?;
        if T::IS_DATAGRAM && !ip.is_unspecified() {
            id.has_datagrams(OP)?;
        }
        id.request(OP, &Listen { id: id.id, backlog: self.backlog })?;
        Ok(Listener { id, kind: PhantomData })
    }
}

/// A listener. Dropping it ends it, and refuses the requests that nobody has taken.
#[derive(Debug)]
#[doc(alias = "rdma_cm_id")]
#[doc(alias = "rdma_destroy_id")]
#[doc(alias = "rdma_destroy_ep")]
pub struct Listener<T: Managed = Rc> {
    id: Id,
    kind: PhantomData<fn() -> T>,
}

impl<T: Managed> Listener<T> {
    /// Waits for the next request. Several threads and tasks can wait at the same time; each gets another request.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the listener's address has gone with its device.
    #[doc(alias = "rdma_get_request")]
    #[doc(alias = "rdma_get_cm_event")]
    pub fn next(&self) -> Waiting<'_, Incoming<T>> {
        Waiting::new(&self.id.shared, "cm.next", self.take())
    }

    async fn take(&self) -> Result<Incoming<T>> {
        loop {
            let event = self.id.event("cm.next").await?;
            match event.event {
                CONNECT_REQUEST => return Ok(Incoming::new(Id::adopt(&self.id.shared, event.id), &event)),
                DEVICE_REMOVAL => return Err(Error::device_gone("cm.next")),
                _ => {}
            }
        }
    }

    /// The address on which it listens, with the port that the kernel has chosen.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the address has gone with its device.
    #[doc(alias = "rdma_get_src_port")]
    #[doc(alias = "rdma_get_local_addr")]
    pub fn address(&self) -> Result<SocketAddr> {
        let answer = self.id.query("cm.address")?;
        crate::kernel::manager::decode(&answer.src_addr)
            .ok_or_else(|| Error::malformed("cm.address", "an address that is neither of IPv4 nor of IPv6"))
    }
}
