//! Messages over a connection, with queues and memory of their own.

mod builder;
mod core;
mod flow;
mod queues;
mod wire;

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};

pub use self::builder::MessagesBuilder;
use self::core::Core;
use super::beside::Beside;
use super::call::Call;
use super::error::ConnectError;
use super::incoming::Incoming;
use super::resolve::Resolve;
use super::shared::Shared;
use super::waiting::Waiting;
use crate::device::Device;
use crate::kernel::error::{Error, Result};

const SEND: &str = "cm.send";
const RECV: &str = "cm.recv";
const CLOSE: &str = "cm.close";

/// What one side offers, or what both have agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    /// Maximum number of bytes of a message.
    size: u32,
    /// Number of receives.
    depth: u16,
}

/// A connection on which both sides send messages. It owns the queues and the memory.
///
/// An echo, with threads:
///
/// ```
/// # use uverbs::{SoftDevice, cm::{ConnectError, Messages, SoftNetwork}};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (network, limit) = (SoftNetwork::default(), std::time::Duration::from_secs(5));
/// # network.join(&SoftDevice::default(), "10.0.0.1".parse()?)?;
/// # let manager = network.manager()?;
/// let listener = manager.listen("10.0.0.1:7174".parse()?)?;
/// let server = std::thread::spawn(move || {
///     let messages = Messages::accept(listener.next().within(limit)?).within(limit)?;
///     while let Some(message) = messages.recv().within(limit)? {
///         messages.send(&message).within(limit)?;
///     }
///     Ok::<_, ConnectError>(())
/// });
/// let messages = Messages::connect(manager.resolve("10.0.0.1:7174".parse()?)).within(limit)?;
/// messages.send(b"hello").within(limit)?;
/// assert_eq!(messages.recv().within(limit)?.as_deref(), Some(&b"hello"[..]));
/// messages.close().within(limit)?;
/// # server.join().expect("the server")?;
/// # Ok(())
/// # }
/// ```
///
/// and with tasks of tokio (feature `tokio`):
///
/// ```
/// # use uverbs::{SoftDevice, cm::{ConnectError, Messages, SoftNetwork}};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "tokio")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let network = SoftNetwork::default();
/// # network.join(&SoftDevice::default(), "10.0.0.1".parse()?)?;
/// # let manager = network.manager()?;
/// let listener = manager.listen("10.0.0.1:7174".parse()?)?;
/// let server = tokio::spawn(async move {
///     let messages = Messages::accept(listener.next().await?).await?;
///     while let Some(message) = messages.recv().await? {
///         messages.send(&message).await?;
///     }
///     Ok::<_, ConnectError>(())
/// });
/// let messages = Messages::connect(manager.resolve("10.0.0.1:7174".parse()?)).await?;
/// messages.send(b"hello").await?;
/// assert_eq!(messages.recv().await?.as_deref(), Some(&b"hello"[..]));
/// messages.close().await?;
/// # server.await??;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok(())
/// # }
/// ```
///
/// Messages arrive whole and in their order. Both directions are independent: one thread or task may send while another one receives.
///
/// # Sizes
/// Each side has a maximum size of a message and a number of receives, by default 4096 bytes and 16: see [`builder`](Self::builder). They
/// are told in the private data of the request and the reply. The smaller size holds for both directions, and no side ever sends a message
/// for which the other one has no receive. [`send`](Self::send) waits until it has one.
///
/// # Protocol
/// The private data is `UVMS`, a byte 1 for the version, a zero, the number of receives in 16 bits, and the size in 32. Numbers are in
/// network byte order. Every message is a send, and begins with eight bytes: the kind (0 for a message of the program), three zeros, and the
/// number of messages of the program that its sender allows in all since the beginning, modulo 2^32. Kinds without contents are 1, which
/// only tells this number, 2, after which no message of the program follows, and 3, which answers kind 2. For these, each side has four
/// more receives, so there is a receive for every message also where the device does not wait for one (iWARP). A message of kind 1 is sent
/// when half of the receives were given back since the last time, or when the other side may not send any more.
///
/// Over iWARP the side that connects must send first. It sends a message of kind 1 before `connect` ends, and up to three more if no answer
/// comes, since the kernel may leave the first one in the socket until more arrives; the other side answers with one. For these, each side
/// has three more receives.
#[derive(Debug)]
#[must_use = "dropping it ends the connection"]
pub struct Messages {
    inner: Arc<Inner>,
    size: u32,
}

struct Inner {
    shared: Arc<Shared>,
    beside: Arc<OnceLock<Arc<Beside>>>,
    /// The number of the identifier.
    uid: u64,
    core: Mutex<Core>,
}

/// A call that waits for messages and for events of the connection. When it ends, nobody keeps its waker.
struct Turn<'a> {
    inner: &'a Inner,
    call: Call<'a>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(beside) = self.inner.beside.get().filter(|_| self.inner.shared.is_here()) {
            beside.waiters.remove(self.call.ticket());
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Inner {
    /// Only after a check of the origin: in a child of `fork` another thread may hold the lock for ever.
    fn core(&self) -> MutexGuard<'_, Core> {
        // Nothing panics under the lock.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until<T>(
        &self,
        op: &'static str,
        mut ask: impl FnMut(&mut Core) -> Option<Result<T>>,
    ) -> Result<T> {
        let mut turn = Turn { inner: self, call: Call::new(&self.shared, self.uid) };
        poll_fn(|context| turn.take(op, context.waker(), &mut ask)).await
    }

    fn waiting<'a, T>(
        &self,
        op: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'a,
    ) -> Waiting<'a, T> {
        Waiting::new(&self.shared, op, work).beside(self.beside.clone())
    }
}

impl Turn<'_> {
    /// Asks for a result until there is one. If there is none yet, the waker is called when something has changed.
    fn take<T>(
        &mut self,
        op: &'static str,
        waker: &Waker,
        mut ask: impl FnMut(&mut Core) -> Option<Result<T>>,
    ) -> Poll<Result<T>> {
        let mut core = self.inner.core();
        let mut has_changed = core.pump();
        let mut result = ask(&mut core);
        while result.is_none() && core.listen(op, &mut self.call, waker) {
            has_changed = true;
            result = ask(&mut core);
        }
        let Some(beside) = self.inner.beside.get() else {
            return Poll::Ready(Err(Error::malformed(op, "a connection without a channel")));
        };
        let ticket = self.call.ticket();
        if result.is_none() {
            beside.waiters.keep(ticket, waker);
        }
        drop(core);
        if has_changed {
            beside.waiters.wake_others(ticket);
        }
        result.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Messages {
    /// Starts a builder with the sizes.
    pub fn builder() -> MessagesBuilder {
        MessagesBuilder::new()
    }

    /// Connects to a side that accepts with this type, with the sizes by default.
    ///
    /// # Errors
    /// Those of [`MessagesBuilder::connect`].
    pub fn connect<'a>(destination: Resolve) -> Waiting<'a, Self, ConnectError> {
        Self::builder().connect(destination)
    }

    /// Accepts a connection of a side that connects with this type, with the sizes by default.
    ///
    /// # Errors
    /// Those of [`MessagesBuilder::accept`].
    pub fn accept<'a>(incoming: Incoming) -> Waiting<'a, Self, ConnectError> {
        Self::builder().accept(incoming)
    }

    /// Sends a message. It is copied, and the call ends when it is posted, which may be before the other side has it: [`close`](Self::close)
    /// waits for that. If the call is dropped or its time has elapsed, the message is not sent.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more than [`max_size`](Self::max_size) bytes. `EPIPE` if the other side has
    /// closed, `ECONNRESET` if the connection has ended or failed, and [`Disassociated`](crate::ErrorKind::Disassociated) if the device has
    /// gone.
    pub fn send<'a>(&'a self, bytes: &'a [u8]) -> Waiting<'a, ()> {
        self.inner.waiting(SEND, async move {
            if bytes.len() > self.size as usize {
                return Err(Error::beyond(SEND, "bytes of a message", bytes.len(), self.size));
            }
            self.inner.until(SEND, |core| core.send(SEND, bytes)).await
        })
    }

    /// Waits for the next message; `None` if the other side has closed and all its messages were received.
    ///
    /// # Errors
    /// `ECONNRESET` if the other side has ended the connection without closing it, or the connection has failed;
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone. Messages that had arrived before are returned first.
    pub fn recv(&self) -> Waiting<'_, Option<Message>> {
        self.inner.waiting(RECV, async move {
            let next = self.inner.until(RECV, |core| core.next(RECV)).await?;
            Ok(next.map(|(buffer, bytes)| Message { inner: self.inner.clone(), buffer, bytes }))
        })
    }

    /// Says that no message follows, waits until the other side has received all, and ends the connection. What the other side sends
    /// meanwhile is discarded.
    ///
    /// The other side's program must receive until there is no message, or close as well.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn close<'a>(self) -> Waiting<'a, ()> {
        let inner = self.inner.clone();
        inner.waiting(CLOSE, async move { self.inner.until(CLOSE, |core| core.close(CLOSE)).await })
    }

    /// Maximum number of bytes of a message, which both sides have agreed upon.
    pub fn max_size(&self) -> usize {
        self.size as usize
    }

    /// The own address and that of the other side.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone, and in a child of `fork`.
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        self.with("cm.addresses", |connection| connection.addresses())
    }

    /// The device, and its port.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone, and in a child of `fork`.
    pub fn device(&self) -> Result<(Device, u8)> {
        self.with("cm.device", |connection| connection.device())
    }

    fn with<T>(
        &self,
        op: &'static str,
        ask: impl FnOnce(&super::connection::Connection) -> Result<T>,
    ) -> Result<T> {
        self.inner.shared.check_origin(op)?;
        match self.inner.core().connection() {
            Some(connection) => ask(connection),
            None => Err(Error::malformed(op, "the connection has ended")),
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if self.inner.shared.is_here() {
            // A message may keep the memory, but not the connection.
            let connection = self.inner.core().end();
            drop(connection);
        }
    }
}

/// A message that was received. While it exists, the other side can send one message less: its buffer is given back when it is dropped.
pub struct Message {
    inner: Arc<Inner>,
    buffer: u32,
    bytes: Vec<u8>,
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Message").field(&self.bytes).finish()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if self.inner.shared.is_here() {
            self.inner.core().give_back(self.buffer, std::mem::take(&mut self.bytes));
        }
    }
}
