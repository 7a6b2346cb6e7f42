//! An established connection.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker, ready};

use nix::errno::Errno;
use uverbs_abi::cm::{DEVICE_REMOVAL, DISCONNECTED, Disconnect, EventResp, UNREACHABLE};

use super::call::Call;
use super::error::status;
use super::id::Id;
use super::manager::Manager;
use super::parameters::Parameters;
use super::waiting::Waiting;
use crate::device::Device;
use crate::kernel::error::{ErrorKind, Result};
use crate::verbs::qp::{QueuePair, Rc};

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Closed {
    /// One of the sides has disconnected, and the other one has answered.
    Disconnected,
    /// This side has disconnected, and the other one did not answer.
    Unanswered,
    /// The device was removed.
    DeviceGone,
    /// The other side has another hardware address now, so that packets no longer reach it.
    NeighbourLost,
}

impl Closed {
    fn of(event: &EventResp) -> Option<Self> {
        match event.event {
            DISCONNECTED if status(event) == -(Errno::ETIMEDOUT as i32) => Some(Self::Unanswered),
            DISCONNECTED => Some(Self::Disconnected),
            DEVICE_REMOVAL => Some(Self::DeviceGone),
            UNREACHABLE => Some(Self::NeighbourLost),
            _ => None,
        }
    }
}

/// A connection, with its queue pair. Dropping it disconnects: the other side learns of it at once.
#[derive(Debug)]
#[doc(alias = "rdma_cm_id")]
#[doc(alias = "rdma_destroy_id")]
#[doc(alias = "rdma_destroy_ep")]
#[doc(alias = "rdma_destroy_qp")]
pub struct Connection {
    ends: Box<Ends>,
    private_data: Vec<u8>,
}

/// What a connection consists of, from before it is made. It is large and goes from one step to the next, so it stays at one place.
#[derive(Debug)]
pub(super) struct Ends {
    // The identifier is destroyed before the queue pair.
    pub(super) link: Link,
    pub(super) qp: QueuePair<Rc>,
}

/// The part of a connection that is not its queue pair, to wait for its end while the queue pair is used; see [`Connection::parts`].
#[derive(Debug)]
pub struct Link {
    pub(super) id: Id,
    pub(super) is_iwarp: bool,
    closed: Mutex<Option<Closed>>,
    /// Whether this side has ended it.
    has_left: AtomicBool,
}

impl Ends {
    pub(super) fn new(id: Id, qp: QueuePair<Rc>, is_iwarp: bool) -> Box<Self> {
        let link = Link { id, is_iwarp, closed: Mutex::new(None), has_left: AtomicBool::new(false) };
        Box::new(Self { link, qp })
    }
}

impl Link {
    fn ended(&self) -> MutexGuard<'_, Option<Closed>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of the connection. If the other side has ended it, its wait is answered.
    ///
    /// # Errors
    /// Those of reading events.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn closed(&self) -> Waiting<'_, Closed> {
        Waiting::new(&self.id.shared, "cm.closed", self.end("cm.closed"))
    }

    async fn end(&self, op: &'static str) -> Result<Closed> {
        let mut call = self.id.call();
        poll_fn(|context| self.poll_end(op, &mut call, context.waker())).await
    }

    /// Whether the connection has ended. If not, the waker is called when there is an event, which whoever waits must read.
    pub(super) fn poll_end(
        &self,
        op: &'static str,
        call: &mut Call<'_>,
        waker: &Waker,
    ) -> Poll<Result<Closed>> {
        loop {
            if let Some(closed) = *self.ended() {
                return Poll::Ready(Ok(closed));
            }
            let event = ready!(call.poll(op, waker))?;
            let Some(closed) = Closed::of(&event) else { continue };
            *self.ended() = Some(closed);
            if closed == Closed::Disconnected && !self.is_iwarp && !self.has_left.load(Ordering::Relaxed) {
                // The answer to the other side's end. After an end of our own the event is the other side's answer; if it has left at the
                // same time, it has its own event.
                let _ = self.id.request(op, &Disconnect { id: self.id.id });
            }
            // Another waiter may have looked between the two and sleep: this wakes it.
            self.id.shared.give_back(event);
        }
    }

    /// Ends the connection, and waits until the other side has answered; see [`Connection::disconnect`]. The queue pair is the caller's:
    /// end it before, as [`QueuePair::drain`] does.
    ///
    /// # Errors
    /// Those of reading events.
    ///
    /// # Kernel
    /// `DISCONNECT` (ucma.c, Linux 6.1).
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Waiting<'_, Closed> {
        Waiting::new(&self.id.shared, "cm.disconnect", self.leave("cm.disconnect"))
    }

    async fn leave(&self, op: &'static str) -> Result<Closed> {
        if self.ended().is_none() {
            match self.id.request(op, &Disconnect { id: self.id.id }) {
                // The connection has ended in the meantime: the event says how.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {}
                Err(error) if error.kind() == ErrorKind::Disassociated => {}
                other => {
                    other?;
                    self.has_left.store(true, Ordering::Relaxed);
                }
            }
        }
        self.end(op).await
    }

    /// The own address and that of the other side.
    ///
    /// # Errors
    /// [`Disassociated`](ErrorKind::Disassociated) if the device has gone.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        self.id.addresses("cm.addresses")
    }

    /// The device, and its port.
    ///
    /// # Errors
    /// [`Disassociated`](ErrorKind::Disassociated) if the device has gone.
    pub fn device(&self) -> Result<(Device, u8)> {
        self.id.device("cm.device")
    }
}

impl Connection {
    pub(super) fn new(ends: Box<Ends>, private_data: Vec<u8>) -> Self {
        Self { ends, private_data }
    }

    /// The queue pair.
    pub fn queue_pair(&mut self) -> &mut QueuePair<Rc> {
        &mut self.ends.qp
    }

    /// The queue pair, and the rest, to use both at the same time.
    pub fn parts(&mut self) -> (&mut QueuePair<Rc>, &Link) {
        (&mut self.ends.qp, &self.ends.link)
    }

    /// The queue pair, and the rest, to use them apart: with `Requests` of feature `tokio`, for example. The connection ends when the rest is
    /// dropped, which should be before the queue pair.
    pub fn into_parts(self) -> (QueuePair<Rc>, Link) {
        let Ends { link, qp } = *self.ends;
        (qp, link)
    }

    pub(super) fn link(&self) -> &Link {
        &self.ends.link
    }

    /// The number of its identifier.
    pub(super) fn uid(&self) -> u64 {
        self.ends.link.id.uid
    }

    /// The data of the program at the other side: of its reply, or at the side that has accepted of its request. On InfiniBand and RoCE it
    /// has its maximum length, padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The own address and that of the other side.
    ///
    /// # Errors
    /// As [`Link::addresses`].
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        self.ends.link.addresses()
    }

    /// The device, and its port.
    ///
    /// # Errors
    /// As [`Link::device`].
    pub fn device(&self) -> Result<(Device, u8)> {
        self.ends.link.device()
    }

    /// Whether the port is one of iWARP, where a send must come from the side that has connected first.
    pub fn is_iwarp(&self) -> bool {
        self.ends.link.is_iwarp
    }

    /// Waits for the end of the connection; see [`Link::closed`].
    ///
    /// # Errors
    /// As [`Link::closed`].
    pub fn closed(&self) -> Waiting<'_, Closed> {
        self.ends.link.closed()
    }

    /// Moves the connection to another manager, with its events. Who waits for it reads the events of that manager then.
    ///
    /// ```
    /// # use uverbs::{SoftDevice, cm::SoftNetwork};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (network, patience) = (SoftNetwork::default(), std::time::Duration::from_secs(5));
    /// # let device = SoftDevice::default();
    /// # network.join(&device, "10.0.0.1".parse()?)?;
    /// # let manager = network.manager()?;
    /// # let queue_pair = || -> uverbs::Result<_> {
    /// #     let context = device.open()?;
    /// #     context.alloc_pd()?.rc(&context.create_cq(4)?).create()
    /// # };
    /// # let listener = manager.listen("10.0.0.1:7174".parse()?)?;
    /// # let target = manager.resolve("10.0.0.1:7174".parse()?).run().within(patience)?;
    /// # let connect = target.connect(queue_pair()?)?;
    /// # let client = std::thread::spawn(move || connect.establish().within(patience));
    /// let mut connection = listener.next().within(patience)?.accept(queue_pair()?)?.establish().within(patience)?;
    /// let other = network.manager()?;
    /// connection.move_to(&other)?;
    /// # let client = client.join().expect("the client")?;
    /// # drop(client);
    /// connection.closed().within(patience)?; // reads the other manager's events
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if one manager is the kernel's and the other one of a soft network,
    /// [`Disassociated`](ErrorKind::Disassociated) if the device has gone. The connection stays where it was.
    ///
    /// # Kernel
    /// `MIGRATE_ID` (ucma.c, Linux 6.1).
    #[doc(alias = "rdma_migrate_id")]
    pub fn move_to(&mut self, manager: &Manager) -> Result<()> {
        self.ends.link.id.move_to("cm.move", &manager.0)
    }

    /// Ends the connection, and waits until the other side has answered. Everything posted completes as flushed.
    ///
    /// The other side's program answers when it waits for the end ([`closed`](Self::closed)), disconnects too, or drops its connection.
    ///
    /// # Errors
    /// Those of [`QueuePair::modify`].
    ///
    /// # Kernel
    /// `DISCONNECT` (ucma.c, Linux 6.1).
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&mut self) -> Waiting<'_, Closed> {
        let shared = self.ends.link.id.shared.clone();
        Waiting::new(&shared, "cm.disconnect", self.leave("cm.disconnect"))
    }

    async fn leave(&mut self, op: &'static str) -> Result<Closed> {
        if self.ends.link.ended().is_none() {
            Parameters::end(self.ends.link.is_iwarp, &mut self.ends.qp)?;
        }
        self.ends.link.leave(op).await
    }
}
