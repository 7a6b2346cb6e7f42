//! The server: it listens, takes one client, and answers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use uverbs::ErrorKind;
use uverbs::cm::{Accept, Connection, Incoming, Listener, Manager};

use super::greeting::{Greeting, write_memory};
use super::rping::{self, Rping};
use super::{Here, Place, ends, finish, link};
use crate::Outcome;
use crate::failure::Failure;
use crate::ping::one_sided::Op;
use crate::ping::report::Report;
use crate::ping::side;

/// Listens on all addresses, of both families. A host may have no IPv6.
pub(super) fn listen(manager: &Manager, port: u16) -> Outcome<Vec<Listener>> {
    let ipv4 = manager.listen((Ipv4Addr::UNSPECIFIED, port).into())?;
    let ipv6 = manager.listener((Ipv6Addr::UNSPECIFIED, port).into()).only_family().listen();
    Ok([Some(ipv4), ipv6.ok()].into_iter().flatten().collect())
}

/// Waits for a client, and plays the ping. `None` if a signal comes before the sides have connected.
pub(super) fn run(place: &Place<'_>, listeners: Vec<Listener>) -> Outcome<Option<Report>> {
    let Some(incoming) = next(place, &listeners)? else { return Ok(None) };
    drop(listeners);
    let here = place.open(incoming.device()?)?;
    if place.args.rping { exchange(place, &here, incoming) } else { ping(place, &here, incoming) }
}

/// The first request at one of the listeners.
fn next(place: &Place<'_>, listeners: &[Listener]) -> Outcome<Option<Incoming>> {
    let (start, timeout) = (Instant::now(), place.args.timeout);
    for listener in listeners.iter().cycle() {
        match listener.next().within(link::NAP) {
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            result => return Ok(Some(result?)),
        }
        if place.stop.is_set() {
            return Ok(None);
        }
        if start.elapsed() >= timeout {
            break;
        }
    }
    Err(Failure::Other(format!("no client came in {timeout:?}")))
}

/// Answers the client, and waits until it has acknowledged.
fn establish(place: &Place<'_>, accept: Accept, client: SocketAddr) -> Outcome<Option<Connection>> {
    let answer = link::once(accept.establish(), place.args.timeout, place.stop)?;
    answer.transpose().map_err(|error| Failure::from(error.error().clone()).said_of(client))
}

fn ping(place: &Place<'_>, here: &Here, incoming: Incoming) -> Outcome<Option<Report>> {
    let Place { args, stop, .. } = place;
    let client = incoming.addresses()?.1;
    let own = Greeting { op: args.op, size: here.size, iters: args.iters };
    let differs = match Greeting::read(incoming.private_data()) {
        Some(asked) => own.differs(asked),
        None => Some("the server expects `uverbs ping --cm`, without --rping".to_owned()),
    };
    if let Some(why) = differs {
        incoming.reject(why.as_bytes())?;
        return Err(Failure::Other(format!("the client at {client} was refused: {why}")));
    }
    let (mut side, watch) = here.side(args)?;
    let Some(qp) = side.lines[0].lend() else { return Ok(None) };
    let mut accept = incoming.accept(qp)?.access(args.op.remote_access());
    if args.op == Op::Send {
        side.post_room(Some(accept.queue_pair()))?;
    } else {
        accept = accept.private_data(write_memory(side.there()).as_bytes())?;
    }
    let Some(connection) = establish(place, accept, client)? else { return Ok(None) };
    let (local, peer) = ends(&connection)?;
    side.lines[0].join(connection, ());
    let start = Instant::now();
    let played = match args.op {
        Op::Send => side::play(std::slice::from_mut(&mut side), watch.as_ref(), args.timeout, stop),
        _ => Ok(()),
    };
    let worked = start.elapsed();
    // Each step of the client has a time limit, but not all of its operations together.
    let patience = if args.op == Op::Send { args.timeout } else { Duration::MAX };
    let left = match side.lines[0].connection() {
        Some(connection) if played.is_ok() => link::closed(connection, patience, stop).map(drop),
        _ => Ok(()),
    };
    let elapsed = if args.op == Op::Send { worked } else { start.elapsed() };
    finish(place, here, side, ("server", local, peer), played.and(left), elapsed)
}

/// The server of rping's exchange: it answers until the client leaves.
fn exchange(place: &Place<'_>, here: &Here, incoming: Incoming) -> Outcome<Option<Report>> {
    let client = incoming.addresses()?.1;
    if Greeting::read(incoming.private_data()).is_some() {
        let why = "the server has --rping";
        incoming.reject(why.as_bytes())?;
        return Err(Failure::Other(format!("the client at {client} was refused: {why}")));
    }
    let size = place.args.size.unwrap_or(rping::LONGEST);
    let (mut rping, qp) = Rping::new(&here.context, size as usize)?;
    let mut accept = incoming.accept(qp)?;
    rping.receive(accept.queue_pair())?;
    let Some(mut connection) = establish(place, accept, client)? else { return Ok(None) };
    let (local, peer) = ends(&connection)?;
    rping.answer(&mut connection, peer, place)?;
    Ok(Some(rping.report(place, here, ("server", local, peer), rping.count())))
}
