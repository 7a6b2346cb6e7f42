//! Datagrams: queue pairs that are looked up by an address, and multicast groups.

mod answer;
mod destination;
mod group;
mod look_up;
mod ready;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use self::answer::Answer;
pub use self::destination::Destination;
pub use self::group::{Group, Join, Lost, Membership};
pub use self::look_up::{LookUp, Service};
use super::listener::{Listener, ListenerBuilder};
use super::resolve::{Resolve, Target};
use super::shared::Shared;
use crate::kernel::error::Result;
use crate::verbs::qp::Ud;

/// Queue pairs for datagrams: look-ups of those of others by address and port, answers to look-ups, and multicast groups. Created by
/// [`Manager::datagrams`](super::Manager::datagrams).
///
/// A look-up asks the program that listens at an address for the number of a queue pair. It makes no connection: nothing tells that the
/// other side has gone.
///
/// ```
/// use std::time::Duration;
/// use uverbs::cm::SoftNetwork;
/// use uverbs::{Context, QueuePair, ReceiveRequest, SendRequest, SoftDevice, Ud};
///
/// const PATIENCE: Duration = Duration::from_secs(5);
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // On a machine with RDMA devices: let manager = uverbs::cm::Manager::open()?;
/// let (network, device) = (SoftNetwork::default(), SoftDevice::default());
/// network.join(&device, "10.0.0.1".parse()?)?;
/// let datagrams = network.manager()?.datagrams();
///
/// let listener = datagrams.listen("10.0.0.1:7174".parse()?)?;
/// let server = std::thread::spawn(move || {
///     let incoming = listener.next().within(PATIENCE)?;
///     let context = incoming.device()?.0.open()?;
///     let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(4)?);
///     let mut qp = pd.ud(&cq).create()?;
///     let memory = pd.register(64, uverbs::AccessFlags::LOCAL_WRITE)?;
///     let answer = incoming.accept(&mut qp)?.private_data(b"welcome")?;
///     qp.post_receive(&[ReceiveRequest::new(1, &[memory.segment(..)?])])?;
///     answer.send()?;
///     let mut batch = uverbs::Completion::batch::<1>();
///     while cq.poll(&mut batch) == 0 {}
///     let mut text = [0; 5];
///     memory.read(40, &mut text)?; // after the routing header
///     Ok::<_, uverbs::Error>(text)
/// });
///
/// let target = datagrams.resolve("10.0.0.1:7174".parse()?).run().within(PATIENCE)?;
/// let context = target.device()?.0.open()?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(4)?);
/// let mut qp = pd.ud(&cq).inline(16).create()?;
/// let service = target.look_up(&mut qp)?.private_data(b"hello")?.run().within(PATIENCE)?;
/// assert!(service.private_data.starts_with(b"welcome"));
/// qp.post_send(&[SendRequest::inline(1, service.destination.datagram(), b"hello")])?;
/// assert_eq!(&server.join().expect("the server")?, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Datagrams(Arc<Shared>);

impl Datagrams {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(shared.clone())
    }

    /// Finds the device and the route to an address, to look up a queue pair there.
    #[doc(alias = "rdma_resolve_addr")]
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve(&self, destination: SocketAddr) -> Resolve<Target<Ud>> {
        Resolve::new(&self.0, destination)
    }

    /// Listens for look-ups at an own address, or at all of them with `0.0.0.0` or `::`. With port 0 the kernel chooses one. The ports are not
    /// those of connections.
    ///
    /// # Errors
    /// Those of [`ListenerBuilder::listen`].
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, address: SocketAddr) -> Result<Listener<Ud>> {
        self.listener(address).listen()
    }

    /// A listener with options.
    pub fn listener(&self, address: SocketAddr) -> ListenerBuilder<Ud> {
        ListenerBuilder::new(&self.0, address)
    }

    /// Finds the device for a multicast group: that of the kernel's route to the group, or that of the own address which
    /// [`Resolve::source`] sets.
    pub fn group(&self, group: IpAddr) -> Resolve<Group> {
        Resolve::new(&self.0, SocketAddr::new(group, 0))
    }
}
