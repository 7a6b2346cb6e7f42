//! Connections by the connection manager.

use std::time::Duration;

use uverbs::{QpAttrMask, QueuePair, Rc};

use super::{done, verb};
use crate::connections::Call;
use crate::language::Arg::{End, Has, New, One};
use crate::language::Kind::{Call as Calls, Connection, Incoming, Listener, Pair, Target};
use crate::language::{Arg, Verb};
use crate::world::{Miss, Pair as AnyPair, Played, World};

const PORTS: Arg = One(&[7001, 7002, 7003]);
/// Bytes of private data: none, some, and around the limits of a request, a rejection and a reply.
const DATA: Arg = One(&[0, 5, 56, 57, 148, 149, 196, 197]);
const LONG: Duration = Duration::from_secs(5);

fn data(len: u64) -> Vec<u8> {
    vec![0xa5; len as usize]
}

/// The data of the other side, without the padding.
fn heard(data: &[u8]) -> usize {
    data.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
}

/// The queue pair, which the connection takes.
fn connected_pair(w: &mut World, at: u64) -> Result<QueuePair<Rc>, Miss> {
    match w.pairs.take(at)? {
        AnyPair::Rc(qp) => Ok(qp),
        other => {
            w.pairs.put(at, other);
            Err(Miss::Absent)
        }
    }
}

/// Keeps a call, which goes on as far as it can.
fn begin(w: &mut World, at: u64, call: Call) -> Played {
    let connections = w.connections()?;
    connections.calls.put(at, call);
    connections.go_on();
    Ok(String::new())
}

fn connect(w: &mut World, a: &[u64]) -> Played {
    let connections = w.connections()?;
    connections.targets.get(a[1])?;
    connections.calls.free(a[0])?;
    let qp = connected_pair(w, a[2])?;
    let connect = w.connections()?.targets.take(a[1])?.connect(qp)?.private_data(&data(a[3]))?;
    begin(w, a[0], Call::Waits(Box::pin(async { connect.establish().await })))
}

fn accept(w: &mut World, a: &[u64]) -> Played {
    let connections = w.connections()?;
    connections.incoming.get(a[1])?;
    connections.calls.free(a[0])?;
    let qp = connected_pair(w, a[2])?;
    let accept = w.connections()?.incoming.take(a[1])?.accept(qp)?.private_data(&data(a[3]))?;
    begin(w, a[0], Call::Waits(Box::pin(async { accept.establish().await })))
}

/// Waits for the connection that a call makes.
fn establish(w: &mut World, a: &[u64]) -> Played {
    let connections = w.connections()?;
    connections.made.free(a[1])?;
    let made = match connections.calls.take(a[0])? {
        Call::Done(made) => Ok(made),
        Call::Waits(mut future) => w.awaited(future.as_mut())?.ok_or(future),
    };
    match made {
        Ok(made) => {
            let connection = made.map_err(|error| Miss::Refused(error.into()))?;
            let told = format!("1 {}", heard(connection.private_data()));
            w.connections()?.made.put(a[1], connection);
            Ok(told)
        }
        Err(future) => {
            w.connections()?.calls.put(a[0], Call::Waits(future));
            Ok("0".to_owned())
        }
    }
}

fn next(w: &mut World, a: &[u64]) -> Played {
    let connections = w.connections()?;
    connections.incoming.free(a[0])?;
    let listener = connections.listeners.take(a[1])?;
    let next = w.awaited(async { listener.next().await });
    w.connections()?.listeners.put(a[1], listener);
    let Some(incoming) = next? else { return Ok("0".to_owned()) };
    let incoming = incoming?;
    let told = format!("1 {}", heard(incoming.private_data()));
    w.connections()?.incoming.put(a[0], incoming);
    Ok(told)
}

/// Ends a connection, or waits for its end.
fn end(w: &mut World, at: u64, leaves: bool) -> Played {
    let mut connection = w.connections()?.made.take(at)?;
    let ended = match leaves {
        true => w.awaited(async { connection.disconnect().await }),
        false => w.awaited(async { connection.closed().await }),
    };
    w.connections()?.made.put(at, connection);
    Ok(ended?.transpose()?.map_or("0".to_owned(), |closed| format!("1 {closed:?}")))
}

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb("cm-listen", 3, &[New(Listener), PORTS], |w, a| {
            let connections = w.connections()?;
            connections.listeners.free(a[0])?;
            let listener = connections.manager.listen(connections.at(a[1]))?;
            connections.listeners.put(a[0], listener);
            Ok(String::new())
        }),
        verb("cm-resolve", 6, &[New(Target), PORTS, One(&[0, 104, 255])], |w, a| {
            let connections = w.connections()?;
            connections.targets.free(a[0])?;
            let resolve = connections.manager.resolve(connections.at(a[1])).type_of_service(a[2] as u8);
            let target = resolve.run().within(LONG)?;
            let (device, port) = target.device()?;
            let told = format!("{} {port}", device.name() == w.machine.device.name());
            w.connections()?.targets.put(a[0], target);
            Ok(told)
        }),
        verb("cm-connect", 8, &[New(Calls), End(Target), End(Pair), DATA], connect),
        verb("cm-next", 10, &[New(Incoming), Has(Listener)], next),
        verb("cm-accept", 8, &[New(Calls), End(Incoming), End(Pair), DATA], accept),
        verb("cm-reject", 2, &[End(Incoming), DATA], |w, a| {
            done(w.connections()?.incoming.take(a[0])?.reject(&data(a[1]))?)
        }),
        verb("cm-establish", 12, &[Has(Calls), New(Connection)], establish),
        verb("cm-state", 3, &[Has(Connection)], |w, a| {
            let mask = QpAttrMask::STATE;
            let state = w.connections()?.made.get_mut(a[0])?.queue_pair().query(mask)?.qp_state;
            Ok(state.to_string())
        }),
        verb("cm-closed", 6, &[Has(Connection)], |w, a| end(w, a[0], false)),
        verb("cm-disconnect", 4, &[Has(Connection)], |w, a| end(w, a[0], true)),
    ],
    &[
        verb("drop-cm-listener", 1, &[End(Listener)], |w, a| done(w.connections()?.listeners.take(a[0])?)),
        verb("drop-cm-target", 1, &[End(Target)], |w, a| done(w.connections()?.targets.take(a[0])?)),
        verb("drop-cm-incoming", 1, &[End(Incoming)], |w, a| done(w.connections()?.incoming.take(a[0])?)),
        verb("drop-cm-call", 1, &[End(Calls)], |w, a| done(w.connections()?.calls.take(a[0])?)),
        verb("drop-cm-connection", 2, &[End(Connection)], |w, a| done(w.connections()?.made.take(a[0])?)),
    ],
];
