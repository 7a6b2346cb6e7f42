//! One side of a connection that stops at a step until it is told to go on, and says how each of its calls ends: what goes wrong meanwhile
//! is up to the lane `connections-faults`. Then many clients of one listener, and a process that changes its user.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::abi::cm::{ACCEPT, RESOLVE_ROUTE};
use uverbs::cm::{Closed, Command, ConnectError, Connection, Manager, Waiting, Watcher};
use uverbs::transport::Errno;
use uverbs::{Error, ErrorKind};

use crate::Result;
use crate::end::{End, LIMIT};

/// Longest wait of a call before it is told to go on: the lane must have done what it does.
const BEFORE: Duration = Duration::from_secs(8);
/// Longest wait of a call afterwards.
const AFTER: Duration = Duration::from_millis(1500);

/// A command that takes longer is told.
const SLOW: Duration = Duration::from_millis(10);

/// The steps, each after the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The client has the neighbour, and not the route.
    Address,
    /// The client has not asked.
    Route,
    /// The server has not answered.
    Request,
    /// The server has answered, and a client on RoCE has not acknowledged.
    Accepted,
    Connected,
    /// The client has sent what the server has no receive for.
    Message,
}

impl Step {
    fn named(name: &str) -> Result<Self> {
        match name {
            "address" => Ok(Self::Address),
            "route" => Ok(Self::Route),
            "request" => Ok(Self::Request),
            "accepted" => Ok(Self::Accepted),
            "connected" => Ok(Self::Connected),
            "message" => Ok(Self::Message),
            _ => Err(format!("no step `{name}`").into()),
        }
    }
}

/// Where to stop, and for how long.
#[derive(Debug)]
struct Plan {
    step: Step,
    is_server: bool,
    /// Goes on when there is this file.
    go: PathBuf,
    went_on: Mutex<Option<Instant>>,
}

impl Plan {
    fn stop(&self, step: Step) {
        let mut went_on = self.went_on.lock().unwrap_or_else(PoisonError::into_inner);
        if step != self.step || went_on.is_some() {
            return;
        }
        println!("stops");
        while !self.go.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        *went_on = Some(Instant::now());
    }
}

/// Stops in the middle of a call: between its commands. The time is that at which the command has begun that is carried out.
#[derive(Debug)]
struct Between(Arc<Plan>, Mutex<Instant>);

impl Watcher for Between {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        match command.number() {
            RESOLVE_ROUTE => self.0.stop(Step::Address),
            ACCEPT if !self.0.is_server => self.0.stop(Step::Accepted),
            _ => {}
        }
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(())
    }

    fn after(&self, command: &Command<'_>, _: Result<(), Errno>) {
        let took = self.1.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if took > SLOW {
            println!("slow: command {} took {} ms", command.number(), took.as_millis());
        }
        if command.number() == ACCEPT && self.0.is_server {
            self.0.stop(Step::Accepted);
        }
    }
}

/// One side.
struct Side {
    plan: Arc<Plan>,
    /// The longest time that a call took beyond its deadline.
    late: Duration,
}

/// Prints how a call has ended, and fails if it was not a success.
fn tell<T>(name: &str, result: Result<T, Error>, words: impl Fn(&T) -> String) -> Result<T> {
    match &result {
        Ok(value) => println!("{name}: {}", words(value)),
        Err(error) => println!("{name}: {:?}: {error}", error.kind()),
    }
    Ok(result?)
}

fn ok<T>(_: &T) -> String {
    "ok".to_owned()
}

fn how(closed: &Closed) -> String {
    format!("{closed:?}")
}

impl Side {
    fn has_gone_on(&self) -> bool {
        self.plan.go.exists()
    }

    /// The result of a call, whose time is measured.
    fn end<T, E: From<Error> + Into<Error>>(&mut self, call: Waiting<'_, T, E>) -> Result<T, Error> {
        let patience = if self.has_gone_on() { AFTER } else { BEFORE };
        let deadline = Instant::now() + patience;
        let result = call.within(patience);
        let now = Instant::now();
        // The time of a stop is not the call's.
        let went_on = *self.plan.went_on.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = went_on.map_or(deadline, |went_on| went_on.max(deadline));
        self.late = self.late.max(now.saturating_duration_since(deadline));
        result.map_err(Into::into)
    }

    fn listen(&mut self, manager: &Manager, address: SocketAddr) -> Result {
        let listener = manager.listen(address)?;
        println!("listens");
        let incoming = loop {
            let is_last = self.has_gone_on();
            match self.end(listener.next()) {
                Err(error) if error.kind() == ErrorKind::TimedOut && !is_last => {}
                other => break tell("request", other, ok)?,
            }
        };
        let (device, _) = tell("device", incoming.device(), ok)?;
        let end = End::new(&device, 1, 1)?;
        let qp = end.queue_pair()?;
        self.plan.stop(Step::Request);
        let accept = tell("accept", incoming.accept(qp), ok)?;
        let connection = self.end::<_, ConnectError>(accept.establish());
        let connection = tell("establish", connection, ok)?;
        self.ends(connection, end)
    }

    fn connect(&mut self, manager: &Manager, address: SocketAddr) -> Result {
        let target = self.end(manager.resolve(address).run());
        let target = tell("resolve", target, ok)?;
        let (device, _) = tell("device", target.device(), ok)?;
        let end = End::new(&device, 1, 1)?;
        let qp = end.queue_pair()?;
        self.plan.stop(Step::Route);
        let connect = tell("connect", target.connect(qp), ok)?;
        let connection = self.end::<_, ConnectError>(connect.establish());
        let mut connection = tell("establish", connection, ok)?;
        if self.plan.step == Step::Message {
            end.send(connection.queue_pair(), 1)?;
        }
        self.ends(connection, end)
    }

    fn ends(&mut self, mut connection: Connection, mut end: End) -> Result {
        self.plan.stop(Step::Connected);
        self.plan.stop(Step::Message);
        let closed = self.end(connection.closed());
        let is_open = closed.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut);
        // An error is told, and the connection ended nevertheless.
        let _ = tell("closed", closed, how);
        if is_open {
            let left = self.end(connection.disconnect());
            let _ = tell("disconnect", left, how);
        }
        if !self.plan.is_server && self.plan.step == Step::Message {
            let status = end.status(AFTER);
            println!("message: {}", status.map_or("none".to_owned(), |status| format!("{status:?}")));
        }
        Ok(())
    }
}

/// One side of a connection. It has done its part when its calls have ended, in whatever way.
pub(crate) fn stop(step: &str, is_server: bool, address: SocketAddr, go: &str) -> Result {
    let plan = Plan { step: Step::named(step)?, is_server, go: go.into(), went_on: Mutex::default() };
    let plan = Arc::new(plan);
    let manager = Manager::open_with(Between(plan.clone(), Mutex::new(Instant::now())))?;
    let mut side = Side { plan, late: Duration::ZERO };
    let ended = if is_server { side.listen(&manager, address) } else { side.connect(&manager, address) };
    if let Err(error) = ended {
        println!("ends: {error}");
    }
    println!("late: {}", side.late.as_millis());
    drop(manager);
    println!("end");
    Ok(())
}

#[derive(Default)]
struct Count {
    connected: AtomicU32,
    refused: AtomicU32,
    unanswered: AtomicU32,
    accepted: AtomicU32,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [connected, refused, unanswered, accepted] =
            [&self.connected, &self.refused, &self.unanswered, &self.accepted]
                .map(|count| count.load(Ordering::Relaxed));
        write!(f, "{connected} connected {refused} refused {unanswered} unanswered {accepted} accepted")
    }
}

fn more(count: &AtomicU32) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// Many clients at the same time of a listener with a backlog of two. Any of them may be refused, or not be answered.
pub(crate) fn crowd(address: SocketAddr, clients: u32) -> Result {
    // The kernel repeats a request for 75 seconds.
    const PATIENCE: Duration = Duration::from_secs(90);
    let (ours, theirs) = (Manager::open()?, Manager::open()?);
    let listener = theirs.listener(address).backlog(2).listen()?;
    let device = ours.device_of(address.ip())?.0;
    let (near, far) = (End::new(&device, clients, 1)?, End::new(&device, clients, 1)?);
    let (count, left) = (Count::default(), AtomicU32::new(clients));
    let connect = || -> Result<(), ConnectError> {
        let target = ours.resolve(address).run().within(LIMIT)?;
        drop(target.connect(near.queue_pair()?)?.establish().within(PATIENCE)?);
        Ok(())
    };
    let accept = || -> Result {
        while left.load(Ordering::Acquire) > 0 {
            match listener.next().within(Duration::from_millis(100)) {
                Ok(incoming) => {
                    // It may have given up.
                    if incoming.accept(far.queue_pair()?)?.establish().within(AFTER).is_ok() {
                        more(&count.accepted);
                    }
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    };
    let start = Instant::now();
    thread::scope(|scope| {
        let server = scope.spawn(accept);
        let mut threads = Vec::new();
        for _ in 0..clients {
            let client = || {
                let ended = connect();
                left.fetch_sub(1, Ordering::Release);
                match ended {
                    Ok(()) => more(&count.connected),
                    Err(error) if error.kind() == ErrorKind::Refused => more(&count.refused),
                    Err(error) if error.kind() == ErrorKind::TimedOut => more(&count.unanswered),
                    Err(error) => return Err(error),
                }
                Ok(())
            };
            threads.push(thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, client)?);
        }
        for thread in threads {
            thread.join().map_err(|_| "a client has panicked")??;
        }
        server.join().map_err(|_| "the server has panicked")?
    })?;
    println!("{count} after {} s", start.elapsed().as_secs());
    Ok(())
}

/// Changes the user of the process, after which the kernel answers a manager of before no more.
pub(crate) fn user(address: SocketAddr, uid: u32) -> Result {
    let manager = Manager::open()?;
    let listener = manager.listen(address)?;
    let target = manager.resolve(address).run().within(LIMIT)?;
    nix::unistd::setuid(nix::unistd::Uid::from_raw(uid))?;
    let refused = [
        ("listen", manager.listen(SocketAddr::new(address.ip(), 0)).err()),
        ("resolve", manager.resolve(address).run().within(AFTER).err()),
        ("address", listener.address().err()),
        ("device", target.device().err()),
    ];
    for (name, error) in refused {
        let error = error.ok_or("the kernel has answered")?;
        println!("{name}: {:?}: {error}", error.kind());
    }
    drop((listener, target, manager));
    let manager = Manager::open()?;
    let listener = manager.listen(address)?;
    println!("another manager listens on port {}", listener.address()?.port());
    Ok(())
}
