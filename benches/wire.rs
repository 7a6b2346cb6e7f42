//! What a soft device on a wire carries, between two devices of this process on addresses of the loopback interface: `cargo bench --bench
//! wire`. With `--test` it transfers little, and only checks that all of it arrives.
//!
//! Each side has a thread that polls and handles what has arrived ([`SoftDevice::progress`]); the device's own threads then leave the
//! sockets alone. Both sides are in one process, so the figures are of two processors.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Instant;

use uverbs::soft::Profile;
use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, MemoryRegion, Operation, QueuePair, Rc,
    ReceiveRequest, Remote, SendRequest, SoftDevice, Status,
};

type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const DEPTH: usize = 16;
const RECEIVE: u64 = 1;

/// A device with a queue pair.
struct Side {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    device: SoftDevice,
}

impl Side {
    fn new(number: u8) -> Done<Self> {
        let address = IpAddr::from(Ipv4Addr::new(127, 45, 0, number));
        let device = SoftDevice::on(address, Profile::default())?;
        let context = device.device().open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(4 * DEPTH as u32)?);
        let qp = pd.rc(&cq).send_depth(DEPTH as u32).receive_depth(DEPTH as u32).create()?;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let memory = pd.register(DEPTH << 16, access)?;
        Ok(Self { qp, cq, memory, device })
    }

    /// The number of sends and of receives that have ended, at least one of both, successfully.
    fn completions(&mut self) -> Done<[usize; 2]> {
        let mut batch = Completion::batch::<DEPTH>();
        loop {
            let count = self.cq.poll(&mut batch);
            if count == 0 {
                self.device.progress();
                continue;
            }
            let all = &batch[..count];
            if let Some(failed) = all.iter().find(|done| done.status != Status::Success) {
                return Err(format!("{:?}", failed.status).into());
            }
            let receives = all.iter().filter(|done| done.wr_id == RECEIVE).count();
            return Ok([count - receives, receives]);
        }
    }

    fn receive(&mut self) -> Done {
        let segments = [self.memory.segment(..64)?];
        Ok(self.qp.post_receive(&[ReceiveRequest::new(RECEIVE, &segments)])?)
    }

    /// Posts an operation on the first `len` bytes of the memory at `place`.
    fn post(&mut self, operation: Operation, place: usize, len: usize) -> Done {
        let segments = [self.memory.segment(place..place + len)?];
        Ok(self.qp.post_send(&[SendRequest::new(0, operation, &segments).signaled()])?)
    }
}

fn connected() -> Done<[Side; 2]> {
    let (mut one, mut two) = (Side::new(1)?, Side::new(2)?);
    let options = ConnectionOptions::new(1, 0);
    let (a, b) = (one.qp.endpoint(&options, 0)?, two.qp.endpoint(&options, 0)?);
    one.qp.connect(&options, &a, &b)?;
    two.qp.connect(&options, &b, &a)?;
    Ok([one, two])
}

/// Operations of `len` bytes, as many in flight as fit. Prints bytes and operations a second.
fn stream(name: &str, count: usize, len: usize, operation: impl Fn(Remote) -> Operation) -> Done {
    let [mut one, two] = connected()?;
    let remote = Remote { address: two.memory.address(), rkey: two.memory.rkey() };
    let (mut posted, mut ended) = (0, 0);
    let start = Instant::now();
    while ended < count {
        while posted < count && posted < ended + DEPTH {
            one.post(operation(remote), posted % DEPTH * len, len)?;
            posted += 1;
        }
        ended += one.completions()?[0];
    }
    let seconds = start.elapsed().as_secs_f64();
    let (bytes, rate) = ((count * len) as f64 / seconds / 1e6, count as f64 / seconds);
    println!("{name} of {len} bytes, {DEPTH} in flight: {bytes:.0} MB/s, {rate:.0} a second");
    Ok(())
}

/// Messages to and fro. Prints half of the time of a round.
fn turns(count: usize) -> Done {
    const LEN: usize = 64;
    let [mut one, mut two] = connected()?;
    one.receive()?;
    two.receive()?;
    let other = thread::spawn(move || -> Done {
        let mut sent = 0;
        while sent < count {
            let [sends, receives] = two.completions()?;
            sent += sends;
            for _ in 0..receives {
                two.receive()?;
                two.post(Operation::Send, 0, LEN)?;
            }
        }
        Ok(())
    });
    let start = Instant::now();
    for _ in 0..count {
        one.post(Operation::Send, 0, LEN)?;
        let (mut sends, mut receives) = (0, 0);
        while sends == 0 || receives == 0 {
            let more = one.completions()?;
            (sends, receives) = (sends + more[0], receives + more[1]);
        }
        one.receive()?;
    }
    let micros = start.elapsed().as_secs_f64() * 1e6 / count as f64 / 2.0;
    other.join().map_err(|_| "the other side has failed")??;
    println!("messages of {LEN} bytes, to and fro: {micros:.1} us each");
    Ok(())
}

fn main() -> Done {
    let scale = if std::env::args().any(|word| word == "--test") { 100 } else { 1 };
    stream("writes", 20_000 / scale, 1 << 16, Operation::Write)?;
    stream("reads", 10_000 / scale, 1 << 16, Operation::Read)?;
    stream("writes", 200_000 / scale, 64, Operation::Write)?;
    turns(50_000 / scale)
}
