//! Making a connection for messages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use uverbs_abi::types::{AccessFlags, node_type};

use super::core::Core;
use super::queues::{NUDGES, Queues};
use super::wire::Kind;
use super::{Inner, Messages, Terms};
use crate::cm::beside::Beside;
use crate::cm::connection::Connection;
use crate::cm::error::ConnectError;
use crate::cm::incoming::Incoming;
use crate::cm::resolve::Resolve;
use crate::cm::shared::Shared;
use crate::cm::waiting::Waiting;
use crate::device::Device;
use crate::device::context::Context;
use crate::kernel::error::{Error, Result};
use crate::verbs::cq::CompletionChannel;

const OP: &str = "cm.messages";

/// How long to wait for an answer over iWARP before the first message is repeated, each time.
const STEPS: [Duration; NUDGES as usize] =
    [Duration::from_millis(20), Duration::from_millis(80), Duration::from_millis(320)];

/// A connection for messages that is about to be made; see [`Messages::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `connect` or `accept`"]
pub struct MessagesBuilder {
    terms: Terms,
    context: Option<Context>,
}

impl MessagesBuilder {
    pub(super) fn new() -> Self {
        Self { terms: Terms { size: 4096, depth: 16 }, context: None }
    }

    /// Maximum number of bytes of a message; default 4096. The smaller number of both sides holds.
    pub fn size(mut self, bytes: u32) -> Self {
        self.terms.size = bytes;
        self
    }

    /// Number of messages that the other side may send before this side's program has taken one, and of own messages that are being sent;
    /// default 16.
    pub fn depth(mut self, messages: u16) -> Self {
        self.terms.depth = messages;
        self
    }

    /// Uses this context, which must be of the device over which the connection is made. Without this, the device is opened once for each
    /// connection.
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// Resolves the address, and connects to a side that [accepts](Self::accept).
    ///
    /// # Errors
    /// Those of [`Resolve::run`] and [`Connect::establish`](crate::cm::Connect::establish), and of creating the queues.
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a size or a depth of zero, and for a context of another device;
    /// [`Malformed`](crate::ErrorKind::Malformed) if the other side does not accept with this type.
    pub fn connect<'a>(self, destination: Resolve) -> Waiting<'a, Messages, ConnectError> {
        let (shared, beside) = (destination.shared().clone(), Arc::default());
        Waiting::new(&shared, OP, self.run_connect(destination, Arc::clone(&beside))).beside(beside)
    }

    async fn run_connect(
        self,
        destination: Resolve,
        beside: Arc<OnceLock<Arc<Beside>>>,
    ) -> Result<Messages, ConnectError> {
        self.check()?;
        let target = destination.resolve().await?;
        let shared = target.id.shared.clone();
        let device = target.device()?.0;
        let (queues, channel, qp) = self.queues(&device)?;
        let mut connect =
            target.connect(qp)?.access(AccessFlags::empty()).private_data(&self.terms.encode())?;
        for buffer in 0..queues.receives {
            queues.receive(connect.queue_pair(), buffer)?;
        }
        let connection = connect.run().await?;
        let terms = Terms::decode(connection.private_data()).ok_or_else(stranger)?;
        let messages = self.begin(shared, beside, connection, (queues, channel), terms);
        messages.greet().await?;
        Ok(messages)
    }

    /// Accepts a connection of a side that [connects](Self::connect).
    ///
    /// # Errors
    /// Those of [`Accept::establish`](crate::cm::Accept::establish), and of creating the queues.
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a size or a depth of zero, and for a context of another device;
    /// [`Malformed`](crate::ErrorKind::Malformed) if the other side does not connect with this type: it is refused.
    pub fn accept<'a>(self, incoming: Incoming) -> Waiting<'a, Messages, ConnectError> {
        let (shared, beside) = (incoming.shared().clone(), Arc::default());
        let work = self.run_accept(incoming, shared.clone(), Arc::clone(&beside));
        Waiting::new(&shared, OP, work).beside(beside)
    }

    async fn run_accept(
        self,
        incoming: Incoming,
        shared: Arc<Shared>,
        beside: Arc<OnceLock<Arc<Beside>>>,
    ) -> Result<Messages, ConnectError> {
        self.check()?;
        let terms = Terms::decode(incoming.private_data()).ok_or_else(stranger)?;
        let device = incoming.device()?.0;
        let (queues, channel, qp) = self.queues(&device)?;
        let mut accept =
            incoming.accept(qp)?.access(AccessFlags::empty()).private_data(&self.terms.encode())?;
        for buffer in 0..queues.receives {
            queues.receive(accept.queue_pair(), buffer)?;
        }
        let connection = accept.run().await?;
        let messages = self.begin(shared, beside, connection, (queues, channel), terms);
        messages.answer_greeting().await?;
        Ok(messages)
    }

    fn check(&self) -> Result<()> {
        let Terms { size, depth } = self.terms;
        if size == 0 {
            return Err(Error::outside(OP, "bytes of a message", size, "at least 1"));
        }
        if depth == 0 {
            return Err(Error::outside(OP, "depth of messages", depth, "at least 1"));
        }
        Ok(())
    }

    fn queues(
        &self,
        device: &Device,
    ) -> Result<(Queues, CompletionChannel, crate::verbs::qp::QueuePair<crate::verbs::qp::Rc>)> {
        let opened = match &self.context {
            Some(context) => context.clone(),
            None => device.open()?,
        };
        Queues::new(&opened, self.terms, device.node_type() == node_type::RNIC)
    }

    fn begin(
        &self,
        shared: Arc<Shared>,
        beside: Arc<OnceLock<Arc<Beside>>>,
        connection: Connection,
        (queues, channel): (Queues, CompletionChannel),
        terms: Terms,
    ) -> Messages {
        // The call that waits has it from now on. It is set only here.
        let _ = beside.set(Arc::new(Beside::new(channel.clone())));
        let uid = connection.uid();
        let core = Core::new(connection, queues, channel, (self.terms.depth, terms.depth));
        let size = self.terms.size.min(terms.size);
        Messages { inner: Arc::new(Inner { shared, beside, uid, core: Mutex::new(core) }), size }
    }
}

impl Messages {
    fn is_iwarp(&self) -> bool {
        self.inner.core().connection().is_some_and(Connection::is_iwarp)
    }

    /// The first message of the side that has connected, over iWARP, and the wait for the answer.
    async fn greet(&self) -> Result<()> {
        if !self.is_iwarp() {
            return Ok(());
        }
        let mut steps = STEPS.into_iter();
        loop {
            self.inner.core().post_control(Kind::Credit);
            let timer = steps.next().and_then(|step| Timer::start(&self.inner, step));
            let is_late = || timer.as_ref().is_some_and(Timer::has_ended);
            let work = self.inner.until(OP, |core| match core.greeting(OP) {
                None if is_late() => Some(Ok(false)),
                other => other.map(|end| end.map(|()| true)),
            });
            if work.await? {
                return Ok(());
            }
        }
    }

    /// The other side's part.
    async fn answer_greeting(&self) -> Result<()> {
        if self.is_iwarp() {
            self.inner.until(OP, |core| core.greeting(OP)).await?;
            self.inner.core().post_control(Kind::Credit);
        }
        Ok(())
    }
}

/// A time that a helper thread waits. It ends early when this is dropped.
struct Timer {
    has_ended: Arc<AtomicBool>,
    _end: mpsc::Sender<()>,
}

impl Timer {
    /// `None` if no thread can be started.
    fn start(inner: &Inner, step: Duration) -> Option<Self> {
        let (end, ends) = mpsc::channel();
        let has_ended = Arc::new(AtomicBool::new(false));
        let (told, beside) = (has_ended.clone(), inner.beside.get()?.clone());
        let started = inner.shared.help(move |_| {
            // Nothing is sent: it is the time, or the other end was dropped.
            let _ = ends.recv_timeout(step);
            told.store(true, Ordering::Release);
            beside.waiters.wake_all();
        });
        started.ok().map(|()| Self { has_ended, _end: end })
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

#[cold]
fn stranger() -> Error {
    Error::malformed(OP, "the other side does not use these messages")
}
