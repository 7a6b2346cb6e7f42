//! From an address to a device and a route.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::cm::{ACK_TIMEOUT, ADDR_RESOLVED, ROUTE_RESOLVED, ResolveAddr, TOS};
use uverbs_abi::write::QpAttr;

use super::connect::Connect;
use super::error::{ConnectError, check, status};
use super::id::{Id, is_of_datagrams};
use super::kind::Managed;
use super::shared::{Shared, not_here};
use super::steps::Step;
use super::waiting::Waiting;
use crate::device::Device;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::manager::{ROOM, encode};
use crate::verbs::qp::{QueuePair, Rc, Ud};

const OP: &str = "cm.resolve";

/// The first step of resolving an unknown neighbour, in milliseconds, and the longest. If the neighbour is not known, the kernel may answer
/// only when the time of the step has ended, although the neighbour has answered at once (`addr_resolve` asks for it before `queue_req`
/// lists the request; addr.c, Linux 6.1 and 7.3).
const STEPS: (u32, u32) = (8, 500);

/// How long a neighbour is asked for if the caller sets no shorter deadline.
const PATIENCE: u32 = 10_000;

/// Resolves an address to what the type names: the [`Target`] of a connection or of a look-up, or a [`Group`](super::Group). Created by
/// [`Manager::resolve`](super::Manager::resolve) and by [`Datagrams`](super::Datagrams).
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Resolve<T = Target> {
    pub(super) shared: Arc<Shared>,
    pub(super) destination: SocketAddr,
    pub(super) source: Option<SocketAddr>,
    type_of_service: Option<u8>,
    ack_timeout: Option<u8>,
    found: PhantomData<fn() -> T>,
}

impl<T> Resolve<T> {
    pub(super) fn new(shared: &Arc<Shared>, destination: SocketAddr) -> Self {
        let (shared, found) = (shared.clone(), PhantomData);
        Self { shared, destination, source: None, type_of_service: None, ack_timeout: None, found }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The own address, with port 0 for any port. Without this, the kernel chooses it by its routes.
    #[doc(alias = "rdma_bind_addr")]
    pub fn source(mut self, source: SocketAddr) -> Self {
        self.source = Some(source);
        self
    }
}

impl<T: Managed> Resolve<Target<T>> {
    /// The type of service of the packets, as in an IP header.
    #[doc(alias = "rdma_set_option")]
    pub fn type_of_service(mut self, value: u8) -> Self {
        self.type_of_service = Some(value);
        self
    }

    async fn find(self) -> Result<Target<T>> {
        let ip = self.destination.ip();
        if ip.is_loopback() || ip.is_unspecified() {
            let hint =
                format!("{ip} has no route to an RDMA device: use an address of the device's interface");
            return Err(Error::refused(OP, Errno::EINVAL, hint));
        }
        if self.source.is_some_and(|source| source.is_ipv4() != self.destination.is_ipv4()) {
            let hint = "the own address and the destination are of different families";
            return Err(Error::refused(OP, Errno::EINVAL, hint));
        }
        if ip.is_multicast() {
            let hint = format!("{ip} is the address of a group: join it with `Datagrams::group`");
            return Err(Error::refused(OP, Errno::EINVAL, hint));
        }
        let options = [(TOS, self.type_of_service), (ACK_TIMEOUT, self.ack_timeout)];
        let (to, source) = (&self.destination, self.source.as_ref());
        let id = address(&self.shared, T::SPACE, options, to, source, Some(Step::Route)).await?;
        let attributes = id.ask_for_route(OP)?;
        Ok(Target { id, attributes, kind: PhantomData })
    }
}

impl Resolve<Target<Rc>> {
    /// The time to wait for an acknowledgement before a packet is sent again: 4.096 µs * 2^n. Without this, the kernel chooses it.
    #[doc(alias = "rdma_set_option")]
    pub fn ack_timeout(mut self, value: u8) -> Self {
        self.ack_timeout = Some(value);
        self
    }

    /// Resolves the address, and asks for the route, for which [`Connect::establish`] waits. A neighbour that is not known is asked for in
    /// short steps, for ten seconds unless the caller's deadline ends earlier.
    ///
    /// # Errors
    /// [`TimedOut`](ErrorKind::TimedOut) if no host answers, [`NotFound`](ErrorKind::NotFound) if the interface of the route has no RDMA
    /// device, [`InvalidInput`](ErrorKind::InvalidInput) for a loopback address.
    ///
    /// # Kernel
    /// `RESOLVE_ADDR` and `RESOLVE_ROUTE` (ucma.c, Linux 6.1).
    pub fn run<'a>(self) -> Waiting<'a, Target> {
        let shared = self.shared.clone();
        Waiting::new(&shared, OP, self.resolve())
    }

    pub(super) async fn resolve(self) -> Result<Target> {
        self.find().await
    }
}

impl Resolve<Target<Ud>> {
    /// Resolves the address and the route, as [for a connection](Resolve::run).
    ///
    /// # Errors
    /// [`TimedOut`](ErrorKind::TimedOut) if no host answers, [`NotFound`](ErrorKind::NotFound) if the interface of the route has no RDMA
    /// device, [`InvalidInput`](ErrorKind::InvalidInput) for a loopback address or a group, [`Unsupported`](ErrorKind::Unsupported) over
    /// iWARP, which has no datagrams.
    ///
    /// # Kernel
    /// `RESOLVE_ADDR` and `RESOLVE_ROUTE` (ucma.c, Linux 6.1).
    pub fn run<'a>(self) -> Waiting<'a, Target<Ud>> {
        let shared = self.shared.clone();
        Waiting::new(&shared, OP, async {
            let target = self.find().await?;
            is_of_datagrams(OP, &target.attributes)?;
            route(OP, &target.id).await?;
            Ok(target)
        })
    }
}

/// Creates an identifier with these options, and resolves the address, in steps of time. `then` follows the answer.
pub(super) async fn address<const N: usize>(
    shared: &Arc<Shared>,
    space: (u16, u8),
    options: [(u32, Option<u8>); N],
    destination: &SocketAddr,
    source: Option<&SocketAddr>,
    then: Option<Step>,
) -> Result<Id> {
    // Made where it is sent: the future would have to keep it.
    let request = |id: u32, timeout_ms: u32| {
        let (dst_size, dst_addr) = encode(destination);
        let (src_size, src_addr) = source.map(encode).unwrap_or((0, [0; ROOM]));
        ResolveAddr { id, timeout_ms, src_size, src_addr, dst_size, dst_addr, ..ResolveAddr::default() }
    };
    let (mut step, mut spent) = (STEPS.0, 0);
    let (id, mut is_asked) = if options.iter().all(|(_, value)| value.is_none()) {
        Id::create_for(shared, OP, space, &request(0, step))?
    } else {
        let id = Id::create(shared, OP, space)?;
        for (option, value) in options {
            if let Some(value) = value {
                shared.set_option(OP, id.id, option, &[value])?;
            }
        }
        (id, false)
    };
    loop {
        if !std::mem::take(&mut is_asked) {
            id.request(OP, &request(id.id, step)).map_err(|error| match source {
                Some(source) => not_here(error, source),
                None => {
                    error.hinted_if(ErrorKind::InvalidInput, "no RDMA device has a route to this address")
                }
            })?;
        }
        let event = loop {
            let event = match then {
                Some(then) => id.event_before(OP, then).await?,
                None => id.event(OP).await?,
            };
            if event.event == ADDR_RESOLVED {
                return Ok(id);
            }
            if check(OP, &event).is_err() {
                break event;
            }
        };
        spent += step;
        if status(&event) != -(Errno::ETIMEDOUT as i32) || spent >= PATIENCE {
            check(OP, &event)?;
        }
        step = (2 * step).min(STEPS.1);
    }
}

/// Waits for the route.
pub(super) async fn route(op: &'static str, id: &Id) -> Result<(), ConnectError> {
    loop {
        let event = id.event(op).await?;
        check(op, &event)?;
        if event.event == ROUTE_RESOLVED {
            return Ok(());
        }
    }
}

/// A resolved destination: its device, and the route to it, which may still be looked for. It is used for one connection, or with [`Ud`]
/// for one look-up.
#[derive(Debug)]
pub struct Target<T: Managed = Rc> {
    pub(super) id: Id,
    /// Those of the queue pair for the state INIT.
    attributes: QpAttr,
    kind: PhantomData<T>,
}

impl<T: Managed> Target<T> {
    /// The device through which the destination is reached, and its port.
    ///
    /// # Errors
    /// Those of listing the devices.
    pub fn device(&self) -> Result<(Device, u8)> {
        self.id.device(OP)
    }

    /// The own address and that of the destination.
    ///
    /// # Errors
    /// [`Disassociated`](ErrorKind::Disassociated) if the device has gone.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_src_port")]
    #[doc(alias = "rdma_get_dst_port")]
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        self.id.addresses(OP)
    }
}

impl Target<Rc> {
    /// Prepares a connection of this queue pair, which must be new and belong to the [device](Self::device). It can then receive, so
    /// receives can be posted before the connection is established.
    ///
    /// # Errors
    /// Those of [`QueuePair::modify`].
    #[doc(alias = "rdma_connect")]
    pub fn connect(self, qp: QueuePair<Rc>) -> Result<Connect> {
        Connect::new(self.id, &self.attributes, qp)
    }
}
