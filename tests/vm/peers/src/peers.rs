//! The exchanges of ucmatose and cmtime, examples of librdmacm, as those of release 44.
//!
//! Both connect a number of queue pairs. With ucmatose the server then sends ten messages over each, the client sends as many, and the
//! server ends the connections. With cmtime the client ends them, without messages.

use std::net::SocketAddr;

use uverbs::cm::{Closed, Connection, Manager};

use crate::Result;
use crate::end::{End, LIMIT};

/// Messages in each direction.
const MESSAGES: u32 = 10;

/// The server's side.
pub(crate) fn listen(address: SocketAddr, count: u32, has_messages: bool) -> Result {
    let manager = Manager::open()?;
    let listener = manager.listen(address)?;
    let messages = if has_messages { MESSAGES } else { 0 };
    let mut end: Option<End> = None;
    let mut connections = Vec::new();
    for _ in 0..count {
        let incoming = listener.next().within(LIMIT)?;
        let end = match &mut end {
            Some(end) => end,
            none => none.insert(End::new(&incoming.device()?.0, count, messages.max(1))?),
        };
        let mut accept = incoming.accept(end.queue_pair()?)?;
        end.receive(accept.queue_pair(), messages)?;
        connections.push(accept.establish().within(LIMIT)?);
    }
    let Some(mut end) = end else { return Ok(()) };
    println!("{count} connections accepted");
    if has_messages {
        for connection in &mut connections {
            end.send(connection.queue_pair(), messages)?;
        }
        end.settle(2 * messages * count)?;
        for connection in &mut connections {
            closed(connection.disconnect().within(LIMIT)?)?;
        }
    } else {
        all_closed(&connections)?;
    }
    println!("{count} connections ended");
    Ok(())
}

/// The client's side.
pub(crate) fn connect(address: SocketAddr, count: u32, has_messages: bool) -> Result {
    let manager = Manager::open()?;
    let messages = if has_messages { MESSAGES } else { 0 };
    let mut end: Option<End> = None;
    let mut connections = Vec::new();
    for _ in 0..count {
        let target = manager.resolve(address).run().within(LIMIT)?;
        let end = match &mut end {
            Some(end) => end,
            none => none.insert(End::new(&target.device()?.0, count, messages.max(1))?),
        };
        let mut connect = target.connect(end.queue_pair()?)?;
        end.receive(connect.queue_pair(), messages)?;
        connections.push(connect.establish().within(LIMIT)?);
    }
    let Some(mut end) = end else { return Ok(()) };
    println!("{count} connections made");
    if has_messages {
        end.settle(messages * count)?;
        for connection in &mut connections {
            end.send(connection.queue_pair(), messages)?;
        }
        end.settle(messages * count)?;
        all_closed(&connections)?;
    } else {
        for connection in &mut connections {
            closed(connection.disconnect().within(LIMIT)?)?;
        }
    }
    println!("{count} connections ended");
    Ok(())
}

fn all_closed(connections: &[Connection]) -> Result {
    connections.iter().try_for_each(|connection| closed(connection.closed().within(LIMIT)?))
}

fn closed(how: Closed) -> Result {
    if how == Closed::Disconnected { Ok(()) } else { Err(format!("a connection ended: {how:?}").into()) }
}
