//! Connections with each of their commands failing, those of the connection manager and those of the device: an error is returned, nothing
//! panics, and no identifier, queue pair or thread's wait is left.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::abi::cm;
use uverbs::cm::{Command, Connection, Manager, SoftNetwork, Watcher};
use uverbs::soft::Profile;
use uverbs::transport::{self, Errno};
use uverbs::{Context, ErrorKind, QueuePair, Rc, SoftDevice};

const LONG: Duration = Duration::from_secs(10);
/// How long both sides wait for an end that was refused, and may never come.
const BRIEF: Duration = Duration::from_millis(100);
/// Time between two looks at what was refused.
const SLICE: Duration = Duration::from_millis(20);
const OF_DEVICE: u32 = u32::MAX;

/// Fails the `nth` command of both sides and of their devices, counted together from 1, and if `again` is set also the next one like it.
#[derive(Clone, Debug)]
struct Fault(Arc<Plan>);

#[derive(Debug)]
struct Plan {
    nth: u64,
    errno: Errno,
    again: AtomicBool,
    seen: AtomicU64,
    /// The command that was failed.
    failed: AtomicU32,
}

impl Fault {
    fn due(&self, number: u32) -> Result<(), Errno> {
        let seen = self.0.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if seen == self.0.nth {
            self.0.failed.store(number, Ordering::Relaxed);
            return Err(self.0.errno);
        }
        let is_like_it = seen > self.0.nth && number == self.0.failed.load(Ordering::Relaxed);
        match is_like_it && may_be_sent_again(number) && self.0.again.swap(false, Ordering::Relaxed) {
            true => Err(self.0.errno),
            false => Ok(()),
        }
    }
}

impl Watcher for Fault {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        self.due(command.number())
    }
}

impl transport::Watcher for Fault {
    fn before(&self, _: &uverbs::command::Command<'_>) -> Result<(), Errno> {
        self.due(OF_DEVICE)
    }

    fn before_map(&self, _: u64, _: usize) -> Result<(), Errno> {
        self.due(OF_DEVICE)
    }
}

/// What the two sides do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Play {
    Disconnect,
    Reject,
    DropRequest,
    DropAccept,
    DropConnection,
    Move,
}

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

struct Stage {
    network: SoftNetwork,
    device: SoftDevice,
    fault: Fault,
    /// The client has failed before it has asked.
    is_over: AtomicBool,
}

impl Stage {
    fn manager(&self) -> uverbs::Result<Manager> {
        self.network.manager_with(self.fault.clone())
    }

    fn context(&self) -> uverbs::Result<Context> {
        self.device.device().open_with(self.fault.clone())
    }

    fn server(&self, play: Play, address: SocketAddr, is_ready: &AtomicBool) -> Outcome {
        let ready = || is_ready.store(true, Ordering::Release);
        let listener = self.manager().and_then(|manager| {
            let (device, port) = manager.device_of(address.ip())?;
            assert_eq!((device.name(), port), ("soft0", 1));
            let listener = manager.listener(address).reuse_address().only_family().backlog(3);
            Ok((listener.listen()?, self.context()?, self.manager()?))
        });
        ready();
        let (listener, context, other) = listener?;
        let incoming = loop {
            match listener.next().within(Duration::from_millis(5)) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    if self.is_over.load(Ordering::Acquire) {
                        return Ok(());
                    }
                }
                other => break other?,
            }
        };
        match play {
            Play::Reject => return Ok(incoming.reject(b"no")?),
            Play::DropRequest => return Ok(()),
            _ => {}
        }
        let accept = incoming.accept(queue_pair(&context)?)?.private_data(b"yes")?;
        if play == Play::DropAccept {
            return Ok(());
        }
        let mut connection = accept.establish().within(LONG)?;
        if play == Play::DropConnection {
            return Ok(());
        }
        if play == Play::Move {
            connection.move_to(&other)?;
        }
        self.ended(&connection)
    }

    fn client(&self, play: Play, address: SocketAddr) -> Outcome {
        let (manager, context) = (self.manager()?, self.context()?);
        let resolve = manager.resolve(address).type_of_service(8).ack_timeout(14);
        let target = resolve.source(SocketAddr::new(address.ip(), 0)).run().within(LONG)?;
        target.device()?;
        let connect = target.connect(queue_pair(&context)?)?;
        let mut connection = connect.establish().within(LONG)?;
        if play != Play::DropConnection {
            match connection.disconnect().within(SLICE) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                ended => return Ok(ended.map(drop)?),
            }
        }
        self.ended(&connection)
    }

    /// Waits for the end of a connection: of a soft network it comes at once, unless it was refused.
    fn ended(&self, connection: &Connection) -> Outcome {
        let start = Instant::now();
        loop {
            let is_refused = self.fault.0.failed.load(Ordering::Relaxed) == cm::DISCONNECT;
            let patience = if is_refused { BRIEF } else { LONG };
            match connection.closed().within(SLICE) {
                Err(error) if error.kind() == ErrorKind::TimedOut && start.elapsed() < patience => {}
                ended => return Ok(ended.map(drop)?),
            }
        }
    }
}

fn queue_pair(context: &Context) -> uverbs::Result<QueuePair<Rc>> {
    context.alloc_pd()?.rc(&context.create_cq(8)?).create()
}

/// What must be an error of one of the sides if it fails: not what is destroyed, not the answer to an end, and not a look for an event that
/// is not there.
fn must_be_told(number: u32) -> bool {
    !matches!(number, cm::DESTROY_ID | cm::DISCONNECT | cm::GET_EVENT | OF_DEVICE)
}

/// What is sent again if it is refused in a sequence of commands, or before its turn.
fn may_be_sent_again(number: u32) -> bool {
    matches!(number, cm::RESOLVE_ADDR | cm::RESOLVE_ROUTE | cm::INIT_QP_ATTR | cm::CONNECT)
}

/// Runs both sides with one command failing, or two. Returns whether there were so many commands.
fn once(iwarp: bool, play: Play, nth: u64, errno: Errno, again: bool) -> bool {
    let (network, device) = (SoftNetwork::default(), SoftDevice::new(Profile::default().with_iwarp(iwarp)));
    let address: SocketAddr = "10.0.0.1:7174".parse().unwrap();
    network.join(&device, address.ip()).unwrap();
    let (seen, failed) = (AtomicU64::new(0), AtomicU32::new(cm::GET_EVENT));
    let plan = Plan { nth, errno, again: again.into(), seen, failed };
    let stage = Stage { network, device, fault: Fault(Arc::new(plan)), is_over: AtomicBool::new(false) };
    let is_ready = AtomicBool::new(false);
    let (server, client) = thread::scope(|scope| {
        let server = scope.spawn(|| stage.server(play, address, &is_ready));
        while !is_ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let client = stage.client(play, address);
        stage.is_over.store(true, Ordering::Release);
        (server.join().expect("no panic"), client)
    });
    let plan = &stage.fault.0;
    let is_met = plan.seen.load(Ordering::Relaxed) >= nth;
    let refuses = matches!(play, Play::Reject | Play::DropRequest | Play::DropAccept);
    let (what, failed) =
        (format!("{play:?} {nth} {errno}: {server:?}, {client:?}"), plan.failed.load(Ordering::Relaxed));
    if is_met {
        let is_told = server.is_err() || client.is_err();
        let is_told_later = !again && may_be_sent_again(failed);
        assert!(
            is_told || !must_be_told(failed) || is_told_later,
            "command {failed} has failed, and nobody says so: {what}"
        );
    } else {
        assert_eq!((server.is_ok(), client.is_ok()), (true, !refuses), "nothing has failed: {what}");
    }
    let start = Instant::now();
    while stage.network.identifiers() > 0 || !stage.device.resources().is_empty() {
        let left = (stage.network.identifiers(), stage.device.resources());
        assert!(start.elapsed() < LONG, "left: {left:?}: {what}");
        thread::sleep(Duration::from_millis(1));
    }
    is_met
}

#[test]
fn every_command_of_both_sides_of_a_connection_may_fail() {
    let plays = [
        Play::Disconnect,
        Play::Reject,
        Play::DropRequest,
        Play::DropAccept,
        Play::DropConnection,
        Play::Move,
    ];
    for iwarp in [false, true] {
        for play in plays {
            // The errno matters where the library tells refusals apart, which is at the end of a connection.
            let more = if play == Play::Disconnect { &[Errno::ENOMEM, Errno::EIO][..] } else { &[] };
            for &errno in [Errno::EINVAL].iter().chain(more) {
                let count = (1..).take_while(|nth| once(iwarp, play, *nth, errno, true)).count();
                assert!(count > 20, "{count} commands of {play:?}");
            }
            if play == Play::Disconnect {
                assert!((1..).take_while(|nth| once(iwarp, play, *nth, Errno::ENOMEM, false)).count() > 20);
            }
        }
    }
}
