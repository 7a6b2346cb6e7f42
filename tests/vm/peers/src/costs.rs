//! What connections cost. System calls and instructions are counted from outside (`strace`, `callgrind`), with two numbers of cycles: the
//! difference is what the cycles cost.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::ErrorKind;
use uverbs::cm::{Listener, Manager};

use crate::Result;
use crate::end::{End, LIMIT};

/// Any free port.
const ANY: u16 = 0;

/// Connections one after the other, each with one message. The sides are threads, each with its own manager.
pub(crate) fn cycles(address: IpAddr, count: u32) -> Result {
    let listener = Manager::open()?.listen(SocketAddr::new(address, ANY))?;
    let (at, device) = (listener.address()?, Manager::open()?.device_of(address)?.0);
    let server = thread::spawn({
        let device = device.clone();
        move || serve(&listener, &mut End::new(&device, 1, 1)?, count)
    });
    let client = call(at, &mut End::new(&device, 1, 1)?, count);
    if client.is_err() && !server.is_finished() {
        // It would wait for another client.
        return client;
    }
    // What has ended the server is the reason for which the client was refused.
    server.join().map_err(|_| "the server has panicked")?.and(client)
}

fn call(at: SocketAddr, end: &mut End, count: u32) -> Result {
    let manager = Manager::open()?;
    for _ in 0..count {
        let target = manager.resolve(at).run().within(LIMIT)?;
        let mut connection = target.connect(end.queue_pair()?)?.establish().within(LIMIT)?;
        end.send(connection.queue_pair(), 1)?;
        end.settle(1)?;
        connection.disconnect().within(LIMIT)?;
    }
    Ok(())
}

fn serve(listener: &Listener, end: &mut End, count: u32) -> Result {
    for _ in 0..count {
        let mut accept = listener.next().within(LIMIT)?.accept(end.queue_pair()?)?;
        end.receive(accept.queue_pair(), 1)?;
        let connection = accept.establish().within(LIMIT)?;
        end.settle(1)?;
        connection.closed().within(LIMIT)?;
    }
    Ok(())
}

/// Bytes of memory of this process that no file is behind.
fn anonymous() -> Result<i64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no RssAnon")?;
    Ok(1024 * kilobytes.parse::<i64>()?)
}

fn files() -> Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

/// Many connections at the same time, all with one manager: files, and memory for each end besides the queue pairs.
pub(crate) fn many(address: IpAddr, count: u32) -> Result {
    let manager = Manager::open()?;
    let listener = manager.listen(SocketAddr::new(address, ANY))?;
    let end = End::new(&manager.device_of(address)?.0, count, 1)?;
    // The descriptors of the manager and of the device are there, and a connection has used what all of them share.
    let pair = || Ok((end.queue_pair()?, end.queue_pair()?));
    let mut pairs = (0..=count).map(|_| pair()).collect::<uverbs::Result<Vec<_>>>()?;
    let at = listener.address()?;
    let (give, take) = channel();
    thread::scope(|scope| {
        let listener = &listener;
        let server = scope.spawn(move || accept(listener, &take, count + 1));
        let mut connections = Vec::with_capacity(count as usize + 1);
        let (mut before, mut open) = (0, 0);
        while let Some((client, accepting)) = pairs.pop() {
            give.send(accepting)?;
            let target = manager.resolve(at).run().within(LIMIT)?;
            connections.push(target.connect(client)?.establish().within(LIMIT)?);
            if connections.len() == 1 {
                (before, open) = (anonymous()?, files()?);
            }
        }
        let accepted = server.join().map_err(|_| "the server has panicked")??;
        let ends = i64::from(2 * count);
        println!("files: {}", files()? - open);
        println!("bytes: {}", (anonymous()? - before) / ends);
        drop((accepted, connections));
        Ok(())
    })
}

fn accept(
    listener: &Listener,
    queue_pairs: &Receiver<uverbs::QueuePair<uverbs::Rc>>,
    count: u32,
) -> Result<Vec<uverbs::cm::Connection>> {
    let mut connections = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let accept = listener.next().within(LIMIT)?.accept(queue_pairs.recv()?)?;
        connections.push(accept.establish().within(LIMIT)?);
    }
    Ok(connections)
}

/// How long a caller waits beyond its deadline if the server does not answer: the least of some, since other programs run too.
pub(crate) fn cancel(server: SocketAddr) -> Result {
    const PATIENCE: Duration = Duration::from_millis(20);
    let manager = Manager::open()?;
    let listener = manager.listen(server)?;
    let mut late = Vec::new();
    for _ in 0..20 {
        let target = manager.resolve(server).run().within(LIMIT)?;
        let end = End::new(&target.device()?.0, 1, 1)?;
        let call = target.connect(end.queue_pair()?)?.establish();
        let start = Instant::now();
        match call.within(PATIENCE) {
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err("nobody has accepted it".into()),
        }
        late.push((start.elapsed() - PATIENCE).as_micros());
    }
    println!("each: {late:?}");
    println!("cancel: {} us", late.iter().min().ok_or("no time")?);
    drop(listener);
    Ok(())
}

/// How long it takes from an address to a connection.
pub(crate) fn reach(server: SocketAddr) -> Result {
    let manager = Manager::open()?;
    let start = Instant::now();
    let target = manager.resolve(server).run().within(LIMIT)?;
    let end = End::new(&target.device()?.0, 1, 1)?;
    let mut connection = target.connect(end.queue_pair()?)?.establish().within(LIMIT)?;
    println!("{}", start.elapsed().as_millis());
    connection.disconnect().within(LIMIT)?;
    Ok(())
}
