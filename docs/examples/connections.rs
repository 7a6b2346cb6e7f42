//! A connection by the connection manager, with one message each way.
//!
//! `cargo run --example connections`: both sides on the soft network. `... connections listen ADDRESS:PORT` and
//! `... connections connect ADDRESS:PORT`: one side, on the device that has the address or reaches it; the other side may be
//! `rdma_client` or `rdma_server` of rdma-core.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uverbs::cm::{Manager, SoftNetwork};
use uverbs::{
    AccessFlags, Completion, CompletionQueue, Device, MemoryRegion, Operation, QueuePair, Rc, ReceiveRequest,
    SendRequest, SoftDevice, Status,
};

/// Bytes of a message.
const SIZE: usize = 16;
/// Longest wait for the other side.
const LIMIT: Duration = Duration::from_secs(20);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What a queue pair needs, without the queue pair.
struct Side {
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Side {
    fn new(device: &Device) -> Result<(Self, QueuePair<Rc>)> {
        let context = device.open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(8)?);
        let memory = pd.register(2 * SIZE, AccessFlags::LOCAL_WRITE)?;
        let qp = pd.rc(&cq).create()?;
        Ok((Self { cq, memory }, qp))
    }

    fn receive(&self, qp: &mut QueuePair<Rc>) -> Result<()> {
        Ok(qp.post_receive(&[ReceiveRequest::new(1, &[self.memory.segment(..SIZE)?])])?)
    }

    fn send(&self, qp: &mut QueuePair<Rc>, text: &[u8; SIZE]) -> Result<()> {
        self.memory.write(SIZE, text)?;
        let piece = [self.memory.segment(SIZE..)?];
        Ok(qp.post_send(&[SendRequest::new(2, Operation::Send, &piece).signaled()])?)
    }

    /// Waits until so many requests have completed.
    fn wait(&mut self, mut count: usize) -> Result<()> {
        let (start, mut batch) = (Instant::now(), Completion::batch::<1>());
        while count > 0 {
            match self.cq.poll(&mut batch) {
                0 if start.elapsed() > LIMIT => return Err("no message has come".into()),
                0 => std::thread::yield_now(),
                _ if batch[0].status != Status::Success => return Err(batch[0].status.to_string().into()),
                _ => count -= 1,
            }
        }
        Ok(())
    }

    fn text(&self) -> Result<String> {
        let mut text = [0; SIZE];
        self.memory.read(0, &mut text)?;
        Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
    }
}

/// Takes one connection, and answers its message.
fn listen(manager: &Manager, address: SocketAddr) -> Result<()> {
    let listener = manager.listen(address)?;
    let incoming = listener.next().within(LIMIT)?;
    let (mut side, qp) = Side::new(&incoming.device()?.0)?;
    let mut accept = incoming.accept(qp)?;
    side.receive(accept.queue_pair())?;
    let mut connection = accept.establish().within(LIMIT)?;
    side.wait(1)?;
    println!("{} says: {}", connection.addresses()?.1.ip(), side.text()?);
    side.send(connection.queue_pair(), b"from the server\0")?;
    side.wait(1)?;
    println!("the connection has ended: {:?}", connection.closed().within(LIMIT)?);
    Ok(())
}

/// Connects, and sends a message.
fn connect(manager: &Manager, address: SocketAddr) -> Result<()> {
    let target = manager.resolve(address).run().within(LIMIT)?;
    let (device, port) = target.device()?;
    println!("{} is reached through {} port {port}", address.ip(), device.name());
    let (mut side, qp) = Side::new(&device)?;
    let mut connect = target.connect(qp)?;
    side.receive(connect.queue_pair())?;
    let mut connection = connect.establish().within(LIMIT)?;
    side.send(connection.queue_pair(), b"from the client\0")?;
    side.wait(2)?;
    println!("{} says: {}", address.ip(), side.text()?);
    connection.disconnect().within(LIMIT)?;
    Ok(())
}

fn on_soft_network() -> Result<()> {
    let (network, address) = (SoftNetwork::default(), "10.0.0.1:7174".parse()?);
    network.join(&SoftDevice::default(), SocketAddr::ip(&address))?;
    let manager = network.manager()?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| listen(&manager, address));
        // The server may not listen yet.
        std::thread::sleep(Duration::from_millis(100));
        connect(&manager, address)?;
        server.join().map_err(|_| "the server has panicked")?
    })
}

fn run() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => on_soft_network(),
        ["listen", address] => listen(&Manager::open()?, address.parse()?),
        ["connect", address] => connect(&Manager::open()?, address.parse()?),
        _ => Err("usage: connections [listen|connect ADDRESS:PORT]".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("connections: {error}");
            ExitCode::FAILURE
        }
    }
}
