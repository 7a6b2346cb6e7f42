//! Datagrams by the connection manager: a queue pair that is looked up by an address, and a multicast group.
//!
//! `cargo run --example look_ups`: all sides on the soft network. On a device, each is one side: `... look_ups listen ADDRESS:PORT` and
//! `... look_ups ask ADDRESS:PORT`, where the other side may be `udaddy` of rdma-core; `... look_ups hear GROUP ADDRESS` and
//! `... look_ups tell GROUP ADDRESS` with an own address, where the other side may be `mckey`.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uverbs::cm::{Datagrams, Destination, Group, Manager, SoftNetwork};
use uverbs::{
    AccessFlags, Completion, CompletionQueue, Datagram, Device, MemoryRegion, ProtectionDomain, QueuePair,
    ReceiveRequest, Route, SendRequest, SoftDevice, Ud,
};

/// Number of messages each way, and bytes of each.
const COUNT: usize = 10;
const SIZE: usize = 100;
/// Bytes before the data of each receive: the routing header, which has the sender's address.
const HEADER: usize = 40;
const ROOM: usize = HEADER + SIZE;
/// Longest wait for the other side, and for a datagram, which may be lost.
const LIMIT: Duration = Duration::from_secs(20);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What a queue pair needs, without the queue pair.
struct Side {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// One place for each receive, and one for what is sent.
    memory: MemoryRegion,
}

impl Side {
    fn new(device: &Device) -> Result<(Self, QueuePair<Ud>)> {
        let context = device.open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(2 * COUNT as u32)?);
        let memory = pd.register((COUNT + 1) * ROOM, AccessFlags::LOCAL_WRITE)?;
        let qp = pd.ud(&cq).send_depth(COUNT as u32).receive_depth(COUNT as u32).create()?;
        Ok((Self { pd, cq, memory }, qp))
    }

    fn receive(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        for slot in 0..COUNT {
            let room = [self.memory.segment(slot * ROOM..(slot + 1) * ROOM)?];
            qp.post_receive(&[ReceiveRequest::new(slot as u64, &room)])?;
        }
        Ok(())
    }

    /// Sends the messages. Each contains the number of this queue pair, for the answer.
    fn send(&self, qp: &mut QueuePair<Ud>, to: Datagram<'_>, text: &[u8]) -> Result<()> {
        self.memory.write(COUNT * ROOM, text)?;
        let to = Datagram { immediate: Some(qp.number()), ..to };
        for _ in 0..COUNT {
            let piece = [self.memory.segment(COUNT * ROOM..COUNT * ROOM + SIZE)?];
            qp.post_send(&[SendRequest::new(COUNT as u64, to, &piece).signaled()])?;
        }
        Ok(())
    }

    /// Waits until so many messages have been received and sent. Returns the completion of the first receive.
    fn wait(&mut self, mut received: usize, mut sent: usize) -> Result<Option<Completion>> {
        let (start, mut batch, mut first) = (Instant::now(), Completion::batch::<1>(), None);
        while received > 0 || sent > 0 {
            if self.cq.poll(&mut batch) == 0 {
                if start.elapsed() > LIMIT {
                    return Err(format!("{received} datagrams have not come").into());
                }
                std::thread::yield_now();
                continue;
            }
            let completion = batch[0].ok().map_err(|status| status.to_string())?;
            if completion.is_receive() {
                received = received.saturating_sub(1);
                first.get_or_insert(*completion);
            } else {
                sent = sent.saturating_sub(1);
            }
        }
        Ok(first)
    }

    fn text(&self) -> Result<String> {
        let mut text = [0; SIZE];
        self.memory.read(HEADER, &mut text)?;
        let len = text.iter().position(|byte| !byte.is_ascii_graphic() && *byte != b' ').unwrap_or(SIZE);
        Ok(String::from_utf8_lossy(&text[..len]).into_owned())
    }

    /// The sender of the first message.
    fn sender(&self, port: u8) -> Result<Route> {
        let mut header = [0; HEADER];
        self.memory.read(0, &mut header)?;
        Ok(Route::back(port, &self.pd.context().gid_table()?, &header)?)
    }
}

/// Answers one look-up, and then the messages of whoever has asked.
fn listen(datagrams: &Datagrams, address: SocketAddr) -> Result<()> {
    let listener = datagrams.listen(address)?;
    let incoming = listener.next().within(LIMIT)?;
    let (device, port) = incoming.device()?;
    let (mut side, mut qp) = Side::new(&device)?;
    let answer = incoming.accept(&mut qp)?;
    side.receive(&mut qp)?;
    answer.send()?;
    let first = side.wait(COUNT, 0)?.ok_or("no message")?;
    println!("queue pair {} says: {}", first.source_qp, side.text()?);
    let back = side.pd.create_ah(&side.sender(port)?)?;
    // The key is that of the connection manager, with which this queue pair was made ready.
    let qkey = qp.query(uverbs::abi::types::QpAttrMask::QKEY)?.qkey;
    let to = Datagram { to: &back, qp_num: first.source_qp, qkey, immediate: None };
    side.send(&mut qp, to, b"from the server")?;
    side.wait(0, COUNT)?;
    Ok(())
}

/// Looks a queue pair up, and sends it messages.
fn ask(datagrams: &Datagrams, address: SocketAddr) -> Result<()> {
    let target = datagrams.resolve(address).run().within(LIMIT)?;
    let (mut side, mut qp) = Side::new(&target.device()?.0)?;
    let look_up = target.look_up(&mut qp)?;
    side.receive(&mut qp)?;
    let destination: Destination = look_up.run().within(LIMIT)?.destination;
    println!("{address} has queue pair {}", destination.qp_num());
    side.send(&mut qp, destination.datagram(), b"from the client")?;
    side.wait(COUNT, COUNT)?;
    println!("{address} says: {}", side.text()?);
    Ok(())
}

fn group(datagrams: &Datagrams, group: IpAddr, own: IpAddr) -> Result<Group> {
    Ok(datagrams.group(group).source(SocketAddr::new(own, 0)).run().within(LIMIT)?)
}

/// Receives messages to a group.
fn hear(datagrams: &Datagrams, address: IpAddr, own: IpAddr) -> Result<()> {
    let group = group(datagrams, address, own)?;
    let (mut side, mut qp) = Side::new(&group.device()?.0)?;
    let join = group.join(&mut qp)?;
    side.receive(&mut qp)?;
    let membership = join.run().within(LIMIT)?;
    println!("joined {address}");
    let first = side.wait(COUNT, 0)?.ok_or("no message")?;
    println!("queue pair {} tells {address}: {}", first.source_qp, side.text()?);
    Ok(membership.leave()?)
}

/// Sends messages to a group.
fn tell(datagrams: &Datagrams, address: IpAddr, own: IpAddr) -> Result<()> {
    let group = group(datagrams, address, own)?;
    let (mut side, mut qp) = Side::new(&group.device()?.0)?;
    let membership = group.join(&mut qp)?.only_send().run().within(LIMIT)?;
    side.send(&mut qp, membership.destination().datagram(), b"to everybody")?;
    side.wait(0, COUNT)?;
    Ok(membership.leave()?)
}

fn on_soft_network() -> Result<()> {
    let (network, address) = (SoftNetwork::default(), "10.0.0.1:7174".parse()?);
    network.join(&SoftDevice::default(), SocketAddr::ip(&address))?;
    let (datagrams, members) = (network.manager()?.datagrams(), "239.1.2.3".parse()?);
    // The other side may not be there yet.
    let later = Duration::from_millis(100);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| listen(&datagrams, address));
        std::thread::sleep(later);
        ask(&datagrams, address)?;
        server.join().map_err(|_| "the server has panicked")??;
        let member = scope.spawn(|| hear(&datagrams, members, address.ip()));
        std::thread::sleep(later);
        tell(&datagrams, members, address.ip())?;
        member.join().map_err(|_| "the member has panicked")?
    })
}

fn run() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let datagrams = || Ok::<_, uverbs::Error>(Manager::open()?.datagrams());
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => on_soft_network(),
        ["listen", address] => listen(&datagrams()?, address.parse()?),
        ["ask", address] => ask(&datagrams()?, address.parse()?),
        ["hear", group, own] => hear(&datagrams()?, group.parse()?, own.parse()?),
        ["tell", group, own] => tell(&datagrams()?, group.parse()?, own.parse()?),
        _ => Err("usage: look_ups [listen|ask ADDRESS:PORT | hear|tell GROUP ADDRESS]".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("look_ups: {error}");
            ExitCode::FAILURE
        }
    }
}
