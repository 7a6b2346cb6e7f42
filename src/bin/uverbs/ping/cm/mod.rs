//! A ping between sides that the connection manager connects: `uverbs ping --cm`.

mod address;
mod client;
mod greeting;
mod link;
mod rping;
mod server;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use uverbs::cm::{Connection, Listener, Manager, SoftNetwork};
use uverbs::{Context, Device, Rc, SoftDevice};

use super::counted::Watch;
use super::exchange::Words;
use super::report::{Exchange, Figures, Report};
use super::side::{Plan, Side};
use super::{Args, Kind};
use crate::Outcome;
use crate::failure::Failure;
use crate::output::Output;
use crate::stop::Stop;
use crate::target::Target;

/// The port of the server unless one is given.
const PORT: u16 = 7174;
/// The address of the soft device.
const SOFT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

pub(super) fn run(args: &Args, trace: bool) -> Outcome {
    args.check()?;
    if !matches!(args.transport, Kind::Rc) {
        let text = "--transport: with --cm the queue pair is reliably connected, rc";
        return Err(Failure::Usage(text.to_owned()));
    }
    let stop = Stop::on_signals()?;
    let (soft, host) = host(args)?;
    let servers = host.map(|host| address::resolve(host, args.port_number)).transpose()?;
    let place = Place { args, trace, stop: &stop, manager: manager(soft.as_ref())?, soft };
    let mut output = Output::new();
    let report = match servers {
        None if place.soft.is_some() => place.both_sides(&[SocketAddr::new(SOFT, place.port())]),
        None => {
            let listener = server::listen(&place.manager, place.port())?;
            if !args.json {
                output.line(format_args!(
                    "waiting for a client on port {} of the connection manager",
                    place.port()
                ))?;
            }
            server::run(&place, listener)
        }
        Some(servers) if args.loopback => place.both_sides(&servers),
        Some(servers) => client::run(&place, &servers),
    };
    match report? {
        Some(report) if args.json => output.json(&report),
        Some(report) => output.text(&report),
        None => Err(Failure::Other("ended before the two sides had connected".to_owned())),
    }
}

/// The soft device, if it is named, and the host of the server.
fn host(args: &Args) -> Outcome<(Option<SoftDevice>, Option<&str>)> {
    let soft = SoftDevice::default();
    let wrong = |text: &str| Err(Failure::Usage(text.to_owned()));
    match (&args.device, &args.word, &args.host) {
        (_, _, Some(_)) => wrong("--cm: the address names the device, so the only word is HOST[:PORT]"),
        (Some(device), None, _) if device == soft.name() => Ok((Some(soft), None)),
        (None, Some(word), _) if word == soft.name() => Ok((Some(soft), None)),
        (Some(device), Some(_), _) if device == soft.name() => {
            wrong("--device soft0: both sides are in this process, so there is no HOST")
        }
        (Some(_), ..) => wrong("--device: with --cm the address names the device"),
        (None, None, _) if args.loopback => wrong("--loopback: with --cm it needs an address of this host"),
        (None, word, _) => Ok((None, word.as_deref())),
    }
}

/// The kernel's connection manager, or one of a network in this process.
fn manager(soft: Option<&SoftDevice>) -> Outcome<Manager> {
    let Some(soft) = soft else { return Ok(Manager::open()?) };
    let network = SoftNetwork::default();
    network.join(soft, SOFT)?;
    Ok(network.manager()?)
}

/// What both sides need.
struct Place<'a> {
    args: &'a Args,
    trace: bool,
    stop: &'a Stop,
    manager: Manager,
    soft: Option<SoftDevice>,
}

/// A side on the device that the manager has found.
struct Here {
    target: Target,
    context: Context,
    size: u32,
}

impl Place<'_> {
    fn port(&self) -> u16 {
        self.args.port_number.unwrap_or(PORT)
    }

    fn exchange(&self) -> Exchange {
        if self.args.rping { Exchange::Rping } else { Exchange::Cm }
    }

    /// Opens the device that the manager has found.
    fn open(&self, (device, port): (Device, u8)) -> Outcome<Here> {
        let target = Target::found(device, self.soft.clone(), self.trace);
        let context = target.open()?;
        let attributes = context.query_port(port)?.legacy_resp;
        let size = self.args.size_of::<Rc>(&target, (port, &attributes))?;
        Ok(Here { target, context, size })
    }

    /// Both sides in this process: the server in a thread. The client's figures are those of the ping.
    fn both_sides(&self, servers: &[SocketAddr]) -> Outcome<Option<Report>> {
        let listeners: Result<Vec<Listener>, _> =
            servers.iter().take(1).map(|&server| self.manager.listen(server)).collect();
        let listeners = listeners?;
        thread::scope(|scope| {
            let server = scope.spawn(|| server::run(self, listeners));
            let client = client::run(self, servers);
            let server = match server.join() {
                Ok(server) => server,
                Err(_) => Err(Failure::Other("the server's thread has panicked".to_owned())),
            };
            // A server that fails is the reason for which its client does.
            match (server, client) {
                (Err(failure), Ok(_)) => Err(failure),
                (_, client) => client.map(|report| report.map(Report::of_both_sides)),
            }
        })
    }
}

impl Here {
    /// The side of a ping with messages, or with operations on memory.
    fn side(&self, args: &Args) -> Outcome<(Side<Rc>, Option<Watch>)> {
        let plan = Plan {
            iters: args.iters,
            size: self.size as usize,
            op: args.op,
            words: Words::Single,
            has_gid: false,
        };
        let watch = if args.counter { Some(Watch::new()?) } else { None };
        Ok((Side::new(&self.context, None, plan, watch.as_ref())?, watch))
    }
}

/// The end of a side: its report, if the ping has ended well.
fn finish(
    place: &Place<'_>,
    here: &Here,
    side: Side<Rc>,
    (role, local, peer): (&'static str, SocketAddr, SocketAddr),
    ended: Outcome<()>,
    elapsed: Duration,
) -> Outcome<Option<Report>> {
    let report = ended.map(|()| {
        let figures = Figures {
            exchange: Some(place.exchange()),
            role,
            local: Some(local),
            peer: Some(peer),
            gid: None,
            lines: Vec::new(),
            size: here.size,
            iters: place.args.iters,
            sent: side.sent,
            received: side.received,
            trips: &side.trips,
            elapsed,
        };
        Report::new(place.args, &here.target, figures)
    });
    let released = side.release();
    let report = report?;
    released?;
    Ok(Some(report))
}

/// The addresses of both sides.
fn ends(connection: &Connection) -> Outcome<(SocketAddr, SocketAddr)> {
    let (local, peer) = connection.addresses()?;
    let canonical = |address: SocketAddr| match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    };
    Ok((canonical(local), canonical(peer)))
}
