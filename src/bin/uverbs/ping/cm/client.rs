//! The client: it resolves the server's address, connects, and begins.

use std::net::SocketAddr;
use std::time::Instant;

use uverbs::cm::{Connect, ConnectError, Connection, Target as Found};

use super::greeting::{Greeting, read_memory, text};
use super::rping::{self, Rping};
use super::{Here, Place, ends, finish, link};
use crate::Outcome;
use crate::failure::Failure;
use crate::ping::one_sided::{self, Op};
use crate::ping::report::Report;
use crate::ping::side;

/// Connects to the first of the addresses to which there is a route, and plays the ping. `None` if a signal comes before the sides have
/// connected.
pub(super) fn run(place: &Place<'_>, servers: &[SocketAddr]) -> Outcome<Option<Report>> {
    let mut last = None;
    for &server in servers {
        let call = place.manager.resolve(server).run();
        match link::once(call, place.args.timeout, place.stop)? {
            Some(Ok(found)) => return play(place, found, server),
            Some(Err(error)) => last = Some(Failure::from(error).said_of(server)),
            None => return Ok(None),
        }
    }
    Err(last.unwrap_or_else(|| Failure::Other("the name has no IP address".to_owned())))
}

fn play(place: &Place<'_>, found: Found, server: SocketAddr) -> Outcome<Option<Report>> {
    let here = place.open(found.device()?)?;
    if place.args.rping { exchange(place, &here, found, server) } else { ping(place, &here, found, server) }
}

/// Asks the server, and waits for its answer.
fn establish(place: &Place<'_>, connect: Connect, server: SocketAddr) -> Outcome<Option<Connection>> {
    let answer = link::once(connect.establish(), place.args.timeout, place.stop)?;
    answer.transpose().map_err(|error| refusal(&error, server))
}

/// The error, with the words of the other side.
fn refusal(error: &ConnectError, server: SocketAddr) -> Failure {
    let failure = Failure::from(error.error().clone()).said_of(server);
    match error.rejection().and_then(|rejection| text(&rejection.private_data)) {
        Some(words) => Failure::Other(format!("{failure}: {}", words.escape_debug())),
        None => failure,
    }
}

fn ping(place: &Place<'_>, here: &Here, found: Found, server: SocketAddr) -> Outcome<Option<Report>> {
    let Place { args, stop, .. } = place;
    let (mut side, watch) = here.side(args)?;
    let greeting = Greeting { op: args.op, size: here.size, iters: args.iters };
    let Some(qp) = side.lines[0].lend() else { return Ok(None) };
    let mut connect = found.connect(qp)?.private_data(greeting.written().as_bytes())?;
    connect = connect.access(args.op.remote_access());
    if args.op == Op::Send {
        side.post_room(Some(connect.queue_pair()))?;
    }
    let Some(connection) = establish(place, connect, server)? else { return Ok(None) };
    let (local, peer) = ends(&connection)?;
    let memory = read_memory(connection.private_data());
    side.lines[0].join(connection, ());
    let start = Instant::now();
    let played = match (args.op, memory) {
        (Op::Send, _) => {
            side.begin(true)?;
            side::play(std::slice::from_mut(&mut side), watch.as_ref(), args.timeout, stop)
        }
        (_, Some(there)) => one_sided::operate(&mut side, there, args.timeout, stop),
        (_, None) => Err(Failure::Other(format!("{server} did not say where its memory is"))),
    };
    let elapsed = start.elapsed();
    let left = match side.lines[0].connection() {
        Some(connection) => link::disconnect(connection, args.timeout, stop),
        None => Ok(()),
    };
    finish(place, here, side, ("client", local, peer), played.and(left), elapsed)
}

/// The client of rping's exchange.
fn exchange(place: &Place<'_>, here: &Here, found: Found, server: SocketAddr) -> Outcome<Option<Report>> {
    let args = place.args;
    let size = args.size.unwrap_or(rping::SIZE);
    let (mut rping, qp) = Rping::new(&here.context, size as usize)?;
    let mut connect = found.connect(qp)?.reads(1).incoming_reads(1);
    rping.receive(connect.queue_pair())?;
    let Some(mut connection) = establish(place, connect, server)? else { return Ok(None) };
    let (local, peer) = ends(&connection)?;
    let played = rping.ask(&mut connection, peer, place);
    let left = link::disconnect(&mut connection, args.timeout, place.stop);
    played.and(left)?;
    Ok(Some(rping.report(place, here, ("client", local, peer), args.iters)))
}
