//! Connections: RDMA connection management over the kernel's `/dev/infiniband/rdma_cm`, without librdmacm.
//!
//! A [`Manager`] resolves an address to a device and a route, connects queue pairs, and listens for connections of others. It is the only way
//! to connect a queue pair over iWARP, and on InfiniBand and RoCE it replaces an exchange of addresses of one's own.
//!
//! ```
//! use std::time::Duration;
//! use uverbs::cm::SoftNetwork;
//! use uverbs::{Context, QueuePair, Rc, SoftDevice};
//!
//! const PATIENCE: Duration = Duration::from_secs(5);
//!
//! fn queue_pair(context: &Context) -> uverbs::Result<QueuePair<Rc>> {
//!     context.alloc_pd()?.rc(&context.create_cq(16)?).create()
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // On a machine with RDMA devices: let manager = uverbs::cm::Manager::open()?;
//! let (network, device) = (SoftNetwork::default(), SoftDevice::default());
//! network.join(&device, "10.0.0.1".parse()?)?;
//! network.join(&device, "10.0.0.2".parse()?)?;
//! let manager = network.manager()?;
//!
//! let listener = manager.listen("10.0.0.2:7174".parse()?)?;
//! let server = std::thread::spawn(move || {
//!     let incoming = listener.next().within(PATIENCE)?;
//!     assert!(incoming.private_data().starts_with(b"hello"));
//!     let qp = queue_pair(&incoming.device()?.0.open()?)?;
//!     let connection = incoming.accept(qp)?.private_data(b"welcome")?.establish().within(PATIENCE)?;
//!     connection.closed().within(PATIENCE) // which also answers the other side's end
//! });
//!
//! let target = manager.resolve("10.0.0.2:7174".parse()?).run().within(PATIENCE)?;
//! let qp = queue_pair(&target.device()?.0.open()?)?;
//! let mut connection = target.connect(qp)?.private_data(b"hello")?.establish().within(PATIENCE)?;
//! assert!(connection.private_data().starts_with(b"welcome"));
//! connection.disconnect().within(PATIENCE)?;
//! # assert_eq!(server.join().expect("the server")?, uverbs::cm::Closed::Disconnected);
//! # Ok(())
//! # }
//! ```
//!
//! # Waiting
//! A call that waits for the peer returns a [`Waiting`]: nothing happens before [`within`](Waiting::within) is called or, with feature
//! `tokio`, it is awaited. Dropping it cancels the call. Whoever waits reads the manager's events and hands others theirs, so there is no
//! thread and no file for each connection.
//!
//! # Datagrams
//! [`Manager::datagrams`] looks queue pairs for datagrams up by an address, answers such look-ups, and joins multicast groups; there is an
//! example at [`Datagrams`].
//!
//! # What cannot be done wrong
//! Each step takes over what the earlier one left: a [`Connect`] owns its identifier and its queue pair until it is established or dropped,
//! an [`Incoming`] is either accepted or rejected, once, and a [`Connection`] destroys its identifier before its queue pair.

mod beside;
mod call;
mod connect;
mod connection;
mod datagrams;
mod dispatch;
mod error;
mod helper;
mod id;
mod incoming;
mod kind;
mod listener;
mod manager;
mod messages;
#[cfg(all(test, uverbs_loom))]
#[path = "dispatch/tests.rs"]
mod model;
mod parameters;
mod resolve;
mod shared;
mod sleeper;
mod steps;
#[cfg(feature = "tokio")]
mod task;
mod waiting;
mod wakers;

pub use self::connect::Connect;
pub use self::connection::{Closed, Connection, Link};
pub use self::datagrams::{Answer, Datagrams, Destination, Group, Join, LookUp, Lost, Membership, Service};
pub use self::error::{ConnectError, Reason, Rejection};
pub use self::incoming::{Accept, Incoming, Notifier};
pub use self::kind::Managed;
pub use self::listener::{Listener, ListenerBuilder};
pub use self::manager::Manager;
pub use self::messages::{Message, Messages, MessagesBuilder};
pub use self::resolve::{Resolve, Target};
pub use self::waiting::Waiting;
pub use crate::kernel::manager::{ManagerCommand as Command, Watcher};
#[cfg(feature = "soft")]
pub use crate::soft::SoftNetwork;
